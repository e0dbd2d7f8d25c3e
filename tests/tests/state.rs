//! What can be asked of a session and changed about it.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{
    MODEL, ModelServer, PLAIN_MODEL, PROVIDER, Sandbox, Shim, anthropic, keys, kinds, normalised,
};
use serde_json::{Value, json};

/// One prompt with one short answer, to its end.
fn talk(server: &ModelServer, shim: &mut Shim, question: &str, answer: &str) {
    server.prepare(anthropic::text(answer));
    shim.prompt("talk", question);
    shim.until_settled();
}

#[test]
fn get_state_has_exactly_these_keys_and_types() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let state = shim.get("get_state");
    assert_eq!(
        keys(&state),
        [
            "model",
            "thinkingLevel",
            "isStreaming",
            "isCompacting",
            "steeringMode",
            "followUpMode",
            "sessionFile",
            "sessionId",
            "autoCompactionEnabled",
            "messageCount",
            "pendingMessageCount",
        ]
    );
    for (key, value) in [
        ("thinkingLevel", json!("medium")),
        ("isStreaming", json!(false)),
        ("isCompacting", json!(false)),
        ("steeringMode", json!("one-at-a-time")),
        ("followUpMode", json!("one-at-a-time")),
        ("messageCount", json!(0)),
        ("pendingMessageCount", json!(0)),
    ] {
        assert_eq!(state[key], value, "{key}");
    }
    assert!(state["autoCompactionEnabled"].is_boolean());
    let id = state["sessionId"].as_str().expect("an id");
    let file = state["sessionFile"].as_str().expect("a path");
    assert!(std::path::Path::new(file).starts_with(sandbox.agent_dir()), "{file}");
    assert!(file.ends_with(&format!("_{id}.jsonl")), "{file}");
    talk(&server, &mut shim, "hi", "hello");
    let after = shim.get("get_state");
    assert_eq!(after["messageCount"], 2);
    assert_eq!((&after["sessionId"], &after["sessionFile"]), (&state["sessionId"], &state["sessionFile"]));
}

#[test]
fn the_model_is_the_full_object() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let model = shim.get("get_state")["model"].clone();
    let seed = [
        "id",
        "name",
        "api",
        "provider",
        "baseUrl",
        "reasoning",
        "input",
        "contextWindow",
        "maxTokens",
        "cost",
    ];
    for key in seed {
        assert!(model.get(key).is_some(), "{key}: {model}");
    }
    assert_eq!(
        (&model["id"], &model["provider"], &model["api"], &model["contextWindow"]),
        (&json!(MODEL), &json!(PROVIDER), &json!("anthropic-messages"), &json!(200_000))
    );
    assert_eq!(keys(&model["cost"]), ["input", "output", "cacheRead", "cacheWrite"]);
    let available = shim.get("get_available_models");
    let ids: Vec<&Value> =
        available["models"].as_array().expect("models").iter().map(|model| &model["id"]).collect();
    assert_eq!(json!(ids), json!([MODEL, PLAIN_MODEL]), "only models with a key");
    assert_eq!(available["models"][0], model);
}

#[test]
fn without_any_key_there_is_no_model() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    let state = shim.get("get_state");
    assert!(state.as_object().is_some_and(|state| state["model"].is_null()), "{state}");
    assert_eq!(shim.get("get_available_models")["models"], json!([]));
}

#[test]
fn no_session_has_no_file() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    assert_eq!(shim.get("get_state").get("sessionFile"), None);
    assert_eq!(shim.get("get_session_stats").get("sessionFile"), None);
}

#[test]
fn set_model_tells_what_changed_before_it_answers() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let before = shim.get("get_state")["model"].clone();
    shim.rest();
    let set = json!({"id": "m", "type": "set_model", "provider": PROVIDER, "modelId": PLAIN_MODEL});
    shim.send(set.clone());
    let records = shim.until("the answer", |record| record["id"] == "m");
    assert_eq!(kinds(&records), ["thinking_level_changed", "model_changed", "response set_model"]);
    assert_eq!(records[0].raw, r#"{"type":"thinking_level_changed","level":"off"}"#);
    assert_eq!(keys(&records[1]), ["type", "model", "previousModel", "source"]);
    assert_eq!(records[1]["previousModel"], before);
    assert_eq!(records[1]["source"], "set");
    assert_eq!(records[1]["model"], *records[2].data());
    let state = shim.get("get_state");
    assert_eq!((&state["model"], &state["thinkingLevel"]), (records[2].data(), &json!("off")));
    shim.rest();
    // Once more changes nothing.
    shim.send(set);
    let again = shim.until("the answer", |record| record["id"] == "m");
    assert_eq!(kinds(&again), ["response set_model"]);

    server.prepare(anthropic::text("plain"));
    shim.prompt("1", "hi");
    shim.until_settled();
    assert_eq!(server.last_request().body["model"], PLAIN_MODEL);
    assert!(!sandbox.agent_dir().join("settings.json").exists(), "without persist nothing is saved");
}

