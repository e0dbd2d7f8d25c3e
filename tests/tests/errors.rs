//! What goes wrong with a model, as clients see it.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Record, Sandbox, Shim, anthropic, kinds};
use serde_json::{Value, json};

/// A sandbox in which no failed request is sent again.
fn without_retry(server: &ModelServer) -> Sandbox {
    let sandbox = Sandbox::with_models(server);
    sandbox.write_settings(&json!({"retry": {"enabled": false}}));
    sandbox
}

/// The records of a run that failed: the prompt was accepted, and one message says what happened.
fn failed(shim: &mut Shim) -> Value {
    let records = shim.until_settled();
    assert!(records[0].succeeded(), "a failure after acceptance is no second answer: {}", records[0].raw);
    let ends: Vec<&Record> = records.iter().filter(|r| r.is_message("message_end", "assistant")).collect();
    assert_eq!(ends.len(), 1, "{:#?}", kinds(&records));
    let message = &ends[0]["message"];
    assert_eq!(message["stopReason"], "error", "{}", ends[0].raw);
    let order: Vec<String> = kinds(&records).into_iter().rev().take(4).rev().collect();
    assert_eq!(order, ["message_end assistant", "turn_end", "agent_end", "agent_settled"]);
    shim.assert_quiet();
    message.clone()
}

fn error_text(message: &Value) -> &str {
    message["errorMessage"].as_str().unwrap_or_else(|| panic!("no errorMessage: {message}"))
}

/// The session works after the failure, and the failed answer is not sent.
fn goes_on(server: &ModelServer, shim: &mut Shim) {
    server.prepare(anthropic::text("fine"));
    shim.rest();
    shim.prompt("next", "again");
    shim.until_settled();
    assert_eq!(server.last_request().conversation(), ["user: hi", "user: again"]);
}

#[test]
fn without_a_key_a_prompt_says_so_before_anything_starts() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let answer = shim.response("1");
    assert!(answer.error().contains("API key"), "{}", answer.raw);
    shim.rest();
    shim.assert_quiet();
    assert_eq!(shim.get("get_state")["messageCount"], 0);

    let server = ModelServer::start();
    let model = json!({"id": "locked-model", "contextWindow": 1000, "maxTokens": 100});
    sandbox.write_models(&json!({"providers": {"locked": {
        "baseUrl": server.url(), "api": "anthropic-messages", "apiKey": "$NO_SUCH_KEY", "models": [model]}}}));
    let mut shim = sandbox.shim().args(["--provider", "locked", "--model", "locked-model"]).start();
    shim.prompt("1", "hi");
    let answer = shim.response("1");
    assert!(answer.error().contains("API key") && answer.error().contains("locked"), "{}", answer.raw);
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn an_http_error_is_shown_with_status_and_body() {
    for (status, kind) in [(400, "invalid_request_error"), (401, "authentication_error"), (500, "api_error")]
    {
        let server = ModelServer::start();
        let sandbox = without_retry(&server);
        let mut shim = sandbox.rpc();
        shim.prompt("1", "hi");
        let body = json!({"type": "error", "error": {"type": kind, "message": "what the provider says"}});
        server.next_request().reply(status, &body.to_string());
        let message = failed(&mut shim);
        let text = error_text(&message);
        assert!(text.contains(&status.to_string()) && text.contains("what the provider says"), "{text}");
        assert!(text.contains(kind), "{text}");
        assert_eq!(message["content"], json!([]));
        assert_eq!(server.requests().len(), 1, "no hidden second try");
        goes_on(&server, &mut shim);
    }
}

