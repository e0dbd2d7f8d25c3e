//! What a delta costs, for developers: run by hand with optimisation, for example
//! `CARGO_PROFILE_TEST_OPT_LEVEL=3 cargo test -p atomic-providers --lib speed -- --ignored --nocapture`.

use std::time::Instant;

use atomic_protocol::model::{Model, ModelEvent};

use crate::proof;
use crate::pump::Mapper;

const DELTAS: usize = 200_000;

/// Nanoseconds of each delta: from bytes in pieces of 16 KiB to events.
#[expect(clippy::print_stdout, reason = "a measurement is read by a person")]
fn measure(api: &str, answer: impl Mapper, head: &str, delta: &str, tail: &str) {
    let text = format!("{head}{}{tail}", delta.repeat(DELTAS));
    let begin = Instant::now();
    let (events, failure) = proof::run(answer, text.as_bytes().chunks(16 << 10));
    let each = begin.elapsed().as_nanos() / DELTAS as u128;
    assert!(failure.is_none() && events.len() > DELTAS, "{api}: {failure:?}");
    println!("{api}: {each} ns a delta of {} bytes", delta.len());
}

#[test]
#[ignore = "a measurement"]
fn of_each_api() {
    let model: Model = proof::model(r#"{"id":"m"}"#);
    measure(
        "anthropic-messages",
        crate::anthropic::answer(&model),
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"some words \"}}\n\n",
        "event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {}\n\n",
    );
    measure(
        "openai-completions",
        crate::openai_completions::answer(&model),
        "",
        "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"some words \"},\"finish_reason\":null}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    );
    measure(
        "openai-responses",
        crate::openai_responses::answer(&model),
        "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"message\",\"id\":\"msg_1\"}}\n\n",
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":9,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"some words \",\"logprobs\":[],\"obfuscation\":\"abcdef\"}\n\n",
        "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n",
    );
    measure(
        "google-generative-ai",
        crate::google::answer(&model),
        "",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"some words \"}],\"role\":\"model\"},\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":3,\"totalTokenCount\":13},\"modelVersion\":\"m\",\"responseId\":\"r\"}\n\n",
        "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n",
    );
    measure(
        "mistral-conversations",
        crate::mistral::answer(&model),
        "",
        "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"some words \"},\"finish_reason\":null}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    );
    measure(
        "bedrock-converse-stream, without its frames",
        crate::bedrock::answer(&model),
        "",
        "event: contentBlockDelta\ndata: {\"contentBlockIndex\":0,\"delta\":{\"text\":\"some words \"},\"p\":\"abcdefgh\"}\n\n",
        "event: messageStop\ndata: {\"stopReason\":\"end_turn\"}\n\n",
    );
}

/// Four mebibytes of arguments in small pieces: all of it arrives, and in a time that grows with the bytes only.
#[test]
fn huge_arguments_come_whole() {
    const PIECES: usize = 1 << 16;
    let model: Model = proof::model(r#"{"id":"m"}"#);
    let piece = "x".repeat(64);
    let whole = format!(r#"{{"a":"{}"}}"#, piece.repeat(PIECES));
    let responses = |kind: &str, rest: &str| {
        format!("data: {{\"type\":\"response.{kind}\",\"output_index\":0,{rest}}}\n\n")
    };
    let item = r#""item":{"type":"function_call","id":"fc_1","call_id":"c","name":"n"}"#;
    let arguments = |text: &str| responses("function_call_arguments.delta", &format!(r#""delta":"{text}""#));
    let mistral = |text: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"name\":\"n\",\"arguments\":\"{text}\"}}}}]}}}}]}}\n\n"
        )
    };
    let bedrock = |text: &str| {
        format!("event: contentBlockDelta\ndata: {{\"delta\":{{\"toolUse\":{{\"input\":\"{text}\"}}}}}}\n\n")
    };
    let streams = [
        (
            proof::run(
                crate::openai_responses::answer(&model),
                [
                    responses("output_item.added", item),
                    arguments(r#"{\"a\":\""#),
                    arguments(&piece).repeat(PIECES),
                    arguments(r#"\"}"#),
                    responses("output_item.done", item),
                    responses("completed", r#""response":{"status":"completed"}"#),
                ]
                .concat()
                .as_bytes()
                .chunks(4096),
            ),
            "responses",
        ),
        (
            proof::run(
                crate::mistral::answer(&model),
                [
                    mistral(r#"{\"a\":\""#),
                    mistral(&piece).repeat(PIECES),
                    mistral(r#"\"}"#),
                    "data: {\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\n\n".to_owned(),
                ]
                .concat()
                .as_bytes()
                .chunks(4096),
            ),
            "mistral",
        ),
        (
            proof::run(
                crate::bedrock::answer(&model),
                [
                    "event: contentBlockStart\ndata: {\"start\":{\"toolUse\":{\"toolUseId\":\"t\",\"name\":\"n\"}}}\n\n".to_owned(),
                    bedrock(r#"{\"a\":\""#),
                    bedrock(&piece).repeat(PIECES),
                    bedrock(r#"\"}"#),
                    "event: messageStop\ndata: {\"stopReason\":\"tool_use\"}\n\n".to_owned(),
                ]
                .concat()
                .as_bytes()
                .chunks(4096),
            ),
            "bedrock",
        ),
    ];
    for ((events, failure), api) in streams {
        assert_eq!(failure, None, "{api}");
        let got = events.iter().find_map(|event| match event {
            ModelEvent::ToolCallEnd { arguments, .. } => Some(arguments.as_str()),
            _ => None,
        });
        assert!(got == Some(whole.as_str()), "{api}: {} bytes", got.map_or(0, str::len));
    }
}