#[test]
fn persist_makes_it_the_default() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let set = json!({"type": "set_model", "provider": PROVIDER, "modelId": PLAIN_MODEL, "persist": true});
    shim.ask(set).data();
    let settings = std::fs::read_to_string(sandbox.agent_dir().join("settings.json")).expect("settings");
    let settings: Value = serde_json::from_str(&settings).expect("JSON");
    assert_eq!(
        (&settings["defaultProvider"], &settings["defaultModel"]),
        (&json!(PROVIDER), &json!(PLAIN_MODEL))
    );
    let mut other = sandbox.rpc();
    assert_eq!(other.get("get_state")["model"]["id"], PLAIN_MODEL);
}

#[test]
fn thinking_levels_are_clamped_to_the_model() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    for (wish, effective, changed) in
        [("high", "high", true), ("max", "high", false), ("minimal", "minimal", true), ("off", "off", true)]
    {
        shim.rest();
        shim.send(json!({"id": wish, "type": "set_thinking_level", "level": wish}));
        let records = shim.until("the answer", |record| record["id"] == wish);
        let expected: &[&str] = if changed {
            &["thinking_level_changed", "response set_thinking_level"]
        } else {
            &["response set_thinking_level"]
        };
        assert_eq!(kinds(&records), expected, "{wish}");
        let data = records.last().expect("the answer").data();
        assert_eq!(
            data.to_string(),
            json!({"level": effective, "provider": PROVIDER, "modelId": MODEL}).to_string()
        );
        assert_eq!(shim.get("get_state")["thinkingLevel"], effective);
    }
    shim.ask(json!({"type": "set_model", "provider": PROVIDER, "modelId": PLAIN_MODEL})).data();
    let answer = shim.ask(json!({"type": "set_thinking_level", "level": "high"}));
    assert_eq!(answer.data()["level"], "off");
}

#[test]
fn messages_entries_and_the_last_text_agree() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    assert_eq!(shim.get("get_last_assistant_text").to_string(), r#"{"text":null}"#);
    assert_eq!(shim.get("get_messages").to_string(), r#"{"messages":[]}"#);
    talk(&server, &mut shim, "one?", " one \n");
    talk(&server, &mut shim, "two?", "two");
    assert_eq!(shim.get("get_last_assistant_text").to_string(), r#"{"text":"two"}"#);

    let announced: Vec<Value> = shim
        .records()
        .iter()
        .filter(|record| record.kind() == "message_end")
        .map(|record| record["message"].clone())
        .collect();
    assert_eq!(shim.get("get_messages")["messages"], json!(announced));

    let entries = shim.get("get_entries");
    assert_eq!(keys(&entries), ["entries", "leafId"]);
    assert_eq!(
        entries["entries"],
        json!(shim.session_file().entries()),
        "what is read is what is in the file"
    );
    let list = entries["entries"].as_array().expect("entries").clone();
    assert_eq!(entries["leafId"], list.last().expect("an entry")["id"]);
    let mut parent = Value::Null;
    for entry in &list {
        assert_eq!(entry["parentId"], parent, "one branch: {entry}");
        parent = entry["id"].clone();
    }
    for (index, entry) in list.iter().enumerate() {
        let since = shim.ask(json!({"type": "get_entries", "since": entry["id"]}));
        assert_eq!(since.data()["entries"], json!(list[index + 1..]));
        assert_eq!(since.data()["leafId"], entries["leafId"]);
    }
}

#[test]
fn an_untouched_session_has_a_model_and_a_level_and_maybe_no_leaf() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let entries = shim.get("get_entries");
    let kinds: Vec<&Value> =
        entries["entries"].as_array().expect("entries").iter().map(|e| &e["type"]).collect();
    assert_eq!(json!(kinds), json!(["model_change", "thinking_level_change"]));
    let without_models = Sandbox::new();
    let mut bare = without_models.shim().args(["--no-session"]).start();
    let entries = bare.get("get_entries");
    assert_eq!(
        entries["leafId"].is_null(),
        entries["entries"].as_array().is_some_and(Vec::is_empty),
        "{entries}"
    );
}

#[test]
fn stats_count_and_add_up() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    server.prepare(anthropic::tool_calls(&[
        ("c1", "bash", json!({"command": "true"})),
        ("c2", "bash", json!({"command": "true"})),
    ]));
    // Prepared answers are taken in order: the calls above, then this text.
    talk(&server, &mut shim, "go", "done");
    let stats = shim.get("get_session_stats");
    assert_eq!(
        keys(&stats),
        [
            "sessionFile",
            "sessionId",
            "userMessages",
            "assistantMessages",
            "toolCalls",
            "toolResults",
            "totalMessages",
            "tokens",
            "cost",
            "contextUsage",
        ]
    );
    for (key, count) in [
        ("userMessages", 1),
        ("assistantMessages", 2),
        ("toolCalls", 2),
        ("toolResults", 2),
        ("totalMessages", 5),
    ] {
        assert_eq!(stats[key], count, "{key}");
    }
    assert_eq!(
        stats["tokens"].to_string(),
        r#"{"input":20,"output":10,"cacheRead":0,"cacheWrite":0,"total":30}"#
    );
    assert_eq!(stats["cost"].to_string(), "40", "20 tokens at one dollar, 10 at two");
    assert_eq!(keys(&stats["contextUsage"]), ["tokens", "contextWindow", "percent"]);
    assert_eq!(stats["contextUsage"]["contextWindow"], 200_000);
    assert_eq!(stats["contextUsage"]["tokens"], 15, "what the last answer reported");
}

