//! A run: a list of steps, and what the first of them waits for.
//!
//! [`Agent::advance`] takes steps until one has to wait for a hook, the model or tools. What they bring puts further steps
//! in front. So the order of everything a run does is the order of this list, and an abort is a flag that the steps look
//! at, not a jump out of them.

use std::collections::VecDeque;

use atomic_protocol::entry::EntryId;
use atomic_protocol::event::Event;
use atomic_protocol::json::Raw;
use atomic_protocol::message::{AssistantMessage, Message, StopReason, role};
use atomic_protocol::model::{ModelEvent, ModelFailure};

use crate::answer::{Answer, End};
use crate::commands::user_message;
use crate::effect::{Effect, ModelCall};
use crate::hook::{Hook, HookAnswer, HookId};
use crate::input::{ModelCallId, TimerId};
use crate::queue::Queued;
use crate::retry::hollow;
use crate::tools::ToolBatch;
use crate::triggers::Ending;
use crate::{Agent, message_entry, prompt};

/// A run that is not over.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) steps: VecDeque<Step>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) aborted: bool,
    /// Whoever aborted wants the queues left alone.
    pub(crate) keep_queue: bool,
    /// What the run added, for `agent_end`.
    pub(crate) messages: Vec<(EntryId, Raw)>,
    /// The answer of the current turn.
    pub(crate) turn: Option<(AssistantMessage, Raw)>,
    /// Tool results of the current turn.
    pub(crate) results: Vec<Raw>,
    pub(crate) batch: Option<ToolBatch>,
    /// Every result of the last batch said the run should end.
    pub(crate) terminated: bool,
    /// How the last answer failed, if it did.
    pub(crate) failure: Option<ModelFailure>,
    /// It failed by saying nothing; when it is not tried again it stands as it is.
    pub(crate) hollow: bool,
    /// How the last answer ended.
    pub(crate) ending: Option<Ending>,
    /// The last request was not sent: it would not have fitted, or a limit forbids it.
    pub(crate) refused: bool,
    /// A system prompt that holds for this run only.
    system: Option<String>,
}

/// What a run does next.
#[derive(Debug)]
pub(crate) enum Step {
    AgentStart,
    TurnStart,
    /// Announce a message, write it, announce its end.
    Message(Raw),
    /// Announce a message that is in the file already.
    Announced(Raw),
    /// Say that the queues changed.
    QueueUpdate,
    /// Deliver what waits in the steering queue.
    DeliverSteering,
    CallModel,
    /// Run the calls of the turn's answer, or go on with them.
    Tools,
    TurnEnd,
    AfterTurn,
    /// Go on after tools.
    NextTurn,
    /// End the turn without a request, with this error.
    Unsent(String),
    AgentEnd,
    AfterRun,
    /// The last answer stands: go on with the queues or settle.
    GoOn,
    Settle,
}

/// What a run waits for.
#[derive(Debug)]
pub(crate) enum Waiting {
    Hook(HookId, Then),
    Model(ModelCallId, Box<Answer>),
    Tools,
    /// The time for the next try.
    Retry(TimerId),
    /// The conversation is being shortened.
    Compaction,
}

/// What an answered hook leads to.
#[derive(Debug)]
pub(crate) enum Then {
    /// Announce this event.
    Emit(Event),
    /// Write this message and announce its end.
    Write(Raw),
    /// Write this answer, announce its end, go on with its calls.
    WriteAnswer(Box<AssistantMessage>, Raw),
    /// Call the model.
    Call,
    /// Say that the run is over, and whether it is tried again.
    EndRun(Vec<Raw>),
    /// Say that nothing more follows.
    Settle,
}

impl Run {
    pub(crate) fn new(system: Option<String>) -> Run {
        Run {
            steps: VecDeque::new(),
            waiting: None,
            aborted: false,
            keep_queue: false,
            messages: Vec::new(),
            turn: None,
            results: Vec::new(),
            batch: None,
            terminated: false,
            failure: None,
            hollow: false,
            ending: None,
            refused: false,
            system,
        }
    }
}

/// An abort before the first event of the answer, and one after it (literals of the reference).
const ABORTED_BEFORE: &str = "Request aborted";
const ABORTED_DURING: &str = "Request was aborted";

impl Agent {
    /// The active run. Only called where one is known to be active.
    pub(crate) fn active(&mut self) -> &mut Run {
        self.run.as_mut().expect("a run is active")
    }

