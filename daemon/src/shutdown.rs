//! How the daemon leaves: on a signal, when told to, or after a long time with nothing to do.

use std::sync::Arc;
use std::time::Duration;

use crate::daemon::Daemon;
use crate::handover::Phase;
use crate::session::SessionMessage;

/// Sessions that do not settle by then are left as their files are.
pub const SETTLE_DEADLINE: Duration = Duration::from_secs(8);

/// Ends all sessions, then the children.
pub async fn end(daemon: &Arc<Daemon>) {
    let handover = *daemon.phase.borrow() == Phase::Leaving;
    let sessions = daemon.sessions.all();
    for session in &sessions {
        session.send(SessionMessage::Shutdown { handover }).await;
    }
    // One that is being opened just now is told by the connection that opens it.
    let settled = async {
        for session in &sessions {
            session.closed().await;
        }
    };
    if tokio::time::timeout(SETTLE_DEADLINE, settled).await.is_err() {
        tracing::warn!("some sessions did not settle in time");
    }
    daemon.children.end_all().await;
}

/// Returns when the daemon has been quiet for `idle_exit`. Never without one.
pub async fn idle(daemon: &Arc<Daemon>, idle_exit: Option<Duration>) {
    let Some(idle_exit) = idle_exit else { return std::future::pending().await };
    loop {
        let changed = daemon.sessions.changed.notified();
        if daemon.is_quiet() {
            if tokio::time::timeout(idle_exit, changed).await.is_err() && daemon.is_quiet() {
                tracing::info!("nothing to do for a long time");
                return;
            }
        } else {
            changed.await;
        }
    }
}
