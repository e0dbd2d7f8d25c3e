//! The client's lines that nobody has answered yet, kept for the day the daemon is lost.

use std::collections::BTreeMap;

use atomic_protocol::Raw;
use atomic_protocol::link::KEEP_LINE_BYTES;

use crate::lost;

/// What is kept of a long line: enough to name its command, which clients write near the beginning.
const HEAD_BYTES: usize = 256;

/// A line without an answer.
#[derive(Debug)]
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

/// All lines without an answer, by number.
#[derive(Debug, Default)]
pub(crate) struct Pending {
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
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.open.extend_from_slice(&bytes[..end]);
            self.last += 1;
            self.lines.insert(self.last, Line::Whole(std::mem::take(&mut self.open)));
            bytes = &bytes[end + 1..];
        }
        self.open.extend_from_slice(bytes);
    }

    /// Notes what the daemon told.
    pub(crate) fn progress(&mut self, admitted: Option<u64>, answered: &[u64], mut ids: BTreeMap<u64, Raw>) {
        for number in answered {
            self.lines.remove(number);
        }
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

    /// Appends the answers that the lost daemon owes.
    pub(crate) fn answer_lost(&self, out: &mut Vec<u8>) {
        for (number, line) in &self.lines {
            lost::answer(line, *number <= self.admitted, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(pending: &Pending) -> String {
        let mut out = Vec::new();
        pending.answer_lost(&mut out);
        String::from_utf8(out).unwrap()
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
