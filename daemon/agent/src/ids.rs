//! Where ids come from. The agent makes none itself: random in the daemon, counted in tests.

use atomic_protocol::entry::EntryId;

/// A source of ids that never repeat within a session.
pub trait IdSource: Send {
    /// A new entry id.
    fn entry(&mut self) -> EntryId;
}

/// Ids that count up, for tests and simulations: `00000001`, `00000002`, …
#[derive(Debug, Default)]
pub struct Counted(u32);

impl IdSource for Counted {
    fn entry(&mut self) -> EntryId {
        self.0 += 1;
        EntryId(format!("{:08x}", self.0).into())
    }
}
