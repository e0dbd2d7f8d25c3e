//! JSON as models write it: tool arguments that are cut off, carry raw line breaks, or have bad backslashes.

use std::borrow::Cow;

use atomic_protocol::json::{Fields, NotAnObject, Raw, repair_surrogates};

/// The arguments of a finished tool call, always a JSON object on one line. In order: what stands there; what stands
/// there with raw control characters and bad backslashes repaired and with everything open closed; `{}`. Text after
/// the first value is dropped. Numbers keep their spelling.
pub fn arguments(text: &str) -> Raw {
    let text = repair_surrogates(text.trim());
    let object = match Fields::parse(&text) {
        Ok(_) => Some(one_line(text)),
        Err(NotAnObject::OtherValue) => None,
        Err(NotAnObject::Syntax(_)) => {
            mend(&text).filter(|fixed| Fields::parse(fixed).is_ok()).map(Cow::Owned)
        }
    };
    match object {
        Some(text) => Raw::from_trusted(text.into_owned().into()),
        None => Raw::empty_object(),
    }
}

/// Valid JSON without line breaks outside strings: a record must fit on one line.
fn one_line(text: Cow<'_, str>) -> Cow<'_, str> {
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none() {
        return text;
    }
    let mut inside = false;
    let mut escaped = false;
    let kept = text.chars().filter(|&c| {
        if inside {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => inside = false,
                _ => {}
            }
            return true;
        }
        inside = c == '"';
        !matches!(c, ' ' | '\t' | '\n' | '\r')
    });
    Cow::Owned(kept.collect())
}

/// The longest beginning of `text` that can be closed to a JSON value, closed. `None` when not even a value begins.
pub(crate) fn mend(text: &str) -> Option<String> {
    let mut pen = Pen { out: String::with_capacity(text.len() + 8), closers: Vec::new(), safe: None };
    pen.write(text);
    let safe = pen.safe?;
    pen.out.truncate(safe);
    pen.out.extend(pen.closers.iter().rev());
    Some(pen.out)
}

/// A record with raw control characters, bad backslashes and lone surrogates repaired and each key once.
pub(crate) fn record(text: &str) -> Option<String> {
    let mended = mend(&repair_surrogates(text))?;
    let value: serde_json::Value = serde_json::from_str(&mended).ok()?;
    serde_json::to_string(&value).ok()
}

/// What may stand next.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
}

struct Pen {
    out: String,
    /// What closes the open containers, innermost last. Each change of it is also a safe point.
    closers: Vec<char>,
    /// Length of `out` up to which it only needs its closers. `None` until a value has begun.
    safe: Option<usize>,
}

impl Pen {
    fn safe_here(&mut self) {
        self.safe = Some(self.out.len());
    }

