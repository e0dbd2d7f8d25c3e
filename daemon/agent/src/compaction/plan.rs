//! One attempt at shortening: what the planner sees of the region, and what its answer leads to.

use std::ops::Range;
use std::sync::Arc;

use atomic_protocol::message::{StopReason, Usage};
use atomic_protocol::model::{ModelEvent, ModelFailure};

use super::prepared::Prepared;
use super::ranges::{Deletions, Record, parse, parse_cut};
use super::region::Rebuilt;
use super::request;
use super::result::{Compaction, Rung};
use crate::context::{CHARS_PER_TOKEN, units};
use crate::overflow;

/// A region and how much of it the planner is shown. Cloning shares the region.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) prepared: Arc<Prepared>,
    /// Lines at the beginning that the planner is not shown, since it could not take all. They are deleted.
    pub(super) offset: usize,
}

/// What became of an answer.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It said what to delete.
    Done(Box<Compaction>),
    /// The planner could not take so much.
    TooLong,
    /// The call failed.
    Failed(ModelFailure),
    /// There was an answer, and nothing in it to go by; says why.
    Unusable(&'static str),
}

/// Reasons of [`Verdict::Unusable`], for a person.
pub(super) const MALFORMED: &str = "The planning model's answer was not a list of line ranges";
const NOTHING_USABLE: &str = "Context compaction produced no usable deleted ranges";
pub(super) const STARVED: &str =
    "The planning model used up its output with reasoning before it named a line";

/// The failure of an answer that has no end.
pub const BROKE_OFF: &str = "The model's answer ended without its end";

impl Plan {
    /// The whole region, or as much of its end as fits a window of `window` tokens (0: not known) by estimate.
    pub fn new(prepared: Prepared, window: u64) -> Plan {
        Plan::of(Arc::new(prepared), window)
    }

    fn of(prepared: Arc<Prepared>, window: u64) -> Plan {
        let mut plan = Plan { prepared, offset: 0 };
        if window > 0 {
            let room = window - window / ANSWER_PART;
            plan.offset = plan.overhang(room.saturating_mul(CHARS_PER_TOKEN));
        }
        plan
    }

    /// The same region for another planner, with a window of `window` tokens (0: not known).
    pub fn for_window(&self, window: u64) -> Plan {
        Plan::of(self.prepared.clone(), window)
    }

    /// How many of the oldest lines must go for the request to have at most `limit` UTF-16 units; at least one line stays.
    fn overhang(&self, limit: u64) -> usize {
        let region = &self.prepared.region;
        let number = |line: usize| line.checked_ilog10().map_or(1, |log| u64::from(log) + 1);
        // The words around the lines come to the same whatever is cut.
        let frame = units(request::SYSTEM) + units(&request::focus(&self.prepared.query)) + FRAME_UNITS;
        // A byte is at least a unit: when the bytes fit there is nothing to count.
        let most = region.from(0).len() as u64 + region.lines() as u64 * (2 + number(region.lines())) + frame;
        if most <= limit {
            return 0;
        }
        let mut room = limit.saturating_sub(frame);
        for line in (0..region.lines()).rev() {
            let needed = units(region.line(line)) + 2 + number(region.lines() - line);
            if needed > room {
                return (line + 1).min(region.lines() - 1);
            }
            room -= needed;
        }
        0
    }

    /// Lines that the planner is shown.
    pub fn lines(&self) -> usize {
        self.prepared.region.lines() - self.offset
    }

    /// The region and what goes with it.
    pub fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// Protected lines among those shown, counted from 0 at the first one shown.
    pub(super) fn protected(&self) -> Vec<Range<usize>> {
        self.prepared
            .region
            .protected()
            .iter()
            .filter(|range| range.end > self.offset)
            .map(|range| range.start.saturating_sub(self.offset)..range.end - self.offset)
            .collect()
    }

    /// How many of the lines shown should stay.
    pub(super) fn keep(&self) -> usize {
        let guarded: usize = self.protected().iter().map(Range::len).sum();
        let wanted = (self.lines() as f64 * self.prepared.parameters.compression_ratio + 0.5).floor();
        guarded.max(wanted as usize)
    }

    /// The planner's one message.
    pub fn request(&self) -> String {
        request::request(self)
    }

