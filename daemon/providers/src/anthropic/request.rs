//! The body of a request. Its key order never changes and cache marks stand at the same places turn after turn: the
//! provider's cache works on equal beginnings.

use std::borrow::Cow;

use atomic_protocol::json::{Fields, ObjectWriter, Raw, repair_surrogates, write_string};
use atomic_protocol::model::{Model, ModelRequest, ThinkingLevel};
use atomic_protocol::tool::ToolSpec;

use super::compat::Compat;
use crate::body::{overridden, without};
use crate::estimate;
use crate::registry::CacheRetention;
use crate::thinking_budget;
use crate::transform::{self, IdRule, Part, Turn};

/// The smallest budget the provider takes ("Extended thinking").
const MIN_BUDGET: u64 = 1024;

/// Goes before images when a tool returned nothing else: the provider wants text there.
const IMAGE_ONLY: &str = "(see attached image)";

/// The JSON text of the request.
pub(super) fn body(
    request: &ModelRequest,
    compat: &Compat,
    cache: CacheRetention,
    budgets: &[Option<u64>; 4],
    sampling: Option<&Raw>,
) -> Vec<u8> {
    let model = &*request.model;
    let mark: Option<&[u8]> = match cache {
        CacheRetention::None => None,
        CacheRetention::Long if compat.long_cache => Some(br#"{"type":"ephemeral","ttl":"1h"}"#),
        CacheRetention::Short | CacheRetention::Long => Some(br#"{"type":"ephemeral"}"#),
    };
    let max_tokens = estimate::answer_tokens(model, estimate::prompt_tokens(request));
    let mut out = Vec::with_capacity(4096);
    let mut object = ObjectWriter::begin(&mut out);
    object.str("model", &model.id);
    object.int("max_tokens", i64::try_from(max_tokens).unwrap_or(i64::MAX));
    object.bool("stream", true);
    if !request.system.trim().is_empty() {
        let out = object.key("system");
        out.push(b'[');
        text_block(out, &request.system, mark);
        out.push(b']');
    }
    messages(object.key("messages"), request, compat, mark);
    if !request.tools.is_empty() {
        let out = object.key("tools");
        out.push(b'[');
        for (index, tool) in request.tools.iter().enumerate() {
            comma(out, index);
            let last = index + 1 == request.tools.len();
            tool_block(out, tool, compat, mark.filter(|_| last && compat.cache_on_tools));
        }
        out.push(b']');
    }
    thinking(&mut object, model, request.thinking, compat, max_tokens, budgets);
    if !compat.fallbacks.is_empty() {
        let out = object.key("fallbacks");
        out.push(b'[');
        for (index, fallback) in compat.fallbacks.iter().enumerate() {
            comma(out, index);
            let mut object = ObjectWriter::begin(out);
            object.str("model", &fallback.model);
            object.end();
        }
        out.push(b']');
    }
    object.end();
    match sampling {
        // The provider refuses a temperature beside thinking, and some models refuse it always.
        Some(sampling) if !compat.temperature || request.thinking != ThinkingLevel::Off => {
            overridden(out, &without(sampling, "temperature"))
        }
        Some(sampling) => overridden(out, sampling),
        None => out,
    }
}

fn thinking(
    object: &mut ObjectWriter<'_>,
    model: &Model,
    level: ThinkingLevel,
    compat: &Compat,
    max_tokens: u64,
    budgets: &[Option<u64>; 4],
) {
    if !model.reasoning {
        return;
    }
    let word = model.thinking_level_map.as_ref().and_then(|map| map.get(&level));
    if level == ThinkingLevel::Off {
        // Null: this model cannot be told not to think.
        if word != Some(&None) {
            object.raw("thinking", br#"{"type":"disabled"}"#);
        }
        return;
    }
    if compat.adaptive_thinking {
        object.raw("thinking", br#"{"type":"adaptive","display":"summarized"}"#);
        let usual = match level {
            ThinkingLevel::Off | ThinkingLevel::Minimal | ThinkingLevel::Low => "low",
            ThinkingLevel::Medium => "medium",
            ThinkingLevel::High | ThinkingLevel::Xhigh | ThinkingLevel::Max => "high",
        };
        let effort = word.and_then(Option::as_deref).unwrap_or(usual);
        let mut config = ObjectWriter::begin(object.key("output_config"));
        config.str("effort", effort);
        config.end();
        return;
    }
    let budget = thinking_budget::budget(level, budgets, MIN_BUDGET, max_tokens);
    // A window that is almost full leaves no room to think.
    if budget >= MIN_BUDGET {
        let mut config = ObjectWriter::begin(object.key("thinking"));
        config.str("type", "enabled");
        config.int("budget_tokens", i64::try_from(budget).unwrap_or(i64::MAX));
        config.str("display", "summarized");
        config.end();
    } else if word != Some(&None) {
        object.raw("thinking", br#"{"type":"disabled"}"#);
    }
}

fn tool_block(out: &mut Vec<u8>, tool: &ToolSpec, compat: &Compat, mark: Option<&[u8]>) {
    let mut object = ObjectWriter::begin(out);
    object.str("name", &tool.name);
    object.str("description", &tool.description);
    let schema = Fields::parse(tool.parameters.as_str()).unwrap_or_default();
    let mut input = ObjectWriter::begin(object.key("input_schema"));
    input.str("type", "object");
    input.raw("properties", schema.get("properties").unwrap_or("{}").as_bytes());
    input.raw("required", schema.get("required").unwrap_or("[]").as_bytes());
    // What properties may refer to.
    for name in ["$defs", "definitions"] {
        if let Some(text) = schema.get(name) {
            input.raw(name, text.as_bytes());
        }
    }
    input.end();
    if compat.eager_tool_input {
        object.bool("eager_input_streaming", true);
    }
    if let Some(mark) = mark {
        object.raw("cache_control", mark);
    }
    object.end();
}

/// What goes into one message of the provider's conversation.
enum Outgoing<'a> {
    User(Vec<Part<'a>>),
    Assistant(Vec<Part<'a>>),
    /// Results in a row share a message.
    Results(Vec<(Cow<'a, str>, Vec<Part<'a>>, bool)>),
}

fn messages(out: &mut Vec<u8>, request: &ModelRequest, compat: &Compat, mark: Option<&[u8]>) {
    let mut outgoing: Vec<Outgoing<'_>> = Vec::new();
    for turn in transform::conversation(&request.messages, &request.model, &IdRule::USUAL) {
        match turn {
            Turn::User(mut parts) => {
                parts.retain(|part| !is_blank(part));
                if !parts.is_empty() {
                    outgoing.push(Outgoing::User(parts));
                }
            }
            Turn::Assistant(parts) => {
                let parts: Vec<Part<'_>> = parts
                    .into_iter()
                    .map(|part| replayed(part, compat))
                    .filter(|part| !is_blank(part))
                    .collect();
                if !parts.is_empty() {
                    outgoing.push(Outgoing::Assistant(parts));
                }
            }
            Turn::ToolResult { id, content, is_error, .. } => match outgoing.last_mut() {
                Some(Outgoing::Results(results)) => results.push((id, content, is_error)),
                _ => outgoing.push(Outgoing::Results(vec![(id, content, is_error)])),
            },
        }
    }
    out.push(b'[');
    let count = outgoing.len();
    for (index, message) in outgoing.iter().enumerate() {
        comma(out, index);
        let mark = mark.filter(|_| index + 1 == count);
        let mut object = ObjectWriter::begin(out);
        match message {
            Outgoing::User(parts) => blocks(object.str("role", "user").key("content"), parts, mark),
            Outgoing::Assistant(parts) => blocks(object.str("role", "assistant").key("content"), parts, None),
            Outgoing::Results(results) => {
                let out = object.str("role", "user").key("content");
                out.push(b'[');
                for (index, (id, content, is_error)) in results.iter().enumerate() {
                    comma(out, index);
                    let last = index + 1 == results.len();
                    result_block(out, id, content, *is_error, mark.filter(|_| last));
                }
                out.push(b']');
            }
        }
        object.end();
    }
    out.push(b']');
}

/// Thinking without a signature goes back as text, unless the endpoint takes an empty one.
fn replayed<'a>(part: Part<'a>, compat: &Compat) -> Part<'a> {
    match part {
        Part::Thinking { text, signature: None } if compat.empty_signature => {
            Part::Thinking { text, signature: Some("") }
        }
        Part::Thinking { text, signature: None } => Part::Text(text),
        part => part,
    }
}

fn is_blank(part: &Part<'_>) -> bool {
    matches!(part, Part::Text(text) if text.trim().is_empty())
}

fn blocks(out: &mut Vec<u8>, parts: &[Part<'_>], mark: Option<&[u8]>) {
    out.push(b'[');
    for (index, part) in parts.iter().enumerate() {
        comma(out, index);
        block(out, part, mark.filter(|_| index + 1 == parts.len()));
    }
    out.push(b']');
}

fn block(out: &mut Vec<u8>, part: &Part<'_>, mark: Option<&[u8]>) {
    if let Part::Text(text) = part {
        return text_block(out, text, mark);
    }
    let mut object = ObjectWriter::begin(out);
    match part {
        Part::Text(_) | Part::SignedText { .. } => {}
        Part::Image { data, mime_type } => {
            object.str("type", "image");
            let mut source = ObjectWriter::begin(object.key("source"));
            source.str("type", "base64").str("media_type", mime_type).str("data", data);
            source.end();
        }
        Part::Thinking { text, signature } => {
            object
                .str("type", "thinking")
                .str("thinking", text)
                .str("signature", signature.unwrap_or_default());
        }
        Part::Redacted { data } => {
            object.str("type", "redacted_thinking").str("data", data);
        }
        Part::Call { id, name, arguments, .. } => {
            object.str("type", "tool_use").str("id", id).str("name", name);
            object.raw("input", repair_surrogates(arguments.as_str()).as_bytes());
        }
    }
    if let Some(mark) = mark {
        object.raw("cache_control", mark);
    }
    object.end();
}

fn text_block(out: &mut Vec<u8>, text: &str, mark: Option<&[u8]>) {
    let mut object = ObjectWriter::begin(out);
    object.str("type", "text").str("text", text);
    if let Some(mark) = mark {
        object.raw("cache_control", mark);
    }
    object.end();
}

fn result_block(out: &mut Vec<u8>, id: &str, content: &[Part<'_>], is_error: bool, mark: Option<&[u8]>) {
    let mut object = ObjectWriter::begin(out);
    object.str("type", "tool_result").str("tool_use_id", id);
    let out = object.key("content");
    if content.iter().any(|part| matches!(part, Part::Image { .. })) {
        let shown: Vec<&Part<'_>> = content.iter().filter(|part| !is_blank(part)).collect();
        out.push(b'[');
        if shown.iter().all(|part| matches!(part, Part::Image { .. })) {
            text_block(out, IMAGE_ONLY, None);
            out.push(b',');
        }
        for (index, part) in shown.iter().enumerate() {
            comma(out, index);
            block(out, part, None);
        }
        out.push(b']');
    } else {
        let texts = content.iter().filter_map(|part| match part {
            Part::Text(text) => Some(*text),
            _ => None,
        });
        write_string(out, &texts.collect::<Vec<_>>().join("\n"));
    }
    object.bool("is_error", is_error);
    if let Some(mark) = mark {
        object.raw("cache_control", mark);
    }
    object.end();
}

fn comma(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use atomic_protocol::json::Raw;
    use atomic_protocol::message::Message;
    use atomic_protocol::model::ModelSpec;
    use std::sync::Arc;

    /// A request to a model like `spec` about `messages`.
    pub(in crate::anthropic) fn request(spec: &str, messages: &[&str]) -> ModelRequest {
        let spec: ModelSpec = serde_json::from_str(spec).unwrap();
        ModelRequest {
            model: Arc::new(Model::from_spec(spec)),
            thinking: ThinkingLevel::Off,
            system: Arc::from(""),
            messages: messages
                .iter()
                .map(|text| Message::parse(&Raw::parse(text).unwrap()).unwrap())
                .collect(),
            tools: Arc::from([]),
            session_id: "session".into(),
        }
    }

    pub(in crate::anthropic) fn tools() -> Arc<[ToolSpec]> {
        let tool = |name: &str, schema: &str| ToolSpec {
            name: name.into(),
            description: format!("does {name}"),
            parameters: Raw::parse(schema).unwrap(),
            snippet: None,
            guidelines: Vec::new(),
            sequential: false,
        };
        Arc::from([
            tool(
                "one",
                r#"{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":{"type":"string"}}}"#,
            ),
            tool("two", r#"{"$defs":{"x":{}}}"#),
        ])
    }

    fn written(request: &ModelRequest, cache: CacheRetention) -> String {
        String::from_utf8(body(request, &Compat::of(&request.model), cache, &[None; 4], None)).unwrap()
    }

    const PLAIN: &str = r#"{"id":"m","provider":"p","api":"anthropic-messages","input":["text","image"],"contextWindow":200000,"maxTokens":32000}"#;

    #[test]
    fn a_whole_body() {
        let mut request = request(
            PLAIN,
            &[
                r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"text","text":" "},{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#,
                r#"{"role":"assistant","provider":"p","api":"anthropic-messages","model":"m","stopReason":"toolUse","usage":{"input":10,"output":5},"content":[{"type":"thinking","thinking":"hm","thinkingSignature":"sig"},{"type":"thinking","thinking":"[Reasoning redacted]","thinkingSignature":"data","redacted":true},{"type":"thinking","thinking":"unsigned"},{"type":"text","text":""},{"type":"toolCall","id":"c|1","name":"one","arguments":{"z":1,"a":"\ud800"}},{"type":"toolCall","id":"c2","name":"two","arguments":{}},{"type":"toolCall","id":"c3","name":"two","arguments":null}]}"#,
                r#"{"role":"toolResult","toolCallId":"c|1","content":[{"type":"text","text":"l1"},{"type":"text","text":"l2"}]}"#,
                r#"{"role":"toolResult","toolCallId":"c2","isError":true,"content":[{"type":"image","data":"aQ==","mimeType":"image/jpeg"}]}"#,
                r#"{"role":"toolResult","toolCallId":"c3","content":[]}"#,
            ],
        );
        request.system = Arc::from("Be good.");
        request.tools = tools();
        let want = concat!(
            r#"{"model":"m","max_tokens":32000,"stream":true,"#,
            r#""system":[{"type":"text","text":"Be good.","cache_control":{"type":"ephemeral"}}],"messages":["#,
            r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]},"#,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"redacted_thinking","data":"data"},{"type":"text","text":"unsigned"},"#,
            r#"{"type":"tool_use","id":"c_1","name":"one","input":{"z":1,"a":"\uFFFD"}},{"type":"tool_use","id":"c2","name":"two","input":{}},{"type":"tool_use","id":"c3","name":"two","input":{}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c_1","content":"l1\nl2","is_error":false},"#,
            r#"{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"(see attached image)"},{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"aQ=="}}],"is_error":true},"#,
            r#"{"type":"tool_result","tool_use_id":"c3","content":"","is_error":false,"cache_control":{"type":"ephemeral"}}]}],"#,
            r#""tools":[{"name":"one","description":"does one","input_schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},"eager_input_streaming":true},"#,
            r#"{"name":"two","description":"does two","input_schema":{"type":"object","properties":{},"required":[],"$defs":{"x":{}}},"eager_input_streaming":true,"cache_control":{"type":"ephemeral"}}]}"#,
        );
        assert_eq!(written(&request, CacheRetention::Short), want);
        serde_json::from_str::<serde_json::Value>(want).unwrap();
        assert!(!written(&request, CacheRetention::None).contains("cache_control"));
        assert_eq!(written(&request, CacheRetention::Long).matches(r#""ttl":"1h""#).count(), 3);
    }

    #[test]
    fn endpoints_differ() {
        let spec = PLAIN.replace(
            r#""id":"m","#,
            r#""id":"m","compat":{"supportsEagerToolInputStreaming":false,"supportsLongCacheRetention":false,"supportsCacheControlOnTools":false,"allowEmptySignature":true,"allowedFallbackModels":["x",{"model":"y"}]},"#,
        );
        let mut request = request(
            &spec,
            &[
                r#"{"role":"user","content":"  "}"#,
                r#"{"role":"assistant","provider":"p","api":"anthropic-messages","model":"m","stopReason":"stop","content":[{"type":"thinking","thinking":"bare"}]}"#,
                r#"{"role":"user","content":"hi"}"#,
            ],
        );
        request.tools = tools();
        let body = written(&request, CacheRetention::Long);
        assert!(!body.contains("eager_input_streaming") && !body.contains("ttl"), "{body}");
        assert_eq!(body.matches("cache_control").count(), 1, "{body}");
        assert!(body.contains(r#""messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"bare","signature":""}]},{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]"#), "{body}");
        assert!(body.ends_with(r#""fallbacks":[{"model":"x"},{"model":"y"}]}"#), "{body}");
    }

    #[test]
    fn thinking_follows_model_and_level() {
        use ThinkingLevel::{High, Low, Max, Medium, Minimal, Off, Xhigh};
        let adaptive = r#""reasoning":true,"compat":{"forceAdaptiveThinking":true},"thinkingLevelMap":{"xhigh":"xhigh","low":"low-ish"}"#;
        let budget = r#""reasoning":true"#;
        let always = r#""reasoning":true,"thinkingLevelMap":{"off":null}"#;
        let enabled = |tokens: u64| {
            format!(r#","thinking":{{"type":"enabled","budget_tokens":{tokens},"display":"summarized"}}}}"#)
        };
        let effort = |word: &str| {
            format!(
                r#","thinking":{{"type":"adaptive","display":"summarized"}},"output_config":{{"effort":"{word}"}}}}"#
            )
        };
        let disabled = r#","thinking":{"type":"disabled"}}"#.to_owned();
        for (extra, level, max_tokens, want) in [
            (r#""reasoning":false"#, Off, 32_000, "]}".to_owned()),
            (budget, Off, 32_000, disabled.clone()),
            (always, Off, 32_000, "]}".to_owned()),
            (adaptive, Off, 32_000, disabled.clone()),
            (adaptive, Minimal, 32_000, effort("low")),
            (adaptive, Low, 32_000, effort("low-ish")),
            (adaptive, Medium, 32_000, effort("medium")),
            (adaptive, High, 32_000, effort("high")),
            (adaptive, Xhigh, 32_000, effort("xhigh")),
            (adaptive, Max, 32_000, effort("high")),
            (budget, Minimal, 32_000, enabled(1024)),
            (budget, Low, 32_000, enabled(2048)),
            (budget, Medium, 32_000, enabled(8192)),
            (budget, Max, 32_000, enabled(16_384)),
            (budget, High, 10_000, enabled(8976)),
            (budget, High, 2048, enabled(1024)),
            (budget, High, 2047, disabled.clone()),
        ] {
            let spec = format!(r#"{{"id":"m","contextWindow":0,"maxTokens":{max_tokens},{extra}}}"#);
            let mut request = request(&spec, &[r#"{"role":"user","content":"hi"}"#]);
            request.thinking = level;
            let body = written(&request, CacheRetention::None);
            assert!(body.ends_with(&want), "{extra} {level:?}: {body}");
        }
        let mut own = request(&format!(r#"{{"id":"m","maxTokens":32000,{budget}}}"#), &[]);
        own.thinking = High;
        let body =
            body(&own, &Compat::of(&own.model), CacheRetention::None, &[None, None, None, Some(3000)], None);
        assert!(String::from_utf8(body).unwrap().contains(r#""budget_tokens":3000"#));
    }
}
