//! The tool calls of one answer.
//!
//! Calls are prepared one after the other (start announced, hook asked), then run at the same time; a tool that declares
//! itself sequential makes the whole batch run one call after the other. Results become messages in the order of the
//! calls, after all have ended.

use atomic_protocol::event::Event;
use atomic_protocol::json::Raw;
use atomic_protocol::message::{Message, StopReason, ToolCall, ToolResultMessage};
use atomic_protocol::tool::ToolOutput;

use crate::Agent;
use crate::effect::Effect;
use crate::hook::{Hook, HookAnswer, HookId};
use crate::input::ToolRunId;
use crate::run::{Step, Waiting};

/// The calls of one answer.
#[derive(Debug)]
pub(crate) struct ToolBatch {
    calls: Vec<Call>,
    sequential: bool,
    /// The answer hit the output limit: its arguments may be cut, so nothing is run.
    cut: bool,
}

#[derive(Debug)]
struct Call {
    /// As the model made it; what clients are shown.
    call: ToolCall,
    state: State,
    /// What it showed last, for clients that join.
    shown: Option<ToolOutput>,
    /// Its result asks for the end of the run.
    terminate: bool,
}

#[derive(Debug)]
enum State {
    /// Not announced yet.
    Waiting,
    /// `tool_call` is out.
    Asking(HookId),
    /// To be run with these arguments.
    Ready(ToolCall),
    Running(ToolRunId, ToolCall),
    /// `tool_result` is out.
    Checking(HookId, ToolOutput),
    /// Ended; its message is still to come.
    Ended(ToolOutput),
    /// Ended, and its message is among the run's steps.
    Told,
}

/// What is left of a call that an abort kept from running (literal of the reference).
const ABORTED: &str = "Operation aborted";

impl Agent {
    /// Sets the batch up for the answer of the current turn.
    pub(crate) fn prepare_tools(&mut self) {
        let tools = self.tools.clone();
        let run = self.active();
        let (answer, _) = run.turn.as_ref().expect("tools belong to an answer");
        let calls: Vec<Call> = answer
            .tool_calls()
            .map(|call| Call { call: call.clone(), state: State::Waiting, shown: None, terminate: false })
            .collect();
        let sequential =
            calls.iter().any(|call| tools.iter().any(|tool| tool.name == call.call.name && tool.sequential));
        let cut = answer.stop_reason == StopReason::Length;
        run.batch = Some(ToolBatch { calls, sequential, cut });
        run.terminated = false;
    }

    fn batch(&mut self) -> &mut ToolBatch {
        self.active().batch.as_mut().expect("a batch is set up before its step")
    }

    /// The step `Tools`: goes on until a hook or a tool has to be waited for, or all results are known.
    pub(crate) fn continue_tools(&mut self) {
        loop {
            let batch = self.batch();
            let sequential = batch.sequential;
            if batch.calls.iter().any(|call| matches!(call.state, State::Asking(_))) {
                return self.wait_for_tools();
            }
            let busy =
                batch.calls.iter().any(|call| matches!(call.state, State::Running(..) | State::Checking(..)));
            if sequential && busy {
                return self.wait_for_tools();
            }
            let ready = batch.calls.iter().position(|call| matches!(call.state, State::Ready(_)));
            let waiting = batch.calls.iter().position(|call| matches!(call.state, State::Waiting));
            if sequential {
                let ended = batch.calls.iter().position(|call| matches!(call.state, State::Ended(_)));
                if let Some(ended) = ended {
                    let message = self.result_message(ended);
                    self.active().steps.push_front(Step::Tools);
                    self.active().steps.push_front(Step::Message(message));
                    return;
                }
                if let Some(ready) = ready {
                    self.run_call(ready);
                    continue;
                }
            }
            if let Some(waiting) = waiting {
                self.prepare_call(waiting);
                continue;
            }
            if let Some(ready) = ready {
                self.run_call(ready);
                continue;
            }
            if busy {
                return self.wait_for_tools();
            }
            return self.end_batch();
        }
    }

    fn wait_for_tools(&mut self) {
        self.active().waiting = Some(Waiting::Tools);
    }

    /// Something a batch waited for came: take its step again.
    fn resume_tools(&mut self) {
        let run = self.active();
        if matches!(run.waiting, Some(Waiting::Tools)) {
            run.waiting = None;
            run.steps.push_front(Step::Tools);
        }
    }

    fn prepare_call(&mut self, at: usize) {
        let known = {
            let name = self.batch().calls[at].call.name.clone();
            self.tools.iter().any(|tool| tool.name == name)
        };
        let aborted = self.active().aborted;
        let cut = self.batch().cut;
        let call = self.batch().calls[at].call.clone();
        self.emit(Event::ToolExecutionStart {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            args: call.arguments.clone(),
        });
        if aborted {
            self.end_call(at, ToolOutput::error(ABORTED));
        } else if cut {
            self.end_call(
                at,
                ToolOutput::error(format!(
                    "Tool call \"{}\" was not executed: the response hit the output token limit, so its arguments may \
                     be truncated. Re-issue the tool call with complete arguments.",
                    call.name
                )),
            );
        } else if !known {
            self.end_call(at, ToolOutput::error(format!("Tool {} not found", call.name)));
        } else {
            let hook = self.ask(Hook::ToolCall { call });
            self.batch().calls[at].state = State::Asking(hook);
        }
    }

    fn run_call(&mut self, at: usize) {
        if self.active().aborted {
            return self.end_call(at, ToolOutput::error(ABORTED));
        }
        let run = ToolRunId(self.number());
        let call = &mut self.batch().calls[at];
        let State::Ready(prepared) = std::mem::replace(&mut call.state, State::Waiting) else {
            unreachable!("only ready calls are run")
        };
        call.state = State::Running(run, prepared.clone());
        self.out.push(Effect::RunTool { run, call: prepared });
    }

