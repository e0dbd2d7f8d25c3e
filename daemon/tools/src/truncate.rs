//! How much of a text a model and a client get to see.

use std::borrow::Cow;

use serde::Serialize;

/// Most lines of one result.
pub const MAX_LINES: usize = 2000;
/// Most bytes of one result: 50 KiB of UTF-8.
pub const MAX_BYTES: usize = 50 * 1024;
/// Most characters of one line of a grep row, counted in UTF-16 units as the reference counts them.
pub const MAX_LINE_CHARS: usize = 500;

/// Which limit cut the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TruncatedBy {
    /// [`MAX_LINES`].
    Lines,
    /// [`MAX_BYTES`].
    Bytes,
}

/// A text within the limits and what is known of the whole. Serialises as the wire's `truncation` object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Truncation {
    /// The text that is left.
    pub content: String,
    /// Something was left out.
    pub truncated: bool,
    /// Which limit was hit first.
    pub truncated_by: Option<TruncatedBy>,
    /// Lines of the whole text; a trailing line feed does not add one.
    pub total_lines: u64,
    /// Bytes of the whole text.
    pub total_bytes: u64,
    /// Lines of `content`.
    pub output_lines: u64,
    /// Bytes of `content`.
    pub output_bytes: u64,
    /// `content` is the end of one line that alone is over the limit.
    pub last_line_partial: bool,
    /// The first line alone is over the limit, so `content` is empty.
    pub first_line_exceeds_limit: bool,
    /// The line limit that was applied; the largest safe integer of JavaScript when there was none.
    pub max_lines: u64,
    /// The byte limit that was applied.
    pub max_bytes: u64,
}

/// What a [`Truncation`] calls "no line limit" on the wire.
const NO_LINE_LIMIT: u64 = (1 << 53) - 1;

/// Lines of `text`: the parts between line feeds, without the empty one after a trailing line feed.
fn lines(text: &str) -> Vec<&str> {
    if text.is_empty() {
        return Vec::new();
    }
    text.strip_suffix('\n').unwrap_or(text).split('\n').collect()
}

impl Truncation {
    fn whole(text: &str, total_lines: usize, max_lines: Option<usize>, max_bytes: usize) -> Truncation {
        Truncation {
            content: text.to_owned(),
            truncated: false,
            truncated_by: None,
            total_lines: total_lines as u64,
            total_bytes: text.len() as u64,
            output_lines: total_lines as u64,
            output_bytes: text.len() as u64,
            last_line_partial: false,
            first_line_exceeds_limit: false,
            max_lines: max_lines.map_or(NO_LINE_LIMIT, |max| max as u64),
            max_bytes: max_bytes as u64,
        }
    }

    fn cut(mut self, content: String, lines: usize, by: TruncatedBy) -> Truncation {
        self.truncated = true;
        self.truncated_by = Some(by);
        self.output_lines = lines as u64;
        self.output_bytes = content.len() as u64;
        self.content = content;
        self
    }
}

/// The first whole lines of `text` within the limits; the text as it stands when it fits.
pub(crate) fn head(text: &str, max_lines: Option<usize>, max_bytes: usize) -> Truncation {
    let all = lines(text);
    let whole = Truncation::whole(text, all.len(), max_lines, max_bytes);
    let line_limit = max_lines.unwrap_or(usize::MAX);
    if all.len() <= line_limit && text.len() <= max_bytes {
        return whole;
    }
    if all.first().is_some_and(|line| line.len() > max_bytes) {
        let mut empty = whole.cut(String::new(), 0, TruncatedBy::Bytes);
        empty.first_line_exceeds_limit = true;
        return empty;
    }
    let mut bytes = 0;
    let mut kept = 0;
    for line in all.iter().take(line_limit) {
        let cost = line.len() + usize::from(kept > 0);
        if bytes + cost > max_bytes {
            return whole.cut(all[..kept].join("\n"), kept, TruncatedBy::Bytes);
        }
        bytes += cost;
        kept += 1;
    }
    // All lines fit but for the trailing line feed: nothing that anybody would miss, yet the bytes are over.
    let by = if kept < all.len() { TruncatedBy::Lines } else { TruncatedBy::Bytes };
    whole.cut(all[..kept].join("\n"), kept, by)
}

