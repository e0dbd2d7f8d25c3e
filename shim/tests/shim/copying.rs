//! Copying both ways, leaving, and the verbs.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use atomic_link::listen::DaemonLock;
use atomic_protocol::Raw;
use atomic_protocol::link::{FromDaemon, FromShim, Mode, Reply, Report};

use crate::stage::{Daemon, Home, exit, link_line, progress};

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
    assert!(hello.umask.is_some());
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
fn help_version_and_refused_arguments_need_no_daemon() {
    let home = Home::new();
    for (args, code, out, err) in [
        (&["--help"][..], 0, "Usage: atomic", ""),
        (&["--version"], 0, "atomic ", ""),
        (&[], 1, "", "--mode rpc"),
        (&["--mode", "bogus"], 1, "", "Invalid mode \"bogus\". Valid values: text, json, rpc\n"),
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
