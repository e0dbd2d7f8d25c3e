//! What every dialect keeps of an answer as it grows: whether it began, which blocks did, what it cost.
//!
//! [`Blocks`] counts positions and says `Start`; [`Run`] is for providers that say text and thinking without ends,
//! [`Numbered`] for those that number their blocks and may let them grow in turns.

use atomic_protocol::json::Raw;
use atomic_protocol::message::Usage;
use atomic_protocol::model::{Model, ModelCost, ModelEvent};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::cost;
use crate::partial_json;

/// Shown in place of thinking that the provider withheld.
const REDACTED: &str = "[Reasoning redacted]";

/// An answer's beginning, the number of its blocks, and its tokens.
#[derive(Default)]
pub(crate) struct Blocks {
    started: bool,
    begun: usize,
    usage: Usage,
}

impl Blocks {
    /// Whether the answer began.
    pub(crate) fn started(&self) -> bool {
        self.started
    }

    /// The answer begins, if it has not. Empty names are none; a model of the name that was asked is not worth a word.
    pub(crate) fn start(
        &mut self,
        model: &Model,
        id: Option<&str>,
        name: Option<&str>,
        out: &mut Vec<ModelEvent>,
    ) {
        if !std::mem::replace(&mut self.started, true) {
            let named = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
            let response_model = named(name).filter(|name| *name != model.id);
            out.push(ModelEvent::Start { response_id: named(id), response_model });
        }
    }

    /// The position of one more block.
    pub(crate) fn next(&mut self) -> usize {
        self.begun += 1;
        self.begun - 1
    }

    /// A text block begins.
    pub(crate) fn text(&mut self, out: &mut Vec<ModelEvent>) -> usize {
        let index = self.next();
        out.push(ModelEvent::TextStart { index });
        index
    }

    /// A thinking block begins.
    pub(crate) fn thinking(&mut self, out: &mut Vec<ModelEvent>) -> usize {
        let index = self.next();
        out.push(ModelEvent::ThinkingStart { index });
        index
    }

    /// A tool call begins.
    pub(crate) fn call(&mut self, id: String, name: String, out: &mut Vec<ModelEvent>) -> usize {
        let index = self.next();
        out.push(ModelEvent::ToolCallStart { index, id, name });
        index
    }

    /// What the provider counts replaces what it counted before; the same again is not said again.
    pub(crate) fn count(&mut self, mut usage: Usage, prices: &ModelCost, out: &mut Vec<ModelEvent>) {
        cost::price(&mut usage, prices, 0);
        if usage != self.usage {
            out.push(ModelEvent::Usage(usage.clone()));
            self.usage = usage;
        }
    }
}

/// A tool call ends with these arguments, as far as they can be read.
pub(crate) fn call_end(index: usize, json: &str) -> ModelEvent {
    ModelEvent::ToolCallEnd { index, arguments: partial_json::arguments(json), thought_signature: None }
}

/// More text or thinking.
pub(crate) fn delta(thought: bool, index: usize, delta: String) -> ModelEvent {
    if thought { ModelEvent::ThinkingDelta { index, delta } } else { ModelEvent::TextDelta { index, delta } }
}

/// Text or thinking that grows until something else begins.
#[derive(Default)]
pub(crate) struct Run(Option<Growing>);

struct Growing {
    thought: bool,
    index: usize,
    signature: Option<String>,
}

impl Run {
    /// The position of the block that grows: the one that did, or a new one after its end.
    pub(crate) fn of(&mut self, thought: bool, blocks: &mut Blocks, out: &mut Vec<ModelEvent>) -> usize {
        if let Some(growing) = self.0.as_ref().filter(|growing| growing.thought == thought) {
            return growing.index;
        }
        self.end(out);
        let index = if thought { blocks.thinking(out) } else { blocks.text(out) };
        self.0 = Some(Growing { thought, index, signature: None });
        index
    }

    /// The newest signature is the block's.
    pub(crate) fn sign(&mut self, signature: Option<String>) {
        if let Some(growing) = &mut self.0 {
            growing.signature = signature.or(growing.signature.take());
        }
    }

    /// Something else begins, or nothing.
    pub(crate) fn end(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some(Growing { thought, index, signature }) = self.0.take() {
            out.push(if thought {
                ModelEvent::ThinkingEnd { index, signature, redacted: false }
            } else {
                ModelEvent::TextEnd { index, signature }
            });
        }
    }
}

/// Blocks that have begun and not ended, by the provider's numbers. Of text nobody needs the past.
#[derive(Default)]
pub(crate) struct Numbered(Vec<Open>);

struct Open {
    theirs: u64,
    index: usize,
    kind: Kind,
}

/// What a numbered block is, and what its end will need.
pub(crate) enum Kind {
    Text,
    Thinking {
        signature: String,
    },
    /// Withheld thinking, as it goes back.
    Redacted(Redacted),
    Call {
        /// The arguments so far.
        json: String,
        /// The arguments that came with the beginning; they count when no others follow.
        whole: Option<Raw>,
    },
}

/// Withheld thinking.
pub(crate) enum Redacted {
    /// In the provider's own text.
    Text(String),
    /// In pieces of bytes.
    Bytes(Vec<u8>),
}

impl Numbered {
    /// A block begins; one of the same number ends.
    pub(crate) fn begin(&mut self, theirs: u64, index: usize, kind: Kind, out: &mut Vec<ModelEvent>) {
        self.end(theirs, out);
        self.0.push(Open { theirs, index, kind });
    }

    /// The open block of that number and its position.
    pub(crate) fn get(&mut self, theirs: u64) -> Option<(usize, &mut Kind)> {
        self.0.iter_mut().find(|open| open.theirs == theirs).map(|open| (open.index, &mut open.kind))
    }

    /// The block of that number ends, if it is open.
    pub(crate) fn end(&mut self, theirs: u64, out: &mut Vec<ModelEvent>) {
        if let Some(at) = self.0.iter().position(|open| open.theirs == theirs) {
            out.push(self.0.remove(at).end());
        }
    }

    /// All end, in the order in which they began.
    pub(crate) fn end_all(&mut self, out: &mut Vec<ModelEvent>) {
        out.extend(self.0.drain(..).map(Open::end));
    }
}

impl Open {
    fn end(self) -> ModelEvent {
        let index = self.index;
        match self.kind {
            Kind::Text => ModelEvent::TextEnd { index, signature: None },
            Kind::Thinking { signature } => {
                let signature = Some(signature).filter(|signature| !signature.is_empty());
                ModelEvent::ThinkingEnd { index, signature, redacted: false }
            }
            Kind::Redacted(data) => {
                let data = match data {
                    Redacted::Text(text) => text,
                    Redacted::Bytes(bytes) => STANDARD.encode(bytes),
                };
                ModelEvent::ThinkingEnd { index, signature: Some(data), redacted: true }
            }
            Kind::Call { json, whole: Some(whole) } if json.trim().is_empty() => {
                call_end(index, whole.as_str())
            }
            Kind::Call { json, .. } => call_end(index, &json),
        }
    }
}

/// What people see of withheld thinking.
pub(crate) fn withheld(index: usize) -> ModelEvent {
    ModelEvent::ThinkingDelta { index, delta: REDACTED.to_owned() }
}
