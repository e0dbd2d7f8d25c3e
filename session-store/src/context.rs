//! What a model is to see of a session: the messages of one branch, or what a compaction left of them.

use atomic_protocol::Raw;
use atomic_protocol::entry::EntryId;
use atomic_protocol::json::{Fields, ObjectWriter};
use atomic_protocol::message::{Block, Message};
use atomic_protocol::transcript::transcript;

use crate::entry::{Kind, Role};
use crate::splice::with_fields;
use crate::{Store, StoredEntry};

/// The strategy of compactions that are boundaries. Others (summaries by other programs) hide nothing and add nothing.
const BOUNDARY_STRATEGY: &str = "verbatim-lines";

/// What stands before the compacted text. Part of what providers see and cache: do not change it lightly.
const COMPACTED_NOTICE: &str = "The earlier part of this conversation was shortened to save space; the lines below are what was kept, word for word. \
     A line that reads \"(filtered N lines)\" stands where N lines were left out.\n\n";

/// The context of a branch.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Messages in order, each with the entry it comes from. Bash results and messages kept from the model are among
    /// them, marked as in the file: clients see them, and who asks the model leaves them out.
    pub messages: Vec<(EntryId, Raw)>,
    /// The last thinking level set on the branch.
    pub thinking: Option<String>,
    /// Provider and model id last set, or used by an answer, on the branch.
    pub model: Option<(String, String)>,
}

/// The context at the session's leaf.
pub fn context(store: &Store) -> Context {
    context_at(store, store.leaf())
}

/// The context at `leaf`: empty for `None` and for an unknown id.
pub fn context_at(store: &Store, leaf: Option<&EntryId>) -> Context {
    let path: Vec<&StoredEntry> = store.branch(leaf).into_iter().map(|at| &store.entries()[at]).collect();
    let boundary = path.iter().rposition(|entry| is_boundary(entry));
    let (mut messages, rest) = match boundary {
        None => (Vec::new(), &path[..]),
        Some(at) => (vec![(path[at].id.clone(), compacted(path[at], &path[..at]))], &path[at + 1..]),
    };
    messages.extend(rest.iter().filter_map(|entry| Some((entry.id.clone(), message(entry)?))));
    Context {
        messages,
        thinking: path.iter().rev().find_map(|entry| thinking(entry)),
        model: path.iter().rev().find_map(|entry| model(entry)),
    }
}

/// What a compaction at the leaf works on.
#[derive(Clone, Debug, Default)]
pub struct Shortenable {
    /// The entry of the branch's last boundary, whose text is shortened again.
    pub previous: Option<Raw>,
    /// Messages from the first one that the boundary kept, or all of the branch, each with its entry.
    pub messages: Vec<(EntryId, Raw)>,
}

/// The part of the branch at the session's leaf that a compaction works on.
pub fn shortenable(store: &Store) -> Shortenable {
    let path: Vec<&StoredEntry> =
        store.branch(store.leaf()).into_iter().map(|at| &store.entries()[at]).collect();
    let boundary = path.iter().rposition(|entry| is_boundary(entry));
    let from = boundary.map_or(0, |at| kept_from(path[at], &path[..at]).unwrap_or(at + 1));
    // A boundary stands for no message, so the kept messages before it and those behind it follow each other.
    let messages =
        path[from..].iter().filter_map(|entry| Some((entry.id.clone(), message(entry)?))).collect();
    Shortenable { previous: boundary.map(|at| path[at].line.clone()), messages }
}

/// Where the messages begin that a boundary kept.
fn kept_from(boundary: &StoredEntry, before: &[&StoredEntry]) -> Option<usize> {
    let fields = Fields::parse(boundary.line.as_str()).ok()?;
    let id = fields.str("firstKeptEntryId")?;
    before.iter().position(|entry| entry.id.as_str() == id)
}

fn is_boundary(entry: &StoredEntry) -> bool {
    let strategy = || {
        let fields = Fields::parse(entry.line.as_str()).ok()?;
        Some(Fields::parse(fields.get("details")?).ok()?.str("strategy")? == BOUNDARY_STRATEGY)
    };
    entry.kind == Kind::Compaction && strategy() == Some(true)
}

