//! A provider that fails in passing is asked again, visibly, and only then.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Sandbox, Shim, anthropic, kinds};
use serde_json::{Value, json};

/// A sandbox whose retries come at once.
fn impatient(server: &ModelServer, retries: u32) -> Sandbox {
    let sandbox = Sandbox::with_models(server);
    sandbox.write_settings(&json!({"retry": {"baseDelayMs": 1, "maxRetries": retries}}));
    sandbox
}

/// A sandbox in which nobody lives to see the first retry.
fn patient(server: &ModelServer) -> Sandbox {
    let sandbox = Sandbox::with_models(server);
    sandbox.write_settings(&json!({"retry": {"baseDelayMs": 50_000}}));
    sandbox
}

const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;

#[test]
fn an_overloaded_provider_is_asked_again_without_a_second_user_message() {
    let server = ModelServer::start();
    let sandbox = impatient(&server, 3);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    server.next_request().reply(529, OVERLOADED);
    let again = server.next_request();
    assert_eq!(again.request.conversation().len(), 1, "the failed answer is not sent");
    again.answer(&anthropic::text("there"));
    let records = shim.until_settled();
    let order = kinds(&records);
    let start = order.iter().position(|kind| kind == "auto_retry_start").expect("auto_retry_start");
    assert_eq!(order[start - 1], "agent_end");
    assert_eq!(order[start + 1..start + 4], ["agent_start", "turn_start", "message_start assistant"]);
    let start = &records[start];
    assert_eq!(
        (&start["attempt"], &start["maxAttempts"], &start["delayMs"]),
        (&json!(1), &json!(3), &json!(1))
    );
    assert!(
        start["errorMessage"]
            .as_str()
            .is_some_and(|text| text.contains("529") && text.contains("Overloaded"))
    );
    assert_eq!(order[order.len() - 4..], ["auto_retry_end", "turn_end", "agent_end", "agent_settled"]);
    let end = records.iter().find(|record| record["type"] == "auto_retry_end").expect("auto_retry_end");
    assert_eq!(end.raw, r#"{"type":"auto_retry_end","success":true,"attempt":1}"#);
}

/// An error inside an answer that began with status 200 and had said something.
#[test]
fn what_was_said_before_a_failure_is_said_once_and_not_sent_again() {
    let server = ModelServer::start();
    let sandbox = impatient(&server, 3);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["half an", "swer"]), 4);
    exchange.event(&anthropic::error("overloaded_error", "Overloaded"));
    exchange.finish();
    let again = server.next_request();
    assert_eq!(again.request.conversation().len(), 1, "the failed answer is not sent");
    again.answer(&anthropic::text("whole"));
    let records = shim.until_settled();
    let said: Vec<&Value> = records
        .iter()
        .filter(|record| record.is_message("message_end", "assistant"))
        .map(|record| &record["message"]["content"][0]["text"])
        .collect();
    assert_eq!(said, [&json!("half an"), &json!("whole")]);
    assert_eq!(records.iter().filter(|record| record["type"] == "auto_retry_start").count(), 1);
}

#[test]
fn retries_end_with_the_last_error() {
    let server = ModelServer::start();
    let sandbox = impatient(&server, 2);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    for _ in 0..3 {
        server.next_request().reply(503, "gone fishing");
    }
    let records = shim.until_settled();
    let end = records.iter().find(|record| record["type"] == "auto_retry_end").expect("auto_retry_end");
    assert_eq!((&end["success"], &end["attempt"]), (&json!(false), &json!(2)));
    assert!(end["finalError"].as_str().is_some_and(|text| text.contains("gone fishing")), "{}", end.raw);
    assert_eq!(server.requests().len(), 3, "no hidden retries");
}

