//! The daemon dies under its clients: each line is answered once, nothing is executed twice, a session with a file goes
//! on in the next daemon.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Sandbox, anthropic, eventually, kinds};
use serde_json::json;

const UNKNOWN: &str = r#"{"id":{"n":1},"type":"response","command":"bash","success":false,"error":"daemon lost; outcome unknown"}"#;

#[test]
fn what_was_not_answered_is_answered_and_the_session_goes_on() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    let before = shim.get("get_state");
    shim.send(json!({"id": {"n": 1}, "type": "bash", "command": "echo run >> runs; echo up; sleep 631"}));
    shim.wait_for_kind("bash_execution_update");
    sandbox.kill_daemon();
    assert_eq!(shim.response(json!({"n": 1})).raw, UNKNOWN);
    let after = shim.get("get_state");
    assert_eq!(after["sessionFile"], before["sessionFile"], "attached to the same file");
    let runs = std::fs::read_to_string(sandbox.project().join("runs")).expect("it ran");
    assert_eq!(runs, "run\n", "and was not run again");
    eventually("no command outlives its daemon", || {
        let mut left = sandbox.processes().into_iter();
        (!left.any(|process| process.command.contains("sleep 631"))).then_some(())
    });
    let finished = shim.finish().expect_code(0);
    assert!(finished.stderr.starts_with("Note: atomicd was lost"), "a person is told: {}", finished.stderr);
}

#[test]
fn without_a_file_there_is_nothing_to_go_on_with() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    shim.send(json!({"id": {"n": 1}, "type": "bash", "command": "echo up; sleep 632"}));
    shim.wait_for_kind("bash_execution_update");
    sandbox.kill_daemon();
    assert_eq!(shim.response(json!({"n": 1})).raw, UNKNOWN);
    let finished = shim.wait_for_exit().expect_code(1);
    assert!(finished.stderr.starts_with("Error: "), "a person is told why: {}", finished.stderr);
}

#[test]
fn an_idle_shim_attaches_again_to_the_same_session() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("one"));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "one?");
    shim.until_settled();
    let before = shim.get("get_state");
    sandbox.kill_daemon();
    assert_eq!(shim.get("get_state"), before);
    server.prepare(anthropic::text("two"));
    shim.prompt("2", "two?");
    shim.until_settled();
    assert_eq!(server.last_request().conversation(), ["user: one?", "assistant: one", "user: two?"]);
}

#[test]
fn an_open_run_is_closed_for_the_client() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    shim.wait_for_delta("one ");
    sandbox.kill_daemon();
    let records = shim.until_settled();
    let order = kinds(&records);
    assert_eq!(order, ["message_end assistant", "turn_end", "agent_end", "agent_settled"]);
    assert_eq!(records[0]["message"]["stopReason"], "error", "{}", records[0].raw);
    let state = shim.get("get_state");
    assert_eq!((&state["messageCount"], &state["isStreaming"]), (&json!(1), &json!(false)));
    server.prepare(anthropic::text("here"));
    shim.prompt("2", "still there?");
    shim.until_settled();
    assert_eq!(server.last_request().conversation(), ["user: hi", "user: still there?"]);
}

#[test]
fn after_new_session_the_new_one_is_attached_again() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.ask(json!({"type": "new_session"}));
    shim.ask(json!({"type": "set_session_name", "name": "the new one"}));
    let before = shim.get("get_state");
    sandbox.kill_daemon();
    assert_eq!(shim.get("get_state"), before);
}
