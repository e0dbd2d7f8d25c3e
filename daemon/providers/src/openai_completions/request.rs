//! The body of a request. Its key order never changes and what stands before the newest message stays as it was: the
//! provider's cache works on equal beginnings.

use std::borrow::Cow;

use atomic_protocol::json::{Fields, ObjectWriter, Raw, repair_surrogates, write_string};
use atomic_protocol::model::{Model, ModelRequest, ThinkingLevel};
use atomic_protocol::tool::ToolSpec;

use super::compat::{Compat, ThinkingFormat};
use super::{IMAGES_OF_RESULTS, REASONING_FIELDS};
use crate::body::{clipped, count, data_uri, joined, overridden};
use crate::estimate;
use crate::registry::{CacheRetention, RequestOptions};
use crate::thinking_budget;
use crate::transform::{self, IdRule, Part, Turn};

/// The id of a tool call at OpenAI (API reference, "tool_call_id": at most 40 characters).
const OPENAI_ID: usize = 40;

/// Ids of other providers go back as they came, because some name the call in their reasoning details; this only bounds
/// them.
const OTHER_ID: usize = 256;

/// Longest name of a cache (OpenAI API reference, "prompt_cache_key"), in characters.
const CACHE_KEY_CHARS: usize = 64;

/// The text of a result that is only images.
const IMAGE_ONLY: &str = "(see attached image)";

/// The text of a result that is nothing.
const NO_OUTPUT: &str = "(no tool output)";

/// Stands between tool results and a user message where an endpoint wants an answer there.
const AFTER_RESULTS: &str = "Tool results received.";

