//! JSON as JavaScript's `JSON.parse` takes it, and a writer that never builds a tree.
//!
//! Three habits of the wire decide the shape of this module: bytes that are not UTF-8 and lone surrogates become
//! U+FFFD instead of an error; the last of two equal keys wins; nesting has no limit. `serde_json` alone gives none of
//! them for a derived struct, so lines are first cut into their top-level [`Fields`] (an iterative scan) and only the
//! fields somebody looks at are parsed further.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// One JSON value kept as its text: valid UTF-8, valid JSON, no line feed outside strings that a line could not carry.
///
/// Cloning shares the bytes. Equality is equality of the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Raw(Bytes);

impl Raw {
    /// The text of `value`. Panics only if a map key is not a string, which no type of ours has.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Raw {
        Raw(Bytes::from(serde_json::to_vec(value).expect("our records have string keys and serialise")))
    }

    /// Checks that `text` is one JSON value.
    pub fn parse(text: &str) -> Result<Raw, serde_json::Error> {
        serde_json::from_str::<IgnoredAny>(text)?;
        Ok(Raw(Bytes::copy_from_slice(text.trim().as_bytes())))
    }

    /// Takes text that the caller has just written or just scanned as one JSON value.
    pub fn from_trusted(text: Bytes) -> Raw {
        debug_assert!(std::str::from_utf8(&text).is_ok(), "Raw holds UTF-8");
        Raw(text)
    }

    /// The value's text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("Raw holds UTF-8")
    }

    /// The value's text as shared bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The part of this value whose text is `part`, sharing the bytes. `part` must be a slice of [`Raw::as_str`].
    pub fn slice(&self, part: &str) -> Raw {
        Raw(self.0.slice_ref(part.as_bytes()))
    }

    /// Reads the value as `T`, leniently (see [`from_str`]).
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        from_str(self.as_str())
    }

    /// `null`.
    pub fn null() -> Raw {
        Raw(Bytes::from_static(b"null"))
    }

    /// `{}`.
    pub fn empty_object() -> Raw {
        Raw(Bytes::from_static(b"{}"))
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_slice(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
        Ok(Raw(Bytes::from(String::from(Box::<str>::from(raw)))))
    }
}

/// Text of a line whose bytes may not be UTF-8: each bad sequence becomes U+FFFD.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Reads `text` as `T`; when the strict reading fails, once more with lone surrogates replaced by U+FFFD and with the
/// last of equal keys winning.
///
/// # Errors
/// The error of the first reading, whose position fits the text the caller has.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(first) => {
            let repaired = repair_surrogates(text);
            serde_json::from_str::<serde_json::Value>(&repaired)
                .and_then(serde_json::from_value)
                .map_err(|_| first)
        }
    }
}

/// Replaces every `\uD8xx` escape that has no partner by `\uFFFD`. Borrowed when there is nothing to do.
pub fn repair_surrogates(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out: Option<Vec<u8>> = None;
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        let start = at + found;
        at = match unit_at(bytes, start) {
            None => start + 2,
            Some(unit) if (0xD800..0xDC00).contains(&unit) => match unit_at(bytes, start + 6) {
                Some(low) if (0xDC00..0xE000).contains(&low) => start + 12,
                _ => {
                    replace(&mut out, bytes, &mut copied, start);
                    start + 6
                }
            },
            Some(unit) if (0xDC00..0xE000).contains(&unit) => {
                replace(&mut out, bytes, &mut copied, start);
                start + 6
            }
            Some(_) => start + 6,
        };
        if at >= bytes.len() {
            break;
        }
    }
    match out {
        None => Cow::Borrowed(text),
        Some(mut out) => {
            out.extend_from_slice(&bytes[copied..]);
            Cow::Owned(String::from_utf8(out).expect("only ASCII escapes were replaced"))
        }
    }
}

fn replace(out: &mut Option<Vec<u8>>, bytes: &[u8], copied: &mut usize, start: usize) {
    let out = out.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
    out.extend_from_slice(&bytes[*copied..start]);
    out.extend_from_slice(b"\\uFFFD");
    *copied = start + 6;
}

/// The UTF-16 unit that the escape `\uHHHH` at `at` names, if one stands there.
fn unit_at(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    if &escape[..2] != b"\\u" {
        return None;
    }
    let digits = std::str::from_utf8(&escape[2..]).ok()?;
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u16::from_str_radix(digits, 16).ok()
}

