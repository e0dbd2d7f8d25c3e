//! Link records among records: how they are kept out of what passes through.

use atomic_protocol::link::MARK;

use crate::run::OpenRun;

/// Takes link records out of the daemon's bytes and watches what of a run they leave open.
///
/// It finds the ends of lines and looks at their first bytes, nothing more.
#[derive(Debug)]
pub(crate) struct LinkFilter {
    /// The next byte begins a line.
    line_start: bool,
    /// The beginning of a link record whose LF has not come yet, without its mark.
    record: Option<Vec<u8>>,
    run: OpenRun,
}

impl Default for LinkFilter {
    fn default() -> Self {
        LinkFilter { line_start: true, record: None, run: OpenRun::default() }
    }
}

impl LinkFilter {
    /// Moves everything but link records to the beginning of `bytes` and tells how much that is. Complete link records
    /// go to `records`, without mark and LF.
    pub(crate) fn strip(&mut self, bytes: &mut [u8], records: &mut Vec<Vec<u8>>) -> usize {
        let mut kept = 0;
        // Where the records begin that are not moved yet: they move together, up to the next link record.
        let mut from = 0;
        let mut at = 0;
        while at < bytes.len() {
            if let Some(record) = &mut self.record {
                let lf = memchr::memchr(b'\n', &bytes[at..]);
                let end = lf.map_or(bytes.len(), |lf| at + lf);
                record.extend_from_slice(&bytes[at..end]);
                if lf.is_some() {
                    records.extend(self.record.take());
                }
                at = end + usize::from(lf.is_some());
                from = at;
            } else {
                at = self.pass(bytes, at);
                if at < bytes.len() {
                    kept = keep(bytes, from, at, kept);
                    self.record = Some(Vec::new());
                    at += 1;
                    from = at;
                }
            }
        }
        keep(bytes, from, bytes.len(), kept)
    }

    /// Looks at what is no link record and gives where it ends.
    fn pass(&mut self, bytes: &[u8], mut at: usize) -> usize {
        let base = at;
        for lf in memchr::memchr_iter(b'\n', &bytes[base..]).map(|lf| base + lf) {
            if self.line_start && bytes[at] == MARK {
                return at;
            }
            self.run.see(&bytes[at..lf], true);
            self.line_start = true;
            at = lf + 1;
        }
        if at == bytes.len() || self.line_start && bytes[at] == MARK {
            return at;
        }
        self.run.see(&bytes[at..], false);
        self.line_start = false;
        bytes.len()
    }

    /// Whether what was passed on ends in the middle of a record.
    pub(crate) fn in_record(&self) -> bool {
        !self.line_start
    }

    /// What of a run is open in what was passed on.
    pub(crate) fn run(&mut self) -> &mut OpenRun {
        &mut self.run
    }
}

/// Moves `bytes[from..to]` to `kept` and gives its new end.
fn keep(bytes: &mut [u8], from: usize, to: usize, kept: usize) -> usize {
    if from != kept {
        bytes.copy_within(from..to, kept);
    }
    kept + (to - from)
}

/// Keeps the caller's lines from looking like link records: one that begins with the mark gets a space in front, and
/// is still no JSON.
#[derive(Debug)]
pub(crate) struct LineGuard {
    line_start: bool,
}

impl Default for LineGuard {
    fn default() -> Self {
        LineGuard { line_start: true }
    }
}

impl LineGuard {
    /// Appends `bytes` to `out`.
    pub(crate) fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(last) = bytes.last() else { return };
        let mut copied = 0;
        for at in memchr::memchr_iter(MARK, bytes) {
            if if at == 0 { self.line_start } else { bytes[at - 1] == b'\n' } {
                out.extend_from_slice(&bytes[copied..at]);
                out.push(b' ');
                copied = at;
            }
        }
        out.extend_from_slice(&bytes[copied..]);
        self.line_start = *last == b'\n';
    }

    /// Whether the last line has no LF yet.
    pub(crate) fn in_line(&self) -> bool {
        !self.line_start
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn strip(pieces: &[&[u8]]) -> (Vec<u8>, Vec<Vec<u8>>, bool) {
        let (mut filter, mut records, mut out) = (LinkFilter::default(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut piece = piece.to_vec();
            let kept = filter.strip(&mut piece, &mut records);
            out.extend_from_slice(&piece[..kept]);
        }
        (out, records, filter.in_record())
    }

    #[test]
    fn link_records_are_found_wherever_a_read_ends() {
        let text = b"\x1e{\"a\":1}\n{\"x\":\"\x1e\"}\n\x1e\n\x1e{\"b\":2}\n\n{\"y\":2}\n\x1e{\"c\":3}\nhalf";
        let whole = strip(&[text]);
        assert_eq!(whole.0, b"{\"x\":\"\x1e\"}\n\n{\"y\":2}\nhalf");
        assert_eq!(whole.1, [&b"{\"a\":1}"[..], b"", b"{\"b\":2}", b"{\"c\":3}"]);
        assert!(whole.2);
        for at in 0..=text.len() {
            assert_eq!(strip(&[&text[..at], &text[at..]]), whole, "split at {at}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(strip(&single), whole);
    }

    #[test]
    fn a_line_that_looks_like_a_link_record_gets_a_space_wherever_a_read_ends() {
        let text = b"\x1eone\nt\x1ewo\n\x1e\x1e\n\n\x1ethree";
        let guard = |pieces: &[&[u8]]| {
            let (mut guard, mut out) = (LineGuard::default(), Vec::new());
            pieces.iter().for_each(|piece| guard.pass(piece, &mut out));
            (out, guard.in_line())
        };
        let want = (b" \x1eone\nt\x1ewo\n \x1e\x1e\n\n \x1ethree".to_vec(), true);
        for at in 0..=text.len() {
            assert_eq!(guard(&[&text[..at], &text[at..]]), want, "split at {at}");
        }
    }

    /// `cargo test -p atomic-shim --release -- --ignored --nocapture strip_speed`
    #[test]
    #[ignore = "a measurement"]
    fn strip_speed() {
        const LINES: usize = 20_000;
        const READ_BYTES: usize = 64 * 1024;
        let line = b"{\"type\":\"message_update\",\"usage\":{\"input\":854,\"output\":0},\"assistantMessageEvent\":{\"type\":\"text_delta\",\"contentIndex\":1,\"delta\":\"the \"}}\n";
        let text = line.repeat(LINES);
        let best = (0..50).map(|_| {
            let (mut text, mut filter, mut records) = (text.clone(), LinkFilter::default(), Vec::new());
            let begun = Instant::now();
            let kept: usize = text.chunks_mut(READ_BYTES).map(|read| filter.strip(read, &mut records)).sum();
            let took = begun.elapsed();
            assert_eq!((kept, records.len()), (text.len(), 0));
            took
        });
        let best = best.min().unwrap_or(Duration::MAX);
        eprintln!("{LINES} lines of {} bytes: {best:?}, {:?} each", line.len(), best / LINES as u32);
    }
}
