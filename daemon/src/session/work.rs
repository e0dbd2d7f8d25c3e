//! Child tasks of a session: model calls, tools, shell commands. What they produce comes back as inputs.

use std::time::Duration;

use atomic_agent::context::{self, ContextOptions};
use atomic_agent::{ModelCall, ModelCallId, ToolRunId};
use atomic_protocol::event::{Channel, Event};
use atomic_protocol::json::{ObjectWriter, Raw};
use atomic_protocol::message::{BashExecutionMessage, Message, ToolCall};
use atomic_protocol::model::{ModelEvent, ModelFailure, ModelRequest};
use atomic_protocol::tool::ToolOutput;
use atomic_tools::{OutputText, ShellCommand, ShellOutcome, ToolVariables, UpdateSink};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::SessionMessage;
use super::actor::Actor;
use crate::clock;
use crate::ticket::Ticket;

/// Pieces of a model's answer that wait for the session's task. The adapter stops reading when there are more, which is
/// how a client that reads slowly paces the provider.
const MODEL_PIECES: usize = 16;

/// Updates of one tool come no closer than this; the last one always comes.
const COALESCING: Duration = Duration::from_millis(16);

/// A model call under way. Dropping it cancels the call.
pub(super) struct ModelWork {
    pub(super) call: ModelCallId,
    events: mpsc::Receiver<Vec<ModelEvent>>,
    _cancel: DropGuard,
}

impl ModelWork {
    /// The next piece of the call under way; without one it waits for ever. `None`: the task ended.
    pub(super) async fn next(work: &mut Option<ModelWork>) -> Option<Vec<ModelEvent>> {
        match work {
            Some(work) => work.events.recv().await,
            None => std::future::pending().await,
        }
    }
}

/// What a tool task reports.
pub(super) enum ToolWork {
    Update(ToolRunId, ToolOutput),
    Done(ToolRunId, ToolOutput),
}

/// A shell command that has ended.
#[derive(Debug)]
pub struct BashDone {
    pub(super) ticket: Ticket,
    pub(super) message: Raw,
    pub(super) data: Vec<u8>,
}

impl Actor {
    /// Starts a model call.
    pub(super) fn call_model(&mut self, call: ModelCall) -> ModelWork {
        let (sender, events) = mpsc::channel(MODEL_PIECES);
        let cancel = CancellationToken::new();
        let number = call.call;
        let options = ContextOptions { block_images: self.settings.block_images };
        let session_id = self.info.id.clone();
        let (http, registry, token) = (self.daemon.http.clone(), self.registry.clone(), cancel.clone());
        tracing::debug!(
            session = session_id,
            model = call.model.id,
            messages = call.context.len(),
            "model call"
        );
        tokio::spawn(async move {
            let messages = match context::for_model(&call.context, &options) {
                Ok(messages) => messages,
                Err(error) => {
                    let failed = ModelEvent::Failed(ModelFailure::new(error.to_string()));
                    let _ = sender.send(vec![failed]).await;
                    return;
                }
            };
            let request = ModelRequest {
                model: call.model,
                thinking: call.thinking,
                system: call.system,
                messages,
                tools: call.tools,
                session_id,
            };
            atomic_providers::stream(&http, &registry, request, sender, token).await;
        });
        ModelWork { call: number, events, _cancel: cancel.drop_guard() }
    }

    fn variables(&self) -> ToolVariables {
        let model = self.agent.model();
        ToolVariables {
            provider: model.map(|model| model.provider.clone()),
            model: model.map(|model| model.id.clone()),
            thinking: Some(self.agent.thinking().as_str().to_owned()),
        }
    }

