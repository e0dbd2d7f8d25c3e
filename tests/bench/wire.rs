//! The forms in which vendors stream an answer: as small as they may be, as large as they are.

use std::io::Write as _;

/// A vendor's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Anthropic,
    Completions,
    Responses,
    Google,
    Mistral,
    Bedrock,
}

/// Each API, the form of its answers, and the path that its requests have (a part that no other has).
pub(crate) const APIS: [(&str, Wire, &str); 8] = [
    ("anthropic-messages", Wire::Anthropic, "/v1/messages"),
    ("openai-completions", Wire::Completions, "/chat/completions"),
    ("openai-responses", Wire::Responses, "/responses"),
    ("azure-openai-responses", Wire::Responses, "/responses"),
    ("google-generative-ai", Wire::Google, ":streamGenerateContent"),
    ("google-vertex", Wire::Google, ":streamGenerateContent"),
    ("mistral-conversations", Wire::Mistral, "/mistral/v1/chat/completions"),
    ("bedrock-converse-stream", Wire::Bedrock, "/converse-stream"),
];

impl Wire {
    /// The form that a request's path asks for.
    pub(crate) fn of(path: &str) -> Wire {
        let longest = APIS.iter().filter(|(_, _, part)| path.contains(part)).max_by_key(|api| api.2.len());
        longest.map_or(Wire::Anthropic, |api| api.1)
    }

    /// The head of an answer.
    pub(crate) fn head(self) -> String {
        let kind = match self {
            Wire::Bedrock => "application/vnd.amazon.eventstream",
            _ => "text/event-stream",
        };
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n")
    }

    /// What comes before the first text.
    pub(crate) fn begin(self, out: &mut Vec<u8>) {
        match self {
            Wire::Anthropic => {
                named(
                    out,
                    "message_start",
                    format_args!(
                        r#"{{"type":"message_start","message":{{"id":"msg_1","type":"message","role":"assistant","model":"bench-model","content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":10,"output_tokens":1}}}}}}"#
                    ),
                );
                named(
                    out,
                    "content_block_start",
                    format_args!(
                        r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"text","text":""}}}}"#
                    ),
                );
            }
            Wire::Responses => {
                named(
                    out,
                    "response.created",
                    format_args!(
                        r#"{{"type":"response.created","sequence_number":0,"response":{{"id":"resp_1","model":"bench-model","status":"in_progress"}}}}"#
                    ),
                );
                named(
                    out,
                    "response.output_item.added",
                    format_args!(
                        r#"{{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}}}"#
                    ),
                );
            }
            Wire::Bedrock => frame(out, "messageStart", r#"{"role":"assistant"}"#),
            Wire::Completions | Wire::Google | Wire::Mistral => {}
        }
    }

    /// More text, a string in JSON.
    pub(crate) fn text(self, out: &mut Vec<u8>, text: &str) {
        match self {
            Wire::Anthropic => named(
                out,
                "content_block_delta",
                format_args!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":{text}}}}}"#
                ),
            ),
            Wire::Completions | Wire::Mistral => plain(
                out,
                format_args!(
                    r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1760000000,"model":"bench-model","choices":[{{"index":0,"delta":{{"content":{text}}},"finish_reason":null}}]}}"#
                ),
            ),
            Wire::Responses => named(
                out,
                "response.output_text.delta",
                format_args!(
                    r#"{{"type":"response.output_text.delta","sequence_number":9,"item_id":"msg_1","output_index":0,"content_index":0,"delta":{text},"logprobs":[],"obfuscation":"abcdefgh"}}"#
                ),
            ),
            Wire::Google => plain(
                out,
                format_args!(
                    r#"{{"candidates":[{{"content":{{"parts":[{{"text":{text}}}],"role":"model"}},"index":0}}],"usageMetadata":{{"promptTokenCount":10,"candidatesTokenCount":3,"totalTokenCount":13,"promptTokensDetails":[{{"modality":"TEXT","tokenCount":10}}]}},"modelVersion":"bench-model","responseId":"r1"}}"#
                ),
            ),
            Wire::Bedrock => frame(
                out,
                "contentBlockDelta",
                &format!(r#"{{"contentBlockIndex":0,"delta":{{"text":{text}}},"p":"abcdefgh"}}"#),
            ),
        }
    }

    /// The end of an answer of `count` tokens.
    pub(crate) fn end(self, out: &mut Vec<u8>, count: usize) {
        match self {
            Wire::Anthropic => {
                named(
                    out,
                    "content_block_stop",
                    format_args!(r#"{{"type":"content_block_stop","index":0}}"#),
                );
                named(
                    out,
                    "message_delta",
                    format_args!(
                        r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn","stop_sequence":null}},"usage":{{"output_tokens":{count}}}}}"#
                    ),
                );
                named(out, "message_stop", format_args!(r#"{{"type":"message_stop"}}"#));
            }
            Wire::Completions | Wire::Mistral => {
                plain(
                    out,
                    format_args!(
                        r#"{{"id":"chatcmpl-1","model":"bench-model","choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":10,"completion_tokens":{count}}}}}"#
                    ),
                );
                plain(out, format_args!("[DONE]"));
            }
            Wire::Responses => named(
                out,
                "response.completed",
                format_args!(
                    r#"{{"type":"response.completed","response":{{"id":"resp_1","status":"completed","usage":{{"input_tokens":10,"output_tokens":{count}}}}}}}"#
                ),
            ),
            Wire::Google => plain(
                out,
                format_args!(
                    r#"{{"candidates":[{{"finishReason":"STOP"}}],"usageMetadata":{{"promptTokenCount":10,"candidatesTokenCount":{count}}}}}"#
                ),
            ),
            Wire::Bedrock => {
                frame(out, "contentBlockStop", r#"{"contentBlockIndex":0}"#);
                frame(out, "messageStop", r#"{"stopReason":"end_turn"}"#);
                frame(
                    out,
                    "metadata",
                    &format!(r#"{{"usage":{{"inputTokens":10,"outputTokens":{count}}}}}"#),
                );
            }
        }
    }
}

pub(crate) fn named(out: &mut Vec<u8>, name: &str, data: std::fmt::Arguments<'_>) {
    // Writing into memory cannot fail.
    let _ = write!(out, "event: {name}\ndata: {data}\n\n");
}

fn plain(out: &mut Vec<u8>, data: std::fmt::Arguments<'_>) {
    let _ = write!(out, "data: {data}\n\n");
}

/// A frame of AWS's event streams: lengths, headers, payload, checksums.
fn frame(out: &mut Vec<u8>, name: &str, payload: &str) {
    let begin = out.len();
    let mut headers = Vec::with_capacity(128);
    for (header, value) in
        [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")]
    {
        headers.push(header.len() as u8);
        headers.extend(header.bytes());
        // A string.
        headers.push(7);
        headers.extend((value.len() as u16).to_be_bytes());
        headers.extend(value.bytes());
    }
    out.extend((headers.len() as u32 + payload.len() as u32 + 16).to_be_bytes());
    out.extend((headers.len() as u32).to_be_bytes());
    out.extend(crc32fast::hash(&out[begin..]).to_be_bytes());
    out.extend(headers);
    out.extend(payload.bytes());
    out.extend(crc32fast::hash(&out[begin..]).to_be_bytes());
}
