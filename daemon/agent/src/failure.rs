//! A failed append ends the run and keeps what clients saw true.
//!
//! The agent had gone on as if the whole batch of effects had happened. It goes back to what did happen: entries that were
//! not written leave the conversation and the tree, answers that were not sent become errors, and what was announced as
//! begun is announced as ended.

use std::collections::HashSet;

use atomic_protocol::entry::{EntryBody, EntryId};
use atomic_protocol::event::{CompactionReason, Event};
use atomic_protocol::json::Raw;
use atomic_protocol::message::role;
use atomic_protocol::model::ModelFailure;
use atomic_protocol::tool::ToolOutput;

use crate::Agent;
use crate::answer::{Answer, End};
use crate::effect::Effect;
use crate::input::ModelCallId;
use crate::run::Waiting;

/// Which records clients have seen begin and not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Open {
    /// An `agent_start` without the `agent_settled` that closes it and its continuations.
    unsettled: bool,
    /// Retries begun and not ended.
    retries: u32,
    agent: bool,
    turn: bool,
    message: bool,
    /// A `model_fallback_start` without its end.
    fallback: bool,
    /// A `compaction_start` without its end: why, and whether between turns.
    compaction: Option<(CompactionReason, bool)>,
}

/// What clients were told, with a way back to before the batch that failed.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    open: Open,
    before: Open,
    /// Events of this batch, as far as they open or close something.
    batch: Vec<fn(&mut Open)>,
    /// Events of this batch of any kind.
    emitted: usize,
    marks: Vec<usize>,
}

impl Announced {
    pub(crate) fn begin_batch(&mut self) {
        self.before = self.open;
        self.batch.clear();
        self.marks.clear();
        self.emitted = 0;
    }

    pub(crate) fn note(&mut self, event: &Event) {
        let change: fn(&mut Open) = match event {
            Event::AgentStart => |open| (open.agent, open.unsettled) = (true, true),
            Event::AgentSettled { .. } => |open| open.unsettled = false,
            Event::AutoRetryStart { .. } => |open| open.retries += 1,
            Event::AutoRetryEnd { .. } => |open| open.retries = 0,
            Event::AgentEnd { .. } => |open| open.agent = false,
            Event::TurnStart => |open| open.turn = true,
            Event::TurnEnd { .. } => |open| open.turn = false,
            Event::MessageStart { .. } => |open| open.message = true,
            Event::MessageEnd { .. } => |open| open.message = false,
            Event::CompactionStart { reason, mid_turn } => match (reason, mid_turn) {
                (CompactionReason::Manual, _) => {
                    |open| open.compaction = Some((CompactionReason::Manual, false))
                }
                (CompactionReason::Threshold, false) => {
                    |open| open.compaction = Some((CompactionReason::Threshold, false))
                }
                (CompactionReason::Threshold, true) => {
                    |open| open.compaction = Some((CompactionReason::Threshold, true))
                }
                (CompactionReason::Overflow, _) => {
                    |open| open.compaction = Some((CompactionReason::Overflow, false))
                }
            },
            Event::CompactionEnd(_) => |open| open.compaction = None,
            Event::ModelFallbackStart { .. } => |open| open.fallback = true,
            Event::ModelFallbackEnd { .. } => |open| open.fallback = false,
            _ => return self.emitted += 1,
        };
        change(&mut self.open);
        self.batch.push(change);
        self.marks.push(self.emitted);
        self.emitted += 1;
    }

    /// Goes back to what was performed: all events of the last batch but the last `dropped`.
    fn rewind(&mut self, dropped: usize) {
        let performed = self.emitted.saturating_sub(dropped);
        self.open = self.before;
        for (change, mark) in self.batch.iter().zip(&self.marks) {
            if *mark < performed {
                change(&mut self.open);
            }
        }
    }

    pub(crate) fn in_agent(&self) -> bool {
        self.open.agent
    }

    pub(crate) fn in_turn(&self) -> bool {
        self.open.turn
    }

    pub(crate) fn compaction(&self) -> Option<(CompactionReason, bool)> {
        self.open.compaction
    }

    pub(crate) fn in_fallback(&self) -> bool {
        self.open.fallback
    }

    pub(crate) fn in_message(&self) -> bool {
        self.open.message
    }
}

