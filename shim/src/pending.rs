//! The client's lines that nobody has answered yet, kept for the day the daemon is lost.

use std::collections::BTreeMap;

use atomic_protocol::Raw;
use atomic_protocol::link::KEEP_LINE_BYTES;

use crate::lost;

/// What is kept of a long line: enough to name its command, which clients write near the beginning.
const HEAD_BYTES: usize = 256;

/// A line without an answer.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    /// Its bytes, without LF.
    Whole(Vec<u8>),
    /// What remains of an admitted line that is too long to keep.
    Long {
        /// Its id, as the daemon told.
        id: Option<Raw>,
        /// Its first bytes.
        head: Box<[u8]>,
    },
}

/// All lines without an answer, by their number on the connection.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Nobody expects answers: lines are kept only until a daemon has welcomed the client, and never answered.
    pub(crate) unanswered: bool,
    welcomed: bool,
    /// Number of the newest complete line; lines count from 1.
    last: u64,
    /// Lines up to this one are admitted.
    admitted: u64,
    /// The line that has no LF yet.
    open: Vec<u8>,
    lines: BTreeMap<u64, Line>,
}

impl Pending {
    /// Takes bytes that go to the daemon; call it before they do, or an answer may come for a line nobody knows.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        if self.unanswered && self.welcomed {
            return;
        }
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.open.extend_from_slice(&bytes[..end]);
            self.last += 1;
            self.lines.insert(self.last, Line::Whole(std::mem::take(&mut self.open)));
            bytes = &bytes[end + 1..];
        }
        self.open.extend_from_slice(bytes);
    }

    /// A daemon has welcomed the client: what went to it counts.
    pub(crate) fn welcomed(&mut self) {
        self.welcomed = true;
        if self.unanswered {
            self.lines.clear();
            self.open = Vec::new();
        }
    }

    /// Notes what the daemon told.
    pub(crate) fn progress(&mut self, admitted: Option<u64>, answered: &[u64], ids: BTreeMap<u64, Raw>) {
        for number in answered {
            self.lines.remove(number);
        }
        self.admit(admitted, ids);
    }

    fn admit(&mut self, admitted: Option<u64>, mut ids: BTreeMap<u64, Raw>) {
        let Some(admitted) = admitted.map(|number| number.min(self.last)).filter(|new| *new > self.admitted)
        else {
            return;
        };
        for (number, line) in self.lines.range_mut(self.admitted + 1..=admitted) {
            if let Line::Whole(bytes) = line
                && bytes.len() > KEEP_LINE_BYTES
            {
                *line = Line::Long { id: ids.remove(number), head: bytes[..HEAD_BYTES].into() };
            }
        }
        self.admitted = admitted;
    }

    /// Appends the answers that the lost daemon owes for the lines it admitted, and forgets these. The others are
    /// numbered anew, for the next connection.
    pub(crate) fn answer_admitted(&mut self, out: &mut Vec<u8>) {
        let lines = std::mem::take(&mut self.lines);
        self.last = 0;
        for (number, line) in lines {
            if number <= self.admitted {
                lost::answer(&line, true, out);
            } else {
                self.last += 1;
                self.lines.insert(self.last, line);
            }
        }
        self.admitted = 0;
    }

    /// Appends the answers for lines that no daemon will admit any more.
    pub(crate) fn answer_rest(&mut self, out: &mut Vec<u8>) {
        for line in std::mem::take(&mut self.lines).values().filter(|_| !self.unanswered) {
            lost::answer(line, false, out);
        }
    }

    /// The lines as they go to the next daemon, the open one last. Of none anything was admitted.
    pub(crate) fn backlog(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for line in self.lines.values() {
            // Only an admitted line is cut.
            if let Line::Whole(bytes) = line {
                out.extend_from_slice(bytes);
                out.push(b'\n');
            }
        }
        out.extend_from_slice(&self.open);
        out
    }

    /// Every complete line is answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(pending: &Pending) -> String {
        let mut copy = Pending { admitted: pending.admitted, last: pending.last, ..Pending::default() };
        copy.lines = pending.lines.iter().map(|(number, line)| (*number, line.clone())).collect();
        let mut out = Vec::new();
        copy.answer_admitted(&mut out);
        copy.answer_rest(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_was_not_admitted_begins_anew() {
        let mut pending = Pending::default();
        pending.add(
            b"{\"id\":1,\"type\":\"a\"}\n{\"id\":2,\"type\":\"b\"}\n{\"id\":3,\"type\":\"c\"}\n\n{\"id\":5",
        );
        pending.progress(Some(2), &[1], BTreeMap::new());
        let mut out = Vec::new();
        pending.answer_admitted(&mut out);
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(out.starts_with(b"{\"id\":2,"));
        assert_eq!(pending.backlog(), b"{\"id\":3,\"type\":\"c\"}\n\n{\"id\":5");
        // The next daemon counts from 1, and a line that was open goes on.
        pending.add(b",\"type\":\"e\"}\n");
        pending.progress(Some(3), &[1, 2], BTreeMap::new());
        out.clear();
        pending.answer_admitted(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"id\":5,\"type\":\"response\",\"command\":\"e\",\"success\":false,\"error\":\"daemon lost; outcome unknown\"}\n"
        );
        assert!(pending.is_empty() && pending.backlog().is_empty());
    }

    #[test]
    fn lines_without_answers_are_kept_until_somebody_has_them() {
        let mut pending = Pending { unanswered: true, ..Pending::default() };
        pending.add(b"{\"type\":\"prompt\"}\n");
        assert_eq!(pending.backlog(), b"{\"type\":\"prompt\"}\n", "there may be no daemon yet");
        assert_eq!(answers(&Pending { unanswered: true, ..Pending::default() }), "");
        pending.welcomed();
        pending.add(b"{\"type\":\"prompt\"}\n");
        assert!(pending.backlog().is_empty());
    }

    #[test]
    fn what_is_answered_is_forgotten_and_the_rest_is_owed() {
        let mut pending = Pending::default();
        pending.add(b"{\"id\":1,\"type\":\"a\"}\n{\"id\":2,\"ty");
        pending.add(b"pe\":\"b\"}\n{\"id\":3,\"type\":\"c\"}\n{\"id\":4");
        pending.progress(Some(2), &[1], BTreeMap::new());
        assert_eq!(
            answers(&pending),
            "{\"id\":2,\"type\":\"response\",\"command\":\"b\",\"success\":false,\"error\":\"daemon lost; outcome unknown\"}\n\
             {\"id\":3,\"type\":\"response\",\"command\":\"c\",\"success\":false,\"error\":\"daemon lost; not executed\"}\n",
            "a line without LF is no line yet"
        );
        pending.progress(Some(3), &[3, 2, 99], BTreeMap::new());
        assert!(pending.lines.is_empty());
    }

    #[test]
    fn of_a_long_admitted_line_only_id_and_head_stay() {
        let mut pending = Pending::default();
        let line = format!(
            "{{\"type\":\"prompt\",\"message\":\"{}\",\"id\":\"long\"}}\n",
            "x".repeat(KEEP_LINE_BYTES)
        );
        pending.add(line.as_bytes());
        assert!(answers(&pending).contains("not executed"));
        let id = Raw::parse("\"long\"").unwrap();
        pending.progress(Some(1), &[], BTreeMap::from([(1, id)]));
        assert!(matches!(&pending.lines[&1], Line::Long { head, .. } if head.len() == HEAD_BYTES));
        assert_eq!(
            answers(&pending),
            "{\"id\":\"long\",\"type\":\"response\",\"command\":\"prompt\",\"success\":false,\"error\":\"daemon lost; outcome unknown\"}\n"
        );
    }

    #[test]
    fn a_daemon_that_counts_wrong_does_no_harm() {
        let mut pending = Pending::default();
        pending.add(b"{\"type\":\"a\"}\n");
        pending.progress(Some(u64::MAX), &[7], BTreeMap::new());
        pending.add(b"{\"type\":\"b\"}\n");
        assert!(
            answers(&pending)
                .ends_with("\"command\":\"b\",\"success\":false,\"error\":\"daemon lost; not executed\"}\n")
        );
    }
}