    /// Takes steps until one has to wait.
    pub(crate) fn advance(&mut self) {
        while let Some(run) = &mut self.run {
            if run.waiting.is_some() {
                return;
            }
            let step = run.steps.pop_front().expect("a run ends with the step Settle");
            self.step(step);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::AgentStart => self.ask_then(Hook::AgentStart, Then::Emit(Event::AgentStart)),
            Step::TurnStart => self.ask_then(Hook::TurnStart, Then::Emit(Event::TurnStart)),
            Step::Message(message) => {
                self.emit(Event::MessageStart { message: message.clone() });
                self.ask_then(Hook::MessageEnd { message: message.clone() }, Then::Write(message));
            }
            Step::Announced(message) => {
                self.emit(Event::MessageStart { message: message.clone() });
                self.emit(Event::MessageEnd { message });
            }
            Step::QueueUpdate => self.emit(self.queues.update()),
            Step::DeliverSteering => {
                if !self.active().aborted {
                    let queued = self.queues.take_steering();
                    let steps = self.deliver(queued);
                    steps.into_iter().rev().for_each(|step| self.active().steps.push_front(step));
                }
            }
            Step::CallModel => {
                if self.active().aborted {
                    return self.aborted_answer();
                }
                if let Some(why) = self.refusal() {
                    return self.refuse_call(why);
                }
                let messages = self.context.iter().map(|(_, message)| message.clone()).collect();
                self.ask_then(Hook::Context { messages }, Then::Call);
            }
            Step::Tools => self.continue_tools(),
            Step::TurnEnd => {
                let run = self.active();
                let (_, message) = run.turn.take().expect("a turn that ends has an answer");
                let results = std::mem::take(&mut run.results);
                let event = Event::TurnEnd { message: message.clone(), tool_results: results.clone() };
                self.ask_then(Hook::TurnEnd { message, results }, Then::Emit(event));
            }
            Step::AfterTurn => self.after_turn(),
            Step::NextTurn => self.next_turn(true),
            Step::Unsent(error) => self.refuse_call(error),
            Step::AgentEnd => {
                let messages: Vec<Raw> =
                    self.active().messages.iter().map(|(_, message)| message.clone()).collect();
                self.ask_then(Hook::AgentEnd { messages: messages.clone() }, Then::EndRun(messages));
            }
            Step::AfterRun => self.after_run(),
            Step::GoOn => self.go_on(),
            Step::Settle => self.ask_then(Hook::AgentSettled, Then::Settle),
        }
    }

    fn ask_then(&mut self, ask: Hook, then: Then) {
        let hook = self.ask(ask);
        self.active().waiting = Some(Waiting::Hook(hook, then));
    }

    pub(crate) fn hook_answered(&mut self, hook: HookId, answer: HookAnswer) {
        let Some(answer) = self.prompt_hook_answered(hook, answer) else { return };
        let Some(run) = &mut self.run else { return };
        match run.waiting.take() {
            Some(Waiting::Hook(id, then)) if id == hook => self.then(then, answer),
            waiting => {
                run.waiting = waiting;
                self.tool_hook_answered(hook, answer);
            }
        }
    }

    fn then(&mut self, then: Then, answer: HookAnswer) {
        match then {
            Then::Emit(event) => self.emit(event),
            Then::Write(message) => {
                let message = replaced(message, answer);
                let role = role(&message);
                let is_result = role.as_deref() == Some("toolResult");
                if role.as_deref() == Some("user") {
                    self.recovery.renew();
                    self.chain.renew();
                }
                let id = self.append_message(message.clone());
                let run = self.active();
                run.messages.push((id, message.clone()));
                if is_result {
                    run.results.push(message.clone());
                }
                self.emit(Event::MessageEnd { message });
            }
            Then::WriteAnswer(typed, message) => {
                let (typed, message) = match answer {
                    HookAnswer::Message(other) => match Message::parse(&other) {
                        Ok(Message::Assistant(typed)) => (Box::new(typed), other),
                        _ => (typed, message),
                    },
                    _ => (typed, message),
                };
                self.write_answer(*typed, message);
            }
            Then::Call => {
                if self.active().aborted {
                    return self.aborted_answer();
                }
                let messages = match answer {
                    HookAnswer::Messages(messages) => Some(messages),
                    _ => None,
                };
                self.call_model(messages);
            }
            Then::EndRun(messages) => {
                let will_retry = self.will_retry();
                self.emit(Event::AgentEnd { messages, will_retry });
            }
            Then::Settle => {
                self.restore_model();
                self.flush_bash();
                let aborted = self.active().aborted;
                self.emit(Event::AgentSettled { aborted });
                self.run = None;
                self.ledger.next_run();
                self.answer_aborts();
            }
        }
    }

