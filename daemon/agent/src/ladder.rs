//! Whom to ask when the session's own model cannot plan a compaction (reference compaction 8).
//!
//! Each candidate is asked once for a compaction at most, in the order of the setting `fallbackModels`. Borrowing one changes
//! nothing of the session and emits nothing; the result says whom it came from.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use atomic_protocol::model::{Model, ThinkingLevel};

use crate::Agent;
use crate::compacting::Compacting;
use crate::compaction::Work;
use crate::effect::PlanStage;

/// A model that may be asked, with how much it may think.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The model.
    pub model: Arc<Model>,
    /// Clamped to what the model can do when it is asked.
    pub thinking: ThinkingLevel,
}

impl Candidate {
    fn clamped(&self) -> Candidate {
        Candidate { model: self.model.clone(), thinking: self.model.clamp_thinking(self.thinking) }
    }

    fn key(&self) -> (&str, &str, ThinkingLevel) {
        (&self.model.provider, &self.model.id, self.thinking)
    }
}

impl Agent {
    /// Sets who may be asked besides the session's own model, in this order.
    pub fn set_planners(&mut self, candidates: Vec<Candidate>) {
        self.planners = candidates;
    }

    /// Those to ask after the session's own model: each once, and not that one again.
    pub(crate) fn ladder(&self) -> VecDeque<Candidate> {
        let own = self.model.clone().map(|model| Candidate { model, thinking: self.thinking });
        let rungs: Vec<Candidate> = self.planners.iter().map(Candidate::clamped).collect();
        let mut seen: HashSet<_> = own.iter().map(Candidate::key).collect();
        rungs.iter().filter(|rung| seen.insert(rung.key())).cloned().collect()
    }

    /// Asks the next candidate for lines to delete. False: there is none, or it is not lines that are asked for.
    pub(crate) fn borrow_planner(&mut self, work: &Work) -> bool {
        let (Work::Lines(plan), Some(compacting)) = (work, &mut self.compaction) else { return false };
        let Some(next) = compacting.ladder.pop_front() else { return false };
        let plan = plan.for_window(next.model.context_window);
        compacting.planner = Some(next);
        self.end_planner_retries();
        self.take_step(PlanStage::Ask(Work::Lines(plan)));
        true
    }
}

impl Compacting {
    /// Whom the step under way asks, if it is not the session's own model.
    pub(crate) fn borrowed(&self) -> Option<&Candidate> {
        self.planner.as_ref()
    }
}
