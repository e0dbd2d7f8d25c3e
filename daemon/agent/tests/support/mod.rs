//! A world for one agent: performs its effects in memory and checks the invariants as it goes.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use atomic_agent::prompt::PromptParts;
use atomic_agent::{
    Agent, AgentCommand, Config, Counted, Effect, Hook, HookAnswer, HookId, Input, ModelCall, ModelCallId,
    RequestId, RetryPolicy, TimerId, ToolRunId,
};
use atomic_protocol::command::QueueMode;
use atomic_protocol::entry::{Entry, EntryBody};
use atomic_protocol::event::Event;
use atomic_protocol::json::Raw;
use atomic_protocol::message::{StopReason, ToolCall};
use atomic_protocol::model::{Model, ModelEvent, ThinkingLevel};
use atomic_protocol::time::Millis;
use atomic_protocol::tool::{ToolOutput, ToolSpec};

pub(crate) fn model(id: &str, reasoning: bool) -> Arc<Model> {
    let text = format!(r#"{{"id":"{id}","name":"{id}","api":"a","provider":"p","reasoning":{reasoning}}}"#);
    Arc::new(Model::parse(Raw::parse(&text).unwrap()).unwrap())
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
        let tools: Arc<[ToolSpec]> = tools.iter().map(|(name, sequential)| tool(name, *sequential)).collect();
        let config = Config {
            model: Some(model("m", true)),
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
                Effect::Append(entry) if self.full => {
                    let mut dropped = vec![Effect::Append(entry)];
                    dropped.extend(effects);
                    follow.push(Input::AppendFailed {
                        error: "cannot write /s.jsonl: disk full".into(),
                        dropped,
                    });
                    return follow;
                }
                Effect::Append(entry) => {
                    assert_eq!(
                        entry.parent_id,
                        self.file.last().map(|last| last.id.clone()),
                        "one linear branch"
                    );
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
        let mut tools = HashSet::new();
        let mut retrying = 0;
        for event in &self.events {
            let run_record = !matches!(
                event,
                Event::QueueUpdate { .. }
                    | Event::ModelChanged { .. }
                    | Event::ThinkingLevelChanged { .. }
                    | Event::SessionInfoChanged { .. }
            );
            assert!(
                !settled || !run_record || matches!(event, Event::AgentStart),
                "{} after settled",
                event.name()
            );
            match event {
                Event::AgentStart => {
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
                Event::AgentSettled { .. } => {
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
        if !self.agent.is_running() {
            assert!(
                settled && !agent && !turn && !message && tools.is_empty(),
                "an idle agent has closed everything"
            );
        }
    }
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
