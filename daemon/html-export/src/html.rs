//! Text into HTML: the only place that knows how data becomes markup.
//!
//! Everything that comes from a session passes [`text`], [`attribute`] or [`anchor`]. Control characters are made visible,
//! so that nothing a program printed can hide, and no character reaches the page that an HTML parser complains about.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Appends `text` as character data.
pub(crate) fn text(out: &mut String, text: &str) {
    escape(out, text, false);
}

/// Appends ` name="value"`.
pub(crate) fn attribute(out: &mut String, name: &'static str, value: &str) {
    out.push(' ');
    out.push_str(name);
    out.push_str("=\"");
    escape(out, value, true);
    out.push('"');
}

/// Appends inline text whose writing direction must not leak into what stands beside it.
pub(crate) fn isolated(out: &mut String, value: &str) {
    // An element less in each entry is felt in a long session.
    if !may_turn(value) {
        return escape(out, value, false);
    }
    out.push_str("<bdi>");
    escape(out, value, false);
    out.push_str("</bdi>");
}

/// Something in `text` may be written from right to left, or turn what is around it. Below U+0590 nothing does, nor do the
/// dashes, quotation marks and dots that Latin text is full of.
pub(crate) fn may_turn(text: &str) -> bool {
    let neutral = |character: char| character < '\u{590}' || ('\u{2010}'..='\u{2027}').contains(&character);
    !text.is_ascii() && !text.chars().all(neutral)
}

fn escape(out: &mut String, text: &str, quoted: bool) {
    let mut copied = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let (replacement, length) = match byte {
            b'&' => (Replacement::Known("&amp;"), 1),
            b'<' => (Replacement::Known("&lt;"), 1),
            b'>' => (Replacement::Known("&gt;"), 1),
            b'"' if quoted => (Replacement::Known("&quot;"), 1),
            b'\'' if quoted => (Replacement::Known("&#39;"), 1),
            b'\t' | b'\n' => {
                at += 1;
                continue;
            }
            b'\r' if bytes.get(at + 1) == Some(&b'\n') => (Replacement::Known(""), 1),
            b'\r' => (Replacement::Known("\n"), 1),
            0x00..=0x1F => (Replacement::Picture(byte), 1),
            0x7F => (Replacement::Known("\u{2421}"), 1),
            // U+0080 to U+009F: controls of another century, which HTML parsers call an error.
            0xC2 if bytes.get(at + 1).is_some_and(|next| *next < 0xA0) => (Replacement::Known("\u{FFFD}"), 2),
            // Noncharacters U+nFFFE, U+nFFFF and U+FDD0 to U+FDEF: likewise.
            0xEF..=0xF4 => {
                let Some(character) = text[at..].chars().next() else { break };
                let code = u32::from(character);
                if code & 0xFFFE == 0xFFFE || (0xFDD0..=0xFDEF).contains(&code) {
                    (Replacement::Known("\u{FFFD}"), character.len_utf8())
                } else {
                    at += character.len_utf8();
                    continue;
                }
            }
            _ => {
                at += 1;
                continue;
            }
        };
        out.push_str(&text[copied..at]);
        match replacement {
            Replacement::Known(known) => out.push_str(known),
            Replacement::Picture(byte) => out.extend(char::from_u32(0x2400 + u32::from(byte))),
        }
        at += length;
        copied = at;
    }
    out.push_str(&text[copied..]);
}

enum Replacement {
    Known(&'static str),
    /// The control picture of a C0 control.
    Picture(u8),
}

/// The anchor of an entry: `entry-` and its id, with every byte outside `[A-Za-z0-9._-]` as `~` and two hex digits, so that
/// it is the same text as attribute, as fragment and in a URL, and different ids never meet.
pub(crate) fn anchor(id: &str) -> String {
    let mut out = String::with_capacity(id.len() + 6);
    out.push_str("entry-");
    for byte in id.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "~{byte:02x}");
            }
        }
    }
    out
}