/// The top-level fields of a JSON object, in order, as slices of its text. Nothing below the first level is looked at,
/// so depth costs nothing and a 50 MB value costs one scan.
#[derive(Debug, Default)]
pub struct Fields<'a> {
    fields: Vec<(Cow<'a, str>, &'a str)>,
}

impl<'a> Fields<'a> {
    /// Cuts `text` into fields.
    ///
    /// # Errors
    /// When `text` is not one JSON value, or one that is not an object ([`NotAnObject`] tells them apart).
    pub fn parse(text: &'a str) -> Result<Fields<'a>, NotAnObject> {
        match serde_json::from_str::<Fields<'a>>(text) {
            Ok(fields) => Ok(fields),
            Err(first) => match serde_json::from_str::<IgnoredAny>(text) {
                Ok(_) => Err(NotAnObject::OtherValue),
                Err(_) => Err(NotAnObject::Syntax(first)),
            },
        }
    }

    /// The text of the last field called `key`.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.fields.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// A string field, leniently decoded. `None` when absent or not a string.
    pub fn str(&self, key: &str) -> Option<Cow<'a, str>> {
        self.get(key).and_then(string)
    }

    /// All fields in the order of the text, equal keys included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.fields.iter().map(|(name, value)| (name.as_ref(), *value))
    }
}

/// Why a text gave no [`Fields`].
#[derive(Debug)]
pub enum NotAnObject {
    /// The text is JSON, but a number, string, array, boolean or null.
    OtherValue,
    /// The text is not JSON.
    Syntax(serde_json::Error),
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                // Keys are taken raw as well: an escaped or half-surrogate key must not fail the line.
                while let Some(key) = map.next_key::<RawKey<'de>>()? {
                    let value: &RawValue = map.next_value()?;
                    fields.push((key.0, value.get()));
                }
                Ok(Fields { fields })
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A key, borrowed when it has no escape.
struct RawKey<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for RawKey<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: &RawValue = Deserialize::deserialize(deserializer)?;
        string(raw.get()).map(RawKey).ok_or_else(|| D::Error::custom("a key is a string"))
    }
}

/// Decodes the text of a JSON string. `None` when `text` is another value.
pub fn string(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(&repair_surrogates(text)).ok().map(Cow::Owned)
}

/// Appends `text` as a JSON string. U+2028 and U+2029 stay raw, as the reference writes them.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing a string into memory cannot fail");
}

/// Writes one JSON object field by field into a buffer, without building a tree.
pub struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Opens an object at the end of `out`; [`ObjectWriter::end`] closes it.
    pub fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        ObjectWriter { out, first: true }
    }

    /// Writes the key and gives the buffer for its value.
    pub fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        // Our own keys never need it, but some come from files and from other programs.
        if key.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
            write_string(self.out, key);
        } else {
            self.out.push(b'"');
            self.out.extend_from_slice(key.as_bytes());
            self.out.push(b'"');
        }
        self.out.push(b':');
        self.out
    }

    /// A string field.
    pub fn str(&mut self, key: &str, value: &str) -> &mut Self {
        write_string(self.key(key), value);
        self
    }

    /// A field whose value is JSON text already.
    pub fn raw(&mut self, key: &str, value: &[u8]) -> &mut Self {
        self.key(key).extend_from_slice(value);
        self
    }

    /// A whole number.
    pub fn int(&mut self, key: &str, value: i64) -> &mut Self {
        use std::io::Write as _;
        write!(self.key(key), "{value}").expect("writing into memory cannot fail");
        self
    }

    /// A whole number that is never negative.
    pub fn count(&mut self, key: &str, value: u64) -> &mut Self {
        use std::io::Write as _;
        write!(self.key(key), "{value}").expect("writing into memory cannot fail");
        self
    }

    /// A boolean.
    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.raw(key, if value { b"true" } else { b"false" })
    }

    /// Any serialisable value.
    pub fn value<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> &mut Self {
        serde_json::to_writer(self.key(key), value).expect("our records have string keys and serialise");
        self
    }

    /// An array of values that are JSON text already.
    pub fn raws<'r>(&mut self, key: &str, values: impl IntoIterator<Item = &'r Raw>) -> &mut Self {
        let out = self.key(key);
        out.push(b'[');
        for (index, value) in values.into_iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(value.bytes());
        }
        out.push(b']');
        self
    }

    /// Closes the object.
    pub fn end(self) {
        self.out.push(b'}');
    }
}

