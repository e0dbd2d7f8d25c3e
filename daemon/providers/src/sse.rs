//! Server-sent events, sans I/O: bytes in, events out (WHATWG HTML, "Server-sent events").
//!
//! Differences from a browser, all asked for by real providers: the last event counts even when the stream ends without
//! its blank line, and nothing reconnects. Each byte is looked at once, so an event of 64 MiB in pieces of 1 KiB costs
//! linear time.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// Largest event we collect, in bytes. Far above what a model sends, far below what would hurt the daemon.
const MAX_EVENT_BYTES: usize = 256 << 20;

/// Buffers above this are given back after the event that needed them.
const KEEP_BYTES: usize = 64 << 10;

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    /// The `event` field; empty when there was none.
    pub(crate) name: &'a str,
    /// The `data` lines joined by line feeds; bad UTF-8 became U+FFFD.
    pub(crate) data: Cow<'a, str>,
}

/// An event grew beyond [`MAX_EVENT_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// Cuts a byte stream into events.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Largest event, in bytes.
    limit: usize,
    /// The part of the open line that earlier chunks brought.
    line: Vec<u8>,
    /// The open event's name.
    name: String,
    /// The open event's data so far, each line followed by LF.
    data: Vec<u8>,
    /// The last byte was CR: an LF that follows belongs to it.
    after_cr: bool,
    /// The first line has been seen, so no byte order mark can follow.
    begun: bool,
    /// See [`Decoder::take_progress`].
    progress: bool,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder {
            limit: MAX_EVENT_BYTES,
            line: Vec::new(),
            name: String::new(),
            data: Vec::new(),
            after_cr: false,
            begun: false,
            progress: false,
        }
    }
}

impl Decoder {
    /// Takes the next bytes and hands each complete event to `each`, until that returns `false`.
    pub(crate) fn push(
        &mut self,
        mut chunk: &[u8],
        mut each: impl FnMut(Event<'_>) -> bool,
    ) -> Result<(), TooLarge> {
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            if chunk[0] == b'\n' {
                chunk = &chunk[1..];
            }
        }
        while let Some(end) = memchr2(b'\n', b'\r', chunk) {
            let (head, rest) = (&chunk[..end], &chunk[end + 1..]);
            let cr = chunk[end] == b'\r';
            chunk = match rest.first() {
                Some(b'\n') if cr => &rest[1..],
                None if cr => {
                    self.after_cr = true;
                    rest
                }
                _ => rest,
            };
            let keep_going = if self.line.is_empty() {
                self.end_line(head, &mut each)?
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                let keep_going = self.end_line(&line, &mut each)?;
                self.line = emptied(line);
                keep_going
            };
            if !keep_going {
                return Ok(());
            }
        }
        if !chunk.is_empty() {
            let first = self.line.first().or(chunk.first());
            self.progress |= first != Some(&b':');
            self.grow_check(self.line.len() + chunk.len())?;
            self.line.extend_from_slice(chunk);
        }
        Ok(())
    }

    /// The stream ended: what is open is the last line and the last event.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(Event<'_>) -> bool) -> Result<(), TooLarge> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line, &mut each)?;
        }
        self.end_line(b"", &mut each)?;
        Ok(())
    }

    /// Whether anything but comments and blank lines arrived since the last call. An endpoint that only sends keep-alive
    /// comments makes no progress.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }

    fn end_line(&mut self, line: &[u8], each: &mut impl FnMut(Event<'_>) -> bool) -> Result<bool, TooLarge> {
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(rest) if !self.begun => rest,
            _ => line,
        };
        self.begun = true;
        if line.is_empty() {
            return Ok(self.dispatch(each));
        }
        if line[0] == b':' {
            return Ok(true);
        }
        self.progress = true;
        let (field, value) = match memchr(b':', line) {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &b""[..]),
        };
        match field {
            b"data" => {
                self.grow_check(self.data.len() + value.len())?;
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&String::from_utf8_lossy(value));
            }
            // `id` and `retry` only serve reconnecting; other fields are to be ignored.
            _ => {}
        }
        Ok(true)
    }

    fn dispatch(&mut self, each: &mut impl FnMut(Event<'_>) -> bool) -> bool {
        let Some((_, data)) = self.data.split_last() else {
            self.name.clear();
            return true;
        };
        let keep_going = each(Event { name: &self.name, data: String::from_utf8_lossy(data) });
        self.name.clear();
        self.data = emptied(std::mem::take(&mut self.data));
        keep_going
    }

    fn grow_check(&self, bytes: usize) -> Result<(), TooLarge> {
        if bytes > self.limit { Err(TooLarge) } else { Ok(()) }
    }
}

