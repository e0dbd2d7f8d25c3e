//! The summary of a branch that is left (reference compaction 12).

use std::sync::Arc;

use atomic_protocol::json::{ObjectWriter, Raw};
use atomic_protocol::message::{Message, Usage};
use atomic_protocol::transcript::transcript_brief;

use super::files::Files;
use super::notes::{self, Instructions, Notes, Read};
use super::plan::PlannerAnswer;
use super::step::{Begun, PlanOutcome, Work};
use crate::context;

/// An entry of the branch that is left.
#[derive(Clone, Debug)]
pub struct LeftBehind {
    /// What it says, as a message.
    pub message: Raw,
    /// Its line, if it stands for others: a compaction or the summary of a branch.
    pub summary: Option<Raw>,
}

/// How the summary of a branch begins.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchBegin {
    /// What the client wants of it.
    pub instructions: Instructions,
    /// Tokens of the context window that the branch must not take.
    pub reserve_tokens: u64,
}

/// A summary that is being asked for. Cloning shares the texts.
#[derive(Clone, Debug)]
pub struct BranchPlan {
    shared: Arc<Shared>,
    /// Texts at the beginning that the model is not shown, since it could not take all.
    offset: usize,
}

#[derive(Debug)]
struct Shared {
    /// One for each message that is shown, the oldest first.
    texts: Vec<String>,
    files: Files,
    instructions: Instructions,
}

/// The summary of a branch.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchSummary {
    /// The text.
    pub text: String,
    /// `readFiles` and `modifiedFiles`.
    pub details: Raw,
    /// What it took, if a model was asked.
    pub usage: Option<Usage>,
}

/// Tokens of a context window that nobody knows.
const WINDOW: u64 = 128_000;

/// What stands before the text.
const PREAMBLE: &str =
    "Before coming back here, the conversation went down another branch.\nNotes on what happened there:\n\n";

/// The text when nothing was said on the branch (literal of the reference).
const NOTHING: &str = "No content to summarize";

/// A part of the budget, in percent, below which an older summary is taken in although it does not fit.
const SUMMARY_PERCENT: u64 = 90;

impl BranchBegin {
    /// Writes the branch down for a model with a window of `window` tokens (0: not known): the newest messages that fit, and
    /// no tool results, since the calls say what was done.
    pub fn begin(self, left: Vec<LeftBehind>, window: u64) -> Begun {
        let window = if window == 0 { WINDOW } else { window };
        let budget = window.saturating_sub(self.reserve_tokens);
        let mut files = Files::default();
        left.iter().filter_map(|entry| entry.summary.as_ref()).for_each(|line| files.take_entry(line));
        let (mut texts, mut tokens) = (Vec::new(), 0u64);
        for LeftBehind { message, summary } in left.into_iter().rev() {
            let Ok(message) = Message::parse(&message) else { continue };
            if matches!(message, Message::ToolResult(_) | Message::Other(_)) {
                continue;
            }
            files.take_calls(&message);
            let takes = context::estimate(&message);
            let fits = tokens.saturating_add(takes) <= budget;
            let squeezed = summary.is_some() && tokens < budget.saturating_mul(SUMMARY_PERCENT) / 100;
            if fits || squeezed {
                tokens = tokens.saturating_add(takes);
                texts.push(transcript_brief([message]));
            }
            if !fits {
                break;
            }
        }
        texts.retain(|text| !text.is_empty());
        if texts.is_empty() {
            let summary = BranchSummary { text: NOTHING.to_owned(), details: details(&files), usage: None };
            return Begun::Over(PlanOutcome::Summarized(Box::new(summary)));
        }
        texts.reverse();
        let shared = Shared { texts, files, instructions: self.instructions };
        Begun::Ask(Work::Branch(BranchPlan { shared: Arc::new(shared), offset: 0 }))
    }
}

impl BranchPlan {
    pub(super) fn request(&self) -> String {
        let record = self.shared.texts[self.offset..].join("\n\n");
        notes::request(&record, Notes::Branch, &self.shared.instructions)
    }

    /// With the older half left out. `None`: there is one message only.
    pub(super) fn trimmed(&self) -> Option<BranchPlan> {
        let shown = self.shared.texts.len() - self.offset;
        (shown > 1)
            .then(|| BranchPlan { shared: self.shared.clone(), offset: self.offset + (shown / 2).max(1) })
    }

    pub(super) fn outcome(self, answer: PlannerAnswer, window: u64) -> PlanOutcome {
        match notes::read(answer, window) {
            Read::Notes(text, usage) => PlanOutcome::Summarized(Box::new(BranchSummary {
                text: format!("{PREAMBLE}{text}{}", self.shared.files.text()),
                details: details(&self.shared.files),
                usage: Some(usage),
            })),
            Read::TooLong => PlanOutcome::TooLong(Work::Branch(self)),
            Read::Failed(failure) => PlanOutcome::Failed { work: Work::Branch(self), failure },
            Read::Empty => PlanOutcome::Unusable { work: Work::Branch(self), why: notes::EMPTY.to_owned() },
        }
    }
}

fn details(files: &Files) -> Raw {
    let mut out = Vec::new();
    let mut object = ObjectWriter::begin(&mut out);
    files.write(&mut object);
    object.end();
    Raw::from_trusted(out.into())
}
