//! The shim's filters: any cut of any stream gives what looking at whole lines gives, and what is left open is closed by
//! records.
#![no_main]

use atomic_fuzz::Pieces;
use atomic_protocol::json::Fields;
use atomic_protocol::link::MARK;
use libfuzzer_sys::fuzz_target;

// The modules are private to a program, so their source is compiled in here; they use nothing else of the shim.
#[allow(dead_code, unreachable_pub, reason = "written for the shim")]
#[path = "../../../shim/src/filter.rs"]
mod filter;
#[allow(dead_code, unreachable_pub, reason = "written for the shim")]
#[path = "../../../shim/src/run.rs"]
mod run;

use filter::{LineGuard, LinkFilter};

fn lines(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    stream.split_inclusive(|byte| *byte == b'\n')
}

/// The types of the records that close what is open, each checked to be a record.
fn closing(filter: &mut LinkFilter) -> Vec<String> {
    let mut out = Vec::new();
    filter.run().close(&mut out);
    let kinds = lines(&out).map(|line| {
        let text = std::str::from_utf8(line).expect("records are UTF-8");
        let fields =
            Fields::parse(text.strip_suffix('\n').expect("a record ends with LF")).expect("an object");
        fields.str("type").expect("an event").into_owned()
    });
    kinds.collect()
}

fuzz_target!(|input: &[u8]| {
    let Some(pieces) = Pieces::of(input) else { return };

    // Daemon to stdout: lines with the mark go to the records, the rest passes.
    let (mut want_out, mut want_records) = (Vec::new(), Vec::new());
    for line in lines(pieces.stream) {
        match line.strip_prefix(&[MARK]) {
            None => want_out.extend_from_slice(line),
            Some(record) => want_records.extend(record.strip_suffix(b"\n").map(<[u8]>::to_vec)),
        }
    }
    let (mut filter, mut out, mut records) = (LinkFilter::default(), Vec::new(), Vec::new());
    for piece in pieces.iter() {
        let mut piece = piece.to_vec();
        let kept = filter.strip(&mut piece, &mut records);
        out.extend_from_slice(&piece[..kept]);
    }
    assert_eq!(out, want_out);
    assert_eq!(records, want_records);
    assert_eq!(filter.in_record(), out.last().is_some_and(|last| *last != b'\n'));
    let mut at_once = LinkFilter::default();
    at_once.strip(&mut pieces.stream.to_vec(), &mut Vec::new());
    assert_eq!(closing(&mut filter), closing(&mut at_once));
    assert!(closing(&mut filter).is_empty(), "what was closed is closed");

    // Stdin to daemon: a line with the mark gets one space, and none of what passed can be taken for a link record.
    let want: Vec<u8> = lines(pieces.stream)
        .flat_map(|line| [if line.first() == Some(&MARK) { &b" "[..] } else { b"" }, line].concat())
        .collect();
    let (mut guard, mut guarded) = (LineGuard::default(), Vec::new());
    pieces.iter().for_each(|piece| guard.pass(piece, &mut guarded));
    assert_eq!(guarded, want);
    assert_eq!(guard.in_line(), pieces.stream.last().is_some_and(|last| *last != b'\n'));
    let mut records = Vec::new();
    assert_eq!(LinkFilter::default().strip(&mut guarded, &mut records), want.len());
    assert!(records.is_empty());
});
