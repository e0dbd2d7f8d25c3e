//! What the provider streams, in our words. Records are read into flat structs that borrow: a delta is looked at once
//! and copied once.

use atomic_protocol::json::Raw;
use atomic_protocol::message::{StopReason, Usage};
use atomic_protocol::model::{Model, ModelCost, ModelEvent, ModelFailure};
use serde::Deserialize;

use super::compat::Fallback;
use crate::blocks::{Blocks, Kind, Numbered, Redacted, withheld};
use crate::cost;
use crate::diagnostic;
use crate::http::cut;
use crate::pump::{Flow, Mapper};
use crate::record::{self, Record};
use crate::sse;
use crate::wire::{Count, Text, filled};

/// The name of what the provider says about changes of its input.
const DIAGNOSTIC: &str = "anthropic_input_transformations";

/// An answer as it grows.
pub(super) struct Answer<'m> {
    model: &'m Model,
    prices: ModelCost,
    fallbacks: Vec<Fallback>,
    blocks: Blocks,
    usage: Usage,
    long_writes: u64,
    open: Numbered,
    stop: Option<Stopped>,
    /// What the provider changed of the request.
    changes: Option<Raw>,
}

struct Stopped {
    reason: StopReason,
    raw: Option<String>,
}

impl<'m> Answer<'m> {
    pub(super) fn new(model: &'m Model, fallbacks: Vec<Fallback>) -> Answer<'m> {
        Answer {
            model,
            prices: model.cost.clone(),
            fallbacks,
            blocks: Blocks::default(),
            usage: Usage::default(),
            long_writes: 0,
            open: Numbered::default(),
            stop: None,
            changes: None,
        }
    }

    fn start(&mut self, message: Option<WireMessage<'_>>, out: &mut Vec<ModelEvent>) {
        let message = message.unwrap_or_default();
        if !self.blocks.started() {
            let name = message.model.as_deref();
            let fallback = self.fallbacks.iter().find(|fallback| Some(fallback.model.as_str()) == name);
            if let Some(cost) = fallback.and_then(|fallback| fallback.cost.as_ref()) {
                self.prices = cost.clone();
            }
            self.blocks.start(self.model, message.id.as_deref(), name, out);
        }
        if let Some(usage) = message.usage {
            self.count(&usage, out);
        }
        self.transformed(message.input_transformations);
    }

    /// The newest list is the whole one; an empty one says nothing.
    fn transformed(&mut self, list: Option<Vec<WireChange<'_>>>) {
        if let Some(list) = list.filter(|list| !list.is_empty()) {
            self.changes =
                Some(diagnostic::transformations(list.iter().map(|change| {
                    [("type", &change.kind), ("path", &change.path), ("reason", &change.reason)]
                })));
        }
    }

    /// Only counts that are there replace earlier ones.
    fn count(&mut self, wire: &WireUsage, out: &mut Vec<ModelEvent>) {
        let set = |field: &mut u64, count: &Count| {
            if let Some(count) = count.0 {
                *field = count;
            }
        };
        set(&mut self.usage.input, &wire.input_tokens);
        set(&mut self.usage.output, &wire.output_tokens);
        set(&mut self.usage.cache_read, &wire.cache_read_input_tokens);
        set(&mut self.usage.cache_write, &wire.cache_creation_input_tokens);
        if let Some(parts) = &wire.cache_creation {
            set(&mut self.long_writes, &parts.ephemeral_1h_input_tokens);
        }
        if let Some(thinking) =
            wire.output_tokens_details.as_ref().and_then(|details| details.thinking_tokens.0)
        {
            self.usage.reasoning = Some(thinking);
        }
        cost::price(&mut self.usage, &self.prices, self.long_writes);
        out.push(ModelEvent::Usage(self.usage.clone()));
    }

    fn begin(&mut self, theirs: u64, block: WireBlock<'_>, out: &mut Vec<ModelEvent>) {
        self.start(None, out);
        self.open.end(theirs, out);
        let (index, kind) = match &*block.kind {
            "text" => {
                let index = self.blocks.text(out);
                if let Some(delta) = filled(block.text) {
                    out.push(ModelEvent::TextDelta { index, delta });
                }
                (index, Kind::Text)
            }
            "thinking" => {
                let index = self.blocks.thinking(out);
                if let Some(delta) = filled(block.thinking) {
                    out.push(ModelEvent::ThinkingDelta { index, delta });
                }
                (index, Kind::Thinking { signature: block.signature.map(Text::owned).unwrap_or_default() })
            }
            "redacted_thinking" => {
                let index = self.blocks.thinking(out);
                out.push(withheld(index));
                let data = block.data.map(Text::owned).unwrap_or_default();
                (index, Kind::Redacted(Redacted::Text(data)))
            }
            "tool_use" => {
                let id = block.id.map(Text::owned).unwrap_or_default();
                let name = block.name.map(Text::owned).unwrap_or_default();
                (self.blocks.call(id, name, out), Kind::Call { json: String::new(), whole: block.input })
            }
            // Blocks of the provider's own tools: nothing a session could keep or send back.
            _ => return,
        };
        self.open.begin(theirs, index, kind, out);
    }

    fn grow(&mut self, theirs: u64, delta: WireDelta<'_>, out: &mut Vec<ModelEvent>) {
        let Some((index, kind)) = self.open.get(theirs) else { return };
        match (kind, &*delta.kind) {
            (Kind::Text, "text_delta") => {
                if let Some(delta) = filled(delta.text) {
                    out.push(ModelEvent::TextDelta { index, delta });
                }
            }
            (Kind::Thinking { .. }, "thinking_delta") => {
                if let Some(delta) = filled(delta.thinking) {
                    out.push(ModelEvent::ThinkingDelta { index, delta });
                }
            }
            (Kind::Thinking { signature }, "signature_delta") => {
                signature.push_str(delta.signature.as_deref().unwrap_or_default());
            }
            (Kind::Call { json, .. }, "input_json_delta") => {
                if let Some(delta) = filled(delta.partial_json) {
                    json.push_str(&delta);
                    out.push(ModelEvent::ToolCallDelta { index, delta });
                }
            }
            _ => {}
        }
    }

    fn stopped(&mut self, delta: &WireDelta<'_>) -> Result<(), ModelFailure> {
        let Some(word) = delta.stop_reason.as_deref() else { return Ok(()) };
        let (reason, usual) = match word {
            "end_turn" => (StopReason::Stop, true),
            "pause_turn" | "stop_sequence" => (StopReason::Stop, false),
            "max_tokens" => (StopReason::Length, true),
            "tool_use" => (StopReason::ToolUse, true),
            "refusal" | "sensitive" => {
                let said = delta.stop_details.as_ref().and_then(|details| details.explanation.as_deref());
                let text = said.filter(|text| !text.trim().is_empty()).map_or_else(
                    || format!("The provider stopped the answer for safety reasons (stop reason: {word})."),
                    cut,
                );
                return Err(record::stopped_with(word.to_owned(), text));
            }
            other => {
                let text = format!("Unhandled stop reason: {}", cut(other));
                return Err(record::stopped_with(cut(other), text));
            }
        };
        self.stop = Some(Stopped { reason, raw: (!usual).then(|| word.to_owned()) });
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<Flow, ModelFailure> {
        self.open.end_all(out);
        let Some(Stopped { reason, raw }) = self.stop.take() else {
            return Err(ModelFailure::new("Anthropic stream ended without a stop reason"));
        };
        if let Some(details) = self.changes.take() {
            out.push(ModelEvent::Diagnostic { kind: DIAGNOSTIC.to_owned(), details });
        }
        out.push(ModelEvent::Done { reason, raw_reason: raw, end_turn: None });
        Ok(Flow::Ended)
    }

    fn record(
        &mut self,
        name: &str,
        wire: Wire<'_>,
        text: &str,
        out: &mut Vec<ModelEvent>,
    ) -> Result<Flow, ModelFailure> {
        match if name.is_empty() { &*wire.kind } else { name } {
            "content_block_delta" => {
                self.grow(wire.index.0.unwrap_or(0), wire.delta.unwrap_or_default(), out)
            }
            "content_block_start" => {
                self.begin(wire.index.0.unwrap_or(0), wire.content_block.unwrap_or_default(), out);
            }
            "content_block_stop" => self.open.end(wire.index.0.unwrap_or(0), out),
            "message_start" => self.start(wire.message, out),
            "message_delta" => {
                self.start(None, out);
                if let Some(usage) = &wire.usage {
                    self.count(usage, out);
                }
                self.transformed(wire.input_transformations);
                self.stopped(&wire.delta.unwrap_or_default())?;
            }
            "message_stop" => {
                self.start(None, out);
                return self.finish(out);
            }
            // An error inside an answer that began with status 200.
            "error" => return Err(ModelFailure::new(cut(text.trim()))),
            _ => {}
        }
        Ok(Flow::More)
    }
}

impl Mapper for Answer<'_> {
    fn event(&mut self, event: &sse::Event<'_>, out: &mut Vec<ModelEvent>) -> Result<Flow, ModelFailure> {
        match event.name {
            "message_start"
            | "message_delta"
            | "message_stop"
            | "content_block_start"
            | "content_block_delta"
            | "content_block_stop" => {}
            "error" => return Err(ModelFailure::new(cut(event.data.trim()))),
            // Some endpoints leave the name out; the record says its type too.
            "" if event.data.trim() != "[DONE]" => {}
            _ => return Ok(Flow::More),
        }
        let text = &*event.data;
        record::read::<Wire<'static>, _>(text, |wire| self.record(event.name, wire, text, out))?
    }

    fn at_end(&mut self, _: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        Err(ModelFailure::new("Anthropic stream ended before message_stop"))
    }
}

impl Record for Wire<'static> {
    type Of<'a> = Wire<'a>;
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Wire<'a> {
    #[serde(rename = "type", borrow)]
    kind: Text<'a>,
    index: Count,
    #[serde(borrow)]
    delta: Option<WireDelta<'a>>,
    #[serde(borrow)]
    content_block: Option<WireBlock<'a>>,
    #[serde(borrow)]
    message: Option<WireMessage<'a>>,
    usage: Option<WireUsage>,
    #[serde(borrow)]
    input_transformations: Option<Vec<WireChange<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireChange<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    path: Option<Text<'a>>,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireDelta<'a> {
    #[serde(rename = "type", borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    partial_json: Option<Text<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
    #[serde(borrow)]
    stop_details: Option<WireStop<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireStop<'a> {
    #[serde(borrow)]
    explanation: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireBlock<'a> {
    #[serde(rename = "type", borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    input: Option<Raw>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireMessage<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    model: Option<Text<'a>>,
    usage: Option<WireUsage>,
    #[serde(borrow)]
    input_transformations: Option<Vec<WireChange<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireUsage {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
    cache_creation: Option<WireWrites>,
    output_tokens_details: Option<WireOutput>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireWrites {
    ephemeral_1h_input_tokens: Count,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireOutput {
    thinking_tokens: Count,
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
