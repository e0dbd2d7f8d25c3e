//! Bytes of a session file → header and entries, forgiving what crashes and other programs leave behind.

use std::fmt;
use std::ops::Range;

use atomic_protocol::Raw;
use atomic_protocol::entry::VERSION;
use bytes::Bytes;

use crate::entry::Parsed;
use crate::header::StoredHeader;
use crate::index::Index;

/// How many problems are kept apart; a file of garbage must not become a list of as many complaints.
const MAX_PROBLEMS: usize = 64;

/// Mean size of a line, for the first guess of how many there are; a wrong guess costs a reallocation.
const TYPICAL_LINE: usize = 700;

/// Something in a file that was skipped or is worth a word. The bytes stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line number, from 1.
    pub line: usize,
    /// What it is.
    pub kind: ProblemKind,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The last line has no end: its writer was killed, or the power failed. Skipped.
    Torn,
    /// Not JSON. Skipped.
    NotJson,
    /// JSON, but not an object with an id. Skipped.
    NotAnEntry,
    /// A header that is not the first record (older writers repeated theirs). Skipped.
    SecondHeader,
    /// An entry that stands here for the second time, to the byte. Skipped.
    Repeated,
    /// Another entry has the same id; both are kept, references mean the later one.
    SameId,
    /// The file says a newer version than this program knows. It is read and appended to, never rewritten.
    NewerVersion(u32),
    /// This many problems more.
    More(usize),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line;
        match self.kind {
            ProblemKind::Torn => write!(f, "line {line} is unfinished and was skipped"),
            ProblemKind::NotJson => write!(f, "line {line} is not JSON and was skipped"),
            ProblemKind::NotAnEntry => write!(f, "line {line} is not an entry and was skipped"),
            ProblemKind::SecondHeader => write!(f, "line {line} is a second header and was skipped"),
            ProblemKind::Repeated => write!(f, "line {line} repeats an entry and was skipped"),
            ProblemKind::SameId => write!(f, "line {line} has the id of an earlier entry"),
            ProblemKind::NewerVersion(version) => {
                write!(
                    f,
                    "the file has version {version}, newer than {VERSION}; what is unknown is kept as it is"
                )
            }
            ProblemKind::More(count) => write!(f, "{count} more problems from line {line} on"),
        }
    }
}

/// A file's content.
pub(crate) struct Loaded {
    pub(crate) header: StoredHeader,
    pub(crate) index: Index,
    pub(crate) problems: Vec<Problem>,
}

/// The lines of `bytes` with their numbers from 1, LF excluded. Only LF separates lines.
pub(crate) fn lines(bytes: &Bytes) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut start = 0;
    let mut number = 0;
    std::iter::from_fn(move || {
        if start >= bytes.len() {
            return None;
        }
        let end = memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |length| start + length);
        let range = start..end;
        start = end + 1;
        number += 1;
        Some((number, range))
    })
}

/// A line without what is around its record. Zeros are what a file system leaves after a power loss; a byte order mark is
/// what an editor leaves.
pub(crate) fn unpadded(mut line: &[u8]) -> &[u8] {
    const PADDING: [u8; 5] = [b' ', b'\t', b'\r', b'\n', 0];
    line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    while let [first, rest @ ..] = line
        && PADDING.contains(first)
    {
        line = rest;
    }
    while let [rest @ .., last] = line
        && PADDING.contains(last)
    {
        line = rest;
    }
    line
}

/// The record in a line, sharing the bytes when they are UTF-8. `None` when the line is blank.
pub(crate) fn record(bytes: &Bytes, range: Range<usize>) -> Option<Raw> {
    let line = unpadded(&bytes[range]);
    if line.is_empty() {
        return None;
    }
    Some(match std::str::from_utf8(line) {
        Ok(_) => Raw::from_trusted(bytes.slice_ref(line)),
        Err(_) => Raw::from_trusted(String::from_utf8_lossy(line).into_owned().into()),
    })
}

/// The header: the first line that is JSON has to be one. Gives the line's number too.
pub(crate) fn header(bytes: &Bytes) -> Option<(usize, StoredHeader)> {
    for (number, range) in lines(bytes) {
        if let Some(line) = record(bytes, range)
            && Raw::parse(line.as_str()).is_ok()
        {
            return StoredHeader::read(&line).map(|header| (number, header));
        }
    }
    None
}

/// Reads a whole file. `None` when it is not a session.
pub(crate) fn load(bytes: &Bytes) -> Option<Loaded> {
    let (header_line, header) = header(bytes)?;
    let mut index = Index::with_capacity(bytes.len() / TYPICAL_LINE);
    let mut problems = Vec::new();
    let mut more: Option<(usize, usize)> = None;
    let mut report = |line, kind| {
        if problems.len() < MAX_PROBLEMS {
            problems.push(Problem { line, kind });
        } else {
            more.get_or_insert((line, 0)).1 += 1;
        }
    };
    if header.version > VERSION {
        report(header_line, ProblemKind::NewerVersion(header.version));
    }
    for (number, range) in lines(bytes) {
        if number == header_line {
            continue;
        }
        let unfinished = range.end == bytes.len();
        let Some(line) = record(bytes, range.clone()) else {
            if unfinished && !range.is_empty() {
                report(number, ProblemKind::Torn);
            }
            continue;
        };
        match Parsed::read(line) {
            Ok(parsed) => {
                if let Some(at) = index.find(parsed.entry.id.as_str()) {
                    if index.entries()[at].line == parsed.entry.line {
                        report(number, ProblemKind::Repeated);
                        continue;
                    }
                    report(number, ProblemKind::SameId);
                }
                index.publish(parsed);
            }
            Err(ProblemKind::NotJson) if unfinished => report(number, ProblemKind::Torn),
            Err(kind) => report(number, kind),
        }
    }
    if let Some((line, count)) = more {
        problems.push(Problem { line, kind: ProblemKind::More(count) });
    }
    Some(Loaded { header, index, problems })
}
