//! Server-sent events: any cut of any stream gives the events of a decoder that sees all of it at once.
#![no_main]

use atomic_fuzz::Pieces;
use libfuzzer_sys::fuzz_target;

// The module is private to its crate, so its source is compiled in here; it uses nothing else of that crate.
#[allow(dead_code, unreachable_pub, reason = "written for the providers")]
#[path = "../../../daemon/providers/src/sse.rs"]
mod sse;

type Owned = (String, String);

/// The event stream interpretation of the WHATWG HTML standard, on the whole text, except that the last event counts
/// without its blank line.
fn naive(stream: &[u8]) -> Vec<Owned> {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    let mut bytes = stream.iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\n' => lines.push(Vec::new()),
            b'\r' => {
                bytes.next_if(|next| **next == b'\n');
                lines.push(Vec::new());
            }
            other => lines.last_mut().expect("there is a line").push(*other),
        }
    }
    lines.push(Vec::new());
    let (mut events, mut name, mut data) = (Vec::new(), String::new(), None::<Vec<u8>>);
    for line in lines {
        if line.is_empty() {
            if let Some(data) = data.take() {
                events.push((name.clone(), String::from_utf8_lossy(&data).into_owned()));
            }
            name.clear();
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (&line[..], &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => name = String::from_utf8_lossy(value).into_owned(),
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            _ => {}
        }
    }
    events
}

fn decoded<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Owned> {
    let mut events = Vec::new();
    let mut decoder = sse::Decoder::default();
    let mut take = |event: sse::Event<'_>| {
        events.push((event.name.to_owned(), event.data.into_owned()));
        true
    };
    for piece in pieces {
        decoder.push(piece, &mut take).expect("far below the limit");
    }
    decoder.finish(&mut take).expect("far below the limit");
    events
}

fuzz_target!(|input: &[u8]| {
    let Some(pieces) = Pieces::of(input) else { return };
    let want = naive(pieces.stream);
    assert_eq!(decoded([pieces.stream].into_iter()), want);
    assert_eq!(decoded(pieces.iter()), want);
});
