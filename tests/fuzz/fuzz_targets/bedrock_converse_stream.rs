//! An answer of `bedrock-converse-stream` in frames that are right: what [`atomic_providers::any_stream`] says holds for
//! any records in any pieces. Each line of the input is one record.
#![no_main]

use atomic_fuzz::Pieces;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(pieces) = Pieces::of(input) else { return };
    let frames = atomic_providers::any_stream::frames(pieces.stream);
    atomic_providers::any_stream::holds("bedrock-converse-stream", pieces.cut(&frames));
});
