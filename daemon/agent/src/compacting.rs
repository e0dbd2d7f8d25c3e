//! A compaction under way: from its announcement to its end, and what it makes wait.
//!
//! One at a time. It may stand for itself (`compact`), before a prompt, after a run, or between two turns; what goes on
//! behind it is decided when it ends. The order that never changes: backup, append, conversation replaced, announced.

use std::collections::VecDeque;
use std::sync::Arc;

use atomic_protocol::command::CompactParameters;
use atomic_protocol::entry::EntryId;
use atomic_protocol::event::{CompactionEnd, CompactionReason, Event};
use atomic_protocol::json::Raw;
use atomic_protocol::model::ModelFailure;

use crate::Agent;
use crate::cause::Cause;
use crate::commands::{NO_MODEL, PendingPrompt};
use crate::compaction::{
    Begin, Boundary, Instructions, Parameters, PlanOutcome, Rung, SummaryParameters, Way, Work,
};
use crate::effect::{Compose, Effect, PlanCall, PlanStage};
use crate::input::{AgentCommand, PlanId, RequestId, TimerId};
use crate::ladder::Candidate;
use crate::overflow;
use crate::policy::{Strategy, Wish};
use crate::run::{Step, Waiting};
use crate::weights::Conversation;

/// A compaction under way.
#[derive(Debug)]
pub(crate) struct Compacting {
    pub(crate) cause: Cause,
    /// The model is asked again when it is done.
    will_retry: bool,
    /// Who is answered when it ends.
    requests: Vec<RequestId>,
    stage: Stage,
    /// Retries of the planner's call that were announced.
    retries: u32,
    /// Who plans, if it is not the session's own model.
    pub(crate) planner: Option<Candidate>,
    /// Who else may be asked.
    pub(crate) ladder: VecDeque<Candidate>,
    /// Where it is told why the last planner was given up.
    diagnostic: Option<String>,
}

#[derive(Debug)]
enum Stage {
    /// A step of planning is out.
    Planning(PlanId),
    /// The time for the next call of the planner.
    Waiting(TimerId, Work),
    /// The file is being copied.
    BackingUp(PlanId, Arc<Boundary>),
    /// What is to be written is being put together.
    Composing(Box<Compose>),
    /// Written down; the conversation is being built anew. Carries the result.
    Rebuilding(PlanId, Raw),
}

/// A `compact` that waits for the run before it to end, and prompts that wait for `compact`.
#[derive(Debug, Default)]
pub(crate) struct Manual {
    /// Who asked, while it has not begun.
    pending: Vec<RequestId>,
    wish: Option<Wish>,
    /// The run that was ended for it would have gone on with the queues.
    resume: bool,
    /// Prompts, with their requests.
    parked: VecDeque<(RequestId, AgentCommand)>,
}

/// How a compaction ended.
enum Ended {
    Done(Raw),
    Nothing,
    Cancelled,
    Failed(String),
}

/// Prompts that wait for `compact`; one more is refused.
const PARKED: usize = 256;

/// Literals of the reference.
const TOO_SMALL: &str = "Nothing to compact (session too small)";
const CANCELLED: &str = "Compaction cancelled";
const NOTHING_DELETABLE: &str =
    "Context compaction found no compactable transcript entries; nothing more was safely deletable";
const MID_TURN_CANCELLED: &str =
    "Post-tool context compaction was cancelled before the next provider request.";

impl Agent {
    /// What is being compacted for, if anything is.
    pub fn compaction_reason(&self) -> Option<CompactionReason> {
        self.compaction.as_ref().map(|compacting| compacting.cause.reason())
    }

    /// The `compact` and `navigate_tree` commands that wait for an answer of a model.
    pub fn compaction_requests(&self) -> Vec<RequestId> {
        let current = self.compaction.iter().flat_map(|compacting| &compacting.requests);
        self.manual.pending.iter().chain(current).copied().chain(self.branching_request()).collect()
    }

