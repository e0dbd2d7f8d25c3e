//! One answer of a model while it grows.

use std::sync::Arc;

use atomic_protocol::event::{Delta, Event};
use atomic_protocol::json::{ObjectWriter, Raw};
use atomic_protocol::message::{AssistantMessage, Block, StopReason, ToolCall, Usage};
use atomic_protocol::model::{Model, ModelEvent, ModelFailure};
use atomic_protocol::time::Millis;

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    Done { reason: StopReason, raw_reason: Option<String>, end_turn: Option<bool> },
    Failed(ModelFailure),
    Aborted(&'static str),
}

/// An answer that grows: the blocks so far and what clients were told.
#[derive(Debug)]
pub(crate) struct Answer {
    message: AssistantMessage,
    /// Raw argument text of open tool calls, by block.
    arguments: Vec<Option<String>>,
    /// Written again only when it changes: it stands in every update.
    usage: Raw,
    /// `message_start` was announced.
    pub(crate) started: bool,
}

/// A message's diagnostics. They have no time of their own: the answer's will do.
fn diagnostics(kind: &str, at: Millis, details: &Raw) -> Raw {
    let mut out = Vec::new();
    out.push(b'[');
    let mut object = ObjectWriter::begin(&mut out);
    object.str("type", kind).raw("timestamp", at.0.to_string().as_bytes()).raw("details", details.bytes());
    object.end();
    out.push(b']');
    std::str::from_utf8(&out).ok().and_then(|text| Raw::parse(text).ok()).unwrap_or_else(Raw::empty_object)
}

impl Answer {
    pub(crate) fn new(model: &Arc<Model>, now: Millis) -> Answer {
        let message = AssistantMessage {
            content: Vec::new(),
            api: model.api.clone(),
            provider: model.provider.clone(),
            model: model.id.clone(),
            usage: Usage::default(),
            stop_reason: StopReason::Pending,
            timestamp: now,
            response_id: None,
            response_model: None,
            raw_stop_reason: None,
            error_message: None,
            diagnostics: None,
            end_turn: None,
        };
        Answer { usage: Raw::from_serialize(&message.usage), message, arguments: Vec::new(), started: false }
    }

    /// The message as far as it is known, without content: what `message_start` shows.
    pub(crate) fn opening(&self) -> Raw {
        let mut message = self.message.clone();
        message.content.clear();
        Raw::from_serialize(&message)
    }

    /// The message so far and, for tool calls still open, their index and raw argument text: what a joiner is shown.
    pub(crate) fn so_far(&self) -> (Raw, Vec<(usize, String)>) {
        let open = self
            .arguments
            .iter()
            .enumerate()
            .filter_map(|(index, text)| Some((index, text.clone()?)))
            .collect();
        (Raw::from_serialize(&self.message), open)
    }

    pub(crate) fn update(&self, delta: Delta) -> Event {
        Event::MessageUpdate { usage: self.usage.clone(), delta, end_turn: None }
    }

