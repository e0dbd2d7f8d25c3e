//! How many tokens a request will be, roughly: four bytes a token (too many where text is not ASCII, which is the safe
//! side), and what the provider said about the conversation so far where it said something.

use atomic_protocol::message::{Block, Content, Message, StopReason, Usage};
use atomic_protocol::model::{Model, ModelRequest};
use atomic_protocol::time::Millis;

/// An image counts as this many bytes.
const IMAGE_BYTES: usize = 4800;

/// Bytes of a token.
const BYTES_PER_TOKEN: usize = 4;

/// Kept free in the context window beside prompt and answer.
const MARGIN_TOKENS: u64 = 4096;

/// Output limit of a model whose own is unknown.
const UNKNOWN_MAX_TOKENS: u64 = 4096;

/// Tokens of the prompt.
pub(crate) fn prompt_tokens(request: &ModelRequest) -> u64 {
    // The last answer that was made from all that stands before it. One that compaction moved behind a later message
    // counted tokens that are gone.
    let mut anchor = None;
    let mut latest = Millis(0);
    for (at, message) in request.messages.iter().enumerate() {
        let time = match message {
            Message::User(user) => user.timestamp,
            Message::ToolResult(result) => result.timestamp,
            Message::Assistant(answer) => {
                let used = context(&answer.usage);
                let whole = !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted);
                if whole && used > 0 && answer.timestamp >= latest {
                    anchor = Some((at, used));
                }
                answer.timestamp
            }
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::Other(_) => continue,
        };
        latest = latest.max(time);
    }
    match anchor {
        Some((at, used)) => used + request.messages[at + 1..].iter().map(tokens).sum::<u64>(),
        None => {
            let tools = request.tools.iter();
            let tools: usize = tools
                .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.as_str().len())
                .sum();
            to_tokens(request.system.len() + tools) + request.messages.iter().map(tokens).sum::<u64>()
        }
    }
}

/// Most tokens the answer may have: the model's limit, and what the window leaves.
pub(crate) fn answer_tokens(model: &Model, prompt: u64) -> u64 {
    let limit = if model.max_tokens == 0 { UNKNOWN_MAX_TOKENS } else { model.max_tokens };
    if model.context_window == 0 {
        return limit;
    }
    limit.min(model.context_window.saturating_sub(prompt.saturating_add(MARGIN_TOKENS)).max(1))
}

fn context(usage: &Usage) -> u64 {
    let sum = usage.input + usage.output + usage.cache_read + usage.cache_write;
    if sum > 0 { sum } else { usage.total_tokens }
}

/// Tokens of one message.
pub(crate) fn tokens(message: &Message) -> u64 {
    let bytes = match message {
        Message::User(user) => match &user.content {
            Content::Text(text) => text.len(),
            Content::Blocks(blocks) => bytes(blocks),
        },
        Message::Assistant(answer) => bytes(&answer.content),
        Message::ToolResult(result) => bytes(&result.content),
        Message::BashExecution(_) | Message::Custom(_) | Message::BranchSummary(_) | Message::Other(_) => 0,
    };
    to_tokens(bytes)
}

fn bytes(blocks: &[Block]) -> usize {
    let each = blocks.iter().map(|block| match block {
        Block::Text { text, .. } => text.len(),
        Block::Thinking { thinking, .. } => thinking.len(),
        Block::Image { .. } => IMAGE_BYTES,
        Block::ToolCall(call) => call.name.len() + call.arguments.as_str().len(),
        Block::Other(_) => 0,
    });
    each.sum()
}

pub(crate) fn to_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_protocol::json::Raw;
    use atomic_protocol::model::{ModelSpec, ThinkingLevel};
    use std::sync::Arc;

    #[test]
    fn only_an_answer_to_all_before_it_tells_the_size() {
        let answer = |time: u64, used: u64| {
            format!(
                r#"{{"role":"assistant","stopReason":"stop","timestamp":{time},"usage":{{"input":{used}}},"content":[]}}"#
            )
        };
        let user = |time: u64| format!(r#"{{"role":"user","content":"12345678","timestamp":{time}}}"#);
        for (messages, want) in [
            (vec![user(1)], 2 + 2),
            (vec![user(1), answer(2, 500), user(3)], 502),
            (vec![user(9), answer(2, 500), user(10)], 2 + 4),
            (vec![user(1), answer(2, 500), user(3), answer(4, 0)], 502),
        ] {
            let request = ModelRequest {
                model: Arc::new(Model::from_spec(serde_json::from_str(r#"{"id":"m"}"#).unwrap())),
                thinking: ThinkingLevel::Off,
                system: Arc::from("12345678"),
                messages: messages.iter().map(|m| Message::parse(&Raw::parse(m).unwrap()).unwrap()).collect(),
                tools: Arc::from([]),
                session_id: String::new(),
            };
            assert_eq!(prompt_tokens(&request), want, "{messages:?}");
        }
    }

    #[test]
    fn the_answer_gets_what_the_window_leaves() {
        for (window, max, prompt, want) in [
            (200_000, 64_000, 1000, 64_000),
            (200_000, 64_000, 180_000, 15_904),
            (200_000, 64_000, 300_000, 1),
            (0, 64_000, 300_000, 64_000),
            (200_000, 0, 0, UNKNOWN_MAX_TOKENS),
        ] {
            let spec = format!(r#"{{"id":"m","contextWindow":{window},"maxTokens":{max}}}"#);
            let model = Model::from_spec(serde_json::from_str::<ModelSpec>(&spec).unwrap());
            assert_eq!(answer_tokens(&model, prompt), want, "{window} {max} {prompt}");
        }
    }
}
