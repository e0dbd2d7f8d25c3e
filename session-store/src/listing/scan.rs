//! One file, line by line, for what a listing or a search wants to know. A line at a time is in memory.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use atomic_protocol::Raw;
use atomic_protocol::json::{self, Fields};
use atomic_protocol::message::{Block, Content};
use atomic_protocol::time::Millis;
use bytes::Bytes;
use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::cache::Stamp;
use super::{Summary, strike};
use crate::header::StoredHeader;
use crate::{Error, file, load, platform};

/// Bytes read at once.
const CHUNK: usize = 256 * 1024;

/// A file that has no header in its first bytes is not read on.
const MAX_BEFORE_HEADER: u64 = 1024 * 1024;

/// What the index keeps of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Facts {
    id: String,
    cwd: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    has_name: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_session: Option<String>,
    internal: bool,
    created: u64,
    /// 0: nobody spoke.
    spoken: u64,
    message_count: u64,
    first_message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
}

impl Facts {
    /// As a summary; the flag says that a workflow made it.
    pub(super) fn summary(self, path: PathBuf, stamp: Stamp) -> (bool, Summary) {
        let modified = [self.spoken, self.created].into_iter().find(|time| *time > 0);
        let summary = Summary {
            path,
            size: stamp.size,
            id: self.id,
            cwd: self.cwd,
            name: self.name,
            has_name: self.has_name,
            parent_session: self.parent_session,
            created: Millis(self.created),
            modified: Millis(modified.unwrap_or_else(|| stamp.millis())),
            message_count: self.message_count,
            first_message: self.first_message,
            summary: self.summary,
        };
        (self.internal, summary)
    }
}

/// Reads a file. `None`: it is no session.
pub(super) fn facts(path: &Path) -> Result<Option<Facts>, Error> {
    let mut lines = Lines::open(path)?;
    let Some(header) = lines.header()? else { return Ok(None) };
    let mut facts = Facts {
        id: header.header.id,
        cwd: header.header.cwd,
        parent_session: header.header.parent_session,
        internal: header.internal,
        created: header.header.timestamp.0,
        ..Facts::default()
    };
    // The newest summary and what it covers, while nothing came that it does not.
    let mut summary: Option<(String, String)> = None;
    let mut last_spoken = String::new();
    while let Some(line) = lines.next()? {
        let text = json::text(line);
        let Ok(fields) = Fields::parse(&text) else { continue };
        match fields.str("type").as_deref() {
            Some("message") => {
                facts.message_count += 1;
                let Some(message) = spoken(&fields) else { continue };
                let id = fields.str("id").unwrap_or_default();
                last_spoken.clear();
                last_spoken.push_str(&id);
                facts.spoken = facts.spoken.max(message.time);
                if facts.first_message.is_empty() && message.by_user {
                    let text = message.text();
                    facts.first_message = text.trim().chars().take(Summary::FIRST_MESSAGE_CHARS).collect();
                }
            }
            Some("session_info") => {
                let name = fields.str("name").unwrap_or_default();
                let name = name.trim();
                facts.has_name = true;
                facts.name = (!name.is_empty()).then(|| name.to_owned());
            }
            Some("session_summary") => {
                summary = fields
                    .str("summarizedThroughId")
                    .zip(fields.str("summary"))
                    .map(|(through, text)| (through.into_owned(), text.into_owned()));
            }
            Some("branch_summary") => summary = None,
            _ => {}
        }
    }
    facts.summary = summary.filter(|(through, _)| *through == last_spoken).map(|(_, text)| text);
    Ok(Some(facts))
}

/// Takes those words out of `wanted` that occur in what users and models say in the file.
pub(super) fn texts(path: &Path, wanted: &mut Vec<&str>) -> Result<(), Error> {
    let roles = [memmem::Finder::new("\"user\""), memmem::Finder::new("\"assistant\"")];
    let mut lines = Lines::open(path)?;
    while let Some(line) = lines.next()? {
        // Results of tools are most of a file, and are not looked into.
        if !roles.iter().any(|role| role.find(line).is_some()) {
            continue;
        }
        let text = json::text(line);
        let Ok(fields) = Fields::parse(&text) else { continue };
        if fields.str("type").as_deref() == Some("message")
            && let Some(message) = spoken(&fields)
        {
            strike(wanted, &message.text());
            if wanted.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// Something that a user or a model said.
struct Spoken<'a> {
    by_user: bool,
    time: u64,
    content: Option<&'a str>,
}

impl Spoken<'_> {
    /// Its texts, joined by spaces.
    fn text(&self) -> String {
        match self.content.map(json::from_str::<Content>) {
            Some(Ok(Content::Text(text))) => text,
            Some(Ok(Content::Blocks(blocks))) => {
                blocks.iter().filter_map(Block::as_text).collect::<Vec<_>>().join(" ")
            }
            _ => String::new(),
        }
    }
}

fn spoken<'a>(entry: &Fields<'a>) -> Option<Spoken<'a>> {
    let message = Fields::parse(entry.get("message")?).ok()?;
    let by_user = match message.str("role").as_deref() {
        Some("user") => true,
        Some("assistant") => false,
        _ => return None,
    };
    let told = message.get("timestamp").and_then(|time| time.parse::<f64>().ok()).map(|time| time as u64);
    let entered = || entry.str("timestamp").and_then(|time| Millis::from_iso(&time)).map(|time| time.0);
    Some(Spoken { by_user, time: told.or_else(entered).unwrap_or_default(), content: message.get("content") })
}

/// The lines of a file that are not blank, without padding.
struct Lines {
    input: BufReader<File>,
    path: PathBuf,
    line: Vec<u8>,
    read: u64,
}

impl Lines {
    fn open(path: &Path) -> Result<Lines, Error> {
        let file = file::open_regular(path, platform::open_for_reading)?;
        Ok(Lines {
            input: BufReader::with_capacity(CHUNK, file),
            path: path.into(),
            line: Vec::new(),
            read: 0,
        })
    }

    fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        loop {
            self.line.clear();
            let read = self.input.read_until(b'\n', &mut self.line);
            let read = read.map_err(|source| Error::Read { path: self.path.clone(), source })?;
            if read == 0 {
                return Ok(None);
            }
            self.read += read as u64;
            if !load::unpadded(&self.line).is_empty() {
                break;
            }
        }
        Ok(Some(load::unpadded(&self.line)))
    }

    /// The header: the first line that is JSON has to be one.
    fn header(&mut self) -> Result<Option<StoredHeader>, Error> {
        loop {
            let Some(line) = self.next()? else { return Ok(None) };
            let text: Cow<'_, str> = String::from_utf8_lossy(line);
            if Raw::parse(&text).is_ok() {
                let line = Raw::from_trusted(Bytes::copy_from_slice(text.as_bytes()));
                return Ok(StoredHeader::read(&line));
            }
            if self.read > MAX_BEFORE_HEADER {
                return Ok(None);
            }
        }
    }
}
