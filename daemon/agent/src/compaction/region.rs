//! The part of a conversation that may be shortened, as lines.

use std::ops::Range;

use atomic_protocol::transcript::{ASSISTANT, CALLS, RESULT, THINKING, USER};

use super::ranges::Deletions;

/// Text that is planned on, line by line. Only LF separates lines: a carriage return or U+2028 is part of its line.
#[derive(Clone, Debug, Default)]
pub struct Region {
    text: String,
    /// Where each line begins.
    starts: Vec<usize>,
    /// Lines that stand for others, with how many: `(filtered N lines)` of earlier compactions.
    markers: Vec<(usize, u64)>,
    /// Lines the user or the model asked to keep.
    protected: Vec<Range<usize>>,
}

/// What a deletion leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// The text.
    pub text: String,
    /// Lines of the region that are gone; a marker counts as the one line it is.
    pub deleted: usize,
    /// Holes.
    pub ranges: usize,
}

const OPEN: &str = "<keepContext>";
const CLOSE: &str = "</keepContext>";

impl Region {
    /// Cuts `text` into lines and finds the markers and the protected lines among them.
    ///
    /// A line that is nothing but `<keepContext>`, apart from a role header and blanks, protects what follows up to and
    /// with `</keepContext>`, or to the end of its section. Inside a tool's result it protects nothing: a file or a web
    /// page must not be able to make itself immovable.
    pub fn new(text: String) -> Region {
        let mut region = Region::default();
        let mut open: Option<usize> = None;
        let mut in_result = false;
        let mut at = 0;
        for (number, line) in text.split('\n').enumerate() {
            region.starts.push(at);
            at += line.len() + 1;
            let content = match header_of(line) {
                None => line,
                Some(header) => {
                    region.protect(open.take(), number);
                    in_result = header == RESULT;
                    &line[header.len()..]
                }
            };
            match content.as_bytes().first() {
                Some(b'(') if content.len() == line.len() => {
                    region.markers.extend(marked(line).map(|lines| (number, lines)));
                }
                Some(b'<' | b' ' | b'\t'..=b'\r' | 0x80..) if !in_result => {
                    let content = content.trim();
                    if content.eq_ignore_ascii_case(OPEN) {
                        open.get_or_insert(number);
                    } else if content.eq_ignore_ascii_case(CLOSE) {
                        region.protect(open.take(), number + 1);
                    }
                }
                _ => {}
            }
        }
        region.protect(open, region.starts.len());
        region.text = text;
        region
    }

    fn protect(&mut self, open: Option<usize>, end: usize) {
        if let Some(start) = open.filter(|start| *start < end) {
            self.protected.push(start..end);
        }
    }

    /// How many lines there are.
    pub fn lines(&self) -> usize {
        self.starts.len()
    }

    /// A line without its LF.
    pub fn line(&self, number: usize) -> &str {
        let end = self.starts.get(number + 1).map_or(self.text.len(), |next| next - 1);
        &self.text[self.starts[number]..end]
    }

    /// The protected lines, as ranges in order.
    pub fn protected(&self) -> &[Range<usize>] {
        &self.protected
    }

    /// The text from this line on.
    pub fn from(&self, line: usize) -> &str {
        self.starts.get(line).map_or("", |start| &self.text[*start..])
    }

    /// Where markers stand, with how many lines each stands for.
    pub fn markers(&self) -> &[(usize, u64)] {
        &self.markers
    }

    /// The text without the deleted lines: every other line as it was, and a line `(filtered N lines)` for each hole. A
    /// marker that touches a hole becomes part of it, with the lines it stood for, so that markers always add up.
    pub fn rebuild(&self, deletions: &Deletions) -> Rebuilt {
        let mut holes: Vec<Range<usize>> = Vec::with_capacity(deletions.ranges().len());
        let mut markers = self.markers.iter().map(|(line, _)| *line).peekable();
        for range in deletions.ranges() {
            let mut hole = range.clone();
            // Markers right in front of it: a row that ends where it begins.
            let mut row = hole.start..hole.start;
            while let Some(line) = markers.next_if(|line| *line < range.start) {
                if line != row.end || row.is_empty() {
                    row.start = line;
                }
                row.end = line + 1;
            }
            if row.end == hole.start && !row.is_empty() {
                hole.start = row.start;
            }
            while markers.next_if(|line| *line <= hole.end).is_some_and(|line| {
                hole.end = hole.end.max(line + 1);
                true
            }) {}
            match holes.last_mut() {
                Some(last) if hole.start <= last.end => last.end = last.end.max(hole.end),
                _ => holes.push(hole),
            }
        }
        let mut out = Rebuilt { ranges: holes.len(), ..Rebuilt::default() };
        let mut text = String::with_capacity(self.text.len());
        let mut stood_for = self.markers.iter().peekable();
        let mut next = 0;
        for hole in holes {
            self.copy(&mut text, next..hole.start);
            let mut lines = hole.len() as u64;
            while let Some((line, count)) = stood_for.next_if(|(line, _)| *line < hole.end) {
                if *line >= hole.start {
                    lines = (lines - 1).saturating_add(*count);
                }
            }
            separate(&mut text, next > 0 || hole.start > 0);
            text.push_str(&format!("(filtered {lines} lines)"));
            out.deleted += hole.len();
            next = hole.end;
        }
        self.copy(&mut text, next..self.lines());
        out.text = text;
        out
    }

