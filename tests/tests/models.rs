//! Choosing among models and thinking levels: cycling, saving, refreshing, and a saved default that nobody knows.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{MODEL, ModelServer, PLAIN_MODEL, PROVIDER, Sandbox, Shim, anthropic, keys, kinds};
use serde_json::{Value, json};

/// The text of a prompt when the settings name a default of a provider that nobody knows.
const UNSUPPORTED: &str = "Configured default model is unavailable or unsupported. Update defaultProvider/defaultModel or use /model.";

/// `models.json` with these models of the one provider.
fn models(server: &ModelServer, ids: &[&str]) -> Value {
    let cost = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0});
    let models: Vec<Value> = ids
        .iter()
        .map(|id| {
            json!({"id": id, "name": id, "reasoning": true, "input": ["text"], "contextWindow": 1000,
                "maxTokens": 100, "cost": cost})
        })
        .collect();
    json!({"providers": {PROVIDER: {"baseUrl": server.url(), "api": "anthropic-messages", "apiKey": "k",
        "models": models}}})
}

#[track_caller]
fn cycle(shim: &mut Shim, fields: Value) -> Value {
    let mut command = json!({"type": "cycle_model"});
    command.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    shim.ask(command).data().clone()
}

fn settings(sandbox: &Sandbox) -> Value {
    let text = std::fs::read(sandbox.agent_dir().join("settings.json")).expect("settings");
    serde_json::from_slice(&text).expect("settings are JSON")
}

#[test]
fn cycling_goes_round_both_ways_through_all_that_can_be_used() {
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    sandbox.write_models(&models(&server, &["a", "b", "c"]));
    let mut shim = sandbox.rpc();
    assert_eq!(shim.get("get_state")["model"]["id"], "a");
    for (direction, next) in
        [("forward", "b"), ("forward", "c"), ("forward", "a"), ("backward", "c"), ("backward", "b")]
    {
        let data = cycle(&mut shim, json!({"direction": direction}));
        assert_eq!(keys(&data), ["model", "thinkingLevel", "isScoped"]);
        assert_eq!((&data["model"]["id"], &data["isScoped"]), (&json!(next), &json!(false)), "{direction}");
        assert_eq!(data["model"], shim.get("get_state")["model"]);
    }
    shim.rest();
    cycle(&mut shim, json!({}));
    let records = shim.rest();
    assert_eq!(kinds(&records), ["model_changed", "response cycle_model"]);
    assert_eq!(records[0]["source"], "cycle");
    server.prepare(anthropic::text("c here"));
    shim.prompt("1", "who?");
    shim.until_settled();
    assert_eq!(server.last_request().body["model"], "c");
}

#[test]
fn a_scope_is_a_list_of_names_and_globs_in_its_order() {
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    sandbox.write_models(&models(&server, &["a-one", "a-two", "b-one", "b-two"]));
    for (scope, expected) in [
        ("b-two,a-*", vec!["b-two", "a-one", "a-two"]),
        ("mock/*-one", vec!["a-one", "b-one"]),
        ("MOCK/B-*", vec!["b-one", "b-two"]),
        ("mock/a-two,a-two,b-one", vec!["a-two", "b-one"]),
    ] {
        let mut shim = sandbox.shim().args(["--models", scope]).start();
        let mut seen = vec![shim.get("get_state")["model"]["id"].clone()];
        for _ in 1..expected.len() {
            let data = cycle(&mut shim, json!({}));
            assert_eq!(data["isScoped"], true, "{scope}");
            seen.push(data["model"]["id"].clone());
        }
        assert_eq!(json!(seen), json!(expected), "{scope}");
        assert_eq!(cycle(&mut shim, json!({}))["model"]["id"], expected[0], "{scope} goes round");
        let listed = shim.get("refresh_models")["scopedModels"].clone();
        let listed: Vec<&Value> =
            listed.as_array().expect("a scope").iter().map(|model| &model["id"]).collect();
        assert_eq!(json!(listed), json!(expected), "{scope}");
    }
}

