//! The body of a request. Its key order never changes: the provider's cache works on equal beginnings.

use std::borrow::Cow;

use atomic_protocol::json::{ObjectWriter, Raw, repair_surrogates};
use atomic_protocol::model::{Model, ModelRequest, ThinkingLevel};
use atomic_protocol::tool::ToolSpec;
use serde_json::{Map, Value};

use super::{Thinking, Traits};
use crate::body::{List, Mapped, count, joined, overridden};
use crate::estimate;
use crate::transform::{self, IdRule, Part, Turn};

/// The text of a result that is only images.
const IMAGE_ONLY: &str = "(see attached image)";

/// Begins the turn that shows the images of results to a model whose results cannot carry them.
const IMAGES_OF_RESULTS: &str = "Tool result image:";

const RULE: IdRule = IdRule { signed_text: true, ..IdRule::USUAL };

/// The JSON text of the request.
pub(super) fn body(request: &ModelRequest, budgets: &[Option<u64>; 4], sampling: Option<&Raw>) -> Vec<u8> {
    let model = &*request.model;
    let traits = Traits::of(&model.id);
    let mut out = Vec::with_capacity(4096);
    let mut object = ObjectWriter::begin(&mut out);
    contents(object.key("contents"), request, traits);
    if !request.system.trim().is_empty() {
        let mut system = ObjectWriter::begin(object.key("systemInstruction"));
        let mut parts = List::begin(system.str("role", "user").key("parts"));
        text(parts.item(), &request.system, None, false);
        parts.end();
        system.end();
    }
    if !request.tools.is_empty() {
        let mut list = List::begin(object.key("tools"));
        let mut tool = list.object();
        declarations(tool.key("functionDeclarations"), &request.tools);
        tool.end();
        list.end();
    }
    let max_tokens = estimate::answer_tokens(model, estimate::prompt_tokens(request));
    generation(object.key("generationConfig"), request, traits, max_tokens, budgets, sampling);
    object.end();
    out
}

fn generation(
    out: &mut Vec<u8>,
    request: &ModelRequest,
    traits: Traits,
    max_tokens: u64,
    budgets: &[Option<u64>; 4],
    sampling: Option<&Raw>,
) {
    let mut own = Vec::new();
    let mut config = ObjectWriter::begin(&mut own);
    config.int("maxOutputTokens", count(max_tokens));
    if request.model.reasoning {
        thinking(config.key("thinkingConfig"), &request.model, request.thinking, traits, budgets);
    }
    config.end();
    // What users call sampling parameters has its place in here.
    out.extend(match sampling {
        Some(sampling) => overridden(own, sampling),
        None => own,
    });
}

/// Only for models that think.
fn thinking(
    out: &mut Vec<u8>,
    model: &Model,
    level: ThinkingLevel,
    traits: Traits,
    budgets: &[Option<u64>; 4],
) {
    let mut config = ObjectWriter::begin(out);
    let on = level != ThinkingLevel::Off;
    if on {
        config.bool("includeThoughts", true);
    }
    match traits.thinking {
        Thinking::Level => {
            // A model that cannot stop thinking thinks as little as it can, and keeps it to itself.
            let level = model.clamp_thinking(level);
            if level == ThinkingLevel::Off {
                config.int("thinkingBudget", 0);
            } else {
                let word = Mapped::of(model, level).word_or(level.as_str()).to_ascii_uppercase();
                config.str("thinkingLevel", &word);
            }
        }
        Thinking::Budget(steps, least) => {
            let step = match level {
                ThinkingLevel::Off | ThinkingLevel::Minimal => 0,
                ThinkingLevel::Low => 1,
                ThinkingLevel::Medium => 2,
                ThinkingLevel::High | ThinkingLevel::Xhigh | ThinkingLevel::Max => 3,
            };
            let tokens = if on { budgets[step].map_or(steps[step], count) } else { least };
            config.int("thinkingBudget", tokens);
        }
    }
    config.end();
}

fn declarations(out: &mut Vec<u8>, tools: &[ToolSpec]) {
    let mut list = List::begin(out);
    for tool in tools {
        let mut object = list.object();
        object.str("name", &tool.name).str("description", &tool.description);
        let schema = repair_surrogates(tool.parameters.as_str());
        let schema = if schema.contains("\"const\"") { enumerated(&schema) } else { schema };
        object.raw("parametersJsonSchema", schema.as_bytes());
        object.end();
    }
    list.end();
}

/// The schema with each `const` as an `enum` of one value: the provider reads only the latter.
fn enumerated(schema: &str) -> Cow<'_, str> {
    /// Keys whose values map names of any kind to schemas.
    const NAMES: [&str; 6] =
        ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
    /// Keys whose values are data.
    const DATA: [&str; 4] = ["enum", "default", "examples", "required"];
    fn schema_of(value: Value) -> Value {
        match value {
            Value::Array(list) => Value::Array(list.into_iter().map(schema_of).collect()),
            Value::Object(object) => {
                let known = object.contains_key("enum");
                let mut out = Map::new();
                for (key, value) in object {
                    match key.as_str() {
                        "const" if !known && (value.is_string() || value.is_number()) => {
                            out.insert("enum".into(), Value::Array(vec![value]));
                        }
                        "const" => drop(out.insert(key, value)),
                        name if DATA.contains(&name) => drop(out.insert(key, value)),
                        name if NAMES.contains(&name) => drop(out.insert(key, names_of(value))),
                        _ => drop(out.insert(key, schema_of(value))),
                    }
                }
                Value::Object(out)
            }
            value => value,
        }
    }
    fn names_of(value: Value) -> Value {
        match value {
            Value::Object(object) => {
                Value::Object(object.into_iter().map(|(name, value)| (name, schema_of(value))).collect())
            }
            value => value,
        }
    }
    match serde_json::from_str(schema) {
        Ok(value) => Cow::Owned(schema_of(value).to_string()),
        Err(_) => Cow::Borrowed(schema),
    }
}

