//! One record that is much longer than a socket takes at once, made while the client takes it.
//!
//! A list of 50 000 messages is 30 MB whose parts lie in memory already, each shared with the session. Putting them
//! together first would cost the time twice and the memory once more; instead the outbox asks for the next piece when
//! the one before is sent.

use bytes::Bytes;

/// Data from this many bytes on are not copied together before they are sent.
pub const LONG_BYTES: usize = 256 << 10;

/// Bytes of a piece: small parts are copied together up to this much, so that a write call has something to carry. A
/// larger part is a piece by itself and is not copied.
const PIECE_BYTES: usize = 64 << 10;

/// What is left of a long record.
#[derive(Debug)]
pub struct Long {
    parts: std::vec::IntoIter<Bytes>,
    /// Bytes of `parts`.
    left: usize,
    /// The piece that is being sent.
    piece: Bytes,
    begun: bool,
}

impl Long {
    /// A record of these parts, the last of which ends with its LF. An empty part is left out.
    pub fn new(parts: Vec<Bytes>) -> Long {
        let left = parts.iter().map(Bytes::len).sum();
        let mut long = Long { parts: parts.into_iter(), left, piece: Bytes::new(), begun: false };
        long.advance();
        long.begun = false;
        long
    }

    /// Bytes that are not in a piece yet.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The piece that is being sent; empty when the record is complete.
    pub fn piece(&self) -> &Bytes {
        &self.piece
    }

    /// A piece of it was sent completely.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// The current piece is sent: makes the next one. False when there is none.
    pub fn advance(&mut self) -> bool {
        self.begun = true;
        let mut copied: Vec<u8> = Vec::new();
        while let Some(next) = self.parts.as_slice().first().map(Bytes::len) {
            if next >= PIECE_BYTES && copied.is_empty() {
                self.piece = self.parts.next().expect("it was looked at");
                self.left -= next;
                return true;
            }
            if copied.len() + next > PIECE_BYTES {
                break;
            }
            if copied.capacity() == 0 {
                copied.reserve_exact(PIECE_BYTES.min(self.left));
            }
            copied.extend_from_slice(&self.parts.next().expect("it was looked at"));
            self.left -= next;
        }
        self.piece = copied.into();
        !self.piece.is_empty()
    }

    /// Changes the current piece.
    pub fn map_piece(&mut self, change: impl FnOnce(Bytes) -> Bytes) {
        self.piece = change(std::mem::take(&mut self.piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a record of these parts.
    fn pieces(parts: &[Vec<u8>]) -> Vec<Bytes> {
        let mut long = Long::new(parts.iter().cloned().map(Bytes::from).collect());
        let total: usize = parts.iter().map(Vec::len).sum();
        let mut pieces = Vec::new();
        let mut seen = 0;
        while !long.piece().is_empty() {
            assert_eq!(long.has_begun(), !pieces.is_empty());
            seen += long.piece().len();
            assert_eq!(long.left(), total - seen);
            pieces.push(long.piece().clone());
            long.advance();
        }
        assert!(!long.advance(), "it stays complete");
        pieces
    }

    #[test]
    fn pieces_are_the_parts_in_order_and_not_too_small() {
        let small: Vec<Vec<u8>> = (0..5000u32).map(|n| n.to_string().into_bytes()).collect();
        let large = vec![vec![b'x'; 3 * PIECE_BYTES]];
        for parts in
            [vec![], vec![vec![]], large.clone(), small.clone(), [small.clone(), large, small].concat()]
        {
            let pieces = pieces(&parts);
            assert_eq!(pieces.concat(), parts.concat());
            for pair in pieces.windows(2) {
                assert!(pair[0].len() + pair[1].len() > PIECE_BYTES, "{} {}", pair[0].len(), pair[1].len());
            }
        }
    }

    #[test]
    fn a_large_part_is_not_copied() {
        let part = Bytes::from(vec![b'x'; PIECE_BYTES]);
        let long = Long::new(vec![part.clone()]);
        assert_eq!(long.piece().as_ptr(), part.as_ptr());
    }
}
