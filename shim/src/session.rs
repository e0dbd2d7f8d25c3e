//! One client's connection: attach, copy both ways, leave with the right code.
//!
//! Three threads: one copies stdin to the daemon ([`crate::up`]), one attaches and copies from the daemon to stdout
//! ([`crate::down`]), the first waits for signals, from before the daemon is asked for.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use atomic_protocol::cli::{self, OutputMode, SessionOptions};
use atomic_protocol::link::{FromShim, Mode};

use crate::down::{Down, Input};
use crate::up::Up;
use crate::{daemon, messages, os, stdio};

/// From a signal to the exit; the daemon may end it sooner. A little below the promised 200 ms.
const SIGNAL_GRACE: Duration = Duration::from_millis(180);

/// Of that, how long a line that is just being sent may hold up the record about the signal.
const SIGNAL_SEND: Duration = Duration::from_millis(100);

/// Pause between two tries to send the record about the signal.
const SIGNAL_RETRY: Duration = Duration::from_millis(5);

/// What a person gets who expects a chat.
const NO_CHAT: &str = "\
Error: this program has no chat of its own. Use -p for one answer, --mode json for the events of one, or start
'atomic --mode rpc' from an editor.";

/// What a `-p` gets that has nothing to say.
const NO_MESSAGE: &str = "Error: -p needs a message: as an argument, as @FILE, or on stdin";

/// What the threads share.
pub(crate) struct Shared {
    pub(crate) up: Up,
    pub(crate) stdout: File,
    /// Commands come on stdin: whoever owns it may want to say something about a Ctrl-C himself.
    #[cfg_attr(windows, expect(dead_code, reason = "Windows has no signals"))]
    pub(crate) obeys_stdin: bool,
    /// The signal that ends this process, or 0.
    signal: AtomicI32,
}

/// Attaches and copies until one side ends. The process usually ends in another thread; else this is the exit code.
pub(crate) fn run(argv: &[OsString], options: &SessionOptions) -> u8 {
    for warning in &options.warnings {
        stdio::complain(warning);
    }
    let place = match daemon::place() {
        Ok(place) => place,
        Err(error) => return fail(&error),
    };
    let mode = match options.mode {
        OutputMode::Rpc => Mode::Rpc,
        OutputMode::Json => Mode::Json,
        OutputMode::Print => Mode::Print,
        OutputMode::Text if io::stdin().is_terminal() && io::stdout().is_terminal() => {
            stdio::complain(NO_CHAT);
            return 1;
        }
        OutputMode::Text => Mode::Print,
    };
    let hello = match daemon::session_hello(mode, argv) {
        Ok(hello) => hello,
        Err(error) => return fail(&format_args!("cannot tell the current directory: {error}")),
    };
    let input = match mode {
        Mode::Rpc => Input::Stdin,
        _ => match messages::lines(options, Path::new(&hello.cwd.to_os())) {
            Ok(lines) if lines.is_empty() && mode == Mode::Print => {
                stdio::complain(if options.mode == OutputMode::Text { cli::USAGE } else { NO_MESSAGE });
                return 1;
            }
            Ok(lines) => Input::Messages(lines),
            Err(text) => {
                stdio::complain(&text);
                return 1;
            }
        },
    };
    let stdout = match os::stdout() {
        Ok(stdout) => stdout,
        Err(error) => return fail(&format_args!("cannot use stdout: {error}")),
    };
    let obeys_stdin = mode == Mode::Rpc;
    let shared = Arc::new(Shared { up: Up::default(), stdout, obeys_stdin, signal: AtomicI32::new(0) });
    let caught = os::catch();
    if !obeys_stdin {
        shared.up.expect_no_answers();
        // The last answer may be long in coming: a reader that is gone is noticed before it.
        let watching = Arc::clone(&shared);
        let watch = move || {
            os::wait_unread(&watching.stdout);
            watching.exit(1)
        };
        if let Err(error) = std::thread::Builder::new().name("reader".into()).spawn(watch) {
            return fail(&format_args!("cannot start a thread: {error}"));
        }
    }
    let down = Down::new(Arc::clone(&shared), place, hello, input);
    let copying = match std::thread::Builder::new().name("stdout".into()).spawn(move || down.run()) {
        Ok(copying) => copying,
        Err(error) => return fail(&format_args!("cannot start a thread: {error}")),
    };
    if let Some(caught) = caught {
        os::watch(caught, &shared);
    }
    // Without signals to wait for, the process lives as long as the copying.
    let _ = copying.join();
    1
}

fn fail(error: &dyn std::fmt::Display) -> u8 {
    stdio::complain(&format!("Error: {error}"));
    1
}

/// Not `sleep`: on Linux each signal makes that a little longer, so somebody who holds Ctrl-C down could keep us.
fn wait_until(deadline: Instant) {
    while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

impl Shared {
    /// The signal that ends this process, or 0.
    pub(crate) fn signal(&self) -> i32 {
        self.signal.load(Ordering::Acquire)
    }

    /// Ends the process with `code`, or with the code of the signal that came.
    pub(crate) fn exit(&self, code: u8) -> ! {
        match self.signal() {
            0 => std::process::exit(i32::from(code)),
            signal => std::process::exit(128 + signal),
        }
    }

    /// Tells the daemon about `signal` and ends the process, at the latest after [`SIGNAL_GRACE`].
    #[cfg_attr(windows, expect(dead_code, reason = "Windows has no signals"))]
    pub(crate) fn leave(&self, signal: i32) -> ! {
        let begun = Instant::now();
        self.signal.store(signal, Ordering::Release);
        while begun.elapsed() < SIGNAL_SEND && !self.tell(signal) {
            wait_until(Instant::now() + SIGNAL_RETRY);
        }
        // The other thread ends the process as soon as the daemon says so.
        wait_until(begun + SIGNAL_GRACE);
        self.exit(1)
    }

    /// Tells the daemon about `signal`; false when another thread is in the way. Ends the process when there is no
    /// daemon to tell.
    fn tell(&self, signal: i32) -> bool {
        let mut lines = match self.up.try_lines() {
            Ok(lines) => lines,
            Err(TryLockError::Poisoned(lines)) => lines.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Some(connection) = lines.connection else {
            // Held to the end: the thread that looks for a daemon shall not come in between with one.
            let mut out = Vec::new();
            lines.pending.answer_rest(&mut out);
            let _ = stdio::write_all(&self.stdout, &out);
            self.exit(1)
        };
        drop(lines);
        self.up.try_record(connection, FromShim::Signal(signal), SIGNAL_SEND)
    }
}
