//! What is shortened and what stays: the split of a branch.

use atomic_protocol::entry::EntryId;
use atomic_protocol::json::{Fields, Raw};
use atomic_protocol::message::{Block, Message};
use atomic_protocol::transcript::{glance, transcript_lines};

use super::region::Region;
use super::{MIN_LINES, Parameters};
use crate::context;

/// The part of a branch that a compaction looks at, as the session store gives it.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The entry of the last compaction, whose text is shortened again.
    pub previous: Option<Raw>,
    /// Messages from the first one that the last compaction kept, each with its entry.
    pub messages: Vec<(EntryId, Raw)>,
}

/// A branch cut in two.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What is shortened.
    pub region: Region,
    /// The first message that stays. `None`: none stays.
    pub first_kept: Option<EntryId>,
    /// Tokens of what stays, estimated.
    pub kept_tokens: u64,
    /// Tokens of the conversation before.
    pub tokens_before: u64,
    /// As asked for.
    pub parameters: Parameters,
    /// What matters: as asked for, or what the user said last.
    pub query: String,
}

/// What matters when nobody said anything.
const ANY_QUERY: &str = "the latest user request";

/// Splits a branch: the newest [`Parameters::preserve_recent`] messages that a model sees stay, everything before them is to
/// be shortened, with the text that the last compaction left in front. The split goes by count alone and may part a call
/// from its result; what stays becomes text as well, so nothing is lost by that.
///
/// `None`: there is nothing to shorten, or (unless `small` is allowed) fewer than [`MIN_LINES`] lines.
pub fn prepare(source: Source, parameters: Parameters, tokens_before: u64, small: bool) -> Option<Prepared> {
    let mut messages = source.messages;
    let mut query =
        parameters.query.as_deref().map(str::trim).filter(|query| !query.is_empty()).map(str::to_owned);
    let (mut at, mut kept, mut kept_tokens) = (messages.len(), 0, 0);
    let mut looked = messages.len();
    while at > 0 && kept < parameters.preserve_recent {
        let raw = &messages[at - 1].1;
        if let Ok(message) = Message::parse(raw) {
            query = query.or_else(|| said(&message));
            if is_visible(&message) {
                kept += 1;
                kept_tokens += context::estimate(&message);
            }
        }
        at -= 1;
        looked = at;
    }
    while query.is_none() && looked > 0 {
        looked -= 1;
        query = Message::parse(&messages[looked].1).ok().and_then(|message| said(&message));
    }
    // Messages that nobody sees and that stand right before the first kept one go with the region.
    let first_kept = messages.get(at).filter(|_| kept > 0).map(|(id, _)| id.clone());
    messages.truncate(at);
    let mut text = source.previous.as_ref().and_then(summary).unwrap_or_default();
    let rest =
        transcript_lines(messages.into_iter().filter_map(|(_, raw)| glance(&raw).ok()).filter(is_visible));
    if !text.is_empty() && !rest.is_empty() {
        text.push('\n');
    }
    text.push_str(&rest);
    if text.is_empty() {
        return None;
    }
    let region = Region::new(text);
    if region.lines() < MIN_LINES && !small {
        return None;
    }
    let query = query.unwrap_or_else(|| ANY_QUERY.to_owned());
    Some(Prepared { region, first_kept, kept_tokens, tokens_before, parameters, query })
}

fn summary(boundary: &Raw) -> Option<String> {
    Fields::parse(boundary.as_str()).ok()?.str("summary").map(|text| text.into_owned())
}

/// A model sees something of the message.
fn is_visible(message: &Message) -> bool {
    let any = |blocks: &[Block]| blocks.iter().any(context::visible_to_model);
    match message {
        Message::Assistant(_) | Message::ToolResult(_) => true,
        Message::User(message) => any(&message.content.blocks()),
        Message::Custom(message) => !message.exclude_from_context && any(&message.content.blocks()),
        Message::BranchSummary(message) => !message.summary.is_empty(),
        Message::BashExecution(message) => !message.exclude_from_context,
        Message::Other(_) => false,
    }
}

