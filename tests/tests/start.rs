//! Finding, starting, asking and stopping the daemon; the command line.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{
    Exchange, MODEL, ModelServer, PROVIDER, Sandbox, Shim, Signal, anthropic, binaries, eventually, signal,
};
use serde_json::{Value, json};

/// How many windows open at once.
const WINDOWS: usize = 50;

/// `atomic status` when no daemon runs.
const NOT_RUNNING: i32 = 3;

/// A shim whose run waits in the middle of its answer.
fn streaming(server: &ModelServer, sandbox: &Sandbox) -> (Shim, Exchange) {
    let mut shim = sandbox.rpc();
    shim.prompt("1", "start");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    shim.wait_for_delta("one ");
    (shim, exchange)
}

#[test]
fn the_first_shim_starts_it_and_the_next_finds_it() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.daemons(), Vec::<u32>::new());
    let mut first = sandbox.rpc();
    first.get("get_state");
    let daemon = sandbox.daemon();
    // Neither a login shell's variables nor a service's change where it is.
    let other = sandbox.dir("run");
    let mut second =
        sandbox.shim().env("XDG_RUNTIME_DIR", &other).env("TMPDIR", &other).env("USER", "nobody").start();
    second.get("get_state");
    assert_eq!(sandbox.daemon(), daemon);
}

#[test]
fn another_agent_directory_has_another_daemon() {
    let sandbox = Sandbox::new();
    let mut first = sandbox.rpc();
    first.get("get_state");
    let agent_dir = sandbox.dir("other-agent");
    let mut second = sandbox.shim().env("ATOMIC_CODING_AGENT_DIR", &agent_dir).start();
    let file = second.session_file();
    assert!(file.path().starts_with(&agent_dir), "{}", file.path().display());
    assert_eq!(sandbox.daemons().len(), 2);
    // Both names mean the same directory, so the same daemon.
    let mut third = sandbox.shim().env("PI_CODING_AGENT_DIR", &agent_dir).start();
    third.get("get_state");
    assert_eq!(sandbox.daemons().len(), 2);
}

#[test]
fn a_long_home_is_no_trouble() {
    let sandbox = Sandbox::new();
    let home = sandbox.dir(&format!("{}/{}", "long".repeat(30), "home".repeat(30)));
    for _ in 0..2 {
        let mut shim = sandbox.shim().env("HOME", &home).start();
        let file = shim.session_file();
        assert!(file.path().starts_with(&home), "{}", file.path().display());
    }
    assert_eq!(sandbox.daemons().len(), 1, "the second found the first's");
}

#[test]
fn many_windows_at_once_share_one() {
    let sandbox = Sandbox::new();
    let mut shims: Vec<Shim> = (0..WINDOWS).map(|_| sandbox.rpc()).collect();
    for shim in &mut shims {
        shim.send(json!({"id": 1, "type": "get_state"}));
    }
    let mut ids: Vec<String> =
        shims.iter_mut().map(|shim| shim.response(1).data()["sessionId"].to_string()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), WINDOWS, "a session each");
    sandbox.daemon();
    for shim in &mut shims {
        assert_eq!(shim.finish().expect_code(0).stderr, "");
    }
}

#[test]
fn what_a_killed_daemon_leaves_does_not_stop_the_next() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.get("get_state");
    shim.finish().expect_code(0);
    let before = sandbox.daemon();
    sandbox.kill_daemon();
    let mut next = sandbox.rpc();
    next.get("get_state");
    assert_ne!(sandbox.daemon(), before);
    assert_eq!(next.finish().expect_code(0).stderr, "");
}

