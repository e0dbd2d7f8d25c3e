//! The real `atomic` against a thread that plays the daemon.
#![forbid(unsafe_code)]
#![cfg(unix)]

mod copying;
mod crash;
mod leaving;
mod stage;
