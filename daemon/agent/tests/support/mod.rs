//! A world for one agent: performs its effects in memory and checks the invariants as it goes.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod shortened;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use atomic_agent::compaction::{Begun, LeftBehind, PlanOutcome, PlannerAnswer, Source};
use atomic_agent::prompt::PromptParts;
use atomic_agent::{
    Agent, AgentCommand, CompactionPolicy, Compose, Config, Conversation, Counted, Effect, FallbackModel,
    Hook, HookAnswer, HookId, Input, Limits, ModelCall, ModelCallId, PlanCall, PlanStage, Reloaded,
    RequestId, RetryPolicy, Spent, Strategy, TimerId, ToolRunId,
};
use atomic_protocol::command::QueueMode;
use atomic_protocol::entry::{Entry, EntryBody, EntryId};
use atomic_protocol::event::Event;
use atomic_protocol::json::Raw;
use atomic_protocol::message::{StopReason, ToolCall, Usage};
use atomic_protocol::model::{Model, ModelEvent, ThinkingLevel};
use atomic_protocol::time::Millis;
use atomic_protocol::tool::{ToolOutput, ToolSpec};

pub(crate) fn model(id: &str, reasoning: bool) -> Arc<Model> {
    let text = format!(r#"{{"id":"{id}","name":"{id}","api":"a","provider":"p","reasoning":{reasoning}}}"#);
    Arc::new(Model::parse(Raw::parse(&text).unwrap()).unwrap())
}

pub(crate) fn sized_model(id: &str, window: u64, max_tokens: u64) -> Arc<Model> {
    let text = format!(
        r#"{{"id":"{id}","name":"{id}","api":"a","provider":"p","contextWindow":{window},"maxTokens":{max_tokens}}}"#
    );
    Arc::new(Model::parse(Raw::parse(&text).unwrap()).unwrap())
}

/// Models that may take the place of one that fails, with no level of their own.
pub(crate) fn fallbacks(ids: &[&str]) -> Vec<FallbackModel> {
    ids.iter().map(|id| FallbackModel { model: sized_model(id, 0, 0), thinking: None }).collect()
}

pub(crate) fn tool(name: &str, sequential: bool) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: Raw::empty_object(),
        snippet: None,
        guidelines: Vec::new(),
        sequential,
    }
}

/// One agent and what it did.
pub(crate) struct World {
    pub(crate) agent: Agent,
    pub(crate) now: Millis,
    /// What clients saw, in order.
    pub(crate) events: Vec<Event>,
    /// Records as clients see them: event names and `answer N`.
    pub(crate) wire: Vec<String>,
    pub(crate) file: Vec<Entry>,
    pub(crate) answers: BTreeMap<u64, Result<Option<Raw>, String>>,
    pub(crate) asked: HashSet<u64>,
    pub(crate) calls: Vec<ModelCall>,
    pub(crate) open_calls: Vec<ModelCallId>,
    pub(crate) tools: Vec<(ToolRunId, ToolCall)>,
    pub(crate) cancelled: Vec<ToolRunId>,
    pub(crate) hooks: Vec<(HookId, Hook)>,
    /// The wait asked for last, and until when.
    pub(crate) timer: Option<(TimerId, Millis)>,
    /// Steps of planning that are out.
    pub(crate) plans: Vec<PlanCall>,
    /// What models were asked in steps of planning: the model's id, and the one message.
    pub(crate) requests: Vec<(String, String)>,
    /// How many steps there were.
    pub(crate) planned: usize,
    /// Labels of the backups made.
    pub(crate) backups: Vec<&'static str>,
    /// Boundaries that are written out, or being written out.
    pub(crate) composed: Vec<Compose>,
    /// They are written out at once; else `composed` waits for [`World::compose`].
    pub(crate) instant_composing: bool,
    /// Where it is told why a planner is given up.
    pub(crate) diagnostic: Option<String>,
    /// What the next backup fails with.
    pub(crate) backup_error: Option<String>,
    /// Hooks are answered at once; else they wait in `hooks`.
    pub(crate) instant: bool,
    /// Appends fail.
    pub(crate) full: bool,
    /// Texts of user messages that were announced as ended.
    pub(crate) delivered: Vec<String>,
    next_request: u64,
}

impl World {
    pub(crate) fn new() -> World {
        World::with_tools(&[("t", false), ("u", false), ("s", true)])
    }

