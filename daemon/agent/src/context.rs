//! What a model is shown of a conversation: stored messages in, messages a provider accepts out.
//!
//! A stored conversation may hold what no provider takes: commands of the client, messages of extensions, roles of a
//! newer version, half an answer that an abort left, a call whose result a crash swallowed. Nothing here changes what
//! is stored; the repair is made anew for each request, from the front, so that more messages at the end never change
//! what was already sent (providers cache by prefix).
//!
//! What comes out holds three promises:
//! * the first message is of the user, if there is one;
//! * directly behind an assistant stands exactly one result for each of its tool calls, in the order of the calls, and
//!   no other result stands anywhere;
//! * no tool-call id occurs twice.

use std::collections::HashSet;
use std::fmt;

use atomic_protocol::Raw;
use atomic_protocol::json;
use atomic_protocol::message::{
    AssistantMessage, BashExecutionMessage, Block, Content, CustomMessage, Message, StopReason, ToolCall,
    ToolResultMessage, Usage, UserMessage, role,
};
use atomic_protocol::time::Millis;

/// Result of a tool call that has none. Stable, because it is part of what providers cache.
pub const INTERRUPTED: &str = "The execution of this tool call was interrupted and its result is unavailable. \
                               Inspect what it may already have changed before you decide to retry it.";

/// Stands for an image while images are blocked (setting `images.blockImages`).
pub const IMAGE_BLOCKED: &str = "Image reading is disabled.";

/// Stands for reasoning whose text the provider withheld.
const REDACTED: &str = "[Reasoning redacted]";

/// Characters an image counts for in an estimate (reference: 1200 tokens).
const IMAGE_CHARS: u64 = 4800;

/// UTF-16 units taken for one token.
pub(crate) const CHARS_PER_TOKEN: u64 = 4;

/// How a conversation is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextOptions {
    /// Every image is replaced by [`IMAGE_BLOCKED`].
    pub block_images: bool,
}

/// Why a conversation could not be shown to a model. It has no values: what cannot be sent is left out or repaired, so
/// that one damaged entry never makes a session unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextError {}

impl fmt::Display for ContextError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for ContextError {}

/// The conversation as a model may see it: only user, assistant and tool-result messages (see the module's promises).
///
/// * `bashExecution`, `custom` and `branchSummary` become user messages; those excluded from the context, blank ones and
///   roles we do not know are left out, and so is a message that does not parse.
/// * An answer that failed or was aborted is left out together with the results of its calls.
/// * A call without a result gets [`INTERRUPTED`] as an error, also at the very end. A result nobody asked for, or a
///   second one, is left out.
/// * A tool-call id that was used before gets a number behind it (`id-2`), and so do the results that answer it.
///
/// # Errors
/// None; the type keeps the door open for a check that must refuse.
pub fn for_model(messages: &[Raw], options: &ContextOptions) -> Result<Vec<Message>, ContextError> {
    let mut shown = Shown::default();
    for raw in messages {
        match Message::parse(raw) {
            Ok(message) => shown.take(message, options),
            // Its results must not be taken for those of the assistant before it.
            Err(_) if role(raw).as_deref() == Some("assistant") => shown.close(),
            Err(_) => {}
        }
    }
    shown.close();
    Ok(shown.out)
}

/// The messages shown so far and the calls that wait for their results.
#[derive(Default)]
struct Shown {
    out: Vec<Message>,
    /// Calls of the last assistant, in order.
    open: Vec<OpenCall>,
    /// When that assistant answered; for results we have to make up.
    asked_at: Millis,
    /// Every tool-call id shown.
    used: HashSet<String>,
}

/// A tool call and, once it came, its result.
struct OpenCall {
    /// As stored; results name it.
    stored_id: String,
    /// As shown.
    id: String,
    name: String,
    result: Option<ToolResultMessage>,
}

impl Shown {
    fn take(&mut self, message: Message, options: &ContextOptions) {
        match message {
            Message::User(message) => self.user(message.content, message.timestamp, options),
            Message::BashExecution(message) if !message.exclude_from_context => {
                self.user(Content::Text(bash_text(&message)), message.timestamp, options);
            }
            Message::Custom(message) if !message.exclude_from_context => {
                self.user(message.content, message.timestamp, options);
            }
            Message::BranchSummary(message) if !message.summary.trim().is_empty() => {
                self.user(Content::Text(branch_text(&message.summary)), message.timestamp, options);
            }
            Message::Assistant(message) => self.assistant(message, options),
            Message::ToolResult(message) => self.result(message, options),
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::Other(_) => {}
        }
    }

