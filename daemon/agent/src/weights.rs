//! How many tokens the conversation takes, without reading it again each time it is asked.

use std::collections::HashMap;

use atomic_protocol::entry::EntryId;
use atomic_protocol::json::Raw;

use crate::context;

/// Tokens of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) count: u64,
    /// A provider counted most of them; else all are estimated.
    pub(crate) counted: bool,
}

/// What each message looked at so far takes.
#[derive(Debug, Default)]
pub(crate) struct Weights(HashMap<EntryId, Weight>);

#[derive(Clone, Copy, Debug)]
struct Weight {
    estimate: u64,
    /// Tokens of the request and the answer, when the message is an answer that says.
    used: u64,
}

impl Weights {
    /// What the last answer says was used and an estimate of what came after it; an estimate of everything when no answer
    /// says.
    pub(crate) fn tokens(&mut self, context: &[(EntryId, Raw)]) -> Tokens {
        let mut after = 0u64;
        for (id, message) in context.iter().rev() {
            let weight = *self.0.entry(id.clone()).or_insert_with(|| weigh(message));
            if weight.used > 0 {
                return Tokens { count: weight.used.saturating_add(after), counted: true };
            }
            after = after.saturating_add(weight.estimate);
        }
        Tokens { count: after, counted: false }
    }

    /// The conversation is another one now.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

fn weigh(message: &Raw) -> Weight {
    let (estimate, used) = context::weigh(message);
    Weight { estimate, used }
}
