//! What holds for the answer of every API, whatever its bytes are and wherever they are cut: for our own tests and for
//! the fuzz targets, which are built with `cfg(fuzzing)`.
//!
//! * no panic;
//! * one terminal event, the last: [`ModelEvent::Done`] or the failure that the pump gives back;
//! * [`ModelEvent::Start`] comes before anything that has a place, and once;
//! * positions count from 0 in order of their beginnings, deltas go to a block of their kind that has begun and not
//!   ended, and with `Done` all have ended;
//! * a call's arguments are a JSON object on one line;
//! * the same bytes give the same events however they arrive.

use atomic_protocol::model::{Model, ModelEvent, ModelFailure};
use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use bytes::Bytes;
use futures_util::Stream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::pump::{Mapper, Stop, pump};
use crate::{SINK_CAPACITY, anthropic, bedrock, google, mistral, openai_completions, openai_responses};

/// APIs with an answer of their own; the other two of [`crate::SPOKEN_APIS`] share one of these.
pub const APIS: [&str; 6] =
    [anthropic::API, openai_completions::API, openai_responses::API, google::API, mistral::API, bedrock::API];

type Outcome = (Vec<ModelEvent>, Option<ModelFailure>);

/// Reads `pieces` as the body of an answer of `api`, at once and piece by piece.
///
/// # Panics
/// When one of the properties above does not hold, or `api` is none of [`APIS`].
pub fn holds<'a>(api: &str, pieces: impl Iterator<Item = &'a [u8]>) {
    let pieces: Vec<Bytes> = pieces.map(Bytes::copy_from_slice).collect();
    let whole = Bytes::from(pieces.concat());
    let model = model();
    let want = outcome(api, &model, vec![whole]);
    pairs_up(&want);
    let got = outcome(api, &model, pieces);
    assert_eq!(got, want, "{api}: the same bytes in pieces");
}

/// Amazon's frames with right checksums: each line of `text` is an event's name, a space, its payload; a name that
/// begins with `!` is an exception's.
pub fn frames(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let at = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (name, payload) = (&line[..at], line.get(at + 1..).unwrap_or_default());
        let (kind, field, name) = match name.strip_prefix(b"!") {
            Some(name) => ("exception", ":exception-type", name),
            None => ("event", ":event-type", name),
        };
        let name = String::from_utf8_lossy(name).into_owned();
        let message = Message::new(payload.to_vec())
            .add_header(Header::new(":message-type", HeaderValue::String(kind.into())))
            .add_header(Header::new(field, HeaderValue::String(name.into())));
        // A name that no header can carry makes no frame.
        let _ = write_message_to(&message, &mut out);
    }
    out
}

/// A model with prices of every kind, so that sums are made.
fn model() -> Model {
    let spec = r#"{"id":"m","cost":{"input":1,"output":10,"cacheRead":0.1,"cacheWrite":1.25}}"#;
    Model::from_spec(serde_json::from_str(spec).expect("a model"))
}

fn outcome(api: &str, model: &Model, pieces: Vec<Bytes>) -> Outcome {
    let pieces = futures_util::stream::iter(pieces.into_iter().map(Ok));
    match api {
        anthropic::API => through(pieces, anthropic::answer(model)),
        openai_completions::API => through(pieces, openai_completions::answer(model)),
        openai_responses::API => through(pieces, openai_responses::answer(model)),
        google::API => through(pieces, google::answer(model)),
        mistral::API => through(pieces, mistral::answer(model)),
        bedrock::API => through(bedrock::events(pieces), bedrock::answer(model)),
        other => panic!("{other} has no answer of its own"),
    }
}