fn thinking(entry: &StoredEntry) -> Option<String> {
    match entry.kind {
        Kind::ThinkingLevelChange => text(&Fields::parse(entry.line.as_str()).ok()?, "thinkingLevel"),
        _ => None,
    }
}

fn model(entry: &StoredEntry) -> Option<(String, String)> {
    match (entry.kind, entry.role) {
        (Kind::ModelChange, _) => {
            let fields = Fields::parse(entry.line.as_str()).ok()?;
            Some((text(&fields, "provider")?, text(&fields, "modelId")?))
        }
        (Kind::Message, Some(Role::Assistant)) => {
            let fields = Fields::parse(entry.message.as_ref()?.as_str()).ok()?;
            Some((text(&fields, "provider")?, text(&fields, "model")?))
        }
        _ => None,
    }
}

fn text(fields: &Fields<'_>, key: &str) -> Option<String> {
    fields.str(key).map(|text| text.into_owned())
}

/// The message an entry stands for, if it stands for one.
fn message(entry: &StoredEntry) -> Option<Raw> {
    match entry.kind {
        Kind::Message => {
            let message = entry.message.as_ref()?;
            if !entry.null_content {
                return Some(message.clone());
            }
            let fields = Fields::parse(message.as_str()).ok()?;
            Some(with_fields(&fields, &[("content", Some(b"[]".into()))]))
        }
        Kind::CustomMessage => {
            let fields = Fields::parse(entry.line.as_str()).ok()?;
            let mut out = Vec::new();
            let mut object = ObjectWriter::begin(&mut out);
            object.str("role", "custom").str("customType", &fields.str("customType").unwrap_or_default());
            object.raw(
                "content",
                fields.get("content").filter(|text| *text != "null").unwrap_or("[]").as_bytes(),
            );
            object.bool("display", fields.get("display") == Some("true"));
            if let Some(details) = fields.get("details") {
                object.raw("details", details.as_bytes());
            }
            object.value("timestamp", &entry.timestamp);
            if fields.get("excludeFromContext") == Some("true") {
                object.bool("excludeFromContext", true);
            }
            object.end();
            Some(Raw::from_trusted(out.into()))
        }
        Kind::BranchSummary => {
            let fields = Fields::parse(entry.line.as_str()).ok()?;
            let summary = fields.str("summary").filter(|summary| !summary.is_empty())?;
            let mut out = Vec::new();
            let mut object = ObjectWriter::begin(&mut out);
            object.str("role", "branchSummary").str("summary", &summary);
            object.str("fromId", &fields.str("fromId").unwrap_or_default());
            object.value("timestamp", &entry.timestamp);
            object.end();
            Some(Raw::from_trusted(out.into()))
        }
        _ => None,
    }
}

/// The one message that stands for everything up to a boundary. What was kept after the shortened part comes as text too:
/// as messages it could begin with the result of a call that is gone, which providers refuse.
fn compacted(boundary: &StoredEntry, before: &[&StoredEntry]) -> Raw {
    let fields = Fields::parse(boundary.line.as_str()).unwrap_or_default();
    let kept_from = kept_from(boundary, before).unwrap_or(before.len());
    let kept =
        transcript(before[kept_from..].iter().filter_map(|entry| Message::parse(&message(entry)?).ok()));
    let summary = fields.str("summary").unwrap_or_default();
    let mut first = format!("{COMPACTED_NOTICE}{summary}");
    if !summary.is_empty() && !kept.is_empty() {
        first.push_str("\n\n");
    }
    let mut kept = kept.into_iter().peekable();
    if let Some(Block::Text { text, .. }) = kept.peek() {
        first.push_str(text);
        kept.next();
    }
    let content: Vec<Block> = std::iter::once(Block::text(first)).chain(kept).collect();
    let mut out = Vec::new();
    let mut object = ObjectWriter::begin(&mut out);
    object
        .str("role", "custom")
        .str("customType", "compaction")
        .value("content", &content)
        .bool("display", true);
    match fields.get("details") {
        Some(details) => object.raw("details", details.as_bytes()),
        None => {
            let mut details = ObjectWriter::begin(object.key("details"));
            details.raw("tokensBefore", fields.get("tokensBefore").unwrap_or("0").as_bytes());
            details.end();
            &mut object
        }
    };
    object.value("timestamp", &boundary.timestamp);
    object.end();
    Raw::from_trusted(out.into())
}
