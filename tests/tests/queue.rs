//! Steering, follow-ups, and prompts that meet a run.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{Exchange, ModelServer, Record, Sandbox, Shim, anthropic, kinds, the_only};
use serde_json::{Value, json};

/// The text of a prompt that meets a run and does not say what to do.
const BUSY: &str =
    "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message.";

/// A shim whose run waits in the middle of its first answer.
fn streaming(server: &ModelServer, sandbox: &Sandbox, arguments: &[&str]) -> (Shim, Exchange) {
    let mut shim = sandbox.shim().args(arguments).start();
    shim.prompt("1", "start");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::text("first"), 3);
    shim.wait_for_delta("first");
    (shim, exchange)
}

/// Ends the first answer of [`streaming`].
fn release(mut exchange: Exchange) {
    for event in [anthropic::block_stop(0), anthropic::message_delta("end_turn"), anthropic::message_stop()] {
        exchange.event(&event);
    }
    exchange.finish();
}

fn users(conversation: &[String]) -> Vec<&str> {
    conversation.iter().filter_map(|line| line.strip_prefix("user: ")).collect()
}

#[test]
fn steering_waits_for_the_turns_tools_and_comes_before_the_next_call() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let wait = json!({"command": "echo up; until [ -e go ]; do sleep 0.01; done"});
    server.prepare(anthropic::tool_call("c1", "bash", wait));
    server.prepare(anthropic::text("turned"));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "start");
    shim.wait_for("the call's output", |record| record.shows_output("up"));
    shim.send(json!({"id": "s", "type": "steer", "message": "turn left"}));
    let queued = shim.wait_for_kind("queue_update");
    assert_eq!(queued.raw, r#"{"type":"queue_update","steering":["turn left"],"followUp":[]}"#);
    let answer = shim.wait_for_kind("response");
    assert_eq!(
        answer.raw,
        r#"{"id":"s","type":"response","command":"steer","success":true,"data":{"disposition":"queued"}}"#
    );
    assert_eq!(shim.get("get_state")["pendingMessageCount"], 1);
    shim.rest();
    sandbox.write("project/go", "");
    let records = shim.until_settled();
    let order: Vec<String> = kinds(&records)
        .into_iter()
        .filter(|kind| !kind.starts_with("tool_execution") && !kind.starts_with("text"))
        .collect();
    assert_eq!(
        order,
        [
            "message_start toolResult",
            "message_end toolResult",
            "turn_end",
            "turn_start",
            "queue_update",
            "message_start user",
            "message_end user",
            "message_start assistant",
            "message_end assistant",
            "turn_end",
            "agent_end",
            "agent_settled",
        ]
    );
    let conversation = server.last_request().conversation();
    assert_eq!(conversation, ["user: start", "assistant: [bash]", "user: [result] up\n", "user: turn left"]);
    let end = records.iter().find(|record| record.kind() == "agent_end").expect("an end");
    let roles: Vec<&Value> =
        end["messages"].as_array().expect("messages").iter().map(|m| &m["role"]).collect();
    assert_eq!(json!(roles), json!(["user", "assistant", "toolResult", "user", "assistant"]));
}

#[test]
fn a_follow_up_comes_when_nothing_else_is_left() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox, &[]);
    shim.ask(json!({"type": "follow_up", "message": "later"})).data();
    shim.ask(json!({"type": "steer", "message": "now"})).data();
    server.prepare(anthropic::text("second"));
    server.prepare(anthropic::text("third"));
    release(exchange);
    let records = shim.until_settled();
    assert_eq!(records.iter().filter(|record| record.kind() == "agent_end").count(), 1, "one run");
    let requests = server.requests();
    assert_eq!(users(&requests[1].conversation()), ["start", "now"]);
    assert_eq!(users(&requests[2].conversation()), ["start", "now", "later"]);
    assert_eq!(shim.get("get_state")["pendingMessageCount"], 0);
}