    fn end_call(&mut self, at: usize, output: ToolOutput) {
        let call = &self.batch().calls[at].call;
        let event = Event::ToolExecutionEnd {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            result: output.to_raw(),
            is_error: output.is_error,
        };
        self.emit(event);
        self.batch().calls[at].state = State::Ended(output);
    }

    fn result_message(&mut self, at: usize) -> Raw {
        let now = self.now;
        let call = &mut self.batch().calls[at];
        let State::Ended(output) = std::mem::replace(&mut call.state, State::Told) else {
            unreachable!("only ended calls are told")
        };
        call.terminate = output.terminate;
        Message::ToolResult(ToolResultMessage {
            tool_call_id: call.call.id.clone(),
            tool_name: call.call.name.clone(),
            content: output.content,
            details: output.details,
            is_error: output.is_error,
            timestamp: now,
        })
        .to_raw()
    }

    /// All calls have ended: their messages, in the order of the calls, then the end of the turn.
    fn end_batch(&mut self) {
        let mut steps = Vec::new();
        for at in 0..self.batch().calls.len() {
            if matches!(self.batch().calls[at].state, State::Ended(_)) {
                steps.push(Step::Message(self.result_message(at)));
            }
        }
        steps.extend([Step::TurnEnd, Step::AfterTurn]);
        let terminated = self.batch().calls.iter().all(|call| call.terminate);
        let run = self.active();
        run.terminated = terminated;
        steps.into_iter().rev().for_each(|step| run.steps.push_front(step));
    }

    pub(crate) fn tool_hook_answered(&mut self, hook: HookId, answer: HookAnswer) {
        let Some(batch) = self.run.as_mut().and_then(|run| run.batch.as_mut()) else { return };
        let at = batch
            .calls
            .iter()
            .position(|call| matches!(call.state, State::Asking(id) | State::Checking(id, _) if id == hook));
        let Some(at) = at else { return };
        match std::mem::replace(&mut batch.calls[at].state, State::Waiting) {
            State::Asking(_) => {
                let call = batch.calls[at].call.clone();
                match answer {
                    HookAnswer::Block { reason, terminate } => {
                        let reason = reason.unwrap_or_else(|| "Tool execution was blocked".to_owned());
                        self.end_call(at, ToolOutput { terminate, ..ToolOutput::error(reason) });
                    }
                    HookAnswer::Arguments(arguments) => {
                        batch.calls[at].state = State::Ready(ToolCall { arguments, ..call });
                    }
                    _ => batch.calls[at].state = State::Ready(call),
                }
            }
            State::Checking(_, output) => {
                let output = match answer {
                    HookAnswer::Output(other) => other,
                    _ => output,
                };
                self.end_call(at, output);
            }
            _ => unreachable!("the state was matched above"),
        }
        self.resume_tools();
    }

    fn running(&mut self, run: ToolRunId) -> Option<usize> {
        let batch = self.run.as_mut()?.batch.as_mut()?;
        batch.calls.iter().position(|call| matches!(call.state, State::Running(id, _) if id == run))
    }

    pub(crate) fn tool_update(&mut self, run: ToolRunId, output: ToolOutput) {
        let Some(at) = self.running(run) else { return };
        let call = &mut self.batch().calls[at];
        call.shown = Some(output);
        let event = call.update();
        self.emit(event);
    }

    pub(crate) fn tool_done(&mut self, run: ToolRunId, output: ToolOutput) {
        let Some(at) = self.running(run) else { return };
        let call = match &self.batch().calls[at].state {
            State::Running(_, call) => call.clone(),
            _ => unreachable!("the call is running"),
        };
        let hook = self.ask(Hook::ToolResult { call, output: output.clone() });
        self.batch().calls[at].state = State::Checking(hook, output);
    }

    /// An abort: running tools end soon and still give their results.
    pub(crate) fn cancel_tools(&mut self) {
        let Some(batch) = self.run.as_mut().and_then(|run| run.batch.as_mut()) else { return };
        for call in &batch.calls {
            if let State::Running(run, _) = call.state {
                self.out.push(Effect::CancelTool(run));
            }
        }
    }

    /// Calls that were announced and have not ended: what a run that dies must still close.
    pub(crate) fn open_calls(&self) -> Vec<ToolCall> {
        let calls = self.run.as_ref().and_then(|run| run.batch.as_ref()).map(|batch| &batch.calls);
        calls
            .into_iter()
            .flatten()
            .filter(|call| !matches!(call.state, State::Waiting | State::Ended(_) | State::Told))
            .map(|call| call.call.clone())
            .collect()
    }

    /// What a client that joins during tools has to know of them.
    pub(crate) fn tools_so_far(&self) -> Vec<Event> {
        let calls = self.run.as_ref().and_then(|run| run.batch.as_ref()).map(|batch| &batch.calls);
        let mut events = Vec::new();
        for call in calls.into_iter().flatten() {
            if !matches!(
                call.state,
                State::Running(..) | State::Checking(..) | State::Asking(_) | State::Ready(_)
            ) {
                continue;
            }
            events.push(Event::ToolExecutionStart {
                tool_call_id: call.call.id.clone(),
                tool_name: call.call.name.clone(),
                args: call.call.arguments.clone(),
            });
            if call.shown.is_some() {
                events.push(call.update());
            }
        }
        events
    }
}

impl Call {
    fn update(&self) -> Event {
        Event::ToolExecutionUpdate {
            tool_call_id: self.call.id.clone(),
            tool_name: self.call.name.clone(),
            args: self.call.arguments.clone(),
            partial_result: self.shown.as_ref().map_or_else(Raw::empty_object, ToolOutput::to_raw),
        }
    }
}
