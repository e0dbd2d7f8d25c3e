//! Compaction by a summary, as Pi does it: the older part of a branch is replaced by a model's notes, the rest stays as it is.
//!
//! What stays is as much as [`SummaryParameters::keep_recent_tokens`] of the newest messages and never begins with a tool's
//! result. Where that cuts a turn in two, the beginning of the turn gets notes of its own.

use std::sync::Arc;

use atomic_protocol::entry::EntryId;
use atomic_protocol::json::{Fields, ObjectWriter, Raw};
use atomic_protocol::message::{Cost, Message, Usage};
use atomic_protocol::transcript::transcript_brief;

use super::Source;
use super::files::Files;
use super::notes::{self, Instructions, Notes, Read};
use super::plan::PlannerAnswer;
use super::result::{Boundary, STRATEGY};
use super::step::{Begun, PlanOutcome, Work};
use crate::context::{self, CHARS_PER_TOKEN, units};

/// Marks compactions of this kind in `details.strategy`; Pi takes any compaction for a boundary.
pub const SUMMARY_STRATEGY: &str = "summary";

/// How a conversation is summed up.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryParameters {
    /// Tokens of the newest messages to keep as they are.
    pub keep_recent_tokens: u64,
    /// Tokens of the context window to keep free.
    pub reserve_tokens: u64,
    /// What the client wants of it.
    pub instructions: Instructions,
}

/// Stands between the notes on the conversation and those on the beginning of the turn that was cut.
const TURN_HEADING: &str = "\n\n---\n\n**The turn that was cut, its beginning:**\n\n";

/// The notes on the conversation before a turn that is all there is.
const NO_HISTORY: &str = "Nothing was said before this turn.";

/// A summary that is being asked for, in one or two parts. Cloning shares the texts.
#[derive(Clone, Debug)]
pub struct SummaryPlan {
    shared: Arc<Shared>,
    /// Texts at the beginning of the part that the model is not shown, since it could not take all.
    offset: usize,
    /// The notes on the conversation, once they are there; then the beginning of the cut turn is the part asked for.
    history: Option<String>,
    usage: Usage,
}

#[derive(Debug)]
struct Shared {
    /// One for each message before the cut, or before the turn that it goes through, the oldest first.
    history: Vec<String>,
    /// One for each message of that turn before the cut.
    turn: Vec<String>,
    /// The notes that an earlier compaction left.
    previous: Option<String>,
    files: Files,
    first_kept: EntryId,
    kept_tokens: u64,
    tokens_before: u64,
    instructions: Instructions,
}

/// A summary, ready to be written down.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// What stands for the older part from now on.
    pub text: String,
    /// The first message that stays.
    pub first_kept: EntryId,
    /// Tokens of the conversation before.
    pub tokens_before: u64,
    /// Tokens of the conversation after, estimated.
    pub tokens_after: u64,
    /// What it took.
    pub usage: Option<Usage>,
    files: Files,
}

/// Where a branch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// The first message that stays.
    kept: usize,
    /// Where the turn begins that the cut goes through; `kept` when it goes through none.
    turn: usize,
}

/// Tokens of each message, whether a cut may stand before it, and whether a turn begins with it.
struct Weighed {
    tokens: u64,
    may_begin: bool,
    begins_turn: bool,
}

impl Weighed {
    fn of(message: &Message) -> Weighed {
        let begins_turn = matches!(
            message,
            Message::User(_) | Message::BashExecution(_) | Message::Custom(_) | Message::BranchSummary(_)
        );
        let may_begin = begins_turn || matches!(message, Message::Assistant(_));
        Weighed { tokens: context::estimate(message), may_begin, begins_turn }
    }
}