    /// A client's `compact` is under way or waits for a run to end.
    pub(crate) fn manual_compaction(&self) -> bool {
        !self.manual.pending.is_empty()
            || self.compaction.as_ref().is_some_and(|compacting| compacting.cause == Cause::Manual)
    }

    /// `compact` and the prompts behind it leave nothing to wait for.
    pub(crate) fn manual_is_over(&self) -> bool {
        self.compaction.is_none()
            && self.branching.is_none()
            && self.manual.pending.is_empty()
            && self.manual.parked.is_empty()
    }

    pub(crate) fn compact(&mut self, request: RequestId, wish: Wish) {
        if let Some(compacting) =
            self.compaction.as_mut().filter(|compacting| compacting.cause == Cause::Manual)
        {
            // It joins the one under way and gets the same result.
            return compacting.requests.push(request);
        }
        if self.model.is_none() {
            return self.answer(request, Err(NO_MODEL.to_owned()));
        }
        if let Some(why) = self.session_refusal() {
            return self.answer(request, Err(why));
        }
        self.manual.pending.push(request);
        if self.manual.pending.len() > 1 {
            return;
        }
        self.manual.wish = Some(wish);
        if let Some(pending) = &mut self.preflight {
            pending.abort();
            self.cancel_compaction();
        } else if self.run.is_some() {
            self.manual.resume = self.queues.has_due();
            self.abort_run();
        }
    }

    /// A message was queued for a run that `compact` ended meanwhile: it gets a run behind it.
    pub(crate) fn resume_after_manual(&mut self) {
        self.manual.resume = true;
    }

    /// Begins a `compact` that waited, once nothing runs; when it was taken back meanwhile, what waited for it goes on.
    pub(crate) fn begin_manual(&mut self) {
        if (self.manual.pending.is_empty() && self.manual.parked.is_empty())
            || self.run.is_some()
            || self.preflight.is_some()
            || self.compaction.is_some()
            || self.branching.is_some()
        {
            return;
        }
        let requests = std::mem::take(&mut self.manual.pending);
        if requests.is_empty() {
            return self.manual_ended();
        }
        let wish = self.manual.wish.take().unwrap_or_default();
        let way = self.way(wish);
        self.start_compaction(Cause::Manual, false, way, requests);
    }

    /// How to shorten, as the settings and a client say.
    fn way(&self, wish: Wish) -> Way {
        let policy = &self.compaction_policy;
        let instructions = match wish {
            Wish::Settings(wanted) if policy.strategy == Strategy::VerbatimLines => {
                let usual = policy.parameters.clone();
                return Way::Lines(Parameters {
                    compression_ratio: wanted.compression_ratio.unwrap_or(usual.compression_ratio),
                    preserve_recent: wanted.preserve_recent.unwrap_or(usual.preserve_recent),
                    query: wanted.query.or(usual.query),
                });
            }
            Wish::Settings(CompactParameters { query: text, .. }) | Wish::Summary(text) => {
                Instructions::new(text, false)
            }
        };
        Way::Summary(SummaryParameters {
            keep_recent_tokens: policy.keep_recent_tokens,
            reserve_tokens: policy.reserve_tokens,
            instructions,
        })
    }

    /// A prompt arrives while a client's `compact` is under way, or a branch is being summed up: it waits. Gives it back
    /// when there is nothing to wait for.
    pub(crate) fn park(&mut self, request: RequestId, prompt: AgentCommand) -> Option<AgentCommand> {
        if !self.manual_compaction() && self.branching.is_none() {
            return Some(prompt);
        }
        if self.manual.parked.len() >= PARKED {
            let error =
                format!("More than {PARKED} prompts wait for the compaction to end; try again when it has");
            self.answer(request, Err(error));
        } else {
            self.manual.parked.push_back((request, prompt));
        }
        None
    }

    /// Begins a compaction nobody asked for.
    pub(crate) fn compact_for(&mut self, cause: Cause, will_retry: bool) {
        let way = self.way(Wish::default());
        self.start_compaction(cause, will_retry, way, Vec::new());
    }

