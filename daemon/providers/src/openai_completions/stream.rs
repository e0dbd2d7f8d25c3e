//! What the provider streams, in our words. Chunks are read into flat structs that borrow: a delta is looked at once and
//! copied once. Blocks end when the answer ends, because nothing on the wire ends them before.

use std::fmt;

use atomic_protocol::json;
use atomic_protocol::message::{StopReason, Usage};
use atomic_protocol::model::{Model, ModelEvent, ModelFailure};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::REASONING_FIELDS;
use super::reasoning::Details;
use super::think_tag::{Piece, ThinkTag};
use crate::blocks::{Blocks, call_end};
use crate::http::cut;
use crate::pump::{Flow, Mapper};
use crate::record::{self, Record};
use crate::sse;
use crate::wire::{Count, Text};

/// The last event's data.
const DONE: &str = "[DONE]";

/// An answer as it grows.
pub(super) struct Answer<'m> {
    model: &'m Model,
    /// The endpoint says why an answer ends.
    says_why: bool,
    blocks: Blocks,
    /// In order; a block's position is its index.
    begun: Vec<Block>,
    tag: ThinkTag,
    details: Details,
    calls: Vec<Call>,
    stop: Option<String>,
}

/// What has begun. There is one text and one thinking block in an answer.
enum Block {
    Text,
    /// With the field it came in.
    Thinking(Option<&'static str>),
    /// The position in [`Answer::calls`].
    Call(usize),
}

/// A call as it grows.
#[derive(Default)]
struct Call {
    theirs: Option<u64>,
    id: String,
    name: String,
    json: String,
    /// Our index, once it has been announced: not before its name is known.
    index: Option<usize>,
}

impl<'m> Answer<'m> {
    pub(super) fn new(model: &'m Model, says_why: bool) -> Answer<'m> {
        Answer {
            model,
            says_why,
            blocks: Blocks::default(),
            begun: Vec::new(),
            tag: ThinkTag::default(),
            details: Details::default(),
            calls: Vec::new(),
            stop: None,
        }
    }

    fn start(&mut self, id: Option<Text<'_>>, model: Option<Text<'_>>, out: &mut Vec<ModelEvent>) {
        self.blocks.start(self.model, id.as_deref(), model.as_deref(), out);
    }

    fn chunk(&mut self, chunk: Chunk<'_>, text: &str, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let choice = chunk.choices.0;
        let word = choice.as_ref().and_then(|choice| choice.finish_reason.as_deref()).unwrap_or_default();
        // An error inside an answer that began with status 200.
        let error = [chunk.error, choice.as_ref().and_then(|choice| choice.error)].into_iter().flatten();
        if let Some(error) = error.map(RawValue::get).find(|error| says_something(error)) {
            return Err(failure(error, word));
        }
        if &*chunk.object == "error" || &*chunk.kind == "error" {
            return Err(failure(text, word));
        }
        let named = |text: &Option<Text<'_>>| text.as_ref().is_some_and(|text| !text.is_empty());
        // Azure begins with a chunk that only has the verdict on the prompt.
        if choice.is_some() || named(&chunk.id) || named(&chunk.model) {
            self.start(chunk.id, chunk.model, out);
        }
        let (usage, choice_usage) = (chunk.usage, choice.as_ref().and_then(|choice| choice.usage.as_ref()));
        if let Some(usage) = usage.as_ref().filter(|usage| usage.counts()).or(choice_usage) {
            self.count(usage, out);
        }
        if !word.is_empty() {
            self.stop = Some(cut(word));
        }
        let Some(choice) = choice else { return Ok(()) };
        // A server that does not stream sends a whole message.
        match (choice.delta, choice.message) {
            (Some(delta), None) | (None, Some(delta)) => self.grow(delta, out),
            (Some(delta), Some(message)) => self.grow(if delta.is_empty() { message } else { delta }, out),
            (None, None) => {}
        }
        Ok(())
    }

    /// What the provider says replaces what it said before.
    fn count(&mut self, wire: &WireUsage, out: &mut Vec<ModelEvent>) {
        if !wire.counts() {
            return;
        }
        let prompt = wire.prompt_tokens.0.unwrap_or(0);
        let details = wire.prompt_tokens_details.as_ref();
        let read = details.and_then(|details| details.cached_tokens.0);
        let read = read.or(wire.prompt_cache_hit_tokens.0).or(wire.cached_tokens.0).unwrap_or(0);
        let write = details.and_then(|details| details.cache_write_tokens.0).unwrap_or(0);
        let usage = Usage {
            input: prompt.saturating_sub(read).saturating_sub(write),
            output: wire.completion_tokens.0.unwrap_or(0),
            cache_read: read,
            cache_write: write,
            reasoning: wire.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens.0),
            ..Usage::default()
        };
        self.blocks.count(usage, &self.model.cost, out);
    }