#[test]
#[cfg(target_os = "linux")]
fn it_is_nobodys_child() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.get("get_state");
    let daemon = sandbox.daemon();
    let stat = std::fs::read_to_string(format!("/proc/{daemon}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a stat line").1.split(' ').collect();
    let session: u32 = fields[3].parse().expect("a number");
    let mine =
        std::fs::read_to_string(format!("/proc/{}/stat", shim.process().pid())).expect("the shim runs");
    let shims: u32 = mine
        .rsplit_once(") ")
        .expect("a stat line")
        .1
        .split(' ')
        .nth(3)
        .expect("a field")
        .parse()
        .expect("a number");
    assert_ne!(session, shims, "it has a session of its own");
    assert_eq!(std::fs::read_link(format!("/proc/{daemon}/cwd")).expect("a cwd").to_str(), Some("/"));
    shim.kill();
    let mut next = sandbox.rpc();
    next.get("get_state");
    assert_eq!(sandbox.daemon(), daemon);
}

#[test]
fn a_daemon_on_sigterm_ends_its_children_and_leaves() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::tool_call("c1", "bash", json!({"command": "echo up; sleep 661"})));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "go");
    shim.wait_for("the call's output", |record| record.shows_output("up"));
    let file = shim.session_file();
    shim.kill();
    signal(sandbox.daemon(), Signal::Terminate);
    eventually("nothing is left", || sandbox.processes().is_empty().then_some(()));
    let last = file.messages().pop().expect("messages");
    assert_ne!(last["role"], "user", "the run was closed in the file: {last}");
}

#[test]
fn help_and_version_need_no_daemon() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["-p", "--help"],
        &["status", "--help"],
        &["stop", "--help"],
        &["logs", "--help"],
    ] {
        let output = sandbox.atomic(arguments).expect_code(0);
        assert!(output.stdout.contains("Usage: atomic"), "{arguments:?}: {}", output.stdout);
        assert_eq!(output.stderr, "", "{arguments:?}");
    }
    for flag in ["--version", "-v"] {
        assert_eq!(
            sandbox.atomic(&[flag]).expect_code(0).stdout,
            format!("atomic {}\n", env!("CARGO_PKG_VERSION"))
        );
    }
    assert_eq!(sandbox.processes(), Vec::new());
}

#[test]
fn help_names_nothing_that_does_not_exist_and_a_bad_flag_starts_nothing() {
    let sandbox = Sandbox::new();
    for (arguments, text) in [
        (&["--mode", "bogus"][..], "Invalid mode \"bogus\". Valid values: text, json, rpc"),
        (&["--mode", "rpc", "-x"], "Error: Unknown option: -x"),
        (&["--mode", "rpc", "--modle", "x"], "Error: Unknown option: --modle"),
        (&["--mode", "rpc", "@file"], "@file arguments are not supported in RPC mode"),
        (&["--mode", "rpc", "--name", " "], "--name requires a non-empty value"),
        (&["stop", "--now"], "--now"),
    ] {
        let output = sandbox.atomic(arguments).expect_code(1);
        assert!(output.stderr.contains(text), "{arguments:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{arguments:?}");
    }
    assert_eq!(sandbox.processes(), Vec::new());
}

#[test]
fn what_the_daemon_refuses_is_told_on_stderr() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let readme = sandbox.write("project/README.md", "# Not a session\n");
    let object = sandbox.write("project/object.jsonl", "{\"type\":\"message\"}\n");
    for (arguments, text) in [
        (vec!["--session", "README.md"], "README.md"),
        (vec!["--session", "./README.md"], "README.md"),
        (vec!["--session", "object.jsonl"], "not a valid"),
        (vec!["--session", "../project"], ""),
        (vec!["--model", "no-such-model"], "Model \"no-such-model\" not found"),
        (vec!["--provider", "no-such-provider", "--model", MODEL], "no-such-provider"),
    ] {
        let mut all = vec!["--mode", "rpc"];
        all.extend(&arguments);
        let output = sandbox.atomic(&all).expect_code(1);
        assert!(
            !output.stderr.is_empty() && output.stderr.contains(text),
            "{arguments:?}: {}",
            output.stderr
        );
        assert_eq!(output.stdout, "", "{arguments:?}");
    }
    assert_eq!(std::fs::read_to_string(readme).expect("the file"), "# Not a session\n");
    assert_eq!(std::fs::read_to_string(object).expect("the file"), "{\"type\":\"message\"}\n");
    // A wrong level is a warning only.
    let mut shim = sandbox.shim().args(["--thinking", "huge"]).start();
    assert_eq!(shim.get("get_state")["thinkingLevel"], "medium");
    eventually("the warning", || {
        shim.stderr().contains("Warning: Invalid thinking level \"huge\"").then_some(())
    });
}

