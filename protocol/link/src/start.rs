//! Start the one daemon when none answers.
//!
//! Any number of programs may get here at once. One of them holds the start lock, looks again, starts the daemon and
//! keeps the lock until the daemon has welcomed it; the others only go on trying to connect.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atomic_protocol::link::Hello;
use interprocess::local_socket::Stream;

use crate::connect::{Attached, HELLO_DEADLINE, line, say};
use crate::error::LinkError;
use crate::listen::{DaemonLock, lock_file};
use crate::place::Place;
use crate::{os, owner};

/// Limit for the daemon to come up.
pub const START_DEADLINE: Duration = Duration::from_secs(10);

/// First pauses between looks; a daemon is up after about 5 ms, and each look costs a few microseconds.
const FIRST_PAUSE: Duration = Duration::from_micros(250);

/// How long the pauses stay that short.
const EAGER: Duration = Duration::from_millis(40);

/// Longest pause between looks.
const LAST_PAUSE: Duration = Duration::from_millis(10);

/// Lines of the daemon's log that a failed start shows.
const TAIL_LINES: usize = 10;

/// Bytes from the end of the log in which those lines are looked for.
const TAIL_BYTES: u64 = 4 * 1024;

/// Connects to the daemon of `place`, starting it when nobody listens. `program` is asked only then.
///
/// # Errors
/// When the daemon cannot be found, started or reached in time.
pub fn connect_or_start(
    place: &Place,
    hello: &Hello,
    program: impl FnOnce() -> Result<PathBuf, LinkError>,
) -> Result<Attached, LinkError> {
    connect_or_start_by(place, hello, program, Instant::now() + HELLO_DEADLINE + START_DEADLINE, |_| {})
}

/// As [`connect_or_start`], but gives up at `deadline` if that comes before the limits of the parts. `said` gets each
/// connection on which the hello was sent, before its reply is waited for: what is written there follows the hello and
/// needs no round trip. Should the reply be a refusal, or not come, it has had no effect.
///
/// # Errors
/// As [`connect_or_start`].
pub fn connect_or_start_by(
    place: &Place,
    hello: &Hello,
    program: impl FnOnce() -> Result<PathBuf, LinkError>,
    deadline: Instant,
    mut said: impl FnMut(&Arc<Stream>),
) -> Result<Attached, LinkError> {
    let hello = line(hello);
    match say(place, &hello, left(deadline), &mut said) {
        // A daemon that was just killed may still accept for a moment.
        Err(LinkError::NotRunning { .. } | LinkError::Closed { .. }) => {
            start(place, &hello, program, deadline, None, &mut said)
        }
        other => other,
    }
}

/// The right to start the daemon of a place. Held from before an old daemon is asked to leave, it makes sure that
/// nobody else starts the next one.
#[derive(Debug)]
pub struct StartLock {
    file: File,
}

impl StartLock {
    /// Takes the lock, waiting up to `patience`. `None`: somebody else starts or replaces the daemon just now.
    ///
    /// # Errors
    /// When the lock's file cannot be made or locked.
    pub fn take(place: &Place, patience: Duration) -> Result<Option<StartLock>, LinkError> {
        owner::prepare(place)?;
        let file = lock_file(&place.start_lock(), Instant::now() + patience)?;
        Ok(file.map(|file| StartLock { file }))
    }

    /// Starts a daemon when the old one has left and says `hello` to it.
    ///
    /// # Errors
    /// As [`connect_or_start`].
    pub fn start(
        self,
        place: &Place,
        hello: &Hello,
        program: impl FnOnce() -> Result<PathBuf, LinkError>,
    ) -> Result<Attached, LinkError> {
        let last = Instant::now() + HELLO_DEADLINE + START_DEADLINE;
        start(place, &line(hello), program, last, Some(self.file), &mut |_| {})
    }
}

/// What one exchange of hello and reply may take.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).min(HELLO_DEADLINE)
}

