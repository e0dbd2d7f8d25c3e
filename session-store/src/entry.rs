//! One entry as it stands in a file: its line, and the few facts that the tree, the context and the counts need.

use std::borrow::Cow;

use atomic_protocol::Raw;
use atomic_protocol::entry::{Entry, EntryId};
use atomic_protocol::json::{Fields, NotAnObject};
use atomic_protocol::time::Millis;
use bytes::Bytes;

use crate::Error;
use crate::load::ProblemKind;
use crate::stats::Stats;

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `message`.
    Message,
    /// `custom_message`: a message made by an extension.
    CustomMessage,
    /// `model_change`.
    ModelChange,
    /// `thinking_level_change`.
    ThinkingLevelChange,
    /// `session_info`: the session's name.
    SessionInfo,
    /// `compaction`; a boundary with a strategy that we know (see `context`).
    Compaction,
    /// `branch_summary`.
    BranchSummary,
    /// `label`.
    Label,
    /// `session_summary`.
    SessionSummary,
    /// `custom`: data of an extension, never shown to a model.
    Custom,
    /// A type this version does not know; kept as it stands.
    Other,
}

impl Kind {
    fn read(name: &str) -> Kind {
        match name {
            "message" => Kind::Message,
            "custom_message" => Kind::CustomMessage,
            "model_change" => Kind::ModelChange,
            "thinking_level_change" => Kind::ThinkingLevelChange,
            "session_info" => Kind::SessionInfo,
            "compaction" => Kind::Compaction,
            "branch_summary" => Kind::BranchSummary,
            "label" => Kind::Label,
            "session_summary" => Kind::SessionSummary,
            "custom" => Kind::Custom,
            _ => Kind::Other,
        }
    }

    /// Whether the session's file appears with the first such entry: something was said, or the session was named.
    pub fn makes_file(self) -> bool {
        matches!(self, Kind::Message | Kind::CustomMessage | Kind::SessionInfo)
    }
}

/// Who speaks in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `user`.
    User,
    /// `assistant`.
    Assistant,
    /// `toolResult`.
    ToolResult,
    /// `bashExecution`.
    BashExecution,
    /// `custom`.
    Custom,
    /// `branchSummary`.
    BranchSummary,
    /// A role this version does not know.
    Other,
}

impl Role {
    fn read(name: &str) -> Role {
        match name {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "toolResult" => Role::ToolResult,
            "bashExecution" => Role::BashExecution,
            "custom" => Role::Custom,
            "branchSummary" => Role::BranchSummary,
            _ => Role::Other,
        }
    }
}

/// An entry of a session. Bodies are not parsed: `line` and `message` share the bytes that were read or written.
#[derive(Clone, Debug)]
pub struct StoredEntry {
    /// The entry's id.
    pub id: EntryId,
    /// The entry it follows; it may be missing from the file.
    pub parent_id: Option<EntryId>,
    /// Its type.
    pub kind: Kind,
    /// The role of a `message`; `None` for other types and for a message without a role.
    pub role: Option<Role>,
    /// When it was made; 1970 when the line does not say.
    pub timestamp: Millis,
    /// The whole line without its LF.
    pub line: Raw,
    /// The `message` of an entry of type message: a part of `line`.
    pub message: Option<Raw>,
    /// The message has `"content":null`, which is shown as `[]`.
    pub(crate) null_content: bool,
    /// What a compaction says of itself. Kept, since its line may be megabytes long and is asked about again and again.
    pub(crate) compaction: Option<Box<Compacted>>,
}

/// What an entry of type compaction stands for.
#[derive(Clone, Debug)]
pub(crate) struct Compacted {
    pub(crate) strategy: Strategy,
    /// The first message that was kept.
    pub(crate) first_kept: Option<EntryId>,
}

/// `details.strategy` of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Lines of the conversation.
    Lines,
    /// A summary.
    Summary,
    /// It says nothing, as those that Pi writes.
    Unmarked,
    /// Another; it hides nothing and adds nothing.
    Other,
}

