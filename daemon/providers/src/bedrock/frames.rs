//! AWS's binary frames (Amazon Event Stream) as server-sent events, which the pump reads: the event's type becomes its
//! name, its payload the data. An exception's name begins with [`EXCEPTION`].

use atomic_protocol::model::ModelFailure;
use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder};
use aws_smithy_types::event_stream::Message;
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};

/// Begins the name of an event that says why the stream fails.
pub(super) const EXCEPTION: &str = "exception ";

/// The vendor's frames end at 16 MiB and their headers at 128 KiB; a length beyond this is no frame.
const MAX_FRAME_BYTES: usize = 24 << 20;

/// What a frame begins with: its length, that of its headers, and their checksum.
const PRELUDE_BYTES: usize = 12;

/// Cuts bytes into frames and writes each as an event.
#[derive(Default)]
pub(super) struct Frames {
    decoder: MessageFrameDecoder,
    waiting: BytesMut,
    /// The decoder has taken the beginning of a frame.
    inside: bool,
}

impl Frames {
    /// Writes the events that are complete with these bytes, those before bytes that are no frame included.
    pub(super) fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), ModelFailure> {
        self.waiting.extend_from_slice(piece);
        loop {
            let before = self.waiting.len();
            if !self.inside && before >= PRELUDE_BYTES {
                let length = (&self.waiting[..]).get_u32() as usize;
                if length > MAX_FRAME_BYTES {
                    return Err(unreadable(&format!("it claims {length} bytes")));
                }
            }
            match self.decoder.decode_frame(&mut self.waiting) {
                Ok(DecodedFrame::Complete(message)) => {
                    self.inside = false;
                    write(out, &message);
                }
                Ok(DecodedFrame::Incomplete) => {
                    self.inside |= self.waiting.len() < before;
                    return Ok(());
                }
                Err(error) => return Err(unreadable(&error.to_string())),
            }
        }
    }
}

fn unreadable(reason: &str) -> ModelFailure {
    ModelFailure::new(format!("The provider sent a frame that cannot be read: {reason}"))
}

fn write(out: &mut Vec<u8>, message: &Message) {
    let header = |name: &str| {
        let found = message.headers().iter().find(|header| header.name().as_str() == name);
        found.and_then(|header| header.value().as_string().ok()).map(|text| text.as_str()).unwrap_or_default()
    };
    let (prefix, name) = match header(":message-type") {
        "exception" => (EXCEPTION, header(":exception-type")),
        "error" => (EXCEPTION, header(":error-code")),
        _ => ("", header(":event-type")),
    };
    let said;
    let payload = match header(":error-message") {
        "" => message.payload().as_ref(),
        text => {
            said = serde_json::json!({"message": text}).to_string();
            said.as_bytes()
        }
    };
    out.extend_from_slice(b"event: ");
    // Line breaks in JSON stand between its tokens, where a space does as well.
    let line = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
    out.extend(prefix.bytes().chain(name.bytes()).map(|byte| line(&byte)));
    out.extend_from_slice(b"\ndata: ");
    out.extend(payload.iter().map(line));
    out.extend_from_slice(b"\n\n");
}

/// The frames of a body as the bytes of events.
pub(crate) fn events<S>(pieces: S) -> impl Stream<Item = Result<Bytes, ModelFailure>> + Send + Unpin + 'static
where
    S: Stream<Item = Result<Bytes, ModelFailure>> + Send + Unpin + 'static,
{
    let mut frames = Frames::default();
    pieces.flat_map(move |piece| {
        let mut out = Vec::new();
        let outcome = piece.and_then(|piece| frames.push(&piece, &mut out));
        let events = (!out.is_empty()).then(|| Ok(Bytes::from(out)));
        stream::iter([events, outcome.err().map(Err)].into_iter().flatten())
    })
}
