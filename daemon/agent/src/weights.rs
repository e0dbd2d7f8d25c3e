//! How many tokens the conversation takes, without reading it again each time it is asked.

use std::collections::HashMap;

use atomic_protocol::entry::EntryId;
use atomic_protocol::json::Raw;
use atomic_protocol::time::Millis;

use crate::context;

/// Tokens of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) count: u64,
    /// A provider counted most of them; else all are estimated.
    pub(crate) counted: bool,
}

/// A conversation, with what its messages take as far as that must be known at once. Made beside the session's task: a
/// message that a compaction left may be megabytes long.
#[derive(Debug, Default)]
pub struct Conversation {
    pub(crate) messages: Vec<(EntryId, Raw)>,
    pub(crate) weights: Weights,
}

impl Conversation {
    /// Weighs these messages, each given with the entry it came from.
    pub fn new(messages: Vec<(EntryId, Raw)>) -> Conversation {
        let mut weights = Weights::default();
        weights.tokens(&messages);
        Conversation { messages, weights }
    }
}

/// What each message looked at so far takes.
#[derive(Debug, Default)]
pub(crate) struct Weights(HashMap<EntryId, Weight>);

#[derive(Clone, Copy, Debug)]
struct Weight {
    estimate: u64,
    /// Tokens of the request and the answer, when the message is an answer that says, and when it was begun.
    used: Option<(u64, Millis)>,
    /// When it was made, if it stands for a shortened part of the conversation.
    boundary: Option<Millis>,
}

impl Weights {
    /// What the last answer says was used and an estimate of what came after it; an estimate of everything when no answer
    /// says. Answers of before the conversation was shortened, which a summary may have left in it, say nothing.
    pub(crate) fn tokens(&mut self, context: &[(EntryId, Raw)]) -> Tokens {
        let boundary = self.boundary(context);
        let mut after = 0u64;
        for (id, message) in context.iter().rev() {
            let weight = self.weight(id, message);
            if let Some((used, at)) = weight.used
                && boundary.is_none_or(|boundary| boundary <= at)
            {
                return Tokens { count: used.saturating_add(after), counted: true };
            }
            after = after.saturating_add(weight.estimate);
        }
        Tokens { count: after, counted: false }
    }

    /// When the conversation was shortened last, if it was.
    pub(crate) fn boundary(&mut self, context: &[(EntryId, Raw)]) -> Option<Millis> {
        context.first().and_then(|(id, message)| self.weight(id, message).boundary)
    }

    fn weight(&mut self, id: &EntryId, message: &Raw) -> Weight {
        *self.0.entry(id.clone()).or_insert_with(|| weigh(message))
    }

    /// The conversation is another one now.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

fn weigh(message: &Raw) -> Weight {
    let (estimate, used, boundary) = context::weigh(message);
    Weight { estimate, used, boundary }
}
