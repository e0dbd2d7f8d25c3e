//! What the provider streams, in our words. Text and thinking begin with their first delta, calls with a record of their
//! own.

use atomic_protocol::message::{StopReason, Usage};
use atomic_protocol::model::{Model, ModelEvent, ModelFailure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::frames::EXCEPTION;
use crate::blocks::{Blocks, Kind, Numbered, Redacted, withheld};
use crate::cost;
use crate::http::cut;
use crate::pump::{Flow, Mapper};
use crate::record::{self, Record};
use crate::sse;
use crate::wire::{Count, Text, filled};

/// Exceptions, the words that retrying and compaction look for, and the status they would have had as an answer
/// ("ConverseStream", Errors).
const EXCEPTIONS: [(&str, &str, Option<u16>); 5] = [
    ("internalServerException", "Internal server error", Some(500)),
    ("modelStreamErrorException", "Model stream error", None),
    ("validationException", "Validation error", Some(400)),
    ("throttlingException", "Throttling error", Some(429)),
    ("serviceUnavailableException", "Service unavailable", Some(503)),
];

/// An answer as it grows.
pub(super) struct Answer<'m> {
    model: &'m Model,
    blocks: Blocks,
    open: Numbered,
    stop: Option<String>,
}

impl<'m> Answer<'m> {
    pub(super) fn new(model: &'m Model) -> Answer<'m> {
        Answer { model, blocks: Blocks::default(), open: Numbered::default(), stop: None }
    }

    fn start(&mut self, out: &mut Vec<ModelEvent>) {
        self.blocks.start(self.model, None, None, out);
    }

    /// The open block a delta belongs to; text and thinking begin with their first one.
    fn block(&mut self, theirs: u64, thought: bool, out: &mut Vec<ModelEvent>) -> (usize, &mut Kind) {
        if self.open.get(theirs).is_none() {
            self.start(out);
            let (index, kind) = if thought {
                (self.blocks.thinking(out), Kind::Thinking { signature: String::new() })
            } else {
                (self.blocks.text(out), Kind::Text)
            };
            self.open.begin(theirs, index, kind, out);
        }
        self.open.get(theirs).expect("it was begun if it was not open")
    }

    fn grow(&mut self, theirs: u64, delta: WireDelta<'_>, out: &mut Vec<ModelEvent>) {
        if let Some(thought) = delta.reasoning_content {
            return self.think(theirs, thought, out);
        }
        if let Some(call) = delta.tool_use {
            if let Some((index, Kind::Call { json, .. })) = self.open.get(theirs)
                && let Some(delta) = filled(call.input)
            {
                json.push_str(&delta);
                out.push(ModelEvent::ToolCallDelta { index, delta });
            }
            return;
        }
        if let Some(text) = delta.text
            && let (index, Kind::Text) = self.block(theirs, false, out)
            && let Some(delta) = filled(Some(text))
        {
            out.push(ModelEvent::TextDelta { index, delta });
        }
    }

    fn think(&mut self, theirs: u64, thought: WireThought<'_>, out: &mut Vec<ModelEvent>) {
        let (index, kind) = self.block(theirs, true, out);
        if !matches!(kind, Kind::Thinking { .. } | Kind::Redacted(_)) {
            return;
        }
        if let Some(delta) = filled(thought.text) {
            out.push(ModelEvent::ThinkingDelta { index, delta });
        }
        if let (Kind::Thinking { signature }, Some(piece)) = (&mut *kind, filled(thought.signature)) {
            signature.push_str(&piece);
        }
        // What was withheld comes in pieces of bytes; it goes back as it came.
        if let Some(piece) = filled(thought.redacted_content) {
            let piece = STANDARD.decode(piece).unwrap_or_default();
            if let Kind::Redacted(Redacted::Bytes(data)) = kind {
                data.extend(piece);
            } else {
                out.push(withheld(index));
                *kind = Kind::Redacted(Redacted::Bytes(piece));
            }
        }
    }

    fn count(&mut self, wire: &WireUsage, out: &mut Vec<ModelEvent>) {
        let mut usage = Usage {
            input: wire.input_tokens.0.unwrap_or(0),
            output: wire.output_tokens.0.unwrap_or(0),
            cache_read: wire.cache_read_input_tokens.0.unwrap_or(0),
            cache_write: wire.cache_write_input_tokens.0.unwrap_or(0),
            ..Usage::default()
        };
        let details = wire.cache_details.iter().flatten().flatten();
        let long = details.filter(|detail| &*detail.ttl == "1h").map(|d| d.input_tokens.0.unwrap_or(0)).sum();
        cost::price(&mut usage, &self.model.cost, long);
        out.push(ModelEvent::Usage(usage));
    }

    fn record(&mut self, name: &str, wire: Wire<'_>, out: &mut Vec<ModelEvent>) {
        let theirs = wire.content_block_index.0.unwrap_or(0);
        match name {
            "messageStart" => self.start(out),
            "contentBlockStart" => {
                let Some(call) = wire.start.and_then(|start| start.tool_use) else { return };
                self.start(out);
                let index = self.blocks.call(call.tool_use_id.owned(), call.name.owned(), out);
                self.open.begin(theirs, index, Kind::Call { json: String::new(), whole: None }, out);
            }
            "contentBlockDelta" => self.grow(theirs, wire.delta.unwrap_or_default(), out),
            "contentBlockStop" => self.open.end(theirs, out),
            "messageStop" => self.stop = Some(cut(&wire.stop_reason)),
            "metadata" => {
                self.start(out);
                if let Some(usage) = &wire.usage {
                    self.count(usage, out);
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let Some(word) = self.stop.take() else {
            return Err(ModelFailure::new("Bedrock stream ended without a stop reason"));
        };
        self.start(out);
        self.open.end_all(out);
        let (reason, usual) = match word.as_str() {
            "end_turn" => (StopReason::Stop, true),
            "stop_sequence" => (StopReason::Stop, false),
            "tool_use" => (StopReason::ToolUse, true),
            "max_tokens" => (StopReason::Length, true),
            "model_context_window_exceeded" => (StopReason::Length, false),
            _ => {
                let text = format!("Provider stopped with: {word}");
                return Err(record::stopped_with(word, text));
            }
        };
        out.push(record::done(reason, usual, word));
        Ok(())
    }
}

/// An exception inside an answer that began with status 200.
fn failure(name: &str, text: &str) -> ModelFailure {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Said<'a> {
        #[serde(borrow, alias = "Message")]
        message: Text<'a>,
    }
    let said = serde_json::from_str::<Said<'_>>(text).unwrap_or_default();
    let said = if said.message.is_empty() { text } else { &*said.message };
    let known = EXCEPTIONS.into_iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
    let (prefix, status) = known.map_or((name, None), |(_, prefix, status)| (prefix, status));
    ModelFailure { status, ..ModelFailure::new(format!("{prefix}: {}", cut(said))) }
}

impl Mapper for Answer<'_> {
    fn event(&mut self, event: &sse::Event<'_>, out: &mut Vec<ModelEvent>) -> Result<Flow, ModelFailure> {
        let text = event.data.trim();
        if let Some(name) = event.name.strip_prefix(EXCEPTION) {
            return Err(failure(name, text));
        }
        record::read::<Wire<'static>, _>(text, |wire| self.record(event.name, wire, out))?;
        Ok(Flow::More)
    }

    /// The tokens come after the stop reason and nothing says that they are the last.
    fn at_end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        self.finish(out)
    }

    fn is_whole(&self) -> bool {
        self.stop.is_some()
    }
}

impl Record for Wire<'static> {
    type Of<'a> = Wire<'a>;
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Wire<'a> {
    content_block_index: Count,
    #[serde(borrow)]
    start: Option<WireStart<'a>>,
    #[serde(borrow)]
    delta: Option<WireDelta<'a>>,
    #[serde(borrow)]
    stop_reason: Text<'a>,
    #[serde(borrow)]
    usage: Option<WireUsage<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireStart<'a> {
    #[serde(borrow)]
    tool_use: Option<WireCall<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireCall<'a> {
    #[serde(borrow)]
    tool_use_id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    input: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireDelta<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    tool_use: Option<WireCall<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<WireThought<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireThought<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    redacted_content: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireUsage<'a> {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_write_input_tokens: Count,
    #[serde(borrow)]
    cache_details: Option<Vec<Option<WireCache<'a>>>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireCache<'a> {
    #[serde(borrow)]
    ttl: Text<'a>,
    input_tokens: Count,
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
