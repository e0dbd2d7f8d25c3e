//! Streams as the provider sends them, cut at every byte, and what becomes of them.

use super::*;
use crate::proof::{self, Outcome};
use crate::pump::{Stop, pump};
use bytes::Bytes;
use std::time::Duration;
use tokio::sync::mpsc;

const WHOLE: &str = include_str!("fixtures/whole.sse");

fn model() -> Model {
    proof::model(r#"{"id":"m","cost":{"input":1,"output":10,"cacheRead":0.1,"cacheWrite":1.25}}"#)
}

fn run<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let model = model();
    proof::run(Answer::new(&model, Vec::new()), pieces)
}

/// Each record as an event named by its type.
fn sse_of(records: &[&str]) -> String {
    let name =
        |record: &str| serde_json::from_str::<Wire<'_>>(record).map_or(String::new(), |w| w.kind.owned());
    records.iter().map(|record| format!("event: {}\ndata: {record}\n\n", name(record))).collect()
}

fn failure(records: &[&str]) -> ModelFailure {
    let (events, failure) = run([sse_of(records).as_bytes()]);
    assert!(!events.iter().any(|event| matches!(event, ModelEvent::Done { .. })));
    failure.expect("the stream fails")
}

fn expected() -> Vec<ModelEvent> {
    let usage = |output: u64, reasoning: Option<u64>| {
        let mut usage =
            Usage { input: 100, output, cache_read: 1000, cache_write: 50, reasoning, ..Usage::default() };
        cost::price(&mut usage, &model().cost, 20);
        ModelEvent::Usage(usage)
    };
    let text = |index, delta: &str| ModelEvent::TextDelta { index, delta: delta.to_owned() };
    let call = |index, delta: &str| ModelEvent::ToolCallDelta { index, delta: delta.to_owned() };
    vec![
        ModelEvent::Start { response_id: Some("msg_1".into()), response_model: Some("m-2".into()) },
        usage(1, None),
        ModelEvent::ThinkingStart { index: 0 },
        ModelEvent::ThinkingDelta { index: 0, delta: "Let me ".into() },
        ModelEvent::ThinkingDelta { index: 0, delta: "see".into() },
        ModelEvent::ThinkingEnd { index: 0, signature: Some("sig1sig2".into()), redacted: false },
        ModelEvent::ThinkingStart { index: 1 },
        ModelEvent::ThinkingDelta { index: 1, delta: "[Reasoning redacted]".into() },
        ModelEvent::ThinkingEnd { index: 1, signature: Some("opaque".into()), redacted: true },
        ModelEvent::TextStart { index: 2 },
        text(2, "Grüße "),
        text(2, "😀\n\"done\""),
        ModelEvent::TextEnd { index: 2, signature: None },
        ModelEvent::ToolCallStart { index: 3, id: "toolu_1".into(), name: "bash".into() },
        ModelEvent::ToolCallStart { index: 4, id: "toolu_2".into(), name: "ls".into() },
        call(3, "{\"command\":"),
        call(4, "{}"),
        call(3, " \"ls\"}"),
        ModelEvent::ToolCallEnd {
            index: 3,
            arguments: Raw::parse(r#"{"command": "ls"}"#).unwrap(),
            thought_signature: None,
        },
        ModelEvent::ToolCallEnd { index: 4, arguments: Raw::empty_object(), thought_signature: None },
        usage(42, Some(7)),
        ModelEvent::Done { reason: StopReason::ToolUse, raw_reason: None, end_turn: None },
    ]
}

#[test]
fn a_stream_cut_anywhere_gives_the_same_events() {
    let model = model();
    proof::cut_anywhere(WHOLE, || Answer::new(&model, Vec::new()), &(expected(), None));
}

#[test]
fn a_stream_that_ends_early_is_a_failure_wherever_it_ends() {
    // message_stop is the last event: everything before it is too early.
    let end = WHOLE.rfind("event: message_stop").unwrap();
    for at in 0..=end {
        let (_, failure) = run([&WHOLE.as_bytes()[..at]]);
        assert!(failure.is_some(), "{at}");
    }
    let (events, failure) = run([&WHOLE.as_bytes()[..end]]);
    assert_eq!(failure.unwrap().message, "Anthropic stream ended before message_stop");
    assert_eq!(events.len(), expected().len() - 1);
}

#[test]
fn names_may_be_missing() {
    let nameless: String =
        WHOLE.lines().filter(|line| !line.starts_with("event:")).map(|l| format!("{l}\n")).collect();
    assert_eq!(run([format!("{nameless}data: [DONE]\n\n").as_bytes()]), (expected(), None));
}

#[test]
fn failures_carry_the_providers_words() {
    let error =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}"#;
    assert_eq!(failure(&[error]).message, error);
    let start = r#"{"type":"message_start","message":{"id":"x"}}"#;
    let text = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"part"}}"#;
    assert_eq!(failure(&[start, text, error]).message, error);
    let (_, nameless) = run([format!("data: {error}\n\n").as_bytes()]);
    assert_eq!(nameless.unwrap().message, error);
    let stop = r#"{"type":"message_stop"}"#;
    assert_eq!(failure(&[start, stop]).message, "Anthropic stream ended without a stop reason");
    let unreadable = failure(&[start]).message;
    assert_eq!(unreadable, "Anthropic stream ended before message_stop");
    let (_, broken) = run([&b"event: message_delta\ndata: <html>\n\n"[..]]);
    assert!(broken.unwrap().message.contains("<html>"));
}

