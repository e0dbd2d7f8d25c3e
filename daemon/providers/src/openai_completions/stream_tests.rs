//! Streams as the provider sends them, cut at every byte, and what becomes of them.

use super::*;
use crate::cost;
use crate::proof::{self, Outcome, events as sse_of};
use atomic_protocol::json::Raw;

const WHOLE: &str = include_str!("fixtures/whole.sse");

fn model(provider: &str) -> Model {
    let spec = format!(
        r#"{{"id":"m","provider":"{provider}","cost":{{"input":1,"output":10,"cacheRead":0.1,"cacheWrite":1.25}}}}"#
    );
    proof::model(&spec)
}

fn run<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let model = model("p");
    proof::run(Answer::new(&model, true), pieces)
}

/// Deltas of the one choice as records, then the end.
fn of_deltas(deltas: &[&str], word: &str) -> Outcome {
    let records: Vec<String> = deltas
        .iter()
        .map(|delta| format!(r#"{{"id":"x","choices":[{{"delta":{delta}}}]}}"#))
        .chain([format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{word}"}}]}}"#)])
        .collect();
    run([sse_of(&records.iter().map(String::as_str).collect::<Vec<_>>()).as_bytes()])
}

fn failure(records: &[&str]) -> ModelFailure {
    let (events, failure) = run([sse_of(records).as_bytes()]);
    assert!(!events.iter().any(|event| matches!(event, ModelEvent::Done { .. })));
    failure.expect("the stream fails")
}

/// A short form of what an answer holds: its blocks, each with what its deltas add up to and its signature or
/// arguments. Checks that indexes count up, deltas fall between start and end, and ends come in order.
fn blocks(events: &[ModelEvent]) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut ended = 0;
    for event in events {
        match event {
            ModelEvent::TextStart { index } => {
                assert_eq!(*index, blocks.len());
                blocks.push("text ".into());
            }
            ModelEvent::ThinkingStart { index } => {
                assert_eq!(*index, blocks.len());
                blocks.push("thinking ".into());
            }
            ModelEvent::ToolCallStart { index, id, name } => {
                assert_eq!(*index, blocks.len());
                blocks.push(format!("call {id} {name} "));
            }
            ModelEvent::TextDelta { index, delta }
            | ModelEvent::ThinkingDelta { index, delta }
            | ModelEvent::ToolCallDelta { index, delta } => {
                assert!(*index >= ended && !delta.is_empty());
                blocks[*index].push_str(delta);
            }
            ModelEvent::TextEnd { index, .. } => {
                assert_eq!(*index, ended);
                ended += 1;
            }
            ModelEvent::ThinkingEnd { index, signature, redacted } => {
                assert_eq!((*index, *redacted), (ended, false));
                ended += 1;
                blocks[*index].push_str(&format!(" | {}", signature.as_deref().unwrap_or("-")));
            }
            ModelEvent::ToolCallEnd { index, arguments, .. } => {
                assert_eq!(*index, ended);
                ended += 1;
                blocks[*index].push_str(&format!(" | {}", arguments.as_str()));
            }
            ModelEvent::Start { .. }
            | ModelEvent::Diagnostic { .. }
            | ModelEvent::Usage(_)
            | ModelEvent::Done { .. }
            | ModelEvent::Failed(_) => {}
        }
    }
    assert_eq!(ended, blocks.len(), "{events:?}");
    blocks
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
    cost::price(&mut usage, &model("p").cost, 0);
    let call = |index, delta: &str| ModelEvent::ToolCallDelta { index, delta: delta.to_owned() };
    vec![
        ModelEvent::Start { response_id: Some("chatcmpl-1".into()), response_model: Some("m-2".into()) },
        ModelEvent::ThinkingStart { index: 0 },
        ModelEvent::ThinkingDelta { index: 0, delta: "Let me ".into() },
        ModelEvent::ThinkingDelta { index: 0, delta: "see".into() },
        ModelEvent::TextStart { index: 1 },
        ModelEvent::TextDelta { index: 1, delta: "Grüße ".into() },
        ModelEvent::TextDelta { index: 1, delta: "😀\n\"done\"".into() },
        ModelEvent::ToolCallStart { index: 2, id: "call_1".into(), name: "bash".into() },
        ModelEvent::ToolCallStart { index: 3, id: "call_2".into(), name: "ls".into() },
        call(3, "{}"),
        call(2, "{\"command\":"),
        call(2, " \"ls\"}"),
        ModelEvent::Usage(usage),
        ModelEvent::ThinkingEnd { index: 0, signature: Some("reasoning_content".into()), redacted: false },
        ModelEvent::TextEnd { index: 1, signature: None },
        ModelEvent::ToolCallEnd {
            index: 2,
            arguments: Raw::parse(r#"{"command": "ls"}"#).unwrap(),
            thought_signature: None,
        },
        ModelEvent::ToolCallEnd { index: 3, arguments: Raw::empty_object(), thought_signature: None },
        ModelEvent::Done { reason: StopReason::ToolUse, raw_reason: None, end_turn: None },
    ]
}

#[test]
fn a_stream_cut_anywhere_gives_the_same_events() {
    let model = model("p");
    proof::cut_anywhere(WHOLE, || Answer::new(&model, true), &(expected(), None));
}

#[test]
fn the_end_may_be_the_end_of_the_bytes() {
    let end = WHOLE.rfind("data: [DONE]").unwrap();
    assert_eq!(run([&WHOLE.as_bytes()[..end]]), (expected(), None));
    // The last event without its blank line, then without its line break.
    assert_eq!(run([&WHOLE.as_bytes()[..end - 1]]), (expected(), None));
    assert_eq!(run([&WHOLE.as_bytes()[..end - 2]]), (expected(), None));
    // Before the chunk with the reason everything is too early, with or without an end mark.
    let reason = WHOLE.rfind("data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{},").unwrap();
    for at in 0..=reason {
        for mark in ["", "\n\ndata: [DONE]\n\n"] {
            let bytes = [&WHOLE.as_bytes()[..at], mark.as_bytes()].concat();
            let (events, failure) = run([&bytes[..]]);
            let message = failure.expect("it is cut off").message;
            assert!(
                message == "Stream ended without finish_reason" || message.contains("cannot be read"),
                "{at}: {message}"
            );
            assert!(events.len() < expected().len());
        }
    }
}

#[test]
fn a_reason_is_inferred_where_there_is_none() {
    for (delta, want) in [
        (r#"{"content":"a"}"#, StopReason::Stop),
        (
            r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"n","arguments":"{}"}}]}"#,
            StopReason::ToolUse,
        ),
    ] {
        let model = model("p");
        let text = sse_of(&[&format!(r#"{{"id":"x","choices":[{{"delta":{delta}}}]}}"#)]);
        let (events, failure) = proof::run(Answer::new(&model, false), [text.as_bytes()]);
        let done = ModelEvent::Done { reason: want, raw_reason: None, end_turn: None };
        assert_eq!((events.last(), failure), (Some(&done), None));
        blocks(&events);
    }
}

#[test]
fn failures_carry_the_providers_words() {
    let begin = r#"{"id":"x","choices":[{"delta":{"content":"part"}}]}"#;
    for (record, message, status, raw) in [
        (
            r#"{"error":{"message":"slow down","code":429}}"#,
            r#"429 {"message":"slow down","code":429}"#,
            Some(429),
            None,
        ),
        (
            r#"{"error":{"message":"too long","code":"400"},"choices":[]}"#,
            r#"400 {"message":"too long","code":"400"}"#,
            Some(400),
            None,
        ),
        (
            r#"{"error":{"message":"m","type":"server_error","code":"overloaded"}}"#,
            r#"{"message":"m","type":"server_error","code":"overloaded"}"#,
            None,
            None,
        ),
        (r#"{"error":"no \"memory\""}"#, r#"no "memory""#, None, None),
        (
            r#"{"id":"g","error":{"code":502,"message":"gone"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
            r#"502 {"code":502,"message":"gone"}"#,
            Some(502),
            Some("error"),
        ),
        (r#"{"choices":[{"error":{"code":503},"delta":{}}]}"#, r#"503 {"code":503}"#, Some(503), None),
        (
            r#"{"object":"error","message":"bad","code":400}"#,
            r#"400 {"object":"error","message":"bad","code":400}"#,
            Some(400),
            None,
        ),
        (
            r#"{"type":"error","status":529,"message":"b"}"#,
            r#"529 {"type":"error","status":529,"message":"b"}"#,
            Some(529),
            None,
        ),
    ] {
        for records in [&[record][..], &[begin, record]] {
            let got = failure(records);
            assert_eq!((got.message.as_str(), got.status, got.raw_reason.as_deref()), (message, status, raw));
        }
    }
    let (_, named) = run([&b"event: error\ndata: {\"error\":{\"code\":500}}\n\n"[..]]);
    assert_eq!(named.unwrap().message, r#"500 {"code":500}"#);
    let (_, named) = run([&b"event: error\ndata: out of memory\n\n"[..]]);
    assert_eq!(named.unwrap().message, "out of memory");
    assert!(failure(&[begin, "<html>"]).message.contains("<html>"));
    // What only looks like one.
    for nothing in ["null", "false", "\"\"", "{}"] {
        let record = format!(
            r#"{{"error":{nothing},"choices":[{{"delta":{{"content":"a"}},"finish_reason":"stop"}}]}}"#
        );
        assert_eq!(run([sse_of(&[&record]).as_bytes()]).1, None);
    }
}

#[test]
fn finish_reasons_follow_the_table() {
    let call = r#"{"tool_calls":[{"id":"c","function":{"name":"n"}}]}"#;
    let text = r#"{"content":"a"}"#;
    for (delta, word, want) in [
        (text, "stop", Ok((StopReason::Stop, None))),
        (text, "end", Ok((StopReason::Stop, Some("end")))),
        (text, "length", Ok((StopReason::Length, None))),
        (call, "length", Ok((StopReason::Length, None))),
        (call, "tool_calls", Ok((StopReason::ToolUse, None))),
        (call, "function_call", Ok((StopReason::ToolUse, Some("function_call")))),
        (call, "stop", Ok((StopReason::ToolUse, Some("stop")))),
        (text, "content_filter", Err("Provider finish_reason: content_filter")),
        (text, "network_error", Err("Provider finish_reason: network_error")),
        (text, "error", Err("Provider finish_reason: error")),
        (text, "MALFORMED_FUNCTION_CALL", Err("Provider finish_reason: MALFORMED_FUNCTION_CALL")),
        (text, "model_context_window_exceeded", Err("Provider finish_reason: model_context_window_exceeded")),
        (text, "", Err("Stream ended without finish_reason")),
    ] {
        let (events, failure) = of_deltas(&[delta], word);
        match want {
            Ok((reason, raw)) => {
                let done = ModelEvent::Done { reason, raw_reason: raw.map(str::to_owned), end_turn: None };
                assert_eq!((events.last(), failure), (Some(&done), None), "{word}");
                blocks(&events);
            }
            Err(message) => {
                let failure = failure.unwrap();
                assert_eq!(failure.message, message);
                assert_eq!(failure.raw_reason.as_deref().unwrap_or(""), word);
            }
        }
    }
    // A reason stays one when later chunks have none.
    let (events, failure) = run([sse_of(&[
        r#"{"id":"x","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
        r#"{"id":"x","choices":[{"delta":{},"finish_reason":null}]}"#,
    ])
    .as_bytes()]);
    assert!(failure.is_none() && matches!(events.last(), Some(ModelEvent::Done { .. })));
}

#[test]
fn thinking_is_read_from_every_field_and_once() {
    for (deltas, want) in [
        (
            &[r#"{"reasoning_content":"a"}"#, r#"{"reasoning_content":"b","content":""}"#][..],
            &["thinking ab | reasoning_content"][..],
        ),
        (
            &[r#"{"reasoning":"a"}"#, r#"{"content":"t"}"#, r#"{"reasoning":"b"}"#],
            &["thinking ab | reasoning", "text t"],
        ),
        (&[r#"{"reasoning_text":"a","reasoning":null}"#], &["thinking a | reasoning_text"]),
        (
            &[r#"{"reasoning_content":"a","reasoning":"a","reasoning_text":"a"}"#],
            &["thinking a | reasoning_content"],
        ),
        (&[r#"{"reasoning_content":"","reasoning":"a"}"#], &["thinking a | reasoning"]),
        (
            &[
                r#"{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a","index":0}]}"#,
                r#"{"reasoning":"b","reasoning_details":[{"type":"reasoning.text","text":"b","index":0}]}"#,
                r#"{"reasoning_details":[{"type":"reasoning.text","signature":"s","index":0}]}"#,
                r#"{"content":"t"}"#,
            ],
            &[r#"thinking ab | [{"type":"reasoning.text","text":"ab","index":0,"signature":"s"}]"#, "text t"],
        ),
        (
            &[r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"a"}]}"#, r#"{"content":"t"}"#],
            &[r#"thinking a | [{"type":"reasoning.summary","summary":"a"}]"#, "text t"],
        ),
        (
            &[r#"{"content":"t","reasoning_details":[{"type":"reasoning.encrypted","data":"e"}]}"#],
            &[r#"thinking  | [{"type":"reasoning.encrypted","data":"e"}]"#, "text t"],
        ),
        (&[r#"{"reasoning_details":[]}"#, r#"{"reasoning_details":null,"content":"t"}"#], &["text t"]),
        (&[r#"{"content":"<thi"}"#, r#"{"content":"nk>a</think>\n\nt"}"#], &["thinking a | -", "text t"]),
        (
            &[r#"{"reasoning":"a"}"#, r#"{"content":"<think>t"}"#],
            &["thinking a | reasoning", "text <think>t"],
        ),
        (&[r#"{"content":" <"}"#], &["text  <"]),
        (&[r#"{"refusal":"no"}"#], &["text no"]),
        (
            &[r#"{"content":[{"type":"text","text":"in "},{"type":"text","text":"parts"}]}"#],
            &["text in parts"],
        ),
    ] {
        let (events, failure) = of_deltas(deltas, "stop");
        assert_eq!(failure, None);
        assert_eq!(blocks(&events), want, "{deltas:?}");
    }
    let model = model("opencode-go");
    let text = sse_of(&[r#"{"id":"x","choices":[{"delta":{"reasoning":"a"},"finish_reason":"stop"}]}"#]);
    let (events, _) = proof::run(Answer::new(&model, true), [text.as_bytes()]);
    assert_eq!(blocks(&events), ["thinking a | reasoning_content"]);
}

#[test]
fn calls_come_in_many_shapes() {
    let one = |function: &str| format!(r#"{{"tool_calls":[{{"index":0,"id":"c","function":{function}}}]}}"#);
    for (function, want) in [
        (r#"{"name":"n"}"#, "call c n  | {}"),
        (r#"{"name":"n","arguments":null}"#, "call c n  | {}"),
        (r#"{"name":"n","arguments":""}"#, "call c n  | {}"),
        (r#"{"name":"n","arguments":"{}{}"}"#, "call c n {}{} | {}"),
        (r#"{"name":"n","arguments":"{}{\"a\":1}"}"#, r#"call c n {}{"a":1} | {"a":1}"#),
        (r#"{"name":"n","arguments":{"a":[1.0]}}"#, r#"call c n {"a":[1.0]} | {"a":[1.0]}"#),
        (r#"{"name":"n","arguments":"{\"a\":\"x"}"#, r#"call c n {"a":"x | {"a":"x"}"#),
        (r#"{"name":"n","arguments":7}"#, "call c n  | {}"),
    ] {
        let (events, failure) = of_deltas(&[&one(function)], "tool_calls");
        assert_eq!((blocks(&events), failure), (vec![want.to_owned()], None), "{function}");
    }
    for (deltas, want) in [
        // All numbered 0, told apart by id and name.
        (
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"n","arguments":"{}"}},{"index":0,"id":"b","function":{"name":"n","arguments":"{\"x\":"}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}"#,
            ][..],
            &["call a n {} | {}", r#"call b n {"x":1} | {"x":1}"#][..],
        ),
        // No numbers at all.
        (
            &[
                r#"{"tool_calls":[{"id":"a","function":{"name":"n","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"function":{"arguments":"}"}}]}"#,
                r#"{"tool_calls":[{"id":"b","function":{"name":"n","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"id":"a","function":{"arguments":" "}},{"id":"b","function":{"arguments":"}"}}]}"#,
            ],
            &["call a n {}  | {}", "call b n {} | {}"],
        ),
        // Id and name in every piece.
        (
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"n","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"n","arguments":"}"}}]}"#,
            ],
            &["call a n {} | {}"],
        ),
        // A fresh id in every piece, the name only once.
        (
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"n","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"z","function":{"name":"","arguments":"}"}}]}"#,
            ],
            &["call a n {} | {}"],
        ),
        // The name comes late; text stands before it then.
        (
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{"}}]}"#,
                r#"{"content":"t"}"#,
                r#"{"tool_calls":[{"index":0,"function":{"name":"n","arguments":"}"}}]}"#,
            ],
            &["text t", "call a n {} | {}"],
        ),
        // Never a name, and no id: still a call, which the agent answers.
        (&[r#"{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#], &["call   {} | {}"]),
        (
            &[r#"{"function_call":{"name":"n","arguments":"{"}}"#, r#"{"function_call":{"arguments":"}"}}"#],
            &["call  n {} | {}"],
        ),
        (&[r#"{"tool_calls":null}"#, r#"{"tool_calls":[null]}"#, r#"{"content":"t"}"#], &["text t"]),
    ] {
        let (events, failure) = of_deltas(deltas, "tool_calls");
        assert_eq!(
            (blocks(&events), failure),
            (want.iter().map(|w| (*w).to_owned()).collect(), None),
            "{deltas:?}"
        );
    }
}

#[test]
fn tokens_are_counted_once_wherever_they_stand() {
    let end = r#"{"id":"x","choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    for (records, want) in [
        (&[end][..], None),
        (&[end, r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2}}"#], Some((10, 2, 0))),
        (&[end, r#"{"usage":{"prompt_tokens":10,"completion_tokens":2}}"#], Some((10, 2, 0))),
        (&[end, r#"{"choices":null,"usage":{"prompt_tokens":10,"completion_tokens":2}}"#], Some((10, 2, 0))),
        (
            &[
                r#"{"id":"x","choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":10,"completion_tokens":2}}]}"#,
            ],
            Some((10, 2, 0)),
        ),
        (
            &[
                r#"{"id":"x","choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":10,"completion_tokens":1}}"#,
                end,
                r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":4}}"#,
                r#"{"choices":[],"usage":{}}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":null,"completion_tokens":null}}"#,
            ],
            Some((6, 2, 4)),
        ),
        (
            &[
                end,
                r#"{"usage":{"prompt_tokens":10.0,"completion_tokens":"2","cached_tokens":10,"prompt_tokens_details":null}}"#,
            ],
            Some((0, 2, 10)),
        ),
        (
            &[
                end,
                r#"{"usage":{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":5}}}"#,
            ],
            Some((0, 2, 5)),
        ),
    ] {
        let (events, failure) = run([sse_of(records).as_bytes()]);
        assert_eq!(failure, None, "{records:?}");
        let last = events.iter().rev().find_map(|event| match event {
            ModelEvent::Usage(usage) => Some((usage.input, usage.output, usage.cache_read)),
            _ => None,
        });
        assert_eq!(last, want, "{records:?}");
    }
}

#[test]
fn odd_records_do_no_harm() {
    let odd = [
        "event: ping\ndata: pong\n\n",
        "data:\n\n",
        "data: {}\n\n",
        "data: {\"id\":7,\"model\":[],\"choices\":[null]}\n\n",
        // Raw control characters, a bad backslash, a lone surrogate, equal keys.
        "data: {\"id\":\"x\",\"choices\":[{\"delta\":{\"content\":\"a\tb\\d\\ud800\"}}],\"id\":\"y\"}\n\n",
        "data: {\"choices\":[{\"delta\":null},{\"index\":1,\"delta\":{\"content\":\"other\"}}]}\n\n",
        "data: {\"choices\":[{\"message\":{\"content\":\"!\"},\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data:   [DONE]\n\n",
        "data: never read\n\n",
    ];
    let (events, failure) = run([odd.concat().as_bytes()]);
    assert_eq!(failure, None);
    assert_eq!(blocks(&events), ["text a\tb\\d\u{fffd}!"]);
    assert_eq!(events[0], ModelEvent::Start { response_id: Some("y".into()), response_model: None });
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(at in 0usize..WHOLE.len(), junk in proptest::collection::vec(proptest::num::u8::ANY, 0..12)) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        let end = (at + junk.len()).min(bytes.len());
        bytes.splice(at..end, junk);
        let (events, failure) = run([&bytes[..]]);
        let done = events.iter().filter(|event| matches!(event, ModelEvent::Done { .. })).count();
        proptest::prop_assert_eq!(done, usize::from(failure.is_none()));
        if failure.is_none() {
            blocks(&events);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_breaks_after_the_reason_does_no_harm() {
    let begun = r#"{"id":"x","choices":[{"delta":{"content":"a"}}]}"#;
    let ended = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let filtered = r#"{"choices":[{"delta":{},"finish_reason":"content_filter"}]}"#;
    let idle = std::time::Duration::from_secs(300);
    for (records, says_why, breaks, want) in [
        (&[begun, ended][..], true, true, None),
        (&[begun, ended], true, false, None),
        (&[begun, filtered], true, true, Some("Provider finish_reason: content_filter")),
        (&[begun], true, true, Some("broken")),
        (&[begun], false, true, Some("broken")),
        (&[begun], false, false, Some("stream deadline exceeded")),
    ] {
        let text = format!("{}data: {{\"usage\":{{\"prompt_tokens\":1", sse_of(records));
        let first = futures_util::stream::once(std::future::ready(Ok(bytes::Bytes::from(text))));
        let rest = futures_util::stream::poll_fn(move |_| match breaks {
            true => std::task::Poll::Ready(Some(Err(ModelFailure::new("broken")))),
            false => std::task::Poll::Pending,
        });
        let pieces = futures_util::StreamExt::chain(first, rest);
        let model = model("p");
        let mut answer = Answer::new(&model, says_why);
        let (sink, mut batches) = tokio::sync::mpsc::channel(16);
        let outcome = crate::pump::pump(Box::pin(pieces), &mut answer, Some(idle), &sink).await;
        drop(sink);
        let mut events = Vec::new();
        while let Some(batch) = batches.recv().await {
            events.extend(batch);
        }
        match (outcome, want) {
            (Ok(()), None) => {
                assert!(matches!(events.last(), Some(ModelEvent::Done { .. })), "{events:?}");
                assert!(!events.iter().any(|event| matches!(event, ModelEvent::Usage(_))), "{events:?}");
            }
            (Err(crate::pump::Stop::Failed(failure)), Some(want)) => {
                assert!(failure.message.starts_with(want), "{failure:?}");
            }
            (outcome, want) => panic!("{records:?}: {outcome:?}, not {want:?}"),
        }
    }
}
