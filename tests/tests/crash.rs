//! The daemon dies under its clients.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Sandbox, anthropic, eventually};
use serde_json::json;

#[test]
fn what_was_not_answered_is_answered_by_the_shim_which_leaves() {
    for arguments in [&[][..], &["--no-session"]] {
        let sandbox = Sandbox::new();
        let mut shim = sandbox.shim().args(arguments).start();
        shim.send(json!({"id": {"n": 1}, "type": "bash", "command": "echo up; sleep 631"}));
        shim.wait_for_kind("bash_execution_update");
        sandbox.kill_daemon();
        let answer = shim.response(json!({"n": 1}));
        assert_eq!(
            answer.raw,
            r#"{"id":{"n":1},"type":"response","command":"bash","success":false,"error":"daemon lost; outcome unknown"}"#
        );
        let finished = shim.wait_for_exit().expect_code(1);
        assert!(finished.stderr.starts_with("Error: "), "a person is told why: {}", finished.stderr);
        eventually("no command outlives its daemon", || {
            let mut left = sandbox.processes().into_iter();
            (!left.any(|process| process.command.contains("sleep 631"))).then_some(())
        });
    }
}

#[test]
fn an_idle_shim_leaves_too_and_the_next_goes_on() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("one"));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "one?");
    shim.until_settled();
    let before = shim.get("get_state");
    let file = shim.session_file();
    shim.rest();
    sandbox.kill_daemon();
    shim.wait_for_exit().expect_code(1);
    assert_eq!(shim.rest().len(), 0, "every line was answered");
    let mut next = sandbox.shim().args(["--session", file.arg()]).start();
    assert_eq!(next.get("get_state"), before);
}

#[test]
fn half_an_answer_is_lost_and_the_question_is_not() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    shim.wait_for_delta("one ");
    let file = shim.session_file();
    sandbox.kill_daemon();
    shim.wait_for_exit().expect_code(1);
    let mut next = sandbox.shim().args(["--session", file.arg()]).start();
    let state = next.get("get_state");
    assert_eq!((&state["messageCount"], &state["isStreaming"]), (&json!(1), &json!(false)));
    server.prepare(anthropic::text("here"));
    next.prompt("2", "still there?");
    next.until_settled();
    assert_eq!(server.last_request().conversation(), ["user: hi", "user: still there?"]);
}