#[test]
fn what_will_not_pass_is_not_retried() {
    for (status, body) in [
        (401, "bad key"),
        (401, "rate limit of unknown keys exceeded"),
        (400, "prompt is too long"),
        (400, "field 5030: unexpected value for the `anthropic-beta` header"),
        (429, "insufficient_quota"),
    ] {
        let server = ModelServer::start();
        let sandbox = impatient(&server, 3);
        let mut shim = sandbox.rpc();
        shim.prompt("1", "hi");
        server.next_request().reply(status, body);
        let order = kinds(&shim.until_settled());
        assert!(!order.iter().any(|kind| kind.starts_with("auto_retry")), "{status}: {order:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

/// A shim whose run waits for its next try.
fn waiting(server: &ModelServer, sandbox: &Sandbox) -> Shim {
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    server.next_request().reply(529, OVERLOADED);
    shim.wait_for_kind("auto_retry_start");
    shim
}

#[test]
fn a_run_that_waits_is_active() {
    let server = ModelServer::start();
    let sandbox = patient(&server);
    let mut shim = waiting(&server, &sandbox);
    assert_eq!(shim.get("get_state")["isStreaming"], true);
    shim.prompt("2", "now?");
    assert!(shim.response("2").error().starts_with("Agent is already processing."));
    shim.send(json!({"id": "a", "type": "abort"}));
    let end = shim.wait_for_kind("auto_retry_end");
    assert_eq!((&end["success"], &end["finalError"]), (&json!(false), &json!("Retry cancelled")));
    shim.wait_for_kind("agent_settled");
    assert!(shim.response("a").succeeded());
}

#[test]
fn abort_retry_gives_the_wait_up_and_changes_nothing_while_idle() {
    let server = ModelServer::start();
    let sandbox = patient(&server);
    let mut shim = waiting(&server, &sandbox);
    shim.send(json!({"id": "a", "type": "abort_retry"}));
    shim.wait_for_kind("auto_retry_end");
    assert!(shim.response("a").succeeded());
    shim.wait_for_kind("agent_settled");
    assert!(shim.ask(json!({"type": "abort_retry"})).succeeded());
    let ends = shim.records().iter().filter(|record| record["type"] == "auto_retry_end").count();
    assert_eq!(ends, 1, "there was nothing to give up any more");
}

#[test]
fn set_auto_retry_is_for_this_session_and_the_settings_file() {
    let server = ModelServer::start();
    let sandbox = impatient(&server, 3);
    let mut shim = sandbox.rpc();
    assert!(shim.ask(json!({"type": "set_auto_retry", "enabled": false})).succeeded());
    let text = std::fs::read_to_string(sandbox.agent_dir().join("settings.json")).expect("settings");
    let settings: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(settings["retry"], json!({"baseDelayMs": 1, "maxRetries": 3, "enabled": false}));
    shim.prompt("1", "hi");
    server.next_request().reply(529, OVERLOADED);
    assert!(!kinds(&shim.until_settled()).iter().any(|kind| kind.starts_with("auto_retry")));
    let refused = shim.ask(json!({"type": "set_auto_retry", "enabled": "no"}));
    assert_eq!(refused.error(), "Invalid set_auto_retry command: enabled must be a boolean");
}

#[test]
fn an_answer_that_says_nothing_is_asked_for_again() {
    let server = ModelServer::start();
    let sandbox = impatient(&server, 3);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut empty = anthropic::text("");
    empty
        .events
        .retain(|event| !event.data["type"].as_str().is_some_and(|kind| kind.starts_with("content_")));
    let mut refusal = anthropic::text("I can't help with that.");
    for answer in [&mut empty, &mut refusal] {
        let at = answer.events.len() - 2;
        answer.events[at].data["usage"]["output_tokens"] = json!(0);
        let start = &mut answer.events[0].data["message"]["usage"]["output_tokens"];
        *start = json!(0);
    }
    server.next_request().answer(&empty);
    server.next_request().answer(&refusal);
    let last = server.next_request();
    assert_eq!(last.request.conversation(), ["user: hi"], "neither is sent");
    last.answer(&anthropic::text("there"));
    let records = shim.until_settled();
    let reasons: Vec<&Value> = records
        .iter()
        .filter(|record| record["type"] == "auto_retry_start")
        .map(|record| &record["errorMessage"])
        .collect();
    assert_eq!(
        reasons,
        [
            &json!("Provider returned an empty completion"),
            &json!("Provider returned a canned safety refusal")
        ]
    );
    let end = records.iter().find(|record| record["type"] == "auto_retry_end").expect("auto_retry_end");
    assert_eq!((&end["success"], &end["attempt"]), (&json!(true), &json!(2)));
}
