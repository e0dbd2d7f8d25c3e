//! Going to another entry of the tree, and the summary of what is left behind on the way (reference compaction 12).
//!
//! Nothing moves before the summary is there: when it fails or is given up the session is where it was. The summary's entry
//! follows the entry that is gone to, so that writing it is the move.

use atomic_protocol::entry::{Entry, EntryBody, EntryId};
use atomic_protocol::event::Event;
use atomic_protocol::json::{ObjectWriter, Raw};
use atomic_protocol::model::ModelFailure;

use crate::Agent;
use crate::compaction::{BranchBegin, BranchSummary, Instructions, PlanOutcome, Work};
use crate::effect::{Effect, PlanCall, PlanStage};
use crate::input::{PlanId, RequestId, TimerId};
use crate::weights::Conversation;

/// Something is going on (literal of the reference).
pub const BUSY: &str = "Wait for the current response to finish before navigating the session tree.";

/// Nobody can be asked (literal of the reference).
pub const NO_SUMMARIZER: &str = "No model available for summarization";

/// Where to go, with a summary of what is left behind.
#[derive(Debug)]
pub struct Departure {
    /// The entry that was named; what is left behind are the entries that its branch does not have.
    pub target: EntryId,
    /// The entry that the next one follows.
    pub leaf: Option<EntryId>,
    /// What the client wants of the summary.
    pub instructions: Instructions,
    /// A label for the summary.
    pub label: Option<String>,
    /// `data` of the answer.
    pub answer: Raw,
}

/// A departure under way.
#[derive(Debug)]
pub(crate) struct Branching {
    request: RequestId,
    departure: Departure,
    stage: Stage,
    /// Retries of the model's call that were announced.
    retries: u32,
}

#[derive(Debug)]
enum Stage {
    /// The model is asked.
    Asking(PlanId),
    /// The time for the next call.
    Waiting(TimerId, Work),
    /// Written down; the conversation is being read. The leaf of before, should it not have been written after all.
    Reading { plan: PlanId, summary: EntryId, before: Option<EntryId> },
}

impl Agent {
    /// A branch that is left is being summed up.
    pub fn is_leaving_branch(&self) -> bool {
        self.branching.is_some()
    }

    pub(crate) fn branching_request(&self) -> Option<RequestId> {
        self.branching.as_ref().map(|branching| branching.request)
    }

    pub(crate) fn depart(&mut self, request: RequestId, departure: Departure) {
        let refusal = if self.is_idle() { NO_SUMMARIZER } else { BUSY };
        if !self.is_idle() || self.model.is_none() {
            return self.answer(request, Err(refusal.to_owned()));
        }
        if let Some(why) = self.session_refusal() {
            return self.answer(request, Err(why));
        }
        let begin = BranchBegin {
            instructions: departure.instructions.clone(),
            reserve_tokens: self.compaction_policy.reserve_tokens,
        };
        let stage = self.ask_for_branch(PlanStage::BeginBranch(begin, departure.target.clone()));
        self.branching = Some(Branching { request, departure, stage, retries: 0 });
    }

    fn ask_for_branch(&mut self, stage: PlanStage) -> Stage {
        let plan = PlanId(self.number());
        let model =
            self.model.clone().expect("who asks has looked for a model, and a model is only replaced");
        let (window, thinking) = (self.window(), self.thinking);
        let (borrowed, retry) = (false, self.retry);
        let retries = self.branching.as_ref().map_or(0, |branching| branching.retries);
        let call = PlanCall { plan, stage, model, thinking, window, borrowed, retry, retries };
        self.out.push(Effect::Plan(Box::new(call)));
        Stage::Asking(plan)
    }

    fn branch_at(&mut self, stage: Stage) {
        if let Some(branching) = &mut self.branching {
            branching.stage = stage;
        }
    }

    /// A step is done. Gives it back when it is none of ours.
    pub(crate) fn branch_planned(&mut self, plan: PlanId, outcome: PlanOutcome) -> Option<PlanOutcome> {
        let ours =
            |branching: &Branching| matches!(branching.stage, Stage::Asking(current) if current == plan);
        if !self.branching.as_ref().is_some_and(ours) {
            return Some(outcome);
        }
        match outcome {
            PlanOutcome::Summarized(summary) => self.write_branch(*summary),
            PlanOutcome::Further(work) => self.ask_about_branch(work),
            PlanOutcome::TooLong(work) => match work.trimmed() {
                Some(work) => self.ask_about_branch(work),
                None => self.end_branching(Err(
                    "The branch does not fit into the context window of the model that sums it up".to_owned(),
                )),
            },
            PlanOutcome::Failed { work, failure } => self.branch_failed(work, failure),
            PlanOutcome::Unusable { why, .. } | PlanOutcome::Broken(why) => self.end_branching(Err(why)),
            // Nobody plans a compaction here.
            PlanOutcome::Nothing | PlanOutcome::Done(_) => self.end_branching(Ok(cancelled())),
        }
        None
    }

