//! What the provider streams, in our words. Chunks are read into flat structs that borrow: a delta is looked at once and
//! copied once.

use std::collections::HashSet;

use atomic_protocol::message::{StopReason, Usage};
use atomic_protocol::model::{Model, ModelEvent, ModelFailure};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cost;
use crate::http::cut;
use crate::partial_json;
use crate::pump::{Flow, Mapper};
use crate::sse;
use crate::wire::{Count, Text};

/// An answer as it grows.
pub(super) struct Answer<'m> {
    model: &'m Model,
    started: bool,
    usage: Usage,
    /// The block that grows, always the last one.
    open: Option<Open>,
    /// Blocks begun so far: the position of the next one.
    begun: usize,
    /// Ids of the calls so far.
    calls: HashSet<String>,
    /// The finish reason, and what is said about it.
    stop: Option<(String, String)>,
}

struct Open {
    thought: bool,
    signature: Option<String>,
}

impl<'m> Answer<'m> {
    pub(super) fn new(model: &'m Model) -> Answer<'m> {
        Answer {
            model,
            started: false,
            usage: Usage::default(),
            open: None,
            begun: 0,
            calls: HashSet::new(),
            stop: None,
        }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        if let Some(error) = chunk.error.filter(|error| error.get() != "null") {
            return Err(failure(error.get()));
        }
        if !self.started {
            self.started = true;
            let named = |text: Text<'_>| Some(text.owned()).filter(|text| !text.is_empty());
            let response_model = named(chunk.model_version).filter(|name| *name != self.model.id);
            out.push(ModelEvent::Start { response_id: named(chunk.response_id), response_model });
        }
        let candidate = chunk.candidates.unwrap_or_default().into_iter().next().flatten().unwrap_or_default();
        for part in candidate.content.unwrap_or_default().parts.unwrap_or_default().into_iter().flatten() {
            self.part(part, out);
        }
        if let Some(usage) = &chunk.usage_metadata {
            self.count(usage, out);
        }
        if !candidate.finish_reason.is_empty() {
            self.stop = Some((cut(&candidate.finish_reason), cut(&candidate.finish_message)));
        }
        if let Some(blocked) = chunk.prompt_feedback.filter(|said| !said.block_reason.is_empty()) {
            self.stop = Some((cut(&blocked.block_reason), cut(&blocked.block_reason_message)));
        }
        Ok(())
    }

    fn part(&mut self, part: Part<'_>, out: &mut Vec<ModelEvent>) {
        let signature = Some(part.thought_signature.owned()).filter(|text| !text.is_empty());
        if let Some(call) = part.function_call {
            self.close(out);
            return self.call(call, signature, out);
        }
        // A signature may stand on a part that says nothing.
        if part.text.is_none() && signature.is_none() {
            return;
        }
        if self.open.as_ref().is_none_or(|open| open.thought != part.thought) {
            self.close(out);
            let index = self.begun;
            self.begun += 1;
            out.push(if part.thought {
                ModelEvent::ThinkingStart { index }
            } else {
                ModelEvent::TextStart { index }
            });
            self.open = Some(Open { thought: part.thought, signature: None });
        }
        let index = self.begun - 1;
        if let Some(delta) = part.text.map(Text::owned).filter(|text| !text.is_empty()) {
            out.push(if part.thought {
                ModelEvent::ThinkingDelta { index, delta }
            } else {
                ModelEvent::TextDelta { index, delta }
            });
        }
        if let Some(open) = &mut self.open {
            open.signature = signature.or(open.signature.take());
        }
    }

    /// A call comes whole.
    fn call(&mut self, call: Call<'_>, thought_signature: Option<String>, out: &mut Vec<ModelEvent>) {
        let index = self.begun;
        self.begun += 1;
        let name = call.name.owned();
        let mut id = call.id.owned();
        let mut number = self.calls.len() + 1;
        while id.is_empty() || self.calls.contains(&id) {
            id = format!("{name}_{number}");
            number += 1;
        }
        self.calls.insert(id.clone());
        out.push(ModelEvent::ToolCallStart { index, id, name });
        let arguments = partial_json::arguments(call.args.map_or("", RawValue::get));
        out.push(ModelEvent::ToolCallDelta { index, delta: arguments.as_str().to_owned() });
        out.push(ModelEvent::ToolCallEnd { index, arguments, thought_signature });
    }

    fn close(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some(Open { thought, signature }) = self.open.take() {
            let index = self.begun - 1;
            out.push(if thought {
                ModelEvent::ThinkingEnd { index, signature, redacted: false }
            } else {
                ModelEvent::TextEnd { index, signature }
            });
        }
    }

    /// What the provider says replaces what it said before.
    fn count(&mut self, wire: &WireUsage, out: &mut Vec<ModelEvent>) {
        let read = wire.cached_content_token_count.0.unwrap_or(0);
        let thought = wire.thoughts_token_count.0;
        let mut usage = Usage {
            // The prompt is all that was sent, cached or not.
            input: wire.prompt_token_count.0.unwrap_or(0).saturating_sub(read),
            // What was thought is counted beside what was said.
            output: wire.candidates_token_count.0.unwrap_or(0) + thought.unwrap_or(0),
            cache_read: read,
            reasoning: thought,
            ..Usage::default()
        };
        cost::price(&mut usage, &self.model.cost, 0);
        if usage != self.usage {
            out.push(ModelEvent::Usage(usage.clone()));
            self.usage = usage;
        }
    }

    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let Some((word, said)) = self.stop.take() else {
            return Err(ModelFailure::new("Google stream ended without a finish reason"));
        };
        let (reason, usual) = match word.as_str() {
            "STOP" if self.calls.is_empty() => (StopReason::Stop, true),
            "STOP" => (StopReason::ToolUse, true),
            "MAX_TOKENS" => (StopReason::Length, true),
            "CONTINUATION" => (StopReason::Length, false),
            _ => {
                let colon = if said.is_empty() { "" } else { ": " };
                let text = format!("Provider stopped with: {word}{colon}{said}");
                return Err(ModelFailure { raw_reason: Some(word), ..ModelFailure::new(text) });
            }
        };
        self.close(out);
        out.push(ModelEvent::Done { reason, raw_reason: (!usual).then_some(word), end_turn: None });
        Ok(())
    }
}

