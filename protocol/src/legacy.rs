//! The dialect `legacy`: every update carries the whole message so far, as seeds 000 and 002 have it.
//!
//! What a client reads grows with the square of an answer's length; that is why the dialect was given up, and why it is
//! only spoken to clients that ask for it.

use crate::cli::Dialect;
use crate::event::{Delta, Event};
use crate::json::{ObjectWriter, Raw};
use crate::message::{AssistantMessage, Block, Message, StopReason, ToolCall};

/// The answer that grows, put together from its events.
#[derive(Debug)]
pub struct Cumulative {
    message: Option<AssistantMessage>,
    /// Argument text of tool calls, by block.
    arguments: Vec<String>,
    read_arguments: fn(&str) -> Raw,
}

impl Cumulative {
    /// `read_arguments` makes an object of the beginning of an object's JSON text.
    pub fn new(read_arguments: fn(&str) -> Raw) -> Cumulative {
        Cumulative { message: None, arguments: Vec::new(), read_arguments }
    }

    /// Appends the event's record. Each event of the session goes through here, in order.
    pub fn write_line(&mut self, event: &Event, out: &mut Vec<u8>) {
        match event {
            Event::MessageStart { message } => match Message::parse(message) {
                Ok(Message::Assistant(mut message)) => {
                    // These clients know no message that is pending.
                    if message.stop_reason == StopReason::Pending {
                        message.stop_reason = StopReason::Stop;
                    }
                    let opening = Event::MessageStart { message: Raw::from_serialize(&message) };
                    self.arguments = vec![String::new(); message.content.len()];
                    self.message = Some(message);
                    opening.write_line_in(Dialect::Legacy, out);
                }
                _ => event.write_line_in(Dialect::Legacy, out),
            },
            Event::MessageEnd { .. } => {
                self.message = None;
                event.write_line_in(Dialect::Legacy, out);
            }
            Event::MessageUpdate { usage, delta, end_turn } => {
                if self.message.is_none() {
                    return event.write_line_in(Dialect::Legacy, out);
                }
                self.apply(usage, delta);
                let so_far = Raw::from_serialize(&self.message);
                let mut record = ObjectWriter::begin(out);
                record.str("type", event.name()).raw("message", so_far.bytes());
                let mut inner = ObjectWriter::begin(record.key("assistantMessageEvent"));
                delta.write_keys(&mut inner);
                inner.raw("partial", so_far.bytes());
                inner.end();
                if let Some(end_turn) = end_turn {
                    record.bool("endTurn", *end_turn);
                }
                record.end();
                out.push(b'\n');
            }
            _ => event.write_line_in(Dialect::Legacy, out),
        }
    }

    fn apply(&mut self, usage: &Raw, delta: &Delta) {
        let Some(message) = &mut self.message else { return };
        if let Ok(usage) = usage.read() {
            message.usage = usage;
        }
        let content = &mut message.content;
        let mut open = |index: usize, block: Block| {
            if index == content.len() {
                content.push(block);
                self.arguments.push(String::new());
            }
        };
        match delta {
            Delta::TextStart { index } => open(*index, Block::text("")),
            Delta::ThinkingStart { index } => {
                open(*index, Block::Thinking { thinking: String::new(), signature: None, redacted: false });
            }
            Delta::ToolCallStart { index, id, tool_name } => open(
                *index,
                Block::ToolCall(ToolCall {
                    id: id.clone(),
                    name: tool_name.clone(),
                    arguments: Raw::empty_object(),
                    thought_signature: None,
                }),
            ),
            Delta::TextDelta { index, delta } => {
                if let Some(Block::Text { text, .. }) = content.get_mut(*index) {
                    text.push_str(delta);
                }
            }
            Delta::ThinkingDelta { index, delta } => {
                if let Some(Block::Thinking { thinking, .. }) = content.get_mut(*index) {
                    thinking.push_str(delta);
                }
            }
            Delta::ToolCallDelta { index, delta } => {
                if let (Some(Block::ToolCall(call)), Some(text)) =
                    (content.get_mut(*index), self.arguments.get_mut(*index))
                {
                    text.push_str(delta);
                    call.arguments = (self.read_arguments)(text);
                }
            }
            Delta::ToolCallEnd { index, tool_call } => {
                if let (Some(Block::ToolCall(call)), Ok(Block::ToolCall(whole))) =
                    (content.get_mut(*index), tool_call.read())
                {
                    *call = whole;
                }
            }
            Delta::TextEnd { .. } | Delta::ThinkingEnd { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_carry_the_message_so_far_and_nothing_settles() {
        let mut cumulative = Cumulative::new(|text| {
            Raw::parse(text).unwrap_or_else(|_| Raw::parse(r#"{"half":true}"#).expect("an object"))
        });
        let start = r#"{"role":"assistant","content":[],"api":"a","provider":"p","model":"m","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"pending","timestamp":1}"#;
        let usage = Raw::parse(r#"{"input":7,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":7,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}"#).unwrap();
        let update = |delta| Event::MessageUpdate { usage: usage.clone(), delta, end_turn: None };
        let events = [
            Event::MessageStart { message: Raw::parse(start).unwrap() },
            update(Delta::TextStart { index: 0 }),
            update(Delta::TextDelta { index: 0, delta: "Hel".into() }),
            update(Delta::TextDelta { index: 0, delta: "lo".into() }),
            update(Delta::ToolCallStart { index: 1, id: "c".into(), tool_name: "bash".into() }),
            update(Delta::ToolCallDelta { index: 1, delta: "{\"command\":".into() }),
            update(Delta::ToolCallDelta { index: 1, delta: "1}".into() }),
            Event::AgentSettled { aborted: false },
        ];
        let mut out = Vec::new();
        for event in &events {
            cumulative.write_line(event, &mut out);
        }
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 7, "{text}");
        assert_eq!(lines[0]["message"]["stopReason"], "stop");
        assert_eq!(lines[3]["message"]["content"][0]["text"], "Hello");
        assert_eq!(lines[3]["assistantMessageEvent"]["partial"], lines[3]["message"]);
        assert_eq!(lines[3]["message"]["usage"]["input"], 7);
        assert_eq!(lines[5]["message"]["content"][1]["arguments"]["half"], true);
        assert_eq!(lines[6]["message"]["content"][1]["arguments"]["command"], 1);
        let keys = text.lines().nth(2).unwrap();
        assert!(keys.starts_with(r#"{"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Hel"}]"#));
        assert!(keys.contains(
            r#""assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"Hel","partial":{"#
        ));
    }
}
