//! The agent loop as a state machine without I/O.
//!
//! [`Agent::handle`] takes what happened and the time, and gives what to do: append this entry, emit this event, answer
//! this request, call the model, run this tool, ask the hooks. It opens nothing, spawns nothing, reads no clock and makes
//! no random id, so any order of events is a plain test that runs in microseconds.
//!
//! ```text
//!  idle ──prompt──► preflight (hooks) ──► run: agent_start
//!                                          │
//!            ┌──────────► turn_start ──► messages ──► context hook ──► model ──► answer
//!            │                                                                     │
//!            │                              tools ◄── calls? ◄─────────────────────┘
//!            │                                │           │ no
//!            └── more to do? ◄── turn_end ◄───┴───────────┘
//!                    │ no
//!                agent_end ──► failed in passing? ──yes──► wait ──► next run
//!                    │ no
//!                    ├──► failed for good? ──yes──► another model, if there is one ──► next run
//!                    │ no
//!                    ├──► window full? ──yes──► compaction ──► next run, or on
//!                    ├──► queue not empty? ──yes──► next run
//!                    │ no
//!               agent_settled ──► idle
//! ```
//!
//! Invariants, held by the tests of this crate under any order of inputs:
//! 1. one `agent_end` per `agent_start`, one `turn_end` per `turn_start`, one `message_end` per `message_start`;
//! 2. exactly one `agent_settled` per run and its continuations, and it is the last record;
//! 3. every command is answered exactly once;
//! 4. no admitted message is lost or delivered twice;
//! 5. every tool call of a finished answer gets a result;
//! 6. at rest the model is the one the user chose;
//! 7. what `message_end` announced is what was appended before it (but for the one message that reports a failed append).

#![forbid(unsafe_code)]

mod answer;
mod branching;
mod cause;
mod commands;
mod compacting;
pub mod compaction;
pub mod context;
mod effect;
mod failure;
mod fallback;
mod hook;
mod ids;
mod input;
mod join;
mod ladder;
mod limits;
mod overflow;
mod policy;
pub mod prompt;
mod queue;
mod reload;
mod retry;
mod run;
mod tools;
mod triggers;
mod weights;

use std::collections::HashSet;
use std::sync::Arc;

use atomic_protocol::command::QueueMode;
use atomic_protocol::entry::{Entry, EntryBody, EntryId};
use atomic_protocol::event::Event;
use atomic_protocol::json::Raw;
use atomic_protocol::model::{Model, ThinkingLevel};
use atomic_protocol::time::Millis;
use atomic_protocol::tool::ToolSpec;

pub use branching::{BUSY, Departure, NO_SUMMARIZER};
pub use effect::{Compose, Effect, ModelCall, PlanCall, PlanStage};
pub use fallback::FallbackModel;
pub use hook::{Hook, HookAnswer, HookId};
pub use ids::{Counted, IdSource};
pub use input::{AgentCommand, Input, ModelCallId, PlanId, RequestId, TimerId, ToolRunId};
pub use ladder::Candidate;
pub use limits::{Budget, Limits, Spent};
pub use policy::{CompactionPolicy, Strategy, Wish};
pub use reload::Reloaded;
pub use retry::RetryPolicy;
pub use weights::Conversation;

use crate::branching::Branching;
use crate::commands::PendingPrompt;
use crate::compacting::{Compacting, Manual};
use crate::failure::Announced;
use crate::fallback::Chain;
use crate::limits::Ledger;
use crate::prompt::PromptParts;
use crate::queue::Queues;
use crate::run::Run;
use crate::triggers::Recovery;
use crate::weights::{Tokens, Weights};

/// What an agent starts from.
pub struct Config {
    /// The model, if one could be chosen.
    pub model: Option<Arc<Model>>,
    /// The wished thinking level; clamped to the model.
    pub thinking: ThinkingLevel,
    /// The active tools, in a stable order.
    pub tools: Arc<[ToolSpec]>,
    /// What the system prompt is made of; model, thinking level and tools in it are kept current by the agent.
    pub prompt: PromptParts,
    /// The conversation so far, with the entry each message came from.
    pub context: Vec<(EntryId, Raw)>,
    /// The last entry of the file.
    pub leaf: Option<EntryId>,
    /// How steering is delivered.
    pub steering_mode: QueueMode,
    /// How follow-ups are delivered.
    pub follow_up_mode: QueueMode,
    /// What happens when a model call fails in passing.
    pub retry: RetryPolicy,
    /// When the conversation is shortened.
    pub compaction: CompactionPolicy,
    /// Who takes the place of a model that fails, in order of preference.
    pub fallback_models: Vec<FallbackModel>,
    /// What may be used.
    pub limits: Limits,
    /// What the session used so far, as its file says.
    pub spent: Spent,
}

