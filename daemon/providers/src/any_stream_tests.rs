//! The properties over records in any order, with odd values and broken bytes, in pieces of any size.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// Values that a field does not expect.
const ODD: [&str; 12] = [
    "null",
    "true",
    "-1",
    "1e300",
    "18446744073709551615",
    "\"\"",
    "\"18446744073709551615\"",
    "[]",
    "{}",
    "[{\"text\":\"x\"},null]",
    "{\"text\":{\"text\":[]}}",
    "\"\\ud800\n",
];

/// Amazon's records, in the form of [`frames`].
const BEDROCK: &str = r#"messageStart {"role":"assistant"}
contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"Let me"}}}
contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"s"}}}
contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"YQ=="}}}
contentBlockDelta {"contentBlockIndex":1,"delta":{"text":"Hello"}}
contentBlockStart {"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"t1","name":"bash"}}}
contentBlockDelta {"contentBlockIndex":2,"delta":{"toolUse":{"input":"{\"a\":"}}}
contentBlockDelta {"contentBlockIndex":2,"delta":{"toolUse":{"input":"1}"}}}
contentBlockStop {"contentBlockIndex":0}
contentBlockStop {"contentBlockIndex":2}
messageStop {"stopReason":"tool_use"}
messageStop {"stopReason":"end_turn"}
metadata {"usage":{"inputTokens":1,"outputTokens":2,"cacheReadInputTokens":3,"cacheWriteInputTokens":4,"cacheDetails":[{"ttl":"1h","inputTokens":2}]}}
!throttlingException {"message":"slow"}"#;

/// Each record of a real-shaped answer, and a few that come beside them.
fn records(api: &str) -> Vec<String> {
    let (whole, beside): (&str, &[&str]) = match api {
        anthropic::API => (
            include_str!("anthropic/fixtures/whole.sse"),
            &[
                "event: error\ndata: {\"type\":\"error\"}",
                "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"input_transformations\":[{\"type\":\"t\"}]}",
            ],
        ),
        openai_completions::API => (
            include_str!("openai_completions/fixtures/whole.sse"),
            &[
                "data: {\"choices\":[{\"delta\":{\"content\":\"<think>a</think>b\"}}]}",
                "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":7,\"function\":{\"arguments\":\"{}\"}}]}}]}",
                "data: {\"choices\":[{\"delta\":{\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"r\",\"signature\":\"s\"}]}}]}",
                "data: {\"choices\":[{\"message\":{\"content\":\"all\"},\"finish_reason\":\"stop\"}]}",
                "data: {\"error\":{\"code\":500}}",
            ],
        ),
        openai_responses::API => (
            include_str!("openai_responses/fixtures/whole.sse"),
            &[
                "data: {\"type\":\"response.incomplete\",\"response\":{\"incomplete_details\":{\"reason\":\"max_output_tokens\"}}}",
                "data: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"reasoning\",\"id\":\"rs_9\"}}",
                "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"message\":\"no\"}}}",
            ],
        ),
        google::API => (
            include_str!("google/fixtures/whole.sse"),
            &[
                "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"ls\",\"args\":{\"a\":[1]}}}]},\"finishReason\":\"STOP\"}]}",
                "data: {\"promptFeedback\":{\"blockReason\":\"OTHER\"}}",
            ],
        ),
        mistral::API => (include_str!("mistral/fixtures/whole.sse"), &["data: {\"object\":\"error\"}"]),
        _ => (BEDROCK, &[]),
    };
    let split = if api == bedrock::API { "\n" } else { "\n\n" };
    let whole = whole.replace("\r\n", "\n");
    let all = whole.split(split).chain(beside.iter().copied()).filter(|record| !record.trim().is_empty());
    all.map(|record| format!("{record}{split}")).collect()
}

/// The record with another value for one of its fields.
fn swapped(record: &str, field: Index, odd: &str) -> String {
    let colons: Vec<usize> = record.match_indices("\":").map(|(at, _)| at + 2).collect();
    if colons.is_empty() {
        return record.to_owned();
    }
    let at = colons[field.index(colons.len())];
    let mut values = serde_json::Deserializer::from_str(&record[at..]).into_iter::<serde::de::IgnoredAny>();
    let len = if matches!(values.next(), Some(Ok(_))) { values.byte_offset() } else { 0 };
    format!("{}{odd}{}", &record[..at], &record[at + len..])
}

/// Which records, which of them with which odd value, which bytes broken, which pieces.
type Plan = (Vec<(Index, Option<(Index, Index)>)>, Vec<(Index, u8)>, Vec<usize>);

fn plan() -> impl Strategy<Value = Plan> {
    (
        vec((any::<Index>(), proptest::option::weighted(0.2, any::<(Index, Index)>())), 0..24),
        prop_oneof![3 => Just(Vec::new()), 1 => vec(any::<(Index, u8)>(), 1..4)],
        vec(1usize..60, 1..8),
    )
}

fn play(api: &str, (picks, broken, sizes): &Plan) {
    let records = records(api);
    let mut text = String::new();
    for (which, odd) in picks {
        let record = &records[which.index(records.len())];
        match odd {
            Some((field, value)) => text += &swapped(record, *field, ODD[value.index(ODD.len())]),
            None => text += record,
        }
    }
    let mut bytes = if api == bedrock::API { frames(text.as_bytes()) } else { text.into_bytes() };
    if !bytes.is_empty() {
        for (at, byte) in broken {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
    }
    let mut rest = &bytes[..];
    holds(
        api,
        sizes.iter().cycle().map_while(move |size| {
            let (piece, tail) = rest.split_at((*size).min(rest.len()));
            rest = tail;
            (!piece.is_empty()).then_some(piece)
        }),
    );
}

#[test]
fn a_whole_answer_holds() {
    for api in APIS {
        let text = records(api).concat();
        let bytes = if api == bedrock::API { frames(text.as_bytes()) } else { text.into_bytes() };
        holds(api, bytes.chunks(7));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn anthropic_messages(plan in plan()) {
        play(anthropic::API, &plan);
    }

    #[test]
    fn chat_completions(plan in plan()) {
        play(openai_completions::API, &plan);
    }

    #[test]
    fn responses(plan in plan()) {
        play(openai_responses::API, &plan);
    }

    #[test]
    fn generate_content(plan in plan()) {
        play(google::API, &plan);
    }

    #[test]
    fn mistral_conversations(plan in plan()) {
        play(mistral::API, &plan);
    }

    #[test]
    fn converse_stream(plan in plan()) {
        play(bedrock::API, &plan);
    }
}