/// The JSON text of the request. `name` is what the endpoint calls the model.
pub(super) fn body(
    request: &ModelRequest,
    compat: &Compat,
    cache: CacheRetention,
    name: &str,
    options: &RequestOptions,
    sampling: Option<&Raw>,
) -> Vec<u8> {
    let model = &*request.model;
    let long = cache == CacheRetention::Long && compat.long_cache;
    let mark: Option<&[u8]> = match cache {
        _ if !compat.cache_marks => None,
        CacheRetention::None => None,
        _ if long => Some(br#"{"type":"ephemeral","ttl":"1h"}"#),
        CacheRetention::Short | CacheRetention::Long => Some(br#"{"type":"ephemeral"}"#),
    };
    let max_tokens = estimate::answer_tokens(model, estimate::prompt_tokens(request));
    let mut out = Vec::with_capacity(4096);
    let mut object = ObjectWriter::begin(&mut out);
    object.str("model", name);
    let has_calls = messages(object.key("messages"), request, compat, mark);
    object.bool("stream", true);
    if compat.usage {
        object.raw("stream_options", br#"{"include_usage":true}"#);
    }
    if compat.store {
        object.bool("store", false);
    }
    object.int(compat.max_tokens, count(max_tokens));
    if !request.tools.is_empty() {
        tools(object.key("tools"), &request.tools, compat, mark);
        if compat.tool_stream {
            object.bool("tool_stream", true);
        }
    } else if has_calls && compat.empty_tools {
        object.raw("tools", b"[]");
    }
    if (compat.cache_key && cache != CacheRetention::None) || long {
        object.str("prompt_cache_key", clipped(&request.session_id, CACHE_KEY_CHARS));
    }
    if long {
        object.str("prompt_cache_retention", "24h");
    }
    if let Some(priority) = compat.priority {
        object.int("priority", priority);
    }
    if model.reasoning {
        thinking(&mut object, model, request.thinking, compat, max_tokens, &options.thinking_budgets);
    }
    if let Some(router) = &compat.router {
        object.raw("provider", router.bytes());
    }
    if let Some(gateway) = compat.gateway.as_ref().and_then(gateway_options) {
        object.raw("providerOptions", &gateway);
    }
    object.end();
    match sampling {
        Some(sampling) => overridden(out, sampling),
        None => out,
    }
}

fn gateway_options(routing: &Raw) -> Option<Vec<u8>> {
    let fields = Fields::parse(routing.as_str()).ok()?;
    let parts: Vec<(&str, &str)> =
        ["only", "order"].into_iter().filter_map(|name| Some((name, fields.get(name)?))).collect();
    if parts.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    let mut object = ObjectWriter::begin(&mut out);
    let mut gateway = ObjectWriter::begin(object.key("gateway"));
    for (name, list) in parts {
        gateway.raw(name, list.as_bytes());
    }
    gateway.end();
    object.end();
    Some(out)
}

/// Only for models that think.
fn thinking(
    object: &mut ObjectWriter<'_>,
    model: &Model,
    level: ThinkingLevel,
    compat: &Compat,
    max_tokens: u64,
    budgets: &[Option<u64>; 4],
) {
    let on = level != ThinkingLevel::Off;
    // Missing, null and a word are three things: the level's own name, nothing to send, that word.
    let mapped = model.thinking_level_map.as_ref().and_then(|map| map.get(&level));
    let word = mapped.and_then(Option::as_deref);
    // Null: this model cannot be told not to think.
    let can_stop = on || mapped != Some(&None);
    let effort = word.or(if on { Some(level.as_str()) } else { None });
    let strict_effort = if mapped == Some(&None) { None } else { effort };
    let budget = match thinking_budget::budget(level, budgets, 1, max_tokens) {
        0 => None,
        budget => on.then_some(budget),
    };
    // `reasoning_effort` beside a switch: only for what is on.
    let beside = |object: &mut ObjectWriter<'_>, effort: Option<&str>| {
        if let Some(effort) = effort.filter(|_| on && compat.effort) {
            object.str("reasoning_effort", effort);
        }
    };
    match compat.thinking {
        ThinkingFormat::OpenAi => {
            if let Some(effort) = effort.filter(|_| compat.effort) {
                object.str("reasoning_effort", effort);
            }
        }
        ThinkingFormat::OpenRouter => {
            if can_stop {
                let mut reasoning = ObjectWriter::begin(object.key("reasoning"));
                reasoning.str("effort", effort.unwrap_or("none"));
                reasoning.end();
            }
        }
        ThinkingFormat::AntLing => {
            if let Some(word) = word.filter(|_| on) {
                let mut reasoning = ObjectWriter::begin(object.key("reasoning"));
                reasoning.str("effort", word);
                reasoning.end();
            }
        }
        ThinkingFormat::StringThinking => {
            if can_stop {
                object.str("thinking", effort.unwrap_or("none"));
            }
        }
        ThinkingFormat::DeepSeek => {
            if on {
                object.raw("thinking", br#"{"type":"enabled"}"#);
            } else if can_stop {
                object.raw("thinking", br#"{"type":"disabled"}"#);
            }
            beside(object, effort);
        }
        ThinkingFormat::Zai => {
            if on {
                // What was thought in earlier turns stays readable to the model, and in its cache.
                object.raw("thinking", br#"{"type":"enabled","clear_thinking":false}"#);
            } else if can_stop {
                object.raw("thinking", br#"{"type":"disabled"}"#);
            }
            beside(object, strict_effort);
        }
        ThinkingFormat::Together => {
            if can_stop {
                object.raw("reasoning", if on { br#"{"enabled":true}"# } else { br#"{"enabled":false}"# });
            }
            beside(object, effort);
        }
        ThinkingFormat::Qwen => {
            if can_stop {
                object.bool("enable_thinking", on);
            }
            beside(object, effort);
        }
        ThinkingFormat::QwenChatTemplate => {
            let mut kwargs = ObjectWriter::begin(object.key("chat_template_kwargs"));
            kwargs.bool("enable_thinking", on).bool("preserve_thinking", true);
            kwargs.end();
        }
        ThinkingFormat::ChatTemplate => {
            if let Some(values) = template(compat.template_kwargs.as_ref(), on, strict_effort, budget) {
                object.raw("chat_template_kwargs", &values);
            }
        }
        ThinkingFormat::Baseten => {
            if let Some(values) = template(compat.template_args.as_ref(), on, strict_effort, budget) {
                object.raw("chat_template_args", &values);
            }
            if let Some(effort) = strict_effort.filter(|_| compat.effort) {
                object.str("reasoning_effort", effort);
            }
        }
    }
    if let (Some(field), Some(budget)) = (compat.budget_field, budget) {
        object.int(field, count(budget));
    }
}

/// Configured values for the server's chat template. `{"$var":…}` stands for what is being asked, with `omitWhenOff` only
/// while thinking is on.
fn template(values: Option<&Raw>, on: bool, effort: Option<&str>, budget: Option<u64>) -> Option<Vec<u8>> {
    let fields = Fields::parse(values?.as_str()).ok()?;
    let mut out = Vec::new();
    let mut object = ObjectWriter::begin(&mut out);
    let mut any = false;
    for (name, value) in fields.iter() {
        let Some(variable) = value.starts_with('{').then(|| Fields::parse(value).unwrap_or_default()) else {
            object.raw(name, value.as_bytes());
            any = true;
            continue;
        };
        if !on && variable.get("omitWhenOff") == Some("true") {
            continue;
        }
        match (variable.str("$var").as_deref(), budget, effort) {
            (Some("thinking.enabled"), ..) => object.bool(name, on),
            (Some("thinking.budget"), Some(budget), _) => object.int(name, count(budget)),
            (Some("thinking.effort"), _, Some(effort)) => object.str(name, effort),
            _ => continue,
        };
        any = true;
    }
    object.end();
    any.then_some(out)
}

fn tools(out: &mut Vec<u8>, tools: &[ToolSpec], compat: &Compat, mark: Option<&[u8]>) {
    out.push(b'[');
    for (index, tool) in tools.iter().enumerate() {
        comma(out, index);
        let mut object = ObjectWriter::begin(out);
        object.str("type", "function");
        let mut function = ObjectWriter::begin(object.key("function"));
        function.str("name", &tool.name).str("description", &tool.description);
        function.raw("parameters", repair_surrogates(tool.parameters.as_str()).as_bytes());
        if compat.strict {
            function.bool("strict", false);
        }
        function.end();
        if let Some(mark) = mark.filter(|_| index + 1 == tools.len()) {
            object.raw("cache_control", mark);
        }
        object.end();
    }
    out.push(b']');
}

/// A message of the provider's conversation.
enum Outgoing<'a> {
    User(Vec<Part<'a>>),
    Assistant(Answer<'a>),
    Result { id: Cow<'a, str>, name: &'a str, content: Cow<'a, str> },
}

/// An answer that goes back.
#[derive(Default)]
struct Answer<'a> {
    content: Cow<'a, str>,
    /// The field that carries thinking, and what.
    thought: Option<(&'static str, Cow<'a, str>)>,
    /// A list, verbatim.
    details: Option<&'a str>,
    calls: Vec<(Cow<'a, str>, &'a str, &'a Raw)>,
}

impl<'a> Answer<'a> {
    fn of(parts: Vec<Part<'a>>, model: &Model, compat: &Compat) -> Answer<'a> {
        let mut answer = Answer::default();
        let mut texts: Vec<&str> = Vec::new();
        let mut thoughts: Vec<&str> = Vec::new();
        let mut field = None;
        for part in parts {
            match part {
                Part::Text(text) if !text.trim().is_empty() => texts.push(text),
                Part::Thinking { text, signature } => {
                    let signature = signature.unwrap_or_default();
                    if answer.details.is_none() && is_details(signature) {
                        answer.details = Some(signature);
                    }
                    if !text.trim().is_empty() {
                        if thoughts.is_empty() {
                            field = REASONING_FIELDS.into_iter().find(|field| *field == signature);
                        }
                        thoughts.push(text);
                    }
                }
                Part::Call { id, name, arguments, .. } => answer.calls.push((id, name, arguments)),
                Part::Text(_) | Part::SignedText { .. } | Part::Image { .. } | Part::Redacted { .. } => {}
            }
        }
        if compat.thinking_as_text {
            thoughts.append(&mut texts);
            texts = thoughts;
        } else if let (Some(field), None) = (field, answer.details) {
            answer.thought = Some((field, joined(&thoughts, "\n")));
        }
        answer.content = joined(&texts, "\n\n");
        let named = answer.thought.as_ref().is_some_and(|(field, _)| *field == "reasoning_content");
        if compat.reasoning_content && model.reasoning && !named {
            answer.thought = Some(("reasoning_content", Cow::Borrowed("")));
        }
        answer
    }
}

/// Whether a signature is the list of reasoning details that came with the thinking.
fn is_details(signature: &str) -> bool {
    signature.starts_with('[')
        && serde_json::from_str::<Vec<serde::de::IgnoredAny>>(signature).is_ok_and(|list| !list.is_empty())
}

fn outgoing<'a>(request: &'a ModelRequest, compat: &Compat) -> Vec<Outgoing<'a>> {
    let model = &*request.model;
    let rule = IdRule {
        allowed: |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':'),
        longest: if model.provider == "openai" { OPENAI_ID } else { OTHER_ID },
        cut: OPENAI_ID,
        ..IdRule::USUAL
    };
    let mut list: Vec<Outgoing<'a>> = Vec::new();
    // Images of the results in a row: they follow the last of them.
    let mut images: Vec<Part<'a>> = Vec::new();
    let show = |list: &mut Vec<Outgoing<'a>>, images: &mut Vec<Part<'a>>| {
        if !images.is_empty() {
            bridge(list, compat);
            let head = Part::Text(IMAGES_OF_RESULTS);
            list.push(Outgoing::User(std::iter::once(head).chain(images.drain(..)).collect()));
        }
    };
    for turn in transform::conversation(&request.messages, model, &rule) {
        match turn {
            Turn::User(mut parts) => {
                parts.retain(|part| !matches!(part, Part::Text("")));
                if !parts.is_empty() {
                    show(&mut list, &mut images);
                    bridge(&mut list, compat);
                    list.push(Outgoing::User(parts));
                }
            }
            Turn::Assistant(parts) => {
                let answer = Answer::of(parts, model, compat);
                // Neither content nor calls: some endpoints refuse such a message and none needs it.
                if !answer.content.is_empty() || !answer.calls.is_empty() {
                    show(&mut list, &mut images);
                    list.push(Outgoing::Assistant(answer));
                }
            }
            Turn::ToolResult { id, name, content, .. } => {
                let mut texts: Vec<&str> = Vec::new();
                let before = images.len();
                for part in content {
                    match part {
                        Part::Text(text) => texts.push(text),
                        image @ Part::Image { .. } => images.push(image),
                        _ => {}
                    }
                }
                let content = match joined(&texts, "\n") {
                    text if !text.is_empty() => text,
                    _ if images.len() > before => Cow::Borrowed(IMAGE_ONLY),
                    _ => Cow::Borrowed(NO_OUTPUT),
                };
                list.push(Outgoing::Result { id, name, content });
            }
        }
    }
    show(&mut list, &mut images);
    list
}

/// Where an endpoint takes no user message right after tool results.
fn bridge(list: &mut Vec<Outgoing<'_>>, compat: &Compat) {
    if compat.assistant_after_result && matches!(list.last(), Some(Outgoing::Result { .. })) {
        list.push(Outgoing::Assistant(Answer { content: Cow::Borrowed(AFTER_RESULTS), ..Answer::default() }));
    }
}

/// Writes the conversation; says whether it has tool calls.
fn messages(out: &mut Vec<u8>, request: &ModelRequest, compat: &Compat, mark: Option<&[u8]>) -> bool {
    let list = outgoing(request, compat);
    let marked = mark.and_then(|_| list.iter().rposition(has_text));
    out.push(b'[');
    let mut written = 0;
    if !request.system.trim().is_empty() {
        let developer = request.model.reasoning && compat.developer_role;
        let mut object = ObjectWriter::begin(out);
        object.str("role", if developer { "developer" } else { "system" });
        text(object.key("content"), &request.system, mark);
        object.end();
        written = 1;
    }
    let mut has_calls = false;
    for (index, message) in list.iter().enumerate() {
        comma(out, written);
        written += 1;
        let mark = mark.filter(|_| marked == Some(index));
        let mut object = ObjectWriter::begin(out);
        match message {
            Outgoing::User(parts) => user(object.str("role", "user").key("content"), parts, mark),
            Outgoing::Assistant(answer) => {
                assistant(&mut object, answer, compat, mark);
                has_calls |= !answer.calls.is_empty();
            }
            Outgoing::Result { id, name, content } => {
                object.str("role", "tool").str("tool_call_id", id);
                if compat.result_name && !name.is_empty() {
                    object.str("name", name);
                }
                text(object.key("content"), content, mark);
            }
        }
        object.end();
    }
    out.push(b']');
    has_calls
}

fn has_text(message: &Outgoing<'_>) -> bool {
    match message {
        Outgoing::User(parts) => parts.iter().any(|part| matches!(part, Part::Text(_))),
        Outgoing::Assistant(answer) => !answer.content.is_empty(),
        Outgoing::Result { .. } => true,
    }
}

/// A plain string; in a list when it carries a mark.
fn text(out: &mut Vec<u8>, content: &str, mark: Option<&[u8]>) {
    if mark.is_none() {
        return write_string(out, content);
    }
    out.push(b'[');
    text_part(out, content, mark);
    out.push(b']');
}

fn text_part(out: &mut Vec<u8>, content: &str, mark: Option<&[u8]>) {
    let mut object = ObjectWriter::begin(out);
    object.str("type", "text").str("text", content);
    if let Some(mark) = mark {
        object.raw("cache_control", mark);
    }
    object.end();
}

fn user(out: &mut Vec<u8>, parts: &[Part<'_>], mark: Option<&[u8]>) {
    if let [Part::Text(content)] = parts {
        return text(out, content, mark);
    }
    let marked = parts.iter().rposition(|part| matches!(part, Part::Text(_)));
    out.push(b'[');
    for (index, part) in parts.iter().enumerate() {
        comma(out, index);
        match part {
            Part::Image { data, mime_type } => {
                let mut object = ObjectWriter::begin(out);
                object.str("type", "image_url");
                let mut image = ObjectWriter::begin(object.key("image_url"));
                data_uri(image.key("url"), mime_type, data);
                image.end();
                object.end();
            }
            Part::Text(content) => text_part(out, content, mark.filter(|_| marked == Some(index))),
            // A user says text and shows images, nothing else.
            Part::SignedText { .. } | Part::Thinking { .. } | Part::Redacted { .. } | Part::Call { .. } => {
                write_string(out, "")
            }
        }
    }
    out.push(b']');
}

fn assistant(object: &mut ObjectWriter<'_>, answer: &Answer<'_>, compat: &Compat, mark: Option<&[u8]>) {
    object.str("role", "assistant");
    if !answer.content.is_empty() {
        text(object.key("content"), &answer.content, mark);
    } else if compat.assistant_after_result {
        object.str("content", "");
    } else {
        object.raw("content", b"null");
    }
    if let Some((field, thought)) = &answer.thought {
        object.str(field, thought);
    }
    if let Some(details) = answer.details {
        object.raw("reasoning_details", repair_surrogates(details).as_bytes());
    }
    if answer.calls.is_empty() {
        return;
    }
    let out = object.key("tool_calls");
    out.push(b'[');
    for (index, (id, name, arguments)) in answer.calls.iter().enumerate() {
        comma(out, index);
        let mut call = ObjectWriter::begin(out);
        call.str("id", id).str("type", "function");
        let mut function = ObjectWriter::begin(call.key("function"));
        function.str("name", name).str("arguments", &repair_surrogates(arguments.as_str()));
        function.end();
        call.end();
    }
    out.push(b']');
}

fn comma(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
pub(super) mod tests;
