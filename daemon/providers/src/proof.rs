//! What tests of every dialect do: feed a stream as the network would, build a request.

use std::sync::Arc;

use atomic_protocol::json::Raw;
use atomic_protocol::message::Message;
use atomic_protocol::model::{Model, ModelEvent, ModelFailure, ModelRequest, ModelSpec, ThinkingLevel};
use atomic_protocol::tool::ToolSpec;

use crate::auth::{Credential, Scheme, Secret, Source};
use crate::pump::{Flow, Mapper};
use crate::sse;

/// What a stream becomes.
pub(crate) type Outcome = (Vec<ModelEvent>, Option<ModelFailure>);

/// Feeds the pieces through decoder and mapper as the pump does.
pub(crate) fn run<'a>(mut answer: impl Mapper, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut decoder = sse::Decoder::default();
    let mut events = Vec::new();
    let mut outcome = Ok(Flow::More);
    for piece in pieces {
        let each = |event: sse::Event<'_>| {
            outcome = answer.event(&event, &mut events);
            outcome == Ok(Flow::More)
        };
        decoder.push(piece, each).unwrap();
        if outcome != Ok(Flow::More) {
            break;
        }
    }
    if outcome == Ok(Flow::More) {
        let each = |event: sse::Event<'_>| {
            outcome = answer.event(&event, &mut events);
            outcome == Ok(Flow::More)
        };
        decoder.finish(each).unwrap();
    }
    let failure = match outcome {
        Ok(Flow::Ended) => None,
        Ok(Flow::More) => answer.at_end(&mut events).err(),
        Err(failure) => Some(failure),
    };
    (events, failure)
}

/// The stream gives the same whatever its line ends are and wherever it is cut.
pub(crate) fn cut_anywhere<M: Mapper>(whole: &str, answer: impl Fn() -> M, expected: &Outcome) {
    for text in [whole.to_owned(), whole.replace('\n', "\r\n"), whole.replace('\n', "\r")] {
        let bytes = text.as_bytes();
        assert_eq!(&run(answer(), [bytes]), expected);
        assert_eq!(&run(answer(), bytes.chunks(1)), expected);
        for at in 0..=bytes.len() {
            assert_eq!(&run(answer(), [&bytes[..at], &bytes[at..]]), expected, "cut at {at}");
        }
    }
}

/// Each record as an event without a name.
pub(crate) fn events(records: &[&str]) -> String {
    records.iter().map(|record| format!("data: {record}\n\n")).collect()
}

/// A model like `spec`.
pub(crate) fn model(spec: &str) -> Model {
    Model::from_spec(serde_json::from_str::<ModelSpec>(spec).unwrap())
}

/// A request to a model like `spec` about `messages`.
pub(crate) fn request(spec: &str, messages: &[&str]) -> ModelRequest {
    ModelRequest {
        model: Arc::new(model(spec)),
        thinking: ThinkingLevel::Off,
        system: Arc::from(""),
        messages: messages.iter().map(|text| Message::parse(&Raw::parse(text).unwrap()).unwrap()).collect(),
        tools: Arc::from([]),
        session_id: "session".into(),
    }
}

/// A key and nothing else.
pub(crate) fn credential() -> Credential {
    Credential {
        key: Some(Secret("key".into())),
        scheme: Scheme::ApiKey,
        source: Source::Stored,
        headers: Vec::new(),
        env: crate::Env::default(),
    }
}

/// Two tools.
pub(crate) fn tools() -> Arc<[ToolSpec]> {
    let tool = |name: &str, schema: &str| ToolSpec {
        name: name.into(),
        description: format!("does {name}"),
        parameters: Raw::parse(schema).unwrap(),
        snippet: None,
        guidelines: Vec::new(),
        sequential: false,
    };
    Arc::from([
        tool(
            "one",
            r#"{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":{"type":"string"}}}"#,
        ),
        tool("two", r#"{"type":"object","properties":{"k":{"const":"v"}}}"#),
    ])
}
