//! One step of planning, done beside a session's task: prepare, ask, judge.

use atomic_protocol::model::ModelFailure;

use super::branch::{BranchPlan, BranchSummary};
use super::plan::{Plan, PlannerAnswer, Verdict};
use super::prepared::{Source, prepare};
use super::result::{Boundary, Compaction};
use super::summary::{SummaryParameters, SummaryPlan};
use super::{MIN_LINES, Parameters, notes, request};

/// How a compaction begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Begin {
    /// By which strategy, and how far to go.
    pub way: Way,
    /// Tokens of the conversation now.
    pub tokens_before: u64,
    /// The conversation cannot go on as it is: also a small region is taken away, without a planner.
    pub load_bearing: bool,
    /// Even fewer than [`MIN_LINES`] lines count.
    pub small: bool,
}

/// How a conversation is shortened.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// Lines of it are taken away.
    Lines(Parameters),
    /// Its older part is summed up.
    Summary(SummaryParameters),
}

/// Something that a model is asked for. Cloning shares the texts.
#[derive(Clone, Debug)]
pub enum Work {
    /// Lines to delete.
    Lines(Plan),
    /// A summary of the older part of a conversation.
    Summary(SummaryPlan),
    /// A summary of a branch.
    Branch(BranchPlan),
}

/// What a beginning leads to.
#[derive(Clone, Debug)]
pub enum Begun {
    /// It is over already.
    Over(PlanOutcome),
    /// A model must be asked.
    Ask(Work),
}

/// What came of a step.
#[derive(Clone, Debug)]
pub enum PlanOutcome {
    /// There is nothing to shorten.
    Nothing,
    /// What to write down.
    Done(Box<Boundary>),
    /// What to write down of a branch.
    Summarized(Box<BranchSummary>),
    /// A part is done and another is to be asked for.
    Further(Work),
    /// The model could not take so much.
    TooLong(Work),
    /// The call failed.
    Failed {
        /// To be asked again.
        work: Work,
        /// How.
        failure: ModelFailure,
    },
    /// The model answered nothing to go by.
    Unusable {
        /// To be done without.
        work: Work,
        /// Why, for a person.
        why: String,
    },
    /// The step broke inside the daemon.
    Broken(String),
}

impl From<Compaction> for PlanOutcome {
    fn from(compaction: Compaction) -> Self {
        PlanOutcome::Done(Box::new(Boundary::Lines(compaction)))
    }
}

impl Begin {
    /// Prepares the branch for a model with a window of `window` tokens (0: not known).
    pub fn begin(self, source: Source, window: u64) -> Begun {
        let parameters = match self.way {
            Way::Lines(parameters) => parameters,
            Way::Summary(parameters) => return parameters.begin(source, self.tokens_before, window),
        };
        let Some(prepared) = prepare(source, parameters, self.tokens_before, self.small) else {
            return Begun::Over(PlanOutcome::Nothing);
        };
        let few = prepared.region.lines() < MIN_LINES;
        let plan = Plan::new(prepared, window);
        if few && self.load_bearing {
            Begun::Over(plan.fresh(window).into())
        } else {
            Begun::Ask(Work::Lines(plan))
        }
    }
}

impl Work {
    /// The system prompt for it.
    pub fn system(&self) -> &'static str {
        match self {
            Work::Lines(_) => request::SYSTEM,
            Work::Summary(_) | Work::Branch(_) => notes::SYSTEM,
        }
    }

    /// The one message.
    pub fn request(&self) -> String {
        match self {
            Work::Lines(plan) => plan.request(),
            Work::Summary(plan) => plan.request(),
            Work::Branch(plan) => plan.request(),
        }
    }

    /// With the older half of what is shown left out. `None`: there is nothing more to leave out.
    pub fn trimmed(&self) -> Option<Work> {
        match self {
            Work::Lines(plan) => plan.trimmed().map(Work::Lines),
            Work::Summary(plan) => plan.trimmed().map(Work::Summary),
            Work::Branch(plan) => plan.trimmed().map(Work::Branch),
        }
    }

    /// What an answer of a model with a window of `window` tokens leads to.
    pub fn outcome(self, answer: PlannerAnswer, window: u64) -> PlanOutcome {
        let plan = match self {
            Work::Lines(plan) => plan,
            Work::Summary(plan) => return plan.outcome(answer, window),
            Work::Branch(plan) => return plan.outcome(answer, window),
        };
        match plan.judge(answer, window) {
            Verdict::Done(compaction) => (*compaction).into(),
            Verdict::TooLong => PlanOutcome::TooLong(Work::Lines(plan)),
            Verdict::Failed(failure) => PlanOutcome::Failed { work: Work::Lines(plan), failure },
            Verdict::Unusable(why) => PlanOutcome::Unusable { work: Work::Lines(plan), why: why.to_owned() },
        }
    }
}
