//! Amazon's binary frames, of any bytes and in any pieces. An odd first byte of the stream asks for right checksums, so
//! that what lies behind them is reached; the rest is the frames.
#![no_main]

use atomic_fuzz::Pieces;
use libfuzzer_sys::fuzz_target;

/// Length of a frame, length of its headers, checksum of both.
const PRELUDE: usize = 12;

/// Each frame that is there as a whole gets the checksums that it should have.
fn mend(mut rest: &mut [u8]) {
    while rest.len() >= PRELUDE + 4 {
        let length = u32::from_be_bytes(rest[..4].try_into().expect("four bytes")) as usize;
        if !(PRELUDE + 4..=rest.len()).contains(&length) {
            return;
        }
        let (frame, tail) = rest.split_at_mut(length);
        let prelude = crc32fast::hash(&frame[..8]);
        frame[8..PRELUDE].copy_from_slice(&prelude.to_be_bytes());
        let whole = crc32fast::hash(&frame[..length - 4]);
        frame[length - 4..].copy_from_slice(&whole.to_be_bytes());
        rest = tail;
    }
}

fuzz_target!(|input: &[u8]| {
    let Some(pieces) = Pieces::of(input) else { return };
    let Some((mends, frames)) = pieces.stream.split_first() else { return };
    let mut frames = frames.to_vec();
    if mends % 2 == 1 {
        mend(&mut frames);
    }
    atomic_providers::any_stream::holds("bedrock-converse-stream", pieces.cut(&frames));
});
