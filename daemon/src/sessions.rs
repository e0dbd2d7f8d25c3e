//! All live sessions, and the promise that a file has at most one.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::{Notify, OnceCell};

use crate::process;
use crate::session::SessionHandle;
use crate::session::actor::{self, Prepared};

/// A file's place: empty while somebody opens it. Whoever comes meanwhile waits and joins.
pub type Cell = Arc<OnceCell<SessionHandle>>;

/// After a session has ended, its memory goes back to the system with that of others that end about then.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);

/// The registry. It holds handles only.
#[derive(Debug, Default)]
pub struct Sessions {
    /// By file; a fresh session's file is reserved here before it exists.
    files: DashMap<PathBuf, Cell>,
    /// All of them, those in memory too.
    live: Mutex<Vec<SessionHandle>>,
    /// Something changed: a session began, ended, or went idle.
    pub changed: Notify,
    /// Memory will be given back soon.
    giving_back: Arc<AtomicBool>,
}

impl Sessions {
    /// The place of a file. `path` is canonical.
    pub fn cell(&self, path: &Path) -> Cell {
        let cell = self.files.entry(path.to_owned()).or_default().clone();
        // The session of a cell that is over leaves it to the next.
        if cell.get().is_some_and(SessionHandle::is_closed) {
            let fresh = Cell::default();
            self.files.insert(path.to_owned(), fresh.clone());
            return fresh;
        }
        cell
    }

    /// All live sessions.
    pub fn all(&self) -> Vec<SessionHandle> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The live session with this file.
    pub fn with_file(&self, file: &Path) -> Option<SessionHandle> {
        self.all()
            .into_iter()
            .find(|session| !session.is_closed() && session.info().file.as_deref() == Some(file))
    }

    /// The file of the live session with this id; with `prefix` also of the first whose id begins so. A session in memory has
    /// none and cannot be found.
    pub fn file_by_id(&self, id: &str, prefix: bool) -> Option<PathBuf> {
        let live = self.all();
        let mut open = live.iter().map(SessionHandle::info).filter(|info| info.file.is_some());
        let exact = open.clone().find(|info| info.id == id);
        let begun = || open.find(|info| prefix && !id.is_empty() && info.id.starts_with(id));
        exact.or_else(begun)?.file.clone()
    }

    /// Starts a session whose file nobody else can have.
    pub(crate) fn start_fresh(self: &Arc<Self>, prepared: Prepared) -> SessionHandle {
        let cell = Cell::default();
        if let Some(path) = prepared.file() {
            self.files.insert(path.to_owned(), cell.clone());
        }
        let session = self.start_stored(prepared, &cell);
        // A fresh cell is empty, so this cannot fail.
        let _ = cell.set(session.clone());
        session
    }

    /// Starts a session for the cell of its file.
    pub(crate) fn start_stored(self: &Arc<Self>, prepared: Prepared, cell: &Cell) -> SessionHandle {
        let (sessions, cell) = (self.clone(), cell.clone());
        let session = actor::start(prepared, move |over| sessions.ended(over, &cell));
        self.live.lock().unwrap_or_else(PoisonError::into_inner).push(session.clone());
        self.changed.notify_waiters();
        session
    }

    fn ended(&self, session: &SessionHandle, cell: &Cell) {
        if let Some(path) = &session.info().file {
            // Only if the place is still this session's.
            self.files.remove_if(path, |_, current| Arc::ptr_eq(current, cell));
        }
        self.live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|other| other.info().id != session.info().id);
        self.changed.notify_waiters();
        self.give_back_memory();
    }

    fn give_back_memory(&self) {
        if self.giving_back.swap(true, Ordering::AcqRel) {
            return;
        }
        let giving_back = self.giving_back.clone();
        tokio::spawn(async move {
            tokio::time::sleep(GIVE_BACK_AFTER).await;
            giving_back.store(false, Ordering::Release);
            // Nobody waits for it.
            tokio::task::spawn_blocking(process::give_back_memory);
        });
    }
}
