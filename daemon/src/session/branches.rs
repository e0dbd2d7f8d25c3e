//! The tree of entries: labels, going to another entry, and the point at which a new session branches off.

use std::path::PathBuf;

use atomic_agent::compaction::Instructions;
use atomic_agent::{AgentCommand, BUSY, Departure, NO_SUMMARIZER};
use atomic_protocol::entry::{EntryId, Header};
use atomic_protocol::json::{ObjectWriter, Raw};
use atomic_protocol::message::{Block, Content, Message};
use atomic_session_store::{self as store, Kind, Role, Store, StoredEntry};

use super::actor::Actor;
use crate::clock;
use crate::ticket::Ticket;

/// Where a new session branches off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchAt {
    /// Before this user message.
    Before(String),
    /// At the leaf.
    Leaf,
}

/// What a new session that branches off begins with.
#[derive(Debug)]
pub struct Branch {
    /// Where its entries come from.
    pub source: BranchSource,
    /// The last entry of the branch; none: nothing.
    pub leaf: Option<EntryId>,
    /// The text of the user message that it stops before.
    pub text: Option<String>,
}

/// Where entries come from.
#[derive(Debug)]
pub enum BranchSource {
    /// The session's file, in which all of them are.
    File(PathBuf),
    /// A session in memory, branched off already.
    Memory(Box<Store>),
}

/// Where a client wants to go in the tree.
pub(super) struct Navigation {
    /// The entry.
    pub(super) target: String,
    /// Have what is left behind summed up, in this way.
    pub(super) summarize: Option<Instructions>,
    /// A label for the summary, else for the entry.
    pub(super) label: Option<String>,
}

/// Nothing of the session is in its file (literal of the reference).
const UNSAVED: &str = "This session has not been saved yet. Wait for the first assistant response before cloning or forking it.";

impl Actor {
    /// Where a new session shall branch off, or why it cannot.
    pub(super) fn branch(&self, at: &BranchAt) -> Result<Branch, String> {
        let in_memory = self.info.file.is_none();
        if !in_memory && !self.store.is_written() {
            return Err(UNSAVED.to_owned());
        }
        let (leaf, text) = match at {
            BranchAt::Leaf => {
                let leaf = self.store.leaf().cloned();
                (Some(leaf.ok_or("Cannot clone session: no current entry selected")?), None)
            }
            BranchAt::Before(id) => {
                let entry = self.entry(id).filter(|entry| is_user_message(entry));
                let entry = entry.ok_or("Invalid entry ID for forking")?;
                (entry.parent_id.clone(), Some(text_of(entry)))
            }
        };
        let source = match &self.info.file {
            Some(file) => BranchSource::File(file.clone()),
            None => {
                let header = Header {
                    id: store::new_session_id(),
                    timestamp: clock::now(),
                    cwd: self.store.header().cwd.clone(),
                    parent_session: None,
                };
                let new = self.store.fork(leaf.as_ref(), header, None).map_err(|error| error.to_string())?;
                BranchSource::Memory(Box::new(new))
            }
        };
        Ok(Branch { source, leaf, text })
    }

    fn entry(&self, id: &str) -> Option<&StoredEntry> {
        self.store.find(id).map(|at| &self.store.entries()[at])
    }

    pub(super) fn set_label(&mut self, ticket: Ticket, entry: &str, label: Option<String>) {
        if self.entry(entry).is_none() {
            return ticket.fail(&format!("Entry {entry} not found"));
        }
        self.ask(ticket, AgentCommand::SetLabel { target: entry.into(), label });
    }

    /// Goes on from another entry. Before a message that somebody wrote, it is that message's turn again: its text is
    /// given back.
    pub(super) async fn navigate(&mut self, ticket: Ticket, navigation: Navigation) {
        let Navigation { target, summarize, label } = navigation;
        let target = target.as_str();
        if !self.agent.is_idle() {
            return ticket.fail(BUSY);
        }
        let Some(entry) = self.entry(target) else {
            return ticket.fail(&format!("Entry {target} not found"));
        };
        let moved = self.store.leaf().map(EntryId::as_str) != Some(target);
        let (leaf, text) = if moved && (is_user_message(entry) || entry.kind == Kind::CustomMessage) {
            (entry.parent_id.clone(), Some(text_of(entry)))
        } else {
            (Some(entry.id.clone()), None)
        };
        let target = EntryId::from(target);
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        object.bool("cancelled", false);
        if let Some(text) = text {
            object.str("editorText", &text);
        }
        object.end();
        let answer = Raw::from_trusted(data.into());
        if let Some(instructions) = summarize.filter(|_| moved) {
            if self.agent.model().is_none() {
                return ticket.fail(NO_SUMMARIZER);
            }
            if store::leaves_something(&self.store, &target) {
                if let Some(refusal) = self.no_key().await {
                    return ticket.fail(&refusal);
                }
                let departure = Departure { target, leaf, instructions, label, answer };
                return self.ask(ticket, AgentCommand::Depart(departure));
            }
        }
        if let Err(error) = self.store.set_leaf(leaf.as_ref()) {
            return ticket.fail(&error.to_string());
        }
        let context = store::context(&self.store).messages;
        let label = label.map(|label| (target, label));
        self.ask(ticket, AgentCommand::Navigate { leaf, context, label, answer });
    }

    /// `{messages: [{entryId, text}]}`: user messages of all branches with a text, in the order of the file.
    pub(super) fn fork_messages(&self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        let messages: Vec<Raw> = user_messages(&self.store).collect();
        object.raws("messages", &messages);
        object.end();
        data
    }
}

fn user_messages(store: &Store) -> impl Iterator<Item = Raw> {
    store.entries().iter().filter(|entry| is_user_message(entry)).filter_map(|entry| {
        let text = text_of(entry);
        (!text.is_empty()).then(|| {
            let mut data = Vec::new();
            let mut object = ObjectWriter::begin(&mut data);
            object.str("entryId", entry.id.as_str()).str("text", &text);
            object.end();
            Raw::from_trusted(data.into())
        })
    })
}

fn is_user_message(entry: &StoredEntry) -> bool {
    entry.kind == Kind::Message && entry.role == Some(Role::User)
}

/// The text of a message that somebody wrote.
fn text_of(entry: &StoredEntry) -> String {
    let content = match entry.kind {
        Kind::CustomMessage => {
            let fields = atomic_protocol::json::Fields::parse(entry.line.as_str());
            fields.ok().and_then(|fields| atomic_protocol::json::from_str(fields.get("content")?).ok())
        }
        _ => match entry.message.as_ref().map(Message::parse) {
            Some(Ok(Message::User(message))) => Some(message.content),
            _ => None,
        },
    };
    match content {
        Some(Content::Text(text)) => text,
        Some(Content::Blocks(blocks)) => blocks.iter().filter_map(Block::as_text).collect(),
        None => String::new(),
    }
}
