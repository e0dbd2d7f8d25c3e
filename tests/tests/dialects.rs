//! `--rpc-compat` and `--ascii-separators`: what other clients read instead.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Record, Sandbox, anthropic, kinds};
use serde_json::{Value, json};

fn updates(records: &[Record]) -> Vec<&Record> {
    records.iter().filter(|record| record.kind() == "message_update").collect()
}

#[test]
fn legacy_updates_carry_the_message_so_far() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let call = json!({"command": "true"});
    server.prepare(
        anthropic::Builder::default().text(&["Hel", "lo"]).tool_call("c1", "bash", &call).end("tool_use"),
    );
    server.prepare(anthropic::text("done"));
    let mut legacy = sandbox.shim().args(["--rpc-compat", "legacy"]).start();
    legacy.prompt("1", "go");
    let records = legacy.until("the end of the run", |record| record.kind() == "agent_end");
    assert!(!kinds(&records).contains(&"agent_settled".to_owned()), "{:?}", kinds(&records));
    let start =
        records.iter().find(|record| record.is_message("message_start", "assistant")).expect("an answer");
    assert_eq!((&start["message"]["stopReason"], &start["message"]["content"]), (&json!("stop"), &json!([])));
    let mut text = String::new();
    for update in updates(&records) {
        assert!(update["usage"].is_null(), "{}", update.raw);
        assert_eq!(update["assistantMessageEvent"]["partial"], update["message"], "{}", update.raw);
        if update.delta_kind() == "text_delta" {
            text.push_str(update["assistantMessageEvent"]["delta"].as_str().expect("a text"));
            let shown = &update["message"]["content"][0]["text"];
            assert!(*shown == text.as_str() || *shown == "done" || *shown == "Hello", "{shown} {text}");
        }
    }
    let ends: Vec<&Value> = updates(&records)
        .iter()
        .filter(|update| update.delta_kind() == "toolcall_end")
        .map(|update| &update["message"]["content"][1]["arguments"])
        .collect();
    assert_eq!(ends, [&call]);
}

#[test]
fn each_client_of_a_session_hears_its_own_dialect() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut atomic = sandbox.rpc();
    let file = atomic.get("get_state")["sessionFile"].as_str().expect("a file").to_owned();
    let mut pi = sandbox.shim().args(["--session", &file, "--rpc-compat", "pi"]).start();
    let variable = sandbox.shim().args(["--session", &file]).env("ATOMIC_RPC_COMPAT", "legacy");
    let mut legacy = variable.start();
    assert_eq!(legacy.get("get_state")["sessionFile"], file);
    pi.get("get_state");
    atomic.prompt("1", "go");
    let mut exchange = server.next_request();
    let answer = anthropic::texts(&["one ", "two"]);
    exchange.begin(&answer, 4);
    legacy.wait_for_delta("one ");
    // Who joins in the middle of a message is shown it, and goes on from there.
    let mut late = sandbox.shim().args(["--session", &file, "--rpc-compat", "legacy"]).start();
    late.wait_for("the answer so far", |record| record.is_message("message_start", "assistant"));
    for event in [
        anthropic::text_delta(0, "two"),
        anthropic::block_stop(0),
        anthropic::message_delta("end_turn"),
        anthropic::message_stop(),
    ] {
        exchange.event(&event);
    }
    exchange.finish();
    let plain = atomic.until_settled();
    assert!(updates(&plain).iter().all(|update| update["message"].is_null() && update["usage"].is_object()));
    let settled = plain.last().expect("records");
    assert_eq!(settled.raw, r#"{"type":"agent_settled","aborted":false}"#);
    let pi_settled = pi.until_settled();
    assert_eq!(pi_settled.last().expect("records").raw, settled.raw);
    for client in [&mut legacy, &mut late] {
        let records = client.until("the end", |record| record.kind() == "agent_end");
        let last = updates(&records).last().map(|update| update["message"]["content"][0]["text"].clone());
        assert_eq!(last, Some(json!("one two")));
    }
}

#[test]
fn pi_hears_no_channel_and_its_abort_leaves_the_queue() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut pi = sandbox.shim().args(["--rpc-compat", "pi"]).start();
    pi.send(json!({"id": "b", "type": "bash", "command": "echo out"}));
    let update = pi.wait_for_kind("bash_execution_update");
    assert_eq!(update.raw, r#"{"type":"bash_execution_update","id":"b","delta":"out\n"}"#);
    pi.response("b");
    pi.prompt("1", "go");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::text("first"), 3);
    pi.wait_for_delta("first");
    pi.ask(json!({"id": "s", "type": "steer", "message": "later"}));
    pi.send(json!({"id": "a", "type": "abort"}));
    let records = pi.until("the answer", |record| record.is_response() && record["id"] == "a");
    let order = kinds(&records);
    assert_eq!(order[order.len() - 3..], ["agent_end", "agent_settled", "response abort"], "{order:?}");
    assert_eq!(records[records.len() - 2].raw, r#"{"type":"agent_settled","aborted":true}"#);
    assert_eq!(pi.get("get_state")["pendingMessageCount"], 1);
    exchange.wait_for_hang_up();
    pi.rest();
    pi.assert_quiet();
}

#[test]
fn separators_are_escaped_for_who_asks_and_raw_for_the_others() {
    let sandbox = Sandbox::new();
    let mut escaped = sandbox.shim().args(["--no-session", "--ascii-separators"]).start();
    let mut raw = sandbox.shim().args(["--no-session"]).start();
    let name = json!({"id": "n\u{2028}", "type": "set_session_name", "name": "a\u{2028}b\u{2029}c"});
    escaped.send(name.clone());
    let answer = escaped.wait_for_kind("response");
    assert_eq!(
        answer.raw,
        r#"{"id":"n\u2028","type":"response","command":"set_session_name","success":true}"#
    );
    let state = escaped.ask(json!({"id": "g", "type": "get_state"}));
    assert!(state.raw.contains(r#""sessionName":"a\u2028b\u2029c""#), "{}", state.raw);
    raw.send(name);
    let state = raw.ask(json!({"id": "g", "type": "get_state"}));
    assert!(state.raw.contains("\"sessionName\":\"a\u{2028}b\u{2029}c\""), "{}", state.raw);
}

#[test]
fn an_unknown_dialect_is_refused_by_name() {
    let sandbox = Sandbox::new();
    for (argument, variable) in [(Some("klingon"), ""), (None, "klingon")] {
        let launch = sandbox.shim().env("ATOMIC_RPC_COMPAT", variable);
        let mut shim = match argument {
            Some(word) => launch.args(["--rpc-compat", word]).start(),
            None => launch.start(),
        };
        let finished = shim.wait_for_exit().expect_code(1);
        assert!(finished.stderr.contains("klingon"), "{}", finished.stderr);
        assert!(finished.stderr.contains("legacy"), "{}", finished.stderr);
        assert!(finished.stdout.is_empty());
    }
}