    /// Starts a client's shell command.
    pub(super) fn start_bash(
        &mut self,
        ticket: Ticket,
        command: String,
        exclude_from_context: bool,
        cancel: CancellationToken,
    ) {
        let (environment, variables, own) = (self.environment.clone(), self.variables(), self.own.clone());
        tokio::spawn(async move {
            let (sender, mut deltas) = mpsc::channel(atomic_tools::DELTA_CHANNEL);
            let shell =
                ShellCommand { command: command.clone(), timeout: None, text: OutputText::Plain, variables };
            let run = atomic_tools::run_shell(shell, &environment, cancel, Some(sender));
            let client = ticket.client().clone();
            let id = ticket.id().cloned();
            let tell = async {
                while let Some(delta) = deltas.recv().await {
                    let channel = match delta.channel {
                        atomic_tools::Channel::Stdout => Channel::Stdout,
                        atomic_tools::Channel::Stderr => Channel::Stderr,
                    };
                    let mut record = Vec::new();
                    Event::BashExecutionUpdate { id: id.clone(), channel, delta: delta.text }
                        .write_line_in(client.dialect(), &mut record);
                    client.outbox.has_room().await;
                    client.outbox.push(record.into());
                }
            };
            let (outcome, ()) = tokio::join!(run, tell);
            let done = match outcome {
                Ok(outcome) => bash_done(ticket, command, exclude_from_context, outcome),
                Err(error) => failed_bash(ticket, command, exclude_from_context, &error.to_string()),
            };
            // A session that is over drops the message, which answers the ticket.
            let _ = own.send(SessionMessage::BashDone(done)).await;
        });
    }
}

fn bash_done(ticket: Ticket, command: String, exclude_from_context: bool, outcome: ShellOutcome) -> BashDone {
    let exit_code = outcome.exit.code();
    let path = outcome.full_output_path.map(|path| path.map(|path| path.to_string_lossy().into_owned()));
    finished(
        ticket,
        BashExecutionMessage {
            command,
            output: outcome.output.content,
            exit_code,
            cancelled: exit_code.is_none(),
            truncated: outcome.output.truncated_by.is_some(),
            full_output_path: path,
            timestamp: clock::now(),
            exclude_from_context,
        },
    )
}

/// A command that could not be run ended like one that the shell could not find: with a text and a code.
fn failed_bash(ticket: Ticket, command: String, exclude_from_context: bool, error: &str) -> BashDone {
    finished(
        ticket,
        BashExecutionMessage {
            command,
            output: error.to_owned(),
            exit_code: Some(CANNOT_RUN),
            cancelled: false,
            truncated: false,
            full_output_path: None,
            timestamp: clock::now(),
            exclude_from_context,
        },
    )
}

/// A shell's exit code for a command that was found and could not be run (POSIX "Exit Status for Commands").
const CANNOT_RUN: i32 = 126;

fn finished(ticket: Ticket, message: BashExecutionMessage) -> BashDone {
    let mut data = Vec::new();
    let mut object = ObjectWriter::begin(&mut data);
    object.str("output", &message.output);
    if let Some(code) = message.exit_code {
        object.int("exitCode", i64::from(code));
    }
    object.bool("cancelled", message.cancelled).bool("truncated", message.truncated);
    if let Some(path) = &message.full_output_path {
        object.value("fullOutputPath", path);
    }
    object.end();
    BashDone { ticket, message: Message::BashExecution(message).to_raw(), data }
}

/// Starts a tool. Dropping the guard cancels it; its result comes in every case.
pub(super) fn run_tool(actor: &mut Actor, run: ToolRunId, call: ToolCall) -> DropGuard {
    let cancel = CancellationToken::new();
    let place = actor.changes.place(&call.name, &actor.clients);
    let (environment, variables, token) = (actor.environment.clone(), actor.variables(), cancel.clone());
    let reports = actor.tool_sender.clone();
    tracing::debug!(session = actor.info.id, tool = call.name, id = call.id, "tool call");
    tokio::spawn(async move {
        let (sink, mut updates) = UpdateSink::channel();
        let mut work = tokio::spawn(async move {
            let work = atomic_tools::run(&call, &variables, &environment, token.clone(), sink);
            match place {
                Some(place) => place.run(token, work).await,
                None => work.await,
            }
        });
        let mut resting = Instant::now();
        let output = loop {
            tokio::select! {
                biased;
                // What was not shown yet is part of the result.
                output = &mut work => break output,
                Some(update) = async {
                    tokio::time::sleep_until(resting).await;
                    updates.next().await
                } => {
                    resting = Instant::now() + COALESCING;
                    if reports.send(ToolWork::Update(run, update)).await.is_err() {
                        return;
                    }
                }
                else => break work.await,
            }
        };
        let output = output.unwrap_or_else(|error| {
            tracing::error!(%error, "tool failed");
            ToolOutput::error("The tool failed inside atomicd; see its log")
        });
        let _ = reports.send(ToolWork::Done(run, output)).await;
    });
    cancel.drop_guard()
}