#[test]
fn names_are_told_kept_and_checked() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.shim().args(["--name", "first name"]).start();
    assert_eq!(shim.get("get_state")["sessionName"], "first name");
    shim.rest();
    shim.send(json!({"id": "n", "type": "set_session_name", "name": "  my-feature-work "}));
    let records = shim.until("the answer", |record| record["id"] == "n");
    let lines: Vec<String> = records.iter().map(|record| normalised(record)).collect();
    assert_eq!(
        lines,
        [
            r#"{"type":"session_info_changed","name":"my-feature-work"}"#,
            r#"{"id":"n","type":"response","command":"set_session_name","success":true}"#,
        ]
    );
    let state = shim.get("get_state");
    assert_eq!(state["sessionName"], "my-feature-work");
    let position = keys(&state).iter().position(|key| *key == "sessionName").expect("the key");
    assert_eq!(keys(&state)[position - 1], "sessionId");
    for name in ["", "  \t"] {
        let refused = shim.ask(json!({"type": "set_session_name", "name": name}));
        assert_eq!(refused.error(), "Session name cannot be empty");
    }
    let last = shim.session_file().entries().last().expect("an entry").clone();
    assert_eq!((&last["type"], &last["name"]), (&json!("session_info"), &json!("my-feature-work")));
}

#[test]
fn reads_are_answered_during_a_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one", "two"]), 4);
    shim.wait_for_delta("one");
    for command in [
        "get_state",
        "get_messages",
        "get_session_stats",
        "get_entries",
        "get_available_models",
        "get_last_assistant_text",
    ] {
        shim.get(command);
    }
    assert_eq!(
        shim.get("get_messages")["messages"].as_array().map(Vec::len),
        Some(1),
        "the open answer is not in it"
    );
    // A new model is for the next call.
    shim.ask(json!({"type": "set_model", "provider": PROVIDER, "modelId": PLAIN_MODEL})).data();
}

#[test]
fn flags_choose_model_level_and_tools() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let arguments = ["--model", &format!("{PROVIDER}/{MODEL}:low"), "--tools", "read,ls", "--no-session"];
    let mut shim = sandbox.shim().args(arguments).start();
    let state = shim.get("get_state");
    assert_eq!((&state["model"]["id"], &state["thinkingLevel"]), (&json!(MODEL), &json!("low")));
    talk(&server, &mut shim, "hi", "hello");
    let tools = |server: &ModelServer| -> Vec<String> {
        let body = server.last_request().body;
        let tools = body["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
    };
    let mut chosen = tools(&server);
    chosen.sort();
    assert_eq!(chosen, ["ls", "read"]);
    let mut plain = sandbox.shim().args(["--no-session"]).start();
    talk(&server, &mut plain, "hi", "hello");
    assert_eq!(tools(&server), ["read", "bash", "edit", "write"]);
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