#[test]
fn status_tells_and_never_starts_one() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let none = sandbox.atomic(&["status"]).expect_code(NOT_RUNNING);
    assert!(
        format!("{}{}", none.stdout, none.stderr).contains("not running"),
        "{}{}",
        none.stdout,
        none.stderr
    );
    assert_eq!(sandbox.processes(), Vec::new());

    let (mut shim, exchange) = streaming(&server, &sandbox);
    let state = shim.get("get_state");
    let id = state["sessionId"].as_str().expect("an id");
    let text = sandbox.atomic(&["status"]).expect_code(0).stdout;
    for part in [&sandbox.daemon().to_string(), id, sandbox.project().to_str().expect("UTF-8")] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let status = sandbox.atomic(&["status", "--json"]).expect_code(0).stdout;
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["pid"], sandbox.daemon());
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["agentDir"], json!(sandbox.agent_dir()));
    assert_eq!(status["sessions"][0]["id"], id);
    assert_eq!(status["sessions"][0]["running"], true);
    drop(exchange);
}

#[test]
fn stop_stops_an_idle_one() {
    let sandbox = Sandbox::new();
    let nothing = sandbox.atomic(&["stop"]).expect_code(0);
    assert_eq!(nothing.stdout.lines().count() + nothing.stderr.lines().count(), 1, "{nothing:?}");
    assert_eq!(sandbox.processes(), Vec::new(), "it starts none");
    let mut shim = sandbox.rpc();
    shim.get("get_state");
    shim.finish().expect_code(0);
    let daemon = sandbox.daemon();
    sandbox.atomic(&["stop"]).expect_code(0);
    eventually("it is gone", || sandbox.processes().is_empty().then_some(()));
    sandbox.atomic(&["status"]).expect_code(NOT_RUNNING);
    let mut next = sandbox.rpc();
    next.get("get_state");
    assert_ne!(sandbox.daemon(), daemon);
}

#[test]
fn stop_refuses_while_a_turn_runs_and_force_aborts_it() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox);
    let id = shim.get("get_state")["sessionId"].as_str().expect("an id").to_owned();
    let file = shim.session_file();
    let refused = sandbox.atomic(&["stop"]).expect_code(1);
    assert!(refused.stderr.contains(&id) && refused.stderr.contains("--force"), "{}", refused.stderr);
    assert_eq!(shim.get("get_state")["isStreaming"], true, "nothing happened to it");
    shim.rest();

    sandbox.atomic(&["stop", "--force"]).expect_code(0);
    exchange.wait_for_hang_up();
    let records = shim.until_settled();
    let end = records.iter().find(|record| record.kind() == "message_end").expect("the answer's end");
    assert_eq!(end["message"]["stopReason"], "aborted");
    shim.wait_for_exit();
    assert_eq!(file.messages().last(), Some(&end["message"]));
    eventually("nothing is left", || sandbox.processes().is_empty().then_some(()));
}