#[test]
fn a_body_that_is_no_json_is_shown_too() {
    let server = ModelServer::start();
    let sandbox = without_retry(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    server.next_request().reply(502, "<html>Bad Gateway</html>");
    let message = failed(&mut shim);
    assert!(
        error_text(&message).contains("502") && error_text(&message).contains("Bad Gateway"),
        "{message}"
    );
}

#[test]
fn an_error_inside_the_stream_ends_the_answer_and_keeps_what_was_said() {
    let server = ModelServer::start();
    let sandbox = without_retry(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    exchange.event(&anthropic::error("overloaded_error", "Overloaded"));
    exchange.finish();
    let message = failed(&mut shim);
    assert!(error_text(&message).contains("Overloaded"), "{message}");
    assert_eq!(message["content"], json!([{"type": "text", "text": "one "}]));
    goes_on(&server, &mut shim);
}

#[test]
fn a_broken_connection_ends_the_answer_and_keeps_what_was_said() {
    let server = ModelServer::start();
    let sandbox = without_retry(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    shim.wait_for_delta("one ");
    exchange.drop_connection();
    shim.wait_for("the answer's end", |record| {
        record.is_message("message_end", "assistant")
            && record["message"]["stopReason"] == "error"
            && record["message"]["content"] == json!([{"type": "text", "text": "one "}])
            && record["message"]["errorMessage"].as_str().is_some_and(|text| !text.is_empty())
    });
    shim.until_settled();
    goes_on(&server, &mut shim);
}

#[test]
fn a_stream_that_ends_early_is_no_success() {
    let server = ModelServer::start();
    let sandbox = without_retry(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    // Properly ended by HTTP, but the protocol's last event is missing.
    exchange.begin(&anthropic::text("half"), 1);
    exchange.finish();
    let message = failed(&mut shim);
    assert!(error_text(&message).contains("message_stop"), "{message}");
}

#[test]
fn an_unknown_stop_reason_is_named() {
    let server = ModelServer::start();
    let sandbox = without_retry(&server);
    server.prepare(anthropic::Builder::default().text(&["x"]).end("cosmic_rays"));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let message = failed(&mut shim);
    assert!(error_text(&message).contains("cosmic_rays"), "{message}");
}

#[test]
fn nobody_at_the_address_is_an_error_that_names_it() {
    let server = ModelServer::start();
    let sandbox = without_retry(&server);
    drop(server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let message = failed(&mut shim);
    assert!(
        error_text(&message).contains("127.0.0.1") && error_text(&message).contains("refused"),
        "{message}"
    );
}

#[test]
fn the_stream_may_arrive_byte_by_byte_with_any_line_ends() {
    for (from, to) in [("\n", "\n"), ("\n", "\r\n"), ("\n", "\r"), ("data: ", "data:")] {
        let server = ModelServer::start();
        let sandbox = without_retry(&server);
        let mut shim = sandbox.shim().args(["--no-session"]).start();
        shim.prompt("1", "hi");
        let mut exchange = server.next_request();
        exchange.head(200);
        let answer = anthropic::text("é😀");
        exchange.send(b": a comment\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
        for event in &answer.events {
            let text = String::from_utf8(event.bytes()).expect("UTF-8").replace(from, to);
            for byte in text.as_bytes() {
                exchange.send(&[*byte]);
            }
        }
        exchange.finish();
        let records = shim.until_settled();
        let end =
            records.iter().find(|record| record.is_message("message_end", "assistant")).expect("an answer");
        assert_eq!(end["message"]["content"], json!([{"type": "text", "text": "é😀"}]), "{from:?} as {to:?}");
        assert_eq!(end["message"]["stopReason"], "stop");
    }
}

#[test]
fn a_model_that_does_not_exist_changes_nothing() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let before = shim.get("get_state");
    let answer = shim.ask(json!({"type": "set_model", "provider": "mock", "modelId": "none"}));
    assert_eq!(answer.error(), "Model not found: mock/none");
    assert_eq!(shim.get("get_state"), before);
}

#[test]
fn a_broken_models_file_is_told_and_not_fatal() {
    let sandbox = Sandbox::new();
    sandbox.write("home/.atomic/agent/models.json", "{ not json");
    let mut shim = sandbox.rpc();
    shim.get("get_state");
    let finished = shim.finish().expect_code(0);
    assert!(finished.stderr.contains("models.json"), "{}", finished.stderr);
}

#[test]
fn broken_settings_are_told_on_stderr_and_never_on_stdout() {
    let sandbox = Sandbox::new();
    sandbox.write("home/.atomic/agent/settings.json", "{\"steeringMode\": \"sideways\",\n");
    let mut shim = sandbox.shim().env("RUST_LOG", "trace").start();
    let state = shim.get("get_state");
    assert_eq!(state["steeringMode"], "one-at-a-time");
    assert_eq!(shim.records().len(), 1, "nothing before or beside the answer");
    let finished = shim.finish().expect_code(0);
    assert!(finished.stderr.contains("settings.json"), "{}", finished.stderr);
}

#[test]
fn a_system_prompt_file_that_cannot_be_read_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("project/prompt.md", b"not \xff UTF-8");
    let finished = sandbox.atomic(&["--mode", "rpc", "--system-prompt", "prompt.md"]).expect_code(1);
    assert!(finished.stderr.contains("prompt.md") && finished.stdout.is_empty(), "{}", finished.stderr);
}
