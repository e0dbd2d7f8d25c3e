//! What the provider streams, in our words. Records are read into flat structs that borrow: a delta is looked at once
//! and copied once.

use atomic_protocol::message::{StopReason, Usage};
use atomic_protocol::model::{Model, ModelEvent, ModelFailure};

use super::records::{GAP, Wire, WireItem, WireResponse, one_line, read_item};
use super::request::Signature;
use crate::blocks::{Blocks, call_end};
use crate::cost;
use crate::http::cut;
use crate::pump::{Flow, Mapper};
use crate::record;
use crate::sse;
use crate::wire::{Text, filled};

/// The name of what the provider says about changes of its input.
const DIAGNOSTIC: &str = "openai_input_transformations";

/// An answer as it grows.
pub(super) struct Answer<'m> {
    model: &'m Model,
    /// Prices follow the tier of service that answered: it says which, else the one that was asked for. `None`: they do
    /// not.
    tier: Option<String>,
    blocks: Blocks,
    open: Vec<Open>,
    calls: usize,
}

/// An item that has begun and not ended.
struct Open {
    /// `output_index`; some endpoints leave it out.
    theirs: Option<u64>,
    /// The item's id.
    id: String,
    index: usize,
    kind: Kind,
}

enum Kind {
    /// The number of bytes said.
    Text(usize),
    Thinking {
        said: usize,
        /// A part ended: the next one begins with [`GAP`].
        gap: bool,
        /// The item, when it ended without the encrypted part that the end of the answer may bring.
        item: Option<String>,
    },
    Call {
        name: String,
        json: String,
    },
}

