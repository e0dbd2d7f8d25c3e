//! What the daemon does to itself before it serves, and the signals it heeds. What differs between systems lies in
//! `unix.rs` and `windows.rs`.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{Signals, give_back_memory, settle};
#[cfg(windows)]
pub use windows::{Signals, give_back_memory, settle};