    /// A plan that shows the planner the newer half. `None`: it sees one line only.
    pub fn trimmed(&self) -> Option<Plan> {
        let lines = self.lines();
        (lines > 1)
            .then(|| Plan { prepared: self.prepared.clone(), offset: self.offset + (lines / 2).max(1) })
    }

    /// Decides what an answer of a model with a window of `window` tokens leads to.
    pub fn judge(&self, answer: PlannerAnswer, window: u64) -> Verdict {
        if let Some(failure) = answer.failure {
            return match overflow::says_too_long(&failure.message) {
                true => Verdict::TooLong,
                false => Verdict::Failed(failure),
            };
        }
        if overflow::is_silent(answer.stop, &answer.usage, window) {
            return Verdict::TooLong;
        }
        let cut = answer.stop == StopReason::Length;
        let records = if cut { parse_cut(&answer.text) } else { parse(&answer.text) };
        let Some(records) = records else { return Verdict::Unusable(MALFORMED) };
        let shown = self.deletions(&records);
        if shown.is_empty() {
            let reasoned = answer.usage.reasoning.is_some_and(|tokens| tokens > 0);
            return Verdict::Unusable(if cut && reasoned { STARVED } else { NOTHING_USABLE });
        }
        let hidden = (1, self.offset as u64);
        let shifted = shown
            .ranges()
            .iter()
            .map(|range| ((range.start + self.offset + 1) as u64, (range.end + self.offset) as u64));
        let records: Vec<Record> = shifted.chain((self.offset > 0).then_some(hidden)).collect();
        let region = &self.prepared.region;
        let deletions = Deletions::validate(&records, region.lines(), region.protected());
        Verdict::Done(Box::new(self.compaction(region.rebuild(&deletions), Rung::Planned, true)))
    }

    fn deletions(&self, records: &[Record]) -> Deletions {
        Deletions::validate(records, self.lines(), &self.protected())
    }

    /// Without a planner: everything goes but what is protected, and what was to stay as well if it alone is more than a
    /// window of `window` tokens (0: not known). The last resort when a conversation cannot go on as it is.
    pub fn fresh(&self, window: u64) -> Compaction {
        let region = &self.prepared.region;
        let all = Deletions::validate(&[(1, u64::MAX)], region.lines(), region.protected());
        let keep_tail = window == 0 || self.prepared.kept_tokens <= window;
        self.compaction(region.rebuild(&all), Rung::Fresh, keep_tail)
    }

    fn compaction(&self, rebuilt: Rebuilt, rung: Rung, keep_tail: bool) -> Compaction {
        let prepared = &self.prepared;
        let first_kept = prepared.first_kept.clone().filter(|_| keep_tail);
        let kept_tokens = if first_kept.is_some() { prepared.kept_tokens } else { 0 };
        Compaction::new(prepared, rebuilt, rung, first_kept, kept_tokens)
    }
}

/// One part in this many of the planner's window is left for its answer.
const ANSWER_PART: u64 = 16;

/// UTF-16 units of the words around the lines, at least; the exact number does not matter.
const FRAME_UNITS: u64 = 2_800;

/// A planner's answer while it comes in, and when it is there.
#[derive(Clone, Debug)]
pub struct PlannerAnswer {
    pub(super) text: String,
    pub(super) stop: StopReason,
    pub(super) usage: Usage,
    pub(super) failure: Option<ModelFailure>,
}

impl Default for PlannerAnswer {
    fn default() -> Self {
        PlannerAnswer {
            text: String::new(),
            stop: StopReason::Pending,
            usage: Usage::default(),
            failure: None,
        }
    }
}

impl PlannerAnswer {
    /// Takes a piece; true when it was the last. Text blocks follow each other without a break; reasoning is not read.
    pub fn take(&mut self, event: ModelEvent) -> bool {
        match event {
            ModelEvent::TextDelta { delta, .. } => self.text.push_str(&delta),
            ModelEvent::Usage(usage) => self.usage = usage,
            ModelEvent::Done { reason, .. } => {
                self.stop = reason;
                return true;
            }
            ModelEvent::Failed(failure) => {
                self.failure = Some(failure);
                return true;
            }
            _ => {}
        }
        false
    }

    /// What it used.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// An answer that never came to its end.
    pub fn broken(message: &str) -> PlannerAnswer {
        PlannerAnswer { failure: Some(ModelFailure::new(message)), ..PlannerAnswer::default() }
    }
}