/// For each queue: its command, the command that sets its mode.
const QUEUES: [(&str, &str); 2] = [("steer", "set_steering_mode"), ("follow_up", "set_follow_up_mode")];

#[test]
fn one_at_a_time_is_the_default_and_all_takes_all() {
    for (command, set_mode) in QUEUES {
        for (mode, expected) in [(None, [1, 2]), (Some("one-at-a-time"), [1, 2]), (Some("all"), [2, 2])] {
            let server = ModelServer::start();
            let sandbox = Sandbox::with_models(&server);
            let (mut shim, exchange) = streaming(&server, &sandbox, &["--no-session"]);
            if let Some(mode) = mode {
                shim.ask(json!({"type": set_mode, "mode": mode})).data();
            }
            for message in ["a", "b"] {
                shim.ask(json!({"type": command, "message": message})).data();
            }
            server.prepare(anthropic::text("second"));
            server.prepare(anthropic::text("third"));
            release(exchange);
            shim.until_settled();
            let requests = server.requests();
            let delivered = |request: usize| {
                let conversation = requests[request.min(requests.len() - 1)].conversation();
                users(&conversation).iter().filter(|text| ["a", "b"].contains(text)).count()
            };
            assert_eq!([delivered(1), delivered(2)], expected, "{command} {mode:?}");
        }
    }
}

#[test]
fn modes_are_state_and_setting_and_are_checked() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    for (key, (_, set_mode)) in ["steeringMode", "followUpMode"].into_iter().zip(QUEUES) {
        assert_eq!(shim.get("get_state")[key], "one-at-a-time");
        let refused = shim.ask(json!({"type": set_mode, "mode": "sometimes"}));
        assert!(refused.error().starts_with(&format!("Invalid {set_mode} command: mode")), "{}", refused.raw);
        assert_eq!(shim.get("get_state")[key], "one-at-a-time");
        shim.ask(json!({"type": set_mode, "mode": "all"})).data();
        assert_eq!(shim.get("get_state")[key], "all");
        let settings = std::fs::read_to_string(sandbox.agent_dir().join("settings.json")).expect("settings");
        let settings: Value = serde_json::from_str(&settings).expect("JSON");
        assert_eq!(settings[key], "all");
    }
}

#[test]
fn clear_queue_gives_the_texts_back() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox, &[]);
    shim.ask(json!({"type": "steer", "message": "s"})).data();
    shim.ask(json!({"type": "follow_up", "message": "f"})).data();
    shim.rest();
    shim.send(json!({"id": "q", "type": "clear_queue"}));
    let update = shim.wait_for_kind("queue_update");
    assert_eq!(update.raw, r#"{"type":"queue_update","steering":[],"followUp":[]}"#);
    let answer = shim.wait_for_kind("response");
    assert_eq!(
        answer.raw,
        r#"{"id":"q","type":"response","command":"clear_queue","success":true,"data":{"steering":["s"],"followUp":["f"]}}"#
    );
    release(exchange);
    shim.until_settled();
    assert_eq!(server.requests().len(), 1, "nothing was left to deliver");

    // Also when there is nothing to clear.
    shim.send(json!({"id": "q2", "type": "clear_queue"}));
    shim.wait_for_kind("queue_update");
    let answer = shim.wait_for_kind("response");
    assert_eq!(answer.data(), &json!({"steering": [], "followUp": []}));
}

#[test]
fn a_prompt_that_meets_a_run_says_what_to_do_or_is_refused() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox, &[]);
    assert_eq!(shim.get("get_state")["isStreaming"], true);
    let refused = shim.ask(json!({"type": "prompt", "message": "me too"}));
    assert_eq!(refused.error(), BUSY);
    for (behaviour, key) in [("steer", "steering"), ("followUp", "followUp")] {
        shim.rest();
        shim.send(
            json!({"id": behaviour, "type": "prompt", "message": behaviour, "streamingBehavior": behaviour}),
        );
        assert_eq!(shim.wait_for_kind("queue_update")[key], json!([behaviour]));
        assert!(shim.wait_for_kind("response").succeeded());
    }
    server.prepare(anthropic::text("second"));
    server.prepare(anthropic::text("third"));
    release(exchange);
    shim.until_settled();
    let conversation = server.last_request().conversation();
    assert_eq!(users(&conversation), ["start", "steer", "followUp"]);
    assert_eq!(shim.get("get_state")["isStreaming"], false);
}

