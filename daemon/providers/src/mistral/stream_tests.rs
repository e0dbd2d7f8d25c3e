//! Streams as the provider sends them, cut at every byte, and what becomes of them.

use super::*;
use crate::cost;
use crate::proof::{self, cut_anywhere, events};
use atomic_protocol::json::Raw;

const WHOLE: &str = include_str!("fixtures/whole.sse");

fn model() -> Model {
    proof::model(r#"{"id":"m","cost":{"input":1,"output":10,"cacheRead":0.1}}"#)
}

fn run(text: &str) -> proof::Outcome {
    proof::run(Answer::new(&model()), [text.as_bytes()])
}

fn called(index: usize, arguments: &str) -> ModelEvent {
    ModelEvent::ToolCallEnd { index, arguments: Raw::parse(arguments).unwrap(), thought_signature: None }
}

fn expected() -> Vec<ModelEvent> {
    let mut usage = Usage { input: 100, output: 42, cache_read: 1000, ..Usage::default() };
    cost::price(&mut usage, &model().cost, 0);
    let text = |index, delta: &str| ModelEvent::TextDelta { index, delta: delta.to_owned() };
    let call = |index, delta: &str| ModelEvent::ToolCallDelta { index, delta: delta.to_owned() };
    vec![
        ModelEvent::Start { response_id: Some("cmpl-1".into()), response_model: Some("m-2601".into()) },
        ModelEvent::ThinkingStart { index: 0 },
        ModelEvent::ThinkingDelta { index: 0, delta: "Let me ".into() },
        ModelEvent::ThinkingDelta { index: 0, delta: "see".into() },
        ModelEvent::ThinkingEnd { index: 0, signature: None, redacted: false },
        ModelEvent::TextStart { index: 1 },
        text(1, "Grüße "),
        text(1, "😀\n\"done\""),
        ModelEvent::TextEnd { index: 1, signature: None },
        ModelEvent::ToolCallStart { index: 2, id: "abcdef123".into(), name: "bash".into() },
        call(2, "{\"command\":"),
        ModelEvent::ToolCallStart { index: 3, id: "call2".into(), name: "ls".into() },
        call(3, "{}"),
        call(2, " \"ls\"}"),
        ModelEvent::Usage(usage),
        called(2, r#"{"command": "ls"}"#),
        called(3, "{}"),
        ModelEvent::Done { reason: StopReason::ToolUse, raw_reason: None, end_turn: None },
    ]
}

#[test]
fn a_stream_cut_anywhere_gives_the_same_events() {
    let model = model();
    cut_anywhere(WHOLE, || Answer::new(&model), &(expected(), None));
    let end = WHOLE.rfind("data: [DONE]").unwrap();
    assert_eq!(run(&WHOLE[..end]), (expected(), None), "the mark may be missing");
}

#[test]
fn a_stream_that_ends_before_its_last_record_is_a_failure() {
    let last = WHOLE[..WHOLE.rfind("data: [DONE]").unwrap()].rfind("data: ").unwrap();
    for at in 0..=last {
        let (_, failure) = proof::run(Answer::new(&model()), [&WHOLE.as_bytes()[..at]]);
        assert!(failure.is_some(), "{at}");
    }
    assert_eq!(run(&WHOLE[..last]).1.unwrap().message, "Mistral stream ended without a finish reason");
}

#[test]
fn endings_follow_the_table() {
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"n","arguments":""}}]}}]}"#;
    for (word, before, want) in [
        ("stop", None, Ok((StopReason::Stop, None))),
        ("stop", Some(call), Ok((StopReason::ToolUse, Some("stop")))),
        ("tool_calls", Some(call), Ok((StopReason::ToolUse, None))),
        ("length", None, Ok((StopReason::Length, None))),
        ("model_length", None, Ok((StopReason::Length, Some("model_length")))),
        ("error", None, Err("Provider stopped with: error (server error)")),
        ("content_filter", None, Err("Provider stopped with: content_filter")),
    ] {
        let record = format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{word}"}}]}}"#);
        let records: Vec<&str> = before.into_iter().chain([record.as_str(), "[DONE]"]).collect();
        let (got, failure) = run(&events(&records));
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
    for (record, want, status) in [
        (
            r#"{"object":"error","message":"no","code":"1300"}"#,
            r#"{"object":"error","message":"no","code":"1300"}"#,
            None,
        ),
        (r#"{"error":{"message":"busy","code":503}}"#, r#"503 {"message":"busy","code":503}"#, Some(503)),
        (r#"{"detail":"Unauthorized"}"#, r#"{"detail":"Unauthorized"}"#, None),
    ] {
        let failure = run(&events(&[record])).1.unwrap();
        assert_eq!((failure.message.as_str(), failure.status), (want, status));
    }
    assert!(run("data: <html>\n\n").1.unwrap().message.contains("<html>"));
}

#[test]
fn odd_records_do_no_harm() {
    let (got, failure) = run(&events(&[
        "",
        r#"{"choices":null,"usage":null,"error":null}"#,
        r#"{"choices":[null]}"#,
        r#"{"choices":[{"delta":{"content":null,"tool_calls":null}}]}"#,
        r#"{"choices":[{"delta":{"content":["a",{"type":"reference","reference_ids":[1]},{"text":"b"},5]}}]}"#,
        // Two calls of one number, the second without arguments; then more of it without a name.
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"p","arguments":"{}"}},{"index":0,"id":"y","function":{"name":"q"}},null]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{\"k\":1}"}}]}}]}"#,
        "{\"choices\":[{\"delta\":{\"content\":\"a\tb\\d\\ud800\"},\"finish_reason\":\"stop\"}]}",
        "[DONE]",
    ]));
    assert_eq!(failure, None);
    let tail = &got[got.len() - 7..];
    assert_eq!(tail[1], ModelEvent::TextStart { index: 3 });
    assert_eq!(tail[2], ModelEvent::TextDelta { index: 3, delta: "a\tb\\d\u{fffd}".into() });
    assert_eq!(tail[4..6], [called(1, "{}"), called(2, r#"{"k":1}"#)]);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(at in 0usize..WHOLE.len(), junk in proptest::collection::vec(proptest::num::u8::ANY, 0..12)) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        let end = (at + junk.len()).min(bytes.len());
        bytes.splice(at..end, junk);
        let (events, failure) = proof::run(Answer::new(&model()), [&bytes[..]]);
        let done = events.iter().filter(|event| matches!(event, ModelEvent::Done { .. })).count();
        proptest::prop_assert_eq!(done, usize::from(failure.is_none()));
    }
}
