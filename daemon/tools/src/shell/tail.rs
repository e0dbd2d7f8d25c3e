//! The end of a text of any length, in bounded memory, with exact totals.

use crate::truncate::{self, MAX_BYTES, MAX_LINES, TruncatedBy, Truncation};

/// What is kept after a trim: enough for a result, twice over so that trims are rare.
const KEPT: usize = 2 * MAX_BYTES;
/// What may pile up before a trim.
const TRIM_AT: usize = 4 * MAX_BYTES;

#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The last part of the text.
    text: String,
    total_bytes: u64,
    line_feeds: u64,
    /// Bytes since the last line feed.
    open_line: u64,
    /// Bytes of the line that the last line feed ended.
    closed_line: u64,
}

impl Tail {
    pub(super) fn push(&mut self, text: &str) {
        self.total_bytes += text.len() as u64;
        match text.rfind('\n') {
            None => self.open_line += text.len() as u64,
            Some(last) => {
                self.closed_line = match text[..last].rfind('\n') {
                    Some(before) => (last - before - 1) as u64,
                    None => self.open_line + last as u64,
                };
                self.open_line = (text.len() - last - 1) as u64;
                self.line_feeds += text.bytes().filter(|byte| *byte == b'\n').count() as u64;
            }
        }
        self.text.push_str(text);
        if self.text.len() > TRIM_AT {
            let kept = truncate::last_bytes(&self.text, KEPT).len();
            self.text.drain(..self.text.len() - kept);
        }
    }

    /// Lines so far; a trailing line feed does not begin another.
    pub(super) fn lines(&self) -> u64 {
        self.line_feeds + u64::from(self.open_line > 0)
    }

    /// Bytes of the last line as it was printed, which the result may hold in part only.
    pub(super) fn last_line_bytes(&self) -> u64 {
        if self.open_line > 0 { self.open_line } else { self.closed_line }
    }

    /// The end of the text within the limits.
    pub(super) fn snapshot(&self) -> Truncation {
        let mut end = truncate::tail(&self.text, MAX_LINES, MAX_BYTES);
        let trimmed = self.total_bytes > self.text.len() as u64;
        end.total_bytes = self.total_bytes;
        end.total_lines = self.lines();
        if trimmed && !end.truncated {
            // What is kept is twice the byte limit, so a trimmed text is always cut.
            end.truncated = true;
            end.truncated_by = Some(TruncatedBy::Bytes);
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_exact_and_memory_is_bounded() {
        let mut tail = Tail::default();
        for number in 1..=200_000 {
            tail.push(&format!("{number}\n"));
            assert!(tail.text.len() <= TRIM_AT);
        }
        let end = tail.snapshot();
        assert_eq!((end.total_lines, end.output_lines, end.total_bytes), (200_000, 2000, 1_288_895));
        assert!(end.content.starts_with("198001\n") && end.content.ends_with("\n200000"));
    }

    #[test]
    fn a_long_last_line_is_measured_across_pushes() {
        let mut tail = Tail::default();
        tail.push("first\n");
        for _ in 0..100 {
            tail.push(&"é".repeat(5_000));
        }
        let end = tail.snapshot();
        assert!(end.last_line_partial && end.content.len() <= MAX_BYTES);
        assert_eq!((tail.last_line_bytes(), tail.lines()), (1_000_000, 2));
        tail.push("\n");
        assert_eq!((tail.last_line_bytes(), tail.lines()), (1_000_000, 2));
    }

    #[test]
    fn short_text_is_untouched() {
        let mut tail = Tail::default();
        tail.push("a\nb");
        tail.push("\n");
        assert_eq!(tail.snapshot().content, "a\nb\n");
        assert!(!tail.snapshot().truncated);
    }
}