#[test]
fn stop_reasons_follow_the_table() {
    for (word, want) in [
        ("end_turn", Ok((StopReason::Stop, None))),
        ("pause_turn", Ok((StopReason::Stop, Some("pause_turn")))),
        ("stop_sequence", Ok((StopReason::Stop, Some("stop_sequence")))),
        ("max_tokens", Ok((StopReason::Length, None))),
        ("tool_use", Ok((StopReason::ToolUse, None))),
        ("refusal", Err("safety reasons")),
        ("sensitive", Err("safety reasons")),
        ("model_context_window_exceeded", Err("Unhandled stop reason: model_context_window_exceeded")),
        ("", Err("Unhandled stop reason: ")),
    ] {
        let delta =
            format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{word}","stop_details":null}}}}"#);
        let (events, failure) = run([sse_of(&[&delta, r#"{"type":"message_stop"}"#]).as_bytes()]);
        match want {
            Ok((reason, raw)) => {
                let done = ModelEvent::Done { reason, raw_reason: raw.map(str::to_owned), end_turn: None };
                assert_eq!((events.last(), failure), (Some(&done), None), "{word}");
            }
            Err(text) => {
                let failure = failure.unwrap();
                assert!(failure.message.contains(text), "{word}: {failure:?}");
                assert_eq!(failure.raw_reason.as_deref(), Some(word));
            }
        }
    }
    let explained = r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"explanation":"not that"}}}"#;
    assert_eq!(failure(&[explained]).message, "not that");
}

#[test]
fn odd_records_do_no_harm() {
    let odd = [
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: brand_new\ndata: not json\n\n",
        "event: content_block_delta\ndata: {\"index\":9,\"delta\":{\"type\":\"text_delta\",\"text\":\"lost\"}}\n\n",
        "event: content_block_start\ndata: {\"index\":0,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s\"}}\n\n",
        "event: content_block_stop\ndata: {\"index\":0}\n\n",
        "event: content_block_start\ndata: {\"index\":1.0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"n\",\"input\":{\"k\":[1]}}}\n\n",
        "event: content_block_delta\ndata: {\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":null}}\n\n",
        "event: message_delta\ndata: {\"usage\":{\"input_tokens\":null,\"output_tokens\":3.0,\"cache_creation\":null},\"delta\":{\"stop_reason\":null}}\n\n",
        // Raw control characters, a bad backslash, a lone surrogate, equal keys.
        "event: content_block_start\ndata: {\"index\":2,\"content_block\":{\"type\":\"text\",\"text\":\"a\tb\\d\\ud800\"},\"index\":2}\n\n",
        "event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
        "event: message_stop\ndata: {}\n\n",
    ];
    let (events, failure) = run([odd.concat().as_bytes()]);
    assert_eq!(failure, None);
    let kinds: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
    assert_eq!(kinds.len(), 8, "{kinds:#?}");
    assert!(kinds[1].contains("index: 0, id: \"a\""), "{}", kinds[1]);
    assert!(
        matches!(&events[4], ModelEvent::TextDelta { index: 1, delta } if delta == "a\tb\\d\u{fffd}"),
        "{kinds:#?}"
    );
    // What was left open ends before the answer does.
    assert!(
        matches!(&events[5], ModelEvent::ToolCallEnd { arguments, .. } if arguments.as_str() == r#"{"k":[1]}"#)
    );
}

#[test]
fn another_model_that_answered_is_paid_for() {
    let model = model();
    let cost = ModelCost { input: 7.0, ..ModelCost::default() };
    let mut answer = Answer::new(&model, vec![Fallback { model: "cheap".into(), cost: Some(cost) }]);
    let mut out = Vec::new();
    let data = r#"{"message":{"model":"cheap","usage":{"input_tokens":1000000}}}"#;
    answer.event(&sse::Event { name: "message_start", data: data.into() }, &mut out).unwrap();
    assert!(matches!(&out[1], ModelEvent::Usage(usage) if usage.cost.total == 7.0), "{out:?}");
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
    }
}

