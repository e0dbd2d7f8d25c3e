//! A session as one self-contained page: HTML that needs no network, no server and no script to be read.
//!
//! ```
//! use atomic_html_export::{Leaf, Options, Session, write_page};
//!
//! let session = Session {
//!     header: r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/home/user"}"#,
//!     entries: &[r#"{"type":"message","id":"1","parentId":null,"message":{"role":"user","content":"Hello"}}"#],
//!     leaf: Leaf::Last,
//! };
//! let mut page = Vec::new();
//! write_page(&session, &Options::default(), &mut page)?;
//! assert!(String::from_utf8_lossy(&page).contains("Hello"));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! **What a session says is data.** Text passes one escaping function; the page's policy allows the one style and the one
//! script that are part of this crate, by their hashes, and images from `data:` only. There is no inline handler, no `style`
//! attribute and no URL from a session but `http:`, `https:` and `mailto:` links that somebody has to click.
//!
//! **Nothing in a session makes the page fail.** Entry types of other programs, and what is no entry at all, stand as folded
//! JSON; a field of the wrong type is as good as absent. Work and size are linear in the input, and the page is written
//! entry by entry: memory holds an index of the entries and the HTML of one of them.
//!
//! The crate is pure: it reads no file, no clock and no environment, and writes only to the writer it is given.
#![forbid(unsafe_code)]

mod ansi;
mod code;
mod diff;
mod entry;
mod html;
mod image;
mod json_view;
mod languages;
mod markdown;
mod outline;
mod page;
mod policy;
mod record;
mod tool;
mod totals;
mod tree;

use std::io;

/// A session as it stands in its file.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// The first line: a JSON object (session file, version 3). What is something else counts as an empty object.
    pub header: &'a str,
    /// The other lines in the order of the file, all branches, without line feeds.
    pub entries: &'a [&'a str],
    /// Where the session stands.
    pub leaf: Leaf<'a>,
}

/// Where a session stands: the end of the branch that the page reads along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaf<'a> {
    /// At the last line, as after loading a file.
    #[default]
    Last,
    /// Before its first entry: every branch is one that was left.
    BeforeFirst,
    /// At this entry; an id that no entry has counts as the last line.
    Entry(&'a str),
}

/// What the page says beside the session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The program and its version, for the foot of the page.
    pub program: Option<&'a str>,
    /// When the page was made.
    pub exported: Option<atomic_protocol::time::Millis>,
}

/// Writes the page: UTF-8 HTML, entry by entry.
///
/// # Errors
/// Those of `out`, and no others. Then the page is incomplete: whoever has the file throws it away.
pub fn write_page(session: &Session<'_>, options: &Options<'_>, out: &mut impl io::Write) -> io::Result<()> {
    page::write(session, options, out)
}
