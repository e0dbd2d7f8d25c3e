//! Fallback models: another model takes the place of one that fails, and the user's own comes back.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{
    API_KEY, MODEL, ModelServer, PLAIN_MODEL, PROVIDER, Record, Sandbox, anthropic, eventually, kinds,
};
use serde_json::{Value, json};

/// A second provider at the same address, without a key until it is saved.
const OTHER: &str = "other";

/// A sandbox with these `fallbackModels`, whose retries come at once.
fn sandbox(server: &ModelServer, fallbacks: &[&str], retries: u32) -> Sandbox {
    let sandbox = Sandbox::new();
    let model = |id: &str, window: u32| json!({"id": id, "contextWindow": window, "maxTokens": 4096});
    sandbox.write_models(&json!({"providers": {
        PROVIDER: {"baseUrl": server.url(), "api": "anthropic-messages", "apiKey": API_KEY,
            "models": [model(MODEL, 100_000), model(PLAIN_MODEL, 100_000)]},
        OTHER: {"baseUrl": server.url(), "api": "anthropic-messages", "apiKey": "$OTHER_KEY",
            "models": [model("big", 900_000)]},
    }}));
    sandbox.write_settings(&json!({
        "defaultProvider": PROVIDER, "defaultModel": MODEL,
        "retry": {"baseDelayMs": 1, "maxRetries": retries}, "fallbackModels": fallbacks,
    }));
    sandbox
}

fn plain() -> String {
    format!("{PROVIDER}/{PLAIN_MODEL}")
}

fn find<'a>(records: &'a [Record], kind: &str) -> &'a Record {
    records.iter().find(|record| record["type"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

fn asked(server: &ModelServer) -> Vec<String> {
    server.requests().iter().map(|request| request.body["model"].as_str().unwrap_or("?").to_owned()).collect()
}

#[test]
fn the_next_model_answers_after_the_retries_and_the_users_comes_back() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, &[&plain()], 1);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    for _ in 0..2 {
        server.next_request().reply(503, "gone fishing");
    }
    let mut exchange = server.next_request();
    assert_eq!(exchange.request.body["model"], PLAIN_MODEL);
    assert_eq!(exchange.request.conversation(), ["user: hi"]);
    assert_eq!(shim.get("get_state")["model"]["id"], PLAIN_MODEL, "the model in use");
    let answer = anthropic::text("there");
    exchange.begin(&answer, 3);
    shim.wait_for_delta("there");
    // A joiner hears of it first, and then of its end.
    let id = shim.get("get_state")["sessionId"].as_str().expect("an id").to_owned();
    let mut joiner = sandbox.attach(&id);
    let first = joiner.until("the answer so far", |record| record["type"] == "message_start");
    assert_eq!(
        kinds(&first),
        ["model_fallback_start", "agent_start", "turn_start", "message_start assistant"]
    );
    answer.events[answer.events.len() - 3..].iter().for_each(|event| exchange.event(event));
    exchange.finish();
    joiner.wait_for_kind("model_fallback_end");
    joiner.wait_for_kind("agent_settled");
    let records = shim.until_settled();
    let order = kinds(&records);
    assert_eq!(
        order[order.len() - 4..],
        ["agent_end", "model_changed", "model_fallback_end", "agent_settled"],
        "{order:?}"
    );
    let start = &first[0];
    assert_eq!((&start["from"], &start["to"]), (&json!(format!("{PROVIDER}/{MODEL}")), &json!(plain())));
    assert_eq!(shim.get("get_state")["model"]["id"], MODEL);
    // The file says the same, so another daemon would go on with it, too.
    let changes: Vec<Value> = shim
        .session_file()
        .lines()
        .into_iter()
        .filter(|entry| entry["type"] == "model_change")
        .map(|entry| entry["modelId"].clone())
        .collect();
    assert_eq!(changes, [MODEL, PLAIN_MODEL, MODEL]);
    shim.prompt("2", "and now?");
    let next = server.next_request();
    assert_eq!(next.request.body["model"], MODEL);
    next.answer(&anthropic::text("here"));
    shim.until_settled();
}

