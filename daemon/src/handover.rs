//! How the daemon hands its sessions over to the next one (`atomic restart`, an upgrade).
//!
//! Runs are never handed over: they settle here. Until they have, lines that would begin something new are *held*: read,
//! and neither admitted nor lost, since a shim sends them to the next daemon. Reads and control lines (`abort`, an answer
//! to a dialog) are served to the end. What cannot move, a session in memory or a client that only runs its messages, is
//! waited for before anything is held, so that nobody waits for a window that stays open for days.
//!
//! One daemon at a time: the next one starts when this one has released its lock.

use std::collections::BTreeSet;
use std::sync::Arc;

use atomic_protocol::link::{FromDaemon, Hello, Mode, PROGRAM_VERSION, Reply, build_id};
use tokio::sync::{oneshot, watch};

use crate::admin::report;
use crate::connection::{Client, Standing};
use crate::daemon::Daemon;
use crate::session::{SessionHandle, SessionMessage};
use crate::shutdown::SETTLE_DEADLINE;
use crate::transport::ReadHalf;

/// How far a hand-over is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// None is under way, or it waits for what cannot move.
    Serving,
    /// Lines that would begin something new are held.
    Holding,
    /// Clients are told to go to the next daemon.
    Leaving,
}

/// Serves the connection that asks for a restart.
pub async fn serve(daemon: &Arc<Daemon>, client: &Client, read: ReadHalf, hello: &Hello) {
    let has = |flag: &str| hello.argv.iter().any(|argument| argument.as_str() == Some(flag));
    let Some(_turn) = Turn::take(daemon) else {
        return refuse(client, "Error: atomicd is being restarted or stopped already".to_owned());
    };
    if has("--if-idle") && !is_idle(daemon) {
        return refuse(client, "Note: atomicd is not idle".to_owned());
    }
    tracing::info!(now = has("--now"), version = hello.version, build = hello.build, "asked to hand over");
    say(client, &Reply::Report(report(daemon)));
    tokio::select! {
        () = ready(daemon, client, has("--now")) => {}
        () = hung_up(read) => return tracing::info!("the hand-over was called off"),
    }
    daemon.phase.send_replace(Phase::Leaving);
    daemon.shutdown.cancel();
    // The end of this connection says that we leave; it comes with the end of the clients'.
    client.outbox.drained().await;
}

/// Whether the daemon may be replaced without anybody waiting: nothing runs, nothing is in memory only, no client is in
/// the middle of something.
pub fn is_idle(daemon: &Daemon) -> bool {
    let clients = daemon.attached_clients();
    let sessions = daemon.sessions.all();
    *daemon.phase.borrow() == Phase::Serving
        && !daemon.shutdown.is_cancelled()
        && clients.iter().all(|(client, mode)| *mode == Mode::Rpc && !client.has_open_lines())
        && sessions.iter().all(|session| {
            let status = session.status();
            session.info().file.is_some() && !status.running && !status.kept
        })
}

/// Whether a client that says this hello should rather replace this daemon: it is another build, not an older one, and
/// nothing is in its way. One that comes back is served, or two builds could go on replacing each other for ever.
pub fn clashes(daemon: &Daemon, hello: &Hello) -> bool {
    let other = !hello.build.is_empty() && hello.build != build_id();
    other
        && !hello.any_build
        && hello.session.is_none()
        && hello.records
        && !is_older(&hello.version, PROGRAM_VERSION)
        && is_idle(daemon)
}

/// `1.9.3` is older than `1.10.0`. What is no number is 0.
fn is_older(version: &str, than: &str) -> bool {
    let numbers = |text: &str| -> Vec<u64> {
        let plain = text.split(['-', '+']).next().unwrap_or_default();
        plain.split('.').map(|part| part.parse().unwrap_or(0)).collect()
    };
    numbers(version) < numbers(than)
}

/// The one hand-over under way. When it is dropped before the daemon leaves, everything goes on as before.
struct Turn(Arc<Daemon>);