    fn user(&mut self, content: Content, timestamp: Millis, options: &ContextOptions) {
        let blocks = match content {
            Content::Text(text) => vec![Block::text(text)],
            Content::Blocks(blocks) => blocks,
        };
        let blocks: Vec<Block> = blocks.into_iter().filter(visible_to_model).collect();
        if blocks.is_empty() {
            return;
        }
        self.close();
        let content = Content::Blocks(with_images(blocks, options));
        self.out.push(Message::User(UserMessage { content, timestamp }));
    }

    fn assistant(&mut self, mut message: AssistantMessage, options: &ContextOptions) {
        self.close();
        // Providers refuse a conversation that begins with an answer.
        if !is_good(&message) || message.content.is_empty() || self.out.is_empty() {
            return;
        }
        message.content = with_images(message.content.into_iter().map(normalised).collect(), options);
        for block in &mut message.content {
            if let Block::ToolCall(call) = block {
                let stored_id = call.id.clone();
                self.make_unique(call);
                self.open.push(OpenCall {
                    stored_id,
                    id: call.id.clone(),
                    name: call.name.clone(),
                    result: None,
                });
            }
        }
        self.asked_at = message.timestamp;
        self.out.push(Message::Assistant(message));
    }

    /// Gives a call whose id was shown before, or that has none, the first free id.
    fn make_unique(&mut self, call: &mut ToolCall) {
        if call.id.is_empty() {
            call.id.push_str("call");
        }
        if self.used.contains(&call.id) {
            // Numbers used for one id lie without a gap, so this ends; ids repeat too rarely for it to be slow.
            call.id = (2u64..)
                .map(|n| numbered(&call.id, n))
                .find(|id| !self.used.contains(id))
                .expect("a finite set leaves a number free");
        }
        self.used.insert(call.id.clone());
    }

    fn result(&mut self, mut message: ToolResultMessage, options: &ContextOptions) {
        let waiting =
            self.open.iter_mut().find(|call| call.stored_id == message.tool_call_id && call.result.is_none());
        let Some(call) = waiting else { return };
        message.tool_call_id.clone_from(&call.id);
        if message.tool_name.is_empty() {
            message.tool_name.clone_from(&call.name);
        }
        message.content = with_images(message.content, options);
        call.result = Some(message);
    }

    /// Writes the results of the open calls; those that are missing are made up.
    fn close(&mut self) {
        for call in self.open.drain(..) {
            self.out.push(Message::ToolResult(call.result.unwrap_or_else(|| ToolResultMessage {
                tool_call_id: call.id,
                tool_name: call.name,
                content: vec![Block::text(INTERRUPTED)],
                details: None,
                is_error: true,
                timestamp: self.asked_at,
            })));
        }
    }
}

/// `id` with a number behind it. An id of the form `call|item` names two things to the provider, and both must be new.
fn numbered(id: &str, n: u64) -> String {
    match id.split_once('|') {
        Some((call, item)) => format!("{call}-{n}|{item}-{n}"),
        None => format!("{id}-{n}"),
    }
}

/// The model completed it, so it may be shown again. `pending` is half an answer, whatever wrote it.
fn is_good(message: &AssistantMessage) -> bool {
    !matches!(message.stop_reason, StopReason::Error | StopReason::Aborted | StopReason::Pending)
}

/// Blocks of a user-like message that a model sees. A type we do not know is the provider adapter's to judge.
pub(crate) fn visible_to_model(block: &Block) -> bool {
    match block {
        Block::Text { text, .. } => !text.trim().is_empty(),
        Block::Image { .. } | Block::Other(_) => true,
        Block::Thinking { .. } | Block::ToolCall(_) => false,
    }
}

/// Blocks that other programs stored in a provider's own shape, in ours.
fn normalised(block: Block) -> Block {
    let Block::Other(raw) = &block else { return block };
    let Ok(fields) = json::Fields::parse(raw.as_str()) else { return block };
    match fields.str("type").as_deref() {
        Some("redacted_thinking") => Block::Thinking {
            thinking: REDACTED.into(),
            signature: fields.str("data").map(Into::into),
            redacted: true,
        },
        _ => block,
    }
}

/// Replaces images when they are blocked; one notice stands for a row of them.
fn with_images(blocks: Vec<Block>, options: &ContextOptions) -> Vec<Block> {
    if !options.block_images || !blocks.iter().any(|block| matches!(block, Block::Image { .. })) {
        return blocks;
    }
    let mut out = Vec::with_capacity(blocks.len());
    for block in blocks {
        match block {
            Block::Image { .. } if out.last().and_then(Block::as_text) == Some(IMAGE_BLOCKED) => {}
            Block::Image { .. } => out.push(Block::text(IMAGE_BLOCKED)),
            other => out.push(other),
        }
    }
    out
}