#[test]
fn models_without_a_key_are_passed_over_until_they_have_one() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, &["other/big"], 0);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    server.next_request().reply(401, "bad key");
    let order = kinds(&shim.until_settled());
    assert!(!order.iter().any(|kind| kind.starts_with("model_")), "{order:?}");
    // A key that another program writes counts from the next prompt on.
    sandbox
        .write("home/.atomic/agent/auth.json", json!({OTHER: {"type": "api_key", "key": "k"}}).to_string());
    shim.prompt("2", "hi again");
    server.next_request().reply(401, "bad key");
    server.next_request().answer(&anthropic::text("big one"));
    shim.until_settled();
    assert_eq!(asked(&server), [MODEL, MODEL, "big"]);
}

#[test]
fn a_name_that_is_no_model_is_told_and_reload_reads_the_list_again() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, &["mock/nothing"], 0);
    let mut shim = sandbox.rpc();
    shim.get("get_state");
    let told = "Warning: fallbackModels: Model \"mock/nothing\" not found.";
    eventually(told, || shim.stderr().contains(told).then_some(()));
    sandbox.write_settings(&json!({"retry": {"maxRetries": 0}, "fallbackModels": [plain()]}));
    assert!(shim.ask(json!({"type": "reload"})).succeeded());
    shim.prompt("1", "hi");
    server.next_request().reply(404, "no such model");
    server.next_request().answer(&anthropic::text("ok"));
    shim.until_settled();
    assert_eq!(asked(&server), [MODEL, PLAIN_MODEL]);
}

#[test]
fn when_all_fail_the_requests_are_counted_and_the_error_is_the_last() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, &[&plain(), &format!("{PROVIDER}/{MODEL}"), &plain()], 2);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    for _ in 0..6 {
        server.next_request().reply(529, "overloaded");
    }
    let records = shim.until_settled();
    assert_eq!(server.requests().len(), 6, "(models) × (retries + 1)");
    let end = find(&records, "model_fallback_end");
    assert_eq!(end["success"], false);
    assert!(end["finalError"].as_str().is_some_and(|text| text.contains("overloaded")), "{}", end.raw);
    assert_eq!(shim.get("get_state")["model"]["id"], MODEL);
}

#[test]
fn a_model_chosen_meanwhile_stays() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, &[&plain()], 0);
    sandbox
        .write("home/.atomic/agent/auth.json", json!({OTHER: {"type": "api_key", "key": "k"}}).to_string());
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    server.next_request().reply(401, "bad key");
    let exchange = server.next_request();
    shim.wait_for_kind("model_fallback_start");
    assert!(shim.ask(json!({"type": "set_model", "provider": OTHER, "modelId": "big"})).succeeded());
    shim.wait_for_kind("model_fallback_end");
    exchange.answer(&anthropic::text("done"));
    let order = kinds(&shim.until_settled());
    assert!(!order.contains(&"model_changed".to_owned()), "nothing comes back: {order:?}");
    assert_eq!(shim.get("get_state")["model"]["id"], "big");
}

#[test]
fn a_session_whose_daemon_was_killed_in_a_fallback_opens_with_the_users_model() {
    let server = ModelServer::start();
    let sandbox = sandbox(&server, &[&plain()], 0);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    server.next_request().reply(401, "bad key");
    let mut exchange = server.next_request();
    assert_eq!(exchange.request.body["model"], PLAIN_MODEL);
    exchange.begin(&anthropic::text("there"), 3);
    shim.wait_for_delta("there");
    let file = shim.session_file();
    let changes: Vec<Value> =
        file.lines().into_iter().filter(|entry| entry["type"] == "model_change").collect();
    assert_eq!(
        changes.last().expect("a model_change")["inPlaceOf"],
        json!({"provider": PROVIDER, "modelId": MODEL})
    );
    sandbox.kill_daemon();
    shim.until_settled();
    // The shim comes back by itself; the session's next turn is the user's model's.
    assert_eq!(shim.get("get_state")["model"]["id"], MODEL);
    shim.prompt("2", "and now?");
    let next = server.next_request();
    assert_eq!(next.request.body["model"], MODEL);
    next.answer(&anthropic::text("here"));
    shim.until_settled();
}