#[test]
fn with_less_than_two_there_is_nothing_to_cycle() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.shim().args(["--models", PLAIN_MODEL]).start();
    assert_eq!(cycle(&mut shim, json!({})), Value::Null);
    let none = Sandbox::new();
    let mut shim = none.rpc();
    let answer = shim.ask(json!({"type": "cycle_model"}));
    assert!(answer.raw.ends_with(r#""success":true,"data":null}"#), "{}", answer.raw);
    assert_eq!(shim.get("cycle_thinking_level"), Value::Null);
    assert_eq!(shim.get("get_available_thinking_levels"), json!({"levels": ["off"]}));
}

#[test]
fn what_was_cycled_to_is_saved_only_when_asked() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let before = json!({"theme": "dark"});
    sandbox.write_settings(&before);
    let mut shim = sandbox.rpc();
    cycle(&mut shim, json!({}));
    cycle(&mut shim, json!({"persist": false}));
    shim.ask(json!({"type": "cycle_thinking_level"})).data();
    assert_eq!(settings(&sandbox), before);
    cycle(&mut shim, json!({"persist": true}));
    assert_eq!(
        settings(&sandbox),
        json!({"theme": "dark", "defaultProvider": PROVIDER, "defaultModel": PLAIN_MODEL,
            "defaultThinkingLevel": "off"})
    );
    cycle(&mut shim, json!({"persist": true}));
    let level = shim.ask(json!({"type": "cycle_thinking_level", "persist": true})).data()["level"].clone();
    assert_eq!(settings(&sandbox)["defaultThinkingLevel"], level);
    assert_eq!(settings(&sandbox)["modelThinkingLevels"], json!({format!("{PROVIDER}/{MODEL}"): level}));
    let mut next = sandbox.shim().args(["--no-session"]).start();
    let state = next.get("get_state");
    assert_eq!((&state["model"]["id"], &state["thinkingLevel"]), (&json!(MODEL), &level));
}

#[test]
fn levels_go_round_and_each_is_told() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let levels = shim.get("get_available_thinking_levels")["levels"].clone();
    let levels: Vec<&str> = levels.as_array().expect("levels").iter().filter_map(Value::as_str).collect();
    assert_eq!(levels, ["off", "minimal", "low", "medium", "high"]);
    let at = levels.iter().position(|level| *level == "medium").expect("the default");
    for step in 1..=levels.len() {
        let expected = levels[(at + step) % levels.len()];
        shim.rest();
        assert_eq!(shim.get("cycle_thinking_level"), json!({"level": expected}));
        let records = shim.rest();
        assert_eq!(kinds(&records), ["thinking_level_changed", "response cycle_thinking_level"]);
        assert_eq!(records[0]["level"], expected);
    }
    let model = json!({"type": "set_model", "provider": PROVIDER, "modelId": PLAIN_MODEL});
    shim.ask(model).data();
    assert_eq!(shim.get("cycle_thinking_level"), Value::Null);
}

#[test]
fn a_level_is_saved_for_the_model_that_had_it() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let set = json!({"type": "set_thinking_level", "level": "xhigh", "persist": true});
    let data = shim.ask(set).data().clone();
    assert_eq!(data, json!({"level": "high", "provider": PROVIDER, "modelId": MODEL}), "as it took effect");
    assert_eq!(settings(&sandbox)["defaultThinkingLevel"], "high");
    assert_eq!(settings(&sandbox)["modelThinkingLevels"], json!({format!("{PROVIDER}/{MODEL}"): "high"}));
}

