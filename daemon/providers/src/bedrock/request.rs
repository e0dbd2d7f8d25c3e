//! The body of a request. Its key order never changes and cache points stand at the same places turn after turn: the
//! provider's cache works on equal beginnings.

use std::borrow::Cow;

use atomic_protocol::json::{ObjectWriter, Raw, repair_surrogates};
use atomic_protocol::model::{Model, ModelRequest, ThinkingLevel};
use atomic_protocol::tool::ToolSpec;

use super::place;
use crate::body::{List, Mapped, count};
use crate::env::Env;
use crate::estimate;
use crate::registry::CacheRetention;
use crate::thinking_budget;
use crate::transform::{self, IdRule, Part, Turn};

/// Stands for text that is blank where the provider wants some.
const EMPTY: &str = "<empty>";

/// Begins the images of a result that is an error: with such a result Claude takes text only.
const IMAGES_OF_ERRORS: &str = "Images of the failed tool calls:";

/// The smallest budget Claude takes.
const MIN_BUDGET: u64 = 1024;

/// Lets models with a thinking budget think between tool calls.
const BETA_INTERLEAVED: &[u8] = br#"["interleaved-thinking-2025-05-14"]"#;

/// What is known about a model by its id and its name. An inference profile of the user's own has an id that says
/// nothing, so its name counts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traits {
    claude: bool,
    /// Claude that decides itself how long it thinks.
    adaptive: bool,
    /// Takes cache points.
    cache: bool,
    gpt: Option<Gpt>,
    /// In a part of AWS that does not know how thinking is to be shown.
    government: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gpt {
    /// `reasoning_effort`, of three words.
    Open,
    /// `reasoning: {effort}`.
    Other,
}

impl Traits {
    fn of(model: &Model, env: &Env) -> Traits {
        let clean = |text: &str| text.to_ascii_lowercase().replace([' ', '_', '.', ':'], "-");
        let (id, name) = (clean(&model.id), clean(&model.name));
        let named = |parts: &[&str]| parts.iter().any(|part| id.contains(part) || name.contains(part));
        let claude = named(&["anthropic-claude", "anthropic/claude"]) || name.contains("claude");
        let five = ["fable-5", "opus-5", "sonnet-5", "haiku-5"];
        let adaptive = claude && (named(&five) || named(&["opus-4-6", "opus-4-7", "opus-4-8", "sonnet-4-6"]));
        let known = named(&five) || named(&["-4-", "claude-3-7-sonnet", "claude-3-5-haiku"]);
        let forced = env.get("AWS_BEDROCK_FORCE_CACHE") == Some("1");
        let gpt = match (named(&["gpt-oss"]), named(&["gpt-"])) {
            _ if claude => None,
            (true, _) => Some(Gpt::Open),
            (false, true) => Some(Gpt::Other),
            (false, false) => None,
        };
        Traits {
            claude,
            adaptive,
            cache: if named(&["claude"]) { known } else { forced },
            gpt,
            government: place::region(model, env, None).starts_with("us-gov-")
                || id.starts_with("us-gov-")
                || id.starts_with("arn-aws-us-gov-"),
        }
    }
}