/// The provider's error as it stands, its code in front.
fn failure(error: &str) -> ModelFailure {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Code {
        code: Count,
    }
    let code = serde_json::from_str::<Code>(error).unwrap_or_default().code.0;
    let status = code.filter(|code| (400..600).contains(code)).and_then(|code| u16::try_from(code).ok());
    let text = cut(error);
    let message = status.map_or_else(|| text.clone(), |status| format!("{status} {text}"));
    ModelFailure { status, ..ModelFailure::new(message) }
}

impl Mapper for Answer<'_> {
    fn event(&mut self, event: &sse::Event<'_>, out: &mut Vec<ModelEvent>) -> Result<Flow, ModelFailure> {
        let text = event.data.trim();
        if text.is_empty() || text == "[DONE]" {
            return Ok(Flow::More);
        }
        match serde_json::from_str::<Chunk<'_>>(text) {
            Ok(chunk) => self.chunk(chunk, out)?,
            Err(error) => {
                let mended = partial_json::record(text);
                let chunk = mended.as_deref().and_then(|text| serde_json::from_str::<Chunk<'_>>(text).ok());
                let chunk = chunk.ok_or_else(|| {
                    ModelFailure::new(format!(
                        "The provider sent an event that cannot be read ({error}): {}",
                        cut(text)
                    ))
                })?;
                self.chunk(chunk, out)?;
            }
        }
        Ok(Flow::More)
    }

    /// Nothing on the wire says that the last chunk is the last.
    fn at_end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        self.finish(out)
    }

    fn is_whole(&self) -> bool {
        self.stop.is_some()
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<Option<Candidate<'a>>>>,
    usage_metadata: Option<WireUsage>,
    #[serde(borrow)]
    prompt_feedback: Option<Feedback<'a>>,
    #[serde(borrow)]
    model_version: Text<'a>,
    #[serde(borrow)]
    response_id: Text<'a>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow)]
    finish_reason: Text<'a>,
    #[serde(borrow)]
    finish_message: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Option<Vec<Option<Part<'a>>>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    thought: bool,
    #[serde(borrow)]
    thought_signature: Text<'a>,
    #[serde(borrow)]
    function_call: Option<Call<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Call<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Feedback<'a> {
    #[serde(borrow)]
    block_reason: Text<'a>,
    #[serde(borrow)]
    block_reason_message: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WireUsage {
    prompt_token_count: Count,
    cached_content_token_count: Count,
    candidates_token_count: Count,
    thoughts_token_count: Count,
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