#[test]
fn a_changed_models_file_is_seen_at_once_and_a_wrong_one_changes_nothing() {
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    sandbox.write_models(&models(&server, &["a"]));
    let mut shim = sandbox.rpc();
    let ids = |data: &Value| -> Vec<String> {
        let models = data["models"].as_array().expect("models").iter();
        models.filter_map(|model| model["id"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(ids(&shim.get("get_available_models")), ["a"]);
    // No command reads it again: whoever needs models looks whether it has changed.
    sandbox.write_models(&models(&server, &["a", "b"]));
    assert_eq!(ids(&shim.get("get_available_models")), ["a", "b"]);
    sandbox.write_models(&models(&server, &["a", "b", "c"]));
    let set = |id: &str| json!({"type": "set_model", "provider": PROVIDER, "modelId": id});
    assert_eq!(shim.ask(set("c")).data()["id"], "c");
    sandbox.write_models(&models(&server, &["a", "b"]));
    let data = shim.get("refresh_models");
    assert_eq!(
        keys(&data),
        ["aborted", "errors", "models", "scopedModels", "customAuthProviders", "oauthProviders"]
    );
    assert_eq!(
        (ids(&data), &data["aborted"], &data["errors"]),
        (vec!["a".into(), "b".into()], &json!(false), &json!([]))
    );
    shim.ask(set("b")).data();
    server.prepare(anthropic::text("b here"));
    shim.prompt("1", "who?");
    shim.until_settled();
    assert_eq!(server.last_request().body["model"], "b");

    // A prompt goes where the file says now.
    let other = ModelServer::start();
    sandbox.write_models(&models(&other, &["a", "b"]));
    other.prepare(anthropic::text("b there"));
    shim.prompt("2", "and now?");
    shim.until_settled();
    assert_eq!(other.last_request().body["model"], "b");
    assert_eq!(shim.get("get_state")["model"]["baseUrl"], json!(other.url()));

    let wrong = "{ // mine\n  \"providers\": {\n    oops\n";
    let file = sandbox.write("home/.atomic/agent/models.json", wrong);
    other.prepare(anthropic::text("b still there"));
    shim.prompt("3", "and with that?");
    shim.until_settled();
    let told = "Warning: Invalid models.json schema: key must be a string";
    let stderr = shim.stderr();
    assert!(stderr.contains(told) && stderr.contains("models.json:3:5)"), "{stderr}");
    assert_eq!(ids(&shim.get("get_available_models")), ["a", "b"]);
    assert_eq!(shim.stderr(), stderr, "it is told once");
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), wrong, "nobody writes into it");
    let data = shim.get("refresh_models");
    let errors = data["errors"].as_array().expect("errors");
    assert_eq!(errors.len(), 1, "{data}");
    assert_eq!(keys(&errors[0]), ["provider", "message"]);
    assert!(errors[0]["message"].as_str().is_some_and(|text| text.contains("models.json")), "{data}");
}

#[test]
fn a_scope_follows_a_refresh() {
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    sandbox.write_models(&models(&server, &["a-one", "b-one"]));
    let mut shim = sandbox.shim().args(["--models", "a-*"]).start();
    assert_eq!(cycle(&mut shim, json!({})), Value::Null);
    sandbox.write_models(&models(&server, &["a-one", "a-two", "b-one"]));
    assert_eq!(shim.get("refresh_models")["scopedModels"].as_array().map(Vec::len), Some(2));
    assert_eq!(cycle(&mut shim, json!({}))["model"]["id"], "a-two");
}

/// Settings whose default nobody knows.
fn unsupported(server: &ModelServer) -> Sandbox {
    let sandbox = Sandbox::with_models(server);
    sandbox.write_settings(&json!({"defaultProvider": "nobody", "defaultModel": "knows"}));
    sandbox
}

#[track_caller]
fn refused(shim: &mut Shim) {
    let prompt = json!({"type": "prompt", "message": "hi"});
    shim.rest();
    assert_eq!(shim.ask(prompt).error(), UNSUPPORTED);
    assert_eq!(kinds(&shim.rest()), ["response prompt"], "no event");
}

#[track_caller]
fn runs(server: &ModelServer, shim: &mut Shim) {
    server.prepare(anthropic::text("hello"));
    shim.ask(json!({"type": "prompt", "message": "hi"})).data();
    shim.until_settled();
}

#[test]
fn a_saved_default_that_nobody_knows_refuses_prompts_and_nothing_else() {
    let server = ModelServer::start();
    let sandbox = unsupported(&server);
    let mut shim = sandbox.rpc();
    refused(&mut shim);
    assert_eq!(shim.get("get_available_models")["models"].as_array().map(Vec::len), Some(2));
    assert_eq!(shim.get("get_state")["model"], Value::Null);
    shim.ask(json!({"type": "bash", "command": "true"})).data();
    let set = |id: &str| json!({"type": "set_model", "provider": PROVIDER, "modelId": id});
    assert_eq!(shim.ask(set("nope")).error(), "Model not found: mock/nope");
    refused(&mut shim);
    shim.ask(set(MODEL)).data();
    runs(&server, &mut shim);

    // The next session has the condition of its own.
    shim.ask(json!({"type": "new_session"})).data();
    refused(&mut shim);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_cycle_to_another_model_lifts_it_and_a_null_one_does_not() {
    let server = ModelServer::start();
    let sandbox = unsupported(&server);
    let mut shim = sandbox.rpc();
    refused(&mut shim);
    assert!(cycle(&mut shim, json!({}))["model"]["id"].is_string());
    runs(&server, &mut shim);

    let alone = Sandbox::new();
    alone.write_models(&models(&server, &["only"]));
    alone.write_settings(&json!({"defaultProvider": "nobody", "defaultModel": "knows"}));
    let mut shim = alone.rpc();
    assert_eq!(cycle(&mut shim, json!({})), Value::Null);
    refused(&mut shim);
}

/// Only a provider that nobody knows is a reason; and half a default is none.
#[test]
fn other_defaults_fall_back_as_usual() {
    for settings in [
        json!({"defaultProvider": PROVIDER, "defaultModel": "knows"}),
        json!({"defaultProvider": "anthropic", "defaultModel": "claude-sonnet-4-5"}),
    ] {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        sandbox.write_settings(&settings);
        let mut shim = sandbox.rpc();
        assert_eq!(shim.get("get_state")["model"]["id"], MODEL, "{settings}");
        runs(&server, &mut shim);
    }
}
