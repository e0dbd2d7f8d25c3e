//! What the provider streams, in our words. Chunks are read into flat structs that borrow. Text and thinking end when
//! something else begins, calls when the answer ends.

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

/// The last event's data.
const DONE: &str = "[DONE]";

/// An answer as it grows.
pub(super) struct Answer<'m> {
    model: &'m Model,
    started: bool,
    usage: Usage,
    /// Whether the block that grows is thinking; it is the last one begun unless a call is.
    open: Option<bool>,
    /// Position of the block that grows.
    at: usize,
    /// Blocks begun so far.
    begun: usize,
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
        Answer {
            model,
            started: false,
            usage: Usage::default(),
            open: None,
            at: 0,
            begun: 0,
            calls: Vec::new(),
            stop: None,
        }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, text: &str, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        if let Some(error) = chunk.error.map(RawValue::get).filter(|error| !matches!(*error, "null" | "{}")) {
            return Err(failure(error));
        }
        if &*chunk.object == "error" || chunk.detail.is_some() {
            return Err(failure(text));
        }
        if !self.started {
            self.started = true;
            let named = |text: Text<'_>| Some(text.owned()).filter(|text| !text.is_empty());
            let response_model = named(chunk.model).filter(|name| *name != self.model.id);
            out.push(ModelEvent::Start { response_id: named(chunk.id), response_model });
        }
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

    fn grow(&mut self, thought: bool, delta: Text<'_>, out: &mut Vec<ModelEvent>) {
        // Empty deltas stand around thinking and calls; a block for each would tear thinking apart.
        if delta.is_empty() {
            return;
        }
        if self.open != Some(thought) {
            self.close(out);
            self.at = self.begun;
            self.begun += 1;
            let index = self.at;
            out.push(if thought {
                ModelEvent::ThinkingStart { index }
            } else {
                ModelEvent::TextStart { index }
            });
            self.open = Some(thought);
        }
        let (index, delta) = (self.at, delta.owned());
        out.push(if thought {
            ModelEvent::ThinkingDelta { index, delta }
        } else {
            ModelEvent::TextDelta { index, delta }
        });
    }

    fn close(&mut self, out: &mut Vec<ModelEvent>) {
        let index = self.at;
        match self.open.take() {
            Some(true) => out.push(ModelEvent::ThinkingEnd { index, signature: None, redacted: false }),
            Some(false) => out.push(ModelEvent::TextEnd { index, signature: None }),
            None => {}
        }
    }

    fn call(&mut self, delta: ToolDelta<'_>, out: &mut Vec<ModelEvent>) {
        self.close(out);
        let function = delta.function.unwrap_or_default();
        let id = if &*delta.id == "null" { "" } else { &*delta.id };
        let known = self.calls.iter().rposition(|call| match delta.index.0 {
            // Some models number all calls 0: another id is another call.
            Some(index) => call.theirs == Some(index) && (id.is_empty() || call.id == id),
            None => !id.is_empty() && call.id == id,
        });
        let more = || self.calls.len().checked_sub(1).filter(|_| id.is_empty() && function.name.is_empty());
        let at = known.or_else(more).unwrap_or_else(|| {
            let index = self.begun;
            self.begun += 1;
            let number = self.calls.len() + 1;
            let id = if id.is_empty() { format!("call{number}") } else { id.to_owned() };
            let name = function.name.to_string();
            out.push(ModelEvent::ToolCallStart { index, id: id.clone(), name });
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
        let mut usage = Usage {
            input: prompt - read,
            output: wire.completion_tokens.0.unwrap_or(0),
            cache_read: read,
            ..Usage::default()
        };
        cost::price(&mut usage, &self.model.cost, 0);
        if usage != self.usage {
            out.push(ModelEvent::Usage(usage.clone()));
            self.usage = usage;
        }
    }

    fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        let Some(word) = self.stop.take() else {
            return Err(ModelFailure::new("Mistral stream ended without a finish reason"));
        };
        self.close(out);
        for call in &self.calls {
            out.push(ModelEvent::ToolCallEnd {
                index: call.index,
                arguments: partial_json::arguments(&call.json),
                thought_signature: None,
            });
        }
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
                return Err(ModelFailure { raw_reason: Some(word), ..ModelFailure::new(text) });
            }
        };
        out.push(ModelEvent::Done { reason, raw_reason: (!usual).then_some(word), end_turn: None });
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
    let status = [code.raw_status_code.0, code.code.0].into_iter().flatten().find(|c| (400..600).contains(c));
    let status = status.and_then(|code| u16::try_from(code).ok());
    let text = cut(error);
    let message = status.map_or_else(|| text.clone(), |status| format!("{status} {text}"));
    ModelFailure { status, ..ModelFailure::new(message) }
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
        match serde_json::from_str::<Chunk<'_>>(text) {
            Ok(chunk) => self.chunk(chunk, text, out)?,
            Err(error) => {
                let mended = partial_json::record(text);
                let chunk = mended.as_deref().and_then(|text| serde_json::from_str::<Chunk<'_>>(text).ok());
                let chunk = chunk.ok_or_else(|| {
                    ModelFailure::new(format!(
                        "The provider sent an event that cannot be read ({error}): {}",
                        cut(text)
                    ))
                })?;
                self.chunk(chunk, text, out)?;
            }
        }
        Ok(Flow::More)
    }

    fn at_end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        self.finish(out)
    }

    fn is_whole(&self) -> bool {
        self.stop.is_some()
    }
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
