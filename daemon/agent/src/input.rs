//! What can happen to an agent.

use std::sync::Arc;

use atomic_protocol::command::{QueueMode, StreamingBehavior};
use atomic_protocol::entry::EntryId;
use atomic_protocol::json::Raw;
use atomic_protocol::message::{Block, Usage};
use atomic_protocol::model::{Model, ModelEvent, ThinkingLevel};
use atomic_protocol::tool::ToolOutput;

use crate::branching::Departure;
use crate::compaction::PlanOutcome;
use crate::effect::Effect;
use crate::hook::{HookAnswer, HookId};
use crate::policy::Wish;
use crate::weights::Conversation;

/// A command line waiting for its answer. Chosen by the actor, unique within the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// One call of a model. Events of a call that is not the current one are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelCallId(pub u64);

/// One wait for a time. Only the last one asked for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerId(pub u64);

/// One execution of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolRunId(pub u64);

/// One step of a compaction. Outcomes of a step that is not the current one are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanId(pub u64);

/// What can happen to an agent.
#[derive(Debug)]
pub enum Input {
    /// A client asks something.
    Command {
        /// Whom to answer.
        request: RequestId,
        /// What is asked.
        command: AgentCommand,
    },
    /// A model call answered something: all events of one piece of the stream.
    Model {
        /// Which call.
        call: ModelCallId,
        /// In order.
        events: Vec<ModelEvent>,
    },
    /// A tool has something to show.
    ToolUpdate {
        /// Which execution.
        run: ToolRunId,
        /// All there is to show so far.
        output: ToolOutput,
    },
    /// A tool ended. Every `RunTool` effect leads to exactly one of these, also after a cancel.
    ToolDone {
        /// Which execution.
        run: ToolRunId,
        /// Its result.
        output: ToolOutput,
    },
    /// A hook was answered. Every `Ask` effect leads to exactly one of these.
    HookAnswer {
        /// Which question.
        hook: HookId,
        /// The answer.
        answer: HookAnswer,
    },
    /// A time that `WakeAt` asked for has come.
    Timer(TimerId),
    /// A client's shell command ended; its message belongs into the conversation.
    BashFinished {
        /// A `bashExecution` message.
        message: Raw,
    },
    /// A step of planning a compaction is done. Every `Plan` effect leads to exactly one of these, unless it is cancelled.
    Planned {
        /// Which step.
        plan: PlanId,
        /// What came of it.
        outcome: PlanOutcome,
        /// Where it is told why the planner is given up, if it is and there is a file for it.
        diagnostic: Option<String>,
    },
    /// A call that leaves no answer in the conversation, such as a planner's, used this. Fed before what came of it.
    Spent {
        /// Tokens and money.
        usage: Usage,
    },
    /// The session's file was copied, as `Backup` asked for.
    BackedUp {
        /// Which step.
        plan: PlanId,
        /// Where the copy is; none when there is no file. Or what went wrong, naming the file.
        backup: Result<Option<String>, String>,
    },
    /// A boundary is written out, as `Compose` asked for.
    Composed {
        /// Which step.
        plan: PlanId,
        /// The result as clients get it, or what went wrong.
        result: Result<Raw, String>,
    },
    /// The conversation at the leaf, as `ReadContext` and `AppendComposed` asked for.
    Context {
        /// Which step.
        plan: PlanId,
        /// The messages.
        conversation: Conversation,
    },
    /// An entry could not be written. Nothing after it in the batch was performed.
    AppendFailed {
        /// What went wrong, naming the file.
        error: String,
        /// The effects that were not performed, the failed append first.
        dropped: Vec<Effect>,
    },
}

/// What a client can ask of an agent. Reads are not commands here: the actor looks at the agent itself.
#[derive(Debug)]
pub enum AgentCommand {
    /// Start a run, or queue when one is active.
    Prompt {
        /// The text.
        text: String,
        /// Images after the text.
        images: Vec<Block>,
        /// What to do when a run is active.
        behavior: Option<StreamingBehavior>,
    },
    /// Queue for the next point between turns.
    Steer {
        /// The text.
        text: String,
        /// Images after the text.
        images: Vec<Block>,
    },
    /// Queue for when there is nothing else to do.
    FollowUp {
        /// The text.
        text: String,
        /// Images after the text.
        images: Vec<Block>,
    },
    /// Stop the run and answer when the session is idle.
    Abort {
        /// What is queued stays queued; else it gets a run of its own.
        keep_queue: bool,
    },
    /// Take all queued messages back.
    ClearQueue,
    /// Use another model, chosen by name.
    SetModel(Arc<Model>),
    /// Use another model, the next of a list.
    CycleModel {
        /// The one to use.
        model: Arc<Model>,
        /// The list was `--models`.
        is_scoped: bool,
    },
    /// Use another thinking level, clamped to what the model supports.
    SetThinking(ThinkingLevel),
    /// Use the thinking level after the current one.
    CycleThinking,
    /// How steering is delivered.
    SetSteeringMode(QueueMode),
    /// How follow-ups are delivered.
    SetFollowUpMode(QueueMode),
    /// Keep what is queued in the queues.
    PauseQueues,
    /// Deliver from the queues again. Starts nothing.
    ResumeQueues,
    /// Go on from another entry, with the conversation up to there. The store's leaf has been moved.
    Navigate {
        /// The entry the next one follows.
        leaf: Option<EntryId>,
        /// The conversation up to it, with the entry each message came from.
        context: Vec<(EntryId, Raw)>,
        /// A label for an entry.
        label: Option<(EntryId, String)>,
        /// `data` of the answer.
        answer: Raw,
    },
    /// Have what is left behind summed up, then go on from another entry; answer when that is done. The store's leaf has not
    /// been moved. Only while idle and with a model.
    Depart(Departure),
    /// Label an entry, or take its label away.
    SetLabel {
        /// The entry.
        target: EntryId,
        /// The label.
        label: Option<String>,
    },
    /// Retry failed calls by itself, or not.
    SetAutoRetry(bool),
    /// Give a retry up that is being waited for.
    AbortRetry,
    /// Shorten the conversation; answer when that is done. An active run is aborted first.
    Compact(Wish),
    /// Give up shortening the conversation, whoever asked for it.
    AbortCompaction,
    /// Shorten the conversation by itself, or not.
    SetAutoCompaction(bool),
    /// Name the session.
    SetName(String),
}
