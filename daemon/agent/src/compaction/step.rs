//! One step of planning, done beside a session's task: prepare, ask, judge.

use atomic_protocol::model::ModelFailure;

use super::plan::{Plan, PlannerAnswer, Verdict};
use super::prepared::{Source, prepare};
use super::result::Compaction;
use super::{MIN_LINES, Parameters};

/// How a compaction begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Begin {
    /// How far to go.
    pub parameters: Parameters,
    /// Tokens of the conversation now.
    pub tokens_before: u64,
    /// The conversation cannot go on as it is: also a small region is taken away, without a planner.
    pub load_bearing: bool,
    /// Even fewer than [`MIN_LINES`] lines count.
    pub small: bool,
}

/// What a beginning leads to.
#[derive(Clone, Debug)]
pub enum Begun {
    /// There is nothing to shorten.
    Nothing,
    /// It is done already.
    Done(Box<Compaction>),
    /// A planner must be asked.
    Ask(Plan),
}

/// What came of a step.
#[derive(Clone, Debug)]
pub enum PlanOutcome {
    /// There is nothing to shorten.
    Nothing,
    /// What to write down.
    Done(Box<Compaction>),
    /// The planner could not take so much.
    TooLong(Plan),
    /// The planner's call failed.
    Failed {
        /// To be asked again.
        plan: Plan,
        /// How.
        failure: ModelFailure,
    },
    /// The planner answered nothing to go by.
    Unusable {
        /// To be done without.
        plan: Plan,
        /// Why, for a person.
        why: String,
    },
    /// The step broke inside the daemon.
    Broken(String),
}

impl Begin {
    /// Prepares the branch for a planner with a window of `window` tokens (0: not known).
    pub fn begin(self, source: Source, window: u64) -> Begun {
        let Some(prepared) = prepare(source, self.parameters, self.tokens_before, self.small) else {
            return Begun::Nothing;
        };
        let few = prepared.region.lines() < MIN_LINES;
        let plan = Plan::new(prepared, window);
        if few && self.load_bearing { Begun::Done(Box::new(plan.fresh(window))) } else { Begun::Ask(plan) }
    }
}

impl Plan {
    /// What an answer of a planner with a window of `window` tokens leads to.
    pub fn outcome(self, answer: PlannerAnswer, window: u64) -> PlanOutcome {
        match self.judge(answer, window) {
            Verdict::Done(compaction) => PlanOutcome::Done(compaction),
            Verdict::TooLong => PlanOutcome::TooLong(self),
            Verdict::Failed(failure) => PlanOutcome::Failed { plan: self, failure },
            Verdict::Unusable(why) => PlanOutcome::Unusable { plan: self, why: why.to_owned() },
        }
    }
}
