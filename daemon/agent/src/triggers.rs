//! When a conversation is shortened without being asked, and how often at most.
//!
//! Reference 2.8, 4.3 and compaction 10. Everything here is bounded by user messages: each brings one recovery of each
//! kind and a few continuations, so that a provider that always fails the same way cannot be paid for ever.

use atomic_protocol::entry::EntryId;
use atomic_protocol::event::{CompactionEnd, CompactionReason, Event};
use atomic_protocol::message::{AssistantMessage, Message, StopReason, Usage, role};
use atomic_protocol::model::Model;

use crate::Agent;
use crate::cause::Cause;
use crate::overflow;
use crate::run::{Run, Step};

/// Continuations of answers that hit their output limit, per user message.
const CONTINUATIONS: u32 = 3;

/// Between turns, a compaction that left more than the threshold is not made again before the conversation has grown by
/// one part in this many of the window.
const GROWN_PART: u64 = 10;

/// Literals of the reference.
const OVERFLOW_SPENT: &str = "Context overflow recovery failed after one compact-and-retry attempt. Try reducing context or switching to a \
     larger-context model.";
const LENGTH_SPENT: &str = "Response truncation recovery stopped after one retry.";
const BUDGET_SPENT: &str = "Output-budget recovery stopped after a compact-and-retry attempt. Try reducing context or switching to a \
     larger-context model.";

/// How an answer ended, as far as it says whether there is room for another.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    provider: String,
    model: String,
    api: String,
    stop: StopReason,
    usage: Usage,
    error: Option<String>,
}

impl From<&AssistantMessage> for Ending {
    fn from(message: &AssistantMessage) -> Self {
        Ending {
            provider: message.provider.clone(),
            model: message.model.clone(),
            api: message.api.clone(),
            stop: message.stop_reason,
            usage: message.usage.clone(),
            error: message.error_message.clone(),
        }
    }
}

impl Ending {
    /// Answers of another model say nothing about this one's window.
    fn is_of(&self, model: &Model) -> bool {
        self.provider == model.provider && self.model == model.id
    }

    fn is_too_long(&self, window: u64) -> bool {
        match (&self.error, self.stop) {
            (Some(error), StopReason::Error) => overflow::says_too_long(error),
            _ => overflow::is_silent(self.stop, &self.usage, window),
        }
    }

    /// The Responses API refuses a request whose room for output is less than 16 tokens.
    fn is_output_budget(&self) -> bool {
        let error = self.error.as_deref().unwrap_or_default();
        self.stop == StopReason::Error
            && self.api == "openai-responses"
            && error.contains("max_output_tokens")
            && error.contains("16")
    }
}

/// A context window smaller than the catalog says.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) provider: String,
    pub(crate) id: String,
    pub(crate) tokens: u64,
}

impl Limit {
    pub(crate) fn is_of(&self, model: &Model) -> bool {
        self.provider == model.provider && self.id == model.id
    }
}

/// What was tried for the last user message.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    overflow: bool,
    length: bool,
    budget: bool,
    continuations: u32,
    /// The last message when a compaction ended without a result: with nothing new it would end so again.
    pub(crate) tried: Option<EntryId>,
    /// Tokens that the last compaction left.
    pub(crate) left: u64,
    /// What an error said of the window.
    pub(crate) limit: Option<Limit>,
}

impl Recovery {
    /// Another user message: what was spent may be tried again.
    pub(crate) fn renew(&mut self) {
        (self.overflow, self.length, self.budget, self.continuations) = (false, false, false, 0);
    }
}

impl Agent {
    /// More than the reserve of the window is used. Gives how much is.
    fn over_threshold(&mut self) -> Option<u64> {
        let window = self.window();
        let tokens = self.weights.tokens(&self.context).count;
        let over = window > 0 && tokens > window.saturating_sub(self.compaction_policy.reserve_tokens);
        over.then_some(tokens)
    }

    /// A compaction of just this conversation came to nothing.
    fn was_tried(&self) -> bool {
        let last = self.context.last().map(|(id, _)| id);
        last.is_some() && self.recovery.tried.as_ref() == last
    }

