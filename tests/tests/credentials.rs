//! Keys of providers: kept, used, forgotten; and where one comes from.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt as _;

use atomic_tests::{API_KEY, ModelServer, PROVIDER, Sandbox, Shim, anthropic, keys, kinds};
use serde_json::{Value, json};

#[track_caller]
fn save(shim: &mut Shim, provider: &str, key: &str) -> Value {
    let credential = json!({"type": "api_key", "key": key});
    let command = json!({"type": "save_provider_credential", "provider": provider, "credential": credential});
    shim.ask(command).data().clone()
}

#[track_caller]
fn logout(shim: &mut Shim, provider: &str) -> Value {
    shim.ask(json!({"type": "logout_provider", "provider": provider})).data().clone()
}

fn providers(data: &Value) -> Vec<&str> {
    let mut found: Vec<&str> = data["models"]
        .as_array()
        .expect("models")
        .iter()
        .filter_map(|model| model["provider"].as_str())
        .collect();
    found.dedup();
    found
}

#[track_caller]
fn key_sent(server: &ModelServer, shim: &mut Shim) -> String {
    server.prepare(anthropic::text("hello"));
    shim.ask(json!({"type": "prompt", "message": "hi"})).data();
    shim.until_settled();
    server.last_request().header("x-api-key").expect("a key").to_owned()
}

#[test]
fn a_saved_key_makes_the_providers_models_available() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    assert_eq!(providers(&shim.get("get_available_models")), [PROVIDER]);
    let data = save(&mut shim, "anthropic", " sk-secret ");
    assert_eq!(keys(&data), ["models", "scopedModels", "customAuthProviders", "oauthProviders"]);
    let listed = shim.get("get_available_models");
    assert!(providers(&listed).contains(&"anthropic"), "{:?}", providers(&listed));
    assert_eq!(data["models"], listed["models"]);
    let file = sandbox.agent_dir().join("auth.json");
    let stored: Value = serde_json::from_slice(&std::fs::read(&file).expect("the file")).expect("JSON");
    assert_eq!(stored, json!({"anthropic": {"type": "api_key", "key": "sk-secret"}}));
    assert_eq!(file.metadata().expect("the file").permissions().mode() & 0o777, 0o600);
    assert!(!sandbox.daemon_log().contains("sk-secret"), "a key is in no log");
    // Another session of the same daemon has it as well.
    let mut other = sandbox.rpc();
    assert!(providers(&other.get("get_available_models")).contains(&"anthropic"));
}

#[test]
fn a_saved_key_is_the_one_that_is_sent_and_a_logout_takes_it_back() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    assert_eq!(key_sent(&server, &mut shim), API_KEY);
    save(&mut shim, PROVIDER, "mine");
    assert_eq!(key_sent(&server, &mut shim), "mine");
    shim.rest();
    let data = logout(&mut shim, PROVIDER);
    assert_eq!(keys(&data), ["provider", "authStatus", "models", "scopedModels"]);
    assert_eq!(data["authStatus"], json!({"configured": true, "source": "models_json"}));
    assert_eq!(kinds(&shim.rest()), ["response logout_provider"], "the model is the same");
    assert_eq!(key_sent(&server, &mut shim), API_KEY);
}

#[test]
fn a_logout_takes_any_name() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    for name in ["github-copilot", "no such provider", "", "ü/\"x\""] {
        let data = logout(&mut shim, name);
        assert_eq!((&data["provider"], &data["authStatus"]), (&json!(name), &json!({"configured": false})));
    }
    assert!(!sandbox.agent_dir().join("auth.json").exists(), "there was nothing to forget");
    save(&mut shim, "anthropic", "sk-a");
    save(&mut shim, "groq", "gsk");
    let data = logout(&mut shim, "anthropic");
    assert_eq!(data["authStatus"], json!({"configured": false}));
    assert!(!providers(&data).contains(&"anthropic"));
    let file = sandbox.agent_dir().join("auth.json");
    let stored: Value = serde_json::from_slice(&std::fs::read(file).expect("the file")).expect("JSON");
    assert_eq!(keys(&stored), ["groq"], "the others stay");
}

#[test]
fn a_key_of_the_environment_stays_and_is_named() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.shim().env("ANTHROPIC_API_KEY", "sk-env").start();
    save(&mut shim, "anthropic", "sk-saved");
    let data = logout(&mut shim, "anthropic");
    assert_eq!(
        data["authStatus"],
        json!({"configured": true, "source": "environment", "label": "ANTHROPIC_API_KEY"})
    );
    assert!(providers(&data).contains(&"anthropic"));
    assert!(!data.to_string().contains("sk-env"));
}

#[test]
fn a_login_needs_somebody_at_a_terminal_or_a_page() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    let mut login = |fields: Value| {
        let mut command = json!({"type": "login_provider", "provider": "anthropic"});
        command.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        shim.ask(command).error().to_owned()
    };
    assert_eq!(login(json!({"authType": "api_key"})), "Provider login requires an interactive input host");
    assert_eq!(login(json!({"authType": "oauth"})), "Unknown OAuth provider: anthropic");
    assert_eq!(login(json!({"provider": "nobody"})), "Unknown OAuth provider: nobody");
    let oauth = json!({"type": "oauth", "access": "a", "refresh": "r", "expires": 1});
    let save = json!({"type": "save_provider_credential", "provider": "anthropic", "credential": oauth});
    assert!(shim.ask(save).error().contains("is not built in this version"));
    let cancel = json!({"type": "cancel_login_provider", "provider": "anthropic"});
    assert_eq!(shim.ask(cancel).get("data"), None);
}

#[test]
fn a_file_that_cannot_be_read_is_never_overwritten() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let file = sandbox.write("home/.atomic/agent/auth.json", "{ not json");
    let credential = json!({"type": "api_key", "key": "sk-secret"});
    let command = json!({"type": "save_provider_credential", "provider": "groq", "credential": credential});
    let refused = shim.ask(command);
    assert!(refused.error().contains("auth.json") && !refused.raw.contains("sk-secret"), "{}", refused.raw);
    assert!(!shim.ask(json!({"type": "logout_provider", "provider": "groq"})).succeeded());
    assert_eq!(std::fs::read_to_string(file).expect("the file"), "{ not json");
}