fn channel_stream(
    mut pieces: mpsc::UnboundedReceiver<&'static str>,
) -> impl futures_util::Stream<Item = Result<Bytes, ModelFailure>> + Send + Unpin + 'static {
    Box::pin(futures_util::stream::poll_fn(move |context| {
        pieces.poll_recv(context).map(|piece| piece.map(|text| Ok(Bytes::from_static(text.as_bytes()))))
    }))
}

const IDLE: Duration = Duration::from_secs(300);

#[tokio::test(start_paused = true)]
async fn silence_and_comments_end_at_the_deadline() {
    for comments in [false, true] {
        let (feed, pieces) = mpsc::unbounded_channel();
        let (sink, mut batches) = mpsc::channel(16);
        feed.send("event: message_start\ndata: {\"message\":{\"id\":\"x\"}}\n\nevent: content_block_de")
            .unwrap();
        let begin = tokio::time::Instant::now();
        let keep_alive = tokio::spawn(async move {
            let every = if comments { Duration::from_secs(10) } else { IDLE * 100 };
            while !feed.is_closed() {
                tokio::select! {
                    () = feed.closed() => {}
                    () = tokio::time::sleep(every) => drop(feed.send("\n: still here\n\n")),
                }
            }
        });
        let model = model();
        let mut answer = Answer::new(&model, Vec::new());
        let outcome = pump(channel_stream(pieces), &mut answer, Some(IDLE), &sink).await;
        let Err(Stop::Failed(failure)) = outcome else { panic!("{outcome:?}") };
        assert!(failure.message.contains("stream deadline exceeded"), "{failure:?}");
        // The first comment ends the open line, which is progress; later ones are none.
        assert!(begin.elapsed() <= IDLE + Duration::from_secs(10), "{:?}", begin.elapsed());
        assert_eq!(batches.recv().await.unwrap().len(), 1);
        keep_alive.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_rests_while_the_sink_is_full() {
    let (feed, pieces) = mpsc::unbounded_channel();
    let (sink, mut batches) = mpsc::channel(1);
    feed.send("event: message_start\ndata: {}\n\n").unwrap();
    feed.send("event: content_block_start\ndata: {\"content_block\":{\"type\":\"text\"}}\n\n").unwrap();
    feed.send("event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {}\n\n")
        .unwrap();
    let task = tokio::spawn(async move {
        let model = model();
        let mut answer = Answer::new(&model, Vec::new());
        pump(channel_stream(pieces), &mut answer, Some(IDLE), &sink).await
    });
    let mut count = 0;
    loop {
        tokio::time::sleep(IDLE * 3).await;
        if batches.recv().await.is_none() {
            break;
        }
        count += 1;
    }
    assert_eq!((count, task.await.unwrap()), (3, Ok(())));
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_only_kept_alive_ends() {
    let (feed, pieces) = mpsc::unbounded_channel();
    let (sink, _batches) = mpsc::channel(8);
    let begin = tokio::time::Instant::now();
    let alive = tokio::spawn(async move {
        while feed.send("event: ping\ndata: {\"type\":\"ping\"}\n\n").is_ok() {
            tokio::time::sleep(IDLE / 3).await;
        }
    });
    let model = model();
    let mut answer = Answer::new(&model, Vec::new());
    let outcome = pump(channel_stream(pieces), &mut answer, Some(IDLE), &sink).await;
    let Err(Stop::Failed(failure)) = outcome else { panic!("{outcome:?}") };
    assert!(failure.message.contains("stream deadline exceeded"), "{failure:?}");
    assert_eq!(begin.elapsed().as_secs(), (IDLE * 4).as_secs());
    alive.await.unwrap();
}

#[test]
fn what_the_provider_changed_of_its_input_is_kept() {
    let start = r#"{"type":"message_start","message":{"id":"x","input_transformations":[]}}"#;
    let delta = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"input_transformations":[{"type":"thinking_removed","path":"messages.1","reason":null,"more":1}]}"#;
    let stop = r#"{"type":"message_stop"}"#;
    let (events, failure) = run([sse_of(&[start, delta, stop]).as_bytes()]);
    assert_eq!(failure, None);
    let details = r#"{"transformations":[{"type":"thinking_removed","path":"messages.1"}]}"#;
    let said = ModelEvent::Diagnostic {
        kind: "anthropic_input_transformations".into(),
        details: Raw::parse(details).unwrap(),
    };
    assert!(events.contains(&said), "{events:?}");
}
