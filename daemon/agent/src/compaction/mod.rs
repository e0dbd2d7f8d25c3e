//! Verbatim compaction: the old part of a conversation loses lines and nothing else.
//!
//! Nothing is summarised. [`prepare`] cuts a branch in two and writes the older part as numbered lines; a model, the
//! planner, answers which of them to delete; what it says is checked and put right ([`Deletions`]), and [`Region::rebuild`]
//! gives the text back with every other line as it was. A planner that fails or answers nonsense therefore costs the
//! compaction and never the conversation.
//!
//! ```text
//!  Source ──prepare──► Prepared ──► Plan ──request──► planner
//!                                    ▲                   │ PlannerAnswer
//!                        trimmed ────┤                   ▼
//!                                    └── TooLong ◄── judge ──► Done(Compaction)
//!                                                      └─────► Failed, Unusable ──► (last resort) fresh
//! ```
//!
//! The second strategy, and what is done with a branch that is left, have a model write notes instead: `summary` and `branch`,
//! with `notes` for what both ask and `files` for the lists behind them. All three go through the same steps (`step`).
//!
//! Everything here is pure and linear in the size of the text; it is made to be run beside a session's task, not in it.

mod branch;
mod diagnosis;
mod files;
mod notes;
mod plan;
mod prepared;
mod ranges;
mod region;
mod request;
mod result;
mod step;
mod summary;

pub use branch::{BranchBegin, BranchPlan, BranchSummary, LeftBehind};
pub use diagnosis::{Asked, Diagnosis};
pub use notes::Instructions;
pub use plan::{BROKE_OFF, Plan, PlannerAnswer, Verdict};
pub use prepared::{Prepared, Source, prepare};
pub use ranges::{Deletions, Record, parse, parse_cut};
pub use region::{Rebuilt, Region};
pub use request::SYSTEM;
pub use result::{Boundary, Compaction, CompactionStats, PROMPT_VERSION, Rung, STRATEGY};
pub use step::{Begin, Begun, PlanOutcome, Way, Work};
pub use summary::{SUMMARY_STRATEGY, Summary, SummaryParameters, SummaryPlan};

/// A region of fewer lines gains nothing from being shortened.
pub const MIN_LINES: usize = 20;

/// How far a conversation is shortened.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Part of the lines to keep, above 0 and below 1.
    pub compression_ratio: f64,
    /// Newest messages to keep whole.
    pub preserve_recent: u64,
    /// What matters; none is found out from the conversation.
    pub query: Option<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters { compression_ratio: 0.5, preserve_recent: 2, query: None }
    }
}
