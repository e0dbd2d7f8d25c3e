//! Queues that are held back, `user_bash`, what `compact` and automatic compaction answer, shortcuts, and the page.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{Exchange, ModelServer, Sandbox, Shim, anthropic, kinds};
use serde_json::{Value, json};

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

#[test]
fn a_users_command_is_run_streamed_and_recorded_like_any() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.send(json!({"id": "u", "type": "user_bash", "command": "echo out; exit 2"}));
    let records = shim.until("the answer", |record| record["id"] == "u" && record.is_response());
    assert_eq!(kinds(&records), ["bash_execution_update", "response user_bash"]);
    assert_eq!(
        records[1].data(),
        &json!({"output": "out\n", "exitCode": 2, "cancelled": false, "truncated": false})
    );
    shim.send(
        json!({"id": "v", "type": "user_bash", "command": "echo up; sleep 600", "excludeFromContext": true}),
    );
    shim.wait_for("its output", |record| record["id"] == "v");
    let twice = json!({"id": "v", "type": "bash", "command": "true"});
    shim.send(twice);
    assert_eq!(shim.response("v").error(), "Bash request id already active: v");
    shim.ask(json!({"type": "abort_bash", "requestId": "v"})).data();
    assert_eq!(shim.response("v").data()["cancelled"], true);
    server.prepare(anthropic::text("seen"));
    shim.prompt("1", "look");
    shim.until_settled();
    let conversation = server.last_request().conversation();
    assert!(conversation[0].contains("out") && conversation.len() == 2, "{conversation:?}");
}

#[test]
fn a_short_conversation_is_not_compacted() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    for command in [json!({"type": "compact"}), json!({"type": "compact", "customInstructions": "keep x"})] {
        assert_eq!(shim.ask(command).error(), "Nothing to compact (session too small)");
    }
    for _ in 0..2 {
        assert_eq!(
            shim.ask(json!({"type": "abort_compaction"})).get("data"),
            None,
            "late and repeated ones are harmless"
        );
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn automatic_compaction_is_state_and_setting() {
    let sandbox = Sandbox::new();
    sandbox.write_settings(&json!({"compaction": {"reserveTokens": 5}}));
    let mut shim = sandbox.rpc();
    assert_eq!(shim.get("get_state")["autoCompactionEnabled"], true);
    for enabled in [false, true, false] {
        shim.ask(json!({"type": "set_auto_compaction", "enabled": enabled})).data();
        assert_eq!(shim.get("get_state")["autoCompactionEnabled"], enabled);
        let text = std::fs::read(sandbox.agent_dir().join("settings.json")).expect("settings");
        let settings: Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(settings, json!({"compaction": {"reserveTokens": 5, "enabled": enabled}}));
    }
    let mut other = sandbox.rpc();
    assert_eq!(other.get("get_state")["autoCompactionEnabled"], false);
}

#[test]
fn without_extensions_there_are_no_shortcuts() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    assert_eq!(shim.get("get_shortcuts"), json!({"shortcuts": []}));
    let answer = shim.ask(json!({"type": "invoke_shortcut", "key": "ctrl+k"}));
    assert_eq!(answer.error(), "Shortcut not found: ctrl+k");
}

#[test]
fn a_session_is_written_as_a_page() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let export = |shim: &mut Shim, fields: Value| {
        let mut command = json!({"type": "export_html"});
        command.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        shim.ask(command)
    };
    assert_eq!(export(&mut shim, json!({})).error(), "Nothing to export yet - start a conversation first");
    server.prepare(anthropic::text("A fine text."));
    shim.prompt("1", "Write one.");
    shim.until_settled();
    let stem = shim.session_file().path().file_stem().expect("a name").to_string_lossy().into_owned();
    let by_default = sandbox.project().join(format!("atomic-session-{stem}.html"));
    let named = sandbox.project().join("page.html");
    let absolute = sandbox.dir("pages").join("p.html");
    for (fields, expected) in [
        (json!({}), by_default),
        (json!({"outputPath": "page.html"}), named),
        (json!({"outputPath": absolute}), absolute),
    ] {
        let answer = export(&mut shim, fields);
        assert_eq!(answer.data(), &json!({"path": expected}));
        let page = std::fs::read_to_string(&expected).expect("the page");
        assert!(page.contains("A fine text.") && page.contains("</html>"));
    }
    let refused = export(&mut shim, json!({"outputPath": "page.html/p.html"}));
    assert!(refused.error().contains("page.html/p.html"), "{}", refused.raw);

    let mut memory = sandbox.shim().args(["--no-session"]).start();
    server.prepare(anthropic::text("Hello."));
    memory.prompt("1", "hi");
    memory.until_settled();
    assert_eq!(export(&mut memory, json!({})).error(), "Cannot export in-memory session to HTML");
}
