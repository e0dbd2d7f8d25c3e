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

fn called(index: usize, id: &str, name: &str, arguments: &str, signature: Option<&str>) -> [ModelEvent; 3] {
    [
        ModelEvent::ToolCallStart { index, id: id.into(), name: name.into() },
        ModelEvent::ToolCallDelta { index, delta: arguments.into() },
        ModelEvent::ToolCallEnd {
            index,
            arguments: Raw::parse(arguments).unwrap(),
            thought_signature: signature.map(str::to_owned),
        },
    ]
}

fn expected() -> Vec<ModelEvent> {
    let usage = |output, reasoning| {
        let mut usage = Usage { input: 100, output, cache_read: 1000, reasoning, ..Usage::default() };
        cost::price(&mut usage, &model().cost, 0);
        ModelEvent::Usage(usage)
    };
    let text = |index, delta: &str| ModelEvent::TextDelta { index, delta: delta.to_owned() };
    let mut all = vec![
        ModelEvent::Start { response_id: Some("r1".into()), response_model: Some("m-001".into()) },
        ModelEvent::ThinkingStart { index: 0 },
        ModelEvent::ThinkingDelta { index: 0, delta: "Let me ".into() },
        usage(0, None),
        ModelEvent::ThinkingDelta { index: 0, delta: "see".into() },
        ModelEvent::ThinkingEnd { index: 0, signature: Some("c2ln".into()), redacted: false },
        ModelEvent::TextStart { index: 1 },
        text(1, "Grüße "),
        text(1, "😀\n\"done\""),
        ModelEvent::TextEnd { index: 1, signature: Some("dGV4dA==".into()) },
    ];
    all.extend(called(2, "bash_1", "bash", r#"{"command": "ls", "n": 1.0}"#, Some("Y2FsbA==")));
    all.extend(called(3, "x", "ls", "{}", None));
    all.extend(called(4, "ls_3", "ls", "{}", None));
    all.extend([
        ModelEvent::TextStart { index: 5 },
        text(5, "After"),
        usage(42, Some(12)),
        ModelEvent::TextEnd { index: 5, signature: None },
        ModelEvent::Done { reason: StopReason::ToolUse, raw_reason: None, end_turn: None },
    ]);
    all
}

#[test]
fn a_stream_cut_anywhere_gives_the_same_events() {
    let model = model();
    cut_anywhere(WHOLE, || Answer::new(&model), &(expected(), None));
}

#[test]
fn a_stream_that_ends_before_its_last_record_is_a_failure() {
    let last = WHOLE.rfind("data: ").unwrap();
    for at in 0..=last {
        let (_, failure) = proof::run(Answer::new(&model()), [&WHOLE.as_bytes()[..at]]);
        assert!(failure.is_some(), "{at}");
    }
    assert_eq!(run(&WHOLE[..last]).1.unwrap().message, "Google stream ended without a finish reason");
}

#[test]
fn endings_follow_the_table() {
    for (record, want) in [
        (r#"{"candidates":[{"finishReason":"STOP"}]}"#, Ok((StopReason::Stop, None))),
        (
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"n","args":{}}}]},"finishReason":"STOP"}]}"#,
            Ok((StopReason::ToolUse, None)),
        ),
        (r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#, Ok((StopReason::Length, None))),
        (
            r#"{"candidates":[{"finishReason":"CONTINUATION"}]}"#,
            Ok((StopReason::Length, Some("CONTINUATION"))),
        ),
        (
            r#"{"candidates":[{"finishReason":"SAFETY"}]}"#,
            Err(("Provider stopped with: SAFETY", Some("SAFETY"))),
        ),
        (
            r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"bad call"}]}"#,
            Err((
                "Provider stopped with: MALFORMED_FUNCTION_CALL: bad call",
                Some("MALFORMED_FUNCTION_CALL"),
            )),
        ),
        (
            r#"{"candidates":[{"finishReason":"NEW_ONE"}]}"#,
            Err(("Provider stopped with: NEW_ONE", Some("NEW_ONE"))),
        ),
        (
            r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"}}"#,
            Err(("Provider stopped with: PROHIBITED_CONTENT", Some("PROHIBITED_CONTENT"))),
        ),
        (
            r#"{"candidates":[{"finishReason":null}]}"#,
            Err(("Google stream ended without a finish reason", None)),
        ),
        (r#"{"candidates":[]}"#, Err(("Google stream ended without a finish reason", None))),
        (
            r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#,
            Err((r#"503 {"code":503,"message":"overloaded","status":"UNAVAILABLE"}"#, None)),
        ),
        ("<html>", Err(("The provider sent an event that cannot be read", None))),
    ] {
        let (got, failure) = run(&events(&[record]));
        match want {
            Ok((reason, raw)) => {
                let done = ModelEvent::Done { reason, raw_reason: raw.map(str::to_owned), end_turn: None };
                assert_eq!((got.last(), failure), (Some(&done), None), "{record}");
            }
            Err((message, raw)) => {
                let failure = failure.unwrap();
                assert!(failure.message.starts_with(message), "{record}: {failure:?}");
                assert_eq!(failure.raw_reason.as_deref(), raw, "{record}");
            }
        }
    }
}

#[test]
fn odd_records_do_no_harm() {
    let (got, failure) = run(&events(&[
        "",
        r#"{"candidates":null,"usageMetadata":null,"error":null,"responseId":5}"#,
        r#"{"candidates":[{"content":null},null]}"#,
        r#"{"candidates":[{"content":{"parts":[null,{"inlineData":{"data":"x"}},{"thoughtSignature":"c2ln"}]}}]}"#,
        "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\tb\\d\\ud800\"}]}}],\"responseId\":1}",
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"n","args":"text"}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":"3"}}"#,
        "[DONE]",
    ]));
    assert_eq!(failure, None);
    assert_eq!(got[1], ModelEvent::TextStart { index: 0 });
    assert_eq!(got[2], ModelEvent::TextDelta { index: 0, delta: "a\tb\\d\u{fffd}".into() });
    assert_eq!(got[3], ModelEvent::TextEnd { index: 0, signature: Some("c2ln".into()) });
    assert_eq!(got[4..7], called(1, "n_1", "n", "{}", None));
    assert_eq!(got.len(), 9, "{got:#?}");
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
