//! Ways to lose or double something, one test each (the table of them is in PROTOCOL.md; most have their test where their
//! subject is).
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Sandbox, anthropic, eventually, kinds, the_only};
use serde_json::{Value, json};

/// Two queued messages may say the same: each is taken from its own queue, once.
#[test]
fn equal_texts_in_both_queues_are_two_messages() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "start");
    let exchange = server.next_request();
    for kind in ["follow_up", "steer", "follow_up"] {
        shim.ask(json!({"type": kind, "message": "same"})).data();
    }
    shim.rest();
    for text in ["two", "three", "four"] {
        server.prepare(anthropic::text(text));
    }
    exchange.answer(&anthropic::text("one"));
    let records = shim.until_settled();
    let queues: Vec<Value> = records
        .iter()
        .filter(|record| record.kind() == "queue_update")
        .map(|record| json!([record["steering"], record["followUp"]]))
        .collect();
    let same = || json!(["same"]);
    assert_eq!(
        queues,
        [json!([[], ["same", "same"]]), json!([[], same()]), json!([[], []])],
        "steering first, then each follow-up"
    );
    let conversation = server.last_request().conversation();
    assert_eq!(conversation.iter().filter(|line| *line == "user: same").count(), 3, "{conversation:?}");
    assert_eq!(shim.get("get_state")["pendingMessageCount"], 0);
}

/// A provider that gives each answer's first call the same id does not spoil the session.
#[test]
fn a_call_id_that_comes_again_is_another_call() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    for round in ["one", "two"] {
        let command = format!("echo {round}");
        server.prepare(anthropic::tool_call("call_0", "bash", json!({"command": command})));
        server.prepare(anthropic::text("done"));
        shim.ask(json!({"type": "prompt", "message": round})).data();
        let records = shim.until_settled();
        let end = the_only(&records, "the call's end", |record| record.kind() == "tool_execution_end");
        assert_eq!(end["isError"], false, "{}", end.raw);
    }
    let request = server.last_request();
    let ids = |kind: &str, key: &str| -> Vec<Value> {
        let messages = request.body["messages"].as_array().into_iter().flatten();
        let blocks = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
        blocks.filter(|block| block["type"] == kind).map(|block| block[key].clone()).collect()
    };
    let (calls, results) = (ids("tool_use", "id"), ids("tool_result", "tool_use_id"));
    assert_eq!(calls, results, "each call has its result");
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0], calls[1]);
    assert_eq!(shim.get("get_last_assistant_text")["text"], "done");
}

/// What the shell said by its exit code is told to the client and to the model.
#[test]
fn a_command_that_fails_is_an_error_everywhere() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    server.prepare(anthropic::tool_call("c1", "bash", json!({"command": "echo so far; exit 7"})));
    server.prepare(anthropic::text("I see."));
    shim.prompt("1", "run it");
    let records = shim.until_settled();
    let end = the_only(&records, "the call's end", |record| record.kind() == "tool_execution_end");
    assert_eq!(end["isError"], true, "{}", end.raw);
    let message = the_only(&records, "the result", |record| record.is_message("message_end", "toolResult"));
    assert_eq!(message["message"]["isError"], true, "{}", message.raw);
    let text = message["message"]["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains("so far") && text.contains("Command exited with code 7"), "{text}");
    let last = server.last_request();
    let blocks = last.body["messages"].as_array().expect("messages").last().expect("one")["content"].clone();
    assert_eq!(blocks[0]["is_error"], true, "{blocks}");
}

/// A model is asked when a client asks, and never behind its back: summaries of sessions are nobody's wish.
#[test]
fn no_model_is_asked_unasked() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    for round in 1..=3 {
        server.prepare(anthropic::text("hello"));
        shim.ask(json!({"type": "prompt", "message": "hi"})).data();
        shim.until_settled();
        for command in ["get_session_stats", "get_tree", "get_commands", "refresh_models", "reload"] {
            shim.get(command);
        }
        assert_eq!(server.requests().len(), round);
    }
    shim.ask(json!({"type": "clone"})).data();
    shim.ask(json!({"type": "new_session"})).data();
    shim.finish().expect_code(0);
    assert_eq!(server.requests().len(), 3);
}

/// `reload` and a model that is chosen again change no model, so nobody is told of a change.
#[test]
fn the_same_model_is_no_change() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let model = shim.get("get_state")["model"].clone();
    shim.rest();
    shim.ask(json!({"type": "reload"})).data();
    shim.ask(json!({"type": "refresh_models"})).data();
    let set = json!({"type": "set_model", "provider": model["provider"], "modelId": model["id"]});
    assert_eq!(shim.ask(set).data(), &model);
    shim.ask(json!({"type": "logout_provider", "provider": model["provider"]})).data();
    let answers =
        ["response reload", "response refresh_models", "response set_model", "response logout_provider"];
    assert_eq!(kinds(&shim.rest()), answers);
}

/// A command of the client that is still running when it goes to another session stays that client's, under its id.
#[test]
fn a_command_begun_before_a_replacement_can_be_cancelled_after_it() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    server.prepare(anthropic::text("hello"));
    shim.prompt("1", "hi");
    shim.until_settled();
    shim.send(json!({"id": "b", "type": "bash", "command": "echo up; sleep 600"}));
    shim.wait_for_kind("bash_execution_update");
    shim.ask(json!({"type": "clone"})).data();
    let twice = json!({"id": "b", "type": "bash", "command": "true"});
    shim.send(twice);
    assert_eq!(shim.response("b").error(), "Bash request id already active: b");
    shim.ask(json!({"type": "abort_bash", "requestId": "b"})).data();
    let answer = shim.response("b");
    assert_eq!((&answer.data()["output"], &answer.data()["cancelled"]), (&json!("up\n"), &json!(true)));
    assert_eq!(shim.get("get_state")["messageCount"], 2, "recorded where it began, not in the clone");
}

/// What a client was told is in the file although it went away in the middle of the very first run.
#[test]
fn a_first_turn_that_is_cut_off_is_in_the_file() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.shim().args(["--on-disconnect", "abort"]).start();
    shim.prompt("1", "remember me");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::text("I was say"), 3);
    shim.wait_for_delta("I was say");
    let file = shim.session_file();
    shim.finish().expect_code(0);
    let messages = eventually("both messages are in the file", || {
        let messages = file.messages();
        (messages.len() == 2).then_some(messages)
    });
    assert_eq!(messages[0]["content"][0]["text"], "remember me");
    assert_eq!(
        (&messages[1]["stopReason"], &messages[1]["content"][0]["text"]),
        (&json!("aborted"), &json!("I was say"))
    );
    drop(exchange);
}