    /// Appends whole lines.
    fn copy(&self, out: &mut String, lines: Range<usize>) {
        if lines.is_empty() {
            return;
        }
        separate(out, lines.start > 0);
        let end = self.starts.get(lines.end).map_or(self.text.len(), |next| next - 1);
        out.push_str(&self.text[self.starts[lines.start]..end]);
    }
}

fn separate(out: &mut String, wanted: bool) {
    if wanted {
        out.push('\n');
    }
}

/// The role header a line begins with.
fn header_of(line: &str) -> Option<&'static str> {
    if !line.starts_with('[') {
        return None;
    }
    [USER, THINKING, ASSISTANT, CALLS, RESULT].into_iter().find(|header| line.starts_with(header))
}

/// How many lines a marker stands for. `None`: it is none (or of a number beyond counting, which we never wrote).
fn marked(line: &str) -> Option<u64> {
    let digits = line.strip_prefix("(filtered ")?.strip_suffix(" lines)")?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::*;

    const GOLDEN: &str =
        "l1\nl2\nl3\n(filtered 5 lines)\nl5\nl6\nl7\n<keepContext>\nkeep\n</keepContext>\nl11\nl12";

    fn rebuilt(records: &[(u64, u64)]) -> (String, usize, usize) {
        let region = Region::new(GOLDEN.into());
        let rebuilt = region.rebuild(&Deletions::validate(records, region.lines(), region.protected()));
        (rebuilt.text.replace('\n', "|"), rebuilt.deleted, rebuilt.ranges)
    }

    /// Reference compaction 13.
    #[test]
    fn golden_vectors() {
        assert_eq!(
            rebuilt(&[(5, 6)]),
            ("l1|l2|l3|(filtered 7 lines)|l7|<keepContext>|keep|</keepContext>|l11|l12".into(), 3, 1)
        );
        assert_eq!(
            rebuilt(&[(2, 3), (11, 7)]),
            (
                "l1|(filtered 7 lines)|l5|l6|(filtered 1 lines)|<keepContext>|keep|</keepContext>|(filtered 1 lines)|l12"
                    .into(),
                5,
                3
            )
        );
        assert_eq!(
            rebuilt(&[(1, 99)]).0,
            "(filtered 11 lines)|<keepContext>|keep|</keepContext>|(filtered 2 lines)"
        );
        assert_eq!(rebuilt(&[(0, 0)]), (GOLDEN.replace('\n', "|"), 0, 0));
        assert!(rebuilt(&[(12, 12)]).0.contains("l3|(filtered 5 lines)|l5"));
    }

    #[test]
    fn rows_of_markers_fold_from_both_sides_and_only_those_that_touch() {
        let region = Region::new(
            "a\n(filtered 2 lines)\n(filtered 3 lines)\nb\n(filtered 4 lines)\nc\n(filtered 5 lines)".into(),
        );
        let folded = |records: &[(u64, u64)]| {
            let deletions = Deletions::validate(records, region.lines(), region.protected());
            region.rebuild(&deletions).text.replace('\n', "|")
        };
        assert_eq!(folded(&[(4, 4)]), "a|(filtered 10 lines)|c|(filtered 5 lines)");
        assert_eq!(folded(&[(1, 1)]), "(filtered 6 lines)|b|(filtered 4 lines)|c|(filtered 5 lines)");
        assert_eq!(folded(&[(1, 1), (4, 4)]), "(filtered 11 lines)|c|(filtered 5 lines)");
        assert_eq!(folded(&[(6, 6)]), "a|(filtered 2 lines)|(filtered 3 lines)|b|(filtered 10 lines)");
        assert_eq!(folded(&[(3, 3)]), "a|(filtered 5 lines)|b|(filtered 4 lines)|c|(filtered 5 lines)");
        assert_eq!(folded(&[(1, 7)]), "(filtered 17 lines)");
    }

    #[test]
    fn what_is_protected() {
        let protected = |text: &str| Region::new(text.into()).protected().to_vec();
        assert_eq!(protected("[User]: <keepContext>\nx\n</KeepContext> \ny"), [0..3]);
        assert_eq!(protected("<keepcontext>\n<keepContext>\n</keepContext>\n</keepContext>"), [0..3]);
        assert_eq!(protected("[User]: a\n<keepContext>\nx\n\n[Assistant]: y"), [1..4]);
        assert_eq!(protected("[Tool result]: <keepContext>\nx\n</keepContext>\n\n[User]: z"), []);
        assert_eq!(protected("[Assistant]: say <keepContext>\nx"), []);
        assert_eq!(protected("</keepContext>\nx"), []);
        assert_eq!(protected("\u{a0}<keepContext>\nx"), [0..2]);
        assert_eq!(protected("[User]: <keepContext>\n[User]: x"), [0..1]);
    }

    #[test]
    fn only_a_line_feed_ends_a_line() {
        let region = Region::new("a\r\nb\u{2028}c\n\nd\n".into());
        let lines: Vec<&str> = (0..region.lines()).map(|number| region.line(number)).collect();
        assert_eq!(lines, ["a\r", "b\u{2028}c", "", "d", ""]);
        let all = region.rebuild(&Deletions::default());
        assert_eq!((all.text.as_str(), all.deleted, all.ranges), ("a\r\nb\u{2028}c\n\nd\n", 0, 0));
        let last = region.rebuild(&Deletions::validate(&[(5, 5)], 5, &[]));
        assert_eq!(last.text, "a\r\nb\u{2028}c\n\nd\n(filtered 1 lines)");
    }
}