/// A client's command as a model reads it.
fn bash_text(message: &BashExecutionMessage) -> String {
    let mut text = format!("Ran `{}`\n", message.command);
    if message.output.is_empty() {
        text.push_str("(no output)");
    } else {
        text.push_str(&format!("```\n{}\n```", message.output));
    }
    match message.exit_code {
        _ if message.cancelled => text.push_str("\n\n(command cancelled)"),
        Some(code) if code != 0 => text.push_str(&format!("\n\nCommand exited with code {code}")),
        _ => {}
    }
    if let (true, Some(Some(path))) = (message.truncated, &message.full_output_path) {
        text.push_str(&format!("\n\n[Output truncated. Full output: {path}]"));
    }
    text
}

/// The summary of an abandoned branch as a model reads it.
fn branch_text(summary: &str) -> String {
    format!(
        "This conversation came back here from another branch. What happened on that branch, in short:\n\n\
         <summary>\n{summary}\n</summary>"
    )
}

/// Tokens that `messages` take, by a rule of thumb: four UTF-16 units are a token, an image counts as 4800 of them; each
/// message is rounded up. What a model is never shown counts nothing.
pub fn estimate_tokens(messages: &[Raw]) -> u64 {
    messages.iter().filter_map(|raw| Message::parse(raw).ok()).map(|message| estimate(&message)).sum()
}

/// `customType` of the message that stands for a shortened part of the conversation.
const COMPACTION: &str = "compaction";

/// Tokens of the context as the provider last counted them, and an estimate of what came after. `None` until there is
/// an answer that says what it used; right after a compaction nobody knows.
pub fn context_tokens(messages: &[Raw]) -> Option<u64> {
    messages.iter().enumerate().rev().find_map(|(index, raw)| {
        // The role alone is cheap to read; whole messages of other roles need not be.
        let used = match role(raw).as_deref() {
            Some("assistant") => match Message::parse(raw) {
                Ok(Message::Assistant(message)) if is_good(&message) => used_tokens(&message.usage),
                _ => 0,
            },
            _ => 0,
        };
        (used > 0).then(|| used.saturating_add(estimate_tokens(&messages[index + 1..])))
    })
}

/// What a message takes by estimate; what it says was used and when it was begun, if it is a good answer; when it was
/// made, if it stands for a shortened part of the conversation.
pub(crate) fn weigh(raw: &Raw) -> (u64, Option<(u64, Millis)>, Option<Millis>) {
    let Ok(message) = Message::parse(raw) else { return (0, None, None) };
    let used = match &message {
        Message::Assistant(answer) if is_good(answer) => Some((used_tokens(&answer.usage), answer.timestamp)),
        _ => None,
    };
    let boundary = match &message {
        Message::Custom(custom) if custom.custom_type == COMPACTION => Some(custom.timestamp),
        _ => None,
    };
    (estimate(&message), used.filter(|(tokens, _)| *tokens > 0), boundary)
}

/// Tokens of a request and its answer; some providers leave the sum out.
fn used_tokens(usage: &Usage) -> u64 {
    match usage.total_tokens {
        0 => [usage.input, usage.output, usage.cache_read, usage.cache_write]
            .into_iter()
            .fold(0, u64::saturating_add),
        total => total,
    }
}

pub(crate) fn estimate(message: &Message) -> u64 {
    let chars: u64 = match message {
        Message::User(UserMessage { content, .. })
        | Message::Custom(CustomMessage { content, exclude_from_context: false, .. }) => match content {
            Content::Text(text) if text.trim().is_empty() => 0,
            Content::Text(text) => units(text),
            Content::Blocks(blocks) => blocks.iter().filter(|b| visible_to_model(b)).map(block_chars).sum(),
        },
        Message::Assistant(message) if is_good(message) => message.content.iter().map(block_chars).sum(),
        Message::ToolResult(message) => message.content.iter().map(block_chars).sum(),
        Message::BashExecution(message) if !message.exclude_from_context => {
            units(&message.command) + units(&message.output)
        }
        Message::BranchSummary(message) => units(&message.summary),
        Message::Assistant(_) | Message::Custom(_) | Message::BashExecution(_) | Message::Other(_) => 0,
    };
    chars.div_ceil(CHARS_PER_TOKEN)
}

fn block_chars(block: &Block) -> u64 {
    match block {
        Block::Text { text, .. } => units(text),
        Block::Image { .. } => IMAGE_CHARS,
        Block::Thinking { thinking, .. } => units(thinking),
        Block::ToolCall(call) => units(&call.name) + units(call.arguments.as_str()),
        Block::Other(raw) => units(raw.as_str()),
    }
}

/// Length as JavaScript counts it. Each character is one unit and those of four bytes are two; of a character's bytes all
/// but the first are 0b10xxxxxx. Written so that it runs as fast as memory gives it.
pub(crate) fn units(text: &str) -> u64 {
    text.bytes().map(|byte| u64::from(byte & 0xC0 != 0x80) + u64::from(byte >= 0xF0)).sum()
}

#[cfg(test)]
mod tests;