/// A number as JavaScript prints it: a whole value has no `.0`. Used with `#[serde(with = "json::number")]`.
pub mod number {
    use serde::{Deserialize, Deserializer, Serializer};

    /// Largest magnitude at which every whole `f64` is exact (2^53).
    const SAFE: f64 = 9_007_199_254_740_992.0;

    /// Writes whole values as integers.
    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.fract() == 0.0 && value.abs() <= SAFE {
            serializer.serialize_i64(*value as i64)
        } else {
            serializer.serialize_f64(*value)
        }
    }

    /// Reads any JSON number; `null` reads as 0, as sums in the reference treat it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(0.0))
    }
}

/// A count that other programs may have written as a float, as null or not at all.
pub mod count {
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the integer.
    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(*value)
    }

    /// Reads any non-negative JSON number, rounding down; null and negative values read as 0.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.map_or(0, |value| value.max(0.0) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_of_equal_keys_wins_and_escaped_keys_are_read() {
        let fields = Fields::parse(r#" {"a":1,"\u0061":2,"b":{"a":3}} "#).unwrap();
        assert_eq!(fields.get("a"), Some("2"));
        assert_eq!(fields.get("b"), Some(r#"{"a":3}"#));
    }

    #[test]
    fn depth_has_no_limit() {
        let deep = format!(r#"{{"id":{}1{},"type":"x"}}"#, "[".repeat(200_000), "]".repeat(200_000));
        let fields = Fields::parse(&deep).unwrap();
        assert_eq!(fields.str("type").as_deref(), Some("x"));
        assert_eq!(fields.get("id").unwrap().len(), 400_001);
    }

    #[test]
    fn values_that_are_no_objects_are_told_from_syntax_errors() {
        for other in ["5", "\"s\"", "true", "null", "[]"] {
            assert!(matches!(Fields::parse(other), Err(NotAnObject::OtherValue)), "{other}");
        }
        for broken in ["", " ", "{", "{\"a\":}", "not json", "\u{feff}{}", "{} {}"] {
            assert!(matches!(Fields::parse(broken), Err(NotAnObject::Syntax(_))), "{broken:?}");
        }
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        assert_eq!(repair_surrogates(r#""a\ud800b""#), r#""a\uFFFDb""#);
        assert_eq!(repair_surrogates(r#""\udc00\ud83d\ude00\ud83d""#), r#""\uFFFD\ud83d\ude00\uFFFD""#);
        assert!(matches!(repair_surrogates(r#""\\ud800 \u0041""#), Cow::Borrowed(_)));
        assert_eq!(string(r#""x\ud83d\ude00\ud800""#).as_deref(), Some("x😀\u{fffd}"));
        assert_eq!(from_str::<Vec<String>>(r#"["\ud800"]"#).unwrap(), ["\u{fffd}"]);
    }

    #[test]
    fn bytes_that_are_not_utf8_become_replacement_characters() {
        assert_eq!(text(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn whole_floats_print_without_a_fraction() {
        #[derive(Serialize)]
        struct N(#[serde(with = "number")] f64);
        let print = |n| serde_json::to_string(&N(n)).unwrap();
        assert_eq!([print(3.0), print(0.1), print(-2.0), print(0.0)], ["3", "0.1", "-2", "0"]);
    }

    #[test]
    fn any_key_can_be_written() {
        let mut out = Vec::new();
        let mut object = ObjectWriter::begin(&mut out);
        object.int("a\"b\\c\u{8}", 1).count("é", u64::MAX);
        object.end();
        let fields = std::str::from_utf8(&out).unwrap();
        let fields = Fields::parse(fields).unwrap();
        assert_eq!(fields.get("a\"b\\c\u{8}"), Some("1"));
        assert_eq!(fields.get("é"), Some("18446744073709551615"));
    }

    #[test]
    fn raw_round_trips_through_serde() {
        let raw: Raw = serde_json::from_str(r#"{"b":1.0,"a":[1,2]}"#).unwrap();
        assert_eq!(serde_json::to_string(&vec![raw]).unwrap(), r#"[{"b":1.0,"a":[1,2]}]"#);
    }
}
