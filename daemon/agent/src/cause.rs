//! What a compaction is made for, and what follows from that.

use atomic_protocol::event::CompactionReason;

/// What a compaction is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// `compact`.
    Manual,
    /// The window is nearly full, after a run or before a prompt.
    Threshold,
    /// The window is nearly full, between two turns. `over`: the next request would not fit at all.
    MidTurn { over: bool },
    /// A request did not fit.
    Overflow,
    /// An answer was cut off for lack of room.
    Length,
}

impl Cause {
    pub(crate) fn reason(self) -> CompactionReason {
        match self {
            Cause::Manual => CompactionReason::Manual,
            Cause::Threshold | Cause::MidTurn { .. } => CompactionReason::Threshold,
            Cause::Overflow | Cause::Length => CompactionReason::Overflow,
        }
    }

    /// The conversation cannot go on as it is: when no planner helps, everything old goes.
    pub(crate) fn is_load_bearing(self) -> bool {
        matches!(self, Cause::Overflow | Cause::MidTurn { .. })
    }

    /// Even a few lines count.
    pub(crate) fn takes_small(self) -> bool {
        matches!(self, Cause::Overflow | Cause::MidTurn { over: true })
    }

    pub(crate) fn is_mid_turn(self) -> bool {
        matches!(self, Cause::MidTurn { .. })
    }

    /// Part of the backup's name.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Cause::Manual => "compact",
            _ if self.is_load_bearing() => "overflow-auto-compact",
            _ => "auto-compact",
        }
    }

    /// What stands before the text of a failure (literals of the reference).
    pub(crate) fn failed(self) -> &'static str {
        match self {
            Cause::Manual => "Compaction failed: ",
            Cause::Threshold => "Auto-compaction failed: ",
            Cause::MidTurn { .. } => "Post-tool context compaction failed before the next provider request: ",
            Cause::Overflow => "Context overflow recovery failed: ",
            Cause::Length => "Response truncation recovery failed: ",
        }
    }
}
