//! The daemon dies under its clients.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Sandbox, anthropic, eventually, kinds};
use serde_json::json;

#[test]
fn an_idle_shim_attaches_again_to_the_same_session() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("one"));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "one?");
    shim.until_settled();
    let before = shim.get("get_state");
    shim.rest();
    sandbox.kill_daemon();
    assert_eq!(shim.get("get_state"), before);
    server.prepare(anthropic::text("two"));
    shim.rest();
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
    shim.send(json!({"id": "b", "type": "bash", "command": "echo up; sleep 631"}));
    shim.wait_for_kind("bash_execution_update");
    sandbox.kill_daemon();
    let records = shim.until_settled();
    let order: Vec<String> =
        kinds(&records).into_iter().filter(|kind| !kind.starts_with("response")).collect();
    assert_eq!(order, ["message_end assistant", "turn_end", "agent_end", "agent_settled"]);
    let end = records.iter().find(|record| record.kind() == "message_end").expect("the message's end");
    assert_eq!(end["message"]["stopReason"], "error");
    let answer = shim.response("b");
    assert_eq!(answer.error(), "daemon lost; outcome unknown");
    assert_eq!(answer["command"], "bash");
    assert_eq!(shim.get("get_state")["isStreaming"], false);
    eventually("no command outlives its daemon", || {
        let left =
            sandbox.processes().into_iter().filter(|process| process.command.contains("sleep 631")).count();
        (left == 0).then_some(())
    });
}

#[test]
fn without_a_file_the_shim_answers_for_it_and_leaves() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    shim.send(json!({"id": "b", "type": "bash", "command": "echo up; sleep 632"}));
    shim.wait_for_kind("bash_execution_update");
    sandbox.kill_daemon();
    let answer = shim.response("b");
    assert_eq!(answer.error(), "daemon lost; outcome unknown");
    let finished = shim.wait_for_exit().expect_code(1);
    assert!(!finished.stderr.is_empty(), "a person is told why");
}