impl Agent {
    pub(crate) fn append_failed(&mut self, error: &str, dropped: Vec<Effect>) {
        self.broken = true;
        let mut lost: HashSet<EntryId> = HashSet::new();
        let mut events = 0;
        let mut settled = false;
        for effect in &dropped {
            match effect {
                Effect::Append(entry) => {
                    if lost.is_empty() {
                        self.leaf = entry.parent_id.clone();
                    }
                    lost.insert(entry.id.clone());
                    if let EntryBody::Message(message) = &entry.body
                        && role(message).as_deref() == Some("bashExecution")
                    {
                        // The command ran; its result goes into the file when the file works again.
                        self.bash.push(message.clone());
                    }
                }
                Effect::AppendComposed { id, parent_id, .. } => {
                    if lost.is_empty() {
                        self.leaf = parent_id.clone();
                    }
                    lost.insert(id.clone());
                }
                Effect::Emit(event) => {
                    events += 1;
                    settled |= matches!(event, Event::AgentSettled { .. });
                }
                _ => {}
            }
        }
        self.announced.rewind(events);
        self.announced.begin_batch();
        self.retries = self.announced.open.retries;
        self.context.retain(|(id, _)| !lost.contains(id));
        self.dropped_answers(&dropped, error);
        let asked = |hook| {
            !dropped.iter().any(|effect| matches!(effect, Effect::Ask { hook: lost, .. } if *lost == hook))
        };
        self.prompts_broke(error, asked);
        let performed = |plan| {
            !dropped.iter().any(|effect| match effect {
                Effect::Plan(call) => call.plan == plan,
                Effect::Backup { plan: asked, .. } | Effect::ReadContext(asked) => *asked == plan,
                Effect::Compose(compose) => compose.plan == plan,
                _ => false,
            })
        };
        self.branching_broke(error, performed);
        self.compaction_broke(error, performed);
        if self.run.is_some() {
            self.end_broken_run(error, &dropped, &lost);
        } else {
            self.chain_broke(error, &dropped);
        }
        if settled && self.run.is_none() && self.announced.open.unsettled {
            self.emit(Event::AgentSettled { aborted: false });
        }
    }

    fn end_broken_run(&mut self, error: &str, dropped: &[Effect], lost: &HashSet<EntryId>) {
        let started = |call: ModelCallId| {
            !dropped.iter().any(|effect| matches!(effect, Effect::CallModel(made) if made.call == call))
        };
        let open_calls = self.open_calls();
        self.cancel_tools();
        let run = self.run.take().expect("a run is active");
        self.ledger.next_run();
        let aborted = run.aborted;
        if let Some(Waiting::Model(call, _)) = &run.waiting
            && started(*call)
        {
            self.out.push(Effect::CancelModel(*call));
        }
        for call in open_calls {
            let announced = !dropped.iter().any(
                |effect| matches!(effect, Effect::Emit(Event::ToolExecutionStart { tool_call_id, .. }) if *tool_call_id == call.id),
            );
            if announced {
                let output = ToolOutput::error(error);
                self.emit(Event::ToolExecutionEnd {
                    tool_call_id: call.id,
                    tool_name: call.name,
                    result: output.to_raw(),
                    is_error: true,
                });
            }
        }
        if self.announced.in_agent() {
            let mut messages: Vec<Raw> = run
                .messages
                .into_iter()
                .filter(|(id, _)| !lost.contains(id))
                .map(|(_, message)| message)
                .collect();
            let message = self.failure_message(error);
            if !self.announced.in_turn() {
                self.emit(Event::TurnStart);
            }
            if !self.announced.in_message() {
                self.emit(Event::MessageStart { message: message.clone() });
            }
            self.emit(Event::MessageEnd { message: message.clone() });
            messages.push(message.clone());
            self.emit(Event::TurnEnd { message, tool_results: Vec::new() });
            self.emit(Event::AgentEnd { messages, will_retry: false });
        }
        self.end_retries(Some(error));
        self.chain_broke(error, dropped);
        if self.announced.open.unsettled {
            self.emit(Event::AgentSettled { aborted });
        }
        self.answer_aborts();
    }

    /// The one message that is announced and not in the file: it says that the file failed.
    fn failure_message(&self, error: &str) -> Raw {
        let model = self.model.clone().expect("a run starts only with a model, and a model is only replaced");
        let answer = Answer::new(&model, self.now);
        Raw::from_serialize(&answer.finish(End::Failed(ModelFailure::new(error))))
    }
}
