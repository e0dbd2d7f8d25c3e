//! Changing single fields of a JSON object without touching the rest of its text.

use std::borrow::Cow;

use atomic_protocol::Raw;
use atomic_protocol::json::{Fields, write_string};

/// `fields` as an object's text with some fields changed. `None` as a value drops the field; a key that the object does not have
/// is added at the end. Other values keep their bytes.
pub(crate) fn with_fields(fields: &Fields<'_>, changes: &[(&str, Option<Cow<'_, [u8]>>)]) -> Raw {
    let mut out = vec![b'{'];
    let mut put = |key: &str, value: &[u8]| {
        if out.len() > 1 {
            out.push(b',');
        }
        write_string(&mut out, key);
        out.push(b':');
        out.extend_from_slice(value);
    };
    let mut seen: Vec<&str> = Vec::new();
    for (key, _) in fields.iter() {
        // As in JavaScript: a repeated key stands where it came first and has its last value.
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        match changes.iter().find(|(changed, _)| *changed == key) {
            Some((_, Some(value))) => put(key, value),
            Some((_, None)) => {}
            None => put(key, fields.get(key).expect("the key came from these fields").as_bytes()),
        }
    }
    for (key, value) in changes {
        if let Some(value) = value
            && !seen.contains(key)
        {
            put(key, value);
        }
    }
    out.push(b'}');
    Raw::from_trusted(out.into())
}

/// `text` as the text of a JSON string.
pub(crate) fn quoted(text: &str) -> Cow<'static, [u8]> {
    let mut out = Vec::with_capacity(text.len() + 2);
    write_string(&mut out, text);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_keeps_its_bytes() {
        let fields = Fields::parse(r#"{ "a" : 1.0, "b": [1 , 2], "a": 2.50, "c":"x" }"#).unwrap();
        let changed =
            with_fields(&fields, &[("b", None), ("c", Some(quoted("ö\n"))), ("d", Some(b"null".into()))]);
        assert_eq!(changed.as_str(), r#"{"a":2.50,"c":"ö\n","d":null}"#);
    }
}