    fn grow(&mut self, delta: Delta<'_>, out: &mut Vec<ModelEvent>) {
        let fields = [delta.reasoning_content, delta.reasoning, delta.reasoning_text];
        let thought = REASONING_FIELDS
            .into_iter()
            .zip(fields)
            .find_map(|(field, text)| Some((field, text.filter(|text| !text.is_empty())?)));
        let details = delta.reasoning_details.map(|list| self.details.add(list));
        match thought {
            Some((field, text)) => self.think(Some(field), text.owned(), out),
            // The readable part of the details, unless it also came as a field: in this chunk or ever.
            None => match details {
                Some(text) if !text.is_empty() && self.thinking_field().is_none() => {
                    self.think(None, text, out)
                }
                Some(_) if !self.details.is_empty() => drop(self.thinking(None, out)),
                _ => {}
            },
        }
        for text in [delta.content, delta.refusal].into_iter().flatten() {
            if !text.is_empty() {
                self.say(text.owned(), out);
            }
        }
        for call in delta.tool_calls.into_iter().flatten().flatten() {
            self.call(call, out);
        }
        // The older form of a call: one, without index and id.
        if let Some(function) = delta.function_call {
            self.call(ToolDelta { function: Some(function), ..ToolDelta::default() }, out);
        }
    }

    /// Text, in which thinking may stand.
    fn say(&mut self, text: String, out: &mut Vec<ModelEvent>) {
        if self.tag.is_over() {
            return self.text(text, out);
        }
        let mut pieces = Vec::new();
        self.tag.push(text, &mut pieces);
        self.said(pieces, out);
    }

    fn said(&mut self, pieces: Vec<Piece>, out: &mut Vec<ModelEvent>) {
        for piece in pieces {
            match piece {
                Piece::Text(delta) => self.text(delta, out),
                Piece::Thinking(delta) => {
                    let index = self.thinking(None, out);
                    out.push(ModelEvent::ThinkingDelta { index, delta });
                }
            }
        }
    }

    fn text(&mut self, delta: String, out: &mut Vec<ModelEvent>) {
        let begun = self.begun.iter().position(|block| matches!(block, Block::Text));
        let index = begun.unwrap_or_else(|| {
            self.begun.push(Block::Text);
            self.blocks.text(out)
        });
        out.push(ModelEvent::TextDelta { index, delta });
    }

    fn think(&mut self, field: Option<&'static str>, delta: String, out: &mut Vec<ModelEvent>) {
        // Whoever sends thinking apart does not send it in the text as well.
        let mut pieces = Vec::new();
        self.tag.only_text(&mut pieces);
        self.said(pieces, out);
        let index = self.thinking(field, out);
        out.push(ModelEvent::ThinkingDelta { index, delta });
    }

    fn thinking_field(&self) -> Option<&'static str> {
        self.begun.iter().find_map(|block| match block {
            Block::Thinking(field) => *field,
            _ => None,
        })
    }

    /// The thinking block, begun if need be.
    fn thinking(&mut self, field: Option<&'static str>, out: &mut Vec<ModelEvent>) -> usize {
        // This provider sends one field and wants another back.
        let field = match field {
            Some("reasoning") if self.model.provider == "opencode-go" => Some("reasoning_content"),
            field => field,
        };
        for (index, block) in self.begun.iter_mut().enumerate() {
            if let Block::Thinking(known) = block {
                *known = known.or(field);
                return index;
            }
        }
        self.begun.push(Block::Thinking(field));
        self.blocks.thinking(out)
    }

