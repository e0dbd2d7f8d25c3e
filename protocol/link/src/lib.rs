//! Where the daemon is, how to reach it, and how both ends know each other. Blocking; no async stack, so that the shim
//! stays small.
//!
//! * [`place`]: from the agent directory to socket, locks and logs.
//! * [`connect`]: connect, prove the owner, say hello. Only an answered hello proves that a daemon lives.
//! * [`start`]: start the one daemon when none answers; any number of programs may try at once.
//! * [`listen`]: the daemon's side: the lock held for life and the socket.
//! * [`client`]: a small client for programs and tests that use no shim.
//!
//! What differs between systems lies in `unix.rs` and `windows.rs`, behind one module name.

// One file needs system calls that no safe crate offers: `windows.rs` allows it, with the reasons.
#![deny(unsafe_code)]

pub mod client;
pub mod connect;
mod error;
pub mod listen;
mod owner;
pub mod place;
pub mod start;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

pub use error::LinkError;
pub use interprocess::local_socket::Stream;
/// Timeouts of a [`Stream`]; on Windows they cannot be set.
pub use interprocess::local_socket::traits::Stream as StreamLimits;

/// Ends a connection both ways, so that a thread that waits in a read or write of it comes back. A named pipe cannot be
/// ended by one side; there the other process's end does it.
pub fn hang_up(stream: &Stream) {
    os::hang_up(stream);
}
