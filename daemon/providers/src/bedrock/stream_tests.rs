//! Streams as the provider sends them, in frames cut at every byte, and what becomes of them.

use super::super::frames::Frames;
use super::*;
use crate::proof;
use atomic_protocol::json::Raw;
use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};

fn frame(headers: &[(&'static str, &str)], payload: &str) -> Vec<u8> {
    let empty = Message::new(payload.as_bytes().to_vec());
    let message = headers.iter().fold(empty, |message, (name, value)| {
        message.add_header(Header::new(*name, HeaderValue::String((*value).to_owned().into())))
    });
    let mut out = Vec::new();
    write_message_to(&message, &mut out).unwrap();
    out
}

fn event(name: &str, payload: &str) -> Vec<u8> {
    frame(
        &[(":message-type", "event"), (":event-type", name), (":content-type", "application/json")],
        payload,
    )
}

fn delta(index: u64, delta: &str) -> Vec<u8> {
    event("contentBlockDelta", &format!(r#"{{"contentBlockIndex":{index},"delta":{delta},"p":"abc"}}"#))
}

fn stop(index: u64) -> Vec<u8> {
    event("contentBlockStop", &format!(r#"{{"contentBlockIndex":{index}}}"#))
}

fn model() -> Model {
    proof::model(r#"{"id":"m","cost":{"input":1,"output":10,"cacheRead":0.1,"cacheWrite":1.25}}"#)
}

/// Frames to events to what the mapper makes of them.
fn run<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> proof::Outcome {
    let mut frames = Frames::default();
    let text = |piece| {
        let mut out = Vec::new();
        frames.push(piece, &mut out).unwrap();
        out
    };
    let texts: Vec<_> = pieces.into_iter().map(text).collect();
    proof::run(Answer::new(&model()), texts.iter().map(|text| &text[..]))
}

fn whole() -> Vec<u8> {
    [
        event("messageStart", r#"{"role":"assistant"}"#),
        delta(0, r#"{"reasoningContent":{"text":"Let me "}}"#),
        delta(0, r#"{"reasoningContent":{"text":"see"}}"#),
        delta(0, r#"{"reasoningContent":{"signature":"sig1"}}"#),
        delta(0, r#"{"reasoningContent":{"signature":"sig2"}}"#),
        stop(0),
        delta(1, r#"{"reasoningContent":{"redactedContent":"YQ=="}}"#),
        delta(1, r#"{"reasoningContent":{"redactedContent":"Yg=="}}"#),
        stop(1),
        delta(2, "{\"text\":\n\"Grüße \"}"),
        delta(2, r#"{"text":"😀\n\"done\""}"#),
        stop(2),
        event("contentBlockStart", r#"{"contentBlockIndex":3,"start":{"toolUse":{"toolUseId":"t1","name":"bash"}}}"#),
        delta(3, r#"{"toolUse":{"input":"{\"command\":"}}"#),
        delta(3, r#"{"toolUse":{"input":" \"ls\"}"}}"#),
        stop(3),
        event("contentBlockStart", r#"{"contentBlockIndex":4,"start":{"toolUse":{"toolUseId":"t2","name":"ls"}}}"#),
        stop(4),
        event("brandNew", "{}"),
        event("messageStop", r#"{"stopReason":"tool_use"}"#),
        event(
            "metadata",
            r#"{"usage":{"inputTokens":100,"outputTokens":42,"totalTokens":1192,"cacheReadInputTokens":1000,"cacheWriteInputTokens":50,"cacheDetails":[{"ttl":"1h","inputTokens":20},{"ttl":"5m","inputTokens":30}]},"metrics":{"latencyMs":1}}"#,
        ),
    ]
    .concat()
}

fn expected() -> Vec<ModelEvent> {
    let mut usage = Usage { input: 100, output: 42, cache_read: 1000, cache_write: 50, ..Usage::default() };
    cost::price(&mut usage, &model().cost, 20);
    let text = |index, delta: &str| ModelEvent::TextDelta { index, delta: delta.to_owned() };
    let thought = |index, delta: &str| ModelEvent::ThinkingDelta { index, delta: delta.to_owned() };
    let call = |index, delta: &str| ModelEvent::ToolCallDelta { index, delta: delta.to_owned() };
    let called = |index, arguments: &str| ModelEvent::ToolCallEnd {
        index,
        arguments: Raw::parse(arguments).unwrap(),
        thought_signature: None,
    };
    vec![
        ModelEvent::Start { response_id: None, response_model: None },
        ModelEvent::ThinkingStart { index: 0 },
        thought(0, "Let me "),
        thought(0, "see"),
        ModelEvent::ThinkingEnd { index: 0, signature: Some("sig1sig2".into()), redacted: false },
        ModelEvent::ThinkingStart { index: 1 },
        thought(1, "[Reasoning redacted]"),
        ModelEvent::ThinkingEnd { index: 1, signature: Some("YWI=".into()), redacted: true },
        ModelEvent::TextStart { index: 2 },
        text(2, "Grüße "),
        text(2, "😀\n\"done\""),
        ModelEvent::TextEnd { index: 2, signature: None },
        ModelEvent::ToolCallStart { index: 3, id: "t1".into(), name: "bash".into() },
        call(3, "{\"command\":"),
        call(3, " \"ls\"}"),
        called(3, r#"{"command": "ls"}"#),
        ModelEvent::ToolCallStart { index: 4, id: "t2".into(), name: "ls".into() },
        called(4, "{}"),
        ModelEvent::Usage(usage),
        ModelEvent::Done { reason: StopReason::ToolUse, raw_reason: None, end_turn: None },
    ]
}

#[test]
fn a_stream_cut_anywhere_gives_the_same_events() {
    let bytes = whole();
    assert_eq!(run([&bytes[..]]), (expected(), None));
    assert_eq!(run(bytes.chunks(1)), (expected(), None));
    for at in 0..=bytes.len() {
        assert_eq!(run([&bytes[..at], &bytes[at..]]), (expected(), None), "cut at {at}");
    }
}

#[test]
fn a_stream_that_ends_before_its_stop_reason_is_a_failure() {
    let bytes = whole();
    let stop = event("messageStop", r#"{"stopReason":"tool_use"}"#);
    let end = bytes.windows(stop.len()).position(|window| window == stop).unwrap() + stop.len();
    for at in 0..end {
        let failure = run([&bytes[..at]]).1.unwrap();
        assert_eq!(failure.message, "Bedrock stream ended without a stop reason", "{at}");
    }
    assert_eq!(run([&bytes[..end]]).1, None, "only the tokens are missing");
}

#[test]
fn endings_follow_the_table() {
    for (word, want) in [
        ("end_turn", Ok((StopReason::Stop, None))),
        ("stop_sequence", Ok((StopReason::Stop, Some("stop_sequence")))),
        ("tool_use", Ok((StopReason::ToolUse, None))),
        ("max_tokens", Ok((StopReason::Length, None))),
        ("model_context_window_exceeded", Ok((StopReason::Length, Some("model_context_window_exceeded")))),
        ("guardrail_intervened", Err("Provider stopped with: guardrail_intervened")),
        ("", Err("Provider stopped with: ")),
    ] {
        let (got, failure) = run([&event("messageStop", &format!(r#"{{"stopReason":"{word}"}}"#))[..]]);
        match want {
            Ok((reason, raw)) => {
                let done = ModelEvent::Done { reason, raw_reason: raw.map(str::to_owned), end_turn: None };
                assert_eq!((got.last(), failure), (Some(&done), None), "{word}");
            }
            Err(message) => {
                let failure = failure.unwrap();
                assert_eq!((failure.message.as_str(), failure.raw_reason.as_deref()), (message, Some(word)));
            }
        }
    }
}

#[test]
fn exceptions_keep_their_words() {
    for (headers, payload, want, status) in [
        (
            vec![(":message-type", "exception"), (":exception-type", "throttlingException")],
            r#"{"message":"Too many tokens"}"#,
            "Throttling error: Too many tokens",
            Some(429),
        ),
        (
            vec![(":message-type", "exception"), (":exception-type", "modelStreamErrorException")],
            r#"{"message":"broke","originalStatusCode":424}"#,
            "Model stream error: broke",
            None,
        ),
        (
            vec![(":message-type", "exception"), (":exception-type", "newException")],
            "plain",
            "newException: plain",
            None,
        ),
        (
            vec![(":message-type", "error"), (":error-code", "InternalError"), (":error-message", "oh")],
            "",
            "InternalError: oh",
            None,
        ),
    ] {
        let failure = run([&frame(&headers, payload)[..]]).1.unwrap();
        assert_eq!((failure.message.as_str(), failure.status), (want, status));
    }
}

#[test]
fn what_is_no_frame_is_a_failure() {
    let mut broken = whole();
    broken[40] ^= 0xff;
    assert!(Frames::default().push(&broken, &mut Vec::new()).unwrap_err().message.contains("cannot be read"));
    assert!(
        Frames::default()
            .push(b"HTTP says: no such thing", &mut Vec::new())
            .unwrap_err()
            .message
            .contains("cannot be read")
    );
}

proptest::proptest! {
    #[test]
    fn no_payload_makes_it_panic(name in "[a-zA-Z]{0,3}|messageStop|metadata|contentBlock(Start|Delta|Stop)", payload in ".{0,60}|\\{\"(delta|start|usage|stopReason)\":.{0,20}\\}") {
        let (events, failure) = run([&event(&name, &payload)[..]]);
        let done = events.iter().filter(|event| matches!(event, ModelEvent::Done { .. })).count();
        proptest::prop_assert_eq!(done, usize::from(failure.is_none()));
    }
}
