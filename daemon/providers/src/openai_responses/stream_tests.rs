//! Streams as providers send them, cut at every byte, and what becomes of them.

use super::*;
use crate::proof::{self, cut_anywhere, events};
use atomic_protocol::json::Raw;

const WHOLE: &str = include_str!("fixtures/whole.sse");

fn model() -> Model {
    proof::model(r#"{"id":"m","cost":{"input":1,"output":10,"cacheRead":0.1,"cacheWrite":1.25}}"#)
}

fn run(text: &str) -> proof::Outcome {
    proof::run(Answer::new(&model(), Some(String::new())), [text.as_bytes()])
}

fn text(index: usize, delta: &str) -> ModelEvent {
    ModelEvent::TextDelta { index, delta: delta.to_owned() }
}

fn thought(index: usize, delta: &str) -> ModelEvent {
    ModelEvent::ThinkingDelta { index, delta: delta.to_owned() }
}

fn call(index: usize, delta: &str) -> ModelEvent {
    ModelEvent::ToolCallDelta { index, delta: delta.to_owned() }
}

fn called(index: usize, arguments: &str) -> ModelEvent {
    ModelEvent::ToolCallEnd { index, arguments: Raw::parse(arguments).unwrap(), thought_signature: None }
}

fn expected() -> Vec<ModelEvent> {
    let mut usage = Usage {
        input: 100,
        output: 42,
        cache_read: 1000,
        cache_write: 50,
        reasoning: Some(7),
        ..Usage::default()
    };
    cost::price(&mut usage, &model().cost, 0);
    let full = usage.cost.total;
    cost::scale(&mut usage.cost, 0.5);
    assert!((usage.cost.total * 2.0 - full).abs() < 1e-12 && full > 0.0);
    vec![
        ModelEvent::Start { response_id: Some("resp_1".into()), response_model: Some("m-2026".into()) },
        ModelEvent::ThinkingStart { index: 0 },
        thought(0, "Let me "),
        thought(0, "see"),
        thought(0, "\n\nYes"),
        ModelEvent::ThinkingEnd {
            index: 0,
            signature: Some(r#"{"id":"rs_1","type":"reasoning","encrypted_content":"gAAA","summary":[{"type":"summary_text","text":"Let me see"},{"type":"summary_text","text":"Yes"}]}"#.into()),
            redacted: false,
        },
        ModelEvent::TextStart { index: 1 },
        text(1, "Grüße "),
        text(1, "😀\n\"done\""),
        ModelEvent::TextEnd { index: 1, signature: Some(r#"{"v":1,"id":"msg_1","phase":"commentary"}"#.into()) },
        ModelEvent::ToolCallStart { index: 2, id: "call_1|fc_1".into(), name: "bash".into() },
        ModelEvent::ToolCallStart { index: 3, id: "call_2|fc_2".into(), name: "ls".into() },
        call(2, "{\"command\":"),
        call(3, "{}"),
        call(2, " \"l"),
        call(2, "s\"}"),
        called(2, r#"{"command": "ls"}"#),
        called(3, "{}"),
        ModelEvent::Usage(usage),
        ModelEvent::Done { reason: StopReason::ToolUse, raw_reason: None, end_turn: None },
    ]
}

#[test]
fn a_stream_cut_anywhere_gives_the_same_events() {
    let model = model();
    cut_anywhere(WHOLE, || Answer::new(&model, Some(String::new())), &(expected(), None));
}

#[test]
fn a_stream_that_ends_early_is_a_failure_wherever_it_ends() {
    let end = WHOLE.rfind("event: response.completed").unwrap();
    for at in 0..=end {
        let (_, failure) = proof::run(Answer::new(&model(), Some(String::new())), [&WHOLE.as_bytes()[..at]]);
        assert!(failure.is_some(), "{at}");
    }
    let failure = run(&WHOLE[..end]).1.unwrap();
    assert_eq!(failure.message, "OpenAI Responses stream ended before a terminal response event");
}

#[test]
fn names_may_be_missing() {
    let nameless: String =
        WHOLE.lines().filter(|line| !line.starts_with("event:")).map(|l| format!("{l}\n")).collect();
    assert_eq!(run(&format!("{nameless}data: [DONE]\n\n")), (expected(), None));
}

const COMPLETED: &str = r#"{"type":"response.completed","response":{"status":"completed"}}"#;

#[test]
fn places_may_be_missing() {
    let (got, failure) = run(&events(&[
        r#"{"type":"response.output_item.added","item":{"id":"fc_a","type":"function_call","call_id":"a","name":"x"}}"#,
        r#"{"type":"response.output_item.added","item":{"id":"fc_b","type":"function_call","call_id":"b","name":"y"}}"#,
        r#"{"type":"response.function_call_arguments.delta","item_id":"fc_a","delta":"{\"p\":1}"}"#,
        r#"{"type":"response.function_call_arguments.delta","delta":"{\"q\":2}"}"#,
        r#"{"type":"response.output_item.done","item":{"id":"fc_a","type":"function_call","call_id":"a","name":"x"}}"#,
        r#"{"type":"response.output_item.done","item":{"id":"fc_b","type":"function_call","call_id":"b","name":"y"}}"#,
        COMPLETED,
    ]));
    assert_eq!(failure, None);
    assert_eq!(got[5..7], [called(0, r#"{"p":1}"#), called(1, r#"{"q":2}"#)]);
}

#[test]
fn what_deltas_left_out_is_said_at_the_end() {
    let (got, failure) = run(&events(&[
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs","type":"reasoning","encrypted_content":"e","content":[{"type":"reasoning_text","text":"hm"}]}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"m1","type":"message"}}"#,
        r#"{"type":"response.output_text.delta","output_index":1,"delta":"Hel"}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"m1","type":"message","content":[{"type":"output_text","text":"Hello"}]}}"#,
        r#"{"type":"response.output_item.done","output_index":2,"item":{"id":"m2","type":"message","content":[{"type":"refusal","refusal":"No."}]}}"#,
        r#"{"type":"response.output_item.done","output_index":3,"item":{"id":"fc_1","type":"function_call","call_id":"c","name":"n","arguments":"{\"a\":[1]}"}}"#,
        COMPLETED,
    ]));
    assert_eq!(failure, None);
    assert_eq!(got[2], thought(0, "hm"));
    assert_eq!((&got[5], &got[6]), (&text(1, "Hel"), &text(1, "lo")));
    assert_eq!(got[9], text(2, "No."));
    assert_eq!((&got[12], &got[13]), (&call(3, r#"{"a":[1]}"#), &called(3, r#"{"a":[1]}"#)));
}

#[test]
fn thinking_that_is_sealed_later_ends_with_the_answer() {
    let done = r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs","type":"reasoning","summary":[]}}"#;
    let sealed = r#"{"id":"rs","type":"reasoning","summary":[],"encrypted_content":"late"}"#;
    let end =
        format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":[{sealed}]}}}}"#);
    for (end, want) in [(end.as_str(), sealed), (COMPLETED, r#"{"id":"rs","type":"reasoning","summary":[]}"#)]
    {
        let (got, failure) = run(&events(&[done, end]));
        assert_eq!(failure, None);
        let signature = Some(want.to_owned());
        assert_eq!(got[2], ModelEvent::ThinkingEnd { index: 0, signature, redacted: false });
    }
}

#[test]
fn endings_follow_the_table() {
    let call = r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"c","name":"n","arguments":""}}"#;
    for (records, want) in [
        (vec![COMPLETED], Ok((StopReason::Stop, None))),
        (vec![call, COMPLETED], Ok((StopReason::ToolUse, None))),
        (vec![r#"{"type":"response.completed","response":{}}"#], Ok((StopReason::Stop, None))),
        (vec![r#"{"type":"response.done","response":{"end_turn":false}}"#], Ok((StopReason::Stop, None))),
        (
            vec![r#"{"type":"response.completed","response":{"status":"in_progress"}}"#],
            Ok((StopReason::Stop, Some("in_progress"))),
        ),
        (
            vec![
                call,
                r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
            ],
            Ok((StopReason::Length, None)),
        ),
        (
            vec![
                r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#,
            ],
            Err(("Response incomplete: content_filter", Some("incomplete.content_filter"))),
        ),
        (
            vec![r#"{"type":"response.incomplete","response":{"status":"incomplete"}}"#],
            Err(("Response incomplete without a provider reason", Some("incomplete"))),
        ),
        (
            vec![
                r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"Try again."}}}"#,
            ],
            Err(("server_error: Try again.", Some("failed"))),
        ),
        (
            vec![r#"{"type":"response.failed","response":{"incomplete_details":{"reason":"x"}}}"#],
            Err(("incomplete: x", Some("failed"))),
        ),
        (
            vec![r#"{"type":"response.cancelled","response":{"status":"cancelled"}}"#],
            Err(("The response cancelled and the provider does not say why.", Some("cancelled"))),
        ),
        (
            vec![r#"{"type":"response.completed","response":{"status":"paused"}}"#],
            Err(("Unhandled response status: paused", Some("paused"))),
        ),
        (
            vec![r#"{"type":"error","code":"rate_limit_exceeded","message":"Slow down","param":null}"#],
            Err(("Error Code rate_limit_exceeded: Slow down", None)),
        ),
        (
            vec![r#"{"type":"error","error":{"type":"server_error","code":503,"message":"busy"}}"#],
            Err(("Error Code 503: busy", None)),
        ),
        (vec![r#"{"error":{"message":"no such model","code":null}}"#], Err(("no such model", None))),
        (vec!["<html>"], Err(("The provider sent an event that cannot be read", None))),
        (
            vec![
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"c","name":"cut"}}"#,
                COMPLETED,
            ],
            Err(("OpenAI Responses stream completed with an unfinished tool call: cut", None)),
        ),
    ] {
        let (got, failure) = run(&events(&records));
        match want {
            Ok((reason, raw)) => {
                let end_turn = records.last().unwrap().contains("end_turn").then_some(false);
                let done = ModelEvent::Done { reason, raw_reason: raw.map(str::to_owned), end_turn };
                assert_eq!((got.last(), failure), (Some(&done), None), "{records:?}");
            }
            Err((message, raw)) => {
                let failure = failure.unwrap();
                assert!(failure.message.starts_with(message), "{records:?}: {failure:?}");
                assert_eq!(failure.raw_reason.as_deref(), raw, "{records:?}");
                assert!(!got.iter().any(|event| matches!(event, ModelEvent::Done { .. })));
            }
        }
    }
    assert_eq!(run(&events(&[r#"{"type":"error","code":429,"message":"x"}"#])).1.unwrap().status, Some(429));
}

#[test]
fn odd_records_do_no_harm() {
    let (got, failure) = run(&format!(
        "event: keepalive\ndata: not json\n\nevent: brand.new\ndata: {{\"type\":\"brand.new\"}}\n\n{}",
        events(&[
            "",
            r#"{"type":"response.output_text.delta","output_index":9,"delta":"lost"}"#,
            r#"{"type":"response.output_item.added","output_index":0,"item":null}"#,
            r#"{"type":"response.output_item.added","output_index":0.0,"item":{"type":"message","id":null,"content":"text"}}"#,
            r#"{"type":"response.reasoning_text.delta","output_index":0,"delta":"of another kind"}"#,
            // Raw control characters, a bad backslash, a lone surrogate, equal keys.
            "{\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"a\tb\\d\\ud800\",\"output_index\":0}",
            r#"{"type":"response.output_text.delta","output_index":0,"delta":null}"#,
            r#"{"type":"response.completed","response":{"usage":{"input_tokens":"3","output_tokens":null,"input_tokens_details":null},"model":7,"id":null}}"#,
        ])
    ));
    assert_eq!(failure, None);
    assert_eq!(got.len(), 6, "{got:#?}");
    assert_eq!((&got[1], &got[2]), (&ModelEvent::TextStart { index: 0 }, &text(0, "a\tb\\d\u{fffd}")));
    assert!(matches!(&got[3], ModelEvent::Usage(usage) if usage.input == 3 && usage.output == 0));
}

#[test]
fn tiers_of_service_have_their_price() {
    for (model, tier, want) in [
        ("m", "flex", 0.5),
        ("m", "priority", 2.0),
        ("gpt-5.5", "priority", 2.5),
        ("gpt-5.5", "fast", 2.5),
        ("m", "default", 1.0),
        ("m", "", 1.0),
    ] {
        assert_eq!(tier_factor(model, tier), want, "{model} {tier}");
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(at in 0usize..WHOLE.len(), junk in proptest::collection::vec(proptest::num::u8::ANY, 0..12)) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        let end = (at + junk.len()).min(bytes.len());
        bytes.splice(at..end, junk);
        let (events, failure) = proof::run(Answer::new(&model(), Some(String::new())), [&bytes[..]]);
        let done = events.iter().filter(|event| matches!(event, ModelEvent::Done { .. })).count();
        proptest::prop_assert_eq!(done, usize::from(failure.is_none()));
    }
}

#[test]
fn prices_follow_the_tier_that_answered_else_the_one_asked_for() {
    let usage = r#""status":"completed","usage":{"input_tokens":1000000,"output_tokens":0}"#;
    for (asked, answered, want) in [
        (Some(""), "", 1.0),
        (Some(""), r#","service_tier":"default""#, 1.0),
        (Some(""), r#","service_tier":"flex""#, 0.5),
        (Some(""), r#","service_tier":"priority""#, 2.0),
        (Some("flex"), "", 0.5),
        (Some("priority"), r#","service_tier":"default""#, 1.0),
        (Some("auto"), r#","service_tier":null"#, 1.0),
        (None, r#","service_tier":"flex""#, 1.0),
    ] {
        let record = format!(r#"{{"type":"response.completed","response":{{{usage}{answered}}}}}"#);
        let model = model();
        let answer = Answer::new(&model, asked.map(str::to_owned));
        let (got, _) = proof::run(answer, [events(&[record.as_str()]).as_bytes()]);
        let cost = got.iter().find_map(|event| match event {
            ModelEvent::Usage(usage) => Some(usage.cost.input),
            _ => None,
        });
        assert_eq!(cost, Some(want * model.cost.input), "{asked:?} {answered}");
    }
}

#[test]
fn reasoning_that_the_provider_left_out_is_kept_as_a_diagnostic() {
    let of = |list: &str| {
        let record = format!(
            r#"{{"type":"response.completed","response":{{"status":"completed","input_transformations":{list}}}}}"#
        );
        let (got, failure) = run(&events(&[record.as_str()]));
        assert_eq!(failure, None);
        got.into_iter().find_map(|event| match event {
            ModelEvent::Diagnostic { kind, details } => Some(format!("{kind} {}", details.as_str())),
            _ => None,
        })
    };
    let removed = r#"{"type":"reasoning","id":"rs_1","action":"removed","reason":"unknown_key"}"#;
    let usual = r#"{"type":"reasoning","id":"rs_0","action":"removed","reason":"turn_boundary"}"#;
    assert_eq!(
        of(&format!("[{usual},{removed},7]")).unwrap(),
        format!(r#"openai_input_transformations {{"transformations":[{removed}]}}"#)
    );
    for nothing in ["null", "[]", "{}", &format!("[{usual}]")] {
        assert_eq!(of(nothing), None, "{nothing}");
    }
}
