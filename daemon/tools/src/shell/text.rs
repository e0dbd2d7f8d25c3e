//! From the bytes of a pipe to text: UTF-8 that may be split anywhere, and terminal control that nobody wants to read.

/// UTF-8 across chunk borders; each bad sequence becomes one U+FFFD.
#[derive(Debug, Default)]
pub(super) struct Utf8Stream {
    /// The beginning of a character whose rest has not come yet: three bytes at most.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Appends the text of `bytes` as far as it is complete.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut String) {
        let joined;
        let mut rest = bytes;
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.pending);
            rest = &joined;
        }
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return out.push_str(text),
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    out.push_str(std::str::from_utf8(good).expect("checked just now"));
                    match error.error_len() {
                        Some(length) => {
                            out.push('\u{fffd}');
                            rest = &bad[length..];
                        }
                        None => return self.pending.extend_from_slice(bad),
                    }
                }
            }
        }
    }

    /// The stream has ended: half a character is a bad one.
    pub(super) fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push('\u{fffd}');
        }
    }
}

/// Takes out escape sequences, control characters other than tab and line feed, and U+FFF9 to U+FFFB. Keeps its state
/// between calls, so a sequence may be split anywhere.
#[derive(Debug, Default)]
pub(super) struct PlainText {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate character: one more ends it.
    EscapeIntermediate,
    /// After ESC `[`: parameters until a final character.
    Control,
    /// After ESC `]`, `P`, `X`, `^` or `_`: anything until the string's end. A line feed ends it too: no such string of
    /// practice holds one, and a command that never ends its string must not swallow all that follows.
    String,
    /// An ESC inside such a string: `\` ends the string, anything else begins a new sequence.
    StringEscape,
}

impl PlainText {
    /// Appends what is left of `text`.
    pub(super) fn push(&mut self, text: &str, out: &mut String) {
        // Most output is nothing but this, and there may be gigabytes of it.
        if self.state == State::Text && text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')) {
            return out.push_str(text);
        }
        let mut kept_from = None;
        for (at, character) in text.char_indices() {
            let keep = self.step(character);
            match (keep, kept_from) {
                (true, None) => kept_from = Some(at),
                (false, Some(from)) => {
                    out.push_str(&text[from..at]);
                    kept_from = None;
                }
                _ => {}
            }
        }
        if let Some(from) = kept_from {
            out.push_str(&text[from..]);
        }
    }

    /// Takes one character; true when it is text.
    fn step(&mut self, character: char) -> bool {
        let (state, keep) = match (self.state, character) {
            (State::Escape, '[') => (State::Control, false),
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => (State::String, false),
            (State::Escape | State::EscapeIntermediate, ' '..='/') => (State::EscapeIntermediate, false),
            (State::Escape | State::EscapeIntermediate, '0'..='~') => (State::Text, false),
            (State::Control, ' '..='?') => (State::Control, false),
            (State::Control, '@'..='~') => (State::Text, false),
            (State::String, '\u{7}' | '\u{9c}') => (State::Text, false),
            (State::String, '\u{1b}') => (State::StringEscape, false),
            (State::String, character) if character != '\n' => (State::String, false),
            (State::StringEscape, '\\') => (State::Text, false),
            (State::StringEscape, character) => {
                self.state = State::Escape;
                return self.step(character);
            }
            (_, '\u{1b}') => (State::Escape, false),
            (_, '\u{9b}') => (State::Control, false),
            (_, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}') => (State::String, false),
            (_, '\n' | '\t') => (State::Text, true),
            (_, '\u{fff9}'..='\u{fffb}') => (State::Text, false),
            (_, character) => (State::Text, !character.is_control()),
        };
        self.state = state;
        keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&[u8]]) -> String {
        let (mut stream, mut out) = (Utf8Stream::default(), String::new());
        for chunk in chunks {
            stream.push(chunk, &mut out);
        }
        stream.finish(&mut out);
        out
    }

    #[test]
    fn characters_may_be_split_anywhere() {
        let text = "aé😀z";
        for cut in 0..=text.len() {
            let (left, right) = text.as_bytes().split_at(cut);
            assert_eq!(decode(&[left, right]), text, "{cut}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(decode(&bytes), text);
    }

    #[test]
    fn bad_bytes_become_replacement_characters() {
        assert_eq!(decode(&[b"a\xff\xfeb"]), "a\u{fffd}\u{fffd}b");
        assert_eq!(decode(&[b"a\xf0\x9f", b"b"]), "a\u{fffd}b");
        assert_eq!(decode(&[b"a\xf0\x9f"]), "a\u{fffd}");
    }

    fn plain(text: &str) -> String {
        let whole = {
            let (mut filter, mut out) = (PlainText::default(), String::new());
            filter.push(text, &mut out);
            out
        };
        let (mut filter, mut out) = (PlainText::default(), String::new());
        for character in text.chars() {
            filter.push(character.encode_utf8(&mut [0; 4]), &mut out);
        }
        assert_eq!(out, whole, "chunk borders must not matter");
        whole
    }

    #[test]
    fn terminal_control_is_taken_out() {
        for (text, expected) in [
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("a\u{1b}[2K\u{1b}[?25lb", "ab"),
            ("\u{1b}]0;title\u{7}x", "x"),
            ("\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}(Bx\u{1b}=y\u{1b}7z", "xyz"),
            ("\u{1b}Pq#0\u{1b}\\x", "x"),
            ("\u{9b}31mx\u{9d}0;t\u{9c}y", "xy"),
            ("10%\r20%\r\n", "10%20%\n"),
            ("a\tb\0c\u{8}\u{7f}\u{85}d", "a\tbcd"),
            ("\u{fff9}a\u{fffb}\u{fffd}", "a\u{fffd}"),
            ("never ends \u{1b}]0;t\nnext", "never ends \nnext"),
            ("cut \u{1b}[3\nnext", "cut \nnext"),
            ("\u{1b}\u{1b}[0mx", "x"),
            ("\u{1b}éx", "éx"),
            ("é😀", "é😀"),
        ] {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }
}
