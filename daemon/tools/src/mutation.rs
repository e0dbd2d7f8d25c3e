//! One writer per file: edits and writes of the same file wait for each other, in the order they came, across all
//! sessions of the daemon. Other processes are not covered.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

use crate::error::ToolError;
use crate::paths;

/// A file's turn. Whoever changes the file holds it until the last byte is written, also when the call was aborted.
#[derive(Debug)]
pub(crate) struct Turn {
    _real: OwnedMutexGuard<()>,
    _written: OwnedMutexGuard<()>,
}

/// tokio's mutex because the wait is long and its queue is fair: first come, first served.
type Gate = Arc<tokio::sync::Mutex<()>>;

static GATES: LazyLock<Mutex<HashMap<Key, Weak<tokio::sync::Mutex<()>>>>> = LazyLock::new(Mutex::default);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    /// The path as the call spells it.
    Written(PathBuf),
    /// The file behind all links.
    Real(PathBuf),
}

fn gate(key: Key) -> Gate {
    let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(gate) = gates.get(&key).and_then(Weak::upgrade) {
        return gate;
    }
    // Files come and go; what nobody holds any more is dropped whenever a new one comes.
    gates.retain(|_, gate| gate.strong_count() > 0);
    let gate = Gate::default();
    gates.insert(key, Arc::downgrade(&gate));
    gate
}

/// Waits for the turn on the file that a call spells `written`; `find` looks on the disk which one that is (blocking).
///
/// Two gates are passed: first that of the path as written, which is entered at the first poll, so calls that spell a path
/// alike keep their order although finding the real path takes a look at the disk; then that of the real path, which
/// serialises different spellings. Every caller takes them in this order, and the second is never waited for by somebody
/// who holds another second one, so no cycle can form.
pub(crate) async fn turn(
    written: &Path,
    find: impl FnOnce() -> PathBuf + Send + 'static,
) -> Result<Turn, ToolError> {
    let written = gate(Key::Written(written.to_owned())).lock_owned().await;
    let real = tokio::task::spawn_blocking(move || paths::real(&find()))
        .await
        .map_err(|error| ToolError::Internal { tool: "edit".into(), what: error.to_string() })?;
    let real = gate(Key::Real(real)).lock_owned().await;
    Ok(Turn { _real: real, _written: written })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Place;

    async fn turn_on(path: PathBuf) -> Result<Turn, ToolError> {
        turn(&path.clone(), move || path).await
    }

    #[tokio::test]
    async fn two_spellings_of_one_file_wait_for_each_other() {
        let place = Place::new();
        place.write("dir/a", "");
        let held = turn_on(place.path("dir/a")).await.unwrap();
        let other = place.path("dir/../dir/a");
        let mut second = still_waiting(turn_on(other)).await;
        drop(held);
        second.as_mut().await.unwrap();
    }

    /// Drives `future` until it waits for the held gate: the blocking look-up is over once another look-up, queued after
    /// it on the same path, is.
    async fn still_waiting<F: Future>(future: F) -> std::pin::Pin<Box<F>> {
        let mut future = Box::pin(future);
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = &mut future => panic!("the gate is held by another"),
                done = tokio::task::spawn_blocking(|| ()) => done.unwrap(),
            }
        }
        future
    }

    #[tokio::test]
    async fn gates_of_files_that_nobody_holds_are_dropped() {
        let place = Place::new();
        for at in 0..50 {
            drop(turn_on(place.path(&format!("f{at}"))).await.unwrap());
        }
        let ours = |key: &&Key| match key {
            Key::Written(path) | Key::Real(path) => {
                path.to_string_lossy().contains(&*place.tmp().parent().unwrap().to_string_lossy())
            }
        };
        assert!(GATES.lock().unwrap().keys().filter(ours).count() <= 2);
    }
}