/// What a user or something in the user's place said, if it is visible and not blank.
fn said(message: &Message) -> Option<String> {
    let text = match message {
        Message::User(message) => texts(&message.content.blocks()),
        Message::Custom(message) if !message.exclude_from_context => texts(&message.content.blocks()),
        Message::BranchSummary(message) => message.summary.clone(),
        Message::BashExecution(message) if !message.exclude_from_context => {
            format!("Ran `{}`", message.command)
        }
        _ => return None,
    };
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn texts(blocks: &[Block]) -> String {
    blocks.iter().filter_map(Block::as_text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(messages: &[&str]) -> Source {
        let entry =
            |(at, text): (usize, &&str)| (EntryId(format!("e{at}").into()), Raw::parse(text).unwrap());
        Source { previous: None, messages: messages.iter().enumerate().map(entry).collect() }
    }

    fn parameters(preserve_recent: u64) -> Parameters {
        Parameters { preserve_recent, ..Parameters::default() }
    }

    const USER: &str = r#"{"role":"user","content":"do it"}"#;
    const ANSWER: &str =
        r#"{"role":"assistant","content":[{"type":"text","text":"done"}],"stopReason":"stop"}"#;
    const RESULT: &str = r#"{"role":"toolResult","toolCallId":"1","content":[{"type":"text","text":"r"}]}"#;
    const HIDDEN: &str = r#"{"role":"bashExecution","command":"x","excludeFromContext":true}"#;

    #[test]
    fn the_tail_is_a_count_of_visible_messages() {
        for (messages, keep, first, region) in [
            (&[USER, ANSWER, USER, ANSWER][..], 2, Some("e2"), "[User]: do it\n\n[Assistant]: done"),
            (&[USER, ANSWER, RESULT, RESULT], 2, Some("e2"), "[User]: do it\n\n[Assistant]: done"),
            (&[USER, HIDDEN, ANSWER, HIDDEN, USER], 2, Some("e2"), "[User]: do it"),
            (&[USER, ANSWER], 0, None, "[User]: do it\n\n[Assistant]: done"),
        ] {
            let prepared = prepare(source(messages), parameters(keep), 9, true).unwrap();
            assert_eq!(prepared.first_kept, first.map(EntryId::from), "{messages:?}");
            assert_eq!(prepared.region.from(0), region);
        }
        assert!(
            prepare(source(&[USER, ANSWER]), parameters(2), 9, true).is_none(),
            "nothing is left to shorten"
        );
        assert!(
            prepare(source(&[USER, ANSWER, USER, ANSWER]), parameters(2), 9, false).is_none(),
            "too few lines"
        );
    }

    #[test]
    fn what_the_last_compaction_left_stands_in_front() {
        let previous = Raw::parse(
            r#"{"type":"compaction","summary":"old\n(filtered 3 lines)","firstKeptEntryId":"e0"}"#,
        );
        let source = Source { previous: previous.ok(), ..source(&[USER, ANSWER, USER]) };
        let prepared = prepare(source, parameters(2), 9, true).unwrap();
        assert_eq!(prepared.region.from(0), "old\n(filtered 3 lines)\n[User]: do it");
        assert_eq!(prepared.region.markers(), [(1, 3)]);
    }

    #[test]
    fn what_matters_is_what_was_said_last() {
        let query = |messages: &[&str], query: Option<&str>| {
            let parameters = Parameters { query: query.map(str::to_owned), ..parameters(1) };
            prepare(source(messages), parameters, 9, true).unwrap().query
        };
        let other =
            r#"{"role":"user","content":[{"type":"text","text":" fix "},{"type":"text","text":"this"}]}"#;
        assert_eq!(query(&[USER, ANSWER, other, ANSWER], None), "fix this");
        assert_eq!(query(&[other, ANSWER, ANSWER], None), "fix this");
        assert_eq!(query(&[ANSWER, RESULT], None), ANY_QUERY);
        assert_eq!(query(&[USER, ANSWER], Some("  the parser ")), "the parser");
        assert_eq!(query(&[USER, ANSWER], Some(" ")), "do it");
    }
}
