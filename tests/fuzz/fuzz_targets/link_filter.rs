//! The shim's filters: any cut of any stream gives what looking at whole lines gives.
#![no_main]

use atomic_fuzz::Pieces;
use atomic_protocol::link::MARK;
use libfuzzer_sys::fuzz_target;

// The module is private to a program, so its source is compiled in here; it uses nothing else of the shim.
#[allow(dead_code, unreachable_pub, reason = "written for the shim")]
#[path = "../../../shim/src/filter.rs"]
mod filter;

use filter::{LineGuard, LinkFilter};

fn lines(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    stream.split_inclusive(|byte| *byte == b'\n')
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
