//! Every compat flag of the shipped catalog does what it is there for.
//!
//! For each API, flag and value: among the models that carry it there is one whose requests, headers or answers would be
//! others without it. Flags that only tell clients something are shown to clients; the few that serve what our sessions
//! do not do stand in a table with the reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use atomic_protocol::json::{Fields, Raw};
use atomic_protocol::model::{Model, ModelEvent, ModelSpec, ThinkingLevel};
use serde_json::{Map, Value, json};

use crate::registry::{CacheRetention, RequestOptions};
use crate::{Catalog, anthropic, openai_completions, openai_responses, proof};

/// What clients are told a model can be held to (seed 001, "get_available_models"). No tool of ours asks for it.
const CLAIMS: &[(&str, &str)] = &[
    ("anthropic-messages", "supportsStrictTools"),
    ("azure-openai-responses", "supportsOpenAIGrammarTools"),
    ("bedrock-converse-stream", "supportsStrictMode"),
    ("openai-responses", "supportsOpenAIGrammarTools"),
];

/// These serve conversations whose system prompt, tools or thinking level change half-way by messages of their own: ours
/// sends all of them anew with each request, which every model takes (DIFFERENCES.md).
const NOT_NEEDED: &[(&str, &str)] = &[
    ("anthropic-messages", "supportsMidConvoEffort"),
    ("anthropic-messages", "supportsMidConvoSystemMessages"),
    ("anthropic-messages", "supportsMidConvoToolChanges"),
    ("openai-completions", "supportsMidConvoSystemMessages"),
    ("openai-completions", "supportsMidConvoToolAdditions"),
    ("openai-responses", "supportsAdditionalTools"),
    ("openai-responses", "supportsMidConvoEffort"),
    ("openai-responses", "supportsMidConvoSystemMessages"),
    ("openai-responses", "supportsToolSearch"),
];

/// The model with other flags.
fn with(model: &Model, compat: Map<String, Value>) -> Model {
    let compat = Raw::parse(&Value::Object(compat).to_string()).unwrap();
    Model::from_spec(ModelSpec { compat: Some(compat), ..model.spec.clone() })
}

