//! Link records among records: how they are kept out of what passes through.

use atomic_protocol::link::MARK;

/// Takes link records out of the daemon's bytes.
///
/// Only the mark is searched for: JSON text escapes control characters, so a record without link records costs one
/// `memchr` per read.
#[derive(Debug)]
pub(crate) struct LinkFilter {
    /// The next byte begins a line.
    line_start: bool,
    /// The beginning of a link record whose LF has not come yet, without its mark.
    record: Option<Vec<u8>>,
}

impl Default for LinkFilter {
    fn default() -> Self {
        LinkFilter { line_start: true, record: None }
    }
}

impl LinkFilter {
    /// Moves everything but link records to the beginning of `bytes` and tells how much that is. Complete link records
    /// go to `records`, without mark and LF.
    pub(crate) fn strip(&mut self, bytes: &mut [u8], records: &mut Vec<Vec<u8>>) -> usize {
        let mut kept = 0;
        let mut at = 0;
        while at < bytes.len() {
            if let Some(mut record) = self.record.take() {
                match memchr::memchr(b'\n', &bytes[at..]) {
                    Some(end) => {
                        record.extend_from_slice(&bytes[at..at + end]);
                        records.push(record);
                        at += end + 1;
                    }
                    None => {
                        record.extend_from_slice(&bytes[at..]);
                        self.record = Some(record);
                        at = bytes.len();
                    }
                }
                continue;
            }
            let mark = self.find_mark(bytes, at);
            let end = mark.unwrap_or(bytes.len());
            if end > at {
                self.line_start = bytes[end - 1] == b'\n';
                bytes.copy_within(at..end, kept);
                kept += end - at;
            }
            at = end;
            if mark.is_some() {
                self.record = Some(Vec::new());
                at += 1;
            }
        }
        kept
    }

    /// The next mark that begins a line.
    fn find_mark(&self, bytes: &[u8], from: usize) -> Option<usize> {
        memchr::memchr_iter(MARK, &bytes[from..])
            .map(|offset| from + offset)
            .find(|at| if *at == from { self.line_start } else { bytes[at - 1] == b'\n' })
    }

    /// Whether what was passed on ends in the middle of a record.
    pub(crate) fn in_record(&self) -> bool {
        !self.line_start
    }
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
}
