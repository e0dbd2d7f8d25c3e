//! Every record on the wire and every entry in a session file, as a type.
//!
//! This crate is pure: no I/O, no clock, no randomness. It is the vocabulary that the shim, the daemon, the agent,
//! the providers and the tools share, so that none of them has to know another.
//!
//! * [`frame`] cuts bytes into lines; [`json`] reads what JavaScript's `JSON.parse` reads.
//! * [`command`], [`event`], [`response`] are the records of the RPC protocol; [`link`] is what shim and daemon say
//!   to each other around them.
//! * [`message`], [`entry`] are what a session is made of; [`model`] is what a model is asked and what it answers;
//!   [`tool`] is what a tool is told and what it returns; [`transcript`] is a conversation as text.
//! * [`trust`] is the file of remembered decisions about projects.
//! * [`cli`] is the one definition of the command line, read by the shim and by the daemon.
//!
//! Wire names are spelled exactly once, here.

#[macro_use]
mod names;

pub mod cli;
pub mod command;
pub mod entry;
pub mod event;
pub mod frame;
pub mod image;
pub mod json;
pub mod legacy;
pub mod link;
pub mod message;
pub mod model;
pub mod response;
pub mod time;
pub mod tool;
pub mod transcript;
pub mod trust;

pub use json::Raw;
