//! Entries of a session file, version 3: the header and what we append.
//!
//! A file is UTF-8 JSON Lines; the first line is the [`Header`], every other line an entry. Entries form a tree by
//! `parentId`; the leaf is the last line. What we read is kept as raw lines by the session store; the types here are for
//! writing, and for reading the handful of fields that the tree needs.

use crate::json::{ObjectWriter, Raw};
use crate::message::Usage;
use crate::time::Millis;

/// The version this program writes.
pub const VERSION: u32 = 3;

/// The field of a `model_change` and of a `thinking_level_change` that a fallback brought: what is the user's own.
pub const IN_PLACE_OF: &str = "inPlaceOf";

/// Id of an entry: eight hex digits when we make it, any string when another program did.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub Box<str>);

impl EntryId {
    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for EntryId {
    fn from(text: &str) -> Self {
        EntryId(text.into())
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first line of a session file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Session id.
    pub id: String,
    /// When the session began.
    pub timestamp: Millis,
    /// Absolute directory the session works in.
    pub cwd: String,
    /// File or caller's name of the session this one came from.
    pub parent_session: Option<String>,
}

impl Header {
    /// The line without its LF.
    pub fn to_line(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = ObjectWriter::begin(&mut out);
        object.str("type", "session").int("version", i64::from(VERSION)).str("id", &self.id);
        object.str("timestamp", &self.timestamp.iso()).str("cwd", &self.cwd);
        if let Some(parent) = &self.parent_session {
            object.str("parentSession", parent);
        }
        object.end();
        out
    }
}

/// An entry to append.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// New in this session.
    pub id: EntryId,
    /// The leaf it is appended to.
    pub parent_id: Option<EntryId>,
    /// When it was made.
    pub timestamp: Millis,
    /// What it says.
    pub body: EntryBody,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryBody {
    /// A message of role user, assistant, toolResult or bashExecution.
    Message(Raw),
    /// A message made by an extension; the raw text is a `custom` message.
    CustomMessage {
        /// Who made it.
        custom_type: String,
        /// String or blocks.
        content: Raw,
        /// Clients should show it.
        display: bool,
        /// For clients.
        details: Option<Raw>,
        /// Keep it from the model.
        exclude_from_context: bool,
    },
    /// From here on another model.
    ModelChange {
        /// Provider id.
        provider: String,
        /// Model id.
        model_id: String,
        /// It is a fallback in the place of the user's model, which this names (provider and id): who opens the file before
        /// that has come back goes on with that one. Our own field; other programs pass over it.
        in_place_of: Option<(String, String)>,
    },
    /// From here on another thinking level.
    ThinkingLevelChange {
        /// The wire's word.
        level: String,
        /// It came with a fallback; the user's own level.
        in_place_of: Option<String>,
    },
    /// The part of the branch before this was shortened; what it says stands for that part from here on.
    Compaction {
        /// The shortened text.
        summary: String,
        /// The first message that stays as it is. `None`: none stays.
        first_kept: Option<EntryId>,
        /// Tokens of the conversation before.
        tokens_before: u64,
        /// How it was done; the key `strategy` in it says what kind of text `summary` is.
        details: Raw,
        /// What writing a summary took.
        usage: Option<Usage>,
    },
    /// What happened on a branch that was left, in short; it follows the entry that was gone to.
    BranchSummary {
        /// The text.
        summary: String,
        /// `readFiles` and `modifiedFiles` of that branch.
        details: Raw,
        /// What writing it took.
        usage: Option<Usage>,
    },
    /// A name for another entry; `None` takes it away.
    Label {
        /// The entry it names.
        target: EntryId,
        /// The name.
        label: Option<String>,
    },
    /// The session's name; `None` clears it.
    SessionInfo {
        /// The name.
        name: Option<String>,
    },
}

impl EntryBody {
    /// The wire's `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            EntryBody::Message(_) => "message",
            EntryBody::CustomMessage { .. } => "custom_message",
            EntryBody::ModelChange { .. } => "model_change",
            EntryBody::ThinkingLevelChange { .. } => "thinking_level_change",
            EntryBody::Compaction { .. } => "compaction",
            EntryBody::BranchSummary { .. } => "branch_summary",
            EntryBody::Label { .. } => "label",
            EntryBody::SessionInfo { .. } => "session_info",
        }
    }
}