/// Goes back from the newest message until `keep` tokens are kept, then forward to where a cut may stand; when there is no
/// such place (a huge result at the very end), back to the call. `None`: everything fits into what is kept.
fn cut(messages: &[Weighed], keep: u64) -> Option<Cut> {
    let mut tokens = 0u64;
    let reached = messages.iter().rposition(|message| {
        tokens = tokens.saturating_add(message.tokens);
        tokens >= keep
    })?;
    let ahead = messages[reached..].iter().position(|message| message.may_begin).map(|at| reached + at);
    let kept = ahead.or_else(|| messages[..reached].iter().rposition(|message| message.may_begin))?;
    let turn = messages[..=kept].iter().rposition(|message| message.begins_turn).unwrap_or(kept);
    (kept > 0).then_some(Cut { kept, turn })
}

impl SummaryParameters {
    /// Cuts the branch and writes its older part down for a model with a window of `window` tokens (0: not known).
    pub(super) fn begin(self, source: Source, tokens_before: u64, window: u64) -> Begun {
        let mut files = Files::default();
        let previous = source.previous.as_ref().and_then(|line| previous(line, &mut files));
        let parsed: Vec<(EntryId, Message)> = source
            .messages
            .into_iter()
            .filter_map(|(id, raw)| Some((id, Message::parse(&raw).ok()?)))
            .collect();
        let weighed: Vec<Weighed> = parsed.iter().map(|(_, message)| Weighed::of(message)).collect();
        let keep = match window {
            0 => self.keep_recent_tokens,
            // A window that is small gets a tail that leaves room for more than itself.
            window => self.keep_recent_tokens.min(window.saturating_sub(self.reserve_tokens) / 2),
        };
        let Some(cut) = cut(&weighed, keep) else { return Begun::Over(PlanOutcome::Nothing) };
        let kept_tokens = weighed[cut.kept..].iter().map(|message| message.tokens).sum();
        let first_kept = parsed[cut.kept].0.clone();
        let (mut history, mut turn) = (Vec::new(), Vec::new());
        let mut own = None;
        match previous {
            // Lines of the conversation are no notes: they are summed up with the rest.
            Some(Previous::Lines(text)) => history.push(text),
            Some(Previous::Notes(text)) => own = Some(text),
            None => {}
        }
        for (at, (_, message)) in parsed.into_iter().take(cut.kept).enumerate() {
            files.take_calls(&message);
            if at < cut.turn { &mut history } else { &mut turn }.push(transcript_brief([message]));
        }
        history.retain(|text| !text.is_empty());
        turn.retain(|text| !text.is_empty());
        if history.is_empty() && turn.is_empty() {
            return Begun::Over(PlanOutcome::Nothing);
        }
        let room = notes::room(window);
        // Notes that there were are kept whatever happens: without a part to ask for they stay as they are.
        let before = history.is_empty().then(|| own.clone().unwrap_or_else(|| NO_HISTORY.to_owned()));
        let part = if before.is_none() { &history } else { &turn };
        let offset = notes::overhang(part, room.saturating_sub(own.as_deref().map_or(0, units)));
        let shared = Shared {
            history,
            turn,
            previous: own,
            files,
            first_kept,
            kept_tokens,
            tokens_before,
            instructions: self.instructions,
        };
        let plan = SummaryPlan { shared: Arc::new(shared), offset, history: before, usage: Usage::default() };
        Begun::Ask(Work::Summary(plan))
    }
}

/// What the last compaction left.
enum Previous {
    Lines(String),
    Notes(String),
}

fn previous(line: &Raw, files: &mut Files) -> Option<Previous> {
    files.take_entry(line);
    let fields = Fields::parse(line.as_str()).ok()?;
    let text = fields.str("summary").filter(|text| !text.is_empty())?.into_owned();
    let details = fields.get("details").and_then(|details| Fields::parse(details).ok());
    let lines = details.is_some_and(|details| details.str("strategy").as_deref() == Some(STRATEGY));
    Some(if lines { Previous::Lines(text) } else { Previous::Notes(text) })
}

impl SummaryPlan {
    fn part(&self) -> &[String] {
        if self.history.is_none() { &self.shared.history } else { &self.shared.turn }
    }

