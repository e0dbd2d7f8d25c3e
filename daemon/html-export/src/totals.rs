//! What a session adds up to: counts, tokens and money over all entries of the file, whatever branch they stand on.

use std::collections::BTreeSet;

use atomic_protocol::json::Fields;

use crate::entry::Stamp;
use crate::record::{self, Piece};
use crate::tree::Tree;

/// Sums of a session, and its name.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) user: u64,
    pub(crate) assistant: u64,
    pub(crate) calls: u64,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    /// US dollars.
    pub(crate) cost: f64,
    pub(crate) models: BTreeSet<String>,
    pub(crate) last: Stamp,
    /// The last in the file wins; an empty one clears.
    pub(crate) name: Option<String>,
    /// The first text that a user wrote on any branch.
    pub(crate) first_text: Option<String>,
}

impl Totals {
    /// Adds up all entries.
    pub(crate) fn of(tree: &Tree<'_>) -> Totals {
        let mut totals = Totals::default();
        for node in &tree.nodes {
            let fields = record::fields(node.line);
            match &*node.kind {
                "message" => totals.message(&record::fields(fields.get("message").unwrap_or("null"))),
                "branch_summary" | "session_summary" => totals.usage(&fields),
                "session_info" => {
                    let name = fields.str("name").unwrap_or_default();
                    totals.name = Some(name.trim().to_owned()).filter(|name| !name.is_empty());
                }
                _ => {}
            }
            let stamp = Stamp::of(&fields);
            if stamp != Stamp::default() {
                totals.last = stamp;
            }
        }
        totals
    }

    fn message(&mut self, message: &Fields<'_>) {
        match message.str("role").as_deref() {
            Some("user") => {
                self.user += 1;
                if self.first_text.is_none() {
                    self.first_text = Some(record::texts(message)).filter(|text| !text.trim().is_empty());
                }
            }
            Some("assistant") => {
                self.assistant += 1;
                let calls = record::pieces(message).into_iter();
                self.calls += calls.filter(|piece| matches!(piece, Piece::ToolCall { .. })).count() as u64;
                if let Some(model) = message.str("model").filter(|model| !model.is_empty()) {
                    self.models.insert(model.into_owned());
                }
            }
            _ => {}
        }
        self.usage(message);
    }

    fn usage(&mut self, fields: &Fields<'_>) {
        let Some(usage) = record::usage(fields) else { return };
        for (sum, value) in [
            (&mut self.input, usage.input),
            (&mut self.output, usage.output),
            (&mut self.cache_read, usage.cache_read),
            (&mut self.cache_write, usage.cache_write),
        ] {
            *sum = sum.saturating_add(value);
        }
        if usage.cost.total.is_finite() {
            self.cost += usage.cost.total;
        }
    }
}
