//! The real `atomic` against a thread that plays the daemon.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use atomic_link::Stream;
use atomic_link::listen::{DaemonLock, LOCK_PATIENCE, Listener, bind};
use atomic_link::place::Place;
use atomic_protocol::Raw;
use atomic_protocol::link::{FromDaemon, FromShim, Hello, Mode, Reply, Report};
use rustix::process::{Pid, Signal, kill_process};

/// A directory with an agent directory and a copy of the shim that has no daemon beside it.
struct Home {
    root: tempfile::TempDir,
    place: Place,
    program: PathBuf,
}

impl Home {
    fn new() -> Home {
        let root = tempfile::tempdir().unwrap();
        let place = Place::of(&root.path().join("agent")).unwrap();
        let program = root.path().join("atomic");
        std::fs::copy(env!("CARGO_BIN_EXE_atomic"), &program).unwrap();
        Home { root, place, program }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
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

    fn listen(&self) -> (DaemonLock, Listener) {
        let lock = DaemonLock::acquire(&self.place, LOCK_PATIENCE).unwrap();
        let listener = bind(&self.place, &lock).unwrap();
        (lock, listener)
    }

    /// A shim in rpc mode whose hello is answered with a welcome.
    fn attach(&self, listener: &Listener) -> (Shim, Daemon) {
        let mut child = self.command(&["--mode", "rpc", "--no-session"]).spawn().unwrap();
        let mut daemon = Daemon::accept(listener);
        daemon.reply(&welcome());
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        (Shim { child, stdin, stdout }, daemon)
    }
}

fn welcome() -> Reply {
    Reply::Welcome {
        link: 1,
        version: "0".into(),
        build: String::new(),
        pid: 1,
        session_id: "s".into(),
        session_file: None,
    }
}

struct Shim {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Shim {
    fn send(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What is left on stdout, what is on stderr, and how it ended.
    fn end(mut self) -> (Vec<u8>, String, ExitStatus) {
        let (mut out, mut err) = (Vec::new(), String::new());
        self.stdout.read_to_end(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (out, err, self.child.wait().unwrap())
    }
}

/// The daemon's end of one connection.
struct Daemon {
    stream: std::sync::Arc<Stream>,
    lines: BufReader<Reader>,
    hello: Hello,
}

struct Reader(std::sync::Arc<Stream>);

impl std::io::Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        (&mut &*self.0).read(buffer)
    }
}

impl Daemon {
    fn accept(listener: &Listener) -> Daemon {
        let stream = std::sync::Arc::new(listener.accept().unwrap());
        let mut lines = BufReader::new(Reader(stream.clone()));
        let mut hello = Vec::new();
        lines.read_until(b'\n', &mut hello).unwrap();
        Daemon { stream, lines, hello: serde_json::from_slice(&hello).unwrap() }
    }

    fn reply(&mut self, reply: &Reply) {
        self.write((serde_json::to_string(reply).unwrap() + "\n").as_bytes());
    }

    fn write(&self, bytes: &[u8]) {
        (&mut &*self.stream).write_all(bytes).unwrap();
    }

    fn record(&self, record: &FromDaemon) {
        self.write(&link_line(record));
    }

    fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.lines.read_until(b'\n', &mut line).unwrap();
        line
    }
}

fn link_line(record: &FromDaemon) -> Vec<u8> {
    let mut line = Vec::new();
    record.write_line(&mut line);
    line
}

fn exit(code: u8, text: Option<&str>) -> FromDaemon {
    FromDaemon::Exit { code, text: text.map(str::to_owned) }
}

fn progress(admitted: u64, answered: &[u64]) -> FromDaemon {
    FromDaemon::Progress { admitted: Some(admitted), answered: answered.to_vec(), ids: BTreeMap::new() }
}

#[test]
fn bytes_pass_both_ways_and_eof_is_told() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach(&listener);
    let hello = &daemon.hello;
    assert_eq!((hello.mode, hello.records), (Mode::Rpc, true));
    assert_eq!(hello.argv, ["--mode".into(), "rpc".into(), "--no-session".into()]);
    assert_eq!(Path::new(&hello.cwd.to_os()), home.root.path().canonicalize().unwrap());
    assert!(hello.env.contains(&("SECRET".into(), "s".into())));
    shim.send("{\"id\":1,\"x\":\"\u{2028}\"}\n\n\u{1e}{\"eof\":true}\nlast".as_bytes());
    assert_eq!(daemon.line(), "{\"id\":1,\"x\":\"\u{2028}\"}\n".as_bytes());
    assert_eq!(daemon.line(), b"\n");
    assert_eq!(daemon.line(), b" \x1e{\"eof\":true}\n");
    daemon.write(b"{\"a\":1}\n\n");
    assert_eq!((shim.line(), shim.line()), ("{\"a\":1}\n".to_owned(), "\n".to_owned()));
    shim.stdin = None;
    assert_eq!(daemon.line(), b"last\n", "the missing LF is added");
    assert_eq!(daemon.line(), FromShim::Eof.to_line());
    daemon.write(b"{\"b\":2}\n");
    daemon.record(&exit(0, None));
    let (out, err, status) = shim.end();
    assert_eq!((out.as_slice(), err.as_str(), status.code()), (&b"{\"b\":2}\n"[..], "", Some(0)));
}

#[test]
fn link_records_split_anywhere_never_reach_stdout() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let notice = link_line(&FromDaemon::Notice("note".into()));
    let text = [&notice[..], b"{\"a\":1}\n", &link_line(&progress(0, &[])), b"{\"b\":2}\n", &notice].concat();
    let (mut shim, daemon) = home.attach(&listener);
    for at in 1..text.len() {
        daemon.write(&text[..at]);
        daemon.write(&text[at..]);
        assert_eq!(
            (shim.line(), shim.line()),
            ("{\"a\":1}\n".to_owned(), "{\"b\":2}\n".to_owned()),
            "split at {at}"
        );
    }
    daemon.record(&exit(4, Some("bye")));
    let (out, err, status) = shim.end();
    assert_eq!((out.len(), status.code()), (0, Some(4)));
    assert_eq!(err.matches("note\n").count(), 2 * (text.len() - 1));
    assert!(err.ends_with("bye\n"), "{err}");
}

#[test]
fn a_lost_daemon_is_answered_for() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach(&listener);
    shim.send(
        b"{\"id\":\"a\",\"type\":\"get_state\"}\n{\"id\":\"b\",\"type\":\"prompt\",\"message\":\"m\"}\n",
    );
    shim.send(b"{\"type\":\"extension_ui_response\",\"id\":\"d\"}\n{\"id\":7,\"type\":\"bash\"}\n");
    for _ in 0..4 {
        daemon.line();
    }
    daemon.write(b"{\"id\":\"a\",\"ok\":1}\n");
    daemon.record(&progress(3, &[1]));
    daemon.write(b"{\"half\":");
    drop(daemon);
    let (out, err, status) = shim.end();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"id\":\"a\",\"ok\":1}\n{\"half\":\n\
         {\"id\":\"b\",\"type\":\"response\",\"command\":\"prompt\",\"success\":false,\"error\":\"daemon lost; outcome unknown\"}\n\
         {\"id\":7,\"type\":\"response\",\"command\":\"bash\",\"success\":false,\"error\":\"daemon lost; not executed\"}\n"
    );
    assert!(err.contains(home.place.logs().to_str().unwrap()), "{err}");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_64_mib_line_passes_both_ways() {
    const MIB: usize = 1 << 20;
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach(&listener);
    let mut line = vec![b'x'; 64 * MIB];
    line.push(b'\n');
    std::thread::scope(|scope| {
        let up = scope.spawn(|| daemon.line());
        shim.send(&line);
        assert!(up.join().unwrap() == line);
    });
    let id = Raw::parse("9").unwrap();
    daemon.record(&FromDaemon::Progress {
        admitted: Some(1),
        answered: vec![],
        ids: BTreeMap::from([(1, id)]),
    });
    std::thread::scope(|scope| {
        scope.spawn(|| daemon.write(&line));
        assert!(shim.line().as_bytes() == line);
    });
    // Of the line only the id was kept; the echo proved that the record before it was read.
    drop(daemon);
    let (out, _, _) = shim.end();
    assert!(
        String::from_utf8(out)
            .unwrap()
            .starts_with("{\"id\":9,\"type\":\"response\",\"command\":\"unknown\"")
    );
}

