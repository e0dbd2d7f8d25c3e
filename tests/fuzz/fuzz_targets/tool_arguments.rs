//! Tool arguments as models write them: always one JSON object on one line, and unchanged when they were one already.
#![no_main]

use atomic_protocol::json::{Fields, repair_surrogates};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

// The module is private to its crate, so its source is compiled in here; it uses nothing else of that crate.
#[allow(dead_code, unreachable_pub, reason = "written for the providers")]
#[path = "../../../daemon/providers/src/partial_json.rs"]
mod partial_json;

fuzz_target!(|text: &str| {
    let arguments = partial_json::arguments(text);
    let record = arguments.as_str();
    assert!(!record.contains(['\n', '\r']), "{record:?}");
    let read = Fields::parse(record).expect("always an object");
    let repaired = repair_surrogates(text);
    if let Ok(fields) = Fields::parse(&repaired) {
        assert!(fields.iter().map(|(key, _)| key).eq(read.iter().map(|(key, _)| key)));
        // White space outside strings may go, nothing else.
        for ((_, was), (_, is)) in fields.iter().zip(read.iter()) {
            assert_eq!(serde_json::from_str::<serde_json::Value>(was).ok(), serde_json::from_str(is).ok());
        }
    }
    if let Some(mended) = partial_json::mend(text) {
        serde_json::from_str::<&RawValue>(&mended).expect("mended text is JSON");
    }
});