    pub(crate) fn with_tools(tools: &[(&str, bool)]) -> World {
        World::with(tools, model("m", true))
    }

    /// With a model whose context window and longest answer are known, in tokens.
    pub(crate) fn with_window(window: u64, max_tokens: u64) -> World {
        World::with(&[("t", false), ("u", false), ("s", true)], sized_model("m", window, max_tokens))
    }

    fn with(tools: &[(&str, bool)], given: Arc<Model>) -> World {
        let tools: Arc<[ToolSpec]> = tools.iter().map(|(name, sequential)| tool(name, *sequential)).collect();
        let config = Config {
            model: Some(given),
            thinking: ThinkingLevel::Medium,
            tools: tools.clone(),
            prompt: PromptParts {
                custom: None,
                append: Vec::new(),
                tools,
                context_files: Vec::new(),
                skills: Vec::new(),
                model_name: String::new(),
                thinking: ThinkingLevel::Medium,
                date: "2026-01-01".into(),
                cwd: "/w".into(),
            },
            context: Vec::new(),
            leaf: None,
            retry: RetryPolicy::default(),
            compaction: CompactionPolicy { reserve_tokens: 1000, ..CompactionPolicy::default() },
            fallback_models: Vec::new(),
            limits: Limits::default(),
            spent: Spent::default(),
            steering_mode: QueueMode::OneAtATime,
            follow_up_mode: QueueMode::OneAtATime,
        };
        World {
            agent: Agent::new(config, Box::new(Counted::default())),
            now: Millis(1),
            events: Vec::new(),
            wire: Vec::new(),
            file: Vec::new(),
            answers: BTreeMap::new(),
            asked: HashSet::new(),
            calls: Vec::new(),
            open_calls: Vec::new(),
            tools: Vec::new(),
            cancelled: Vec::new(),
            hooks: Vec::new(),
            timer: None,
            plans: Vec::new(),
            requests: Vec::new(),
            planned: 0,
            backups: Vec::new(),
            composed: Vec::new(),
            instant_composing: true,
            diagnostic: None,
            backup_error: None,
            instant: true,
            full: false,
            delivered: Vec::new(),
            next_request: 0,
        }
    }

    /// Feeds one input and performs what comes of it, as the actor does.
    pub(crate) fn feed(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.now = self.now.plus(1);
            let effects = self.agent.handle(input, self.now);
            let mut follow = self.perform(effects);
            follow.reverse();
            inputs.splice(0..0, follow);
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) -> Vec<Input> {
        let mut follow = Vec::new();
        let mut effects = effects.into_iter();
        while let Some(effect) = effects.next() {
            match effect {
                effect @ (Effect::Append(_) | Effect::AppendComposed { .. }) if self.full => {
                    self.composed.clear();
                    let mut dropped = vec![effect];
                    dropped.extend(effects);
                    follow.push(Input::AppendFailed {
                        error: "cannot write /s.jsonl: disk full".into(),
                        dropped,
                    });
                    return follow;
                }
                Effect::Append(entry) => {
                    let last = self.file.last().map(|last| last.id.clone());
                    let goes = matches!(entry.body, EntryBody::BranchSummary { .. });
                    assert!(goes || entry.parent_id == last, "one linear branch");
                    self.file.push(entry);
                }
                Effect::Emit(event) => self.see(event),
                Effect::Answer { request, result } => {
                    self.wire.push(format!("answer {}", request.0));
                    assert!(self.asked.contains(&request.0), "an answer nobody asked for");
                    assert!(
                        self.answers.insert(request.0, result).is_none(),
                        "answered twice: {}",
                        request.0
                    );
                }
                Effect::CallModel(call) => {
                    self.open_calls.push(call.call);
                    self.calls.push(call);
                }
                Effect::CancelModel(call) => {
                    assert!(self.open_calls.contains(&call), "only an open call is cancelled");
                    self.open_calls.retain(|open| *open != call);
                }
                Effect::Plan(call) => {
                    self.planned += 1;
                    self.plans.push(*call);
                }
                // A step that ended or was never followed by another may be given up as well: a backup.
                Effect::CancelPlan(plan) => {
                    self.plans.retain(|open| open.plan != plan);
                    self.composed.retain(|composed| composed.plan != plan);
                }
                Effect::Backup { plan, label } => {
                    self.backups.push(label);
                    let backup = self.backup_error.take().map_or(Ok(Some("/s.bak".to_owned())), Err);
                    follow.push(Input::BackedUp { plan, backup });
                }
                Effect::Compose(compose) => {
                    let (plan, result) = (compose.plan, Ok(compose.result()));
                    // One at a time: what was written out before is for nothing now.
                    self.composed = vec![*compose];
                    if self.instant_composing {
                        follow.push(Input::Composed { plan, result });
                    }
                }
                Effect::AppendComposed { plan, .. } => {
                    let at = self.composed.iter().position(|composed| composed.plan == plan);
                    let composed = self.composed.remove(at.expect("it was composed"));
                    let entry = composed.entry();
                    assert_eq!(entry.parent_id, self.file.last().map(|last| last.id.clone()));
                    self.file.push(entry);
                    let conversation = Conversation::new(self.stored_context());
                    follow.push(Input::Context { plan, conversation });
                }
                Effect::ReadContext(plan) => {
                    let conversation = Conversation::new(self.stored_context());
                    follow.push(Input::Context { plan, conversation });
                }
                Effect::RunTool { run, call } => self.tools.push((run, call)),
                Effect::WakeAt { timer, at } => self.timer = Some((timer, at)),
                Effect::CancelTool(run) => self.cancelled.push(run),
                Effect::Ask { hook, .. } if self.instant => {
                    follow.push(Input::HookAnswer { hook, answer: HookAnswer::Go });
                }
                Effect::Ask { hook, ask } => self.hooks.push((hook, ask)),
            }
        }
        follow
    }