/// One session's agent.
pub struct Agent {
    ids: Box<dyn IdSource>,
    /// Time of the input being handled.
    now: Millis,
    /// Effects of the input being handled.
    out: Vec<Effect>,
    /// Last number given to a hook, a model call or a tool execution.
    last_number: u64,

    context: Vec<(EntryId, Raw)>,
    leaf: Option<EntryId>,
    model: Option<Arc<Model>>,
    thinking: ThinkingLevel,
    tools: Arc<[ToolSpec]>,
    prompt: PromptParts,

    queues: Queues,
    /// The prompt that will start a run when its hooks are answered.
    preflight: Option<PendingPrompt>,
    /// Prompts that will be queued when their hook is answered.
    queueing: Vec<PendingPrompt>,
    run: Option<Run>,
    retry: RetryPolicy,
    /// Retries of the current streak of failures.
    retries: u32,
    chain: Chain,
    ledger: Ledger,
    /// Aborts to answer when the run is over.
    aborts: Vec<RequestId>,
    /// Shell commands that ended during a run, to be appended between turns.
    bash: Vec<Raw>,
    /// Tool-call ids this agent has seen; a provider that reuses one gets another.
    call_ids: HashSet<String>,
    /// An append failed; the next prompt must be in the file before it is accepted.
    broken: bool,
    announced: Announced,

    compaction: Option<Compacting>,
    branching: Option<Branching>,
    compaction_policy: CompactionPolicy,
    manual: Manual,
    recovery: Recovery,
    weights: Weights,
}

impl Agent {
    /// An idle agent.
    pub fn new(config: Config, ids: Box<dyn IdSource>) -> Agent {
        let thinking = match &config.model {
            Some(model) => model.clamp_thinking(config.thinking),
            None => config.thinking,
        };
        Agent {
            ids,
            now: Millis(0),
            out: Vec::new(),
            last_number: 0,
            context: config.context,
            leaf: config.leaf,
            model: config.model,
            thinking,
            tools: config.tools,
            prompt: config.prompt,
            queues: Queues::new(config.steering_mode, config.follow_up_mode),
            preflight: None,
            queueing: Vec::new(),
            run: None,
            retry: config.retry,
            retries: 0,
            chain: Chain::new(config.fallback_models),
            ledger: Ledger::new(config.limits, config.spent),
            aborts: Vec::new(),
            bash: Vec::new(),
            call_ids: HashSet::new(),
            broken: false,
            announced: Announced::default(),
            compaction: None,
            branching: None,
            compaction_policy: config.compaction,
            manual: Manual::default(),
            recovery: Recovery::default(),
            weights: Weights::default(),
        }
    }

    /// Records what a session begins with: the model and the thinking level of a new one, the level of an old one that
    /// has none yet.
    pub fn begin(&mut self, record_model: bool, record_thinking: bool, now: Millis) -> Vec<Effect> {
        self.now = now;
        if let (true, Some(model)) = (record_model, self.model.clone()) {
            self.append(EntryBody::ModelChange {
                provider: model.provider.clone(),
                model_id: model.id.clone(),
                in_place_of: None,
            });
        }
        if record_thinking {
            let level = self.thinking.as_str().to_owned();
            self.append(EntryBody::ThinkingLevelChange { level, in_place_of: None });
        }
        std::mem::take(&mut self.out)
    }

    /// Takes what happened and gives what to do, in order.
    pub fn handle(&mut self, input: Input, now: Millis) -> Vec<Effect> {
        self.now = now;
        if !matches!(input, Input::AppendFailed { .. }) {
            self.announced.begin_batch();
        }
        match input {
            Input::Command { request, command } => self.command(request, command),
            Input::Model { call, events } => self.model_events(call, events),
            Input::ToolUpdate { run, output } => self.tool_update(run, output),
            Input::ToolDone { run, output } => self.tool_done(run, output),
            Input::HookAnswer { hook, answer } => self.hook_answered(hook, answer),
            Input::Timer(timer) => {
                self.timer(timer);
                self.planner_timer(timer);
                self.branch_timer(timer);
            }
            Input::Planned { plan, outcome, diagnostic } => self.planned(plan, outcome, diagnostic),
            Input::Spent { usage } => self.ledger.spend(&usage, false),
            Input::BackedUp { plan, backup } => self.backed_up(plan, backup),
            Input::Composed { plan, result } => self.composed(plan, result),
            Input::Context { plan, conversation } => self.rebuilt(plan, conversation),
            Input::BashFinished { message } => self.bash_finished(message),
            Input::AppendFailed { error, dropped } => self.append_failed(&error, dropped),
        }
        self.advance();
        self.begin_manual();
        self.advance();
        std::mem::take(&mut self.out)
    }

