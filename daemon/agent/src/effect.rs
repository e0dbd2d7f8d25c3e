//! What an agent wants done, in order.

use std::sync::Arc;

use atomic_protocol::entry::{Entry, EntryBody, EntryId};
use atomic_protocol::event::Event;
use atomic_protocol::json::Raw;
use atomic_protocol::message::ToolCall;
use atomic_protocol::model::{Model, ThinkingLevel};
use atomic_protocol::time::Millis;
use atomic_protocol::tool::ToolSpec;

use crate::compaction::{Asked, Begin, Boundary, BranchBegin, Plan, Work};
use crate::hook::{Hook, HookId};
use crate::input::{ModelCallId, PlanId, RequestId, TimerId, ToolRunId};
use crate::retry::RetryPolicy;

/// One thing to do. The actor performs effects strictly in order; when an append fails it drops the rest of the batch and
/// feeds [`AppendFailed`](crate::Input::AppendFailed).
#[derive(Clone, Debug)]
pub enum Effect {
    /// Write this entry, before anything after it happens.
    Append(Entry),
    /// Tell every client.
    Emit(Event),
    /// Answer a command.
    Answer {
        /// Which one.
        request: RequestId,
        /// `data` of the success record, or the error's text.
        result: Result<Option<Raw>, String>,
    },
    /// Call a model and feed its events.
    CallModel(ModelCall),
    /// The call's events are not wanted any more.
    CancelModel(ModelCallId),
    /// Do a step of planning a compaction, beside the session's task, and feed its outcome.
    Plan(Box<PlanCall>),
    /// The step's outcome is not wanted any more.
    CancelPlan(PlanId),
    /// Copy the session's file, if it has one, beside itself, and feed where the copy is.
    Backup {
        /// Names the compaction's step.
        plan: PlanId,
        /// Part of the copy's name.
        label: &'static str,
    },
    /// Write out what a boundary comes to (its entry, its result, the conversation it leaves), beside the session's task: it
    /// may be megabytes long. Feed the result, and keep the rest for [`AppendComposed`](Effect::AppendComposed).
    Compose(Box<Compose>),
    /// Write the entry that this step composed, before anything after it happens, as [`Append`](Effect::Append) does; then
    /// feed the conversation that comes of it.
    AppendComposed {
        /// The step.
        plan: PlanId,
        /// The entry.
        id: EntryId,
        /// What it follows.
        parent_id: Option<EntryId>,
    },
    /// Feed the conversation at the leaf, as the session store builds it.
    ReadContext(PlanId),
    /// Run a tool and feed its updates and its result.
    RunTool {
        /// Names the execution.
        run: ToolRunId,
        /// What to run.
        call: ToolCall,
    },
    /// End a tool soon; its result is still awaited.
    CancelTool(ToolRunId),
    /// Feed `Timer` at this time. Replaces a wait asked for before.
    WakeAt {
        /// Names the wait.
        timer: TimerId,
        /// When.
        at: Millis,
    },
    /// Ask the extensions and feed the answer.
    Ask {
        /// Names the question.
        hook: HookId,
        /// The question.
        ask: Hook,
    },
}

/// A boundary to write out: what grows with it is done by whoever has the time.
#[derive(Clone, Debug)]
pub struct Compose {
    /// Names the step.
    pub plan: PlanId,
    /// What stands for the older part of the conversation from now on.
    pub boundary: Arc<Boundary>,
    /// Where the file was copied to.
    pub backup: Option<String>,
    /// Id of the entry.
    pub id: EntryId,
    /// What it follows.
    pub parent_id: Option<EntryId>,
    /// When it is made.
    pub timestamp: Millis,
}

impl Compose {
    /// The entry.
    pub fn entry(&self) -> Entry {
        let boundary = &self.boundary;
        Entry {
            id: self.id.clone(),
            parent_id: self.parent_id.clone(),
            timestamp: self.timestamp,
            body: EntryBody::Compaction {
                details: boundary.details(self.backup.as_deref()),
                summary: boundary.text().to_owned(),
                first_kept: boundary.first_kept().cloned(),
                tokens_before: boundary.tokens_before(),
                usage: boundary.usage().cloned(),
            },
        }
    }

    /// The result as clients get it: `data` of the answer to `compact` and `result` of `compaction_end`.
    pub fn result(&self) -> Raw {
        self.boundary.result(self.backup.as_deref())
    }
}

/// A step of planning a compaction, or of summing up a branch.
#[derive(Clone, Debug)]
pub struct PlanCall {
    /// Names the step.
    pub plan: PlanId,
    /// What to do.
    pub stage: PlanStage,
    /// The planner.
    pub model: Arc<Model>,
    /// How much it may think.
    pub thinking: ThinkingLevel,
    /// Tokens that fit into its context window; 0 when that is not known.
    pub window: u64,
    /// It is not the session's own model.
    pub borrowed: bool,
    /// The rules for failures.
    pub retry: RetryPolicy,
    /// Retries of this planner before.
    pub retries: u32,
}

impl PlanCall {
    /// Whom the step asks.
    pub fn asked(&self) -> Asked {
        let PlanCall { model, thinking, borrowed, retry, retries, .. } = self;
        Asked {
            model: model.clone(),
            thinking: *thinking,
            borrowed: *borrowed,
            retry: *retry,
            retries: *retries,
        }
    }
}

/// What to do in a step of planning.
#[derive(Clone, Debug)]
pub enum PlanStage {
    /// Prepare the conversation and ask the model.
    Begin(Begin),
    /// Prepare what is left behind by going to this entry, and ask the model.
    BeginBranch(BranchBegin, EntryId),
    /// Ask the model.
    Ask(Work),
    /// Do without a planner.
    Fresh(Plan),
}

/// A model to call.
#[derive(Clone, Debug)]
pub struct ModelCall {
    /// Names the call.
    pub call: ModelCallId,
    /// Whom to ask.
    pub model: Arc<Model>,
    /// How much to think.
    pub thinking: ThinkingLevel,
    /// The system prompt.
    pub system: Arc<str>,
    /// The conversation, any roles; [`context::for_model`](crate::context::for_model) makes it fit for a model.
    pub context: Vec<Raw>,
    /// The tools it may call.
    pub tools: Arc<[ToolSpec]>,
}