impl<'m> Answer<'m> {
    /// `tier`: the tier of service that was asked for, empty for none; `None` where tiers have no prices.
    pub(super) fn new(model: &'m Model, tier: Option<String>) -> Answer<'m> {
        Answer { model, tier, blocks: Blocks::default(), open: Vec::new(), calls: 0 }
    }

    fn start(&mut self, response: Option<&WireResponse<'_>>, out: &mut Vec<ModelEvent>) {
        let id = response.and_then(|response| response.id.as_deref());
        let name = response.and_then(|response| response.model.as_deref());
        self.blocks.start(self.model, id, name, out);
    }

    /// The open item a record is about: by its place, else by its id, else the newest.
    fn find(&self, theirs: Option<u64>, id: &str) -> Option<usize> {
        if theirs.is_some() {
            return self.open.iter().position(|open| open.theirs == theirs);
        }
        if !id.is_empty() {
            return self.open.iter().position(|open| open.id == id);
        }
        self.open.len().checked_sub(1)
    }

    fn begin(
        &mut self,
        theirs: Option<u64>,
        item: &WireItem<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Option<usize> {
        self.start(None, out);
        let (index, kind) = match &*item.kind {
            "message" => (self.blocks.text(out), Kind::Text(0)),
            "reasoning" => (self.blocks.thinking(out), Kind::Thinking { said: 0, gap: false, item: None }),
            "function_call" => {
                let name = item.name.to_string();
                let id = match (&*item.call_id, &*item.id) {
                    (call, "") => call.to_owned(),
                    ("", item) => item.to_owned(),
                    (call, item) => format!("{call}|{item}"),
                };
                self.calls += 1;
                (self.blocks.call(id, name.clone(), out), Kind::Call { name, json: String::new() })
            }
            // Items of the provider's own tools: nothing a session could keep or send back.
            _ => return None,
        };
        self.open.push(Open { theirs, id: item.id.to_string(), index, kind });
        let at = self.open.len() - 1;
        if let Some(json) = filled_ref(&item.arguments) {
            self.arguments(at, json, out);
        }
        Some(at)
    }

    fn say(&mut self, at: usize, delta: String, out: &mut Vec<ModelEvent>) {
        let open = &mut self.open[at];
        if let Kind::Text(said) = &mut open.kind {
            *said += delta.len();
            out.push(ModelEvent::TextDelta { index: open.index, delta });
        }
    }

    fn think(&mut self, at: usize, delta: String, out: &mut Vec<ModelEvent>) {
        let open = &mut self.open[at];
        if let Kind::Thinking { said, gap, .. } = &mut open.kind {
            let delta = if std::mem::take(gap) && *said > 0 { format!("{GAP}{delta}") } else { delta };
            *said += delta.len();
            out.push(ModelEvent::ThinkingDelta { index: open.index, delta });
        }
    }

    /// All of a call's arguments so far, of which some may have been said.
    fn arguments(&mut self, at: usize, whole: &str, out: &mut Vec<ModelEvent>) {
        let open = &mut self.open[at];
        if let Kind::Call { json, .. } = &mut open.kind {
            match whole.strip_prefix(json.as_str()) {
                Some("") => return,
                Some(rest) => {
                    out.push(ModelEvent::ToolCallDelta { index: open.index, delta: rest.to_owned() })
                }
                // What is said at the end counts; deltas cannot be taken back.
                None => {}
            }
            json.clear();
            json.push_str(whole);
        }
    }

    fn more_arguments(&mut self, at: usize, delta: String, out: &mut Vec<ModelEvent>) {
        let open = &mut self.open[at];
        if let Kind::Call { json, .. } = &mut open.kind {
            json.push_str(&delta);
            out.push(ModelEvent::ToolCallDelta { index: open.index, delta });
        }
    }

    /// An item is complete. `text` is the item's own.
    fn done(&mut self, theirs: Option<u64>, item: &WireItem<'_>, text: &str, out: &mut Vec<ModelEvent>) {
        let known = self.find(theirs, &item.id).filter(|at| {
            matches!(
                (&self.open[*at].kind, &*item.kind),
                (Kind::Text(_), "message")
                    | (Kind::Thinking { .. }, "reasoning")
                    | (Kind::Call { .. }, "function_call")
            )
        });
        let Some(at) = known.or_else(|| self.begin(theirs, item, out)) else { return };
        match &self.open[at].kind {
            Kind::Text(said) => {
                // The endpoint may have left deltas out, the last or all.
                let (said, whole) = (*said, item.text());
                if let Some(rest) = whole.get(said..).filter(|rest| !rest.is_empty()) {
                    self.say(at, rest.to_owned(), out);
                }
                let signature = Some(Signature::write(&item.id, item.phase.as_deref()));
                let Open { index, .. } = self.open.remove(at);
                out.push(ModelEvent::TextEnd { index, signature: signature.filter(|_| !item.id.is_empty()) });
            }
            Kind::Thinking { said: 0, .. } if !item.thinking().is_empty() => {
                self.think(at, item.thinking(), out);
                self.thought(at, item, text, out);
            }
            Kind::Thinking { .. } => self.thought(at, item, text, out),
            Kind::Call { .. } => {
                if let Some(json) = filled_ref(&item.arguments) {
                    self.arguments(at, json, out);
                }
                let Open { index, kind, .. } = self.open.remove(at);
                if let Kind::Call { json, .. } = kind {
                    out.push(call_end(index, &json));
                }
            }
        }
    }

    fn thought(&mut self, at: usize, item: &WireItem<'_>, text: &str, out: &mut Vec<ModelEvent>) {
        let item_text = one_line(text);
        if item.encrypted_content.is_none() {
            // Azure says it only at the end of the answer: the block stays open until then.
            if let Kind::Thinking { item, .. } = &mut self.open[at].kind {
                *item = Some(item_text);
            }
            return;
        }
        let Open { index, .. } = self.open.remove(at);
        out.push(ModelEvent::ThinkingEnd { index, signature: Some(item_text), redacted: false });
    }

    fn delta(&mut self, wire: Wire<'_>, out: &mut Vec<ModelEvent>) {
        let Some(at) = self.find(wire.output_index.0, &wire.item_id) else { return };
        match &*wire.kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                if let Some(delta) = filled(wire.delta) {
                    self.say(at, delta, out);
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                if let Some(delta) = filled(wire.delta) {
                    self.think(at, delta, out);
                }
            }
            "response.reasoning_summary_part.done" => {
                if let Kind::Thinking { gap, .. } = &mut self.open[at].kind {
                    *gap = true;
                }
            }
            "response.function_call_arguments.delta" => {
                if let Some(delta) = filled(wire.delta) {
                    self.more_arguments(at, delta, out);
                }
            }
            _ => {
                if let Some(json) = wire.arguments.as_ref().and_then(filled_ref) {
                    self.arguments(at, json, out);
                }
            }
        }
    }

    /// Ends what is open: the answer is over.
    fn close(&mut self, response: &WireResponse<'_>, out: &mut Vec<ModelEvent>) -> Option<String> {
        let mut unfinished = None;
        for Open { id, index, kind, .. } in std::mem::take(&mut self.open) {
            out.push(match kind {
                Kind::Text(_) => ModelEvent::TextEnd { index, signature: None },
                Kind::Thinking { item, .. } => {
                    let sealed = item.as_ref().and_then(|_| response.sealed(&id));
                    ModelEvent::ThinkingEnd { index, signature: sealed.or(item), redacted: false }
                }
                Kind::Call { name, json } => {
                    unfinished = unfinished.or(Some(name));
                    call_end(index, &json)
                }
            });
        }
        unfinished
    }

    fn count(&self, response: &WireResponse<'_>, out: &mut Vec<ModelEvent>) {
        let Some(wire) = &response.usage else { return };
        let details = wire.input_tokens_details.as_ref();
        let read = details.and_then(|details| details.cached_tokens.0).unwrap_or(0);
        let write = details.and_then(|details| details.cache_write_tokens.0).unwrap_or(0);
        let mut usage = Usage {
            // What the provider calls input is all that was sent, cached or not.
            input: wire.input_tokens.0.unwrap_or(0).saturating_sub(read).saturating_sub(write),
            output: wire.output_tokens.0.unwrap_or(0),
            cache_read: read,
            cache_write: write,
            reasoning: wire.output_tokens_details.as_ref().and_then(|details| details.reasoning_tokens.0),
            ..Usage::default()
        };
        cost::price(&mut usage, &self.model.cost, 0);
        if let Some(asked) = &self.tier {
            let tier = response.service_tier.as_deref().filter(|tier| !tier.is_empty()).unwrap_or(asked);
            cost::scale(&mut usage.cost, tier_factor(&self.model.id, tier));
        }
        out.push(ModelEvent::Usage(usage));
    }

    fn finish(
        &mut self,
        event: &str,
        response: &WireResponse<'_>,
        out: &mut Vec<ModelEvent>,
    ) -> Result<Flow, ModelFailure> {
        self.start(Some(response), out);
        self.count(response, out);
        let said = response.status.as_deref().filter(|word| !word.is_empty());
        let usual = event.trim_start_matches("response.");
        let status = said.unwrap_or(if usual == "done" { "completed" } else { usual });
        let detail = response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
        let fails = |text: String, raw: String| Err(record::stopped_with(cut(&raw), text));
        let (reason, raw_reason) = match (status, detail) {
            ("completed", _) if self.calls > 0 => (StopReason::ToolUse, None),
            ("completed", _) => (StopReason::Stop, None),
            ("incomplete", Some("max_output_tokens")) => (StopReason::Length, None),
            ("incomplete", Some(detail)) => {
                let text = format!("Response incomplete: {}", cut(detail));
                return fails(text, format!("incomplete.{detail}"));
            }
            ("incomplete", None) => {
                return fails("Response incomplete without a provider reason".into(), status.into());
            }
            ("failed" | "cancelled", _) => return fails(response.failure(status), status.into()),
            // The event says that the answer is complete; some endpoints keep the status they began with.
            ("in_progress" | "queued", _) if usual == "completed" => {
                let reason = if self.calls > 0 { StopReason::ToolUse } else { StopReason::Stop };
                (reason, Some(status.to_owned()))
            }
            (other, _) => {
                return fails(format!("Unhandled response status: {}", cut(other)), other.into());
            }
        };
        // A call that never ended may be cut off: it must not run.
        let unfinished = self.close(response, out);
        if let (StopReason::ToolUse, Some(name)) = (reason, unfinished) {
            let text = format!("OpenAI Responses stream completed with an unfinished tool call: {name}");
            return Err(ModelFailure::new(text));
        }
        if let Some(details) = response.removed() {
            out.push(ModelEvent::Diagnostic { kind: DIAGNOSTIC.to_owned(), details });
        }
        out.push(ModelEvent::Done { reason, raw_reason, end_turn: response.end_turn });
        Ok(Flow::Ended)
    }

    fn record(
        &mut self,
        mut wire: Wire<'_>,
        name: &str,
        out: &mut Vec<ModelEvent>,
    ) -> Result<Flow, ModelFailure> {
        if wire.kind.is_empty() {
            wire.kind = Text(name.to_owned().into());
        }
        match &*wire.kind {
            "response.output_text.delta"
            | "response.refusal.delta"
            | "response.reasoning_summary_text.delta"
            | "response.reasoning_text.delta"
            | "response.reasoning_summary_part.done"
            | "response.function_call_arguments.delta"
            | "response.function_call_arguments.done" => self.delta(wire, out),
            "response.output_item.added" => {
                if let Some(item) = wire.item.and_then(read_item) {
                    self.begin(wire.output_index.0, &item, out);
                }
            }
            "response.output_item.done" => {
                if let Some((item, text)) = wire.item.and_then(|raw| Some((read_item(raw)?, raw.get()))) {
                    self.done(wire.output_index.0, &item, text, out);
                }
            }
            "response.created" => self.start(wire.response.as_ref(), out),
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.done" => {
                let kind = wire.kind.to_string();
                return self.finish(&kind, &wire.response.unwrap_or_default(), out);
            }
            "error" => return Err(wire.failure()),
            // An error record without a type: a gateway's.
            _ if wire.error.is_some_and(|error| error.get() != "null") => return Err(wire.failure()),
            _ => {}
        }
        Ok(Flow::More)
    }
}