/// A result on its way.
struct Result<'a> {
    id: Cow<'a, str>,
    name: &'a str,
    text: Cow<'a, str>,
    images: Vec<Part<'a>>,
    is_error: bool,
}

fn contents(out: &mut Vec<u8>, request: &ModelRequest, traits: Traits) {
    let mut list = List::begin(out);
    // Results in a row share a turn.
    let mut results: Vec<Result<'_>> = Vec::new();
    for turn in transform::conversation(&request.messages, &request.model, &RULE) {
        match turn {
            Turn::User(mut parts) => {
                parts.retain(|part| !matches!(part, Part::Text("")));
                flush(&mut list, &mut results, traits);
                if !parts.is_empty() {
                    turn_of(&mut list, "user", &parts, traits);
                }
            }
            Turn::Assistant(mut parts) => {
                parts.retain(says_something);
                flush(&mut list, &mut results, traits);
                if !parts.is_empty() {
                    turn_of(&mut list, "model", &parts, traits);
                }
            }
            Turn::ToolResult { id, name, content, is_error } => {
                let texts: Vec<&str> = content.iter().filter_map(plain).collect();
                let text = joined(&texts, "\n");
                let images = content.into_iter().filter(|part| matches!(part, Part::Image { .. })).collect();
                results.push(Result { id, name, text, images, is_error });
            }
        }
    }
    flush(&mut list, &mut results, traits);
    list.end();
}

fn plain<'a>(part: &Part<'a>) -> Option<&'a str> {
    match part {
        Part::Text(text) => Some(text),
        _ => None,
    }
}

/// Whether a part of an answer is worth sending. An empty one is when it carries a signature.
fn says_something(part: &Part<'_>) -> bool {
    match part {
        Part::Text(text) => !text.trim().is_empty(),
        Part::SignedText { text, signature } => !text.trim().is_empty() || is_base64(signature),
        Part::Thinking { text, signature } => !text.trim().is_empty() || signature.is_some_and(is_base64),
        Part::Call { .. } => true,
        Part::Redacted { .. } | Part::Image { .. } => false,
    }
}

/// The provider refuses a signature of another form.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && !body.is_empty()
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

fn turn_of(list: &mut List<'_>, role: &str, parts: &[Part<'_>], traits: Traits) {
    let mut object = list.object();
    let mut all = List::begin(object.str("role", role).key("parts"));
    for part in parts {
        match part {
            Part::Text(words) => text(all.item(), words, None, false),
            Part::SignedText { text: words, signature } => text(all.item(), words, Some(signature), false),
            Part::Thinking { text: words, signature } => text(all.item(), words, *signature, true),
            Part::Image { .. } => image(all.item(), part),
            Part::Call { id, name, arguments, signature, .. } => {
                let mut object = all.object();
                let mut call = ObjectWriter::begin(object.key("functionCall"));
                call.str("name", name).raw("args", repair_surrogates(arguments.as_str()).as_bytes());
                if traits.ids {
                    call.str("id", id);
                }
                call.end();
                if let Some(signature) = signature.filter(|signature| is_base64(signature)) {
                    object.str("thoughtSignature", signature);
                }
                object.end();
            }
            Part::Redacted { .. } => {}
        }
    }
    all.end();
    object.end();
}

fn text(out: &mut Vec<u8>, words: &str, signature: Option<&str>, thought: bool) {
    let mut object = ObjectWriter::begin(out);
    if thought {
        object.bool("thought", true);
    }
    object.str("text", words);
    if let Some(signature) = signature.filter(|signature| is_base64(signature)) {
        object.str("thoughtSignature", signature);
    }
    object.end();
}

fn image(out: &mut Vec<u8>, part: &Part<'_>) {
    if let Part::Image { data, mime_type } = part {
        let mut object = ObjectWriter::begin(out);
        let mut inline = ObjectWriter::begin(object.key("inlineData"));
        inline.str("mimeType", mime_type).str("data", data);
        inline.end();
        object.end();
    }
}

/// Writes the results that wait, and after them their images if they cannot carry them themselves.
fn flush(list: &mut List<'_>, results: &mut Vec<Result<'_>>, traits: Traits) {
    if results.is_empty() {
        return;
    }
    let mut object = list.object();
    let mut parts = List::begin(object.str("role", "user").key("parts"));
    for result in &*results {
        let mut part = parts.object();
        let mut response = ObjectWriter::begin(part.key("functionResponse"));
        response.str("name", result.name);
        let blank = result.text.trim().is_empty();
        let shown = match (blank, result.images.is_empty()) {
            (true, true) => "",
            (true, false) => IMAGE_ONLY,
            (false, _) => &result.text,
        };
        let mut value = ObjectWriter::begin(response.key("response"));
        value.str(if result.is_error { "error" } else { "output" }, shown);
        value.end();
        if traits.images_in_results && !result.images.is_empty() {
            let mut images = List::begin(response.key("parts"));
            for part in &result.images {
                image(images.item(), part);
            }
            images.end();
        }
        if traits.ids {
            response.str("id", &result.id);
        }
        response.end();
        part.end();
    }
    parts.end();
    object.end();
    let mut images = results.iter().flat_map(|result| &result.images).peekable();
    if !traits.images_in_results && images.peek().is_some() {
        let mut object = list.object();
        let mut parts = List::begin(object.str("role", "user").key("parts"));
        text(parts.item(), IMAGES_OF_RESULTS, None, false);
        for part in images {
            image(parts.item(), part);
        }
        parts.end();
        object.end();
    }
    results.clear();
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