    /// After a run: shortens the conversation or lets the model go on where it was cut off, if the last answer asks for
    /// it. True when something was begun.
    pub(crate) fn recover(&mut self) -> bool {
        let Some(model) = self.model.clone() else { return false };
        let run = self.active();
        let (ending, aborted) = (run.ending.take().filter(|_| !run.refused), run.aborted);
        let Some(ending) = ending.filter(|ending| ending.stop != StopReason::Aborted) else { return false };
        if aborted || !self.compaction_policy.enabled || self.manual_compaction() || self.refusal().is_some()
        {
            return false;
        }
        if ending.is_of(&model) {
            if ending.is_too_long(self.window()) {
                return self.recover_overflow(&ending);
            }
            let output = ending.usage.output;
            if ending.stop == StopReason::Length && output > 0 && output < model.max_tokens {
                if self.recovery.length {
                    self.spent(CompactionReason::Overflow, LENGTH_SPENT, false);
                    return false;
                }
                self.recovery.length = true;
                self.compact_for(Cause::Length, true);
                return true;
            }
        }
        let capped = ending.stop == StopReason::Length
            && model.max_tokens > 0
            && ending.usage.output >= model.max_tokens;
        let capped = capped && self.recovery.continuations < CONTINUATIONS;
        let counted = ending.stop != StopReason::Error || self.weights.tokens(&self.context).counted;
        if counted && self.over_threshold().is_some() && !self.was_tried() {
            let budget = ending.is_output_budget();
            if budget && self.recovery.budget {
                self.spent(CompactionReason::Threshold, BUDGET_SPENT, false);
                return false;
            }
            self.recovery.budget |= budget;
            self.recovery.continuations += u32::from(capped);
            self.compact_for(Cause::Threshold, budget || capped);
            return true;
        }
        if capped {
            self.recovery.continuations += 1;
            self.continue_run();
        }
        capped
    }

    fn recover_overflow(&mut self, ending: &Ending) -> bool {
        if ending.stop == StopReason::Stop {
            // It was answered all the same: there is nothing to try again.
            self.compact_for(Cause::Overflow, false);
            return true;
        }
        if self.recovery.overflow {
            self.spent(CompactionReason::Overflow, OVERFLOW_SPENT, true);
            return false;
        }
        self.learn_limit(ending.error.as_deref().unwrap_or_default());
        self.recovery.overflow = true;
        self.compact_for(Cause::Overflow, true);
        true
    }

    /// A recovery that was made already is not made again, and clients hear of it.
    fn spent(&mut self, reason: CompactionReason, error: &str, unresolved_overflow: bool) {
        let error_message = Some(error.to_owned());
        let end = CompactionEnd { unresolved_overflow, error_message, ..CompactionEnd::new(reason) };
        self.emit(Event::CompactionEnd(Box::new(end)));
    }

    /// Before a prompt starts a run: shortens a conversation that would not leave room for it. True when that was begun.
    pub(crate) fn make_room(&mut self) -> bool {
        let Some(model) = self.model.clone() else { return false };
        if !self.compaction_policy.enabled || self.was_tried() {
            return false;
        }
        let last =
            self.context.iter().rev().find(|(_, message)| role(message).as_deref() == Some("assistant"));
        let Some(Ok(Message::Assistant(last))) = last.map(|(_, message)| Message::parse(message)) else {
            return false;
        };
        let ending = Ending::from(&last);
        let old = self.weights.boundary(&self.context).is_some_and(|boundary| last.timestamp < boundary);
        // One that was there when the conversation was shortened says nothing of it now; one that was recovered from, or could
        // not be, was told when its run ended.
        if !old && ending.is_of(&model) && ending.is_too_long(self.window()) && !self.recovery.overflow {
            self.learn_limit(ending.error.as_deref().unwrap_or_default());
            self.compact_for(Cause::Overflow, false);
            return true;
        }
        if self.over_threshold().is_some() {
            self.compact_for(Cause::Threshold, false);
            return true;
        }
        false
    }

    /// Between the tools of one turn and the next turn: shortens a conversation that would not leave room for the next
    /// request. True when that was begun.
    pub(crate) fn make_room_between_turns(&mut self) -> bool {
        // Beyond a limit nothing more is asked, and the next turn says so.
        if !self.compaction_policy.enabled || self.manual_compaction() || self.refusal().is_some() {
            return false;
        }
        let Some(tokens) = self.over_threshold() else { return false };
        let window = self.window();
        let over = tokens > window;
        let left = self.recovery.left;
        let helped = left <= window.saturating_sub(self.compaction_policy.reserve_tokens);
        if !over && !helped && tokens < left.saturating_add(window / GROWN_PART) {
            return false;
        }
        self.compact_for(Cause::MidTurn { over }, false);
        true
    }

    /// The model is asked again, without a new user message. An answer that failed or was cut off leaves the conversation
    /// (not the file), else it would be answered as if it were whole.
    pub(crate) fn continue_run(&mut self) {
        let failed = self.context.last().is_some_and(|(_, message)| {
            matches!(
                Message::parse(message),
                Ok(Message::Assistant(AssistantMessage {
                    stop_reason: StopReason::Error | StopReason::Length,
                    ..
                }))
            )
        });
        if failed {
            self.context.pop();
        }
        let mut next = Run::new(None);
        next.steps.extend([Step::AgentStart, Step::TurnStart, Step::CallModel]);
        self.run = Some(next);
    }
}