fn filled_ref<'t>(text: &'t Text<'_>) -> Option<&'t str> {
    Some(&**text).filter(|text| !text.is_empty())
}

/// What a tier of service costs, compared with the usual one (OpenAI, "Flex processing", "Priority processing").
fn tier_factor(model: &str, tier: &str) -> f64 {
    match tier {
        "flex" => 0.5,
        "priority" | "fast" if model == "gpt-5.5" => 2.5,
        "priority" | "fast" => 2.0,
        _ => 1.0,
    }
}

impl Mapper for Answer<'_> {
    fn event(&mut self, event: &sse::Event<'_>, out: &mut Vec<ModelEvent>) -> Result<Flow, ModelFailure> {
        let text = event.data.trim();
        if text.is_empty() || text == "[DONE]" {
            return Ok(Flow::More);
        }
        match record::read::<Wire<'static>, _>(text, |wire| self.record(wire, event.name, out)) {
            Ok(outcome) => outcome,
            // A kind of event that only this endpoint knows.
            Err(_)
                if !matches!(event.name, "" | "message" | "error")
                    && !event.name.starts_with("response.") =>
            {
                Ok(Flow::More)
            }
            Err(failure) => Err(failure),
        }
    }

    fn at_end(&mut self, _: &mut Vec<ModelEvent>) -> Result<(), ModelFailure> {
        Err(ModelFailure::new("OpenAI Responses stream ended before a terminal response event"))
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
