//! What a model is to see of a session: the messages of one branch, or what a compaction left of them.

use std::collections::HashSet;

use atomic_protocol::Raw;
use atomic_protocol::entry::{EntryId, IN_PLACE_OF};
use atomic_protocol::json::{Fields, ObjectWriter};
use atomic_protocol::message::{Block, Message};
use atomic_protocol::transcript::transcript;

use crate::entry::{Kind, ReadyEntry, Role, Strategy};
use crate::splice::with_fields;
use crate::{Store, StoredEntry};

/// What stands before the compacted text. Part of what providers see and cache: do not change it lightly.
const COMPACTED_NOTICE: &str = "The earlier part of this conversation was shortened to save space; the lines below are what was kept, word for word. \
     A line that reads \"(filtered N lines)\" stands where N lines were left out.\n\n";

/// What stands before a summary, and behind it. Part of what providers see and cache, too.
const SUMMARY_NOTICE: &str =
    "The earlier part of this conversation was replaced by the summary below.\n\n<summary>\n";
const SUMMARY_END: &str = "\n</summary>";

/// What a compaction left of what came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Boundary {
    /// Lines of it; the kept messages follow as text.
    Lines,
    /// A summary; the kept messages follow as they are.
    Summary,
}

/// The context of a branch.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Messages in order, each with the entry it comes from. Bash results and messages kept from the model are among
    /// them, marked as in the file: clients see them, and who asks the model leaves them out.
    pub messages: Vec<(EntryId, Raw)>,
    /// The last thinking level set on the branch, if by the user.
    pub thinking: Option<String>,
    /// Provider and model id last set, or used by an answer, on the branch. Where that is a fallback whose end is not in the
    /// file, the model that it stands in for.
    pub model: Option<(String, String)>,
}

/// The context at the session's leaf.
pub fn context(store: &Store) -> Context {
    context_at(store, store.leaf())
}

/// The context at `leaf`: empty for `None` and for an unknown id.
pub fn context_at(store: &Store, leaf: Option<&EntryId>) -> Context {
    let path: Vec<&StoredEntry> = store.branch(leaf).into_iter().map(|at| &store.entries()[at]).collect();
    let messages = match last_boundary(store, &path) {
        None => messages(None, path.iter().copied()),
        Some((at, kind)) => {
            let kept = &path[kept_from(path[at], &path[..at]).unwrap_or(at)..at];
            messages(Some((path[at], kind, kept)), path[at + 1..].iter().copied())
        }
    };
    Context {
        messages,
        thinking: path.iter().rev().find_map(|entry| thinking(entry)),
        model: users_model(&path),
    }
}

/// What a boundary left, with the entries that it kept, and what came behind it.
fn messages<'a>(
    boundary: Option<(&StoredEntry, Boundary, &[&StoredEntry])>,
    rest: impl Iterator<Item = &'a StoredEntry>,
) -> Vec<(EntryId, Raw)> {
    let mut messages = Vec::new();
    match boundary {
        None => {}
        Some((entry, Boundary::Lines, kept)) => messages.push((entry.id.clone(), compacted(entry, kept))),
        Some((entry, Boundary::Summary, kept)) => {
            messages.push((entry.id.clone(), summarized(entry)));
            messages.extend(kept.iter().filter_map(|entry| told(entry)));
        }
    }
    messages.extend(rest.filter_map(told));
    messages
}

/// The entries from `first_kept` to the session's leaf: what a boundary that names it keeps. Empty for `None` and when it is
/// not on the branch. Goes back no further than that, and reads nothing.
pub fn kept(store: &Store, first_kept: Option<&EntryId>) -> Vec<StoredEntry> {
    let Some(first) = first_kept else { return Vec::new() };
    let mut entries = Vec::new();
    let mut next = store.leaf();
    while let Some(at) = next.and_then(|id| store.find(id.as_str()))
        // Files of other programs may hold a circle.
        && entries.len() < store.entries().len()
    {
        let entry = &store.entries()[at];
        entries.push(entry.clone());
        if entry.id == *first {
            entries.reverse();
            return entries;
        }
        next = entry.parent_id.as_ref();
    }
    Vec::new()
}