#[test]
fn stop_wait_lets_the_turn_end() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, mut exchange) = streaming(&server, &sandbox);
    let daemon = sandbox.daemon();
    let mut command = sandbox.command(&binaries().atomic);
    command.args(["stop", "--wait"]);
    let stop = atomic_tests::Running::spawn(command);
    let answer = anthropic::texts(&["one ", "two"]);
    for event in &answer.events[answer.events.len() - 4..] {
        exchange.event(event);
    }
    exchange.finish();
    let records = shim.until_settled();
    let end = records.iter().find(|record| record.kind() == "message_end").expect("the answer's end");
    assert_eq!(end["message"]["stopReason"], "stop");
    stop.wait().expect("stop ends").expect_code(0);
    eventually("it is gone", || (!atomic_tests::alive(daemon)).then_some(()));
}

#[test]
fn logs_are_found_and_their_level_can_be_changed() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.get("get_state");
    let path = sandbox.atomic(&["logs", "--path"]).expect_code(0).stdout;
    let path = std::path::PathBuf::from(path.trim_end());
    assert!(path.starts_with(sandbox.agent_dir()) && path.is_file(), "{}", path.display());
    let text = sandbox.atomic(&["logs"]).expect_code(0).stdout;
    assert!(!text.is_empty(), "a start is worth a line");
    assert!(text.lines().count() <= 50);
    assert!(sandbox.atomic(&["logs", "-n", "1"]).expect_code(0).stdout.lines().count() <= 1);
    let level = || {
        let status = sandbox.atomic(&["status", "--json"]).expect_code(0).stdout;
        serde_json::from_str::<Value>(&status).expect("JSON")["logLevel"].clone()
    };
    assert_eq!(level(), "info");
    sandbox.atomic(&["logs", "--level", "debug"]).expect_code(0);
    assert_eq!(level(), "debug");
    sandbox.atomic(&["logs", "--level", "loud"]).expect_code(1);
}

#[test]
fn a_daemon_that_cannot_be_found_is_named() {
    let sandbox = Sandbox::new();
    // Alone in a directory, the shim has no daemon beside it.
    let alone = sandbox.dir("alone").join("atomic");
    // Copied by another process: a program that this one has open for writing cannot be started.
    let copied = sandbox.command("cp").arg(&binaries().atomic).arg(&alone).status().expect("cp");
    assert!(copied.success());
    let mut command = sandbox.command(&alone);
    command.args(["--mode", "rpc"]).env_remove("ATOMIC_DAEMON");
    let mut running = atomic_tests::Running::spawn(command);
    running.write(b"{\"id\":1,\"type\":\"get_state\"}\n");
    let finished = running.wait().expect("it does not wait for what cannot come").expect_code(1);
    assert_eq!(finished.stdout.lines().filter(|line| line.contains("\"success\":true")).count(), 0);
    assert!(
        finished.stderr.contains("atomicd") && finished.stderr.contains("ATOMIC_DAEMON"),
        "{}",
        finished.stderr
    );

    let mut command = sandbox.command(&alone);
    command
        .args(["--mode", "rpc", "--model", &format!("{PROVIDER}/{MODEL}")])
        .env("ATOMIC_DAEMON", "/bin/false");
    let finished =
        atomic_tests::Running::spawn(command).wait().expect("a daemon that dies is noticed").expect_code(1);
    assert!(finished.stderr.contains("atomicd") && finished.stderr.contains(".log"), "{}", finished.stderr);
}

#[test]
fn with_nothing_to_do_it_leaves_and_while_somebody_is_there_it_stays() {
    let sandbox = Sandbox::new();
    sandbox.write_settings(&json!({"daemon": {"idleExit": 1}}));
    let mut shim = sandbox.rpc();
    shim.get("get_state");
    let daemon = sandbox.daemon();
    // Longer than the limit: a command takes the time, so that nothing here waits on a clock.
    shim.ask(json!({"type": "bash", "command": "sleep 1.5"}));
    assert_eq!(sandbox.daemon(), daemon);
    shim.finish().expect_code(0);
    eventually("the daemon leaves", || sandbox.daemons().is_empty().then_some(()));
    sandbox.atomic(&["status"]).expect_code(3);
}
