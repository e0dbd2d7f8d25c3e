//! A daemon that runs out of file descriptors: new windows are told so, those that are there go on working, and all is
//! well again when some are closed.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use atomic_tests::{ModelServer, Sandbox, Shim, anthropic, eventually};
use serde_json::json;

/// Descriptors of the daemon.
const LIMIT: usize = 64;

/// Pause of the daemon after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A first window that starts the daemon under the limit.
fn first_window(sandbox: &Sandbox) -> Shim {
    let script = format!("#!/bin/sh\nulimit -n {LIMIT}\nexec atomic \"$@\"\n");
    let program = sandbox.write("limited", script);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("ours");
    sandbox.shim().program(program).start()
}

#[track_caller]
fn talk(server: &ModelServer, shim: &mut Shim) {
    server.prepare(anthropic::text("hello"));
    assert!(shim.ask(json!({"type": "prompt", "message": "hi"})).succeeded());
    let records = shim.until_settled();
    assert!(records.iter().any(|record| record["message"]["stopReason"] == "stop"), "{records:#?}");
    let ran = shim.ask(json!({"type": "bash", "command": "echo $((6 * 7)) | cat"}));
    assert_eq!(ran.data()["output"], "42\n");
}

/// A window and what came of it: it is served, or it has ended.
fn window(sandbox: &Sandbox) -> (Shim, bool) {
    let mut shim = sandbox.rpc();
    shim.send(json!({"id": "state", "type": "get_state"}));
    let served = eventually("an answer or an end", || {
        let answered = shim.records().iter().any(atomic_tests::Record::is_response);
        (answered || !shim.process().is_running()).then_some(answered)
    });
    (shim, served)
}

#[test]
fn windows_that_would_take_the_last_descriptors_are_told_and_the_others_go_on() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut first = first_window(&sandbox);
    talk(&server, &mut first);
    let daemon = sandbox.daemon();
    let mut windows = Vec::new();
    let mut refused = loop {
        let (shim, served) = window(&sandbox);
        if !served {
            break shim;
        }
        windows.push(shim);
        assert!(windows.len() < LIMIT, "the limit is in force");
    };
    assert!(windows.len() > LIMIT / 4, "most of them serve windows: {}", windows.len());
    let end = refused.wait_for_exit().expect_code(1);
    assert_eq!(end.stdout, "");
    for part in ["atomicd may have 64 open files", "close windows", "ulimit -n"] {
        assert!(end.stderr.contains(part), "{}", end.stderr);
    }
    // All that are there can work: files, connections to the model, pipes of commands.
    talk(&server, &mut first);
    windows.iter_mut().take(4).for_each(|shim| talk(&server, shim));
    let status = sandbox.atomic(&["status", "--json"]).expect_code(0);
    assert!(status.stdout.contains("\"clients\""), "{}", status.stdout);
    assert!(!sandbox.daemon_log().contains("accepting a connection failed"), "nobody was left waiting");

    // Each that is closed makes room for another.
    for mut shim in windows.split_off(windows.len() - 8) {
        shim.finish().expect_code(0);
    }
    eventually("room for a new window", || window(&sandbox).1.then_some(()));
    assert_eq!(sandbox.daemon(), daemon);
}

/// Whoever connects and says nothing takes descriptors too.
#[test]
fn without_any_descriptor_the_daemon_waits_and_does_not_spin() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut first = first_window(&sandbox);
    talk(&server, &mut first);
    let hosts = std::fs::read_dir(sandbox.agent_dir().join("run")).expect("run/");
    let dirs: Vec<PathBuf> = hosts.map(|entry| entry.expect("an entry").path()).collect();
    let [dir] = &dirs[..] else { panic!("one host: {dirs:?}") };
    let begun = Instant::now();
    let silent: Vec<UnixStream> =
        (0..LIMIT + 16).map(|_| UnixStream::connect(dir.join("d.sock")).expect("it listens")).collect();
    eventually("there is none left", || {
        sandbox.daemon_log().contains("accepting a connection failed").then_some(())
    });
    // Who is there is answered meanwhile.
    for _ in 0..20 {
        first.get("get_state");
    }
    drop(silent);
    let log = eventually("it accepts again", || {
        Some(sandbox.daemon_log()).filter(|log| log.contains("connections are accepted again"))
    });
    let elapsed = begun.elapsed();
    let tries: u128 = log
        .lines()
        .filter_map(|line| line.split_once("connections are accepted again failures=")?.1.trim().parse().ok())
        .inspect(|tries: &u128| assert!(*tries > 0))
        .sum();
    assert!(tries > 0, "{log}");
    assert!(tries <= elapsed.as_millis() / ACCEPT_PAUSE.as_millis() + 1, "{tries} tries in {elapsed:?}");
    let (mut shim, served) = window(&sandbox);
    assert!(served, "{}", shim.stderr());
    talk(&server, &mut shim);
}
