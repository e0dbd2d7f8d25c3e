//! Messages as text: what a compaction kept after the part it shortened.
//!
//! One section a message part, a role header in front, a blank line between; tool calls as `name(key=JSON)`. Nothing is
//! cut, and images stay blocks where they stood. Calls without results and results without calls are fine here.

use std::fmt::Write as _;

use atomic_protocol::json::Fields;
use atomic_protocol::message::{BashExecutionMessage, Block, Message, ToolCall};

/// The messages as content: text blocks, merged where they meet, and image blocks.
pub(crate) fn transcript(messages: impl IntoIterator<Item = Message>) -> Vec<Block> {
    let mut out = Transcript::default();
    for message in messages {
        match message {
            Message::User(message) => out.content("[User]: ", &message.content.blocks()),
            Message::Custom(message) if !message.exclude_from_context => {
                out.content("[User]: ", &message.content.blocks());
            }
            Message::BranchSummary(message) => out.text(
                "[User]: ",
                &format!(
                    "This is a summary of a branch of the conversation that was left:\n\n<summary>\n{}\n</summary>",
                    message.summary
                ),
            ),
            Message::BashExecution(message) if !message.exclude_from_context => {
                out.text("[User]: ", &bash_text(&message));
            }
            Message::Assistant(message) => {
                let join = |part: fn(&Block) -> Option<&str>| {
                    message.content.iter().filter_map(part).collect::<Vec<_>>().join("\n")
                };
                out.text(
                    "[Assistant thinking]: ",
                    &join(|block| match block {
                        Block::Thinking { thinking, .. } => Some(thinking),
                        _ => None,
                    }),
                );
                out.text("[Assistant]: ", &join(Block::as_text));
                let calls: Vec<String> = message.tool_calls().map(call_text).collect();
                out.text("[Assistant tool calls]: ", &calls.join("; "));
            }
            Message::ToolResult(message) => out.content("[Tool result]: ", &message.content),
            // Kept from the model, or of a role nobody knows.
            Message::Custom(_) | Message::BashExecution(_) | Message::Other(_) => {}
        }
    }
    out.blocks
}

#[derive(Default)]
struct Transcript {
    blocks: Vec<Block>,
}

impl Transcript {
    fn push(&mut self, more: &str) {
        match self.blocks.last_mut() {
            Some(Block::Text { text, .. }) => text.push_str(more),
            _ => self.blocks.push(Block::text(more)),
        }
    }

    fn begin(&mut self, header: &str) {
        if !self.blocks.is_empty() {
            self.push("\n\n");
        }
        self.push(header);
    }

    /// A section of text; none when it is empty.
    fn text(&mut self, header: &str, text: &str) {
        if !text.is_empty() {
            self.begin(header);
            self.push(text);
        }
    }

    /// A section of texts and images; none when nothing can be seen.
    fn content(&mut self, header: &str, blocks: &[Block]) {
        let mut begun = false;
        for block in blocks {
            match block {
                Block::Text { text, .. } if !text.trim().is_empty() => {
                    if !std::mem::replace(&mut begun, true) {
                        self.begin(header);
                    }
                    self.push(text);
                }
                Block::Image { .. } => {
                    if !std::mem::replace(&mut begun, true) {
                        self.begin(header);
                    } else if matches!(self.blocks.last(), Some(Block::Text { .. })) {
                        self.push("\n");
                    }
                    self.blocks.push(block.clone());
                }
                _ => {}
            }
        }
    }
}

/// `name(key=JSON, key=JSON)` on one line, keys in the order the model gave them.
fn call_text(call: &ToolCall) -> String {
    let mut out = format!("{}(", call.name);
    if let Ok(arguments) = Fields::parse(call.arguments.as_str()) {
        for (index, (key, value)) in arguments.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            // Too deep for a tree: as it stands, on one line.
            let value = serde_json::from_str::<serde_json::Value>(value)
                .map_or_else(|_| value.replace(['\n', '\r'], " "), |value| value.to_string());
            let _ = write!(out, "{separator}{key}={value}");
        }
    }
    out.push(')');
    out
}

/// What a model is told about a command the user ran.
fn bash_text(message: &BashExecutionMessage) -> String {
    let mut out = format!("Ran `{}`\n", message.command);
    if message.output.is_empty() {
        out.push_str("(no output)");
    } else {
        let _ = write!(out, "```\n{}\n```", message.output);
    }
    match message.exit_code {
        _ if message.cancelled => out.push_str("\n\n(command cancelled)"),
        Some(code) if code != 0 => {
            let _ = write!(out, "\n\nCommand exited with code {code}");
        }
        _ => {}
    }
    if let (true, Some(Some(path))) = (message.truncated, &message.full_output_path) {
        let _ = write!(out, "\n\n[Output truncated. Full output: {path}]");
    }
    out
}

#[cfg(test)]
mod tests {
    use atomic_protocol::Raw;

    use super::*;

    fn of(messages: &[&str]) -> Vec<Block> {
        transcript(messages.iter().map(|text| Message::parse(&Raw::parse(text).unwrap()).unwrap()))
    }

    #[test]
    fn sections_of_every_role() {
        let blocks = of(&[
            r#"{"role":"toolResult","toolCallId":"gone","content":[{"type":"text","text":"r0"}]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":" "},{"type":"text","text":"b"}]}"#,
            r#"{"role":"user","content":" \n"}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"t1"},{"type":"toolCall","id":"1","name":"read","arguments":{"path":"x\ny", "n": 1}},{"type":"thinking","thinking":"h"},{"type":"text","text":"t2"},{"type":"toolCall","id":"2","name":"ls","arguments":{}}],"stopReason":"toolUse"}"#,
            r#"{"role":"toolResult","toolCallId":"1","content":[]}"#,
            r#"{"role":"bashExecution","command":"ls","output":"","exitCode":2}"#,
            r#"{"role":"bashExecution","command":"secret","output":"x","excludeFromContext":true}"#,
            r#"{"role":"system","x":1}"#,
        ]);
        let [Block::Text { text, .. }] = &blocks[..] else { panic!("one text: {blocks:?}") };
        assert_eq!(
            text,
            "[Tool result]: r0\n\n[User]: ab\n\n[Assistant thinking]: h\n\n[Assistant]: t1\nt2\n\n\
             [Assistant tool calls]: read(path=\"x\\ny\", n=1); ls()\n\n\
             [User]: Ran `ls`\n(no output)\n\nCommand exited with code 2"
        );
    }

    #[test]
    fn images_keep_their_place() {
        let blocks = of(&[
            r#"{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"text","text":"so"}]}"#,
            r#"{"role":"user","content":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#,
        ]);
        let image = Block::Image { data: "aGk=".into(), mime_type: "image/png".into() };
        assert_eq!(
            blocks,
            [Block::text("[User]: see\n"), image.clone(), Block::text("so\n\n[User]: "), image]
        );
    }
}