#[test]
fn a_refusal_is_text_and_code_and_nothing_on_stdout() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let child = home.command(&["--mode", "rpc", "--session", "nope"]).spawn().unwrap();
    Daemon::accept(&listener)
        .reply(&Reply::Refused { text: "No session found matching 'nope'".into(), code: 1 });
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stderr, b"No session found matching 'nope'\n");
    assert_eq!((output.stdout.len(), output.status.code()), (0, Some(1)));
}

#[test]
fn signals_are_told_and_end_it_in_time() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::HUP, 1)] {
        let home = Home::new();
        let (_lock, listener) = home.listen();
        let (mut shim, mut daemon) = home.attach(&listener);
        daemon.record(&FromDaemon::Notice("up".into()));
        shim.send(b"half");
        let mut half = [0; 4];
        daemon.lines.read_exact(&mut half).unwrap();
        ready(&mut shim);
        let begun = Instant::now();
        shim.signal(signal);
        assert_eq!(daemon.line(), b"\n", "an open line is ended before a link record");
        assert_eq!(daemon.line(), FromShim::Signal(number).to_line());
        // The daemon says nothing: the shim leaves all the same.
        let (_, _, status) = shim.end();
        assert_eq!(status.code(), Some(128 + number));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}

/// Waits until the shim's handlers are in place: the mask of caught signals is not empty.
fn ready(shim: &mut Shim) {
    let path = format!("/proc/{}/status", shim.child.id());
    let caught = |status: &str| {
        let mask =
            status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap_or(0)
    };
    // SIGHUP 1, SIGINT 2, SIGTERM 15.
    let wanted = 1 | 1 << 1 | 1 << 14;
    while caught(&std::fs::read_to_string(&path).unwrap()) & wanted != wanted {
        std::thread::yield_now();
    }
}

#[test]
fn the_first_sigint_is_the_clients_affair() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (mut shim, mut daemon) = home.attach(&listener);
    ready(&mut shim);
    shim.signal(Signal::INT);
    shim.send(b"{\"type\":\"abort\"}\n");
    assert_eq!(daemon.line(), b"{\"type\":\"abort\"}\n");
    daemon.write(b"{}\n");
    assert_eq!(shim.line(), "{}\n", "it lives");
    // Signals that come before the first one was looked at count as one, so the second one is sent until it shows.
    let told = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !told.load(std::sync::atomic::Ordering::Acquire) {
                shim.signal(Signal::INT);
                std::thread::yield_now();
            }
        });
        assert_eq!(daemon.line(), FromShim::Signal(2).to_line());
        told.store(true, std::sync::atomic::Ordering::Release);
    });
    daemon.record(&exit(0, None));
    let (_, _, status) = shim.end();
    assert_eq!((status.code(), status.signal()), (Some(130), None));
}

#[test]
fn a_closed_stdout_ends_it_quietly() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let (shim, daemon) = home.attach(&listener);
    let Shim { mut child, stdin, stdout } = shim;
    drop(stdout);
    daemon.write(b"{}\n");
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(1), ""));
    drop(stdin);
}

