//! The body of a request. Its key order never changes and what stands before the newest message stays as it was: the
//! provider's cache works on equal beginnings.

use std::borrow::Cow;

use atomic_protocol::json::{Fields, ObjectWriter, Raw, repair_surrogates, write_string};
use atomic_protocol::model::{Model, ModelRequest, ThinkingLevel};
use atomic_protocol::tool::ToolSpec;

use super::compat::Compat;
use crate::body::{List, Mapped, clipped, count, data_uri, joined, overridden};
use crate::estimate;
use crate::registry::CacheRetention;
use crate::transform::{self, IdRule, Part, Turn};

/// The provider refuses a smaller limit of output tokens.
const MIN_OUTPUT_TOKENS: u64 = 16;

/// Longest name of a cache (OpenAI API reference, "prompt_cache_key"), in characters.
const CACHE_KEY_CHARS: usize = 64;

/// Longest id of an item of the conversation, in characters.
const ITEM_ID_CHARS: usize = 64;

/// The text of a result that is only images a model cannot see.
const IMAGE_ONLY: &str = "(see attached image)";

/// The text of a result that is nothing.
const NO_OUTPUT: &str = "(no tool output)";

/// Asks for thinking in the form in which it can go back without being stored there.
const INCLUDE: &[u8] = br#"["reasoning.encrypted_content"]"#;

const RULE: IdRule = IdRule { paired: true, signed_text: true, ..IdRule::USUAL };

