//! One client's connection: attach, copy both ways, leave with the right code.
//!
//! Three threads: one copies stdin to the daemon, one the daemon to stdout, the first waits for signals. The second
//! one decides how the process ends, because the daemon says when everything is answered; stdin may block for ever.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use atomic_link::Stream;
use atomic_link::connect::Attached;
use atomic_link::place::Place;
use atomic_link::start::connect_or_start;
use atomic_protocol::cli::SessionOptions;
use atomic_protocol::link::{FromDaemon, FromShim, Reply};

use crate::filter::{LineGuard, LinkFilter};
use crate::pending::Pending;
use crate::{daemon, os, stdio};

/// Bytes read from stdin at once: commands are short, and each touched page counts in every shim.
const FROM_STDIN_BYTES: usize = 16 * 1024;

/// Bytes read from the daemon at once: below this a fast stream costs twice the time.
const FROM_DAEMON_BYTES: usize = 64 * 1024;

/// From a signal to the exit; the daemon may end it sooner. A little below the promised 200 ms.
const SIGNAL_GRACE: Duration = Duration::from_millis(180);

/// Of that, how long a line that is just being sent may hold up the record about the signal.
const SIGNAL_SEND: Duration = Duration::from_millis(100);

/// Pause between two tries to send the record about the signal.
const SIGNAL_RETRY: Duration = Duration::from_millis(5);

/// What the threads share.
pub(crate) struct Shared {
    pending: Mutex<Pending>,
    to_daemon: Mutex<ToDaemon>,
    /// The signal that ends this process, or 0.
    signal: AtomicI32,
    place: Place,
}

/// How a connection to the daemon ended.
enum Ending {
    /// The daemon said so.
    Exit(u8),
    /// Nobody reads stdout any more.
    StdoutClosed,
    /// The daemon is gone without a word.
    Lost,
}

/// Attaches and copies until one side ends; the exit code if attaching fails, else the process ends itself.
pub(crate) fn run(argv: &[OsString], options: &SessionOptions) -> u8 {
    for warning in &options.warnings {
        stdio::complain(warning);
    }
    let place = match daemon::place() {
        Ok(place) => place,
        Err(error) => return fail(&error),
    };
    let hello = match daemon::session_hello(argv) {
        Ok(hello) => hello,
        Err(error) => return fail(&format_args!("cannot tell the current directory: {error}")),
    };
    match connect_or_start(&place, &hello, daemon::program) {
        Err(error) => fail(&error),
        Ok(Attached { reply: Reply::Refused { text, code }, .. }) => {
            stdio::complain(&text);
            code
        }
        Ok(Attached { reply: Reply::Report(_), .. }) => {
            fail(&"atomicd answered another question than the one asked")
        }
        Ok(Attached { reply: Reply::Welcome { .. }, stream, early }) => match copy(place, stream, early) {
            Ok(code) => code,
            Err(error) => fail(&format_args!("cannot use stdio: {error}")),
        },
    }
}

fn fail(error: &dyn std::fmt::Display) -> u8 {
    stdio::complain(&format!("Error: {error}"));
    1
}

fn copy(place: Place, stream: Stream, early: Vec<u8>) -> io::Result<u8> {
    let (stdin, stdout) = (os::stdin()?, os::stdout()?);
    let stream = Arc::new(stream);
    let shared = Arc::new(Shared {
        pending: Mutex::default(),
        to_daemon: Mutex::new(ToDaemon { stream: Arc::clone(&stream), in_line: false }),
        signal: AtomicI32::new(0),
        place,
    });
    let up = Arc::clone(&shared);
    std::thread::Builder::new().name("stdin".into()).spawn(move || up.copy_up(&stdin))?;
    let down = Arc::clone(&shared);
    let out = std::thread::Builder::new().name("stdout".into()).spawn(move || {
        let mut filter = LinkFilter::default();
        let ending = down.copy_down(&stream, early, &mut filter, &stdout);
        down.end(ending, &filter, &stdout)
    })?;
    os::watch(&shared);
    // Without signals to wait for, the process lives as long as the copying.
    let _ = out.join();
    Ok(1)
}

impl Shared {
    /// Copies stdin to the daemon until either ends.
    fn copy_up(&self, stdin: &std::fs::File) {
        let mut buffer = vec![0; FROM_STDIN_BYTES];
        let mut bytes = Vec::new();
        let mut guard = LineGuard::default();
        loop {
            // A stdin that cannot be read has ended.
            let read = stdio::read(stdin, &mut buffer).unwrap_or(0);
            bytes.clear();
            if read > 0 {
                guard.pass(&buffer[..read], &mut bytes);
            } else if guard.in_line() {
                bytes.push(b'\n');
            }
            lock(&self.pending).add(&bytes);
            let mut to_daemon = lock(&self.to_daemon);
            // A daemon that is lost is the other thread's affair: it sees the connection end.
            if to_daemon.send(&bytes).is_err() {
                return;
            }
            if read == 0 {
                let _ = to_daemon.record(FromShim::Eof);
                return;
            }
        }
    }

