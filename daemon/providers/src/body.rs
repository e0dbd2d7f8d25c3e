//! Pieces of JSON that requests of several dialects have in common.

use std::borrow::Cow;

use atomic_protocol::json::{Fields, ObjectWriter, Raw, repair_surrogates, write_string};
use atomic_protocol::model::{Model, ThinkingLevel};

/// What a model's map says about a level: absent (the default rule), null (not supported), or the vendor's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped<'a> {
    Absent,
    Null,
    Word(&'a str),
}

impl<'a> Mapped<'a> {
    pub(crate) fn of(model: &'a Model, level: ThinkingLevel) -> Mapped<'a> {
        match model.thinking_level_map.as_ref().and_then(|map| map.get(&level)) {
            None => Mapped::Absent,
            Some(None) => Mapped::Null,
            Some(Some(word)) => Mapped::Word(word),
        }
    }

    /// The vendor's word, else `otherwise`.
    pub(crate) fn word_or(self, otherwise: &'a str) -> &'a str {
        match self {
            Mapped::Word(word) => word,
            Mapped::Absent | Mapped::Null => otherwise,
        }
    }
}

/// A list, item by item.
pub(crate) struct List<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> List<'a> {
    pub(crate) fn begin(out: &'a mut Vec<u8>) -> List<'a> {
        out.push(b'[');
        List { out, first: true }
    }

    /// The buffer for the next item.
    pub(crate) fn item(&mut self) -> &mut Vec<u8> {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        self.out
    }

    /// The next item, an object.
    pub(crate) fn object(&mut self) -> ObjectWriter<'_> {
        ObjectWriter::begin(self.item())
    }

    pub(crate) fn end(self) {
        self.out.push(b']');
    }
}

/// A number of tokens as JSON writers take it.
pub(crate) fn count(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// The first characters of a text.
pub(crate) fn clipped(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}

pub(crate) fn joined<'a>(texts: &[&'a str], between: &str) -> Cow<'a, str> {
    match texts {
        [] => Cow::Borrowed(""),
        [text] => Cow::Borrowed(text),
        texts => Cow::Owned(texts.join(between)),
    }
}

/// Images are large: what needs no escapes, and base64 never does, is not copied twice.
pub(crate) fn data_uri(out: &mut Vec<u8>, mime_type: &str, data: &str) {
    let plain = |text: &str| !text.bytes().any(|byte| byte < 0x20 || matches!(byte, b'"' | b'\\'));
    if !plain(mime_type) || !plain(data) {
        return write_string(out, &format!("data:{mime_type};base64,{data}"));
    }
    for piece in ["\"data:", mime_type, ";base64,", data, "\""] {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// An object without one of its fields.
pub(crate) fn without(object: &Raw, name: &str) -> Raw {
    let fields = Fields::parse(object.as_str()).unwrap_or_default();
    let mut out = Vec::with_capacity(object.as_str().len());
    let mut writer = ObjectWriter::begin(&mut out);
    for (key, value) in fields.iter().filter(|(key, _)| *key != name) {
        writer.raw(key, value.as_bytes());
    }
    writer.end();
    std::str::from_utf8(&out).ok().and_then(|text| Raw::parse(text).ok()).unwrap_or_else(Raw::empty_object)
}

/// The body with the user's own keys at its end, instead of ours of the same name.
pub(crate) fn overridden(body: Vec<u8>, sampling: &Raw) -> Vec<u8> {
    let own = Fields::parse(sampling.as_str()).unwrap_or_default();
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let Ok(ours) = Fields::parse(text) else { return body };
    let mut out = Vec::with_capacity(body.len() + sampling.as_str().len());
    let mut object = ObjectWriter::begin(&mut out);
    for (name, value) in ours.iter().filter(|(name, _)| own.get(name).is_none()) {
        object.raw(name, value.as_bytes());
    }
    for (name, value) in own.iter() {
        let last = own.get(name).map(str::as_ptr) == Some(value.as_ptr());
        // Names are written as they stand; no field of a request needs escapes.
        if last && !name.contains(|c: char| c.is_control() || matches!(c, '"' | '\\')) {
            object.raw(name, repair_surrogates(value).as_bytes());
        }
    }
    object.end();
    out
}
