//! What a compaction came to, and how it is written down and told.

use atomic_protocol::entry::EntryId;
use atomic_protocol::json::{ObjectWriter, Raw, number};
use atomic_protocol::message::Usage;
use serde::Serialize;

use super::prepared::Prepared;
use super::region::Rebuilt;
use super::summary::Summary;
use crate::context::{CHARS_PER_TOKEN, units};
use crate::ladder::Candidate;

/// Marks compactions of this kind in `details.strategy`; the session store takes no other for a boundary.
pub const STRATEGY: &str = "verbatim-lines";

/// Version of the planner's request, for who reads results later.
pub const PROMPT_VERSION: u64 = 3;

/// How a compaction came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// A planner chose the lines.
    Planned,
    /// An extension gave the text.
    Extension,
    /// Everything went.
    Fresh,
}

impl Rung {
    /// The wire's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Rung::Planned => "planned",
            Rung::Extension => "extension",
            Rung::Fresh => "fresh",
        }
    }
}

/// Counts before and after. Lines are those of the region, tokens those of the whole conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionStats {
    /// Lines of the region.
    pub lines_before: usize,
    /// Lines that went.
    pub lines_deleted: usize,
    /// Lines that stayed, markers not counted.
    pub lines_kept: usize,
    /// Holes.
    pub range_count: usize,
    /// Tokens before.
    pub tokens_before: u64,
    /// Tokens after, estimated.
    pub tokens_after: u64,
    /// How much smaller it is, in percent to one decimal; below zero when it grew.
    #[serde(with = "number")]
    pub percent_reduction: f64,
}

impl CompactionStats {
    /// With the tokens of before and after in place.
    pub fn with_tokens(self, before: u64, after: u64) -> CompactionStats {
        let percent_reduction = if before == 0 {
            0.0
        } else {
            // Rounded as JavaScript rounds: halves upwards.
            ((1.0 - after as f64 / before as f64) * 1000.0 + 0.5).floor() / 10.0
        };
        CompactionStats { tokens_before: before, tokens_after: after, percent_reduction, ..self }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Shown {
    #[serde(with = "number")]
    compression_ratio: f64,
    preserve_recent: u64,
    query: String,
}

/// A compaction, ready to be written down.
#[derive(Clone, Debug, PartialEq)]
pub struct Compaction {
    /// What stands for the shortened part from now on.
    pub text: String,
    /// The first message that stays as it is.
    pub first_kept: Option<EntryId>,
    /// Counts.
    pub stats: CompactionStats,
    /// How it came about.
    pub rung: Rung,
    /// The model that was asked, if it was not the session's own.
    pub planner: Option<Candidate>,
    parameters: Shown,
}

/// What stands for the older part of a conversation from now on, ready to be written down.
#[derive(Clone, Debug, PartialEq)]
pub enum Boundary {
    /// Lines of it.
    Lines(Compaction),
    /// A summary.
    Summary(Summary),
}

impl Boundary {
    /// The text.
    pub fn text(&self) -> &str {
        match self {
            Boundary::Lines(compaction) => &compaction.text,
            Boundary::Summary(summary) => &summary.text,
        }
    }

    /// The first message that stays as it is.
    pub fn first_kept(&self) -> Option<&EntryId> {
        match self {
            Boundary::Lines(compaction) => compaction.first_kept.as_ref(),
            Boundary::Summary(summary) => Some(&summary.first_kept),
        }
    }

    /// Tokens of the conversation before.
    pub fn tokens_before(&self) -> u64 {
        match self {
            Boundary::Lines(compaction) => compaction.stats.tokens_before,
            Boundary::Summary(summary) => summary.tokens_before,
        }
    }

    /// What writing it took; lines that stay cost nothing to write.
    pub fn usage(&self) -> Option<&Usage> {
        match self {
            Boundary::Lines(_) => None,
            Boundary::Summary(summary) => summary.usage.as_ref(),
        }
    }

    /// The result as clients get it: `data` of the answer to `compact` and `result` of `compaction_end`.
    pub fn result(&self, backup: Option<&str>) -> Raw {
        match self {
            Boundary::Lines(compaction) => compaction.result(backup),
            Boundary::Summary(summary) => summary.result(backup),
        }
    }

    /// `details` of the entry.
    pub fn details(&self, backup: Option<&str>) -> Raw {
        match self {
            Boundary::Lines(compaction) => compaction.details(backup),
            Boundary::Summary(summary) => summary.details(backup),
        }
    }
}

impl Compaction {
    pub(super) fn new(
        prepared: &Prepared,
        rebuilt: Rebuilt,
        rung: Rung,
        first_kept: Option<EntryId>,
        kept_tokens: u64,
    ) -> Compaction {
        let lines_before = prepared.region.lines();
        let stats = CompactionStats {
            lines_before,
            lines_deleted: rebuilt.deleted,
            lines_kept: lines_before - rebuilt.deleted,
            range_count: rebuilt.ranges,
            ..CompactionStats::default()
        };
        let after = units(&rebuilt.text).div_ceil(CHARS_PER_TOKEN) + kept_tokens;
        Compaction {
            text: rebuilt.text,
            first_kept,
            stats: stats.with_tokens(prepared.tokens_before, after),
            rung,
            planner: None,
            parameters: Shown {
                compression_ratio: prepared.parameters.compression_ratio,
                preserve_recent: prepared.parameters.preserve_recent,
                query: prepared.query.clone(),
            },
        }
    }

    /// The result as clients get it: `data` of the answer to `compact` and `result` of `compaction_end`.
    pub fn result(&self, backup: Option<&str>) -> Raw {
        let mut out = Vec::with_capacity(self.text.len() + 512);
        let mut object = ObjectWriter::begin(&mut out);
        object
            .str("compactedText", &self.text)
            .value("firstKeptEntryId", &self.first_kept.as_ref().map(EntryId::as_str));
        object.count("tokensBefore", self.stats.tokens_before).value("stats", &self.stats);
        object.value("parameters", &self.parameters).count("promptVersion", PROMPT_VERSION);
        self.end_of(&mut object, backup);
        object.end();
        Raw::from_trusted(out.into())
    }

    /// `details` of the entry.
    pub fn details(&self, backup: Option<&str>) -> Raw {
        let mut out = Vec::new();
        let mut object = ObjectWriter::begin(&mut out);
        object
            .str("strategy", STRATEGY)
            .count("promptVersion", PROMPT_VERSION)
            .value("parameters", &self.parameters);
        object.value("stats", &self.stats);
        self.end_of(&mut object, backup);
        object.end();
        Raw::from_trusted(out.into())
    }

    /// `rung`, `plannerModel?`, `backupPath?`.
    fn end_of(&self, object: &mut ObjectWriter<'_>, backup: Option<&str>) {
        object.str("rung", self.rung.as_str());
        if let Some(planner) = &self.planner {
            let mut model = ObjectWriter::begin(object.key("plannerModel"));
            model.str("provider", &planner.model.provider).str("id", &planner.model.id);
            model.str("thinkingLevel", planner.thinking.as_str());
            model.end();
        }
        if let Some(path) = backup {
            object.str("backupPath", path);
        }
    }
}