#[test]
fn of_two_prompts_in_one_write_the_second_is_refused() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("one"));
    let mut shim = sandbox.rpc();
    shim.send_together(&[
        json!({"id": "1", "type": "prompt", "message": "first"}),
        json!({"id": "2", "type": "prompt", "message": "second"}),
    ]);
    assert!(shim.response("1").succeeded());
    assert_eq!(shim.response("2").error(), BUSY);
    shim.until_settled();
    shim.assert_quiet();
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.last_request().conversation(), ["user: first"]);
}

#[test]
fn steer_and_clear_in_one_write_keep_their_order() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox, &[]);
    shim.send_together(&[
        json!({"id": "s", "type": "steer", "message": "x"}),
        json!({"id": "q", "type": "clear_queue"}),
    ]);
    let records = shim.until("the answer to clear_queue", |record| record["id"] == "q");
    assert_eq!(kinds(&records), ["queue_update", "response steer", "queue_update", "response clear_queue"]);
    assert_eq!(records[3].data()["steering"], json!(["x"]));
    release(exchange);
    shim.until_settled();
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn what_is_queued_while_idle_rides_with_the_next_prompt() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.ask(json!({"type": "follow_up", "message": "after"})).data();
    shim.ask(json!({"type": "steer", "message": "also"})).data();
    shim.rest();
    shim.assert_quiet();
    server.prepare(anthropic::text("one"));
    server.prepare(anthropic::text("two"));
    shim.prompt("1", "start");
    let records = shim.until_settled();
    let requests = server.requests();
    assert_eq!(users(&requests[0].conversation()), ["start", "also"]);
    assert_eq!(users(&requests[1].conversation()), ["start", "also", "after"]);
    the_only(&records, "the run's end", |record| record.kind() == "agent_end");
}

#[test]
fn steering_carries_images() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox, &[]);
    let png =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
    let image = json!({"type": "image", "data": png, "mimeType": "image/png"});
    shim.ask(json!({"type": "steer", "message": "look", "images": [image]})).data();
    server.prepare(anthropic::text("seen"));
    release(exchange);
    shim.until_settled();
    let conversation = server.last_request().conversation();
    assert_eq!(users(&conversation), ["start", "look", "[image]"]);
}

/// While the model answers, what changes queue, model or nothing at all is answered in one go.
#[test]
fn during_a_run_each_line_is_answered_and_none_waits_for_it() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox, &[]);
    shim.rest();
    shim.send_together(&[
        json!({"id": "a", "type": "get_state"}),
        json!({"id": "b", "type": "steer", "message": "by the way"}),
        json!({"id": "c", "type": "set_model", "provider": "mock", "modelId": "mock-plain"}),
        json!({"id": "d", "type": "get_messages"}),
        json!({"id": "e", "type": "clear_queue"}),
        json!({"id": "f", "type": "get_state"}),
    ]);
    let mut records = Vec::new();
    while !["a", "b", "c", "d", "e", "f"]
        .iter()
        .all(|id| records.iter().any(|record: &Record| record["id"] == *id))
    {
        records.extend(shim.until("an answer", |record| record.is_response()));
    }
    assert!(records.iter().all(|record| !record.is_response() || record.succeeded()));
    let data = |id: &str| the_only(&records, "answer", |record| record["id"] == id).data().clone();
    assert_eq!(data("e"), json!({"steering": ["by the way"], "followUp": []}));
    let state = data("f");
    assert_eq!((&state["isStreaming"], &state["pendingMessageCount"]), (&json!(true), &json!(0)));
    assert!(server.requests().len() == 1, "the answer is still out");
    release(exchange);
    shim.until_settled();
}