/// The JSON text of the request. `name` is what the endpoint calls the model.
pub(super) fn body(
    request: &ModelRequest,
    compat: &Compat,
    cache: CacheRetention,
    name: &str,
    sampling: Option<&Raw>,
) -> Vec<u8> {
    let model = &*request.model;
    let mut out = Vec::with_capacity(4096);
    let mut object = ObjectWriter::begin(&mut out);
    object.str("model", name);
    input(object.key("input"), request, compat);
    object.bool("stream", true);
    if cache != CacheRetention::None && compat.cache_key && !request.session_id.is_empty() {
        object.str("prompt_cache_key", clipped(&request.session_id, CACHE_KEY_CHARS));
    }
    match cache {
        CacheRetention::Long if !compat.long_cache => {}
        CacheRetention::Long if compat.explicit_cache => {
            object.raw("prompt_cache_options", br#"{"ttl":"30m"}"#);
        }
        CacheRetention::Long => drop(object.str("prompt_cache_retention", "24h")),
        // Nothing is cached that is not marked, and we mark nothing.
        CacheRetention::None if compat.explicit_cache => {
            object.raw("prompt_cache_options", br#"{"mode":"explicit"}"#);
        }
        CacheRetention::None | CacheRetention::Short => {}
    }
    object.bool("store", false);
    if compat.max_tokens {
        let tokens = estimate::answer_tokens(model, estimate::prompt_tokens(request));
        object.int("max_output_tokens", count(tokens.max(MIN_OUTPUT_TOKENS)));
    }
    if !request.tools.is_empty() {
        tools(object.key("tools"), &request.tools, compat);
    }
    if model.reasoning {
        reasoning(&mut object, model, request.thinking, compat);
    }
    object.end();
    match sampling {
        Some(sampling) => overridden(out, sampling),
        None => out,
    }
}

/// Only for models that think.
fn reasoning(object: &mut ObjectWriter<'_>, model: &Model, level: ThinkingLevel, compat: &Compat) {
    let mapped = Mapped::of(model, level);
    // This provider's models say what they thought even when they are asked not to think.
    let always = model.provider == "xai";
    if level != ThinkingLevel::Off {
        let mut reasoning = ObjectWriter::begin(object.key("reasoning"));
        if compat.effort {
            reasoning.str("effort", mapped.word_or(level.as_str()));
        }
        reasoning.str("summary", "auto");
        reasoning.end();
        object.raw("include", INCLUDE);
        return;
    }
    // Null: this model cannot be told not to think.
    if mapped != Mapped::Null && compat.effort {
        let mut reasoning = ObjectWriter::begin(object.key("reasoning"));
        reasoning.str("effort", mapped.word_or("none"));
        reasoning.end();
    }
    if always {
        object.raw("include", INCLUDE);
    }
}

fn tools(out: &mut Vec<u8>, tools: &[ToolSpec], compat: &Compat) {
    let mut list = List::begin(out);
    for tool in tools {
        let mut object = list.object();
        object.str("type", "function").str("name", &tool.name).str("description", &tool.description);
        object.raw("parameters", repair_surrogates(tool.parameters.as_str()).as_bytes());
        if compat.strict {
            object.bool("strict", false);
        }
        object.end();
    }
    list.end();
}

fn input(out: &mut Vec<u8>, request: &ModelRequest, compat: &Compat) {
    let model = &*request.model;
    let mut list = List::begin(out);
    if !request.system.trim().is_empty() {
        let role = if model.reasoning && compat.developer_role { "developer" } else { "system" };
        let mut object = list.object();
        object.str("role", role).str("content", &request.system);
        object.end();
    }
    for (at, turn) in transform::conversation(&request.messages, model, &RULE).iter().enumerate() {
        match turn {
            Turn::User(parts) => {
                let parts: Vec<&Part<'_>> =
                    parts.iter().filter(|part| !matches!(part, Part::Text(""))).collect();
                if !parts.is_empty() {
                    let mut object = list.object();
                    content(object.str("role", "user").key("content"), parts);
                    object.end();
                }
            }
            Turn::Assistant(parts) => answer(&mut list, parts, at),
            Turn::ToolResult { id, content, .. } => {
                let mut object = list.object();
                object.str("type", "function_call_output").str("call_id", id);
                output(object.key("output"), content);
                object.end();
            }
        }
    }
    list.end();
}

/// Text and images, in a list.
fn content<'p>(out: &mut Vec<u8>, parts: impl IntoIterator<Item = &'p Part<'p>>) {
    let mut list = List::begin(out);
    for part in parts {
        match part {
            Part::Text(text) => {
                let mut object = list.object();
                object.str("type", "input_text").str("text", text);
                object.end();
            }
            Part::Image { data, mime_type } => {
                let mut object = list.object();
                object.str("type", "input_image").str("detail", "auto");
                data_uri(object.key("image_url"), mime_type, data);
                object.end();
            }
            // Users and tools say text and show images, nothing else.
            Part::SignedText { .. } | Part::Thinking { .. } | Part::Redacted { .. } | Part::Call { .. } => {}
        }
    }
    list.end();
}

/// What a tool returned: a string, or a list when there are images.
fn output(out: &mut Vec<u8>, parts: &[Part<'_>]) {
    let texts: Vec<&str> = parts.iter().filter_map(text_of).collect();
    let text = joined(&texts, "\n");
    let blank = text.trim().is_empty();
    let images: Vec<&Part<'_>> = parts.iter().filter(|part| matches!(part, Part::Image { .. })).collect();
    if images.is_empty() {
        return write_string(out, if blank { NO_OUTPUT } else { &text });
    }
    let first = Part::Text(if blank { IMAGE_ONLY } else { &text });
    content(out, (!blank).then_some(&first).into_iter().chain(images));
}

fn text_of<'a>(part: &Part<'a>) -> Option<&'a str> {
    match part {
        Part::Text(text) => Some(text),
        _ => None,
    }
}

