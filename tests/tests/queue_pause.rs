//! Queues that are held back.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{Exchange, ModelServer, Sandbox, Shim, anthropic, kinds};
use serde_json::json;

fn streaming(server: &ModelServer, sandbox: &Sandbox) -> (Shim, Exchange) {
    let mut shim = sandbox.rpc();
    shim.prompt("1", "start");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::text("first"), 3);
    shim.wait_for_delta("first");
    (shim, exchange)
}

fn release(mut exchange: Exchange) {
    for event in [anthropic::block_stop(0), anthropic::message_delta("end_turn"), anthropic::message_stop()] {
        exchange.event(&event);
    }
    exchange.finish();
}

#[test]
fn what_is_queued_while_paused_waits_for_the_next_prompt_after() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox);
    shim.ask(json!({"type": "steer", "message": "before"})).data();
    assert_eq!(shim.ask(json!({"type": "pause_queued_messages"})).get("data"), None);
    shim.ask(json!({"type": "follow_up", "message": "after"})).data();
    // No question is asked whether a run is active: it is queued.
    let queued = shim.ask(json!({"type": "prompt", "message": "meanwhile"}));
    assert_eq!(queued.data(), &json!({"disposition": "queued"}));
    let state = shim.get("get_state");
    assert_eq!((&state["pendingMessageCount"], &state["queuedMessagesPaused"]), (&json!(3), &json!(true)));
    release(exchange);
    shim.until_settled();
    assert_eq!(server.requests().len(), 1, "nothing of it was delivered");

    // A resume starts nothing by itself.
    shim.rest();
    assert_eq!(shim.get("resume_queued_messages"), json!({"released": true}));
    assert_eq!(shim.get("resume_queued_messages"), json!({"released": false}));
    shim.rest();
    shim.assert_quiet();
    for text in ["one", "two", "three"] {
        server.prepare(anthropic::text(text));
    }
    shim.prompt("2", "now");
    shim.until_settled();
    let users: Vec<String> = server
        .last_request()
        .conversation()
        .into_iter()
        .filter_map(|line| line.strip_prefix("user: ").map(str::to_owned))
        .collect();
    assert_eq!(users, ["start", "now", "before", "meanwhile", "after"]);
    assert_eq!(shim.get("get_state").get("queuedMessagesPaused"), None);
}

#[test]
fn a_prompt_while_paused_and_idle_is_queued_as_it_is() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    sandbox.dir("home/.atomic/agent/prompts");
    sandbox.write("home/.atomic/agent/prompts/greet.md", "Say hello.");
    let mut shim = sandbox.rpc();
    shim.ask(json!({"type": "pause_queued_messages"})).data();
    shim.rest();
    let prompt = json!({"type": "prompt", "message": "/greet", "streamingBehavior": "followUp"});
    assert_eq!(shim.ask(prompt).data(), &json!({"disposition": "queued"}));
    let records = shim.rest();
    assert_eq!(kinds(&records), ["queue_update", "response prompt"]);
    assert_eq!(records[0]["followUp"], json!(["/greet"]), "not expanded");
    assert_eq!(shim.get("clear_queue"), json!({"steering": [], "followUp": ["/greet"]}));
}

#[test]
fn resumed_during_a_run_they_are_delivered_in_it() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox);
    shim.ask(json!({"type": "pause_queued_messages"})).data();
    shim.ask(json!({"type": "steer", "message": "held"})).data();
    assert_eq!(shim.get("resume_queued_messages")["released"], true);
    server.prepare(anthropic::text("second"));
    release(exchange);
    shim.until_settled();
    assert_eq!(server.last_request().conversation(), ["user: start", "assistant: first", "user: held"]);
}

#[test]
fn an_abort_while_paused_starts_no_other_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox);
    shim.ask(json!({"type": "steer", "message": "held"})).data();
    shim.ask(json!({"type": "pause_queued_messages"})).data();
    shim.ask(json!({"type": "abort"})).data();
    exchange.wait_for_hang_up();
    shim.until_settled();
    shim.wait_for_kind("response");
    shim.assert_quiet();
    assert_eq!(shim.get("get_state")["pendingMessageCount"], 1);
    assert_eq!(server.requests().len(), 1);
}
