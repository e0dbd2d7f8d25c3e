//! Whom to ask when the session's own model cannot plan a compaction (reference compaction 8).
//!
//! Each of the [fallback models](FallbackModel) is asked once for a compaction at most, in their order. Borrowing one changes
//! nothing of the session and emits nothing; the result says whom it came from.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use atomic_protocol::model::{Model, ThinkingLevel};

use crate::Agent;
use crate::compacting::Compacting;
use crate::compaction::Work;
use crate::effect::PlanStage;
use crate::fallback::FallbackModel;

/// A model that may be asked, with how much it may think.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The model.
    pub model: Arc<Model>,
    /// As much as the model can.
    pub thinking: ThinkingLevel,
}

impl Candidate {
    fn key(&self) -> (&str, &str, ThinkingLevel) {
        (&self.model.provider, &self.model.id, self.thinking)
    }
}

impl Agent {
    /// Those to ask after the session's own model: each once, and not that one again.
    pub(crate) fn ladder(&self) -> VecDeque<Candidate> {
        let own = self.model.clone().map(|model| Candidate { model, thinking: self.thinking });
        let rungs: Vec<Candidate> = self.fallback_models().iter().map(|known| self.rung(known)).collect();
        let mut seen: HashSet<_> = own.iter().map(Candidate::key).collect();
        rungs.iter().filter(|rung| seen.insert(rung.key())).cloned().collect()
    }

    fn rung(&self, known: &FallbackModel) -> Candidate {
        let thinking = known.model.clamp_thinking(known.thinking.unwrap_or(self.thinking));
        Candidate { model: known.model.clone(), thinking }
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