    fn ask_about_branch(&mut self, work: Work) {
        if let Some(why) = self.session_refusal() {
            return self.end_branching(Err(why));
        }
        let stage = self.ask_for_branch(PlanStage::Ask(work));
        self.branch_at(stage);
    }

    /// The call failed: once more if that may pass, by the rules for answers.
    fn branch_failed(&mut self, work: Work, failure: ModelFailure) {
        let attempt = self.branching.as_ref().map_or(0, |branching| branching.retries) + 1;
        let timer = match self.schedule_summarization(attempt, failure) {
            Ok(timer) => timer,
            Err(why) => return self.end_branching(Err(why)),
        };
        if let Some(branching) = &mut self.branching {
            branching.retries = attempt;
            branching.stage = Stage::Waiting(timer, work);
        }
    }

    /// The time for the next call has come.
    pub(crate) fn branch_timer(&mut self, timer: TimerId) {
        match self.branching.as_ref().map(|branching| &branching.stage) {
            Some(Stage::Waiting(waited, work)) if *waited == timer => {
                let work = work.clone();
                self.emit(Event::SummarizationRetryAttemptStart { reason: None });
                self.ask_about_branch(work);
            }
            _ => {}
        }
    }

    fn write_branch(&mut self, summary: BranchSummary) {
        let Some(leaf) = self.branching.as_ref().map(|branching| branching.departure.leaf.clone()) else {
            return;
        };
        let id = self.ids.entry();
        let BranchSummary { text, details, usage } = summary;
        self.out.push(Effect::Append(Entry {
            id: id.clone(),
            parent_id: leaf,
            timestamp: self.now,
            body: EntryBody::BranchSummary { summary: text, details, usage },
        }));
        let before = self.leaf.replace(id.clone());
        let plan = PlanId(self.number());
        self.out.push(Effect::ReadContext(plan));
        self.branch_at(Stage::Reading { plan, summary: id, before });
    }

    /// The conversation as it is from now on. Gives it back when it is none of ours.
    pub(crate) fn branch_read(&mut self, plan: PlanId, conversation: Conversation) -> Option<Conversation> {
        let Some(Branching { stage: Stage::Reading { plan: current, summary, .. }, departure, .. }) =
            &mut self.branching
        else {
            return Some(conversation);
        };
        if *current != plan {
            return Some(conversation);
        }
        let (label, answer, target) = (departure.label.take(), departure.answer.clone(), summary.clone());
        self.set_conversation(conversation);
        if let Some(label) = label {
            self.append(EntryBody::Label { target, label: Some(label) });
        }
        self.end_branching(Ok(answer));
        None
    }

    /// Gives the summary up, and with it the way, if it is not in the file yet.
    pub(crate) fn cancel_branching(&mut self) {
        match self.branching.as_ref().map(|branching| &branching.stage) {
            Some(Stage::Asking(plan)) => self.out.push(Effect::CancelPlan(*plan)),
            Some(Stage::Waiting(..)) => {}
            Some(Stage::Reading { .. }) | None => return,
        }
        self.end_branching(Ok(cancelled()));
    }

    fn end_branching(&mut self, result: Result<Raw, String>) {
        let Some(branching) = self.branching.take() else { return };
        if branching.retries > 0 {
            self.emit(Event::SummarizationRetryFinished);
        }
        self.answer(branching.request, result.map(Some));
        self.flush_bash();
    }

    /// An entry could not be written. If it was the summary the session is where it was.
    pub(crate) fn branching_broke(&mut self, error: &str, performed: impl Fn(PlanId) -> bool) {
        match self.branching.as_ref().map(|branching| &branching.stage) {
            Some(Stage::Reading { plan, before, .. }) if !performed(*plan) => {
                self.leaf = before.clone();
                self.end_branching(Err(error.to_owned()));
            }
            Some(Stage::Asking(plan)) if !performed(*plan) => self.end_branching(Err(error.to_owned())),
            _ => {}
        }
    }
}

/// `data` of an answer when nobody went anywhere.
fn cancelled() -> Raw {
    let mut data = Vec::new();
    let mut object = ObjectWriter::begin(&mut data);
    object.bool("cancelled", true);
    object.end();
    Raw::from_trusted(data.into())
}