    /// Copies records to stdout and obeys link records until the connection ends.
    fn copy_down(
        &self,
        mut stream: &Stream,
        early: Vec<u8>,
        filter: &mut LinkFilter,
        stdout: &std::fs::File,
    ) -> Ending {
        let mut buffer = early;
        let mut filled = buffer.len();
        let mut records = Vec::new();
        loop {
            let kept = filter.strip(&mut buffer[..filled], &mut records);
            if stdio::write_all(stdout, &buffer[..kept]).is_err() {
                return Ending::StdoutClosed;
            }
            // Only now: what a record calls answered must be on stdout first.
            for record in records.drain(..) {
                if let Some(ending) = self.obey(&record) {
                    return ending;
                }
            }
            buffer.resize(FROM_DAEMON_BYTES, 0);
            filled = match stream.read(&mut buffer) {
                Ok(0) => return Ending::Lost,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(_) => return Ending::Lost,
            };
        }
    }

    fn obey(&self, record: &[u8]) -> Option<Ending> {
        match FromDaemon::parse(std::str::from_utf8(record).ok()?)? {
            FromDaemon::Progress { admitted, answered, ids } => {
                lock(&self.pending).progress(admitted, &answered, ids);
                None
            }
            FromDaemon::Notice(text) => {
                stdio::complain(&text);
                None
            }
            FromDaemon::Exit { code, text } => {
                if let Some(text) = text {
                    stdio::complain(&text);
                }
                Some(Ending::Exit(code))
            }
        }
    }

    /// Ends the process.
    fn end(&self, ending: Ending, filter: &LinkFilter, stdout: &std::fs::File) -> ! {
        let code = match ending {
            Ending::Exit(code) => code,
            Ending::StdoutClosed => 1,
            Ending::Lost => {
                // Held to the end, so that no line slips in that would get no answer.
                let pending = lock(&self.pending);
                let mut out = Vec::new();
                if filter.in_record() {
                    out.push(b'\n');
                }
                pending.answer_lost(&mut out);
                let _ = stdio::write_all(stdout, &out);
                if self.signal.load(Ordering::Acquire) == 0 {
                    let log = self.place.logs();
                    stdio::complain(&format!(
                        "Error: the connection to atomicd was lost; what it was doing is in {} ('atomic logs')",
                        log.display()
                    ));
                }
                self.exit(1)
            }
        };
        self.exit(code)
    }

    fn exit(&self, code: u8) -> ! {
        match self.signal.load(Ordering::Acquire) {
            0 => std::process::exit(i32::from(code)),
            signal => std::process::exit(128 + signal),
        }
    }

    /// Tells the daemon about `signal` and ends the process, at the latest after [`SIGNAL_GRACE`].
    #[cfg_attr(windows, expect(dead_code, reason = "Windows has no signals"))]
    pub(crate) fn leave(&self, signal: i32) -> ! {
        let begun = Instant::now();
        self.signal.store(signal, Ordering::Release);
        while begun.elapsed() < SIGNAL_SEND {
            match self.to_daemon.try_lock() {
                Err(TryLockError::WouldBlock) => std::thread::sleep(SIGNAL_RETRY),
                Err(TryLockError::Poisoned(_)) => break,
                Ok(mut to_daemon) => {
                    let _ = to_daemon.limit(SIGNAL_SEND);
                    let _ = to_daemon.record(FromShim::Signal(signal));
                    break;
                }
            }
        }
        // The other thread ends the process as soon as the daemon says so.
        std::thread::sleep(SIGNAL_GRACE.saturating_sub(begun.elapsed()));
        self.exit(1)
    }
}

/// The way to the daemon, which lines and link records share.
struct ToDaemon {
    stream: Arc<Stream>,
    /// The last line has no LF yet.
    in_line: bool,
}

impl ToDaemon {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(last) = bytes.last() else { return Ok(()) };
        self.in_line = *last != b'\n';
        (&mut &*self.stream).write_all(bytes)
    }

    /// Sends a link record, ending an open line first.
    fn record(&mut self, record: FromShim) -> io::Result<()> {
        let mut bytes = Vec::new();
        if self.in_line {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(&record.to_line());
        self.send(&bytes)
    }

    /// Bounds how long later sends may wait.
    fn limit(&self, time: Duration) -> io::Result<()> {
        use atomic_link::StreamLimits as _;
        self.stream.set_send_timeout(Some(time))
    }
}

/// The state behind these locks is whole even if a thread died with one held: each change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
