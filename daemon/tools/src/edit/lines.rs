//! Line endings: matching sees line feeds only, the file keeps what it has.

/// `text` with each CRLF and each lone CR as one line feed.
pub(super) fn with_line_feeds(text: &str) -> String {
    if !text.contains('\r') {
        return text.to_owned();
    }
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// A text, the same with line feeds only, and the way back from a place in the second to one in the first.
pub(super) struct Endings<'a> {
    original: &'a str,
    plain: String,
    /// Places in `plain` of line feeds that are CRLF in `original`, ascending.
    pairs: Vec<usize>,
}

impl<'a> Endings<'a> {
    pub(super) fn new(original: &'a str) -> Endings<'a> {
        let found = original.match_indices("\r\n");
        // Each pair before took one byte away.
        let pairs = found.enumerate().map(|(before, (at, _))| at - before).collect();
        Endings { original, plain: with_line_feeds(original), pairs }
    }

    /// The text with line feeds only.
    pub(super) fn plain(&self) -> &str {
        &self.plain
    }

    /// The place in the original that `at` in the plain text stands for; before the CR when a pair stands there.
    pub(super) fn original_place(&self, at: usize) -> usize {
        at + self.pairs.partition_point(|pair| *pair < at)
    }

    /// The ending that new lines in place of `plain[start..end]` get: the first one inside, else the nearest before, else
    /// the nearest after, else a line feed.
    pub(super) fn local(&self, start: usize, end: usize) -> &'a str {
        let inside = self.plain[start..end].find('\n').map(|at| start + at);
        let before = || self.plain[..start].rfind('\n');
        let after = || self.plain[end..].find('\n').map(|at| end + at);
        match inside.or_else(before).or_else(after) {
            Some(at) => {
                let place = self.original_place(at);
                let length = if self.original[place..].starts_with("\r\n") { 2 } else { 1 };
                &self.original[place..place + length]
            }
            None => "\n",
        }
    }

    /// The original with pieces of the plain text replaced. `pieces` are ascending and do not overlap; new text has line
    /// feeds and gets the local ending.
    pub(super) fn splice(&self, pieces: &[Piece]) -> String {
        let mut out = String::with_capacity(self.original.len());
        let mut copied = 0;
        for piece in pieces {
            out.push_str(&self.original[copied..self.original_place(piece.start)]);
            match self.local(piece.start, piece.end) {
                "\n" => out.push_str(&piece.new),
                ending => out.push_str(&piece.new.replace('\n', ending)),
            }
            copied = self.original_place(piece.end);
        }
        out.push_str(&self.original[copied..]);
        out
    }
}

/// New text for a range of the plain text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) new: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lead_back_to_the_original() {
        let endings = Endings::new("a\r\nb\nc\rd\r\n");
        assert_eq!(endings.plain(), "a\nb\nc\nd\n");
        let places: Vec<usize> = (0..=8).map(|at| endings.original_place(at)).collect();
        assert_eq!(places, [0, 1, 3, 4, 5, 6, 7, 8, 10]);
    }

    #[test]
    fn new_lines_take_the_local_ending() {
        let endings = Endings::new("a\r\nb\nc\rd");
        assert_eq!(
            [
                endings.local(0, 2),
                endings.local(2, 4),
                endings.local(4, 5),
                endings.local(6, 7),
                endings.local(0, 1)
            ],
            ["\r\n", "\n", "\n", "\r", "\r\n"]
        );
        assert_eq!(Endings::new("abc").local(0, 1), "\n");
        let pieces = [
            Piece { start: 0, end: 2, new: "x\ny\n".into() },
            Piece { start: 6, end: 7, new: "p\nq".into() },
        ];
        assert_eq!(endings.splice(&pieces), "x\r\ny\r\nb\nc\rp\rq");
    }
}