impl Compacted {
    fn read(fields: &Fields<'_>) -> Compacted {
        let details = fields.get("details").and_then(|details| Fields::parse(details).ok());
        let strategy = match details.as_ref().filter(|details| details.get("strategy").is_some()) {
            None => Strategy::Unmarked,
            Some(details) => match details.str("strategy").as_deref() {
                Some("verbatim-lines") => Strategy::Lines,
                Some("summary") => Strategy::Summary,
                _ => Strategy::Other,
            },
        };
        Compacted { strategy, first_kept: fields.str("firstKeptEntryId").map(|id| EntryId::from(&*id)) }
    }
}

/// An entry that is ready to be appended: written out, read and checked, on whatever thread it was made.
#[derive(Debug)]
pub struct ReadyEntry {
    pub(crate) parsed: Parsed,
    /// Its line with the LF.
    pub(crate) text: Bytes,
}

impl ReadyEntry {
    /// Writes the entry out.
    ///
    /// # Errors
    /// [`Error::NotAnEntry`].
    pub fn new(entry: &Entry) -> Result<ReadyEntry, Error> {
        ReadyEntry::read(entry.to_line())
    }

    /// Reads the line of an entry that is to be written. A line feed can only stand between tokens, where a space does as
    /// well; in a file it would cut the line in two.
    pub(crate) fn read(mut line: Vec<u8>) -> Result<ReadyEntry, Error> {
        for byte in &mut line {
            if *byte == b'\n' {
                *byte = b' ';
            }
        }
        let not_an_entry = |reason| Error::NotAnEntry { reason };
        if std::str::from_utf8(&line).is_err() {
            return Err(not_an_entry("it is not UTF-8"));
        }
        line.reserve_exact(1);
        line.push(b'\n');
        let text = Bytes::from(line);
        let parsed = Parsed::read(Raw::from_trusted(text.slice(..text.len() - 1))).map_err(|kind| {
            not_an_entry(match kind {
                ProblemKind::NotJson => "it is not JSON",
                ProblemKind::SecondHeader => "it is a header",
                _ => "it has no id",
            })
        })?;
        Ok(ReadyEntry { parsed, text })
    }
}

/// An entry that is read but not yet part of a session, with what it changes there.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) entry: StoredEntry,
    pub(crate) stats: Stats,
    /// The name that a `session_info` sets; `Some(None)` clears it.
    pub(crate) name: Option<Option<String>>,
}

impl Parsed {
    /// Reads the line of an entry. A missing type reads as [`Kind::Other`]; a missing id does not.
    pub(crate) fn read(line: Raw) -> Result<Parsed, ProblemKind> {
        let fields = Fields::parse(line.as_str()).map_err(|error| match error {
            NotAnObject::Syntax(_) => ProblemKind::NotJson,
            NotAnObject::OtherValue => ProblemKind::NotAnEntry,
        })?;
        let type_name = fields.str("type").unwrap_or(Cow::Borrowed(""));
        if type_name == "session" {
            return Err(ProblemKind::SecondHeader);
        }
        let kind = Kind::read(&type_name);
        let id = fields.str("id").ok_or(ProblemKind::NotAnEntry)?;
        let message_text = match kind {
            Kind::Message => fields.get("message"),
            _ => None,
        };
        let message_fields = message_text.and_then(|text| Fields::parse(text).ok());
        let role =
            message_fields.as_ref().and_then(|message| message.str("role")).map(|role| Role::read(&role));
        let stats = Stats::of(kind, role, &fields, message_fields.as_ref());
        let name = (kind == Kind::SessionInfo).then(|| {
            let name = fields.str("name").unwrap_or_default();
            let name = name.trim();
            (!name.is_empty()).then(|| name.to_owned())
        });
        let entry = StoredEntry {
            id: EntryId::from(&*id),
            parent_id: fields.str("parentId").map(|parent| EntryId::from(&*parent)),
            kind,
            role,
            timestamp: fields.str("timestamp").and_then(|time| Millis::from_iso(&time)).unwrap_or_default(),
            message: message_fields.as_ref().and(message_text).map(|text| line.slice(text)),
            null_content: message_fields.as_ref().and_then(|message| message.get("content")) == Some("null"),
            compaction: (kind == Kind::Compaction).then(|| Box::new(Compacted::read(&fields))),
            line: line.clone(),
        };
        Ok(Parsed { entry, stats, name })
    }
}
