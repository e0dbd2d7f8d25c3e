//! An answer of `google-generative-ai`: what [`atomic_providers::any_stream`] says holds for any bytes in any pieces.
#![no_main]

use atomic_fuzz::Pieces;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(pieces) = Pieces::of(input) else { return };
    atomic_providers::any_stream::holds("google-generative-ai", pieces.iter());
});