    fn start_compaction(&mut self, cause: Cause, will_retry: bool, way: Way, requests: Vec<RequestId>) {
        self.emit(Event::CompactionStart { reason: cause.reason(), mid_turn: cause.is_mid_turn() });
        let begin = Begin {
            way,
            tokens_before: self.weights.tokens(&self.context).count,
            load_bearing: cause.is_load_bearing(),
            small: cause.takes_small(),
        };
        let stage = self.plan(PlanStage::Begin(begin));
        let ladder = self.ladder();
        self.compaction = Some(Compacting {
            cause,
            will_retry,
            requests,
            stage,
            retries: 0,
            planner: None,
            ladder,
            diagnostic: None,
        });
        if let Some(run) = &mut self.run {
            run.waiting = Some(Waiting::Compaction);
        }
    }

    fn plan(&mut self, stage: PlanStage) -> Stage {
        let plan = PlanId(self.number());
        let (model, thinking, window) = match self.compaction.as_ref().and_then(Compacting::borrowed) {
            Some(planner) => (planner.model.clone(), planner.thinking, planner.model.context_window),
            None => {
                let model = self.model.clone();
                let model =
                    model.expect("a compaction begins only with a model, and a model is only replaced");
                (model, self.thinking, self.window())
            }
        };
        let retries = self.compaction.as_ref().map_or(0, |compacting| compacting.retries);
        let borrowed = self.compaction.as_ref().is_some_and(|compacting| compacting.borrowed().is_some());
        let retry = self.retry;
        let call = PlanCall { plan, stage, model, thinking, window, borrowed, retry, retries };
        self.out.push(Effect::Plan(Box::new(call)));
        Stage::Planning(plan)
    }

    /// Does another step of planning. Where no more requests may be made nobody else is asked either.
    pub(crate) fn take_step(&mut self, stage: PlanStage) {
        if let PlanStage::Ask(work) = &stage
            && let Some(why) = self.refusal()
        {
            let work = work.clone();
            if let Some(compacting) = &mut self.compaction {
                compacting.ladder.clear();
            }
            return self.without_planner(work, &why);
        }
        let stage = self.plan(stage);
        self.at(stage);
    }

    /// A step of planning is done.
    pub(crate) fn planned(&mut self, plan: PlanId, outcome: PlanOutcome, diagnostic: Option<String>) {
        let Some(outcome) = self.branch_planned(plan, outcome) else { return };
        let Some(compacting) = &mut self.compaction else { return };
        if !matches!(compacting.stage, Stage::Planning(current) if current == plan) {
            return;
        }
        compacting.diagnostic = diagnostic;
        let cause = compacting.cause;
        match outcome {
            PlanOutcome::Nothing => self.end_compaction(match cause {
                Cause::Manual => Ended::Failed(TOO_SMALL.to_owned()),
                _ if cause.takes_small() => Ended::Failed(NOTHING_DELETABLE.to_owned()),
                _ => Ended::Nothing,
            }),
            PlanOutcome::Done(mut boundary) => {
                if let Boundary::Lines(compaction) = &mut *boundary
                    && compaction.rung == Rung::Planned
                {
                    compaction.planner = compacting.planner.clone();
                }
                let plan = PlanId(self.number());
                self.out.push(Effect::Backup { plan, label: cause.label() });
                self.at(Stage::BackingUp(plan, boundary.into()));
            }
            PlanOutcome::Further(work) => self.take_step(PlanStage::Ask(work)),
            PlanOutcome::TooLong(work) => match work.trimmed() {
                Some(work) => self.take_step(PlanStage::Ask(work)),
                None => self.without_planner(
                    work,
                    "The conversation does not fit into the context window of the model that plans the compaction",
                ),
            },
            PlanOutcome::Failed { work, failure } => self.planner_failed(work, failure),
            PlanOutcome::Unusable { work, why } => self.without_planner(work, &why),
            // Nobody sums a branch up here.
            PlanOutcome::Summarized(_) => self.end_compaction(Ended::Nothing),
            PlanOutcome::Broken(error) => self.end_compaction(Ended::Failed(error)),
        }
    }