    /// Takes one event. Gives the delta to announce, or how the answer ended. `fresh_id` replaces a tool call's id when
    /// the session has used it before.
    pub(crate) fn apply(
        &mut self,
        event: ModelEvent,
        fresh_id: impl FnOnce(String) -> String,
    ) -> (Option<Delta>, Option<End>) {
        let delta = match event {
            ModelEvent::Start { response_id, response_model } => {
                self.message.response_id = response_id;
                self.message.response_model = response_model;
                return (None, None);
            }
            ModelEvent::Usage(usage) => {
                self.usage = Raw::from_serialize(&usage);
                self.message.usage = usage;
                return (None, None);
            }
            ModelEvent::Diagnostic { kind, details } => {
                let said = diagnostics(&kind, self.message.timestamp, &details);
                self.message.diagnostics = Some(Box::new(said));
                return (None, None);
            }
            ModelEvent::Done { reason, raw_reason, end_turn } => {
                return (None, Some(End::Done { reason, raw_reason, end_turn }));
            }
            ModelEvent::Failed(failure) => return (None, Some(End::Failed(failure))),
            ModelEvent::TextStart { index } => {
                self.open(index, Block::text(""));
                Delta::TextStart { index }
            }
            ModelEvent::ThinkingStart { index } => {
                self.open(
                    index,
                    Block::Thinking { thinking: String::new(), signature: None, redacted: false },
                );
                Delta::ThinkingStart { index }
            }
            ModelEvent::ToolCallStart { index, id, name } => {
                let id = fresh_id(id);
                let (call_id, tool_name) = (id.clone(), name.clone());
                let arguments = Raw::empty_object();
                self.open(index, Block::ToolCall(ToolCall { id, name, arguments, thought_signature: None }));
                if let Some(slot) = self.arguments.get_mut(index) {
                    *slot = Some(String::new());
                }
                Delta::ToolCallStart { index, id: call_id, tool_name }
            }
            ModelEvent::TextDelta { index, delta } => {
                match self.message.content.get_mut(index) {
                    Some(Block::Text { text, .. }) => text.push_str(&delta),
                    _ => return (None, None),
                }
                Delta::TextDelta { index, delta }
            }
            ModelEvent::ThinkingDelta { index, delta } => {
                match self.message.content.get_mut(index) {
                    Some(Block::Thinking { thinking, .. }) => thinking.push_str(&delta),
                    _ => return (None, None),
                }
                Delta::ThinkingDelta { index, delta }
            }
            ModelEvent::ToolCallDelta { index, delta } => {
                match self.arguments.get_mut(index) {
                    Some(Some(text)) => text.push_str(&delta),
                    _ => return (None, None),
                }
                Delta::ToolCallDelta { index, delta }
            }
            ModelEvent::TextEnd { index, signature: sent } => match self.message.content.get_mut(index) {
                Some(Block::Text { text, signature }) => {
                    *signature = sent;
                    Delta::TextEnd { index, content: text.clone() }
                }
                _ => return (None, None),
            },
            ModelEvent::ThinkingEnd { index, signature: sent, redacted: hidden } => {
                match self.message.content.get_mut(index) {
                    Some(Block::Thinking { thinking, signature, redacted }) => {
                        (*signature, *redacted) = (sent, hidden);
                        Delta::ThinkingEnd { index, content: thinking.clone() }
                    }
                    _ => return (None, None),
                }
            }
            ModelEvent::ToolCallEnd { index, arguments, thought_signature } => {
                if let Some(slot) = self.arguments.get_mut(index) {
                    *slot = None;
                }
                match self.message.content.get_mut(index) {
                    Some(Block::ToolCall(call)) => {
                        (call.arguments, call.thought_signature) = (arguments, thought_signature);
                        Delta::ToolCallEnd { index, tool_call: Raw::from_serialize(call) }
                    }
                    _ => return (None, None),
                }
            }
        };
        (Some(delta), None)
    }

    /// Puts a block at `index`, which is the end of the list for an adapter that counts as it should.
    fn open(&mut self, index: usize, block: Block) {
        if index == self.message.content.len() {
            self.message.content.push(block);
            self.arguments.push(None);
        }
    }

    /// The finished message. It never says `pending`.
    pub(crate) fn finish(mut self, end: End) -> AssistantMessage {
        match end {
            End::Done { reason, raw_reason, end_turn } => {
                self.message.stop_reason = reason;
                self.message.raw_stop_reason = raw_reason;
                self.message.end_turn = end_turn;
            }
            End::Failed(failure) => {
                self.message.stop_reason = StopReason::Error;
                self.message.raw_stop_reason = failure.raw_reason;
                self.message.error_message = Some(failure.message);
            }
            End::Aborted(text) => {
                self.message.stop_reason = StopReason::Aborted;
                self.message.error_message = Some(text.to_owned());
            }
        }
        self.message
    }
}