/// The JSON text of the request.
pub(super) fn body(
    request: &ModelRequest,
    cache: CacheRetention,
    budgets: &[Option<u64>; 4],
    env: &Env,
) -> Vec<u8> {
    let model = &*request.model;
    let traits = Traits::of(model, env);
    let point: Option<&[u8]> = match cache {
        _ if !traits.cache => None,
        CacheRetention::None => None,
        CacheRetention::Short => Some(br#"{"cachePoint":{"type":"default"}}"#),
        CacheRetention::Long => Some(br#"{"cachePoint":{"type":"default","ttl":"1h"}}"#),
    };
    let max_tokens = estimate::answer_tokens(model, estimate::prompt_tokens(request));
    let mut out = Vec::with_capacity(4096);
    let mut object = ObjectWriter::begin(&mut out);
    messages(object.key("messages"), request, traits, point);
    if !request.system.trim().is_empty() {
        let mut list = List::begin(object.key("system"));
        text(list.item(), &request.system);
        if let Some(point) = point {
            list.item().extend_from_slice(point);
        }
        list.end();
    }
    let mut config = ObjectWriter::begin(object.key("inferenceConfig"));
    config.int("maxTokens", count(max_tokens));
    config.end();
    let past = if request.tools.is_empty() { past_tools(request) } else { Vec::new() };
    if !request.tools.is_empty() || !past.is_empty() {
        let mut config = ObjectWriter::begin(object.key("toolConfig"));
        tools(config.key("tools"), if past.is_empty() { &request.tools } else { &past });
        config.end();
    }
    if model.reasoning && request.thinking != ThinkingLevel::Off {
        thinking(&mut object, model, request.thinking, traits, max_tokens, budgets);
    }
    object.end();
    out
}

/// The tools that a conversation speaks of when there are none any more: the provider refuses calls and results of a
/// request that names no tools ("The toolConfig field must be defined").
fn past_tools(request: &ModelRequest) -> Vec<ToolSpec> {
    let mut names: Vec<&str> = Vec::new();
    let turns = transform::conversation(&request.messages, &request.model, &IdRule::USUAL);
    for part in turns.iter().flat_map(|turn| match turn {
        Turn::Assistant(parts) => &parts[..],
        _ => &[],
    }) {
        if let Part::Call { name, .. } = part
            && !names.contains(name)
        {
            names.push(name);
        }
    }
    let gone = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: "No longer available.".to_owned(),
        parameters: Raw::parse(r#"{"type":"object"}"#).expect("this is JSON"),
        snippet: None,
        guidelines: Vec::new(),
        sequential: false,
    };
    names.into_iter().map(gone).collect()
}

/// Fields of the model's own vendor. Only for models that are to think.
fn thinking(
    object: &mut ObjectWriter<'_>,
    model: &Model,
    level: ThinkingLevel,
    traits: Traits,
    max_tokens: u64,
    budgets: &[Option<u64>; 4],
) {
    let mapped = Mapped::of(model, level);
    let low = match level {
        ThinkingLevel::Off | ThinkingLevel::Minimal | ThinkingLevel::Low => Some("low"),
        ThinkingLevel::Medium => Some("medium"),
        ThinkingLevel::High => Some("high"),
        ThinkingLevel::Xhigh | ThinkingLevel::Max => None,
    };
    let budget = thinking_budget::budget(level, budgets, MIN_BUDGET, max_tokens);
    // A window that is almost full leaves no room to think.
    if (!traits.claude && traits.gpt.is_none()) || (traits.claude && !traits.adaptive && budget < MIN_BUDGET)
    {
        return;
    }
    let mut fields = ObjectWriter::begin(object.key("additionalModelRequestFields"));
    if traits.claude {
        let mut thinking = ObjectWriter::begin(fields.key("thinking"));
        if traits.adaptive {
            thinking.str("type", "adaptive");
        } else {
            thinking.str("type", "enabled").int("budget_tokens", count(budget));
        }
        if !traits.government {
            thinking.str("display", "summarized");
        }
        thinking.end();
        if traits.adaptive {
            let mut config = ObjectWriter::begin(fields.key("output_config"));
            config.str("effort", mapped.word_or(low.unwrap_or("high")));
            config.end();
        } else {
            fields.raw("anthropic_beta", BETA_INTERLEAVED);
        }
    }
    match traits.gpt {
        Some(Gpt::Open) => drop(fields.str("reasoning_effort", low.unwrap_or("high"))),
        Some(Gpt::Other) => {
            let mut reasoning = ObjectWriter::begin(fields.key("reasoning"));
            reasoning.str("effort", mapped.word_or(low.unwrap_or(level.as_str())));
            reasoning.end();
        }
        None => {}
    }
    fields.end();
}

fn tools(out: &mut Vec<u8>, tools: &[ToolSpec]) {
    let mut list = List::begin(out);
    for tool in tools {
        let mut object = list.object();
        let mut spec = ObjectWriter::begin(object.key("toolSpec"));
        spec.str("name", &tool.name).str("description", &tool.description);
        let mut schema = ObjectWriter::begin(spec.key("inputSchema"));
        schema.raw("json", repair_surrogates(tool.parameters.as_str()).as_bytes());
        schema.end();
        spec.end();
        object.end();
    }
    list.end();
}

/// A result on its way.
struct Outcome<'a> {
    id: Cow<'a, str>,
    content: Vec<Part<'a>>,
    is_error: bool,
}

/// A message of the provider's conversation. Roles alternate there, so what one side says in a row is one message, with
/// the results of calls at its beginning.
struct Outgoing<'a> {
    user: bool,
    results: Vec<Outcome<'a>>,
    parts: Vec<Part<'a>>,
}

fn messages(out: &mut Vec<u8>, request: &ModelRequest, traits: Traits, point: Option<&[u8]>) {
    let mut outgoing: Vec<Outgoing<'_>> = Vec::new();
    for turn in transform::conversation(&request.messages, &request.model, &IdRule::USUAL) {
        let (user, result, mut parts) = match turn {
            Turn::User(parts) => (true, None, parts),
            Turn::Assistant(parts) => {
                (false, None, parts.into_iter().map(|part| replayed(part, traits)).collect())
            }
            Turn::ToolResult { id, content, is_error, .. } => {
                (true, Some(Outcome { id, content, is_error }), Vec::new())
            }
        };
        parts.retain(|part| !is_blank(part));
        if parts.is_empty() && result.is_none() {
            // An answer of nothing is left out. A prompt of nothing is still a prompt.
            if !user || outgoing.last().is_some_and(|last| last.user) {
                continue;
            }
        }
        // Results come before what the user says next, so a new one never follows words.
        match outgoing.last_mut() {
            Some(last) if last.user == user => {
                last.results.extend(result);
                last.parts.append(&mut parts);
            }
            _ => outgoing.push(Outgoing { user, results: result.into_iter().collect(), parts }),
        }
    }
    let last = outgoing.len().saturating_sub(1);
    let mut list = List::begin(out);
    for (index, message) in outgoing.iter().enumerate() {
        let mut object = list.object();
        object.str("role", if message.user { "user" } else { "assistant" });
        let mut content = List::begin(object.key("content"));
        results(&mut content, &message.results, traits);
        if message.parts.is_empty() && message.results.is_empty() {
            text(content.item(), EMPTY);
        }
        for part in &message.parts {
            block(content.item(), part);
        }
        if let Some(point) = point.filter(|_| index == last && message.user) {
            content.item().extend_from_slice(point);
        }
        content.end();
        object.end();
    }
    list.end();
}

