//! When a call that changes a file begins: after the clients were told of it, and after the calls before it.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::connection::Client;

/// How long the announcement of a call may take on its way out before the file is changed all the same: a client that
/// reads more slowly is not waited for.
const ANNOUNCING: Duration = Duration::from_millis(100);

/// Between the announcement and the change. A client that shows differences (pi-acp) reads the file when it is told, and
/// nothing says when it has. Two milliseconds were enough in each of its tests and none in one of six; the rest is for a
/// machine that is busy.
const LOOKING: Duration = Duration::from_millis(20);

/// The tools that change files.
const TOOLS: [&str; 2] = ["edit", "write"];

/// The calls of a session that change files, in the order they were made.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Ends when the newest call has begun.
    newest: Option<oneshot::Receiver<()>>,
}

impl Changes {
    /// A place behind the calls so far, for a call that changes a file; the others need none. Its announcement is in the
    /// outboxes of these clients.
    pub(super) fn place(&mut self, tool: &str, clients: &[Arc<Client>]) -> Option<Place> {
        TOOLS.contains(&tool).then(|| {
            let (begun, newest) = oneshot::channel();
            Place { before: self.newest.replace(newest), begun, clients: clients.to_vec() }
        })
    }
}

/// One call's place.
#[derive(Debug)]
pub(super) struct Place {
    /// Ends when the call before has begun.
    before: Option<oneshot::Receiver<()>>,
    /// Dropped when this call has begun, or is over without that.
    begun: oneshot::Sender<()>,
    clients: Vec<Arc<Client>>,
}

impl Place {
    /// Polls `work` to its end, for the first time when its turn has come or it is cancelled: the first poll is what gives
    /// it its place among all changes of the same file.
    pub(super) async fn run<T>(self, cancel: CancellationToken, work: impl Future<Output = T>) -> T {
        let Place { before, begun, clients } = self;
        tokio::select! {
            () = cancel.cancelled() => {}
            () = come(before, &clients) => {}
        }
        let mut work = pin!(work);
        let first = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        drop(begun);
        match first {
            Poll::Ready(output) => output,
            Poll::Pending => work.await,
        }
    }
}

async fn come(before: Option<oneshot::Receiver<()>>, clients: &[Arc<Client>]) {
    if !clients.is_empty() {
        let told = async {
            for client in clients {
                client.outbox.drained().await;
            }
        };
        let _ = tokio::time::timeout(ANNOUNCING, told).await;
        tokio::time::sleep(LOOKING).await;
    }
    if let Some(before) = before {
        // The sender says nothing: it is dropped, which is the news. That takes no longer than the two waits above take
        // the call before, or its task's end.
        let _ = before.await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Runs calls that note their names, the first of them cancelled or not; gives the order they began in.
    async fn order(cancel_first: bool) -> Vec<&'static str> {
        let mut changes = Changes::default();
        let begun = Mutex::new(Vec::new());
        let note = async |name| begun.lock().expect("no panic holds it").push(name);
        let first = changes.place("edit", &[]).expect("it changes a file");
        let second = changes.place("write", &[]).expect("it changes a file");
        let cancel = CancellationToken::new();
        if cancel_first {
            cancel.cancel();
        }
        // The second is polled before the first.
        tokio::join!(second.run(CancellationToken::new(), note("second")), first.run(cancel, note("first")),);
        begun.into_inner().expect("no panic held it")
    }

    #[tokio::test]
    async fn changes_begin_in_the_order_they_were_made() {
        assert_eq!(order(false).await, ["first", "second"]);
        assert_eq!(order(true).await, ["first", "second"]);
    }

    #[tokio::test]
    async fn a_call_that_never_began_holds_up_nobody() {
        let mut changes = Changes::default();
        drop(changes.place("edit", &[]));
        let place = changes.place("edit", &[]).expect("it changes a file");
        assert_eq!(place.run(CancellationToken::new(), async { 1 }).await, 1);
    }

    #[test]
    fn what_changes_no_file_needs_no_place() {
        let mut changes = Changes::default();
        assert!(["bash", "read", "grep", "find", "ls"].iter().all(|tool| changes.place(tool, &[]).is_none()));
    }
}
