//! What of a run is open on stdout, so that it can be closed for the client when the daemon cannot do it any more.
//!
//! Our records begin with their `type`, so the beginning of a line tells whether it matters. Of the lines that do, only
//! the ones with an assistant message are kept: the newest one of the turn.

use std::time::SystemTime;

use atomic_protocol::json::{self, Fields, NotAnObject, ObjectWriter};

/// What the message and the answers say of a daemon that is gone.
const DAEMON_LOST: &str = "daemon lost";

/// Enough of a line to tell what it is.
const HEAD_BYTES: usize = 64;

/// What stands between the type and the rest of a message if the model said it.
const ASSISTANT: &[u8] = br#","message":{"role":"assistant""#;

/// What a line means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    AgentStart,
    AgentEnd,
    AgentSettled,
    TurnStart,
    TurnEnd,
    AnswerStart,
    AnswerEnd,
    Other,
}

impl Kind {
    /// The kind of a line that begins so.
    #[inline]
    fn of(head: &[u8]) -> Kind {
        // Nearly every line is a `message_update` or an answer: two bytes tell them from what matters.
        match head.get(9) {
            Some(b'a' | b't') => {}
            Some(b'm') if matches!(head.get(17), Some(b's' | b'e')) => {}
            _ => return Kind::Other,
        }
        let Some(name) = head.strip_prefix(br#"{"type":""#) else { return Kind::Other };
        match name.first() {
            Some(b'a') if name.starts_with(br#"agent_start""#) => Kind::AgentStart,
            Some(b'a') if name.starts_with(br#"agent_end""#) => Kind::AgentEnd,
            Some(b'a') if name.starts_with(br#"agent_settled""#) => Kind::AgentSettled,
            Some(b't') if name.starts_with(br#"turn_start""#) => Kind::TurnStart,
            Some(b't') if name.starts_with(br#"turn_end""#) => Kind::TurnEnd,
            Some(b'm') => {
                let (rest, kind) = if let Some(rest) = name.strip_prefix(br#"message_start""#) {
                    (rest, Kind::AnswerStart)
                } else if let Some(rest) = name.strip_prefix(br#"message_end""#) {
                    (rest, Kind::AnswerEnd)
                } else {
                    return Kind::Other;
                };
                if rest.starts_with(ASSISTANT) { kind } else { Kind::Other }
            }
            _ => Kind::Other,
        }
    }

    fn is_kept(self) -> bool {
        matches!(self, Kind::AnswerStart | Kind::AnswerEnd)
    }
}

/// How far the line that passes is known.
#[derive(Debug, Default)]
enum Line {
    /// Nothing of it has passed.
    #[default]
    Begin,
    /// Its first bytes, too few to tell.
    Head(Vec<u8>),
    /// Told; with its bytes so far if they are kept.
    Known(Kind, Vec<u8>),
}

/// The open parts of a run.
#[derive(Debug, Default)]
pub(crate) struct OpenRun {
    line: Line,
    /// Between `agent_start` and `agent_end`.
    agent: bool,
    /// Between `agent_start` and `agent_settled`.
    unsettled: bool,
    turn: bool,
    /// The model's message is between its start and its end.
    answering: bool,
    /// The line of the turn's newest assistant message: its end, or its start while that is all there is.
    answer: Vec<u8>,
}

impl OpenRun {
    /// Looks at the next bytes of a line, without its LF; `ended` says that they are its last ones.
    #[inline]
    pub(crate) fn see(&mut self, piece: &[u8], ended: bool) {
        if ended && matches!(self.line, Line::Begin) {
            let kind = Kind::of(piece);
            if kind != Kind::Other {
                self.apply(kind, piece);
            }
        } else {
            self.see_part(piece, ended);
        }
    }

    fn see_part(&mut self, piece: &[u8], ended: bool) {
        let mut line = match std::mem::take(&mut self.line) {
            Line::Begin => Line::Head(piece.to_vec()),
            Line::Head(mut head) => {
                head.extend_from_slice(piece);
                Line::Head(head)
            }
            Line::Known(kind, mut bytes) => {
                if kind.is_kept() {
                    bytes.extend_from_slice(piece);
                }
                Line::Known(kind, bytes)
            }
        };
        if let Line::Head(head) = &mut line
            && (ended || head.len() >= HEAD_BYTES)
        {
            let kind = Kind::of(head);
            line = Line::Known(kind, if kind.is_kept() { std::mem::take(head) } else { Vec::new() });
        }
        match line {
            // Half a line is nothing to the client, so it counts when its end has come.
            Line::Known(kind, bytes) if ended => self.apply(kind, &bytes),
            line => self.line = line,
        }
    }

    fn apply(&mut self, kind: Kind, line: &[u8]) {
        match kind {
            Kind::AgentStart => (self.agent, self.unsettled) = (true, true),
            Kind::AgentEnd => self.agent = false,
            Kind::AgentSettled => self.unsettled = false,
            Kind::TurnStart | Kind::TurnEnd => {
                self.turn = kind == Kind::TurnStart;
                self.answer = Vec::new();
            }
            Kind::AnswerStart | Kind::AnswerEnd => {
                self.answering = kind == Kind::AnswerStart;
                self.answer.clear();
                self.answer.extend_from_slice(line);
            }
            Kind::Other => {}
        }
    }

    /// Appends the records that close what is open, as a run that failed would end.
    pub(crate) fn close(&mut self, out: &mut Vec<u8>) {
        let run = std::mem::take(self);
        let text = json::text(&run.answer);
        let answer = fields(&text).ok().and_then(|fields| fields.get("message"));
        let message = match answer {
            Some(message) if run.answering => failed(message),
            Some(message) => message.as_bytes().to_vec(),
            None => unknown(),
        };
        // Written here and not by the protocol's types: those carry the code of all records and messages, and a shim
        // is loaded once per window. The tests read what stands here with the types.
        if run.answering {
            record(out, "message_end", &[("message", &message)]);
        }
        if run.turn {
            record(out, "turn_end", &[("message", &message), ("toolResults", b"[]")]);
        }
        if run.agent {
            let messages = if run.answering { [b"[", &message[..], b"]"].concat() } else { b"[]".to_vec() };
            record(out, "agent_end", &[("messages", &messages), ("willRetry", b"false")]);
        }
        if run.unsettled {
            record(out, "agent_settled", &[("aborted", b"false")]);
        }
    }
}

/// The fields of a record. In one place of the program: the parser is a good part of it.
#[inline(never)]
pub(crate) fn fields(text: &str) -> Result<Fields<'_>, NotAnObject> {
    Fields::parse(text)
}

/// Appends a record with its LF.
fn record(out: &mut Vec<u8>, name: &str, fields: &[(&str, &[u8])]) {
    let mut object = ObjectWriter::begin(out);
    object.str("type", name);
    for (key, value) in fields {
        object.raw(key, value);
    }
    object.end();
    out.push(b'\n');
}

/// The message that began as `message` and will not go on. What streamed is not in it: the file has none of it either.
fn failed(message: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::begin(&mut out);
    if let Ok(fields) = fields(message) {
        for (key, value) in fields.iter() {
            match key {
                "stopReason" => object.str(key, "error"),
                "errorMessage" | "endTurn" => continue,
                _ => object.raw(key, value.as_bytes()),
            };
        }
    }
    object.str("errorMessage", DAEMON_LOST);
    object.end();
    out
}

/// The message of a turn in which the model had not begun to answer.
fn unknown() -> Vec<u8> {
    /// Nothing was used.
    const USAGE: &[u8] = br#"{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}"#;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut out = Vec::new();
    let mut object = ObjectWriter::begin(&mut out);
    object.str("role", "assistant").raw("content", b"[]").str("api", "").str("provider", "").str("model", "");
    object.raw("usage", USAGE).str("stopReason", "error").int("timestamp", since.as_millis() as i64);
    object.str("errorMessage", DAEMON_LOST);
    object.end();
    out
}

#[cfg(test)]
mod tests {
    use atomic_protocol::event::Event;
    use atomic_protocol::message::{AssistantMessage, StopReason, Usage};

    use super::*;

    const START: &str = r#"{"type":"message_start","message":{"role":"assistant","content":[],"model":"m","stopReason":"pending","timestamp":7,"responseId":"r"}}"#;
    const END: &str = r#"{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"hi"}],"stopReason":"toolUse"}}"#;
    const FAILED: &str = r#"{"role":"assistant","content":[],"model":"m","stopReason":"error","timestamp":7,"responseId":"r","errorMessage":"daemon lost"}"#;

    /// What closes a run of which these lines have passed, the last one perhaps in part.
    fn closing(lines: &[&str], piece: usize) -> String {
        let mut run = OpenRun::default();
        for line in lines {
            let (whole, ended) = match line.strip_suffix('…') {
                Some(half) => (half, false),
                None => (*line, true),
            };
            let pieces: Vec<&[u8]> = whole.as_bytes().chunks(piece).collect();
            for (index, bytes) in pieces.iter().enumerate() {
                run.see(bytes, ended && index + 1 == pieces.len());
            }
        }
        let mut out = Vec::new();
        run.close(&mut out);
        run.close(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_state_is_closed_by_what_it_lacks() {
        let (agent, turn) = (r#"{"type":"agent_start"}"#, r#"{"type":"turn_start"}"#);
        let user =
            r#"{"type":"message_start","message":{"role":"user","content":"{\"type\":\"agent_settled\"}"}}"#;
        let turn_end = r#"{"type":"turn_end","message":{},"toolResults":[]}"#;
        let settled = "{\"type\":\"agent_settled\",\"aborted\":false}\n";
        let rest = format!("{{\"type\":\"agent_end\",\"messages\":[],\"willRetry\":false}}\n{settled}");
        let cut = format!(
            "{{\"type\":\"message_end\",\"message\":{FAILED}}}\n\
             {{\"type\":\"turn_end\",\"message\":{FAILED},\"toolResults\":[]}}\n\
             {{\"type\":\"agent_end\",\"messages\":[{FAILED}],\"willRetry\":false}}\n{settled}"
        );
        let tools = format!(
            "{{\"type\":\"turn_end\",\"message\":{},\"toolResults\":[]}}\n{rest}",
            &END[r#"{"type":"message_end","message":"#.len()..END.len() - 1]
        );
        let half = format!("{}…", &END[..END.len() - 9]);
        let table: [(&[&str], &str); 11] = [
            (&[], ""),
            (&[r#"{"id":1,"type":"agent_start"}"#, r#"{"type":"agent_started"}"#, ""], ""),
            (&[r#"{"type":"agent_start"…"#], ""),
            (&[agent], &rest),
            (&[agent, turn, user, turn_end], &rest),
            (&[agent, turn, START], &cut),
            (&[agent, turn, START, r#"{"type":"message_update","usage":{}}"#, &half], &cut),
            (&[agent, turn, START, END], &tools),
            (
                &[agent, turn, START, END, r#"{"type":"message_start","message":{"role":"toolResult"}}"#],
                &tools,
            ),
            (
                &[
                    agent,
                    turn,
                    START,
                    END,
                    turn_end,
                    r#"{"type":"agent_end","messages":[{}],"willRetry":false}"#,
                ],
                settled,
            ),
            (
                &[
                    agent,
                    turn,
                    START,
                    END,
                    turn_end,
                    r#"{"type":"agent_end","messages":[],"willRetry":false}"#,
                    settled.trim_end(),
                ],
                "",
            ),
        ];
        for (lines, want) in table {
            for piece in [1, 7, HEAD_BYTES, usize::MAX] {
                assert_eq!(closing(lines, piece), want, "{lines:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_turn_without_an_answer_gets_one_that_says_why() {
        let text = closing(&[r#"{"type":"agent_start"}"#, r#"{"type":"turn_start"}"#], usize::MAX);
        let mut events = text.lines().map(|line| Event::parse(line).unwrap());
        let Some(Event::TurnEnd { message, tool_results }) = events.next() else { panic!("{text}") };
        let read: AssistantMessage = message.read().unwrap();
        assert_eq!(
            serde_json::to_string(&read).unwrap(),
            message.as_str(),
            "every field, in the order of the type"
        );
        assert_eq!((read.stop_reason, read.error_message.as_deref()), (StopReason::Error, Some(DAEMON_LOST)));
        assert!(read.usage == Usage::default() && read.timestamp.0 > 0 && tool_results.is_empty());
        assert_eq!(events.next(), Some(Event::AgentEnd { messages: Vec::new(), will_retry: false }));
        assert_eq!((events.next(), events.next()), (Some(Event::AgentSettled { aborted: false }), None));
    }
}