    /// Ends the turn without a request, with this error.
    fn refuse_call(&mut self, error: String) {
        self.active().refused = true;
        let model = self.model.clone().expect("a run starts only with a model, and a model is only replaced");
        self.finish_answer(Answer::new(&model, self.now), End::Failed(ModelFailure::new(error)));
    }

    fn call_model(&mut self, messages: Option<Vec<Raw>>) {
        let model = self.model.clone().expect("a run starts only with a model, and a model is only replaced");
        let call = ModelCallId(self.number());
        let context =
            messages.unwrap_or_else(|| self.context.iter().map(|(_, message)| message.clone()).collect());
        self.prompt.model_name = if model.name.is_empty() { model.id.clone() } else { model.name.clone() };
        self.prompt.thinking = self.thinking;
        self.prompt.tools = self.tools.clone();
        let system = match &self.active().system {
            Some(system) => system.as_str().into(),
            None => prompt::system_prompt(&self.prompt).into(),
        };
        let answer = Box::new(Answer::new(&model, self.now));
        let (thinking, tools) = (self.thinking, self.tools.clone());
        self.out.push(Effect::CallModel(ModelCall { call, model, thinking, system, context, tools }));
        self.active().waiting = Some(Waiting::Model(call, answer));
    }

    pub(crate) fn model_events(&mut self, call: ModelCallId, events: Vec<ModelEvent>) {
        let Some(run) = &mut self.run else { return };
        let mut answer = match run.waiting.take() {
            Some(Waiting::Model(current, answer)) if current == call => answer,
            waiting => return run.waiting = waiting,
        };
        for event in events {
            let failed = matches!(event, ModelEvent::Failed(_));
            let call_ids = &mut self.call_ids;
            let (delta, end) = answer.apply(event, |id| fresh(call_ids, id));
            if !answer.started && !failed {
                answer.started = true;
                self.emit(Event::MessageStart { message: answer.opening() });
            }
            if let Some(delta) = delta {
                self.emit(answer.update(delta));
            }
            if let Some(end) = end {
                // Whatever the adapter says after its last word is not part of the answer.
                return self.finish_answer(*answer, end);
            }
        }
        self.active().waiting = Some(Waiting::Model(call, answer));
    }

    fn finish_answer(&mut self, answer: Answer, end: End) {
        let started = answer.started;
        let failure = match &end {
            End::Failed(failure) => Some(failure.clone()),
            _ => None,
        };
        let typed = answer.finish(end);
        let hollow = hollow(&typed, self.window());
        let run = self.active();
        run.hollow = hollow.is_some();
        run.failure = failure.or(hollow);
        let message = Raw::from_serialize(&typed);
        if !started {
            self.emit(Event::MessageStart { message: message.clone() });
        }
        self.ask_then(
            Hook::MessageEnd { message: message.clone() },
            Then::WriteAnswer(Box::new(typed), message),
        );
    }

    /// The answer of a call that an abort kept from being made.
    fn aborted_answer(&mut self) {
        let model = self.model.clone().expect("a run starts only with a model, and a model is only replaced");
        let answer = Answer::new(&model, self.now);
        self.finish_answer(answer, End::Aborted(ABORTED_BEFORE));
    }

    fn write_answer(&mut self, typed: AssistantMessage, message: Raw) {
        let id = self.append(message_entry(&message));
        self.context.push((id.clone(), message.clone()));
        self.ledger.spend(&typed.usage, true);
        let run = self.run.as_mut().expect("a run is active");
        match typed.stop_reason {
            StopReason::Aborted => {}
            StopReason::Error => {
                self.chain.answered(Some(typed.error_message.as_deref().unwrap_or_default()));
            }
            _ => {
                let hollow = run.failure.as_ref().filter(|_| run.hollow);
                self.chain.answered(hollow.map(|failure| &failure.message[..]));
            }
        }
        run.messages.push((id, message.clone()));
        let calls = typed.tool_calls().next().is_some();
        let failed = run.hollow || matches!(typed.stop_reason, StopReason::Error | StopReason::Aborted);
        run.ending = Some(Ending::from(&typed));
        run.turn = Some((typed, message.clone()));
        if calls && !failed {
            run.steps.push_front(Step::Tools);
        } else {
            run.steps.push_front(Step::AfterTurn);
            run.steps.push_front(Step::TurnEnd);
        }
        run.terminated = failed;
        self.emit(Event::MessageEnd { message });
        if !failed {
            self.end_retries(None);
        }
        if calls && !failed {
            self.prepare_tools();
        }
    }

