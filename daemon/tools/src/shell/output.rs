//! What a command printed: the end of it in memory, all of it in a file once it is too long for that.

use std::path::PathBuf;

use super::tail::Tail;
use super::text::{PlainText, Utf8Stream};
use super::{Channel, OutputText};
use crate::spill::Spill;
use crate::truncate::{MAX_BYTES, MAX_LINES, Truncation};

/// Takes chunks in the order of their arrival.
#[derive(Debug)]
pub(super) struct Output {
    kind: OutputText,
    // One decoder per channel in both kinds: a character that stderr interrupts on stdout still comes out whole.
    decoders: [Utf8Stream; 2],
    filters: [PlainText; 2],
    tail: Tail,
    full: Full,
    temp_dir: PathBuf,
    session_id: String,
}

/// All bytes as the command wrote them.
#[derive(Debug)]
enum Full {
    /// Few enough to keep at hand.
    Memory { bytes: Vec<u8>, line_feeds: usize },
    /// In a file.
    File(Spill),
    /// The file was refused or a write failed: the reason went to the log.
    Refused,
}

impl Output {
    pub(super) fn new(kind: OutputText, temp_dir: PathBuf, session_id: &str) -> Output {
        Output {
            kind,
            decoders: Default::default(),
            filters: Default::default(),
            tail: Tail::default(),
            full: Full::Memory { bytes: Vec::new(), line_feeds: 0 },
            temp_dir,
            session_id: session_id.to_owned(),
        }
    }

    /// Takes a chunk; gives its text.
    pub(super) async fn push(&mut self, channel: Channel, bytes: &[u8]) -> String {
        self.keep(bytes).await;
        let mut decoded = String::with_capacity(bytes.len());
        self.decoders[channel as usize].push(bytes, &mut decoded);
        self.take(channel, decoded)
    }

    /// The channel has ended; gives the text of what was half a character.
    pub(super) fn end(&mut self, channel: Channel) -> String {
        let mut decoded = String::new();
        self.decoders[channel as usize].finish(&mut decoded);
        self.take(channel, decoded)
    }

    fn take(&mut self, channel: Channel, decoded: String) -> String {
        let text = match self.kind {
            OutputText::Raw => decoded,
            OutputText::Plain => {
                let mut plain = String::with_capacity(decoded.len());
                self.filters[channel as usize].push(&decoded, &mut plain);
                plain
            }
        };
        self.tail.push(&text);
        text
    }

    async fn keep(&mut self, bytes: &[u8]) {
        let result = match &mut self.full {
            Full::Refused => return,
            Full::File(file) => file.write(bytes).await,
            Full::Memory { bytes: kept, line_feeds } => {
                kept.extend_from_slice(bytes);
                *line_feeds += bytes.iter().filter(|byte| **byte == b'\n').count();
                // One more than the limit of lines may be open, so `>=` would be early by one and `>` late by none.
                let lines = *line_feeds + usize::from(kept.last().is_some_and(|byte| *byte != b'\n'));
                if kept.len() <= MAX_BYTES && lines <= MAX_LINES {
                    return;
                }
                let kept = std::mem::take(kept);
                match Spill::create(self.temp_dir.clone(), &self.session_id).await {
                    Ok(mut file) => {
                        let result = file.write(&kept).await;
                        self.full = Full::File(file);
                        result
                    }
                    Err(error) => Err(error),
                }
            }
        };
        if let Err(error) = result {
            let dir = self.temp_dir.display();
            tracing::warn!(%dir, %error, "full output of a command is not kept");
            self.full = Full::Refused;
        }
    }

    /// The end of the text so far.
    pub(super) fn snapshot(&self) -> Truncation {
        self.tail.snapshot()
    }

    /// Bytes of the last line as it was printed.
    pub(super) fn last_line_bytes(&self) -> u64 {
        self.tail.last_line_bytes()
    }

    /// Where the full output is being written; `Some(None)` when that was refused.
    pub(super) fn full_path(&self) -> Option<Option<PathBuf>> {
        match &self.full {
            Full::Memory { .. } => None,
            Full::File(file) => Some(Some(file.path().to_owned())),
            Full::Refused => Some(None),
        }
    }

    /// Waits until the file has all of it; gives its path as [`Output::full_path`] does.
    pub(super) async fn finish(&mut self) -> Option<Option<PathBuf>> {
        match std::mem::replace(&mut self.full, Full::Refused) {
            Full::Memory { .. } => None,
            Full::Refused => Some(None),
            Full::File(file) => {
                let path = file.finish().await;
                if let Err(error) = &path {
                    tracing::warn!(%error, "full output of a command is not kept");
                }
                Some(path.ok())
            }
        }
    }
}
