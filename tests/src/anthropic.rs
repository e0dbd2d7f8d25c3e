//! Answers in the Anthropic Messages streaming format, event by event.
//!
//! The sequence is the vendor's: `message_start`, for each block `content_block_start`, deltas, `content_block_stop`,
//! then `message_delta` with stop reason and usage, then `message_stop`.

use serde_json::{Value, json};

/// Tokens that the last event of every answer here reports as sent.
pub const INPUT_TOKENS: u64 = 10;

/// Tokens that the last event of every answer here reports as received.
pub const OUTPUT_TOKENS: u64 = 5;

/// The id of every answer here.
pub const RESPONSE_ID: &str = "msg_1";

/// One server-sent event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The `event:` line.
    pub name: String,
    /// The `data:` line.
    pub data: Value,
}

impl Event {
    fn new(data: Value) -> Event {
        let name = data["type"].as_str().expect("every event's data names its type").to_owned();
        Event { name, data }
    }

    /// The event's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        format!("event: {}\ndata: {}\n\n", self.name, self.data).into_bytes()
    }
}

/// An answer, event by event.
#[derive(Clone, Debug)]
pub struct Answer {
    /// All events in order.
    pub events: Vec<Event>,
}

/// The first event of an answer. It reports no tokens yet.
pub fn message_start() -> Event {
    Event::new(json!({"type": "message_start", "message": {
        "id": RESPONSE_ID, "type": "message", "role": "assistant", "model": crate::MODEL, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0,
                  "cache_creation_input_tokens": 0}}}))
}

/// Opens a block, for example `{"type":"text","text":""}`.
pub fn block_start(index: usize, block: Value) -> Event {
    Event::new(json!({"type": "content_block_start", "index": index, "content_block": block}))
}

/// A piece of a block, for example `{"type":"text_delta","text":"Hel"}`.
pub fn block_delta(index: usize, delta: Value) -> Event {
    Event::new(json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

/// Opens a text block.
pub fn text_start(index: usize) -> Event {
    block_start(index, json!({"type": "text", "text": ""}))
}

/// A piece of a text block.
pub fn text_delta(index: usize, text: &str) -> Event {
    block_delta(index, json!({"type": "text_delta", "text": text}))
}

/// Closes a block.
pub fn block_stop(index: usize) -> Event {
    Event::new(json!({"type": "content_block_stop", "index": index}))
}

/// Why the answer ends, and its tokens.
pub fn message_delta(stop_reason: &str) -> Event {
    Event::new(json!({"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": null},
        "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}}))
}

/// The last event of an answer.
pub fn message_stop() -> Event {
    Event::new(json!({"type": "message_stop"}))
}

/// An error inside the stream.
pub fn error(kind: &str, message: &str) -> Event {
    Event::new(json!({"type": "error", "error": {"type": kind, "message": message}}))
}

/// An answer of one text block in one piece.
pub fn text(text: &str) -> Answer {
    texts(&[text])
}

/// An answer of one text block in these pieces.
pub fn texts(pieces: &[&str]) -> Answer {
    Builder::default().text(pieces).end("end_turn")
}

/// An answer that thinks before it speaks.
pub fn thinking(thought: &str, signature: &str, text: &str) -> Answer {
    Builder::default().thinking(&[thought], signature).text(&[text]).end("end_turn")
}

/// An answer that calls one tool.
pub fn tool_call(id: &str, name: &str, arguments: Value) -> Answer {
    Builder::default().tool_call(id, name, &arguments).end("tool_use")
}

/// An answer that calls these tools, in order, each `(id, name, arguments)`.
pub fn tool_calls(calls: &[(&str, &str, Value)]) -> Answer {
    let empty = Builder::default();
    let built =
        calls.iter().fold(empty, |builder, (id, name, arguments)| builder.tool_call(id, name, arguments));
    built.end("tool_use")
}

/// An answer made block by block.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    blocks: Vec<Event>,
    count: usize,
}

impl Builder {
    fn block(mut self, block: Value, deltas: impl IntoIterator<Item = Value>) -> Builder {
        self.blocks.push(block_start(self.count, block));
        self.blocks.extend(deltas.into_iter().map(|delta| block_delta(self.count, delta)));
        self.blocks.push(block_stop(self.count));
        self.count += 1;
        self
    }

    /// A text block in these pieces.
    pub fn text(self, pieces: &[&str]) -> Builder {
        let deltas = pieces.iter().map(|piece| json!({"type": "text_delta", "text": piece}));
        self.block(json!({"type": "text", "text": ""}), deltas.collect::<Vec<_>>())
    }

    /// A thinking block in these pieces, signed.
    pub fn thinking(self, pieces: &[&str], signature: &str) -> Builder {
        let mut deltas: Vec<Value> =
            pieces.iter().map(|piece| json!({"type": "thinking_delta", "thinking": piece})).collect();
        deltas.push(json!({"type": "signature_delta", "signature": signature}));
        self.block(json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
    }

    /// A tool call whose arguments come in one piece.
    pub fn tool_call(self, id: &str, name: &str, arguments: &Value) -> Builder {
        let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
        self.block(block, [json!({"type": "input_json_delta", "partial_json": arguments.to_string()})])
    }

    /// The whole answer.
    pub fn end(self, stop_reason: &str) -> Answer {
        let mut events = vec![message_start()];
        events.extend(self.blocks);
        events.extend([message_delta(stop_reason), message_stop()]);
        Answer { events }
    }
}
