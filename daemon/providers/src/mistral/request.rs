//! The body of a request. Its key order never changes: the provider's cache works on equal beginnings.

use std::borrow::Cow;

use atomic_protocol::json::{ObjectWriter, Raw, repair_surrogates};
use atomic_protocol::model::{Model, ModelRequest, ThinkingLevel};
use atomic_protocol::tool::ToolSpec;

use crate::body::{List, Mapped, count, data_uri, joined, overridden};
use crate::estimate;
use crate::registry::CacheRetention;
use crate::transform::{self, IdRule, Part, Turn};

/// The text of a result that is only images.
const IMAGE_ONLY: &str = "(see attached image)";

/// The text of a result that is nothing.
const NO_OUTPUT: &str = "(no tool output)";

/// Begins a result that is an error: the API has no field for it.
const ERROR: &str = "[tool error] ";

/// What the model says between results and the user's next words, where it said nothing: the provider refuses a user who
/// speaks right after a result ("Unexpected role 'user' after role 'tool'").
const BRIDGE: &str = "I have the results.";

/// Nine letters and digits, no more and no less.
const RULE: IdRule = IdRule {
    allowed: |c| c.is_ascii_alphanumeric(),
    shortest: 9,
    longest: 9,
    cut: 9,
    hashed: true,
    ..IdRule::USUAL
};

/// The JSON text of the request.
pub(super) fn body(request: &ModelRequest, cache: CacheRetention, sampling: Option<&Raw>) -> Vec<u8> {
    let model = &*request.model;
    let mut out = Vec::with_capacity(4096);
    let mut object = ObjectWriter::begin(&mut out);
    object.str("model", &model.id);
    object.bool("stream", true);
    messages(object.key("messages"), request);
    if !request.tools.is_empty() {
        tools(object.key("tools"), &request.tools);
    }
    let max_tokens = estimate::answer_tokens(model, estimate::prompt_tokens(request));
    object.int("max_tokens", count(max_tokens));
    if model.reasoning {
        thinking(&mut object, model, request.thinking);
    }
    if cache != CacheRetention::None && !request.session_id.is_empty() {
        object.str("prompt_cache_key", &request.session_id);
    }
    object.end();
    match sampling {
        Some(sampling) => overridden(out, sampling),
        None => out,
    }
}

/// Only for models that think: by a word where the model has words, else on or not.
fn thinking(object: &mut ObjectWriter<'_>, model: &Model, level: ThinkingLevel) {
    let on = level != ThinkingLevel::Off;
    match (Mapped::of(model, level), model.thinking_level_map.is_some()) {
        (Mapped::Word(word), _) => drop(object.str("reasoning_effort", word)),
        (_, true) if on => drop(object.str("reasoning_effort", "high")),
        (_, false) if on => drop(object.str("prompt_mode", "reasoning")),
        _ => {}
    }
}

fn tools(out: &mut Vec<u8>, tools: &[ToolSpec]) {
    let mut list = List::begin(out);
    for tool in tools {
        let mut object = list.object();
        object.str("type", "function");
        let mut function = ObjectWriter::begin(object.key("function"));
        function.str("name", &tool.name).str("description", &tool.description);
        function.raw("parameters", repair_surrogates(tool.parameters.as_str()).as_bytes());
        function.bool("strict", false);
        function.end();
        object.end();
    }
    list.end();
}

fn messages(out: &mut Vec<u8>, request: &ModelRequest) {
    let mut list = List::begin(out);
    if !request.system.trim().is_empty() {
        let mut object = list.object();
        object.str("role", "system").str("content", &request.system);
        object.end();
    }
    let mut after_result = false;
    for turn in transform::conversation(&request.messages, &request.model, &RULE) {
        let was_result = std::mem::replace(&mut after_result, matches!(turn, Turn::ToolResult { .. }));
        match turn {
            Turn::User(parts) => {
                let parts: Vec<Part<'_>> =
                    parts.into_iter().filter(|part| !matches!(part, Part::Text(""))).collect();
                if parts.is_empty() {
                    after_result = was_result;
                } else {
                    if was_result {
                        let mut object = list.object();
                        object.str("role", "assistant").str("content", BRIDGE);
                        object.end();
                    }
                    let mut object = list.object();
                    object.str("role", "user");
                    match &parts[..] {
                        [Part::Text(text)] => drop(object.str("content", text)),
                        parts => content(object.key("content"), parts),
                    }
                    object.end();
                }
            }
            Turn::Assistant(parts) => after_result = !answer(&mut list, &parts) && was_result,
            Turn::ToolResult { id, name, content: parts, is_error } => {
                let mut object = list.object();
                object.str("role", "tool").str("tool_call_id", &id).str("name", name);
                let texts: Vec<&str> = parts
                    .iter()
                    .filter_map(|part| match part {
                        Part::Text(text) => Some(*text),
                        _ => None,
                    })
                    .collect();
                let said = joined(&texts, "\n");
                let images = parts.iter().filter(|part| matches!(part, Part::Image { .. }));
                let said = match said.trim() {
                    "" if images.clone().next().is_some() => IMAGE_ONLY,
                    "" => NO_OUTPUT,
                    said => said,
                };
                let said = if is_error { Cow::Owned(format!("{ERROR}{said}")) } else { Cow::Borrowed(said) };
                let first = Part::Text(&said);
                content(object.key("content"), std::iter::once(&first).chain(images));
                object.end();
            }
        }
    }
    list.end();
}

fn content<'p>(out: &mut Vec<u8>, parts: impl IntoIterator<Item = &'p Part<'p>>) {
    let mut list = List::begin(out);
    for part in parts {
        match part {
            Part::Text(text) => {
                let mut object = list.object();
                object.str("type", "text").str("text", text);
                object.end();
            }
            Part::Image { data, mime_type } => {
                let mut object = list.object();
                object.str("type", "image_url");
                data_uri(object.key("image_url"), mime_type, data);
                object.end();
            }
            Part::Thinking { text, .. } => {
                let mut object = list.object();
                object.str("type", "thinking");
                content(object.key("thinking"), [&Part::Text(text)]);
                object.end();
            }
            Part::SignedText { .. } | Part::Redacted { .. } | Part::Call { .. } => {}
        }
    }
    list.end();
}

/// Whether there was something to say.
fn answer(list: &mut List<'_>, parts: &[Part<'_>]) -> bool {
    let said: Vec<&Part<'_>> = parts
        .iter()
        .filter(|part| match part {
            Part::Text(text) | Part::Thinking { text, .. } => !text.trim().is_empty(),
            _ => false,
        })
        .collect();
    let calls: Vec<(&str, &str, &Raw)> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Call { id, name, arguments, .. } => Some((&**id, *name, *arguments)),
            _ => None,
        })
        .collect();
    if said.is_empty() && calls.is_empty() {
        return false;
    }
    let mut object = list.object();
    object.str("role", "assistant");
    if !said.is_empty() {
        content(object.key("content"), said);
    }
    if !calls.is_empty() {
        let mut list = List::begin(object.key("tool_calls"));
        for (id, name, arguments) in calls {
            let mut call = list.object();
            call.str("id", id).str("type", "function");
            let mut function = ObjectWriter::begin(call.key("function"));
            function.str("name", name).str("arguments", &repair_surrogates(arguments.as_str()));
            function.end();
            call.end();
        }
        list.end();
    }
    object.end();
    true
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
