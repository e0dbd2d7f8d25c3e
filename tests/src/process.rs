//! One child process: its stdin to write, its stdout by line, its stderr, its end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::DEADLINE;
use crate::processes::{self, Signal};

/// What is known of a child by now.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Lines of stdout with their LF; only the last may lack it.
    pub(crate) lines: Vec<Vec<u8>>,
    pub(crate) stdout_ended: bool,
    pub(crate) stderr: Vec<u8>,
    stderr_ended: bool,
    pub(crate) exit: Option<ExitStatus>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// A running child. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    pid: u32,
    stdin: Option<ChildStdin>,
    shared: Arc<Shared>,
}

/// A child that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

impl Finished {
    /// The exit code; `None` when a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Fails with everything the child said when it did not exit with `code`.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Finished {
        assert_eq!(
            self.code(),
            Some(code),
            "{}\nstdout:\n{}\nstderr:\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }
}

impl Running {
    /// Starts the command with piped stdin, stdout and stderr.
    ///
    /// # Panics
    /// When it does not start.
    pub fn spawn(command: Command) -> Running {
        Running::start(command, true)
    }

    /// The same with a stdout that nobody reads any more.
    ///
    /// # Panics
    /// When it does not start.
    pub fn spawn_with_closed_stdout(command: Command) -> Running {
        Running::start(command, false)
    }

    fn start(mut command: Command, read_stdout: bool) -> Running {
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        if read_stdout {
            command.stdout(Stdio::piped());
        } else {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            command.stdout(writer);
        }
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        drop(command);
        let shared = Arc::new(Shared::default());
        match child.stdout.take() {
            Some(stdout) => {
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut stdout = BufReader::with_capacity(1 << 20, stdout);
                    loop {
                        let mut line = Vec::new();
                        match stdout.read_until(b'\n', &mut line) {
                            Ok(0) | Err(_) => break,
                            Ok(_) => shared.update(|seen| seen.lines.push(line)),
                        }
                    }
                    shared.update(|seen| seen.stdout_ended = true);
                });
            }
            None => shared.update(|seen| seen.stdout_ended = true),
        }
        let mut stderr = child.stderr.take().expect("stderr is piped");
        let for_stderr = shared.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stderr.read(&mut buffer) {
                for_stderr.update(|seen| seen.stderr.extend_from_slice(&buffer[..n]));
            }
            for_stderr.update(|seen| seen.stderr_ended = true);
        });
        let (pid, stdin) = (child.id(), child.stdin.take());
        let for_exit = shared.clone();
        thread::spawn(move || {
            let status = child.wait().expect("a child can be waited for");
            for_exit.update(|seen| seen.exit = Some(status));
        });
        Running { pid, stdin, shared }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Writes to its stdin. A child that has gone is noticed where its answer is missed.
    pub fn write(&mut self, bytes: &[u8]) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(bytes).and_then(|()| stdin.flush());
        }
    }

    /// Ends its stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal, unless the child has ended.
    pub fn signal(&self, signal: Signal) {
        if self.shared.lock().exit.is_none() {
            processes::signal(self.pid, signal);
        }
    }

    /// It has not ended.
    pub fn is_running(&self) -> bool {
        self.shared.lock().exit.is_none()
    }

    /// What it wrote to stderr so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.shared.lock().stderr).into_owned()
    }

    /// Waits until `look` sees something in what is known. `None`: [`DEADLINE`] passed.
    pub(crate) fn wait_until<T>(&self, mut look: impl FnMut(&Seen) -> Option<T>) -> Option<T> {
        let end = Instant::now() + DEADLINE;
        let mut seen = self.shared.lock();
        loop {
            if let Some(found) = look(&seen) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            let (next, _) =
                self.shared.changed.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner);
            seen = next;
        }
    }

    /// Waits until its stdout holds this text.
    ///
    /// # Panics
    /// When [`DEADLINE`] passes first.
    #[track_caller]
    pub fn wait_for_stdout(&self, text: &str) {
        let contains = |seen: &Seen| String::from_utf8_lossy(&seen.lines.concat()).contains(text);
        let found = self.wait_until(|seen| contains(seen).then_some(()));
        assert!(found.is_some(), "stdout does not say {text:?}\nstderr:\n{}", self.stderr());
    }

    /// Waits for its end and for the end of both streams, without closing stdin. `None`: [`DEADLINE`] passed.
    pub fn wait(&self) -> Option<Finished> {
        self.wait_until(|seen| {
            let status = seen.exit?;
            (seen.stdout_ended && seen.stderr_ended).then(|| Finished {
                status,
                stdout: String::from_utf8_lossy(&seen.lines.concat()).into_owned(),
                stderr: String::from_utf8_lossy(&seen.stderr).into_owned(),
            })
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::Kill);
    }
}
