//! The real shim and a thread that plays the daemon.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use atomic_link::Stream;
use atomic_link::listen::{DaemonLock, LOCK_PATIENCE, Listener, bind};
use atomic_link::place::Place;
use atomic_protocol::link::{FromDaemon, Hello, Reply};
use rustix::process::{Pid, Signal, kill_process};

/// A directory with an agent directory and a copy of the shim that has no daemon beside it.
pub(crate) struct Home {
    pub(crate) root: tempfile::TempDir,
    pub(crate) place: Place,
    pub(crate) program: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Home {
        let root = tempfile::tempdir().unwrap();
        let place = Place::of(&root.path().join("agent")).unwrap();
        let program = root.path().join("atomic");
        // By another process: a descriptor of ours that is open for writing would be inherited by whatever another test
        // starts just then, and a program that somebody has open for writing cannot be run.
        assert!(
            Command::new("cp").arg(env!("CARGO_BIN_EXE_atomic")).arg(&program).status().unwrap().success()
        );
        Home { root, place, program }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = heeding_signals(&self.program);
        command
            .args(args)
            .env_clear()
            .env("HOME", self.root.path())
            .env("ATOMIC_CODING_AGENT_DIR", self.place.agent_dir())
            .env("SECRET", "s")
            .current_dir(self.root.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn listen(&self) -> (DaemonLock, Listener) {
        let lock = DaemonLock::acquire(&self.place, LOCK_PATIENCE).unwrap();
        let listener = bind(&self.place, &lock).unwrap();
        (lock, listener)
    }

    /// A shim in rpc mode whose hello is answered with a welcome.
    pub(crate) fn attach(&self, listener: &Listener) -> (Shim, Daemon) {
        let shim = Shim::start(self.command(&["--mode", "rpc", "--no-session"]));
        let mut daemon = Daemon::accept(listener);
        daemon.reply(&welcome(None));
        (shim, daemon)
    }

    /// As [`Home::attach`], to a session with a file.
    pub(crate) fn attach_to_file(&self, listener: &Listener) -> (Shim, Daemon) {
        let shim = Shim::start(self.command(&["--mode", "rpc", "--model", "m"]));
        (shim, Daemon::welcome(listener))
    }
}

/// The file of the session in the welcomes of [`Daemon::welcome`].
pub(crate) const FILE: &str = "/sessions/s.jsonl";

pub(crate) fn welcome(file: Option<&str>) -> Reply {
    Reply::Welcome {
        link: 1,
        version: "0".into(),
        build: String::new(),
        pid: 1,
        session_id: "s".into(),
        session_file: file.map(str::to_owned),
    }
}

pub(crate) struct Shim {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: BufReader<ChildStdout>,
}

impl Shim {
    pub(crate) fn start(mut command: Command) -> Shim {
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Shim { child, stdin, stdout }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What is left on stdout, what is on stderr, and how it ended.
    pub(crate) fn end(mut self) -> (Vec<u8>, String, ExitStatus) {
        let (mut out, mut err) = (Vec::new(), String::new());
        self.stdout.read_to_end(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (out, err, self.child.wait().unwrap())
    }
}

/// The daemon's end of one connection.
pub(crate) struct Daemon {
    pub(crate) stream: std::sync::Arc<Stream>,
    pub(crate) lines: BufReader<Reader>,
    pub(crate) hello: Hello,
}

pub(crate) struct Reader(std::sync::Arc<Stream>);

impl std::io::Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        (&mut &*self.0).read(buffer)
    }
}

impl Daemon {
    pub(crate) fn accept(listener: &Listener) -> Daemon {
        let stream = std::sync::Arc::new(listener.accept().unwrap());
        let mut lines = BufReader::new(Reader(stream.clone()));
        let mut hello = Vec::new();
        lines.read_until(b'\n', &mut hello).unwrap();
        Daemon { stream, lines, hello: serde_json::from_slice(&hello).unwrap() }
    }

    /// Accepts a connection and attaches it to the session with the file.
    pub(crate) fn welcome(listener: &Listener) -> Daemon {
        let mut daemon = Daemon::accept(listener);
        daemon.reply(&welcome(Some(FILE)));
        daemon
    }

    pub(crate) fn reply(&mut self, reply: &Reply) {
        self.write((serde_json::to_string(reply).unwrap() + "\n").as_bytes());
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        (&mut &*self.stream).write_all(bytes).unwrap();
    }

    pub(crate) fn record(&self, record: &FromDaemon) {
        self.write(&link_line(record));
    }

    pub(crate) fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.lines.read_until(b'\n', &mut line).unwrap();
        line
    }
}

pub(crate) fn link_line(record: &FromDaemon) -> Vec<u8> {
    let mut line = Vec::new();
    record.write_line(&mut line);
    line
}

pub(crate) fn exit(code: u8, text: Option<&str>) -> FromDaemon {
    FromDaemon::Exit { code, text: text.map(str::to_owned) }
}

pub(crate) fn progress(admitted: u64, answered: &[u64]) -> FromDaemon {
    FromDaemon::Progress { admitted: Some(admitted), answered: answered.to_vec(), ids: BTreeMap::new() }
}

/// A command whose process heeds signals even where this one's are ignored, as a shell does for what it starts in the
/// background. `exec` keeps the process id.
fn heeding_signals(program: &Path) -> Command {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0").trim();
    // SIGHUP 1, SIGINT 2, SIGTERM 15.
    if u64::from_str_radix(ignored, 16).unwrap_or(0) & (1 | 1 << 1 | 1 << 14) == 0 {
        return Command::new(program);
    }
    let mut command = Command::new("/usr/bin/env");
    command.arg("--default-signal").arg(program);
    command
}

/// Waits until the shim's handlers are in place: the mask of caught signals is not empty.
pub(crate) fn ready(shim: &mut Shim) {
    let path = format!("/proc/{}/status", shim.child.id());
    let caught = |status: &str| {
        let mask =
            status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap_or(0)
    };
    // SIGHUP 1, SIGINT 2, SIGTERM 15.
    let wanted = 1 | 1 << 1 | 1 << 14;
    let begun = std::time::Instant::now();
    while caught(&std::fs::read_to_string(&path).unwrap()) & wanted != wanted {
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "the shim catches no signals");
        std::thread::yield_now();
    }
}