    /// A run is active: from its start until `agent_settled`, continuations included.
    pub fn is_running(&self) -> bool {
        self.run.is_some()
    }

    /// Nothing is active, not even a prompt in preflight, a compaction or the summary of a branch.
    pub fn is_idle(&self) -> bool {
        self.run.is_none() && self.preflight.is_none() && self.queueing.is_empty() && self.manual_is_over()
    }

    /// Tokens that the conversation takes. `None`: nobody knows, since it was shortened and no answer has said yet.
    pub fn context_tokens(&mut self) -> Option<u64> {
        let Tokens { count, counted } = self.weights.tokens(&self.context);
        let shortened = self.weights.boundary(&self.context).is_some();
        (counted || !shortened).then_some(count)
    }

    /// The model.
    pub fn model(&self) -> Option<&Arc<Model>> {
        self.model.as_ref()
    }

    /// The effective thinking level.
    pub fn thinking(&self) -> ThinkingLevel {
        self.thinking
    }

    /// Queued messages are kept in the queues for now.
    pub fn is_paused(&self) -> bool {
        self.queues.paused
    }

    /// The active tools.
    pub fn tools(&self) -> &Arc<[ToolSpec]> {
        &self.tools
    }

    /// The conversation as clients see it: the branch's messages, oldest first.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = &Raw> {
        self.context.iter().map(|(_, message)| message)
    }

    /// How steering and follow-ups are delivered.
    pub fn queue_modes(&self) -> (QueueMode, QueueMode) {
        (self.queues.steering_mode, self.queues.follow_up_mode)
    }

    /// Messages that wait in the queues.
    pub fn queued(&self) -> usize {
        self.queues.len()
    }

    /// The local date for the system prompt, `YYYY-MM-DD`.
    pub fn set_date(&mut self, date: String) {
        self.prompt.date = date;
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn emit(&mut self, event: Event) {
        self.announced.note(&event);
        self.out.push(Effect::Emit(event));
    }

    fn answer(&mut self, request: RequestId, result: Result<Option<Raw>, String>) {
        self.out.push(Effect::Answer { request, result });
    }

    fn ask(&mut self, ask: Hook) -> HookId {
        let hook = HookId(self.number());
        self.out.push(Effect::Ask { hook, ask });
        hook
    }

    fn append(&mut self, body: EntryBody) -> EntryId {
        let id = self.ids.entry();
        let entry =
            Entry { id: id.clone(), parent_id: self.leaf.replace(id.clone()), timestamp: self.now, body };
        self.out.push(Effect::Append(entry));
        id
    }

    /// The conversation is this one from now on.
    fn set_conversation(&mut self, conversation: Conversation) {
        self.context = conversation.messages;
        self.weights = conversation.weights;
    }

    /// Appends a message to the file and to the conversation.
    fn append_message(&mut self, message: Raw) -> EntryId {
        let id = self.append(message_entry(&message));
        self.context.push((id.clone(), message));
        id
    }

    fn bash_finished(&mut self, message: Raw) {
        self.bash.push(message);
        // What is being shortened must not grow behind the compactor's back.
        if self.run.is_none() && self.compaction.is_none() && self.branching.is_none() {
            self.flush_bash();
        }
    }

    /// Appends the shell commands that ended meanwhile: only between turns, never between a call and its result.
    fn flush_bash(&mut self) {
        for message in std::mem::take(&mut self.bash) {
            self.append_message(message);
        }
    }
}

/// The entry a message is kept in: `custom` messages have one of their own.
fn message_entry(message: &Raw) -> EntryBody {
    use atomic_protocol::message::{Message, role};
    if role(message).as_deref() == Some("custom")
        && let Ok(Message::Custom(custom)) = Message::parse(message)
    {
        return EntryBody::CustomMessage {
            custom_type: custom.custom_type,
            content: Raw::from_serialize(&custom.content),
            display: custom.display,
            details: custom.details,
            exclude_from_context: custom.exclude_from_context,
        };
    }
    EntryBody::Message(message.clone())
}
