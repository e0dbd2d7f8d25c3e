//! The lenient reader never panics, and agrees with a strict one wherever that one has an opinion.
#![no_main]

use std::borrow::Cow;
use std::collections::HashSet;

use atomic_protocol::Raw;
use atomic_protocol::json::{self, Fields, NotAnObject};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use serde_json::value::RawValue;

/// Depth has no limit for `RawValue`, so this is the strict reader's yes or no for any text.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

fn strict(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fuzz_target!(|input: &[u8]| {
    let text = json::text(input);
    let text: &str = &text;

    let repaired = json::repair_surrogates(text);
    assert!(
        matches!(json::repair_surrogates(&repaired), Cow::Borrowed(_)),
        "repairing twice changes nothing"
    );
    assert_eq!(repaired.len(), text.len(), "one escape stands for another");
    assert_eq!(is_json(&repaired), is_json(text));

    let inner = text.trim_matches([' ', '\t', '\r', '\n']);
    match serde_json::from_str::<String>(&repaired) {
        Ok(string) => assert_eq!(json::string(inner).as_deref(), Some(string.as_str())),
        Err(_) if is_json(text) => assert_eq!(json::string(inner), None),
        Err(_) => drop(json::string(inner)),
    }

    let mut quoted = Vec::new();
    json::write_string(&mut quoted, text);
    let quoted = std::str::from_utf8(&quoted).expect("JSON text is UTF-8");
    assert_eq!(json::string(quoted).as_deref(), Some(text));
    assert!(!quoted.contains('\n'), "a string fits on a line");

    match Fields::parse(text) {
        Ok(fields) => {
            assert!(is_json(text) && inner.starts_with('{'));
            let keys: HashSet<&str> = fields.iter().map(|(key, _)| key).collect();
            for (key, value) in fields.iter() {
                assert!(is_json(value), "{key:?}");
                assert_eq!(
                    fields.get(key),
                    fields.iter().filter(|(other, _)| *other == key).last().map(|(_, v)| v)
                );
            }
            // The tree reader stops at depth 128 and at numbers beyond f64; there the slices above have to do.
            if let Some(Value::Object(object)) = strict(&repaired) {
                assert_eq!(keys.len(), object.len());
                for (key, value) in &object {
                    let slice = fields.get(key).expect("a key of the object");
                    assert_eq!(strict(&json::repair_surrogates(slice)).as_ref(), Some(value), "{key:?}");
                    assert_eq!(fields.str(key).as_deref(), value.as_str(), "{key:?}");
                }
            }
        }
        Err(NotAnObject::OtherValue) => assert!(is_json(text) && !inner.starts_with('{')),
        Err(NotAnObject::Syntax(_)) => assert!(!is_json(text)),
    }

    let lenient = json::from_str::<Value>(text).ok();
    assert_eq!(lenient, strict(&repaired));
    assert!(strict(text).is_none_or(|value| lenient == Some(value)));

    if let Ok(raw) = Raw::parse(text) {
        assert_eq!(raw.as_str(), inner);
        assert_eq!(serde_json::to_string(&raw).expect("it was checked"), inner);
        assert_eq!(serde_json::from_str::<Raw>(text).expect("it was checked"), raw);
        assert_eq!(raw.read::<Value>().ok(), lenient);
    } else {
        assert!(!is_json(text));
    }
});