impl ReadyEntry {
    /// [`Context::messages`] as they are once this entry, which must be a compaction, is appended to the leaf; `kept` as
    /// [`kept`] gave it. Takes as long as what the boundary leaves is long; made for another thread.
    pub fn conversation(&self, kept: &[StoredEntry]) -> Vec<(EntryId, Raw)> {
        let entry = &self.parsed.entry;
        let kept: Vec<&StoredEntry> = kept.iter().collect();
        // It is ours, so it says what it is.
        messages(boundary(entry, false).map(|kind| (entry, kind, &kept[..])), std::iter::empty())
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
    let boundary = last_boundary(store, &path).map(|(at, _)| at);
    let from = boundary.map_or(0, |at| kept_from(path[at], &path[..at]).unwrap_or(at + 1));
    // A boundary stands for no message, so the kept messages before it and those behind it follow each other.
    let messages = path[from..].iter().filter_map(|entry| told(entry)).collect();
    Shortenable { previous: boundary.map(|at| path[at].line.clone()), messages }
}

/// An entry of a branch that is left.
#[derive(Clone, Debug)]
pub struct Left {
    /// What it says, as a message.
    pub message: Raw,
    /// Its line, if it stands for others: a compaction or the summary of a branch.
    pub summary: Option<Raw>,
}

/// What is left behind by going from the session's leaf to `target`: the entries behind the last one that both branches
/// have, in order, those that say something (reference compaction 12).
pub fn left_behind(store: &Store, target: &EntryId) -> Vec<Left> {
    let said = left_entries(store, target).into_iter().filter_map(|at| {
        let entry = &store.entries()[at];
        match entry.kind {
            Kind::Compaction => Some(Left { message: summarized(entry), summary: Some(entry.line.clone()) }),
            Kind::BranchSummary => Some(Left { message: message(entry)?, summary: Some(entry.line.clone()) }),
            _ => Some(Left { message: message(entry)?, summary: None }),
        }
    });
    said.collect()
}

/// Whether going from the session's leaf to `target` leaves any entry behind.
pub fn leaves_something(store: &Store, target: &EntryId) -> bool {
    !left_entries(store, target).is_empty()
}

/// The entries of the leaf's branch that the branch of `target` does not have, as places in [`Store::entries`].
fn left_entries(store: &Store, target: &EntryId) -> Vec<usize> {
    let kept: HashSet<usize> = store.branch(Some(target)).into_iter().collect();
    let mut path = store.branch(store.leaf());
    let shared = path.iter().rposition(|at| kept.contains(at)).map_or(0, |last| last + 1);
    path.split_off(shared)
}

fn told(entry: &StoredEntry) -> Option<(EntryId, Raw)> {
    Some((entry.id.clone(), message(entry)?))
}

/// Where the messages begin that a boundary kept.
fn kept_from(boundary: &StoredEntry, before: &[&StoredEntry]) -> Option<usize> {
    let id = boundary.compaction.as_ref()?.first_kept.as_ref()?;
    before.iter().rposition(|entry| entry.id == *id)
}

fn last_boundary(store: &Store, path: &[&StoredEntry]) -> Option<(usize, Boundary)> {
    let found = |entry: &StoredEntry| boundary(entry, store.takes_unmarked_summaries());
    path.iter().enumerate().rev().find_map(|(at, entry)| Some((at, found(entry)?)))
}

fn boundary(entry: &StoredEntry, unmarked: bool) -> Option<Boundary> {
    match entry.compaction.as_ref()?.strategy {
        Strategy::Lines => Some(Boundary::Lines),
        Strategy::Summary => Some(Boundary::Summary),
        Strategy::Unmarked => unmarked.then_some(Boundary::Summary),
        Strategy::Other => None,
    }
}

fn thinking(entry: &StoredEntry) -> Option<String> {
    match entry.kind {
        Kind::ThinkingLevelChange => {
            let fields = Fields::parse(entry.line.as_str()).ok()?;
            text(&fields, IN_PLACE_OF).or_else(|| text(&fields, "thinkingLevel"))
        }
        _ => None,
    }
}

/// The model in use last; while a fallback is in its place, the user's own.
fn users_model(path: &[&StoredEntry]) -> Option<(String, String)> {
    let used = path.iter().rev().find_map(|entry| model(entry))?;
    let change = path.iter().rev().find(|entry| entry.kind == Kind::ModelChange);
    let own = change.filter(|change| model(change).as_ref() == Some(&used)).and_then(|change| {
        let fields = Fields::parse(change.line.as_str()).ok()?;
        let own = Fields::parse(fields.get(IN_PLACE_OF)?).ok()?;
        Some((text(&own, "provider")?, text(&own, "modelId")?))
    });
    Some(own.unwrap_or(used))
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
fn compacted(boundary: &StoredEntry, kept: &[&StoredEntry]) -> Raw {
    let fields = Fields::parse(boundary.line.as_str()).unwrap_or_default();
    let kept = transcript(kept.iter().filter_map(|entry| Message::parse(&message(entry)?).ok()));
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
    boundary_message(boundary, &fields, &content)
}

/// The one message that stands for what a summary took the place of.
fn summarized(boundary: &StoredEntry) -> Raw {
    let fields = Fields::parse(boundary.line.as_str()).unwrap_or_default();
    let summary = fields.str("summary").unwrap_or_default();
    let text = format!("{SUMMARY_NOTICE}{summary}{SUMMARY_END}");
    boundary_message(boundary, &fields, &[Block::text(text)])
}

fn boundary_message(boundary: &StoredEntry, fields: &Fields<'_>, content: &[Block]) -> Raw {
    let mut out = Vec::new();
    let mut object = ObjectWriter::begin(&mut out);
    object
        .str("role", "custom")
        .str("customType", "compaction")
        .value("content", content)
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
