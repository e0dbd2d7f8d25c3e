//! What the provider streams, in our words. Chunks are read into flat structs that borrow: a delta is looked at once and
//! copied once.

use std::collections::HashSet;

use atomic_protocol::message::{StopReason, Usage};
use atomic_protocol::model::{Model, ModelEvent, ModelFailure};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::blocks::{Blocks, Run, delta};
use crate::http::cut;
use crate::partial_json;
use crate::pump::{Flow, Mapper};
use crate::record::{self, Record};
use crate::sse;
use crate::wire::{Count, Text};

/// An answer as it grows.
pub(super) struct Answer<'m> {
    model: &'m Model,
    blocks: Blocks,
    /// Text or thinking; it is over when a call begins.
    run: Run,
    /// Ids of the calls so far.
    calls: HashSet<String>,
    /// The finish reason, and what is said about it.
    stop: Option<(String, String)>,
}

impl<'m> Answer<'m> {
    pub(super) fn new(model: &'m Model) -> Answer<'m> {
        Answer { model, blocks: Blocks::default(), run: Run::default(), calls: HashSet::new(), stop: None }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        if let Some(error) = chunk.error.filter(|error| error.get() != "null") {
            return Err(failure(error.get()));
        }
        self.blocks.start(self.model, Some(&chunk.response_id), Some(&chunk.model_version), out);
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
            self.run.end(out);
            return self.call(call, signature, out);
        }
        // A signature may stand on a part that says nothing.
        if part.text.is_none() && signature.is_none() {
            return;
        }
        let index = self.run.of(part.thought, &mut self.blocks, out);
        if let Some(words) = part.text.map(Text::owned).filter(|text| !text.is_empty()) {
            out.push(delta(part.thought, index, words));
        }
        self.run.sign(signature);
    }

    /// A call comes whole.
    fn call(&mut self, call: Call<'_>, thought_signature: Option<String>, out: &mut Vec<ModelEvent>) {
        let name = call.name.owned();
        let mut id = call.id.owned();
        let mut number = self.calls.len() + 1;
        while id.is_empty() || self.calls.contains(&id) {
            id = format!("{name}_{number}");
            number += 1;
        }
        self.calls.insert(id.clone());
        let index = self.blocks.call(id, name, out);
        let arguments = partial_json::arguments(call.args.map_or("", RawValue::get));
        out.push(ModelEvent::ToolCallDelta { index, delta: arguments.as_str().to_owned() });
        out.push(ModelEvent::ToolCallEnd { index, arguments, thought_signature });
    }

    /// What the provider says replaces what it said before.
    fn count(&mut self, wire: &WireUsage, out: &mut Vec<ModelEvent>) {
        let read = wire.cached_content_token_count.0.unwrap_or(0);
        let thought = wire.thoughts_token_count.0;
        let usage = Usage {
            // The prompt is all that was sent, cached or not.
            input: wire.prompt_token_count.0.unwrap_or(0).saturating_sub(read),
            // What was thought is counted beside what was said.
            output: wire.candidates_token_count.0.unwrap_or(0) + thought.unwrap_or(0),
            cache_read: read,
            reasoning: thought,
            ..Usage::default()
        };
        self.blocks.count(usage, &self.model.cost, out);
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
                return Err(record::stopped_with(word, text));
            }
        };
        self.run.end(out);
        out.push(record::done(reason, usual, word));
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
    record::failure(error, [serde_json::from_str::<Code>(error).unwrap_or_default().code.0])
}

impl Mapper for Answer<'_> {
    fn event(&mut self, event: &sse::Event<'_>, out: &mut Vec<ModelEvent>) -> Result<Flow, ModelFailure> {
        let text = event.data.trim();
        if text.is_empty() || text == "[DONE]" {
            return Ok(Flow::More);
        }
        record::read::<Chunk<'static>, _>(text, |chunk| self.chunk(chunk, out))??;
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

impl Record for Chunk<'static> {
    type Of<'a> = Chunk<'a>;
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