    fn see(&mut self, event: Event) {
        if let Event::MessageEnd { message } = &event {
            let text = message.as_str();
            let in_file = self.file.iter().any(|entry| match &entry.body {
                EntryBody::Message(kept) => kept == message,
                EntryBody::CustomMessage { content, .. } => text.contains(content.as_str()),
                _ => false,
            });
            assert!(in_file || text.contains("disk full"), "announced before it was appended: {text}");
            if text.starts_with(r#"{"role":"user""#) {
                let start = text.find(r#""text":""#).unwrap() + 8;
                self.delivered.push(text[start..].split('"').next().unwrap().to_owned());
            }
        }
        self.wire.push(match &event {
            Event::MessageStart { message } | Event::MessageEnd { message } => {
                let role = atomic_protocol::message::role(message).unwrap();
                format!("{} {role}", event.name())
            }
            Event::ToolExecutionStart { tool_call_id, .. } | Event::ToolExecutionEnd { tool_call_id, .. } => {
                format!("{} {tool_call_id}", event.name())
            }
            _ => event.name().to_owned(),
        });
        self.events.push(event);
    }

    /// The entries from the first to the leaf.
    fn path(&self) -> Vec<Entry> {
        let mut path: Vec<Entry> = Vec::new();
        let mut next = self.file.last();
        while let Some(entry) = next {
            path.push(entry.clone());
            next = self.file.iter().find(|other| Some(&other.id) == entry.parent_id.as_ref());
        }
        path.reverse();
        path
    }

    /// The conversation as the session store would build it from the file.
    fn stored_context(&self) -> Vec<(EntryId, Raw)> {
        let path = self.path();
        let file = &path[..];
        let messages = |entries: &[Entry]| -> Vec<(EntryId, Raw)> {
            entries
                .iter()
                .filter_map(|entry| match &entry.body {
                    EntryBody::Message(message) => Some((entry.id.clone(), message.clone())),
                    EntryBody::BranchSummary { summary, .. } => {
                        let text = serde_json::to_string(summary).unwrap();
                        let message = format!(
                            r#"{{"role":"branchSummary","summary":{text},"fromId":"x","timestamp":1}}"#
                        );
                        Some((entry.id.clone(), Raw::parse(&message).unwrap()))
                    }
                    _ => None,
                })
                .collect()
        };
        let boundary = |entry: &Entry| matches!(entry.body, EntryBody::Compaction { .. });
        let Some(at) = file.iter().rposition(boundary) else { return messages(file) };
        let EntryBody::Compaction { summary, first_kept, details, .. } = &file[at].body else {
            unreachable!()
        };
        let kept = file[..at].iter().position(|entry| Some(&entry.id) == first_kept.as_ref()).unwrap_or(at);
        let tail: String =
            messages(&file[kept..at]).iter().map(|(_, message)| message.as_str().to_owned()).collect();
        let by_summary = details.as_str().starts_with(r#"{"strategy":"summary""#);
        let tail = if by_summary { String::new() } else { tail };
        let text = serde_json::to_string(&format!("{summary}\n\n{tail}")).unwrap();
        let message = format!(
            r#"{{"role":"custom","customType":"compaction","content":[{{"type":"text","text":{text}}}],"display":true,"timestamp":{}}}"#,
            file[at].timestamp.0
        );
        let mut out = vec![(file[at].id.clone(), Raw::parse(&message).unwrap())];
        if by_summary {
            out.extend(messages(&file[kept..at]));
        }
        out.extend(messages(&file[at + 1..]));
        out
    }

    /// What a compaction would look at, as the session store gives it.
    pub(crate) fn source(&self) -> Source {
        let path = self.path();
        let file = &path[..];
        let boundary = |entry: &Entry| matches!(entry.body, EntryBody::Compaction { .. });
        let last = file.iter().rposition(boundary);
        let from = last.map_or(0, |at| {
            let EntryBody::Compaction { first_kept, .. } = &file[at].body else { unreachable!() };
            file[..at].iter().position(|entry| Some(&entry.id) == first_kept.as_ref()).unwrap_or(at + 1)
        });
        let message = |entry: &Entry| match &entry.body {
            EntryBody::Message(message) => Some((entry.id.clone(), message.clone())),
            _ => None,
        };
        Source {
            previous: last.map(|at| Raw::parse(std::str::from_utf8(&file[at].to_line()).unwrap()).unwrap()),
            messages: file[from..].iter().filter_map(message).collect(),
        }
    }

    /// What going to `target` leaves behind, if the file is one branch.
    fn left(&self, target: &EntryId) -> Vec<LeftBehind> {
        let from = self.file.iter().position(|entry| entry.id == *target).map_or(0, |at| at + 1);
        let messages = self.file[from..].iter().filter_map(|entry| match &entry.body {
            EntryBody::Message(message) => Some(LeftBehind { message: message.clone(), summary: None }),
            _ => None,
        });
        messages.collect()
    }

    /// Does the step of planning that is out as the daemon does; a planner that is asked answers this.
    pub(crate) fn planner(&mut self, answer: PlannerAnswer) {
        self.planned(|world, call| {
            let window = call.window;
            let begun = match call.stage {
                PlanStage::Ask(work) => Begun::Ask(work),
                PlanStage::Fresh(plan) => return plan.fresh(window).into(),
                PlanStage::Begin(begin) => begin.begin(world.source(), window),
                PlanStage::BeginBranch(begin, target) => begin.begin(world.left(&target), window),
            };
            match begun {
                Begun::Ask(work) => {
                    world.requests.push((call.model.id.clone(), work.request()));
                    work.outcome(answer, window)
                }
                Begun::Over(outcome) => outcome,
            }
        });
    }

    /// The planner answers this text.
    pub(crate) fn planner_says(&mut self, text: &str) {
        let mut answer = PlannerAnswer::default();
        answer.take(ModelEvent::TextDelta { index: 0, delta: text.to_owned() });
        answer.take(done(StopReason::Stop));
        self.planner(answer);
    }

    /// The step of planning that is out comes to this.
    pub(crate) fn planned(&mut self, outcome: impl FnOnce(&mut World, PlanCall) -> PlanOutcome) {
        let call = self.plans.pop().expect("a step of planning is out");
        let plan = call.plan;
        let outcome = outcome(self, call);
        let diagnostic = self.diagnostic.clone();
        self.feed(Input::Planned { plan, outcome, diagnostic });
    }

    /// The boundary that was asked for last is written out.
    pub(crate) fn compose(&mut self) {
        let compose = self.composed.last().expect("a boundary is to be written out");
        let (plan, result) = (compose.plan, Ok(compose.result()));
        self.feed(Input::Composed { plan, result });
        self.composed.retain(|composed| composed.plan != plan);
    }

    /// As a reload with another setting `compaction.strategy` does.
    pub(crate) fn set_strategy(&mut self, strategy: Strategy) {
        let mut reloaded = reloaded(self);
        reloaded.compaction.strategy = strategy;
        self.agent.reload(reloaded);
    }

    pub(crate) fn ask(&mut self, command: AgentCommand) -> u64 {
        self.next_request += 1;
        let request = self.next_request;
        self.asked.insert(request);
        self.feed(Input::Command { request: RequestId(request), command });
        request
    }

    pub(crate) fn prompt(&mut self, text: &str) -> u64 {
        self.ask(AgentCommand::Prompt { text: text.into(), images: vec![], behavior: None })
    }

    /// The current model call answers these events.
    pub(crate) fn answer(&mut self, events: Vec<ModelEvent>) {
        let call = *self.open_calls.last().expect("a model call is open");
        if events.iter().any(|event| matches!(event, ModelEvent::Done { .. } | ModelEvent::Failed(_))) {
            self.open_calls.pop();
        }
        self.feed(Input::Model { call, events });
    }

    pub(crate) fn tool_done(&mut self, at: usize, output: ToolOutput) {
        let (run, _) = self.tools.remove(at);
        self.feed(Input::ToolDone { run, output });
    }

    /// The time asked for last has come.
    pub(crate) fn ring(&mut self) {
        let (timer, at) = self.timer.take().expect("a wait was asked for");
        self.now = at;
        self.feed(Input::Timer(timer));
    }

    /// The records since the last call of this.
    pub(crate) fn seen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.wire)
    }

