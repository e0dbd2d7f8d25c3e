//! `atomic -p`: the last answer's text, an exit code, and nothing else.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Running, Sandbox, Signal, anthropic, binaries};
use serde_json::json;

fn started(sandbox: &Sandbox, arguments: &[&str]) -> Running {
    let mut command = sandbox.command(&binaries().atomic);
    command.args(arguments);
    let mut running = Running::spawn(command);
    running.close_stdin();
    running
}

#[test]
fn only_the_text_of_the_last_answer_is_printed() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let blocks =
        anthropic::Builder::default().thinking(&["hm"], "s").text(&["one"]).text(&["two\n", "three"]);
    for mode in [&["-p"][..], &["--print", "--mode", "text"], &["--mode", "text"], &[]] {
        server.prepare(anthropic::text("not this"));
        server.prepare(blocks.clone().end("end_turn"));
        let finished = sandbox.atomic(&[mode, &["first", "second"]].concat()).expect_code(0);
        assert_eq!(
            (finished.stdout.as_str(), finished.stderr.as_str()),
            ("one\ntwo\nthree\n", ""),
            "{mode:?}"
        );
    }
}

#[test]
fn a_tool_may_run_before_the_answer() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::tool_call("t1", "bash", json!({"command": "echo from the tool"})));
    server.prepare(anthropic::text("done"));
    let finished = sandbox.atomic(&["-p", "--no-session", "go"]).expect_code(0);
    assert_eq!(finished.stdout, "done\n");
    let asked = server.last_request().conversation();
    assert!(asked.iter().any(|text| text.contains("[result] from the tool")), "{asked:?}");
    assert!(sandbox.session_files().is_empty());
}

#[test]
fn a_pipe_alone_is_a_message() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("an answer"));
    let finished = sandbox.atomic_fed(&[], b"  a question\n").expect_code(0);
    assert_eq!(finished.stdout, "an answer\n");
    assert_eq!(server.last_request().conversation(), ["user: a question"]);
}

#[test]
fn nothing_to_say_is_an_error() {
    let sandbox = Sandbox::new();
    let finished = sandbox.atomic(&["-p"]).expect_code(1);
    assert_eq!(finished.stderr, "Error: -p needs a message: as an argument, as @FILE, or on stdin\n");
    assert_eq!(finished.stdout, "");
    let finished = sandbox.atomic(&[]).expect_code(1);
    assert!(finished.stderr.starts_with("Usage: atomic --mode rpc"), "{}", finished.stderr);
    assert_eq!(sandbox.processes(), Vec::new(), "no daemon for that");
}

#[test]
fn a_failure_is_told_on_stderr_and_stdout_stays_empty() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let running = started(&sandbox, &["-p", "go"]);
    let body =
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no such thing"}});
    server.next_request().reply(400, &body.to_string());
    let finished = running.wait().expect("it ends").expect_code(1);
    assert_eq!(finished.stdout, "");
    assert!(finished.stderr.contains("no such thing"), "{}", finished.stderr);
    // A message that cannot be run at all.
    let sandbox = Sandbox::new();
    let finished = sandbox.atomic(&["-p", "go"]).expect_code(1);
    assert!(finished.stderr.starts_with("No model selected."), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
}

#[test]
fn a_signal_aborts_the_run_and_gives_its_code() {
    for (signal, code) in [(Signal::Terminate, 143), (Signal::Hangup, 129), (Signal::Interrupt, 130)] {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let running = started(&sandbox, &["-p", "go"]);
        let mut exchange = server.next_request();
        exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
        running.signal(signal);
        exchange.wait_for_hang_up();
        let finished = running.wait().expect("it ends").expect_code(code);
        assert_eq!(finished.stdout, "", "{signal:?}");
    }
}

#[test]
fn a_reader_that_is_gone_ends_the_run_before_there_is_anything_to_write() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shell = sandbox.command("sh");
    // The reader leaves when this test lets it.
    let script = format!("\"{}\" -p go </dev/null | (read go < gate)", binaries().atomic.display());
    shell.arg("-c").arg(script);
    let gate = sandbox.project().join("gate");
    let made = sandbox.command("mkfifo").arg(&gate).status();
    assert!(made.is_ok_and(|status| status.success()));
    let running = Running::spawn(shell);
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    std::fs::write(&gate, "go\n").expect("the reader waits at the gate");
    exchange.wait_for_hang_up();
    running.wait().expect("it ends");
}

#[test]
fn a_lost_daemon_is_an_error() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let running = started(&sandbox, &["-p", "go"]);
    let _exchange = server.next_request();
    sandbox.kill_daemon();
    let finished = running.wait().expect("it ends").expect_code(1);
    assert_eq!(finished.stdout, "");
    assert!(finished.stderr.contains("the connection to atomicd was lost"), "{}", finished.stderr);
}
