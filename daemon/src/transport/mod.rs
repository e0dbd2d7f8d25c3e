//! The daemon's side of the local socket, as the async runtime needs it. What differs between systems lies in `unix.rs`
//! and `windows.rs`.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{Listener, ReadHalf, WriteHalf};
#[cfg(windows)]
pub use windows::{Listener, ReadHalf, WriteHalf};

/// A connection of this user.
#[derive(Debug)]
pub struct Accepted {
    /// Where its bytes come from.
    pub read: ReadHalf,
    /// Where its bytes go.
    pub write: WriteHalf,
    /// Descriptors are scarce, so it should not stay: how many this process may have.
    pub crowded: Option<u64>,
}