/// The real pump, with a reader at its other end.
fn through<S>(pieces: S, mut answer: impl Mapper) -> Outcome
where
    S: Stream<Item = Result<Bytes, ModelFailure>> + Send + Unpin + 'static,
{
    thread_local! {
        static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    }
    let (sink, mut batches) = mpsc::channel(SINK_CAPACITY);
    let run = async {
        let outcome = pump(pieces, &mut answer, None, &sink).await;
        drop(sink);
        outcome
    };
    let read = async {
        let mut events = Vec::new();
        while let Some(batch) = batches.recv().await {
            assert!(!batch.is_empty(), "an empty batch is a wake-up for nothing");
            events.extend(batch);
        }
        events
    };
    let both = async { futures_util::join!(run, read) };
    let (outcome, events) = RUNTIME.with(|runtime| runtime.block_on(both));
    match outcome {
        Ok(()) => (events, None),
        Err(Stop::Failed(failure)) => (events, Some(failure)),
        Err(Stop::SinkClosed) => panic!("the reader stays to the end"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

fn pairs_up((events, failure): &Outcome) {
    let mut blocks: Vec<(Kind, bool)> = Vec::new();
    let (mut started, mut done, mut diagnosed) = (false, false, false);
    for event in events {
        assert!(!done, "{event:?} after the end of {events:?}");
        match event {
            ModelEvent::Start { .. } => {
                assert!(!std::mem::replace(&mut started, true), "two beginnings: {events:?}");
            }
            ModelEvent::TextStart { index } => begin(&mut blocks, *index, Kind::Text, started),
            ModelEvent::ThinkingStart { index } => begin(&mut blocks, *index, Kind::Thinking, started),
            ModelEvent::ToolCallStart { index, .. } => begin(&mut blocks, *index, Kind::Call, started),
            ModelEvent::TextDelta { index, delta } => grow(&blocks, *index, Kind::Text, delta),
            ModelEvent::ThinkingDelta { index, delta } => grow(&blocks, *index, Kind::Thinking, delta),
            ModelEvent::ToolCallDelta { index, delta } => grow(&blocks, *index, Kind::Call, delta),
            ModelEvent::TextEnd { index, .. } => end(&mut blocks, *index, Kind::Text),
            ModelEvent::ThinkingEnd { index, .. } => end(&mut blocks, *index, Kind::Thinking),
            ModelEvent::ToolCallEnd { index, arguments, .. } => {
                end(&mut blocks, *index, Kind::Call);
                let text = arguments.as_str();
                assert!(!text.contains(['\n', '\r']), "arguments on several lines: {text:?}");
                let object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text);
                // Deeper than the strict reader goes, or a number it does not hold, is an object all the same.
                assert!(object.is_ok() || text.starts_with('{') && text.ends_with('}'), "arguments {text:?}");
            }
            ModelEvent::Usage(_) => {}
            ModelEvent::Diagnostic { .. } => {
                assert!(!std::mem::replace(&mut diagnosed, true), "two diagnostics: {events:?}");
            }
            ModelEvent::Done { .. } => done = true,
            ModelEvent::Failed(failure) => panic!("a mapper gives failures back: {failure:?}"),
        }
    }
    assert!(done != failure.is_some(), "one end, not {failure:?} after {events:?}");
    if done {
        assert!(started, "an end without a beginning: {events:?}");
        assert!(blocks.iter().all(|(_, open)| !open), "a block stays open: {events:?}");
    }
}

fn begin(blocks: &mut Vec<(Kind, bool)>, index: usize, kind: Kind, started: bool) {
    assert!(started, "{kind:?} {index} before the beginning");
    assert_eq!(index, blocks.len(), "{kind:?} takes a place that is not the next");
    blocks.push((kind, true));
}

fn grow(blocks: &[(Kind, bool)], index: usize, kind: Kind, delta: &str) {
    assert_eq!(blocks.get(index), Some(&(kind, true)), "{kind:?} {index} grows by {delta:?}");
    assert!(!delta.is_empty(), "{kind:?} {index} grows by nothing");
}

fn end(blocks: &mut [(Kind, bool)], index: usize, kind: Kind) {
    let block = blocks.get_mut(index).unwrap_or_else(|| panic!("{kind:?} {index} ends before it begins"));
    assert_eq!(*block, (kind, true), "{kind:?} {index} ends");
    block.1 = false;
}

#[cfg(test)]
#[path = "any_stream_tests.rs"]
mod tests;
