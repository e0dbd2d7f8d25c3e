//! Commands that change nothing: they look at the agent and the store.

use atomic_protocol::command::Command;
use atomic_protocol::json::{ObjectWriter, Raw};
use atomic_protocol::message::{AssistantMessage, Message, StopReason};
use atomic_protocol::model::ThinkingLevel;
use atomic_session_store::Store;
use bytes::Bytes;

use super::Outcome;
use super::actor::Actor;
use crate::ticket::Ticket;

impl Actor {
    pub(super) fn read(&mut self, ticket: Ticket, command: &Command) {
        match command {
            Command::GetState => ticket.succeed(Some(&self.state())),
            Command::GetMessages => list(ticket, "messages", self.agent.messages(), Vec::new()),
            Command::GetLastAssistantText => {
                let mut data = Vec::new();
                let mut object = ObjectWriter::begin(&mut data);
                object.value("text", &self.last_assistant_text());
                object.end();
                ticket.succeed(Some(&data));
            }
            Command::GetSessionStats => ticket.succeed(Some(&self.stats())),
            Command::GetEntries { since } => self.entries(ticket, since.as_deref()),
            Command::GetTree => self.tree(ticket),
            Command::GetForkMessages => ticket.succeed(Some(&self.fork_messages())),
            Command::GetAvailableThinkingLevels => {
                let levels =
                    self.agent.model().map_or(vec![ThinkingLevel::Off], |model| model.thinking_levels());
                let levels: Vec<&str> = levels.into_iter().map(ThinkingLevel::as_str).collect();
                let mut data = Vec::new();
                let mut object = ObjectWriter::begin(&mut data);
                object.value("levels", &levels);
                object.end();
                ticket.succeed(Some(&data));
            }
            // Keys are bound by extensions only.
            Command::GetShortcuts => ticket.succeed(Some(br#"{"shortcuts":[]}"#)),
            Command::GetCommands => list(ticket, "commands", self.resources.commands().iter(), Vec::new()),
            // No command of this version completes its arguments.
            Command::GetCommandCompletions { .. } => ticket.succeed(Some(br#"{"completions":null}"#)),
            _ => unreachable!("{} is no read", command.name()),
        }
    }

    fn state(&self) -> Vec<u8> {
        let (steering, follow_up) = self.agent.queue_modes();
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        match self.agent.model() {
            Some(model) => object.raw("model", model.raw.bytes()),
            None => object.raw("model", b"null"),
        };
        object.str("thinkingLevel", self.agent.thinking().as_str());
        object.bool("isStreaming", self.agent.is_running());
        let compacting = self.agent.compaction_reason();
        object.bool("isCompacting", compacting.is_some() || self.agent.is_leaving_branch());
        if let Some(reason) = compacting {
            object.str("compactionReason", reason.as_str());
        }
        object.str("steeringMode", steering.as_str()).str("followUpMode", follow_up.as_str());
        if let Some(file) = &self.info.file {
            object.str("sessionFile", &file.to_string_lossy());
        }
        object.str("sessionId", &self.info.id);
        if let Some(name) = self.store.name() {
            object.str("sessionName", name);
        }
        object.bool("autoCompactionEnabled", self.settings.compaction.enabled);
        object.int("messageCount", self.agent.messages().len() as i64);
        object.int("pendingMessageCount", self.agent.queued() as i64);
        if self.agent.is_paused() {
            object.bool("queuedMessagesPaused", true);
        }
        object.end();
        data
    }

    /// The text of the last answer, trimmed; an aborted answer without content does not count, an empty text is none.
    fn last_assistant_text(&self) -> Option<String> {
        let last = self.newest_messages().find_map(|message| match Message::parse(message) {
            Ok(Message::Assistant(message)) if !is_empty_abort(&message) => Some(message),
            _ => None,
        })?;
        let text: String = last.content.iter().filter_map(|block| block.as_text()).collect();
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Messages of the branch as they are stored, the newest first: a compaction takes them out of the conversation.
    fn newest_messages(&self) -> impl Iterator<Item = &Raw> {
        let branch = self.store.branch(self.store.leaf());
        branch.into_iter().rev().filter_map(|at| self.store.entries()[at].message.as_ref())
    }

    /// How the newest run came out: its last message of the model or of a tool says so.
    pub(super) fn outcome(&self) -> Outcome {
        let failed = |why: &str| Outcome { failure: Some(why.to_owned()), ..Outcome::default() };
        for message in self.newest_messages() {
            match Message::parse(message) {
                Ok(Message::Assistant(message)) => {
                    let why = match message.stop_reason {
                        StopReason::Error => "Request error",
                        StopReason::Aborted => "Request aborted",
                        _ => {
                            let texts = message.content.iter().filter_map(|block| block.as_text());
                            return Outcome { texts: texts.map(str::to_owned).collect(), failure: None };
                        }
                    };
                    return failed(message.error_message.as_deref().unwrap_or(why));
                }
                // Nobody answered them.
                Ok(Message::ToolResult(_)) => return failed("Request aborted"),
                Ok(Message::User(_)) => return failed("The run ended without an answer"),
                _ => {}
            }
        }
        Outcome::default()
    }

    fn stats(&mut self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        if let Some(file) = &self.info.file {
            object.str("sessionFile", &file.to_string_lossy());
        }
        object.str("sessionId", &self.info.id);
        self.store.stats().write_fields(&mut object);
        let window = self.agent.model().map_or(0, |model| model.context_window);
        if window > 0 {
            let tokens = self.agent.context_tokens();
            let out = object.key("contextUsage");
            let mut usage = ObjectWriter::begin(out);
            usage.value("tokens", &tokens).count("contextWindow", window);
            let percent = tokens.map(|tokens| Percent(tokens as f64 / window as f64 * 100.0));
            usage.value("percent", &percent);
            usage.end();
        }
        object.end();
        data
    }

    /// All entries, each under the one it follows.
    fn tree(&self, ticket: Ticket) {
        let mut data = vec![Bytes::from_static(b"{\"tree\":")];
        data.extend(atomic_session_store::tree(&self.store));
        data.push(Bytes::from_static(b",\"leafId\":"));
        data.push(leaf_of(&self.store).bytes().clone());
        data.push(Bytes::from_static(b"}"));
        ticket.succeed_with(data);
    }

    fn entries(&self, ticket: Ticket, since: Option<&str>) {
        let entries = self.store.entries();
        let from = match since {
            None => 0,
            Some(id) => match self.store.find(id) {
                Some(at) => at + 1,
                None => return ticket.fail(&format!("Entry not found: {id}")),
            },
        };
        let mut leaf = br#","leafId":"#.to_vec();
        match self.store.leaf() {
            Some(id) => atomic_protocol::json::write_string(&mut leaf, id.as_str()),
            None => leaf.extend_from_slice(b"null"),
        }
        list(ticket, "entries", entries[from..].iter().map(|entry| &entry.line), leaf);
    }
}

/// The leaf's id as JSON.
fn leaf_of(store: &Store) -> Raw {
    store.leaf().map_or(Raw::null(), |id| Raw::from_serialize(id.as_str()))
}

/// A number as JavaScript prints it.
#[derive(serde::Serialize)]
struct Percent(#[serde(with = "atomic_protocol::json::number")] f64);

fn is_empty_abort(message: &AssistantMessage) -> bool {
    message.stop_reason == StopReason::Aborted && message.content.is_empty()
}

/// Answers with a list of values that are JSON text already; `rest` stands after it in the object.
fn list<'a>(ticket: Ticket, key: &'static str, values: impl Iterator<Item = &'a Raw>, rest: Vec<u8>) {
    let mut data = Vec::with_capacity(2 * values.size_hint().0 + 3);
    data.push(format!("{{\"{key}\":[").into());
    for (at, value) in values.enumerate() {
        if at > 0 {
            data.push(Bytes::from_static(b","));
        }
        data.push(value.bytes().clone());
    }
    data.push(Bytes::from_static(b"]"));
    data.push(rest.into());
    data.push(Bytes::from_static(b"}"));
    ticket.succeed_with(data);
}
