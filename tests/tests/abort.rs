//! Abort at every point of a run.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{
    ModelServer, Record, Sandbox, Shim, anthropic, eventually, golden, kinds, normalised, the_only,
};
use serde_json::{Value, json};

fn is_response(id: &'static str) -> impl Fn(&Record) -> bool {
    move |record| record.is_response() && record["id"] == id
}

/// Sends `abort` with id `a`; gives the records from the cursor to its answer.
fn abort(shim: &mut Shim) -> Vec<Record> {
    shim.send(json!({"id": "a", "type": "abort"}));
    shim.until("the answer to abort", is_response("a"))
}

fn last_answer(records: &[Record]) -> Value {
    let end = records.iter().rfind(|record| record.is_message("message_end", "assistant"));
    end.expect("an assistant message")["message"].clone()
}

#[test]
fn before_the_first_byte() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let exchange = server.next_request();
    let records = abort(&mut shim);
    assert_eq!(
        kinds(&records),
        [
            "response prompt",
            "agent_start",
            "turn_start",
            "message_start user",
            "message_end user",
            "message_start assistant",
            "message_end assistant",
            "turn_end",
            "agent_end",
            "agent_settled",
            "response abort",
        ]
    );
    let answer = last_answer(&records);
    assert_eq!(answer["content"], json!([]));
    assert_eq!(answer["stopReason"], "aborted");
    assert_eq!(answer["errorMessage"], "Request aborted");
    exchange.wait_for_hang_up();
    shim.assert_quiet();
}

#[test]
fn between_chunk_two_and_three() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    let answer = anthropic::texts(&["one ", "two ", "three"]);
    // All but the third delta, the block's end, the message's end and its stop.
    exchange.begin(&answer, 4);
    shim.wait_for_delta("two ");
    let records = abort(&mut shim);
    assert_eq!(
        kinds(&records),
        ["message_end assistant", "turn_end", "agent_end", "agent_settled", "response abort"]
    );
    let answer = last_answer(&records);
    assert_eq!(answer["content"], json!([{"type": "text", "text": "one two "}]), "what was said is kept");
    assert_eq!(answer["stopReason"], "aborted");
    assert_eq!(answer["errorMessage"], "Request was aborted");
    assert_eq!(records[1]["message"], answer);
    exchange.wait_for_hang_up();
    shim.assert_quiet();

    // The file says the same, and the next request leaves the aborted answer out.
    let messages = shim.session_file().messages();
    assert_eq!(messages.last(), Some(&answer));
    server.prepare(anthropic::text("hello"));
    shim.prompt("2", "again");
    shim.until_settled();
    assert_eq!(server.last_request().conversation(), ["user: hi", "user: again"]);
}

#[test]
fn in_the_middle_of_a_tool_calls_arguments() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.head(200);
    exchange.event(&anthropic::message_start());
    exchange.event(&anthropic::block_start(
        0,
        json!({"type": "tool_use", "id": "c1", "name": "bash", "input": {}}),
    ));
    let part = json!({"type": "input_json_delta", "partial_json": "{\"command\":\"touch r"});
    exchange.event(&anthropic::block_delta(0, part));
    shim.wait_for("the call's delta", |record| record.delta_kind() == "toolcall_delta");
    let records = abort(&mut shim);
    assert_eq!(last_answer(&records)["stopReason"], "aborted");
    assert!(!kinds(&records).iter().any(|kind| kind.starts_with("tool_execution")), "{:#?}", kinds(&records));
    server.prepare(anthropic::text("hello"));
    shim.prompt("2", "again");
    shim.until_settled();
    assert_eq!(server.last_request().conversation(), ["user: hi", "user: again"]);
}

#[test]
fn while_tools_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::tool_calls(&[
        ("c1", "bash", json!({"command": "echo started; sleep 601"})),
        ("c2", "bash", json!({"command": "sleep 602"})),
    ]));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    shim.wait_for("the first call's output", |record| record.shows_output("started"));
    let records = abort(&mut shim);
    for id in ["c1", "c2"] {
        let end = the_only(&records, "the call's end", |record| {
            record.kind() == "tool_execution_end" && record["toolCallId"] == id
        });
        assert_eq!(end["isError"], true, "{}", end.raw);
        assert!(end.raw.contains("Command aborted"), "{}", end.raw);
    }
    let order: Vec<String> =
        kinds(&records).into_iter().filter(|kind| !kind.starts_with("tool_execution")).collect();
    assert_eq!(
        order,
        [
            "message_start toolResult",
            "message_end toolResult",
            "message_start toolResult",
            "message_end toolResult",
            "turn_end",
            // One more turn, in which the model is not called: the loop notices the abort there.
            "turn_start",
            "message_start assistant",
            "message_end assistant",
            "turn_end",
            "agent_end",
            "agent_settled",
            "response abort",
        ]
    );
    let answer = last_answer(&records);
    assert_eq!((&answer["stopReason"], &answer["content"]), (&json!("aborted"), &json!([])));
    assert_eq!(answer["errorMessage"], "Request aborted");
    let left = sandbox.processes().into_iter().filter(|process| process.command.contains("sleep 60")).count();
    assert_eq!(left, 0, "the commands' processes are gone when abort is answered");

    // Every call is answered, so the session can go on.
    server.prepare(anthropic::text("hello"));
    shim.prompt("2", "again");
    shim.until_settled();
    let conversation = server.last_request().conversation();
    assert_eq!(conversation.len(), 6, "{conversation:#?}");
    assert_eq!(conversation[..3], ["user: hi", "assistant: [bash]", "assistant: [bash]"]);
    assert!(conversation[3].starts_with("user: [result] started"), "{conversation:#?}");
    assert_eq!(conversation[5], "user: again");
}

