//! `atomic status` and `atomic stop`. Neither ever starts a daemon.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use atomic_link::LinkError;
use atomic_link::connect::{HELLO_DEADLINE, connect};
use atomic_link::listen::DaemonLock;
use atomic_link::place::Place;
use atomic_protocol::Raw;
use atomic_protocol::json::ObjectWriter;
use atomic_protocol::link::{Hello, Mode, OsText, Reply, Report, SessionReport};

use crate::{daemon, stdio};

/// Exit code of verbs that need a running daemon and find none.
pub(crate) const NOT_RUNNING: u8 = 3;

/// How long a stop without `--wait` may take: tools get 2 s to end, files are written.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// How long a stop with `--wait` may take: a run may last for hours.
const WAIT_DEADLINE: Duration = Duration::from_secs(30 * 24 * 3600);

/// From the daemon's answer to the end of its process.
pub(crate) const END_DEADLINE: Duration = Duration::from_secs(10);

/// Pause between two looks whether the process has ended.
const END_RETRY: Duration = Duration::from_millis(10);

/// What an administrative question came to.
pub(crate) enum Answer {
    /// The daemon's report.
    Report(Box<Report>),
    /// No daemon runs.
    NotRunning(Place),
    /// The connection ended without an answer.
    Closed(Place),
    /// The question failed; the text is printed, this is the exit code.
    Failed(u8),
}

/// Asks a running daemon.
pub(crate) fn ask(mode: Mode, argv: Vec<OsText>, within: Duration) -> Answer {
    let place = match daemon::place() {
        Ok(place) => place,
        Err(error) => return failed(&error),
    };
    let hello = Hello { argv, ..daemon::hello(mode) };
    match connect(&place, &hello, within) {
        Ok(attached) => match attached.reply {
            Reply::Report(report) => Answer::Report(Box::new(report)),
            Reply::Refused { text, code } => {
                stdio::complain(&text);
                Answer::Failed(code)
            }
            Reply::Welcome { .. } | Reply::Clash { .. } => {
                failed(&"atomicd answered another question than the one asked")
            }
        },
        Err(LinkError::NotRunning { .. }) => Answer::NotRunning(place),
        Err(LinkError::Closed { .. }) => Answer::Closed(place),
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> Answer {
    stdio::complain(&format!("Error: {error}"));
    Answer::Failed(1)
}

/// The line for people who find no daemon.
pub(crate) fn not_running(place: &Place) -> String {
    format!("atomicd is not running for {}\n", place.agent_dir().display())
}

/// `atomic status`.
pub(crate) fn status(json: bool) -> u8 {
    match ask(Mode::Status, Vec::new(), HELLO_DEADLINE) {
        Answer::Report(report) => stdio::say(&if json { as_json(&report) } else { as_lines(&report) }),
        Answer::NotRunning(place) if json => {
            let mut out = Vec::new();
            let mut object = ObjectWriter::begin(&mut out);
            object.bool("running", false).str("agentDir", &place.agent_dir().to_string_lossy());
            object.str("socket", &place.socket().to_string_lossy());
            object.end();
            out.push(b'\n');
            stdio::say(&String::from_utf8_lossy(&out)).max(NOT_RUNNING)
        }
        Answer::NotRunning(place) => stdio::say(&not_running(&place)).max(NOT_RUNNING),
        Answer::Closed(_) => {
            stdio::complain("Error: atomicd closed the connection before it answered; it may be leaving");
            1
        }
        Answer::Failed(code) => code,
    }
}

/// `atomic stop`.
pub(crate) fn stop(force: bool, wait: bool) -> u8 {
    let flags = [(force, "--force"), (wait, "--wait")];
    let argv = flags.iter().filter(|(given, _)| *given).map(|(_, flag)| OsText::from(*flag)).collect();
    let within = if wait { WAIT_DEADLINE } else { STOP_DEADLINE };
    let (name, place) = match ask(Mode::Stop, argv, within) {
        Answer::Report(report) => match daemon::place() {
            Ok(place) => (format!("atomicd (process {})", report.pid), place),
            Err(error) => {
                stdio::complain(&format!("Error: {error}"));
                return 1;
            }
        },
        // A daemon that leaves in a hurry may close before it answers.
        Answer::Closed(place) => ("atomicd".to_owned(), place),
        Answer::NotRunning(place) => return stdio::say(&not_running(&place)),
        Answer::Failed(code) => return code,
    };
    match has_left(&place, END_DEADLINE) {
        true => stdio::say(&format!("{name} has stopped\n")),
        false => {
            let lock = place.daemon_lock();
            stdio::complain(&format!("Error: {name} is still running; it holds {}", lock.display()));
            1
        }
    }
}

/// Waits until no daemon holds the lock of `place`; false when one still does after `within`.
pub(crate) fn has_left(place: &Place, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while DaemonLock::is_held(place) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(END_RETRY);
    }
    true
}

/// The report as one object, with `running` in front.
fn as_json(report: &Report) -> String {
    let raw = Raw::from_serialize(report);
    format!("{{\"running\":true,{}\n", raw.as_str().trim_start_matches('{'))
}

fn as_lines(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "atomicd {} is running (process {}, up {})",
        report.version,
        report.pid,
        duration(report.uptime_seconds)
    );
    let _ = writeln!(out, "  agent directory  {}", report.agent_dir);
    let _ = writeln!(out, "  socket           {}", report.socket);
    let _ = writeln!(out, "  log              {} ({})", report.log_file, report.log_level);
    let _ = writeln!(out, "  clients          {}", report.clients);
    let _ = writeln!(out, "  sessions         {}", report.sessions.len());
    report.sessions.iter().for_each(|session| session_lines(session, &mut out));
    out
}

fn session_lines(session: &SessionReport, out: &mut String) {
    let state = if session.running { "running" } else { "idle" };
    let name = session.name.as_deref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let clients = if session.clients == 1 { "client" } else { "clients" };
    let _ =
        writeln!(out, "    {}{name}: {state}, {} {clients}, {}", session.id, session.clients, session.cwd);
}

/// `42 s`, `7 min`, `3 h 5 min`, `2 d 4 h`.
fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min"),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_well() {
        let session = SessionReport {
            id: "s1".into(),
            name: Some("fix".into()),
            cwd: "/p".into(),
            clients: 1,
            running: true,
            ..SessionReport::default()
        };
        let report = Report {
            version: "1.0".into(),
            pid: 7,
            uptime_seconds: 3_700,
            agent_dir: "/a".into(),
            socket: "/a/s".into(),
            log_file: "/a/logs/x.log".into(),
            log_level: "info".into(),
            clients: 1,
            sessions: vec![session],
            ..Report::default()
        };
        assert_eq!(
            as_lines(&report),
            "atomicd 1.0 is running (process 7, up 1 h 1 min)\n  agent directory  /a\n  socket           /a/s\n  log              \
             /a/logs/x.log (info)\n  clients          1\n  sessions         1\n    s1 \"fix\": running, 1 client, /p\n"
        );
        let json = as_json(&report);
        assert!(json.starts_with("{\"running\":true,\"link\":") && json.ends_with("}\n"), "{json}");
        assert!(Raw::parse(&json).is_ok());
        assert_eq!([duration(59), duration(60), duration(90_000)], ["59 s", "1 min", "1 d 1 h"]);
    }
}