/// The last lines of `text` within the limits; the text as it stands when it fits. A last line that alone is too long
/// is cut at its front.
pub(crate) fn tail(text: &str, max_lines: usize, max_bytes: usize) -> Truncation {
    let all = lines(text);
    let whole = Truncation::whole(text, all.len(), Some(max_lines), max_bytes);
    if all.len() <= max_lines && text.len() <= max_bytes {
        return whole;
    }
    let mut bytes = 0;
    let mut kept = 0;
    let mut by = TruncatedBy::Lines;
    for line in all.iter().rev().take(max_lines) {
        let cost = line.len() + usize::from(kept > 0);
        if bytes + cost > max_bytes {
            by = TruncatedBy::Bytes;
            break;
        }
        bytes += cost;
        kept += 1;
    }
    if kept == 0 {
        let last = all.last().copied().unwrap_or_default();
        let mut partial = whole.cut(last_bytes(last, max_bytes).to_owned(), 1, TruncatedBy::Bytes);
        partial.last_line_partial = true;
        return partial;
    }
    if kept == all.len() {
        by = TruncatedBy::Bytes;
    }
    whole.cut(all[all.len() - kept..].join("\n"), kept, by)
}

/// The end of `text`, at most `max` bytes, beginning at a character.
pub(crate) fn last_bytes(text: &str, max: usize) -> &str {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// A line of at most [`MAX_LINE_CHARS`], marked when it was cut.
pub(crate) fn line(text: &str) -> (Cow<'_, str>, bool) {
    if text.len() <= MAX_LINE_CHARS {
        return (Cow::Borrowed(text), false);
    }
    let mut units = 0;
    for (at, character) in text.char_indices() {
        units += character.len_utf16();
        if units > MAX_LINE_CHARS {
            return (Cow::Owned(format!("{}... [truncated]", &text[..at])), true);
        }
    }
    (Cow::Borrowed(text), false)
}

/// `12B`, `1.5KB`, `2.0MB`.
pub(crate) fn size(bytes: u64) -> String {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    if bytes < KIB {
        format!("{bytes}B")
    } else if bytes < MIB {
        format!("{:.1}KB", bytes as f64 / KIB as f64)
    } else {
        format!("{:.1}MB", bytes as f64 / MIB as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_within_the_limits_is_untouched() {
        for text in ["", "a", "a\n", "a\nb\n", "\n\n"] {
            let (head, tail) = (head(text, Some(2), 10), tail(text, 2, 10));
            assert_eq!((head.content.as_str(), head.truncated), (text, false));
            assert_eq!((tail.content.as_str(), tail.truncated), (text, false));
        }
        assert_eq!(head("", None, 1).total_lines, 0);
        assert_eq!(head("a\nb\n", None, 9).total_lines, 2);
    }

    #[test]
    fn head_keeps_whole_lines() {
        let cut = head("aa\nbb\ncc\n", Some(2), 100);
        assert_eq!(
            (cut.content.as_str(), cut.truncated_by, cut.output_lines),
            ("aa\nbb", Some(TruncatedBy::Lines), 2)
        );
        let cut = head("aa\nbb\ncc", None, 6);
        assert_eq!((cut.content.as_str(), cut.truncated_by), ("aa\nbb", Some(TruncatedBy::Bytes)));
        let cut = head("aaaa\nb", None, 3);
        assert_eq!((cut.content.as_str(), cut.first_line_exceeds_limit, cut.output_lines), ("", true, 0));
    }

    #[test]
    fn tail_keeps_the_end_and_cuts_one_long_line_at_a_character() {
        let cut = tail("aa\nbb\ncc\n", 2, 100);
        assert_eq!(
            (cut.content.as_str(), cut.truncated_by, cut.total_lines),
            ("bb\ncc", Some(TruncatedBy::Lines), 3)
        );
        let cut = tail("aa\nbb\ncc", 9, 5);
        assert_eq!((cut.content.as_str(), cut.truncated_by), ("bb\ncc", Some(TruncatedBy::Bytes)));
        let cut = tail(&"é".repeat(10), 9, 5);
        assert_eq!((cut.content.as_str(), cut.last_line_partial), ("éé", true));
    }

    #[test]
    fn lines_are_cut_in_utf16_units() {
        assert_eq!(line(&"x".repeat(500)), (Cow::Owned("x".repeat(500)), false));
        assert_eq!(line(&"x".repeat(501)).0, format!("{}... [truncated]", "x".repeat(500)));
        assert_eq!(line(&"😀".repeat(251)).0, format!("{}... [truncated]", "😀".repeat(250)));
        assert!(!line(&"é".repeat(500)).1);
    }

    #[test]
    fn sizes() {
        assert_eq!(
            [size(5), size(1536), size(50 * 1024), size(2 * 1024 * 1024)],
            ["5B", "1.5KB", "50.0KB", "2.0MB"]
        );
    }

    #[test]
    fn the_wire_object_has_every_key_of_the_seed() {
        let object = serde_json::to_value(tail("a\nb", 1, 10)).unwrap();
        let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            [
                "content",
                "truncated",
                "truncatedBy",
                "totalLines",
                "totalBytes",
                "outputLines",
                "outputBytes",
                "lastLinePartial",
                "firstLineExceedsLimit",
                "maxLines",
                "maxBytes"
            ]
        );
        assert_eq!(object["truncatedBy"], "lines");
    }
}
