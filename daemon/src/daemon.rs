//! What every part of the daemon shares.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use atomic_providers::{Http, Pool};
use atomic_tools::Children;
use tokio_util::sync::CancellationToken;

use crate::logging::Logging;
use crate::session::SessionHandle;
use crate::sessions::Sessions;

/// How often old kept output is looked for.
const CLEAN_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// One daemon.
pub struct Daemon {
    /// Canonical.
    pub agent_dir: PathBuf,
    /// HTTP clients, made on first use.
    pub http: Http,
    /// What sessions need not ask twice: tokens, lists of local servers.
    pub pool: Pool,
    /// Child processes, which end with the daemon.
    pub children: Children,
    /// All live sessions.
    pub sessions: Arc<Sessions>,
    /// The log and its level.
    pub logging: Logging,
    /// Cancelled when the daemon leaves: no more connections, no more commands.
    pub shutdown: CancellationToken,
    /// When it began.
    pub started: Instant,
    attached: AtomicUsize,
    /// When the kept output in each directory of temporary files was last looked through.
    cleaned: Mutex<HashMap<PathBuf, Instant>>,
}

impl Daemon {
    /// A daemon without sessions.
    pub fn new(agent_dir: PathBuf, children: Children, logging: Logging) -> Daemon {
        Daemon {
            agent_dir,
            http: Http::new(),
            pool: Pool::new(),
            children,
            sessions: Arc::default(),
            logging,
            shutdown: CancellationToken::new(),
            started: Instant::now(),
            attached: AtomicUsize::new(0),
            cleaned: Mutex::default(),
        }
    }

    /// Counts a client for as long as the value lives.
    pub fn attached(self: &Arc<Self>) -> Presence {
        self.attached.fetch_add(1, Ordering::AcqRel);
        Presence(self.clone())
    }

    /// Removes old kept output from a directory of temporary files, at most once in [`CLEAN_INTERVAL`].
    pub fn clean(&self, temp_dir: PathBuf) {
        let mut cleaned = self.cleaned.lock().unwrap_or_else(PoisonError::into_inner);
        if cleaned.get(&temp_dir).is_some_and(|last| last.elapsed() < CLEAN_INTERVAL) {
            return;
        }
        cleaned.insert(temp_dir.clone(), Instant::now());
        drop(cleaned);
        tokio::task::spawn_blocking(move || match atomic_tools::clean_old_output(&temp_dir) {
            Ok(0) => {}
            Ok(count) => tracing::info!(dir = %temp_dir.display(), count, "removed old output"),
            Err(error) => tracing::warn!(dir = %temp_dir.display(), %error, "old output was not removed"),
        });
    }

    /// How many clients are attached.
    pub fn clients(&self) -> usize {
        self.attached.load(Ordering::Acquire)
    }

    /// Nothing is attached and nothing runs.
    pub fn is_quiet(&self) -> bool {
        self.clients() == 0
            && !self
                .sessions
                .all()
                .iter()
                .map(SessionHandle::status)
                .any(|status| status.running || status.kept)
    }
}

/// An attached client.
pub struct Presence(Arc<Daemon>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.attached.fetch_sub(1, Ordering::AcqRel);
        self.0.sessions.changed.notify_waiters();
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("agent_dir", &self.agent_dir).finish_non_exhaustive()
    }
}
