//! What every part of the daemon shares.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atomic_agent::IdSource;
use atomic_protocol::entry::EntryId;
use atomic_protocol::link::Mode;
use atomic_providers::{Http, Pool};
use atomic_tools::Children;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::connection::Client;
use crate::handover::Phase;
use crate::logging::Logging;
use crate::session::{self, SessionHandle};
use crate::sessions::Sessions;

/// How often old kept output is looked for.
const CLEAN_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Makes the source of a session's entry ids, which must not be any of these.
pub type NewIds = fn(HashSet<EntryId>) -> Box<dyn IdSource>;

/// One daemon.
pub struct Daemon {
    /// Canonical.
    pub agent_dir: PathBuf,
    /// HTTP clients, made on first use.
    pub http: Http,
    /// What sessions need not ask twice: tokens, lists of local servers.
    pub pool: Pool,
    /// Where the ids of new entries come from: random.
    pub new_ids: NewIds,
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
    /// How far it is with handing over to another daemon.
    pub phase: watch::Sender<Phase>,
    /// A hand-over is under way.
    pub handing_over: AtomicBool,
    /// Those that are attached or about to be, by id.
    clients: Mutex<HashMap<u64, (Arc<Client>, Mode)>>,
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
            new_ids: session::prepare::random_ids,
            children,
            sessions: Arc::default(),
            logging,
            shutdown: CancellationToken::new(),
            started: Instant::now(),
            phase: watch::Sender::new(Phase::Serving),
            handing_over: AtomicBool::new(false),
            clients: Mutex::default(),
            cleaned: Mutex::default(),
        }
    }

    /// Counts a client for as long as the value lives.
    pub fn attached(self: &Arc<Self>, client: &Arc<Client>, mode: Mode) -> Presence {
        self.clients_by_id().insert(client.id, (client.clone(), mode));
        self.sessions.changed.notify_waiters();
        Presence { daemon: self.clone(), client: client.id }
    }

    fn clients_by_id(&self) -> MutexGuard<'_, HashMap<u64, (Arc<Client>, Mode)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clients that are attached or about to be, and what each of them is for.
    pub fn attached_clients(&self) -> Vec<(Arc<Client>, Mode)> {
        self.clients_by_id().values().cloned().collect()
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
        self.clients_by_id().len()
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
pub struct Presence {
    daemon: Arc<Daemon>,
    client: u64,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.daemon.clients_by_id().remove(&self.client);
        self.daemon.sessions.changed.notify_waiters();
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("agent_dir", &self.agent_dir).finish_non_exhaustive()
    }
}