    fn write(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut next = Next::Value;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match (byte, next) {
                (b' ' | b'\t' | b'\n' | b'\r', _) => {
                    at += 1;
                    continue;
                }
                (b'{' | b'[', Next::Value | Next::ValueOrEnd) => {
                    self.out.push(char::from(byte));
                    self.closers.push(if byte == b'{' { '}' } else { ']' });
                    self.safe_here();
                    next = if byte == b'{' { Next::KeyOrEnd } else { Next::ValueOrEnd };
                    at += 1;
                    continue;
                }
                (b'}', Next::KeyOrEnd | Next::Key | Next::CommaOrEnd)
                    if self.closers.last() == Some(&'}') =>
                {
                    self.close();
                    at += 1;
                }
                (b']', Next::ValueOrEnd | Next::Value | Next::CommaOrEnd)
                    if self.closers.last() == Some(&']') =>
                {
                    self.close();
                    at += 1;
                }
                (b',', Next::CommaOrEnd) => {
                    self.out.push(',');
                    next = if self.closers.last() == Some(&'}') { Next::Key } else { Next::Value };
                    at += 1;
                    continue;
                }
                (b':', Next::Colon) => {
                    self.out.push(':');
                    next = Next::Value;
                    at += 1;
                    continue;
                }
                (b'"', Next::Key | Next::KeyOrEnd) => {
                    let (after, closed) = self.string(text, at);
                    if !closed {
                        return;
                    }
                    at = after;
                    next = Next::Colon;
                    continue;
                }
                (b'"', Next::Value | Next::ValueOrEnd) => {
                    let (after, closed) = self.string(text, at);
                    if !closed {
                        self.out.push('"');
                    }
                    self.safe_here();
                    at = after;
                }
                (_, Next::Value | Next::ValueOrEnd) => {
                    let length = bytes[at..]
                        .iter()
                        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
                        .count();
                    let word = &text[at..at + length];
                    if serde_json::from_str::<serde::de::IgnoredAny>(word).is_err() {
                        return;
                    }
                    self.out.push_str(word);
                    self.safe_here();
                    at += length;
                }
                _ => return,
            }
            if self.closers.is_empty() {
                return;
            }
            next = Next::CommaOrEnd;
        }
    }

    fn close(&mut self) {
        // A trailing comma stands behind the safe point and goes.
        self.out.truncate(self.safe.unwrap_or(0));
        if let Some(closer) = self.closers.pop() {
            self.out.push(closer);
        }
        self.safe_here();
    }

    /// Copies the string that begins at `start`, repaired. Returns where to go on and whether its end was there; an
    /// escape that the end of the text cuts is dropped.
    fn string(&mut self, text: &str, start: usize) -> (usize, bool) {
        let bytes = text.as_bytes();
        self.out.push('"');
        let mut at = start + 1;
        loop {
            let plain = bytes[at..].iter().take_while(|&&b| b != b'"' && b != b'\\' && b >= 0x20).count();
            self.out.push_str(&text[at..at + plain]);
            at += plain;
            match bytes.get(at) {
                None => return (at, false),
                Some(b'"') => {
                    self.out.push('"');
                    return (at + 1, true);
                }
                Some(b'\\') => match bytes.get(at + 1) {
                    None => return (bytes.len(), false),
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                        self.out.push_str(&text[at..at + 2]);
                        at += 2;
                    }
                    Some(b'u') => {
                        let digits =
                            bytes[at + 2..].iter().take(4).take_while(|b| b.is_ascii_hexdigit()).count();
                        if digits == 4 {
                            self.out.push_str(&text[at..at + 6]);
                            at += 6;
                        } else if at + 2 + digits == bytes.len() {
                            return (bytes.len(), false);
                        } else {
                            self.out.push_str("\\\\");
                            at += 1;
                        }
                    }
                    Some(_) => {
                        self.out.push_str("\\\\");
                        at += 1;
                    }
                },
                Some(&control) => {
                    match control {
                        b'\n' => self.out.push_str("\\n"),
                        b'\r' => self.out.push_str("\\r"),
                        b'\t' => self.out.push_str("\\t"),
                        other => self.out.push_str(&format!("\\u{other:04x}")),
                    }
                    at += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_always_an_object() {
        for (text, want) in [
            ("", "{}"),
            ("  ", "{}"),
            ("null", "{}"),
            ("[1]", "{}"),
            ("\"s\"", "{}"),
            ("nonsense", "{}"),
            ("{}{}", "{}"),
            (r#"{"a":1}{"b":2}"#, r#"{"a":1}"#),
            (r#"{"a":1,"b":18446744073709551615}"#, r#"{"a":1,"b":18446744073709551615}"#),
            (r#"{"a": 1.0}"#, r#"{"a": 1.0}"#),
            ("{\n  \"a\": \"x y\\\"\",\r\n \"b\": [ 1, 2 ]\n}", r#"{"a":"x y\"","b":[1,2]}"#),
            ("{\"a\":\"x\ny\u{1}\"}", r#"{"a":"x\ny\u0001"}"#),
            (r#"{"a":"C:\dir \u12"}"#, r#"{"a":"C:\\dir \\u12"}"#),
            (r#"{"a":"\ud800"}"#, r#"{"a":"\uFFFD"}"#),
            (r#"{"a":1,}"#, r#"{"a":1}"#),
            (r#"{"a":[1,2,],"b":"#, r#"{"a":[1,2]}"#),
            (r#"{"path":"src/ma"#, r#"{"path":"src/ma"}"#),
            (r#"{"path":"a\"#, r#"{"path":"a"}"#),
            (r#"{"path":"a\u00"#, r#"{"path":"a"}"#),
            (r#"{"a":{"b":[{"c":tru"#, r#"{"a":{"b":[{}]}}"#),
            (r#"{"a":1,"ke"#, r#"{"a":1}"#),
            (r#"{"a":1,"key":"#, r#"{"a":1}"#),
            (r#"{"a":-"#, "{}"),
            (r#"{"a":12"#, r#"{"a":12}"#),
            (r#"{"a":1]"#, r#"{"a":1}"#),
            ("{", "{}"),
        ] {
            assert_eq!(arguments(text).as_str(), want, "{text:?}");
        }
    }

    #[test]
    fn every_cut_of_an_object_is_an_object() {
        let text = r#"{"a":"ä\n\u00e4😀","b":[true,null,{"c":-1.5e3}],"d":{}}"#;
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let raw = arguments(&text[..at]);
            assert!(Fields::parse(raw.as_str()).is_ok(), "{at}: {raw:?}");
        }
    }

    #[test]
    fn depth_has_no_limit() {
        let deep = format!("{{\"a\":{}", "[".repeat(200_000));
        assert_eq!(arguments(&deep).as_str().len(), deep.len() + 200_001);
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_an_object_on_one_line(text in r#"[{}\[\]",:\\u0-9a-eä\n \x01.-]{0,40}"#) {
            let raw = arguments(&text);
            proptest::prop_assert!(Fields::parse(raw.as_str()).is_ok(), "{:?}", raw);
            proptest::prop_assert!(!raw.as_str().contains('\n'));
        }
    }
}