/// What the model said, item by item. `at` is the turn's place, which names items that have no name of their own.
fn answer(list: &mut List<'_>, parts: &[Part<'_>], at: usize) {
    // The provider refuses reasoning that nothing follows, such as that of an answer which was cut off.
    let last = parts.iter().rposition(|part| match part {
        Part::Text(text) | Part::SignedText { text, .. } => !text.trim().is_empty(),
        Part::Call { .. } => true,
        Part::Image { .. } | Part::Thinking { .. } | Part::Redacted { .. } => false,
    });
    let led_to_something = last.map_or(0, |last| last + 1);
    // Calls are told apart from reasoning by their item's id; without the one the other does not go back either.
    let mut whole = true;
    for (number, part) in parts[..led_to_something].iter().enumerate() {
        match part {
            Part::Thinking { signature: Some(item), .. } => {
                match goes_back(item) {
                    Some(true) => list.item().extend_from_slice(repair_surrogates(item).as_bytes()),
                    Some(false) => whole = false,
                    // A signature of another form; the provider would refuse it.
                    None => {}
                }
            }
            Part::Text(text) if !text.trim().is_empty() => {
                message(list, text, &format!("msg_{at}_{number}"), None)
            }
            Part::SignedText { text, signature } if !text.trim().is_empty() => {
                let signed = Signature::parse(signature);
                let id = signed.id.filter(|id| !id.is_empty() && id.chars().count() <= ITEM_ID_CHARS);
                let id = id.unwrap_or_else(|| Cow::Owned(format!("msg_{at}_{number}")));
                message(list, text, &id, signed.phase);
            }
            Part::Call { id, name, arguments, item, .. } => {
                let mut object = list.object();
                object.str("type", "function_call");
                if let Some(item) = item.filter(|item| whole && is_call_item(item)) {
                    object.str("id", item);
                }
                object.str("call_id", id).str("name", name);
                object.str("arguments", &repair_surrogates(arguments.as_str()));
                object.end();
            }
            Part::Text(_)
            | Part::SignedText { .. }
            | Part::Image { .. }
            | Part::Thinking { .. }
            | Part::Redacted { .. } => {}
        }
    }
}

/// Whether a reasoning item says all by itself; `None`: the signature is no such item. One with neither its encrypted part
/// nor its text is only an id, and nothing is stored under it (`store:false`): "Item with id 'rs_…' not found. Items are
/// not persisted when `store` is set to false" (OpenAI, "Encrypted reasoning items").
fn goes_back(item: &str) -> Option<bool> {
    let fields = Fields::parse(item).ok()?;
    (fields.str("type")? == "reasoning").then(|| {
        let sealed = fields.str("encrypted_content").is_some_and(|sealed| !sealed.is_empty());
        sealed || fields.get("content").is_some_and(|text| text.starts_with('[') && text.contains('{'))
    })
}

/// What the provider takes as the id of a function call item.
fn is_call_item(id: &str) -> bool {
    id.len() <= ITEM_ID_CHARS
        && id.strip_prefix("fc_").is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        })
}

fn message(list: &mut List<'_>, text: &str, id: &str, phase: Option<&'static str>) {
    let mut object = list.object();
    object.str("type", "message").str("role", "assistant");
    let mut content = List::begin(object.key("content"));
    let mut part = content.object();
    part.str("type", "output_text").str("text", text).raw("annotations", b"[]");
    part.end();
    content.end();
    object.str("status", "completed").str("id", id);
    if let Some(phase) = phase {
        object.str("phase", phase);
    }
    object.end();
}

/// What a text's signature says about its message item.
pub(super) struct Signature<'a> {
    id: Option<Cow<'a, str>>,
    phase: Option<&'static str>,
}

impl<'a> Signature<'a> {
    /// The form written by [`Signature::write`]; anything else is a bare id, as older sessions have it.
    fn parse(text: &'a str) -> Signature<'a> {
        match Fields::parse(text) {
            Ok(fields) => {
                let phase = fields.str("phase").and_then(|word| phase(&word));
                Signature { id: fields.str("id"), phase }
            }
            Err(_) => Signature { id: Some(Cow::Borrowed(text)), phase: None },
        }
    }

    pub(super) fn write(id: &str, word: Option<&str>) -> String {
        let mut out = Vec::new();
        let mut object = ObjectWriter::begin(&mut out);
        object.int("v", 1).str("id", id);
        if let Some(word) = word.and_then(phase) {
            object.str("phase", word);
        }
        object.end();
        String::from_utf8(out).unwrap_or_default()
    }
}

/// The phases of an answer that the provider knows.
fn phase(word: &str) -> Option<&'static str> {
    ["commentary", "final_answer"].into_iter().find(|known| *known == word)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