/// `text` as one line of at most `most` characters, with an ellipsis when something was left out.
pub(crate) fn brief(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    // Only so much is looked at: a preview of a megabyte costs what a preview of a page costs.
    let words = text.split_whitespace();
    for word in words {
        if count > 0 {
            out.push(' ');
            count += 1;
        }
        for character in word.chars() {
            if count >= most {
                out.push('…');
                return out;
            }
            out.push(character);
            count += 1;
        }
    }
    out
}

/// A count as people read it: `999`, `12.3k`, `4.5M`.
pub(crate) fn count(number: u64) -> Cow<'static, str> {
    let scaled = |divisor: f64, unit: &str| {
        let value = number as f64 / divisor;
        if value < 100.0 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
    };
    match number {
        0..=9_999 => number.to_string(),
        10_000..=999_499 => scaled(1_000.0, "k"),
        _ => scaled(1_000_000.0, "M"),
    }
    .into()
}

/// US dollars: cents when it is more than one, else enough digits to see something.
pub(crate) fn dollars(amount: f64) -> String {
    if amount >= 1.0 || amount == 0.0 { format!("${amount:.2}") } else { format!("${amount:.4}") }
}

/// A size in bytes as people read it.
pub(crate) fn bytes(size: usize) -> String {
    match size {
        0..=1023 => format!("{size} B"),
        1024..=1_048_575 => format!("{} KiB", size / 1024),
        _ => format!("{:.1} MiB", size as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(input: &str) -> String {
        let mut out = String::new();
        text(&mut out, input);
        out
    }

    #[test]
    fn markup_is_data_and_controls_are_seen() {
        assert_eq!(escaped("<a href='x' b=\"y\">&"), "&lt;a href='x' b=\"y\"&gt;&amp;");
        let mut out = String::new();
        attribute(&mut out, "title", "<a href='x' b=\"y\">&");
        assert_eq!(out, " title=\"&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;\"");
        let mut out = String::new();
        isolated(&mut out, "a “b” … é");
        isolated(&mut out, "\u{5d0}");
        isolated(&mut out, "\u{202e}x");
        assert_eq!(out, "a “b” … é<bdi>\u{5d0}</bdi><bdi>\u{202e}x</bdi>");
        assert_eq!(escaped("a\0b\x1bc\x7fd\te\nf"), "a␀b␛c␡d\te\nf");
        assert_eq!(escaped("a\r\nb\rc"), "a\nb\nc");
        assert_eq!(
            escaped("\u{85}\u{a0}\u{fffe}\u{1ffff}\u{fdd0}é😀\u{feff}"),
            "\u{fffd}\u{a0}\u{fffd}\u{fffd}\u{fffd}é😀\u{feff}"
        );
    }

    #[test]
    fn anchors_are_injective_and_need_no_quoting() {
        assert_eq!(anchor("0a1b2c3d"), "entry-0a1b2c3d");
        assert_eq!(anchor("a b\"é~"), "entry-a~20b~22~c3~a9~7e");
        assert_ne!(anchor("~20"), anchor(" "));
    }

    #[test]
    fn previews_are_one_line() {
        assert_eq!(brief("  a\n b\tc ", 10), "a b c");
        assert_eq!(brief("abcdef", 3), "abc…");
        assert_eq!(brief("abc", 3), "abc");
        assert_eq!(brief(" \n", 3), "");
    }

    #[test]
    fn numbers() {
        assert_eq!(
            [count(0), count(9_999), count(12_345), count(999_500), count(4_500_000)],
            ["0", "9999", "12.3k", "1.0M", "4.5M"]
        );
        assert_eq!([dollars(0.0), dollars(0.0123), dollars(12.345)], ["$0.00", "$0.0123", "$12.35"]);
        assert_eq!([bytes(10), bytes(2048), bytes(3 << 20)], ["10 B", "2 KiB", "3.0 MiB"]);
    }
}
