//! One daemon takes over from another: `atomic restart`, and a shim that meets an idle daemon of another build.
//!
//! Whoever wants it holds the start lock from before the old daemon is asked until the new one has answered: so the
//! next daemon is the one beside this program, however many windows look for one meanwhile.

use std::fmt::Display;
use std::io::{self, Read as _};
use std::time::{Duration, Instant};

use atomic_link::LinkError;
use atomic_link::connect::{Attached, HELLO_DEADLINE, connect};
use atomic_link::place::Place;
use atomic_link::start::{START_DEADLINE, StartLock};
use atomic_protocol::link::{FromDaemon, Hello, Mode, OsText, Reply, Report};

use crate::filter::LinkFilter;
use crate::{admin, daemon, stdio};

/// How long somebody else may be at it.
const LOCK_PATIENCE: Duration = START_DEADLINE;

/// From the end of the old daemon's connection to the end of its process: it waits as long for other clients.
const LEAVE_DEADLINE: Duration = Duration::from_secs(20);

/// Bytes read at once; notices are short.
const READ_BYTES: usize = 4 * 1024;

/// How a replacement came out.
pub(crate) enum Replaced {
    /// By this daemon, which serves now.
    By(Box<Report>),
    /// Nobody was there.
    NotRunning,
    /// The old daemon serves on: a text that says why, and an exit code.
    Refused(String, u8),
}

/// `atomic restart`.
pub(crate) fn restart(now: bool) -> u8 {
    let place = match daemon::place() {
        Ok(place) => place,
        Err(error) => return failed(&error),
    };
    let argv = if now { vec![OsText::from("--now")] } else { Vec::new() };
    match replace(&place, argv, |text| {
        stdio::say(&format!("{text}\n"));
    }) {
        Ok(Replaced::By(report)) => {
            stdio::say(&format!("atomicd {} (process {}) has taken over\n", report.version, report.pid))
        }
        Ok(Replaced::NotRunning) => stdio::say(&admin::not_running(&place)),
        Ok(Replaced::Refused(text, code)) => {
            stdio::complain(&text);
            code
        }
        Err(text) => failed(&text),
    }
}

fn failed(error: &dyn Display) -> u8 {
    stdio::complain(&format!("Error: {error}"));
    1
}

/// Has the running daemon hand over to a new one. `tell` gets what it waits for.
///
/// # Errors
/// A text for stderr, without "Error:".
pub(crate) fn replace(place: &Place, argv: Vec<OsText>, tell: impl Fn(&str)) -> Result<Replaced, String> {
    let text = |error: LinkError| error.to_string();
    let Some(lock) = StartLock::take(place, LOCK_PATIENCE).map_err(text)? else {
        return Err("another program is starting or restarting atomicd; try again".to_owned());
    };
    let hello = Hello { argv, records: true, ..daemon::hello(Mode::Restart) };
    let attached = match connect(place, &hello, HELLO_DEADLINE) {
        Ok(attached) => attached,
        Err(LinkError::NotRunning { .. }) => return Ok(Replaced::NotRunning),
        Err(error) => return Err(text(error)),
    };
    let old = match &attached.reply {
        Reply::Report(report) => format!("atomicd {} (process {})", report.version, report.pid),
        Reply::Refused { text, code } => return Ok(Replaced::Refused(text.clone(), *code)),
        Reply::Welcome { .. } | Reply::Clash { .. } => {
            return Err("atomicd answered another question than the one asked".to_owned());
        }
    };
    tell(&format!("{old} hands over"));
    if let Some((text, code)) = listen(attached, &tell).map_err(|error| format!("{old}: {error}"))? {
        return Ok(Replaced::Refused(text, code));
    }
    if !admin::has_left(place, LEAVE_DEADLINE) {
        return Err(format!("{old} is still running; it holds {}", place.daemon_lock().display()));
    }
    let begun = Instant::now();
    let attached = lock.start(place, &daemon::hello(Mode::Status), daemon::program).map_err(text)?;
    match attached.reply {
        Reply::Report(report) => Ok(Replaced::By(Box::new(report))),
        Reply::Refused { text, code } => Ok(Replaced::Refused(text, code)),
        _ => Err(format!("the new atomicd gave no report after {} ms", begun.elapsed().as_millis())),
    }
}

/// Passes on what the old daemon says until it leaves. Gives its text and code if it will not leave after all.
fn listen(attached: Attached, tell: &impl Fn(&str)) -> io::Result<Option<(String, u8)>> {
    let Attached { stream, early, .. } = attached;
    let (mut filter, mut records) = (LinkFilter::default(), Vec::new());
    let mut buffer = early;
    loop {
        filter.strip(&mut buffer, &mut records);
        for record in records.drain(..) {
            match std::str::from_utf8(&record).ok().and_then(FromDaemon::parse) {
                Some(FromDaemon::Notice(text)) => tell(&text),
                Some(FromDaemon::Exit { code, text }) => return Ok(Some((text.unwrap_or_default(), code))),
                _ => {}
            }
        }
        buffer.resize(READ_BYTES, 0);
        match (&mut &*stream).read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(read) => buffer.truncate(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => buffer.clear(),
            // A daemon that dies has left, too.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
