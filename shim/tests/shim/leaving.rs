//! Signals, and a client that goes away.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use atomic_protocol::link::{FromDaemon, FromShim};
use rustix::process::Signal;

use crate::stage::{Daemon, Home, Shim, exit, ready};

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
fn a_signal_before_the_welcome_ends_it_at_once() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::HUP, 1)] {
        let home = Home::new();
        let (_lock, listener) = home.listen();
        let mut shim = Shim::start(home.command(&["--mode", "rpc"]));
        let _silent = Daemon::accept(&listener);
        ready(&mut shim);
        let begun = Instant::now();
        shim.signal(signal);
        let (out, err, status) = shim.end();
        assert_eq!((out.len(), err.as_str(), status.code()), (0, "", Some(128 + number)));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}

#[test]
fn a_signal_that_is_ignored_stays_ignored_and_the_umask_is_told() {
    let home = Home::new();
    let (_lock, listener) = home.listen();
    let text = format!("trap '' HUP; umask 027; exec {} --mode rpc", home.program.display());
    let plain = home.command(&[]);
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &text])
        .env_clear()
        .envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(home.root.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut shim = Shim::start(command);
    let mut daemon = Daemon::welcome(&listener);
    assert_eq!(daemon.hello.umask, Some(0o027));
    shim.signal(Signal::HUP);
    shim.send(b"{}\n");
    assert_eq!(daemon.line(), b"{}\n", "it lives");
    shim.signal(Signal::TERM);
    assert_eq!(daemon.line(), FromShim::Signal(15).to_line());
    let (_, _, status) = shim.end();
    assert_eq!(status.code(), Some(143));
}
