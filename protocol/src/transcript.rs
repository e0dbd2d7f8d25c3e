//! Messages as text: what a compaction is planned on, and what it kept after the part it shortened.
//!
//! One section a message part, a role header in front, a blank line between; tool calls as `name(key=JSON)`. Calls
//! without results and results without calls are fine here. Three readings of the same grammar (reference compaction 2 and 12):
//! [`transcript`] cuts nothing and leaves images where they stood, [`transcript_lines`] is text only, [`transcript_brief`] is
//! text without images and with little of what tools returned. [`glance`] reads messages for any of them.

mod glance;

use std::fmt::Write as _;

pub use self::glance::glance;
use crate::json::Fields;
use crate::message::{BashExecutionMessage, Block, Message, ToolCall};

/// What stands before a section of the user, and so on for the others. No section begins with anything else.
pub const USER: &str = "[User]: ";
/// The model's reasoning.
pub const THINKING: &str = "[Assistant thinking]: ";
/// The model's text.
pub const ASSISTANT: &str = "[Assistant]: ";
/// The model's tool calls.
pub const CALLS: &str = "[Assistant tool calls]: ";
/// What a tool returned.
pub const RESULT: &str = "[Tool result]: ";

/// UTF-16 units of a tool's result that [`transcript_lines`] shows.
const RESULT_UNITS: usize = 16_000;

/// UTF-16 units of a tool's result that [`transcript_brief`] shows.
const BRIEF_RESULT_UNITS: usize = 2_000;

/// The messages as content: text blocks, merged where they meet, and image blocks.
pub fn transcript(messages: impl IntoIterator<Item = Message>) -> Vec<Block> {
    let mut out = Transcript::default();
    messages.into_iter().for_each(|message| out.message(&message));
    out.blocks
}

/// The messages as text: an image is the line `[image]`, and a long tool result ends in a note of how much is left out.
pub fn transcript_lines(messages: impl IntoIterator<Item = Message>) -> String {
    text(Some(Flat { images: true, result_units: RESULT_UNITS }), messages)
}

/// The messages as text for somebody who sums them up: no images, and of a tool's result its beginning.
pub fn transcript_brief(messages: impl IntoIterator<Item = Message>) -> String {
    text(Some(Flat { images: false, result_units: BRIEF_RESULT_UNITS }), messages)
}

fn text(flat: Option<Flat>, messages: impl IntoIterator<Item = Message>) -> String {
    let mut out = Transcript { flat, ..Transcript::default() };
    messages.into_iter().for_each(|message| out.message(&message));
    match out.blocks.pop() {
        Some(Block::Text { text, .. }) => text,
        _ => String::new(),
    }
}

#[derive(Default)]
struct Transcript {
    blocks: Vec<Block>,
    /// Text only, and how.
    flat: Option<Flat>,
}

/// What becomes of content that is shown as text.
#[derive(Clone, Copy)]
struct Flat {
    /// Images are named.
    images: bool,
    /// UTF-16 units of a tool's result that are shown.
    result_units: usize,
}