    fn at(&mut self, stage: Stage) {
        if let Some(compacting) = &mut self.compaction {
            compacting.stage = stage;
        }
    }

    /// The planner's call failed: once more if that may pass, by the rules for answers.
    fn planner_failed(&mut self, work: Work, failure: ModelFailure) {
        let attempt = self.compaction.as_ref().map_or(0, |compacting| compacting.retries) + 1;
        let timer = match self.schedule_summarization(attempt, failure) {
            Ok(timer) => timer,
            Err(why) => return self.without_planner(work, &why),
        };
        if let Some(compacting) = &mut self.compaction {
            compacting.retries = attempt;
            compacting.stage = Stage::Waiting(timer, work);
        }
    }

    /// Announces another call of a model that plans or sums up, if what failed may pass; else gives back why it failed.
    pub(crate) fn schedule_summarization(
        &mut self,
        attempt: u32,
        failure: ModelFailure,
    ) -> Result<TimerId, String> {
        let Some(delay_ms) = self.retry.delay(attempt, &failure) else { return Err(failure.message) };
        self.emit(Event::SummarizationRetryScheduled {
            attempt,
            max_attempts: self.retry.max_retries,
            delay_ms,
            error_message: failure.message,
        });
        let timer = TimerId(self.number());
        self.out.push(Effect::WakeAt { timer, at: self.now.plus(delay_ms) });
        Ok(timer)
    }

    /// The time for the next call of the planner has come.
    pub(crate) fn planner_timer(&mut self, timer: TimerId) {
        let Some(compacting) = &self.compaction else { return };
        match &compacting.stage {
            Stage::Waiting(waited, work) if *waited == timer => {
                let (work, reason) = (work.clone(), compacting.cause.reason());
                self.emit(Event::SummarizationRetryAttemptStart { reason: Some(reason) });
                self.take_step(PlanStage::Ask(work));
            }
            _ => {}
        }
    }

    /// This planner does not help: the next one; then the last resort where the conversation cannot go on as it is, else the
    /// end of the attempt. A summary has no last resort.
    fn without_planner(&mut self, work: Work, why: &str) {
        if self.borrow_planner(&work) {
            return;
        }
        let load_bearing =
            self.compaction.as_ref().is_some_and(|compacting| compacting.cause.is_load_bearing());
        match work {
            Work::Lines(plan) if load_bearing => self.take_step(PlanStage::Fresh(plan)),
            _ => {
                let told = self.compaction.as_mut().and_then(|compacting| compacting.diagnostic.take());
                let told = told.map(|path| format!(" (diagnostic: {path})")).unwrap_or_default();
                self.end_compaction(Ended::Failed(format!("{why}{told}")));
            }
        }
    }

    /// Says that no more retries of the planner's call follow, if any were announced.
    pub(crate) fn end_planner_retries(&mut self) {
        let Some(compacting) = &mut self.compaction else { return };
        if std::mem::take(&mut compacting.retries) > 0 {
            self.emit(Event::SummarizationRetryFinished);
        }
    }

    /// The file was copied: have what is to be written put together.
    pub(crate) fn backed_up(&mut self, plan: PlanId, backup: Result<Option<String>, String>) {
        let Some(compacting) = &self.compaction else { return };
        let boundary = match &compacting.stage {
            Stage::BackingUp(current, boundary) if *current == plan => boundary.clone(),
            _ => return,
        };
        match backup {
            Ok(backup) => {
                let id = self.ids.entry();
                self.compose(id, boundary, backup);
            }
            Err(error) => self.end_compaction(Ended::Failed(error)),
        }
    }

    fn compose(&mut self, id: EntryId, boundary: Arc<Boundary>, backup: Option<String>) {
        let plan = PlanId(self.number());
        let (parent_id, timestamp) = (self.leaf.clone(), self.now);
        let compose = Compose { plan, boundary, backup, id, parent_id, timestamp };
        self.out.push(Effect::Compose(Box::new(compose.clone())));
        self.at(Stage::Composing(Box::new(compose)));
    }