#[test]
fn help_version_and_refused_arguments_need_no_daemon() {
    let home = Home::new();
    for (args, code, out, err) in [
        (&["--help"][..], 0, "Usage: atomic", ""),
        (&["--version"], 0, "atomic ", ""),
        (&[], 1, "", "--mode rpc"),
        (&["--mode", "bogus"], 1, "", "Invalid mode \"bogus\". Valid values: text, json, rpc\n"),
        (&["--mode", "json"], 1, "", "Error: --mode json is not built in this version; use --mode rpc\n"),
        (&["status"], 3, "atomicd is not running for ", ""),
        (&["status", "--json"], 3, "{\"running\":false,", ""),
        (&["stop"], 0, "atomicd is not running for ", ""),
        (&["logs", "--level", "debug"], 3, "", "atomicd is not running for "),
        (&["logs"], 1, "", "Error: there is no log in "),
    ] {
        let output = home.command(args).output().unwrap();
        let (got_out, got_err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {got_err}");
        assert!(got_out.contains(out) && got_out.is_empty() == out.is_empty(), "{args:?}: {got_out}");
        assert!(got_err.contains(err) && got_err.is_empty() == err.is_empty(), "{args:?}: {got_err}");
    }
    assert!(!home.place.agent_dir().exists(), "nothing was made");
}

#[test]
fn without_a_daemon_to_start_the_reason_is_told() {
    let home = Home::new();
    let output = home.command(&["--mode", "rpc"]).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("cannot find atomicd") && err.contains("ATOMIC_DAEMON"), "{err}");
    assert_eq!((output.stdout.len(), output.status.code()), (0, Some(1)));
    let output = home.command(&["--mode", "rpc"]).env("ATOMIC_DAEMON", "/bin/false").output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("ended while starting") && err.contains("stderr.log"), "{err}");
    assert_eq!((output.stdout.len(), output.status.code()), (0, Some(1)));
}

#[test]
fn verbs_ask_a_running_daemon() {
    let home = Home::new();
    let (lock, listener) = home.listen();
    let report = Report { pid: 42, log_level: "debug".into(), ..Report::default() };
    let ask = |args: &[&str], lock: Option<DaemonLock>| {
        let child = home.command(args).spawn().unwrap();
        let mut daemon = Daemon::accept(&listener);
        assert!(daemon.hello.env.is_empty(), "nothing of the caller's goes with it");
        daemon.reply(&Reply::Report(report.clone()));
        drop(lock);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{args:?}");
        (String::from_utf8(output.stdout).unwrap(), daemon.hello.mode, daemon.hello.argv)
    };
    let (out, mode, _) = ask(&["status"], None);
    assert!(mode == Mode::Status && out.contains("process 42"), "{out}");
    let (out, _, _) = ask(&["status", "--json"], None);
    assert!(out.starts_with("{\"running\":true,") && out.lines().count() == 1, "{out}");
    let (out, mode, argv) = ask(&["logs", "--level", "debug"], None);
    assert_eq!(
        (out.as_str(), mode, argv),
        ("the log level is now debug\n", Mode::LogLevel, vec!["debug".into()])
    );
    let (out, mode, argv) = ask(&["stop", "--wait"], Some(lock));
    assert_eq!((mode, argv), (Mode::Stop, vec!["--wait".into()]));
    assert_eq!(out, "atomicd (process 42) has stopped\n");
}

#[test]
fn logs_prints_follows_and_names_the_newest_file() {
    let home = Home::new();
    std::fs::create_dir_all(home.place.logs()).unwrap();
    let log = home.place.logs().join("atomicd.2026-01-01.log");
    std::fs::write(home.place.stderr_log(), "early\n").unwrap();
    std::fs::write(&log, "one\ntwo\nthree\n").unwrap();
    let output = home.command(&["logs", "-n", "2"]).output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"two\nthree\n"[..], Some(0)));
    let output = home.command(&["logs", "--path"]).output().unwrap();
    assert_eq!(output.stdout, format!("{}\n", log.display()).into_bytes());

    let mut child = home.command(&["logs", "-n", "1", "-f"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "three");
    std::fs::OpenOptions::new().append(true).open(&log).unwrap().write_all(b"four\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "four");
    let newer = home.place.logs().join("atomicd.2026-01-02.log");
    std::fs::write(&newer, "five\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "five");
    child.kill().unwrap();
    child.wait().unwrap();
}