fn emptied(mut buffer: Vec<u8>) -> Vec<u8> {
    buffer.clear();
    buffer.shrink_to(KEEP_BYTES);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    type Owned = (String, String);

    fn run<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Owned> {
        let mut events = Vec::new();
        let mut decoder = Decoder::default();
        let mut take = |event: Event<'_>| {
            events.push((event.name.to_owned(), event.data.into_owned()));
            true
        };
        for piece in pieces {
            decoder.push(piece, &mut take).unwrap();
        }
        decoder.finish(&mut take).unwrap();
        events
    }

    fn event(name: &str, data: &str) -> Owned {
        (name.to_owned(), data.to_owned())
    }

    const PLAIN: &str = "\u{feff}event: a\ndata: {\"x\":\"ä😀\"}\n\n: keep-alive\n\n\ndata:no space\ndata:  two\ndata\nid: 7\nretry: 3\nunknown: y\n\nevent: lost\n\nevent: last\ndata: open";

    fn expected() -> Vec<Owned> {
        vec![event("a", "{\"x\":\"ä😀\"}"), event("", "no space\n two\n"), event("last", "open")]
    }

    #[test]
    fn every_split_and_every_line_end_gives_the_same_events() {
        for text in [PLAIN.to_owned(), PLAIN.replace('\n', "\r\n"), PLAIN.replace('\n', "\r")] {
            let bytes = text.as_bytes();
            assert_eq!(run([bytes]), expected(), "{text:?}");
            assert_eq!(run(bytes.chunks(1)), expected(), "{text:?}");
            for at in 0..=bytes.len() {
                assert_eq!(run([&bytes[..at], &bytes[at..]]), expected(), "{text:?} cut at {at}");
            }
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_become_replacement_characters() {
        assert_eq!(run([&b"data: a\xFFb\n\n"[..]]), [event("", "a\u{fffd}b")]);
    }

    #[test]
    fn only_comments_are_no_progress() {
        let mut decoder = Decoder::default();
        let mut none = |_: Event<'_>| panic!("no event here");
        for piece in [&b": ke"[..], b"ep\n", b"\n\n:\n", b"\r\n"] {
            decoder.push(piece, &mut none).unwrap();
            assert!(!decoder.take_progress(), "{piece:?}");
        }
        decoder.push(b"da", &mut none).unwrap();
        assert!(decoder.take_progress());
        assert!(!decoder.take_progress());
    }

    #[test]
    fn the_consumer_can_stop() {
        let mut seen = 0;
        let mut decoder = Decoder::default();
        decoder
            .push(b"data: 1\n\ndata: 2\n\n", |_| {
                seen += 1;
                false
            })
            .unwrap();
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_huge_event_in_small_pieces_is_looked_at_once() {
        // Quadratic work would need 2^41 byte visits here and never end.
        let piece = [b'x'; 1024];
        let pieces = std::iter::once(&b"data: "[..])
            .chain(std::iter::repeat_n(&piece[..], 64 << 10))
            .chain(std::iter::once(&b"\n\n"[..]));
        let events = run(pieces);
        assert_eq!((events.len(), events[0].1.len()), (1, 64 << 20));
    }

    #[test]
    fn what_never_ends_is_refused() {
        for piece in ["xxxxxxxxxx", "data: xxxxxxxxxx\n"] {
            let mut decoder = Decoder { limit: 100, ..Decoder::default() };
            let outcomes: Vec<bool> =
                (0..12).map(|_| decoder.push(piece.as_bytes(), |_| true).is_ok()).collect();
            assert!(outcomes[8] && !outcomes[11], "{piece:?}: {outcomes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_in_any_pieces(bytes: Vec<u8>, cuts in proptest::collection::vec(1usize..9, 1..40)) {
            let whole = run([&bytes[..]]);
            let mut rest = &bytes[..];
            let mut pieces = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push(head);
                rest = tail;
            }
            proptest::prop_assert_eq!(run(pieces), whole);
        }
    }
}