    /// It is put together: write the compaction down, for the conversation that comes of it.
    pub(crate) fn composed(&mut self, plan: PlanId, result: Result<Raw, String>) {
        let Some(compacting) = &self.compaction else { return };
        let compose = match &compacting.stage {
            Stage::Composing(compose) if compose.plan == plan => compose.as_ref().clone(),
            _ => return,
        };
        let result = match result {
            Ok(result) => result,
            Err(error) => return self.end_compaction(Ended::Failed(error)),
        };
        let Compose { id, parent_id, boundary, backup, .. } = compose;
        if parent_id != self.leaf {
            // Something else was written meanwhile, such as another model: the boundary follows that.
            return self.compose(id, boundary, backup);
        }
        self.out.push(Effect::AppendComposed { plan, id: id.clone(), parent_id });
        self.leaf = Some(id);
        self.at(Stage::Rebuilding(plan, result));
    }

    /// The conversation as it is from now on.
    pub(crate) fn rebuilt(&mut self, plan: PlanId, conversation: Conversation) {
        let Some(conversation) = self.branch_read(plan, conversation) else { return };
        let Some(compacting) = &self.compaction else { return };
        let result = match &compacting.stage {
            Stage::Rebuilding(current, result) if *current == plan => result.clone(),
            _ => return,
        };
        self.set_conversation(conversation);
        self.end_compaction(Ended::Done(result));
    }

    /// `abort_compaction`, after its answer.
    pub(crate) fn abort_compaction(&mut self) {
        for request in std::mem::take(&mut self.manual.pending) {
            // The run that was to end for it goes on with its queue itself.
            self.manual.resume = false;
            self.answer(request, Err(CANCELLED.to_owned()));
        }
        self.cancel_branching();
        self.cancel_compaction();
    }

    /// Gives a compaction up, if one is under way that is not in the file yet.
    pub(crate) fn cancel_compaction(&mut self) {
        let Some(compacting) = &self.compaction else { return };
        match &compacting.stage {
            Stage::Planning(plan) | Stage::BackingUp(plan, _) => self.out.push(Effect::CancelPlan(*plan)),
            Stage::Composing(compose) => self.out.push(Effect::CancelPlan(compose.plan)),
            Stage::Waiting(..) => {}
            Stage::Rebuilding(..) => return,
        }
        self.end_compaction(Ended::Cancelled);
    }

    fn end_compaction(&mut self, ended: Ended) {
        self.end_planner_retries();
        let Some(compacting) = self.compaction.take() else { return };
        let cause = compacting.cause;
        let done = matches!(ended, Ended::Done(_));
        let mut end = CompactionEnd::new(cause.reason());
        end.mid_turn = cause.is_mid_turn();
        // What was not done, and why, for who asked.
        let mut refused = String::new();
        match ended {
            Ended::Done(result) => {
                end.result = Some(result);
                end.will_retry = compacting.will_retry;
            }
            // A length stop that nothing could be shortened for is tried once more as it is.
            Ended::Nothing => end.will_retry = compacting.will_retry && cause == Cause::Length,
            Ended::Cancelled => {
                end.aborted = true;
                end.manual_takeover_pending = !self.manual.pending.is_empty();
                refused = CANCELLED.to_owned();
            }
            Ended::Failed(error) => {
                end.error_message = Some(format!("{}{error}", cause.failed()));
                refused = error;
            }
        }
        let tokens = self.weights.tokens(&self.context).count;
        if done && cause.is_mid_turn() && self.window() > 0 && tokens > self.window() {
            end.error_message = Some(format!(
                "Post-tool context remains over the provider hard input limit after compaction ({tokens} > {} tokens); the next \
                 provider request was not sent.",
                self.window()
            ));
        }
        self.recovery.tried = if done { None } else { self.context.last().map(|(id, _)| id.clone()) };
        self.recovery.left = if done { tokens } else { 0 };
        let (result, will_retry, error) = (end.result.clone(), end.will_retry, end.error_message.clone());
        let aborted = end.aborted;
        self.emit(Event::CompactionEnd(Box::new(end)));
        for request in compacting.requests {
            self.answer(request, result.clone().map(Some).ok_or_else(|| refused.clone()));
        }
        if self.run.is_some() {
            self.active().waiting = None;
            if cause.is_mid_turn() {
                let refusal = match error {
                    None if aborted => Some(MID_TURN_CANCELLED.to_owned()),
                    error => error,
                };
                let run = self.active();
                match refusal.filter(|_| !run.aborted) {
                    None => run.steps.push_front(Step::NextTurn),
                    Some(error) => run.steps.extend([Step::TurnStart, Step::Unsent(error)]),
                }
            } else if will_retry && !self.active().aborted {
                self.continue_run();
            } else {
                self.active().steps.push_front(Step::GoOn);
            }
            return;
        }
        self.flush_bash();
        if let Some(pending) = self.preflight.take() {
            return self.prompt_compacted(pending);
        }
        if cause == Cause::Manual {
            self.manual_ended();
        }
    }