impl Entry {
    /// The line without its LF. `custom_message` has its own fields before the common ones, as the reference writes it.
    pub fn to_line(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = ObjectWriter::begin(&mut out);
        object.str("type", self.body.kind());
        if let EntryBody::CustomMessage { custom_type, content, display, details, exclude_from_context } =
            &self.body
        {
            object.str("customType", custom_type).raw("content", content.bytes()).bool("display", *display);
            if let Some(details) = details {
                object.raw("details", details.bytes());
            }
            if *exclude_from_context {
                object.bool("excludeFromContext", true);
            }
        }
        object.str("id", self.id.as_str());
        match &self.parent_id {
            Some(parent) => object.str("parentId", parent.as_str()),
            None => object.raw("parentId", b"null"),
        };
        object.str("timestamp", &self.timestamp.iso());
        match &self.body {
            EntryBody::Message(message) => {
                object.raw("message", message.bytes());
            }
            EntryBody::CustomMessage { .. } => {}
            EntryBody::ModelChange { provider, model_id, in_place_of } => {
                object.str("provider", provider).str("modelId", model_id);
                if let Some((provider, model_id)) = in_place_of {
                    let mut own = ObjectWriter::begin(object.key(IN_PLACE_OF));
                    own.str("provider", provider).str("modelId", model_id);
                    own.end();
                }
            }
            EntryBody::ThinkingLevelChange { level, in_place_of } => {
                object.str("thinkingLevel", level);
                if let Some(level) = in_place_of {
                    object.str(IN_PLACE_OF, level);
                }
            }
            EntryBody::Compaction { summary, first_kept, tokens_before, details, usage } => {
                object.str("summary", summary);
                object.value("firstKeptEntryId", &first_kept.as_ref().map(EntryId::as_str));
                object.count("tokensBefore", *tokens_before).raw("details", details.bytes());
                if let Some(usage) = usage {
                    object.value("usage", usage);
                }
            }
            EntryBody::BranchSummary { summary, details, usage } => {
                object.str("fromId", self.parent_id.as_ref().map_or("root", EntryId::as_str));
                object.str("summary", summary).raw("details", details.bytes());
                if let Some(usage) = usage {
                    object.value("usage", usage);
                }
            }
            EntryBody::Label { target, label } => {
                object.str("targetId", target.as_str());
                if let Some(label) = label {
                    object.str("label", label);
                }
            }
            EntryBody::SessionInfo { name } => {
                if let Some(name) = name {
                    object.str("name", name);
                }
            }
        }
        object.end();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_reference_key_order() {
        let entry = |body| {
            let entry = Entry {
                id: "0a1b2c3d".into(),
                parent_id: Some("p".into()),
                timestamp: Millis(1_733_234_567_890),
                body,
            };
            String::from_utf8(entry.to_line()).unwrap()
        };
        assert_eq!(
            entry(EntryBody::Message(Raw::parse(r#"{"role":"user","content":"x","timestamp":1}"#).unwrap())),
            r#"{"type":"message","id":"0a1b2c3d","parentId":"p","timestamp":"2024-12-03T14:02:47.890Z","message":{"role":"user","content":"x","timestamp":1}}"#
        );
        assert_eq!(
            entry(EntryBody::ModelChange { provider: "a".into(), model_id: "b".into(), in_place_of: None }),
            r#"{"type":"model_change","id":"0a1b2c3d","parentId":"p","timestamp":"2024-12-03T14:02:47.890Z","provider":"a","modelId":"b"}"#
        );
        let in_place_of = Some(("c".into(), "d".into()));
        assert_eq!(
            entry(EntryBody::ModelChange { provider: "a".into(), model_id: "b".into(), in_place_of }),
            r#"{"type":"model_change","id":"0a1b2c3d","parentId":"p","timestamp":"2024-12-03T14:02:47.890Z","provider":"a","modelId":"b","inPlaceOf":{"provider":"c","modelId":"d"}}"#
        );
        assert_eq!(
            entry(EntryBody::ThinkingLevelChange { level: "low".into(), in_place_of: Some("high".into()) }),
            r#"{"type":"thinking_level_change","id":"0a1b2c3d","parentId":"p","timestamp":"2024-12-03T14:02:47.890Z","thinkingLevel":"low","inPlaceOf":"high"}"#
        );
        assert_eq!(
            entry(EntryBody::Compaction {
                summary: "[User]: a\n(filtered 2 lines)".into(),
                first_kept: None,
                tokens_before: 7,
                details: Raw::parse(r#"{"strategy":"verbatim-lines"}"#).unwrap(),
                usage: None,
            }),
            r#"{"type":"compaction","id":"0a1b2c3d","parentId":"p","timestamp":"2024-12-03T14:02:47.890Z","summary":"[User]: a\n(filtered 2 lines)","firstKeptEntryId":null,"tokensBefore":7,"details":{"strategy":"verbatim-lines"}}"#
        );
        assert_eq!(
            entry(EntryBody::BranchSummary {
                summary: "s".into(),
                details: Raw::parse(r#"{"readFiles":[],"modifiedFiles":["a"]}"#).unwrap(),
                usage: None,
            }),
            r#"{"type":"branch_summary","id":"0a1b2c3d","parentId":"p","timestamp":"2024-12-03T14:02:47.890Z","fromId":"p","summary":"s","details":{"readFiles":[],"modifiedFiles":["a"]}}"#
        );
        assert_eq!(
            entry(EntryBody::SessionInfo { name: None }),
            r#"{"type":"session_info","id":"0a1b2c3d","parentId":"p","timestamp":"2024-12-03T14:02:47.890Z"}"#
        );
        let custom = entry(EntryBody::CustomMessage {
            custom_type: "t".into(),
            content: Raw::parse("\"c\"").unwrap(),
            display: true,
            details: None,
            exclude_from_context: false,
        });
        assert!(
            custom.starts_with(
                r#"{"type":"custom_message","customType":"t","content":"c","display":true,"id":"#
            )
        );
    }

    #[test]
    fn header_line() {
        let header = Header { id: "s".into(), timestamp: Millis(0), cwd: "/w".into(), parent_session: None };
        assert_eq!(
            String::from_utf8(header.to_line()).unwrap(),
            r#"{"type":"session","version":3,"id":"s","timestamp":"1970-01-01T00:00:00.000Z","cwd":"/w"}"#
        );
    }
}
