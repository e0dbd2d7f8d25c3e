//! What clients are told of compactions (seed 001 "compaction_start / compaction_end", reference 2.1 and 2.8).

use std::borrow::Cow;

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
        object.str("reason", self.reason.as_str()).value("result", &self.result);
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
