//! A session's entries in memory: order, ids, leaf, name and counts, kept as each entry arrives.

use std::collections::HashMap;

use atomic_protocol::entry::EntryId;

use crate::entry::{Parsed, StoredEntry};
use crate::stats::Stats;

/// All entries of a session.
#[derive(Debug, Default)]
pub(crate) struct Index {
    entries: Vec<StoredEntry>,
    by_id: HashMap<Box<str>, usize>,
    leaf: Option<usize>,
    pub(crate) stats: Stats,
    pub(crate) name: Option<String>,
}

impl Index {
    pub(crate) fn with_capacity(entries: usize) -> Index {
        Index {
            entries: Vec::with_capacity(entries),
            by_id: HashMap::with_capacity(entries),
            ..Index::default()
        }
    }

    pub(crate) fn entries(&self) -> &[StoredEntry] {
        &self.entries
    }

    /// Where the entry is; of several with one id the last, as the reference's map has it.
    pub(crate) fn find(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn leaf(&self) -> Option<usize> {
        self.leaf
    }

    pub(crate) fn set_leaf(&mut self, leaf: Option<usize>) {
        self.leaf = leaf;
    }

    /// Makes the entry part of the session, and its leaf.
    pub(crate) fn publish(&mut self, parsed: Parsed) {
        let at = self.entries.len();
        self.by_id.insert(parsed.entry.id.0.clone(), at);
        self.entries.push(parsed.entry);
        self.leaf = Some(at);
        self.stats.add(&parsed.stats);
        if let Some(name) = parsed.name {
            self.name = name;
        }
    }

    /// Makes an entry of another program part of the session; the leaf stays.
    pub(crate) fn publish_aside(&mut self, parsed: Parsed) {
        let leaf = self.leaf;
        self.publish(parsed);
        self.leaf = leaf;
    }

    /// From the root to `leaf`. Ends at a parent that is missing or that was on the path before: files of other
    /// programs may hold a circle.
    pub(crate) fn branch(&self, leaf: Option<&EntryId>) -> Vec<usize> {
        let mut path = Vec::new();
        let mut seen = vec![false; self.entries.len()];
        let mut next = leaf.and_then(|leaf| self.find(leaf.as_str()));
        while let Some(at) = next
            && !std::mem::replace(&mut seen[at], true)
        {
            path.push(at);
            next = self.entries[at].parent_id.as_ref().and_then(|parent| self.find(parent.as_str()));
        }
        path.reverse();
        path
    }
}