/// Claude signs what it thought and wants nothing back that is not signed; others take thinking without a signature.
fn replayed<'a>(part: Part<'a>, traits: Traits) -> Part<'a> {
    match part {
        Part::Thinking { text, signature: None } if traits.claude => Part::Text(text),
        Part::Thinking { text, .. } if !traits.claude => Part::Thinking { text, signature: None },
        part => part,
    }
}

fn is_blank(part: &Part<'_>) -> bool {
    match part {
        Part::Text(text) | Part::SignedText { text, .. } => text.trim().is_empty(),
        Part::Thinking { text, signature } => text.trim().is_empty() && signature.is_none(),
        Part::Redacted { data } => !is_base64(data),
        Part::Image { .. } | Part::Call { .. } => false,
    }
}

/// What was withheld is kept as base64; the provider refuses anything else.
fn is_base64(text: &str) -> bool {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).is_ok_and(|bytes| !bytes.is_empty())
}

fn text(out: &mut Vec<u8>, words: &str) {
    let mut object = ObjectWriter::begin(out);
    object.str("text", words);
    object.end();
}

fn block(out: &mut Vec<u8>, part: &Part<'_>) {
    match part {
        Part::Text(words) | Part::SignedText { text: words, .. } => text(out, words),
        Part::Image { data, mime_type } => {
            let format = match mime_type.strip_prefix("image/") {
                Some("jpg" | "jpeg") => "jpeg",
                Some(format @ ("png" | "gif" | "webp")) => format,
                _ => return text(out, &format!("(image omitted: the provider does not take {mime_type})")),
            };
            let mut object = ObjectWriter::begin(out);
            let mut image = ObjectWriter::begin(object.key("image"));
            image.str("format", format);
            let mut source = ObjectWriter::begin(image.key("source"));
            source.str("bytes", data);
            source.end();
            image.end();
            object.end();
        }
        Part::Thinking { text, signature } => {
            let mut object = ObjectWriter::begin(out);
            let mut content = ObjectWriter::begin(object.key("reasoningContent"));
            let mut reasoning = ObjectWriter::begin(content.key("reasoningText"));
            reasoning.str("text", text);
            if let Some(signature) = signature {
                reasoning.str("signature", signature);
            }
            reasoning.end();
            content.end();
            object.end();
        }
        Part::Redacted { data } => {
            let mut object = ObjectWriter::begin(out);
            let mut content = ObjectWriter::begin(object.key("reasoningContent"));
            content.str("redactedContent", data);
            content.end();
            object.end();
        }
        Part::Call { id, name, arguments, .. } => {
            let mut object = ObjectWriter::begin(out);
            let mut call = ObjectWriter::begin(object.key("toolUse"));
            call.str("toolUseId", id).str("name", name);
            call.raw("input", repair_surrogates(arguments.as_str()).as_bytes());
            call.end();
            object.end();
        }
    }
}

fn results(list: &mut List<'_>, all: &[Outcome<'_>], traits: Traits) {
    let is_image = |part: &&Part<'_>| matches!(part, Part::Image { .. });
    let mut images: Vec<&Part<'_>> = Vec::new();
    for Outcome { id, content, is_error } in all {
        let mut object = list.object();
        let mut result = ObjectWriter::begin(object.key("toolResult"));
        result.str("toolUseId", id);
        let apart = traits.claude && *is_error;
        let shown: Vec<&Part<'_>> =
            content.iter().filter(|part| !(is_blank(part) || apart && is_image(part))).collect();
        if apart {
            images.extend(content.iter().filter(is_image));
        }
        let mut parts = List::begin(result.key("content"));
        if shown.is_empty() {
            text(parts.item(), EMPTY);
        }
        for part in shown {
            block(parts.item(), part);
        }
        parts.end();
        result.str("status", if *is_error { "error" } else { "success" });
        result.end();
        object.end();
    }
    if !images.is_empty() {
        text(list.item(), IMAGES_OF_ERRORS);
        for image in images {
            block(list.item(), image);
        }
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