#[test]
fn with_queued_messages_the_run_after_it_takes_them() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    shim.wait_for_delta("one ");
    shim.ask(json!({"type": "follow_up", "message": "next"})).data();
    shim.wait_for_kind("response");
    server.prepare(anthropic::text("done"));
    let records = abort(&mut shim);
    assert_eq!(kinds(&records), ["message_end assistant", "turn_end", "agent_end", "response abort"]);
    let after = shim.until_settled();
    assert_eq!(
        kinds(&after),
        [
            "agent_start",
            "turn_start",
            "queue_update",
            "message_start user",
            "message_end user",
            "message_start assistant",
            "text_start",
            "text_delta",
            "text_end",
            "message_end assistant",
            "turn_end",
            "agent_end",
            "agent_settled",
        ]
    );
    assert_eq!(after[3]["message"]["content"], json!([{"type": "text", "text": "next"}]));
    assert_eq!(server.last_request().conversation(), ["user: hi", "user: next"]);
    shim.assert_quiet();
}

#[test]
fn a_steering_message_queued_before_an_abort_of_tools_is_not_eaten() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::tool_call("c1", "bash", json!({"command": "echo started; sleep 603"})));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    shim.wait_for("the call's output", |record| record.shows_output("started"));
    shim.ask(json!({"type": "steer", "message": "left"})).data();
    server.prepare(anthropic::text("going left"));
    abort(&mut shim);
    let after = shim.until_settled();
    let user = the_only(&after, "the queued message", |record| record.is_message("message_start", "user"));
    assert_eq!(user["message"]["content"][0]["text"], "left");
    assert_eq!(last_answer(&after)["content"][0]["text"], "going left");
}

#[test]
fn while_idle_it_succeeds_and_starts_nothing() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let records = abort(&mut shim);
    assert_eq!(kinds(&records), ["response abort"]);
    assert!(records[0].succeeded());
    assert_eq!(records[0].raw, r#"{"id":"a","type":"response","command":"abort","success":true}"#);
    shim.assert_quiet();
}

#[test]
fn twice_is_answered_twice() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let _exchange = server.next_request();
    shim.send_together(&[json!({"id": "a", "type": "abort"}), json!({"id": "b", "type": "abort"})]);
    assert!(shim.response("a").succeeded());
    assert!(shim.response("b").succeeded());
    let records = shim.records();
    assert_eq!(records.iter().filter(|record| record.kind() == "agent_end").count(), 1);
    assert_eq!(records.iter().filter(|record| record.kind() == "agent_settled").count(), 1);
}

#[test]
fn the_escape_sequence_is_exactly_this() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one", "two"]), 4);
    shim.wait_for_delta("one");
    shim.send(json!({"id": "s", "type": "steer", "message": "x"}));
    let mut records = shim.until("the answer to steer", is_response("s"));
    shim.send(json!({"id": "q", "type": "clear_queue"}));
    records.extend(shim.until("the answer to clear_queue", is_response("q")));
    records.extend(abort(&mut shim));
    let message = r#"{"role":"assistant","content":[{"type":"text","text":"one"}],"api":"anthropic-messages","provider":"mock","model":"mock-model","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"aborted","timestamp":"T","responseId":"msg_1","errorMessage":"Request was aborted"}"#;
    let expected = golden(
        r#"
        {"type":"queue_update","steering":["x"],"followUp":[]}
        {"id":"s","type":"response","command":"steer","success":true,"data":{"disposition":"queued"}}
        {"type":"queue_update","steering":[],"followUp":[]}
        {"id":"q","type":"response","command":"clear_queue","success":true,"data":{"steering":["x"],"followUp":[]}}
        {"type":"message_end","message":$MESSAGE}
        {"type":"turn_end","message":$MESSAGE,"toolResults":[]}
        {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"hi"}],"timestamp":"T"},$MESSAGE],"willRetry":false}
        {"type":"agent_settled","aborted":true}
        {"id":"a","type":"response","command":"abort","success":true}"#,
        &[("$MESSAGE", message)],
    );
    assert_eq!(records.iter().map(|record| normalised(record)).collect::<Vec<_>>(), expected);
}

#[test]
fn a_command_the_client_runs_goes_on() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let _exchange = server.next_request();
    shim.send(
        json!({"id": "b", "type": "bash", "command": "echo on; until [ -e go ]; do sleep 0.01; done; echo off"}),
    );
    shim.wait_for_kind("bash_execution_update");
    abort(&mut shim);
    sandbox.write("project/go", "");
    let answer = shim.response("b");
    assert_eq!(answer.data()["output"], "on\noff\n");
    eventually("the result is in the file", || {
        let messages = shim.session_file().messages();
        messages.iter().any(|message| message["role"] == "bashExecution").then_some(())
    });
}

#[test]
fn when_only_a_command_of_the_client_runs_it_is_left_to_abort_bash() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.send(json!({"id": "b", "type": "bash", "command": "echo on; sleep 633"}));
    shim.wait_for_kind("bash_execution_update");
    shim.rest();
    assert_eq!(kinds(&abort(&mut shim)), ["response abort"], "there is no run, and none is told of");
    shim.send(json!({"id": "e", "type": "abort_bash", "requestId": "b"}));
    let answer = shim.response("b");
    assert_eq!((&answer.data()["cancelled"], &answer.data()["output"]), (&json!(true), &json!("on\n")));
    eventually("the command is gone", || {
        let mut left = sandbox.processes().into_iter();
        (!left.any(|process| process.command.contains("sleep 633"))).then_some(())
    });
}
