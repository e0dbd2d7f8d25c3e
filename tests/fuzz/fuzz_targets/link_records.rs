//! Reading a link record, a hello or a reply never panics; what was read or made comes back the same.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use atomic_protocol::Raw;
use atomic_protocol::link::{FromDaemon, FromShim, Hello, MARK, Reply};
use libfuzzer_sys::fuzz_target;

/// A record made up field by field, and a text that claims to be one.
#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Text(&'a str),
    Eof,
    Signal(i32),
    Progress { admitted: Option<u32>, answered: Vec<u64>, ids: Vec<(u64, &'a str)> },
    Notice(&'a str),
    Exit { code: u8, text: Option<&'a str> },
}

/// The record without mark and LF.
fn inside(line: &[u8]) -> &str {
    assert_eq!(line.first(), Some(&MARK));
    let record = std::str::from_utf8(&line[1..]).expect("link records are UTF-8");
    let record = record.strip_suffix('\n').expect("a record ends with LF");
    assert!(!record.contains('\n'), "{record:?}");
    record
}

fn from_shim(record: FromShim) {
    assert_eq!(FromShim::parse(inside(&record.to_line())), Some(record));
}

fn from_daemon(record: FromDaemon) {
    let mut line = Vec::new();
    record.write_line(&mut line);
    let read = FromDaemon::parse(inside(&line));
    // Progress about nothing is written as nothing.
    if matches!(&record, FromDaemon::Progress { admitted: None, answered, .. } if answered.is_empty()) {
        assert_eq!(read, None);
    } else {
        assert_eq!(read, Some(record));
    }
}

fuzz_target!(|input: Input<'_>| {
    match input {
        Input::Text(text) => {
            // A record comes from one line.
            let text = &text.replace('\n', " ");
            if let Some(record) = FromShim::parse(text) {
                from_shim(record);
            }
            if let Some(record) = FromDaemon::parse(text) {
                from_daemon(record);
            }
            if let Ok(hello) = serde_json::from_str::<Hello>(text) {
                let once = serde_json::to_string(&hello).expect("a hello serialises");
                let again: Hello = serde_json::from_str(&once).expect("what we wrote");
                assert_eq!(serde_json::to_string(&again).expect("a hello serialises"), once);
                assert!(!once.contains('\n'));
            }
            if let Ok(reply) = serde_json::from_str::<Reply>(text) {
                let once = serde_json::to_string(&reply).expect("a reply serialises");
                assert_eq!(serde_json::from_str::<Reply>(&once).expect("what we wrote"), reply);
                assert!(!once.contains('\n'));
            }
        }
        Input::Eof => from_shim(FromShim::Eof),
        Input::Signal(number) => from_shim(FromShim::Signal(number)),
        Input::Progress { admitted, answered, ids } => {
            // Ids are raw JSON of one line; any text is one as a string.
            let ids: BTreeMap<u64, Raw> =
                ids.into_iter().map(|(n, id)| (n, Raw::from_serialize(id))).collect();
            from_daemon(FromDaemon::Progress { admitted: admitted.map(u64::from), answered, ids });
        }
        Input::Notice(text) => from_daemon(FromDaemon::Notice(text.to_owned())),
        Input::Exit { code, text } => from_daemon(FromDaemon::Exit { code, text: text.map(str::to_owned) }),
    }
});
