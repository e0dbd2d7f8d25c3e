//! Every line gives a command or exactly one answer; a command written as a line is that command again.
#![no_main]

use atomic_protocol::command::{Command, Request};
use atomic_protocol::json::{self, Fields};
use atomic_protocol::response;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

/// One JSON object on one line, LF at the end and nowhere else.
fn the_record(line: &[u8]) -> &str {
    let text = std::str::from_utf8(line).expect("records are UTF-8");
    let record = text.strip_suffix('\n').expect("a record ends with LF");
    assert!(!record.contains('\n'), "{record:?}");
    assert!(Fields::parse(record).is_ok(), "{record:?}");
    record
}

fuzz_target!(|input: &[u8]| {
    // A line never holds a LF: framing took it.
    let line: Vec<u8> = input.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect();
    let line = Bytes::from(line);
    let asked = json::text(&line);
    let id = Fields::parse(&asked).ok().and_then(|fields| fields.get("id"));
    match Request::parse(&line) {
        Err(answer) => {
            let fields = Fields::parse(the_record(&answer)).expect("checked");
            assert_eq!(fields.str("type").as_deref(), Some("response"));
            assert_eq!(fields.get("success"), Some("false"));
            assert!(fields.str("error").is_some_and(|error| !error.is_empty()));
            assert_eq!(fields.get("id"), id, "the id comes back as its raw text");
        }
        Ok(request) => {
            let written = request.to_line();
            let written = Bytes::copy_from_slice(the_record(&written).as_bytes());
            let again = Request::parse(&written).expect("a command that was understood");
            assert_eq!(again, request);
            assert_eq!(again.to_line(), request.to_line());
            let _ = request.command.lane();
            if !matches!(request.command, Command::ExtensionUiResponse(_)) {
                assert_eq!(request.id.as_ref().map(|id| id.as_str()), id);
                let answer = response::success(request.id.as_ref(), request.command.name(), Some(b"{}"));
                let fields = Fields::parse(the_record(&answer)).expect("checked");
                assert_eq!((fields.get("id"), fields.get("success")), (id, Some("true")));
            }
        }
    }
});