    /// Begin and end of agent, turn and messages match, and nothing follows `agent_settled` but an `agent_start`.
    pub(crate) fn check_order(&self) {
        let (mut agent, mut turn, mut message, mut settled) = (false, false, false, true);
        // Before a prompt and for a client's `compact` the conversation is shortened outside of any run.
        let (mut compacting, mut planner_retries) = (None, 0);
        let mut tools = HashSet::new();
        let mut retrying = 0;
        // Which model clients think is in the place of which.
        let mut in_place = None;
        for event in &self.events {
            let run_record = !matches!(
                event,
                Event::QueueUpdate { .. }
                    | Event::ModelChanged { .. }
                    | Event::ThinkingLevelChanged { .. }
                    | Event::SessionInfoChanged { .. }
                    | Event::CompactionStart { .. }
                    | Event::CompactionEnd(_)
                    | Event::SummarizationRetryScheduled { .. }
                    | Event::SummarizationRetryAttemptStart { .. }
                    | Event::SummarizationRetryFinished
            );
            assert!(
                !settled || !run_record || matches!(event, Event::AgentStart),
                "{} after settled",
                event.name()
            );
            match event {
                Event::CompactionStart { reason, mid_turn } => {
                    assert!(compacting.is_none() && !turn && !message, "compaction_start");
                    assert!(!agent || *mid_turn, "a compaction in a run is between turns");
                    compacting = Some((*reason, *mid_turn));
                }
                Event::CompactionEnd(end) => {
                    let spent = compacting.is_none() && end.error_message.is_some() && end.result.is_none();
                    assert!(
                        spent || compacting == Some((end.reason, end.mid_turn)),
                        "compaction_end {end:?}"
                    );
                    assert!(!(end.aborted && end.result.is_some()), "a result is final");
                    assert_eq!(planner_retries, 0, "retries end before the compaction");
                    compacting = None;
                }
                // Outside of a compaction it is the summary of a branch that is tried again.
                Event::SummarizationRetryScheduled { attempt, .. } => {
                    planner_retries += 1;
                    assert_eq!(*attempt, planner_retries);
                    assert!(compacting.is_some() || (settled && !agent), "nothing is summed up in a run");
                }
                Event::SummarizationRetryAttemptStart { reason } => {
                    assert_eq!(*reason, compacting.map(|(reason, _)| reason));
                }
                Event::SummarizationRetryFinished => {
                    assert!(planner_retries > 0);
                    planner_retries = 0;
                }
                Event::AgentStart => {
                    assert!(compacting.is_none(), "a run begins during a compaction");
                    assert!(!agent, "agent_start twice");
                    (agent, settled) = (true, false);
                }
                Event::AgentEnd { .. } => {
                    assert!(agent && !turn && !message, "agent_end in a turn");
                    agent = false;
                }
                Event::AutoRetryStart { attempt, .. } => {
                    assert!(!agent, "a retry inside a run");
                    retrying += 1;
                    assert_eq!(*attempt, retrying);
                }
                Event::AutoRetryEnd { attempt, .. } => {
                    assert_eq!(*attempt, retrying);
                    retrying = 0;
                }
                Event::ModelFallbackStart { from, to, attempt, .. } => {
                    assert!(!agent && compacting.is_none() && retrying == 0, "a fallback inside a run");
                    assert!(*attempt > 0 && in_place.as_ref().is_none_or(|in_place| in_place == from));
                    in_place = Some(to.clone());
                }
                Event::ModelFallbackEnd { success, from, final_error, .. } => {
                    assert_eq!(*from, in_place, "what ends is what began");
                    assert_eq!(*success, final_error.is_none());
                    in_place = None;
                }
                Event::AgentSettled { .. } => {
                    assert_eq!(in_place, None, "settled on a model nobody chose");
                    assert!(compacting.is_none(), "settled during a compaction");
                    assert_eq!(retrying, 0, "retries end before the run settles");
                    assert!(!agent, "settled in a run");
                    settled = true;
                }
                Event::TurnStart => {
                    assert!(agent && !turn, "turn_start");
                    turn = true;
                }
                Event::TurnEnd { .. } => {
                    assert!(turn && !message && tools.is_empty(), "turn_end with open {tools:?}");
                    turn = false;
                }
                Event::MessageStart { .. } => {
                    assert!(turn && !message, "message_start");
                    message = true;
                }
                Event::MessageEnd { message: ended } => {
                    assert!(message, "message_end without start");
                    assert!(!ended.as_str().contains("pending"), "a finished message is not pending");
                    message = false;
                }
                Event::MessageUpdate { .. } => assert!(message, "an update outside a message"),
                Event::ToolExecutionStart { tool_call_id, .. } => {
                    assert!(tools.insert(tool_call_id.clone()), "a call starts once");
                }
                Event::ToolExecutionUpdate { tool_call_id, .. } => assert!(tools.contains(tool_call_id)),
                Event::ToolExecutionEnd { tool_call_id, .. } => {
                    assert!(tools.remove(tool_call_id), "a call ends once");
                }
                _ => {}
            }
        }
        assert_eq!(in_place.is_some(), self.agent.is_fallback(), "a fallback left open");
        assert_eq!(compacting.is_some(), self.agent.compaction_reason().is_some(), "a compaction left open");
        if !self.agent.is_running() {
            assert!(
                settled && !agent && !turn && !message && tools.is_empty(),
                "an idle agent has closed everything"
            );
        }
    }
}

