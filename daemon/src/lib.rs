//! atomicd: owns every session of a user; the only crate that knows all the others.
//!
//! * [`handshake`] turns an accepted socket into an attached client; [`connection`] turns its lines into commands.
//! * [`session`] is where a session lives: one task, fed by messages, performing what its agent decides.
//! * [`sessions`] is the registry; [`outbox`] what waits for one client; [`ticket`] the duty to answer a line.
//! * [`answer`] is what this program does as a process of its own, without a daemon; [`listing`] serves both.
//! * [`handover`] lets another daemon take over; [`admin`], [`shutdown`], [`logging`], [`settings`], [`context_files`] are what their names say.
//!
//! What differs between systems lies in `transport/` and `process/`, in `unix.rs` and `windows.rs`.

#![deny(unsafe_code)]

pub mod admin;
pub mod answer;
pub mod clock;
pub mod connection;
pub mod context_files;
pub mod daemon;
pub mod handover;
pub mod handshake;
pub mod listing;
pub mod logging;
pub mod long;
pub mod outbox;
pub mod page;
pub mod process;
pub mod resources;
pub mod session;
pub mod sessions;
pub mod settings;
pub mod shutdown;
pub mod ticket;
pub mod transport;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use atomic_link::listen::{self, DaemonLock};
use atomic_link::place::Place;
use atomic_protocol::link::build_id;
use atomic_tools::Children;

use crate::daemon::Daemon;
use crate::settings::Settings;
use crate::transport::Listener;

/// After accepting failed (for example for want of descriptors) the next try waits.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often a removed socket file is looked for. A live daemon binds it again.
const SOCKET_CHECK: Duration = Duration::from_secs(2);

/// Serves the user of `place` until there is a reason to leave. `program` is this program's own path, for the guard.
///
/// # Errors
/// When another daemon serves already, or the socket cannot be bound. Names the path.
pub async fn run(
    place: Place,
    mut lock: DaemonLock,
    program: PathBuf,
    level: Option<String>,
) -> anyhow::Result<()> {
    let (settings, warnings) = Settings::load(place.agent_dir(), None, None);
    let level =
        level.or(settings.daemon.log_level.clone()).unwrap_or_else(|| logging::DEFAULT_LEVEL.to_owned());
    let logging = match logging::init(&place.logs(), &level) {
        Err(logging::LoggingError::Level { .. }) => logging::init(&place.logs(), logging::DEFAULT_LEVEL),
        other => other,
    }
    .context("cannot open the log")?;
    logging::install_panic_hook();
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let mut signals = process::Signals::install().context("cannot watch for signals")?;
    let listener = listen::bind(&place, &lock)?;
    tracing::info!(socket = %place.socket().display(), pid = std::process::id(), build = build_id(), "atomicd serves");
    let daemon = Arc::new(Daemon::new(place.agent_dir().to_owned(), Children::new(program), logging));
    let mut accepting = Accepting::start(&place, listener, &daemon)?;
    let idle = shutdown::idle(&daemon, settings.daemon.idle_exit);
    tokio::pin!(idle);
    let reason = loop {
        tokio::select! {
            signal = signals.next() => break signal,
            () = daemon.shutdown.cancelled() => break "stop",
            () = &mut idle => break "idle",
            () = tokio::time::sleep(SOCKET_CHECK) => {
                if !keep(&place, &mut lock) {
                    break "superseded";
                }
                accepting.look(&place, &lock, &daemon);
            }
        }
    };
    tracing::info!(reason, "atomicd leaves");
    accepting.stop();
    daemon.shutdown.cancel();
    tokio::select! {
        () = shutdown::end(&daemon) => {}
        signal = signals.next() => tracing::warn!(signal, "leaving at once"),
    }
    // Connections say goodbye now that their sessions have.
    let goodbye = async {
        loop {
            let changed = daemon.sessions.changed.notified();
            if daemon.clients() == 0 {
                return;
            }
            changed.await;
        }
    };
    let _ = tokio::time::timeout(outbox::DRAIN_DEADLINE, goodbye).await;
    if reason != "superseded" {
        listen::unbind(&place, &lock);
    }
    tracing::info!("atomicd left");
    Ok(())
}

/// Takes the lock anew when somebody has removed its file. False: another daemon was quicker, and two must not be.
fn keep(place: &Place, lock: &mut DaemonLock) -> bool {
    if lock.is_in_place(place) {
        return true;
    }
    match DaemonLock::acquire(place, Duration::ZERO) {
        Ok(new) => {
            tracing::warn!("the lock was gone; took it again");
            *lock = new;
            true
        }
        Err(error) => {
            tracing::error!(%error, "the lock was gone and cannot be taken again");
            false
        }
    }
}

/// The task that accepts, and the socket file it belongs to.
struct Accepting {
    task: tokio::task::JoinHandle<()>,
    #[cfg(unix)]
    file: listen::SocketFile,
}

impl Accepting {
    fn start(place: &Place, listener: listen::Listener, daemon: &Arc<Daemon>) -> anyhow::Result<Accepting> {
        #[cfg(unix)]
        let file = listener.file();
        let listener = Listener::new(listener)
            .with_context(|| format!("cannot listen on {}", place.socket().display()))?;
        let daemon = daemon.clone();
        let task = tokio::spawn(async move {
            // One line for a want of descriptors, however long it lasts.
            let mut failures = 0_u64;
            loop {
                match listener.accept().await {
                    Ok(accepted) => {
                        if failures > 0 {
                            tracing::info!(failures, "connections are accepted again");
                            failures = 0;
                        }
                        drop(tokio::spawn(handshake::serve(daemon.clone(), accepted)));
                    }
                    Err(error) => {
                        if failures == 0 {
                            tracing::warn!(%error, "accepting a connection failed; it is tried again");
                        }
                        failures += 1;
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
        Ok(Accepting {
            task,
            #[cfg(unix)]
            file,
        })
    }

    fn stop(&self) {
        self.task.abort();
    }

    /// Binds the socket again when somebody (a cleaner of temporary files, say) has removed it.
    #[cfg(unix)]
    fn look(&mut self, place: &Place, lock: &DaemonLock, daemon: &Arc<Daemon>) {
        if self.file.is_in_place(place) {
            return;
        }
        match listen::bind(place, lock)
            .map_err(anyhow::Error::from)
            .and_then(|new| Accepting::start(place, new, daemon))
        {
            Ok(new) => {
                tracing::warn!(socket = %place.socket().display(), "the socket was gone; bound it again");
                self.stop();
                *self = new;
            }
            Err(error) => tracing::error!(%error, "the socket is gone and cannot be bound again"),
        }
    }

    #[cfg(not(unix))]
    fn look(&mut self, _place: &Place, _lock: &DaemonLock, _daemon: &Arc<Daemon>) {}
}

/// The place of an agent directory, and its lock.
///
/// # Errors
/// When another daemon keeps it.
pub fn claim(agent_dir: &Path) -> anyhow::Result<(Place, DaemonLock)> {
    let place = Place::of(agent_dir)?;
    let lock = DaemonLock::acquire(&place, listen::LOCK_PATIENCE)?;
    Ok((place, lock))
}