fn start(
    place: &Place,
    hello: &[u8],
    program: impl FnOnce() -> Result<PathBuf, LinkError>,
    last: Instant,
    mut lock: Option<File>,
    said: &mut dyn FnMut(&Arc<Stream>),
) -> Result<Attached, LinkError> {
    owner::prepare(place)?;
    let begun = Instant::now();
    let deadline = last.min(begun + START_DEADLINE);
    let mut program = Some(program);
    let mut started: Option<Daemon> = None;
    let mut pause = FIRST_PAUSE;
    loop {
        if lock.is_none() {
            lock = lock_file(&place.start_lock(), Instant::now())?;
        }
        match say(place, hello, left(last), said) {
            // A daemon that dies between accept and answer is looked at below, as one that never listened.
            Err(LinkError::NotRunning { .. } | LinkError::Closed { .. }) => {}
            // With the answer the daemon is up; dropping the lock lets the next one in.
            other => return other,
        }
        if let Some(daemon) = &mut started {
            daemon.check(place)?;
        } else if lock.is_some()
            // Whoever holds the daemon's lock is starting or leaving: wait for its socket or for its lock.
            && !DaemonLock::is_held(place)
            && let Some(program) = program.take()
        {
            started = Some(Daemon::spawn(place, &program()?)?);
        }
        if Instant::now() >= deadline {
            let log = place.stderr_log();
            let tail = started.map(|daemon| daemon.tail()).unwrap_or_default();
            return Err(LinkError::StartTimeout { seconds: begun.elapsed().as_secs(), log, tail });
        }
        std::thread::sleep(pause);
        if begun.elapsed() >= EAGER {
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }
}

/// Where the daemon's program is: beside `executable` (the caller's own, links resolved), else where the variable
/// `ATOMIC_DAEMON` says. Never on `PATH`: what answers there may be anything.
///
/// # Errors
/// When it is in neither place.
pub fn daemon_program(executable: &Path, variable: Option<&OsStr>) -> Result<PathBuf, LinkError> {
    let resolved = executable.canonicalize().unwrap_or_else(|_| executable.to_owned());
    let beside = resolved.with_file_name(os::DAEMON_PROGRAM);
    if beside.is_file() {
        return Ok(beside);
    }
    match variable.filter(|path| !path.is_empty()) {
        Some(path) if Path::new(path).is_file() => Ok(PathBuf::from(path)),
        Some(path) => Err(LinkError::NoDaemonProgram { beside: path.into() }),
        None => Err(LinkError::NoDaemonProgram { beside }),
    }
}

/// A daemon that was just started.
struct Daemon {
    child: Child,
    log: PathBuf,
    /// Where the log ended before; what follows is this daemon's.
    from: u64,
}

impl Daemon {
    fn spawn(place: &Place, program: &Path) -> Result<Daemon, LinkError> {
        let path = place.stderr_log();
        let failed = |source| LinkError::Prepare { path: path.clone(), source };
        let log = os::private_file().create(true).append(true).open(&path).map_err(failed)?;
        let from = log.metadata().map_err(failed)?.len();
        let mut command = Command::new(program);
        command
            .args(["run", "--agent-dir"])
            .arg(place.agent_dir())
            .current_dir(os::daemon_cwd(place.agent_dir()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log);
        os::detach(&mut command);
        let child =
            command.spawn().map_err(|source| LinkError::Spawn { program: program.to_owned(), source })?;
        Ok(Daemon { child, log: path, from })
    }

    /// Fails if the daemon has ended. One that ended well found another daemon, which will answer.
    fn check(&mut self, place: &Place) -> Result<(), LinkError> {
        match self.child.try_wait() {
            Ok(Some(status)) if !(status.success() && DaemonLock::is_held(place)) => {
                Err(LinkError::DiedAtStart {
                    status: status.to_string(),
                    log: self.log.clone(),
                    tail: self.tail(),
                })
            }
            _ => Ok(()),
        }
    }

    /// What the daemon wrote last, each line after an LF.
    fn tail(&self) -> String {
        let mut text = Vec::new();
        let read = File::open(&self.log).and_then(|mut log| {
            let end = log.metadata()?.len();
            log.seek(SeekFrom::Start(self.from.max(end.saturating_sub(TAIL_BYTES))))?;
            log.read_to_end(&mut text)
        });
        if read.is_err() {
            return String::new();
        }
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].iter().flat_map(|line| ["\n  ", line]).collect()
    }
}