/// An answer that says what it used.
pub(crate) fn using(text: &str, input: u64, output: u64, reason: StopReason) -> Vec<ModelEvent> {
    let usage = Usage { input, output, total_tokens: input + output, ..Usage::default() };
    let mut events = self::text(text);
    events.pop();
    events.extend([ModelEvent::Usage(usage), done(reason)]);
    events
}

pub(crate) fn text(text: &str) -> Vec<ModelEvent> {
    vec![
        ModelEvent::Start { response_id: None, response_model: None },
        ModelEvent::TextStart { index: 0 },
        ModelEvent::TextDelta { index: 0, delta: text.into() },
        ModelEvent::TextEnd { index: 0, signature: None },
        done(StopReason::Stop),
    ]
}

pub(crate) fn done(reason: StopReason) -> ModelEvent {
    ModelEvent::Done { reason, raw_reason: None, end_turn: None }
}

pub(crate) fn calls(calls: &[(&str, &str)], reason: StopReason) -> Vec<ModelEvent> {
    let mut events = vec![ModelEvent::Start { response_id: None, response_model: None }];
    for (index, (id, name)) in calls.iter().enumerate() {
        events.push(ModelEvent::ToolCallStart { index, id: (*id).into(), name: (*name).into() });
        events.push(ModelEvent::ToolCallDelta { index, delta: "{}".into() });
        events.push(ModelEvent::ToolCallEnd {
            index,
            arguments: Raw::empty_object(),
            thought_signature: None,
        });
    }
    events.push(done(reason));
    events
}

/// What files say, as it is now.
pub(crate) fn reloaded(world: &World) -> Reloaded {
    Reloaded {
        prompt: world.agent.prompt_parts().clone(),
        model: None,
        steering_mode: QueueMode::OneAtATime,
        follow_up_mode: QueueMode::OneAtATime,
        retry: RetryPolicy::default(),
        compaction: CompactionPolicy { reserve_tokens: 1000, ..CompactionPolicy::default() },
        fallback_models: world.agent.fallback_models().to_vec(),
        limits: Limits::default(),
    }
}
