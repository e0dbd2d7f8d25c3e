//! Any stream cut anywhere gives the lines of the obvious splitter.
#![no_main]

use atomic_fuzz::Pieces;
use atomic_protocol::frame::LineSplitter;
use libfuzzer_sys::fuzz_target;

/// LF ends a line and nothing else does; one CR before it goes too; what follows the last LF counts unless it is empty.
fn naive(stream: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> =
        stream.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    if lines.last().is_some_and(|rest| rest.is_empty()) {
        lines.pop();
    }
    lines
}

fuzz_target!(|input: &[u8]| {
    let Some(pieces) = Pieces::of(input) else { return };
    let want = naive(pieces.stream);
    // Lines taken after each piece, or all at the end; bytes pushed, or written into the buffer.
    for (eager, in_place) in [(true, false), (false, true)] {
        let mut splitter = LineSplitter::new();
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for piece in pieces.iter() {
            if in_place {
                splitter.buffer().extend_from_slice(piece);
            } else {
                splitter.push(piece);
            }
            while eager && let Some(line) = splitter.next_line() {
                lines.push(line.to_vec());
            }
        }
        while let Some(line) = splitter.next_line() {
            lines.push(line.to_vec());
        }
        let after_last = pieces.stream.iter().rev().take_while(|byte| **byte != b'\n').count();
        assert_eq!(splitter.pending(), after_last);
        lines.extend(splitter.take_rest().map(|rest| rest.to_vec()));
        assert_eq!(lines, want);
        assert_eq!((splitter.pending(), splitter.next_line()), (0, None));
    }
});