impl Transcript {
    fn message(&mut self, message: &Message) {
        match message {
            Message::User(message) => self.content(USER, &message.content.blocks()),
            Message::Custom(message) if !message.exclude_from_context => {
                self.content(USER, &message.content.blocks());
            }
            Message::BranchSummary(message) => self.text(
                USER,
                &format!(
                    "This is a summary of a branch of the conversation that was left:\n\n<summary>\n{}\n</summary>",
                    message.summary
                ),
            ),
            Message::BashExecution(message) if !message.exclude_from_context => {
                self.text(USER, &bash_text(message));
            }
            Message::Assistant(message) => {
                let join = |part: fn(&Block) -> Option<&str>| {
                    message.content.iter().filter_map(part).collect::<Vec<_>>().join("\n")
                };
                self.text(
                    THINKING,
                    &join(|block| match block {
                        Block::Thinking { thinking, .. } => Some(thinking),
                        _ => None,
                    }),
                );
                self.text(ASSISTANT, &join(Block::as_text));
                let calls: Vec<String> = message.tool_calls().map(call_text).collect();
                self.text(CALLS, &calls.join("; "));
            }
            Message::ToolResult(message) => self.content(RESULT, &message.content),
            // Kept from the model, or of a role nobody knows.
            Message::Custom(_) | Message::BashExecution(_) | Message::Other(_) => {}
        }
    }

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
        if let Some(shown) = self.flat {
            let mut text = flat(blocks, shown.images);
            if header == RESULT {
                shorten(&mut text, shown.result_units);
            }
            return self.text(header, &text);
        }
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

/// Content as text: texts as they are, each image, if they are named, on a line of its own.
fn flat(blocks: &[Block], images: bool) -> String {
    let mut out = String::new();
    let mut image = false;
    for block in blocks {
        match block {
            Block::Text { text, .. } if !text.trim().is_empty() => {
                out.push_str(text);
                image = false;
            }
            Block::Image { .. } if images => {
                if !out.is_empty() && !out.ends_with('\n') {
                    out.push('\n');
                }
                out.push_str("[image]\n");
                image = true;
            }
            _ => {}
        }
    }
    if image {
        out.pop();
    }
    out
}

/// Cuts a tool's result after `most` UTF-16 units, never inside a character.
fn shorten(text: &mut String, most: usize) {
    // A character takes at least as many bytes as UTF-16 units.
    if text.len() <= most {
        return;
    }
    let (mut units, mut cut) = (0, None);
    for (at, character) in text.char_indices() {
        if units + character.len_utf16() > most && cut.is_none() {
            cut = Some((at, units));
        }
        units += character.len_utf16();
    }
    if let Some((at, shown)) = cut {
        text.truncate(at);
        let _ = write!(text, "\n\n[... {} more characters truncated]", units - shown);
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
    use crate::Raw;

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
    fn as_lines_images_are_named_and_long_results_cut() {
        let lines = |messages: &[String]| {
            transcript_lines(messages.iter().map(|text| Message::parse(&Raw::parse(text).unwrap()).unwrap()))
        };
        let image = r#"{"type":"image","data":"aGk=","mimeType":"image/png"}"#;
        let user = |blocks: &str| format!(r#"{{"role":"user","content":[{blocks}]}}"#);
        assert_eq!(
            lines(&[
                user(&format!(r#"{{"type":"text","text":"see"}},{image},{{"type":"text","text":"so"}}"#)),
                user(image)
            ]),
            "[User]: see\n[image]\nso\n\n[User]: [image]"
        );
        let result = |text: &str| {
            format!(
                r#"{{"role":"toolResult","toolCallId":"1","content":[{{"type":"text","text":"{text}"}}]}}"#
            )
        };
        let exact = "x".repeat(RESULT_UNITS);
        assert_eq!(lines(&[result(&exact)]), format!("[Tool result]: {exact}"));
        assert_eq!(
            lines(&[result(&format!("{exact}yz"))]),
            format!("[Tool result]: {exact}\n\n[... 2 more characters truncated]")
        );
        // The pair that would be cut in two is left out whole.
        assert_eq!(
            lines(&[result(&format!("{}😀z", &exact[1..]))]),
            format!("[Tool result]: {}\n\n[... 3 more characters truncated]", &exact[1..])
        );
    }

    #[test]
    fn in_brief_there_are_no_images_and_results_are_short() {
        let result = |text: &str| {
            format!(
                r#"{{"role":"toolResult","toolCallId":"1","content":[{{"type":"text","text":"{text}"}},{{"type":"image","data":"aGk=","mimeType":"image/png"}}]}}"#
            )
        };
        let brief = |text: &str| transcript_brief([Message::parse(&Raw::parse(text).unwrap()).unwrap()]);
        assert_eq!(brief(&result("r")), "[Tool result]: r");
        let exact = "x".repeat(BRIEF_RESULT_UNITS);
        assert_eq!(
            brief(&result(&format!("{exact}yz"))),
            format!("[Tool result]: {exact}\n\n[... 2 more characters truncated]")
        );
        let image = r#"{"role":"user","content":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#;
        assert_eq!(brief(image), "");
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
