//! Limits of money, turns and tokens: what stops a run, what refuses a prompt, and what counts.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{API_KEY, MODEL, ModelServer, PROVIDER, Sandbox, Shim, anthropic, eventually, kinds};
use serde_json::{Value, json};

/// What one answer of the model server costs with the prices of [`Sandbox::with_models`], in dollars.
const ANSWER: f64 = 20.0;

fn sandbox(server: &ModelServer, limits: Value) -> Sandbox {
    let sandbox = Sandbox::with_models(server);
    sandbox.write_settings(&json!({"limits": limits, "retry": {"baseDelayMs": 1}}));
    sandbox
}

/// Answers with calls of a tool as often as the model is asked; gives how the run ended.
fn work(shim: &mut Shim, server: &ModelServer, id: &str, requests: usize) -> Value {
    shim.prompt(id, "work");
    for number in 0..requests {
        let call = anthropic::tool_call(&format!("c{id}{number}"), "bash", json!({"command": "true"}));
        server.next_request().answer(&call);
    }
    let records = shim.until_settled();
    let order = kinds(&records);
    assert_eq!(
        order[order.len() - 6..],
        [
            "turn_start",
            "message_start assistant",
            "message_end assistant",
            "turn_end",
            "agent_end",
            "agent_settled"
        ]
    );
    let end = records.iter().rfind(|record| record["type"] == "message_end").expect("a message");
    assert_eq!(end["message"]["stopReason"], "error");
    end["message"]["errorMessage"].clone()
}

#[test]
fn a_run_ends_with_an_error_that_names_limit_value_and_setting() {
    for (limits, requests, expected) in [
        (json!({"maxTurns": 2}), 2, "This run has made 2 turns, and limits.maxTurns is 2."),
        (json!({"maxCost": 1.5 * ANSWER}), 2, "This run has cost $40.00, and limits.maxCost is $30.00."),
        (json!({"maxTokens": 15}), 1, "This run has used 15 tokens, and limits.maxTokens is 15."),
    ] {
        let server = ModelServer::start();
        let sandbox = sandbox(&server, limits);
        let mut shim = sandbox.rpc();
        let error = work(&mut shim, &server, "1", requests);
        assert!(error.as_str().is_some_and(|text| text.starts_with(expected)), "{error}");
        assert_eq!(server.requests().len(), requests, "nothing more is asked");
        // The next run has all of it again.
        work(&mut shim, &server, "2", requests);
        assert_eq!(server.requests().len(), 2 * requests);
    }
}

#[test]
fn flags_go_before_the_settings() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, json!({"maxTurns": 5, "maxCost": 1}));
    let mut shim = sandbox.shim().args(["--max-turns", "1", "--max-cost", "1000"]).start();
    let error = work(&mut shim, &server, "1", 1);
    assert!(error.as_str().is_some_and(|text| text.contains("limits.maxTurns is 1.")), "{error}");
}

#[test]
fn a_used_up_session_refuses_prompts_also_when_it_is_opened_again() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, json!({"session": {"maxCost": 2.0 * ANSWER}}));
    let mut shim = sandbox.rpc();
    work(&mut shim, &server, "1", 2);
    let expected = "This session has cost $40.00, and limits.session.maxCost is $40.00. Raise the limit in settings.json and \
                    reload, or go on in a new session.";
    shim.prompt("2", "more");
    assert_eq!(shim.response("2").error(), expected);
    // Another daemon knows what was used from the file.
    let file = shim.session_file();
    shim.finish();
    sandbox.kill_daemon();
    let mut shim = sandbox.shim().args(["--session", file.arg()]).start();
    shim.prompt("3", "more");
    assert_eq!(shim.response("3").error(), expected);
    assert_eq!(server.requests().len(), 2);
    // The ways out: a new session, or a higher limit.
    assert!(shim.ask(json!({"type": "new_session"})).succeeded());
    shim.prompt("4", "hi");
    server.next_request().answer(&anthropic::text("there"));
    shim.until_settled();
    assert!(shim.ask(json!({"type": "switch_session", "sessionPath": file.arg()})).succeeded());
    sandbox.write_settings(&json!({"limits": {"session": {"maxCost": 3.0 * ANSWER}}}));
    assert!(shim.ask(json!({"type": "reload"})).succeeded());
    shim.prompt("5", "hi");
    server.next_request().answer(&anthropic::text("there"));
    shim.until_settled();
}

#[test]
fn a_planner_counts() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, json!({"session": {"maxTokens": 40}}));
    let mut shim = sandbox.rpc();
    let lines: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
    for (id, text) in [("1", lines.join("\n")), ("2", "and".to_owned())] {
        shim.prompt(id, &text);
        server.next_request().answer(&anthropic::text("yes"));
        shim.until_settled();
    }
    shim.send(json!({"id": "c", "type": "compact"}));
    server.next_request().answer(&anthropic::text("2,60"));
    assert!(shim.response("c").succeeded());
    shim.prompt("3", "more");
    let error = shim.response("3");
    assert!(error.error().starts_with("This session has used 45 tokens"), "{}", error.raw);
}

#[test]
fn without_a_price_there_is_no_limit_of_money_to_hold() {
    let sandbox = Sandbox::new();
    // Nobody is there, and nobody is asked.
    sandbox.write_models(&json!({"providers": {PROVIDER: {
        "baseUrl": "http://models.invalid", "api": "anthropic-messages", "apiKey": API_KEY,
        "models": [{"id": MODEL}]}}}));
    sandbox.write_settings(&json!({"limits": {"maxCost": 1}}));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    assert_eq!(
        shim.response("1").error(),
        "The price of mock/mock-model is unknown, so limits.maxCost cannot be held. Set \"cost\" of the model in models.json, or \
         remove limits.maxCost."
    );
    assert_eq!(shim.get("get_state")["isStreaming"], false);
}

#[test]
fn a_wrong_limit_is_told_and_left_out() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, json!({"maxTurns": 0, "session": {"maxCost": "much"}}));
    let mut shim = sandbox.rpc();
    shim.get("get_state");
    for told in [
        "limits.maxTurns must be a whole number above 0; it is ignored",
        "limits.session.maxCost must be a number of US dollars above 0",
    ] {
        eventually(told, || shim.stderr().contains(told).then_some(()));
    }
}

#[test]
fn what_compact_is_given_goes_before_the_settings() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, json!({}));
    let mut shim = sandbox.rpc();
    let lines: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
    shim.prompt("1", &lines.join("\n"));
    server.next_request().answer(&anthropic::text("yes"));
    shim.until_settled();
    shim.send(json!({"id": "c", "type": "compact", "compression_ratio": 0.25, "preserve_recent": 0, "query": " names "}));
    let planner = server.next_request();
    let asked = planner.request.conversation().join("\n");
    assert!(asked.contains("what the work is about now: names"), "{asked}");
    planner.answer(&anthropic::text("2,60"));
    let answer = shim.response("c");
    assert_eq!(
        answer["data"]["parameters"],
        json!({"compression_ratio": 0.25, "preserve_recent": 0, "query": "names"})
    );
    assert_eq!(answer["data"]["firstKeptEntryId"], Value::Null);
    for (field, value) in
        [("compression_ratio", json!(2)), ("preserve_recent", json!(-1)), ("query", json!(5))]
    {
        assert!(shim.ask(json!({"type": "compact", field: value})).error().contains(field));
    }
}