    /// Decides whether the run goes on. `terminated` says that the last turn was its last: it failed, was aborted, or
    /// its tools asked for the end.
    fn after_turn(&mut self) {
        self.flush_bash();
        let run = self.active();
        let had_tools = run.batch.take().is_some();
        if run.terminated {
            run.steps.extend([Step::AgentEnd, Step::AfterRun]);
            return;
        }
        if run.aborted && !had_tools {
            // The answer was complete when the abort came; what waits in the queues gets a run of its own.
            run.steps.extend([Step::AgentEnd, Step::AfterRun]);
            return;
        }
        if !had_tools || run.aborted || !self.make_room_between_turns() {
            self.next_turn(had_tools);
        }
    }

    /// Another turn, if there is anything to do in it.
    fn next_turn(&mut self, had_tools: bool) {
        let run = self.active();
        if run.aborted {
            // Aborted during tools: the reference closes with one more turn that holds an empty aborted answer.
            run.steps.extend([Step::TurnStart, Step::CallModel]);
            return;
        }
        let mut queued = self.queues.take_steering();
        if queued.is_empty() && !had_tools {
            queued = self.queues.take_follow_up();
        }
        if queued.is_empty() && !had_tools {
            self.active().steps.extend([Step::AgentEnd, Step::AfterRun]);
            return;
        }
        if !had_tools {
            self.restore_model();
        }
        let deliver = self.deliver(queued);
        let steps = &mut self.active().steps;
        steps.push_back(Step::TurnStart);
        steps.extend(deliver);
        steps.push_back(Step::CallModel);
    }

    /// The steps that deliver messages taken from a queue.
    fn deliver(&mut self, queued: Vec<Queued>) -> Vec<Step> {
        let mut steps = Vec::new();
        if !queued.is_empty() {
            steps.push(Step::QueueUpdate);
        }
        for message in queued {
            steps.push(Step::Message(user_message(&message.text, &message.images, self.now)));
        }
        steps
    }

    /// After `agent_end`: messages that still wait get a run of their own, unless the last answer failed; then they stay
    /// in the queue for the next prompt, since another call would most likely fail the same way.
    fn after_run(&mut self) {
        if !self.retry_failure() && !self.recover() {
            self.go_on();
        }
    }

    fn go_on(&mut self) {
        if self.fall_back(true) {
            return;
        }
        let wanted = self.manual_compaction();
        let run = self.active();
        let ends = (run.failure.is_some() && !run.aborted) || run.keep_queue;
        if !self.queues.has_due() || ends || wanted {
            self.active().steps.push_back(Step::Settle);
            return;
        }
        self.answer_aborts();
        self.run_queues();
    }

    /// Starts a run for what waits in the queues.
    pub(crate) fn run_queues(&mut self) {
        self.restore_model();
        let mut queued = self.queues.take_steering();
        if queued.is_empty() {
            queued = self.queues.take_follow_up();
        }
        let deliver = self.deliver(queued);
        let mut next = Run::new(None);
        next.steps.extend([Step::AgentStart, Step::TurnStart]);
        next.steps.extend(deliver);
        next.steps.push_back(Step::CallModel);
        self.run = Some(next);
    }

    pub(crate) fn abort_run(&mut self) {
        let run = self.active();
        run.aborted = true;
        match run.waiting.take() {
            Some(Waiting::Retry(_)) => self.give_up_retrying(),
            Some(Waiting::Compaction) => {
                run.waiting = Some(Waiting::Compaction);
                self.cancel_compaction();
            }
            Some(Waiting::Model(call, answer)) => {
                let text = if answer.started { ABORTED_DURING } else { ABORTED_BEFORE };
                self.out.push(Effect::CancelModel(call));
                self.finish_answer(*answer, End::Aborted(text));
            }
            waiting => {
                run.waiting = waiting;
                self.cancel_tools();
            }
        }
    }
}

/// The message a hook answered with, if it has the same role; else the message as it was.
fn replaced(message: Raw, answer: HookAnswer) -> Raw {
    match answer {
        HookAnswer::Message(other) if role(&other).is_some() && role(&other) == role(&message) => other,
        _ => message,
    }
}

/// `id`, or `id-2`, `id-3`, … when the session has used it: some servers count their calls from zero in every answer, and
/// two calls with one id make every later request invalid.
fn fresh(used: &mut std::collections::HashSet<String>, id: String) -> String {
    let base = if id.is_empty() { "call".to_owned() } else { id };
    let mut candidate = base.clone();
    let mut count = 2;
    while !used.insert(candidate.clone()) {
        candidate = format!("{base}-{count}");
        count += 1;
    }
    candidate
}
