//! Connections that ask about the daemon itself: status, stop, log level; and the two that manage a live session for
//! somebody who is not attached to it.

use std::path::PathBuf;
use std::sync::Arc;

use atomic_link::place::Place;
use atomic_protocol::command::Command;
use atomic_protocol::link::{Hello, LINK_VERSION, Mode, NOT_LIVE, PROGRAM_VERSION, Reply, Report, build_id};
use tokio::sync::oneshot;

use crate::connection::Client;
use crate::daemon::Daemon;
use crate::session::{SessionHandle, SessionMessage};
use crate::ticket::Ticket;

/// Why a question is refused: for the caller's stderr, and its exit code.
type Refused = (String, u8);

/// Serves one administrative connection.
pub async fn serve(daemon: &Arc<Daemon>, client: &Arc<Client>, mode: Mode, hello: &Hello) {
    let reply = match mode {
        Mode::Rpc | Mode::Json | Mode::Print | Mode::Restart => unreachable!("served elsewhere"),
        Mode::Status => Ok(()),
        Mode::LogLevel => set_level(daemon, hello).map_err(|text| (text, 1)),
        Mode::Stop => stop(daemon, hello).await.map_err(|text| (text, 1)),
        Mode::Rename => rename(daemon, client, hello).await,
        Mode::Release => release(daemon, hello).await,
    };
    let reply = match reply {
        Ok(()) => Reply::Report(report(daemon)),
        Err((text, code)) => Reply::Refused { text, code },
    };
    let mut line = serde_json::to_vec(&reply).expect("a reply serialises");
    line.push(b'\n');
    client.outbox.push(line.into());
    client.outbox.drained().await;
    if mode == Mode::Stop && matches!(reply, Reply::Report(_)) {
        tracing::info!("asked to stop");
        daemon.shutdown.cancel();
    }
}

pub(crate) fn report(daemon: &Daemon) -> Report {
    Report {
        link: LINK_VERSION,
        version: PROGRAM_VERSION.to_owned(),
        build: build_id().to_owned(),
        pid: std::process::id(),
        uptime_seconds: daemon.started.elapsed().as_secs(),
        agent_dir: daemon.agent_dir.to_string_lossy().into_owned(),
        socket: Place::of(&daemon.agent_dir)
            .map(|place| place.socket().to_string_lossy().into_owned())
            .unwrap_or_default(),
        log_file: daemon.logging.file().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
        log_level: daemon.logging.level(),
        clients: daemon.clients() as u32,
        sessions: daemon.sessions.all().iter().map(|session| session.report()).collect(),
    }
}

fn set_level(daemon: &Daemon, hello: &Hello) -> Result<(), String> {
    let level = hello.argv.first().and_then(|level| level.as_str()).unwrap_or_default();
    daemon.logging.set_level(level).map_err(|error| format!("Error: {error}"))?;
    tracing::info!(level, "log level changed");
    Ok(())
}

/// The live session whose file the hello names.
fn meant(daemon: &Daemon, hello: &Hello) -> Result<SessionHandle, Refused> {
    let file = PathBuf::from(hello.argv.first().map(|file| file.to_os()).unwrap_or_default());
    daemon.sessions.with_file(&file).ok_or_else(|| not_live(&file))
}

fn not_live(file: &std::path::Path) -> Refused {
    (format!("Error: no live session has the file {}", file.display()), NOT_LIVE)
}

/// Names a live session; its clients hear of it.
async fn rename(daemon: &Daemon, client: &Arc<Client>, hello: &Hello) -> Result<(), Refused> {
    let session = meant(daemon, hello)?;
    let name = hello.argv.get(1).map(|name| name.lossy().trim().to_owned()).unwrap_or_default();
    if name.is_empty() {
        return Err(("Error: Session name cannot be empty".to_owned(), 1));
    }
    let command = Command::SetSessionName { name };
    let (ticket, answer) = Ticket::on_behalf(client.clone(), command.name());
    session.send(SessionMessage::Command { ticket, command }).await;
    match answer.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) if session.is_closed() => {
            Err(not_live(session.info().file.as_deref().unwrap_or("".as_ref())))
        }
        Ok(Err(text)) => Err((format!("Error: {text}"), 1)),
        Err(_) => Err(("Error: the session ended before it was named".to_owned(), NOT_LIVE)),
    }
}

/// Closes a live session that nobody uses.
async fn release(daemon: &Daemon, hello: &Hello) -> Result<(), Refused> {
    let session = meant(daemon, hello)?;
    let (released, answer) = oneshot::channel();
    session.send(SessionMessage::Release(released)).await;
    // A session that ends meanwhile answers nothing, and its file is as free.
    if answer.await == Ok(false) {
        return Err((in_use(&session), 1));
    }
    session.closed().await;
    Ok(())
}

/// What somebody is told who wants a session for himself.
fn in_use(session: &SessionHandle) -> String {
    let report = session.report();
    let who = match (report.clients, report.running) {
        (0, _) => "it is running".to_owned(),
        (1, running) => format!("1 client is attached{}", if running { ", and it is running" } else { "" }),
        (count, running) => {
            format!("{count} clients are attached{}", if running { ", and it is running" } else { "" })
        }
    };
    format!(
        "Error: session {} is in use: {who}.\nHint: close its clients (and let its turn end, or abort it) first; \
         `atomic status` shows them.",
        report.id
    )
}

/// Refuses while something runs, unless told to abort it or to wait for it.
async fn stop(daemon: &Arc<Daemon>, hello: &Hello) -> Result<(), String> {
    let has = |flag: &str| hello.argv.iter().any(|argument| argument.as_str() == Some(flag));
    if has("--force") {
        return Ok(());
    }
    loop {
        let changed = daemon.sessions.changed.notified();
        let running: Vec<String> = daemon
            .sessions
            .all()
            .iter()
            .filter(|session| session.status().running)
            .map(|session| {
                let report = session.report();
                let name = report.name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
                format!("  {}{name} in {}", report.id, report.cwd)
            })
            .collect();
        if running.is_empty() {
            return Ok(());
        }
        if !has("--wait") {
            return Err(format!(
                "Error: these sessions are running:\n{}\nHint: --wait lets them finish, --force aborts them.",
                running.join("\n")
            ));
        }
        changed.await;
    }
}