    fn call(&mut self, delta: ToolDelta<'_>, out: &mut Vec<ModelEvent>) {
        let function = delta.function.unwrap_or_default();
        let (id, name) = (delta.id.unwrap_or_default(), function.name.unwrap_or_default());
        let at = self.find(delta.index.0, &id, &name).unwrap_or_else(|| {
            self.calls.push(Call { theirs: delta.index.0, ..Call::default() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id.owned();
        }
        if call.name.is_empty() {
            call.name = name.owned();
        }
        let piece = function.arguments.map(arguments).unwrap_or_default();
        call.json.push_str(&piece);
        match call.index {
            Some(index) if !piece.is_empty() => {
                out.push(ModelEvent::ToolCallDelta { index, delta: piece });
            }
            None if !call.name.is_empty() => self.announce(at, out),
            _ => {}
        }
    }

    /// The call a delta belongs to, if it has begun.
    fn find(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let by_id = || (!id.is_empty()).then(|| self.calls.iter().rposition(|call| call.id == id)).flatten();
        let Some(index) = index else {
            // Neither number nor name: more of the last one.
            let last = || self.calls.len().checked_sub(1).filter(|_| id.is_empty() && name.is_empty());
            return by_id().or_else(last);
        };
        let at = self.calls.iter().rposition(|call| call.theirs == Some(index));
        match at {
            // Some number all calls 0: another id with a name of its own is another call.
            Some(at)
                if !id.is_empty()
                    && !name.is_empty()
                    && !self.calls[at].id.is_empty()
                    && self.calls[at].id != id =>
            {
                by_id()
            }
            Some(at) => Some(at),
            None => by_id().filter(|at| self.calls[*at].theirs.is_none()),
        }
    }

    fn announce(&mut self, at: usize, out: &mut Vec<ModelEvent>) {
        self.begun.push(Block::Call(at));
        let call = &mut self.calls[at];
        let index = self.blocks.call(call.id.clone(), call.name.clone(), out);
        call.index = Some(index);
        if !call.json.is_empty() {
            out.push(ModelEvent::ToolCallDelta { index, delta: call.json.clone() });
        }
    }

    /// Ends all blocks, in order, and the answer.
    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let word = match self.stop.take() {
            Some(word) => word,
            None if self.says_why => return Err(ModelFailure::new("Stream ended without finish_reason")),
            None => String::new(),
        };
        self.start(None, None, out);
        let mut pieces = Vec::new();
        self.tag.flush(&mut pieces);
        self.said(pieces, out);
        for at in 0..self.calls.len() {
            if self.calls[at].index.is_none() {
                self.announce(at, out);
            }
        }
        for (index, block) in self.begun.iter().enumerate() {
            out.push(match block {
                Block::Text => ModelEvent::TextEnd { index, signature: None },
                Block::Thinking(field) => {
                    let signature = match field {
                        _ if !self.details.is_empty() => Some(self.details.to_signature()),
                        field => field.map(str::to_owned),
                    };
                    ModelEvent::ThinkingEnd { index, signature, redacted: false }
                }
                Block::Call(at) => call_end(index, whole(&self.calls[*at].json)),
            });
        }
        let waits = if self.calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse };
        let (reason, usual) = match word.as_str() {
            "" => (waits, true),
            "stop" => (waits, self.calls.is_empty()),
            "end" => (waits, false),
            "length" => (StopReason::Length, true),
            "tool_calls" => (StopReason::ToolUse, true),
            "function_call" => (StopReason::ToolUse, false),
            _ => {
                let text = format!("Provider finish_reason: {word}");
                return Err(record::stopped_with(word, text));
            }
        };
        out.push(record::done(reason, usual, word));
        Ok(())
    }
}

impl Mapper for Answer<'_> {
    fn event(&mut self, event: &sse::Event<'_>, out: &mut Vec<ModelEvent>) -> Result<Flow, ModelFailure> {
        let text = event.data.trim();
        if text == DONE {
            return self.finish(out).map(|()| Flow::Ended);
        }
        if text.is_empty() {
            return Ok(Flow::More);
        }
        if event.name == "error" {
            return Err(serde_json::from_str::<Chunk<'_>>(text)
                .ok()
                .and_then(|chunk| chunk.error)
                .map_or_else(|| failure(text, ""), |error| failure(error.get(), "")));
        }
        match record::read::<Chunk<'static>, _>(text, |chunk| self.chunk(chunk, text, out)) {
            Ok(outcome) => outcome?,
            // An event of another kind that only this endpoint knows.
            Err(_) if !matches!(event.name, "" | "message") => {}
            Err(failure) => return Err(failure),
        }
        Ok(Flow::More)
    }

    /// Many servers just stop after the last chunk.
    fn at_end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        self.finish(out)
    }

    /// Only the tokens may still come.
    fn is_whole(&self) -> bool {
        self.stop.is_some()
    }
}