impl Turn {
    fn take(daemon: &Arc<Daemon>) -> Option<Turn> {
        let free = !daemon.shutdown.is_cancelled()
            && !daemon.handing_over.swap(true, std::sync::atomic::Ordering::AcqRel);
        free.then(|| Turn(daemon.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.handing_over.store(false, std::sync::atomic::Ordering::Release);
        if *self.0.phase.borrow() == Phase::Holding {
            self.0.phase.send_replace(Phase::Serving);
        }
    }
}

/// Returns when everything has settled and nothing new can begin.
async fn ready(daemon: &Arc<Daemon>, client: &Client, now: bool) {
    if now {
        hold(daemon);
        if tokio::time::timeout(SETTLE_DEADLINE, aborted(daemon)).await.is_err() {
            tracing::warn!("some sessions did not settle in time");
        }
        return;
    }
    let mut told = BTreeSet::new();
    loop {
        // What cannot move is waited for with everything going on as usual.
        wait(daemon, client, &mut told, immovable).await;
        hold(daemon);
        let again = tokio::select! {
            () = settled(daemon, client, &mut told) => false,
            () = until(daemon, |daemon| !immovable(daemon).is_empty()) => true,
        };
        if !again {
            return;
        }
        daemon.phase.send_replace(Phase::Serving);
    }
}

/// Begins to hold lines. What a client said of itself in an earlier round counts no more.
fn hold(daemon: &Daemon) {
    daemon.attached_clients().iter().for_each(|(client, _)| client.stand_free());
    daemon.phase.send_replace(Phase::Holding);
}

/// Waits until `open` finds nothing more; the client hears once of each thing that it found.
async fn wait(
    daemon: &Daemon,
    client: &Client,
    told: &mut BTreeSet<String>,
    open: impl Fn(&Daemon) -> Vec<String>,
) {
    loop {
        let changed = daemon.sessions.changed.notified();
        let found = open(daemon);
        for what in &found {
            if told.insert(what.clone()) {
                client.outbox.link(&FromDaemon::Notice(format!("waiting for {what}")));
            }
        }
        if found.is_empty() {
            return;
        }
        changed.await;
    }
}

async fn until(daemon: &Daemon, is_so: impl Fn(&Daemon) -> bool) {
    loop {
        let changed = daemon.sessions.changed.notified();
        if is_so(daemon) {
            return;
        }
        changed.await;
    }
}

/// What cannot go to another daemon.
fn immovable(daemon: &Daemon) -> Vec<String> {
    let in_memory = daemon.sessions.all().into_iter().filter(|session| session.info().file.is_none());
    let mut found: Vec<String> =
        in_memory.map(|session| format!("{} (in memory only)", named(&session))).collect();
    let messages = daemon.attached_clients().into_iter().filter(|(_, mode)| *mode != Mode::Rpc).count();
    if messages > 0 {
        found.push("a client that runs its messages (-p or JSON mode)".to_owned());
    }
    found
}

/// Returns when no run is active and no client has a line open that would change something. While lines are held that
/// stays so.
async fn settled(daemon: &Daemon, client: &Client, told: &mut BTreeSet<String>) {
    loop {
        wait(daemon, client, told, unsettled).await;
        // A client is done when its line is answered, and an answered prompt may just have begun a run: whatever a session
        // was told before is done when it answers this.
        for session in daemon.sessions.all() {
            let (reply, settled) = oneshot::channel();
            session.send(SessionMessage::Settled(reply)).await;
            let _ = settled.await;
        }
        if unsettled(daemon).is_empty() {
            return;
        }
    }
}

fn unsettled(daemon: &Daemon) -> Vec<String> {
    let sessions = daemon.sessions.all();
    let running = sessions.iter().filter(|session| session.status().running);
    let mut found: Vec<String> = running.map(|session| format!("{} (running)", named(session))).collect();
    let open = daemon.attached_clients().iter().any(|(client, _)| client.standing() != Standing::Quiet);
    if found.is_empty() && open {
        found.push("commands that are not answered yet".to_owned());
    }
    found
}

/// Ends what runs and returns when it has ended. Whatever still comes of lines that were admitted is ended too.
async fn aborted(daemon: &Daemon) {
    let rpc = |daemon: &Daemon| {
        let clients = daemon.attached_clients().into_iter();
        clients.filter(|(_, mode)| *mode == Mode::Rpc).map(|(client, _)| client).collect::<Vec<_>>()
    };
    loop {
        let changed = daemon.sessions.changed.notified();
        rpc(daemon).iter().for_each(|client| client.cancel_bash(None));
        let sessions = daemon.sessions.all();
        let running: Vec<&SessionHandle> =
            sessions.iter().filter(|session| session.status().running).collect();
        let quiet = rpc(daemon).iter().all(|client| client.standing() == Standing::Quiet);
        if running.is_empty() && quiet {
            return;
        }
        for session in running {
            session.send(SessionMessage::Abort).await;
        }
        changed.await;
    }
}

/// `session 1234 "name" in /dir`.
fn named(session: &SessionHandle) -> String {
    let report = session.report();
    let name = report.name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
    format!("session {}{name} in {}", report.id, report.cwd)
}

/// Returns when the other end is gone. It says nothing more.
async fn hung_up(mut read: ReadHalf) {
    let mut buffer = bytes::BytesMut::with_capacity(64);
    while matches!(read.read(&mut buffer).await, Ok(1..)) {
        buffer.clear();
    }
}

/// Waits until the daemon does not hold lines; false when it leaves.
pub async fn released(phase: &mut watch::Receiver<Phase>) -> bool {
    // The sender lives as long as the daemon.
    phase.wait_for(|phase| *phase != Phase::Holding).await.is_ok_and(|phase| *phase == Phase::Serving)
}

fn refuse(client: &Client, text: String) {
    say(client, &Reply::Refused { text, code: 1 });
}

fn say(client: &Client, reply: &Reply) {
    let mut line = serde_json::to_vec(reply).expect("a reply serialises");
    line.push(b'\n');
    client.outbox.push(line.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_an_order() {
        for (version, than, older) in [
            ("0.1.0", "0.1.0", false),
            ("0.1.0", "0.1.1", true),
            ("1.9.3", "1.10.0", true),
            ("2.0.0", "1.10.0", false),
            ("1.0.0-rc1", "1.0.0", false),
            ("", "0.1.0", true),
        ] {
            assert_eq!(is_older(version, than), older, "{version} {than}");
        }
    }
}
