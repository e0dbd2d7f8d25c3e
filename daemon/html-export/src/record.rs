//! What we read of an entry and of a message: strings where there are strings, nothing where there is something else.
//!
//! A page must come out of whatever a file holds, so nothing here fails and nothing is typed further than it is shown.

use std::borrow::Cow;

use atomic_protocol::json::{self, Fields};
use atomic_protocol::message::Usage;
use atomic_protocol::time::Millis;
use serde_json::value::RawValue;

/// The fields of a JSON object; none when it is something else.
pub(crate) fn fields(raw: &str) -> Fields<'_> {
    Fields::parse(raw).unwrap_or_default()
}

/// The elements of a JSON array; none when it is something else.
pub(crate) fn elements(raw: &str) -> Vec<&str> {
    serde_json::from_str::<Vec<&RawValue>>(raw)
        .map(|values| values.into_iter().map(RawValue::get).collect())
        .unwrap_or_default()
}

/// `true` stands there.
pub(crate) fn is_true(fields: &Fields<'_>, key: &str) -> bool {
    fields.get(key) == Some("true")
}

/// A field that says something: absent and `null` are the same.
pub(crate) fn given<'a>(fields: &Fields<'a>, key: &str) -> Option<&'a str> {
    fields.get(key).filter(|raw| *raw != "null")
}

/// The usage field, if there is one that can be read.
pub(crate) fn usage(fields: &Fields<'_>) -> Option<Usage> {
    json::from_str(given(fields, "usage")?).ok()
}

/// The time of an entry (ISO 8601), or of a header.
pub(crate) fn time(fields: &Fields<'_>) -> Option<Millis> {
    Millis::from_iso(&fields.str("timestamp")?)
}

/// One piece of a message's content.
pub(crate) enum Piece<'a> {
    Text(Cow<'a, str>),
    Thinking {
        text: Cow<'a, str>,
        redacted: bool,
    },
    Image {
        data: Cow<'a, str>,
        mime: Cow<'a, str>,
    },
    ToolCall {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        arguments: &'a str,
    },
    /// JSON that is none of these.
    Other(&'a str),
}

/// The pieces of a `content` field: a plain string is one text; nothing and `null` are none.
pub(crate) fn pieces<'a>(message: &Fields<'a>) -> Vec<Piece<'a>> {
    let Some(raw) = given(message, "content") else { return Vec::new() };
    match raw.as_bytes().first() {
        Some(b'"') => json::string(raw).map(Piece::Text).into_iter().collect(),
        Some(b'[') => elements(raw).into_iter().map(piece).collect(),
        _ => vec![Piece::Other(raw)],
    }
}

fn piece(raw: &str) -> Piece<'_> {
    let block = fields(raw);
    let known = match block.str("type").as_deref() {
        Some("text") => block.str("text").map(Piece::Text),
        Some("thinking") => {
            block.str("thinking").map(|text| Piece::Thinking { text, redacted: is_true(&block, "redacted") })
        }
        Some("image") => block
            .str("data")
            .map(|data| Piece::Image { data, mime: block.str("mimeType").unwrap_or_default() }),
        Some("toolCall") => Some(Piece::ToolCall {
            id: block.str("id").unwrap_or_default(),
            name: block.str("name").unwrap_or_default(),
            arguments: given(&block, "arguments").unwrap_or("{}"),
        }),
        _ => None,
    };
    known.unwrap_or(Piece::Other(raw))
}

/// The texts of a `content` field, one under the other.
pub(crate) fn texts(message: &Fields<'_>) -> String {
    let mut out = String::new();
    for piece in pieces(message) {
        if let Piece::Text(text) = piece {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&text);
        }
    }
    out
}
