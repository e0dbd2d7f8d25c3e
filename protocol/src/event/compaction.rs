//! What clients are told of compactions (seed 001 "compaction_start / compaction_end", reference 2.1 and 2.8).

use std::borrow::Cow;

use bytes::Bytes;

use crate::json::{Fields, ObjectWriter, Raw};

/// Why a conversation is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionReason {
    /// Somebody asked for it.
    Manual,
    /// The context window is nearly full.
    Threshold,
    /// A request did not fit, or an answer was cut off for lack of room.
    Overflow,
}

impl CompactionReason {
    /// The wire's word.
    pub fn as_str(self) -> &'static str {
        match self {
            CompactionReason::Manual => "manual",
            CompactionReason::Threshold => "threshold",
            CompactionReason::Overflow => "overflow",
        }
    }

    /// From the wire's word.
    pub fn parse(word: &str) -> Option<CompactionReason> {
        [CompactionReason::Manual, CompactionReason::Threshold, CompactionReason::Overflow]
            .into_iter()
            .find(|reason| reason.as_str() == word)
    }
}

/// How a compaction ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionEnd {
    /// Why it was made.
    pub reason: CompactionReason,
    /// What it came to, once that is in the file.
    pub result: Option<Raw>,
    /// Somebody stopped it.
    pub aborted: bool,
    /// The model is asked again now.
    pub will_retry: bool,
    /// The conversation does not fit, and shortening it once did not help.
    pub unresolved_overflow: bool,
    /// It was made between two turns.
    pub mid_turn: bool,
    /// It was stopped because a client asked for one.
    pub manual_takeover_pending: bool,
    /// What failed: the compaction, or what was to follow it.
    pub error_message: Option<String>,
}

impl CompactionEnd {
    /// The end of a compaction of which nothing else is to be said.
    pub fn new(reason: CompactionReason) -> CompactionEnd {
        CompactionEnd {
            reason,
            result: None,
            aborted: false,
            will_retry: false,
            unresolved_overflow: false,
            mid_turn: false,
            manual_takeover_pending: false,
            error_message: None,
        }
    }

    pub(super) fn write(&self, object: &mut ObjectWriter<'_>) {
        self.write_around(object, |at, result| at.extend_from_slice(result));
    }

    /// The record with its LF, in parts: the result, which may be megabytes long, is one of them and is not copied.
    pub fn line_in_parts(&self) -> Vec<Bytes> {
        let mut line = Vec::new();
        let mut object = ObjectWriter::begin(&mut line);
        object.str("type", "compaction_end");
        let mut split = 0;
        self.write_around(&mut object, |at, _| split = at.len());
        object.end();
        line.push(b'\n');
        let line = Bytes::from(line);
        let result =
            self.result.as_ref().map_or(Bytes::from_static(b"null"), |result| result.bytes().clone());
        vec![line.slice(..split), result, line.slice(split..)]
    }

    /// Writes everything but the result, which `place` is given where it belongs.
    fn write_around(&self, object: &mut ObjectWriter<'_>, place: impl FnOnce(&mut Vec<u8>, &[u8])) {
        object.str("reason", self.reason.as_str());
        place(object.key("result"), self.result.as_ref().map_or(b"null", |result| &result.bytes()[..]));
        object.bool("aborted", self.aborted).bool("willRetry", self.will_retry);
        for (key, value) in [
            ("unresolvedOverflow", self.unresolved_overflow),
            ("midTurn", self.mid_turn),
            ("manualTakeoverPending", self.manual_takeover_pending),
        ] {
            if value {
                object.bool(key, true);
            }
        }
        if let Some(error) = &self.error_message {
            object.str("errorMessage", error);
        }
    }

    pub(super) fn parse(fields: &Fields<'_>) -> Option<CompactionEnd> {
        let is = |key| fields.get(key) == Some("true");
        Some(CompactionEnd {
            reason: CompactionReason::parse(&fields.str("reason")?)?,
            result: fields
                .get("result")
                .filter(|text| *text != "null")
                .map(|text| Raw::from_trusted(text.to_owned().into())),
            aborted: is("aborted"),
            will_retry: is("willRetry"),
            unresolved_overflow: is("unresolvedOverflow"),
            mid_turn: is("midTurn"),
            manual_takeover_pending: is("manualTakeoverPending"),
            error_message: fields.str("errorMessage").map(Cow::into_owned),
        })
    }
}