    /// What waited for `compact` goes on: prompts in their order, else the queues of the run that was ended for it.
    fn manual_ended(&mut self) {
        let resume = std::mem::take(&mut self.manual.resume);
        let parked = std::mem::take(&mut self.manual.parked);
        if parked.is_empty() && resume && self.queues.has_due() {
            self.run_queues();
        }
        for (request, prompt) in parked {
            self.command(request, prompt);
        }
    }

    /// An entry could not be written: whatever was under way here ends with that. `performed` tells whether a step went out.
    pub(crate) fn compaction_broke(&mut self, error: &str, performed: impl Fn(PlanId) -> bool) {
        if let Some(compacting) = self.compaction.take() {
            match compacting.stage {
                Stage::Planning(plan) | Stage::BackingUp(plan, _) if performed(plan) => {
                    self.out.push(Effect::CancelPlan(plan));
                }
                Stage::Composing(compose) if performed(compose.plan) => {
                    self.out.push(Effect::CancelPlan(compose.plan));
                }
                _ => {}
            }
            if compacting.retries > 0 {
                self.emit(Event::SummarizationRetryFinished);
            }
            for request in compacting.requests {
                self.answer(request, Err(error.to_owned()));
            }
        }
        if let Some((reason, mid_turn)) = self.announced.compaction() {
            let cause = match reason {
                CompactionReason::Manual => Cause::Manual,
                CompactionReason::Threshold if mid_turn => Cause::MidTurn { over: false },
                CompactionReason::Threshold => Cause::Threshold,
                CompactionReason::Overflow => Cause::Overflow,
            };
            let error_message = Some(format!("{}{error}", cause.failed()));
            let end = CompactionEnd { mid_turn, error_message, ..CompactionEnd::new(reason) };
            self.emit(Event::CompactionEnd(Box::new(end)));
        }
        if self.preflight.as_ref().is_some_and(PendingPrompt::waits_for_compaction)
            && let Some(pending) = self.preflight.take()
        {
            self.answer(pending.request(), Err(error.to_owned()));
            self.answer_aborts();
        }
        if self.manual.pending.is_empty() {
            for (request, _) in std::mem::take(&mut self.manual.parked) {
                self.answer(request, Err(error.to_owned()));
            }
        }
    }

    /// Tokens that fit into the model's context window, as far as is known: less than the catalog says when an error said so.
    /// 0: not known.
    pub(crate) fn window(&self) -> u64 {
        let Some(model) = &self.model else { return 0 };
        let learned =
            self.recovery.limit.as_ref().filter(|limit| limit.is_of(model)).map(|limit| limit.tokens);
        match (model.context_window, learned) {
            (0, learned) => learned.unwrap_or(0),
            (window, learned) => learned.map_or(window, |learned| learned.min(window)),
        }
    }

    /// Notes what an error says of the window.
    pub(crate) fn learn_limit(&mut self, error: &str) {
        if let (Some(model), Some(tokens)) = (&self.model, overflow::limit(error)) {
            let (provider, id) = (model.provider.clone(), model.id.clone());
            self.recovery.limit = Some(crate::triggers::Limit { provider, id, tokens });
        }
    }
}