/// Whether an `error` field is one.
fn says_something(error: &str) -> bool {
    !matches!(error, "null" | "false" | "\"\"" | "{}")
}

/// The provider's error as it stands; its code is the status when it is one.
fn failure(error: &str, word: &str) -> ModelFailure {
    let code = serde_json::from_str::<WireError>(error).unwrap_or_default();
    let failure = record::failure(error, [code.code.0, code.status.0, code.status_code.0]);
    let raw_reason = (!word.is_empty()).then(|| cut(word));
    ModelFailure { raw_reason, ..failure }
}

/// Arguments are JSON in a string; some servers leave the string out.
fn arguments(raw: &RawValue) -> String {
    match json::string(raw.get()) {
        Some(text) => text.into_owned(),
        None if raw.get().starts_with('{') => raw.get().to_owned(),
        None => String::new(),
    }
}

/// Without an empty object that was sent ahead of the real one.
fn whole(json: &str) -> &str {
    let text = json.trim();
    match text.strip_prefix("{}").map(str::trim_start) {
        Some(rest) if rest.starts_with('{') => whole(rest),
        _ => text,
    }
}

impl Record for Chunk<'static> {
    type Of<'a> = Chunk<'a>;
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    model: Option<Text<'a>>,
    #[serde(borrow)]
    object: Text<'a>,
    #[serde(rename = "type", borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    choices: First<'a>,
    usage: Option<WireUsage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The first of the choices; we ask for one.
#[derive(Default)]
struct First<'a>(Option<Choice<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for First<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FirstVisitor;
        impl<'de> Visitor<'de> for FirstVisitor {
            type Value = First<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of choices")
            }
            fn visit_unit<E>(self) -> Result<First<'de>, E> {
                Ok(First(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<First<'de>, A::Error> {
                let first = list.next_element::<Option<Choice<'de>>>()?.flatten();
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(First(first))
            }
        }
        deserializer.deserialize_any(FirstVisitor)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    message: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
    usage: Option<WireUsage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Text<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning_text: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Option<ToolDelta<'a>>>>,
    #[serde(borrow)]
    function_call: Option<Function<'a>>,
}

impl Delta<'_> {
    fn is_empty(&self) -> bool {
        let texts =
            [&self.content, &self.refusal, &self.reasoning_content, &self.reasoning, &self.reasoning_text];
        texts.into_iter().flatten().all(|text| text.is_empty())
            && self.reasoning_details.is_none()
            && self.tool_calls.is_none()
            && self.function_call.is_none()
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ToolDelta<'a> {
    index: Count,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireUsage {
    prompt_tokens: Count,
    completion_tokens: Count,
    /// Kimi.
    cached_tokens: Count,
    /// DeepSeek.
    prompt_cache_hit_tokens: Count,
    prompt_tokens_details: Option<WirePrompt>,
    completion_tokens_details: Option<WireCompletion>,
}

impl WireUsage {
    /// Whether it says anything: some chunks carry an empty one.
    fn counts(&self) -> bool {
        self.prompt_tokens.0.is_some() || self.completion_tokens.0.is_some()
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WirePrompt {
    cached_tokens: Count,
    cache_write_tokens: Count,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireCompletion {
    reasoning_tokens: Count,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireError {
    code: Count,
    status: Count,
    status_code: Count,
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
