//! Connections that ask about the daemon itself: status, stop, log level.

use std::sync::Arc;

use atomic_protocol::link::{Hello, LINK_VERSION, Mode, PROGRAM_VERSION, Reply, Report};

use crate::build;
use crate::connection::Client;
use crate::daemon::Daemon;

/// Serves one administrative connection.
pub async fn serve(daemon: &Arc<Daemon>, client: &Client, mode: Mode, hello: &Hello) {
    let reply = match mode {
        Mode::Rpc | Mode::Json | Mode::Print => unreachable!("served as a session"),
        Mode::Status => Ok(()),
        Mode::LogLevel => set_level(daemon, hello),
        Mode::Stop => stop(daemon, hello).await,
    };
    let reply = match reply {
        Ok(()) => Reply::Report(report(daemon)),
        Err(text) => Reply::Refused { text, code: 1 },
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

fn report(daemon: &Daemon) -> Report {
    Report {
        link: LINK_VERSION,
        version: PROGRAM_VERSION.to_owned(),
        build: build::ID.to_owned(),
        pid: std::process::id(),
        uptime_seconds: daemon.started.elapsed().as_secs(),
        agent_dir: daemon.agent_dir.to_string_lossy().into_owned(),
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