/// All that goes out for a model, and what it makes of a short answer.
fn wire(model: &Model) -> String {
    let thought = |content: &str| {
        format!(
            r#"{{"role":"assistant","provider":{},"api":{},"model":{},"stopReason":"toolUse","content":[{content}]}}"#,
            json!(model.provider),
            json!(model.api),
            json!(model.id)
        )
    };
    let messages = [
        r#"{"role":"user","content":"question"}"#.to_owned(),
        thought(
            r#"{"type":"thinking","thinking":"unsigned"},{"type":"text","text":"words"},{"type":"toolCall","id":"call_1","name":"one","arguments":{}}"#,
        ),
        r#"{"role":"toolResult","toolCallId":"call_1","content":[{"type":"text","text":"result"}]}"#
            .to_owned(),
    ];
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    let mut request = proof::request(r#"{"id":"m"}"#, &messages);
    request.model = Arc::new(model.clone());
    request.system = "Be good.".into();
    let mut out = String::new();
    for tools in [Arc::from([]), proof::tools()] {
        request.tools = tools;
        for thinking in [ThinkingLevel::Off, ThinkingLevel::Low, ThinkingLevel::High] {
            request.thinking = model.clamp_thinking(thinking);
            for cache in [CacheRetention::None, CacheRetention::Short, CacheRetention::Long] {
                let options = RequestOptions::default();
                let body = crate::body_of(&request, cache, &options);
                out.push_str(&String::from_utf8(body).unwrap());
                let headers = match model.api.as_str() {
                    openai_completions::API => openai_completions::headers_of(&request, cache),
                    openai_responses::API => openai_responses::headers_of(&request, cache),
                    anthropic::API => {
                        let warm = Raw::parse(r#"{"temperature":0.5}"#).unwrap();
                        let body = anthropic::body_of(&request, cache, &options, Some(&warm));
                        out.push_str(&String::from_utf8(body).unwrap());
                        anthropic::headers_of(&request)
                    }
                    _ => continue,
                };
                writeln!(out, "{headers:?}").unwrap();
                for (name, value) in &headers {
                    writeln!(out, "{name}: {value:?}").unwrap();
                }
            }
        }
    }
    if model.api == openai_completions::API {
        let text = proof::events(&[r#"{"id":"c","choices":[{"delta":{"content":"x"}}]}"#]);
        let outcome = proof::run(openai_completions::answer(model), [text.as_bytes()]);
        writeln!(out, "{outcome:?}").unwrap();
    }
    out
}

/// Other values that a flag could have: none, and for words and yes or no another one.
fn others(value: &Value) -> Vec<Option<Value>> {
    let mut others = vec![None];
    match value {
        Value::Bool(flag) => others.push(Some(json!(!flag))),
        // A word that nobody knows, and one that most endpoints know.
        Value::String(_) => others.extend([Some(json!("another")), Some(json!("openai"))]),
        _ => {}
    }
    others
}

#[test]
fn every_flag_of_the_catalog_does_something() {
    let catalog = Catalog::shipped();
    let mut models: BTreeMap<(String, String, String), Vec<&Model>> = BTreeMap::new();
    for model in catalog.providers().flat_map(|provider| catalog.models(provider)) {
        let compat = model.compat.as_ref().map_or("{}", Raw::as_str);
        for (name, value) in Fields::parse(compat).unwrap().iter() {
            models.entry((model.api.clone(), name.to_owned(), value.to_owned())).or_default().push(model);
        }
    }
    let mut proved = 0;
    for ((api, name, value), models) in &models {
        let row = (api.as_str(), name.as_str());
        // The second name of a claim; a test of the protocol keeps the two in step.
        if NOT_NEEDED.contains(&row) || name == "supportsGrammarTools" {
            continue;
        }
        if CLAIMS.contains(&row) {
            for model in models {
                let shown: Value = serde_json::from_str(model.raw.as_str()).unwrap();
                assert_eq!(shown["compat"][name].to_string(), *value, "{}", model.id);
                if name == "supportsOpenAIGrammarTools" {
                    assert_eq!(shown["compat"]["supportsGrammarTools"], shown["compat"][name]);
                }
            }
            continue;
        }
        let matters = models.iter().any(|model| {
            let compat: Map<String, Value> =
                serde_json::from_str(model.compat.as_ref().unwrap().as_str()).unwrap();
            let is = wire(model);
            others(&compat[name]).into_iter().any(|other| {
                let mut compat = compat.clone();
                match other {
                    Some(other) => drop(compat.insert(name.clone(), other)),
                    None => drop(compat.remove(name)),
                }
                wire(&with(model, compat)) != is
            })
        });
        assert!(matters, "{api}: {name} {value} of {} models does nothing", models.len());
        proved += 1;
    }
    assert!(proved > 30, "{proved}");
    for (api, name) in CLAIMS.iter().chain(NOT_NEEDED) {
        assert!(models.keys().any(|(a, n, _)| a == api && n == name), "no model of {api} has {name}");
    }
}

/// A model that answers in place of another is counted at its own prices.
#[test]
fn allowed_fallbacks_bring_their_prices() {
    let model = proof::model(
        r#"{"id":"m","cost":{"output":1},"compat":{"allowedFallbackModels":[{"model":"other","cost":{"input":0,"output":9,"cacheRead":0,"cacheWrite":0}}]}}"#,
    );
    for (name, want) in [("m", 1.0), ("other", 9.0)] {
        let text = format!(
            "data: {{\"type\":\"message_start\",\"message\":{{\"model\":\"{name}\",\"usage\":{{\"output_tokens\":1000000}}}}}}\n\n"
        );
        let (events, _) = proof::run(anthropic::answer(&model), [text.as_bytes()]);
        let total = events.iter().find_map(|event| match event {
            ModelEvent::Usage(usage) => Some(usage.cost.total),
            _ => None,
        });
        assert_eq!(total, Some(want), "{name}");
    }
}