    pub(super) fn request(&self) -> String {
        let record = self.part()[self.offset..].join("\n\n");
        match (&self.history, &self.shared.previous) {
            (Some(_), _) => notes::request(&record, Notes::TurnStart, &Instructions::default()),
            (None, Some(previous)) => {
                notes::request(&record, Notes::More(previous), &self.shared.instructions)
            }
            (None, None) => notes::request(&record, Notes::Conversation, &self.shared.instructions),
        }
    }

    /// With the older half of the part left out. `None`: there is one message only.
    pub(super) fn trimmed(&self) -> Option<SummaryPlan> {
        let shown = self.part().len() - self.offset;
        (shown > 1).then(|| SummaryPlan { offset: self.offset + (shown / 2).max(1), ..self.clone() })
    }

    pub(super) fn outcome(mut self, answer: PlannerAnswer, window: u64) -> PlanOutcome {
        let (text, usage) = match notes::read(answer, window) {
            Read::Notes(text, usage) => (text, usage),
            Read::TooLong => return PlanOutcome::TooLong(Work::Summary(self)),
            Read::Failed(failure) => return PlanOutcome::Failed { work: Work::Summary(self), failure },
            Read::Empty => {
                return PlanOutcome::Unusable { work: Work::Summary(self), why: notes::EMPTY.to_owned() };
            }
        };
        add(&mut self.usage, &usage);
        match self.history.take() {
            Some(history) => self.done(format!("{history}{TURN_HEADING}{text}")),
            None if self.shared.turn.is_empty() => self.done(text),
            None => {
                self.offset = notes::overhang(&self.shared.turn, notes::room(window));
                self.history = Some(text);
                PlanOutcome::Further(Work::Summary(self))
            }
        }
    }

    fn done(self, mut text: String) -> PlanOutcome {
        text.push_str(&self.shared.files.text());
        let tokens_after = units(&text).div_ceil(CHARS_PER_TOKEN) + self.shared.kept_tokens;
        let summary = Summary {
            text,
            first_kept: self.shared.first_kept.clone(),
            tokens_before: self.shared.tokens_before,
            tokens_after,
            usage: Some(self.usage),
            files: self.shared.files.clone(),
        };
        PlanOutcome::Done(Box::new(Boundary::Summary(summary)))
    }
}

impl Summary {
    /// The result as clients of Pi get it (seed 003, `compact`).
    pub(super) fn result(&self, backup: Option<&str>) -> Raw {
        let mut out = Vec::with_capacity(self.text.len() + 512);
        let mut object = ObjectWriter::begin(&mut out);
        object.str("summary", &self.text).str("firstKeptEntryId", self.first_kept.as_str());
        object.count("tokensBefore", self.tokens_before).count("estimatedTokensAfter", self.tokens_after);
        if let Some(usage) = &self.usage {
            object.value("usage", usage);
        }
        object.raw("details", self.details(backup).bytes());
        object.end();
        Raw::from_trusted(out.into())
    }

    /// `details` of the entry.
    pub(super) fn details(&self, backup: Option<&str>) -> Raw {
        let mut out = Vec::new();
        let mut object = ObjectWriter::begin(&mut out);
        object.str("strategy", SUMMARY_STRATEGY);
        self.files.write(&mut object);
        if let Some(path) = backup {
            object.str("backupPath", path);
        }
        object.end();
        Raw::from_trusted(out.into())
    }
}

fn add(sum: &mut Usage, more: &Usage) {
    for (sum, more) in [
        (&mut sum.input, more.input),
        (&mut sum.output, more.output),
        (&mut sum.cache_read, more.cache_read),
        (&mut sum.cache_write, more.cache_write),
        (&mut sum.total_tokens, more.total_tokens),
    ] {
        *sum = sum.saturating_add(more);
    }
    if let Some(reasoning) = more.reasoning {
        sum.reasoning = Some(sum.reasoning.unwrap_or(0).saturating_add(reasoning));
    }
    let Cost { input, output, cache_read, cache_write, total } = &mut sum.cost;
    for (sum, more) in [
        (input, more.cost.input),
        (output, more.cost.output),
        (cache_read, more.cost.cache_read),
        (cache_write, more.cost.cache_write),
        (total, more.cost.total),
    ] {
        *sum += more;
    }
}
