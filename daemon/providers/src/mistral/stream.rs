//! What the provider streams, in our words. Chunks are read into flat structs that borrow. Text and thinking end when
//! something else begins, calls when the answer ends.

use atomic_protocol::message::{StopReason, Usage};
use atomic_protocol::model::{Model, ModelEvent, ModelFailure};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::blocks::{Blocks, Run, call_end, delta};
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
    blocks: Blocks,
    /// Text or thinking; it is over when a call begins.
    run: Run,
    calls: Vec<Call>,
    stop: Option<String>,
}

/// A call as it grows.
struct Call {
    theirs: Option<u64>,
    id: String,
    index: usize,
    json: String,
}

impl<'m> Answer<'m> {
    pub(super) fn new(model: &'m Model) -> Answer<'m> {
        Answer { model, blocks: Blocks::default(), run: Run::default(), calls: Vec::new(), stop: None }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, text: &str, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        if let Some(error) = chunk.error.map(RawValue::get).filter(|error| !matches!(*error, "null" | "{}")) {
            return Err(failure(error));
        }
        if &*chunk.object == "error" || chunk.detail.is_some() {
            return Err(failure(text));
        }
        self.blocks.start(self.model, Some(&chunk.id), Some(&chunk.model), out);
        if let Some(usage) = &chunk.usage {
            self.count(usage, out);
        }
        let Some(choice) = chunk.choices.unwrap_or_default().into_iter().next().flatten() else {
            return Ok(());
        };
        if !choice.finish_reason.is_empty() {
            self.stop = Some(cut(&choice.finish_reason));
        }
        let delta = choice.delta.unwrap_or_default();
        if let Some(content) = delta.content {
            self.content(content, out);
        }
        for call in delta.tool_calls.into_iter().flatten().flatten() {
            self.call(call, out);
        }
        Ok(())
    }

    /// A string, or a list of chunks of several kinds.
    fn content(&mut self, content: &RawValue, out: &mut Vec<ModelEvent>) {
        if !content.get().starts_with('[') {
            let text = serde_json::from_str::<Text<'_>>(content.get()).unwrap_or_default();
            return self.grow(false, text, out);
        }
        for item in serde_json::from_str::<Vec<&RawValue>>(content.get()).unwrap_or_default() {
            if !item.get().starts_with('{') {
                let text = serde_json::from_str::<Text<'_>>(item.get()).unwrap_or_default();
                self.grow(false, text, out);
                continue;
            }
            let item = serde_json::from_str::<Item<'_>>(item.get()).unwrap_or_default();
            match &*item.kind {
                "thinking" => self.grow(true, item.thinking, out),
                "text" | "" => self.grow(false, item.text, out),
                // References, images and whatever else has no place in a conversation of ours.
                _ => {}
            }
        }
    }

    fn grow(&mut self, thought: bool, words: Text<'_>, out: &mut Vec<ModelEvent>) {
        // Empty deltas stand around thinking and calls; a block for each would tear thinking apart.
        if words.is_empty() {
            return;
        }
        let index = self.run.of(thought, &mut self.blocks, out);
        out.push(delta(thought, index, words.owned()));
    }

    fn call(&mut self, delta: ToolDelta<'_>, out: &mut Vec<ModelEvent>) {
        self.run.end(out);
        let function = delta.function.unwrap_or_default();
        let id = if &*delta.id == "null" { "" } else { &*delta.id };
        let known = self.calls.iter().rposition(|call| match delta.index.0 {
            // Some models number all calls 0: another id is another call.
            Some(index) => call.theirs == Some(index) && (id.is_empty() || call.id == id),
            None => !id.is_empty() && call.id == id,
        });
        let more = || self.calls.len().checked_sub(1).filter(|_| id.is_empty() && function.name.is_empty());
        let at = known.or_else(more).unwrap_or_else(|| {
            let number = self.calls.len() + 1;
            let id = if id.is_empty() { format!("call{number}") } else { id.to_owned() };
            let index = self.blocks.call(id.clone(), function.name.to_string(), out);
            self.calls.push(Call { theirs: delta.index.0, id, index, json: String::new() });
            self.calls.len() - 1
        });
        let piece = function.arguments.map(arguments).unwrap_or_default();
        if !piece.is_empty() {
            let call = &mut self.calls[at];
            call.json.push_str(&piece);
            out.push(ModelEvent::ToolCallDelta { index: call.index, delta: piece });
        }
    }

    /// What the provider says replaces what it said before.
    fn count(&mut self, wire: &WireUsage, out: &mut Vec<ModelEvent>) {
        let prompt = wire.prompt_tokens.0.unwrap_or(0);
        let details = [&wire.prompt_tokens_details, &wire.prompt_token_details].into_iter().flatten();
        let read = details.filter_map(|details| details.cached_tokens.0).next();
        let read = read.or(wire.num_cached_tokens.0).unwrap_or(0).min(prompt);
        let usage = Usage {
            input: prompt - read,
            output: wire.completion_tokens.0.unwrap_or(0),
            cache_read: read,
            ..Usage::default()
        };
        self.blocks.count(usage, &self.model.cost, out);
    }

    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let Some(word) = self.stop.take() else {
            return Err(ModelFailure::new("Mistral stream ended without a finish reason"));
        };
        self.run.end(out);
        out.extend(self.calls.iter().map(|call| call_end(call.index, &call.json)));
        let waits = !self.calls.is_empty();
        let (reason, usual) = match word.as_str() {
            "stop" if waits => (StopReason::ToolUse, false),
            "stop" => (StopReason::Stop, true),
            "tool_calls" => (StopReason::ToolUse, true),
            "length" => (StopReason::Length, true),
            "model_length" => (StopReason::Length, false),
            _ => {
                // So says the provider when its server failed, which another try may mend.
                let hint = if word == "error" { " (server error)" } else { "" };
                let text = format!("Provider stopped with: {word}{hint}");
                return Err(record::stopped_with(word, text));
            }
        };
        out.push(record::done(reason, usual, word));
        Ok(())
    }
}

/// Arguments are JSON in a string, or an object.
fn arguments(raw: &RawValue) -> String {
    match atomic_protocol::json::string(raw.get()) {
        Some(text) => text.into_owned(),
        None if raw.get().starts_with('{') => raw.get().to_owned(),
        None => String::new(),
    }
}

/// The provider's error as it stands; its code is the status when it is one.
fn failure(error: &str) -> ModelFailure {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Code {
        code: Count,
        raw_status_code: Count,
    }
    let code = serde_json::from_str::<Code>(error).unwrap_or_default();
    record::failure(error, [code.raw_status_code.0, code.code.0])
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
        record::read::<Chunk<'static>, _>(text, |chunk| self.chunk(chunk, text, out))??;
        Ok(Flow::More)
    }

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
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    object: Text<'a>,
    #[serde(borrow)]
    choices: Option<Vec<Option<Choice<'a>>>>,
    usage: Option<WireUsage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// How the server in front of the model says an error.
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Option<ToolDelta<'a>>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Item<'a> {
    #[serde(rename = "type", borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
    /// A list of texts; they read as one.
    #[serde(borrow)]
    thinking: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ToolDelta<'a> {
    index: Count,
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Function<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireUsage {
    prompt_tokens: Count,
    completion_tokens: Count,
    num_cached_tokens: Count,
    prompt_tokens_details: Option<WirePrompt>,
    prompt_token_details: Option<WirePrompt>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WirePrompt {
    cached_tokens: Count,
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
