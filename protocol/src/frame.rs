//! LF framing without I/O: push bytes in, take lines out.
//!
//! Byte 0x0A ends a line and nothing else does (U+2028 and U+2029 are ordinary characters); one trailing 0x0D is
//! stripped. A line has no size limit. The scan resumes where it stopped, so a line that arrives in many pieces costs
//! time linear in its length.

use bytes::{Bytes, BytesMut};

/// Cuts a stream of bytes into lines.
#[derive(Debug, Default)]
pub struct LineSplitter {
    buffer: BytesMut,
    /// Bytes of `buffer` known to hold no LF.
    scanned: usize,
}

impl LineSplitter {
    /// An empty splitter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The buffer itself, for readers that fill it in place. Only append to it.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next complete line without its LF and without one CR before it.
    pub fn next_line(&mut self) -> Option<Bytes> {
        match memchr::memchr(b'\n', &self.buffer[self.scanned..]) {
            None => {
                self.scanned = self.buffer.len();
                None
            }
            Some(offset) => {
                let end = self.scanned + offset;
                self.scanned = 0;
                let mut line = self.buffer.split_to(end + 1).freeze();
                line.truncate(end);
                if line.last() == Some(&b'\r') {
                    line.truncate(end - 1);
                }
                Some(line)
            }
        }
    }

    /// What stands after the last LF; at end of input this is the last line, if it is not empty.
    pub fn take_rest(&mut self) -> Option<Bytes> {
        self.scanned = 0;
        let mut rest = self.buffer.split().freeze();
        if rest.last() == Some(&b'\r') {
            rest.truncate(rest.len() - 1);
        }
        (!rest.is_empty()).then_some(rest)
    }

    /// Bytes held that do not form a line yet.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut splitter = LineSplitter::new();
        let mut lines = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            while let Some(line) = splitter.next_line() {
                lines.push(line.to_vec());
            }
        }
        lines.extend(splitter.take_rest().map(|rest| rest.to_vec()));
        lines
    }

    #[test]
    fn a_split_at_any_byte_gives_the_same_lines() {
        let text = "{\"a\":1}\r\n\n\u{2028}x\u{2029}\n\r\r\nlast\u{85}".as_bytes();
        let whole = lines_of(&[text]);
        assert_eq!(whole.len(), 5);
        assert_eq!(whole[0], b"{\"a\":1}");
        assert_eq!(whole[1], b"");
        assert_eq!(whole[3], b"\r", "only one CR belongs to the line end");
        for at in 0..=text.len() {
            assert_eq!(lines_of(&[&text[..at], &text[at..]]), whole, "split at {at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines_of(&bytes), whole);
    }

    #[test]
    fn a_64_mib_line_in_1_kib_pieces_is_scanned_once() {
        let mut splitter = LineSplitter::new();
        let piece = [b'x'; 1024];
        let mut scanned = 0usize;
        for _ in 0..64 * 1024 {
            splitter.push(&piece);
            scanned += splitter.buffer.len() - splitter.scanned;
            assert!(splitter.next_line().is_none());
        }
        splitter.push(b"\n");
        assert_eq!(splitter.next_line().unwrap().len(), 64 << 20);
        assert_eq!(scanned, 64 << 20, "each byte is looked at once: linear in the line");
    }
}
