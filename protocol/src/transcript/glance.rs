//! A message in one pass, as far as a transcript needs it.
//!
//! [`Message::parse`] looks at a message several times, since it must keep what it does not know. A transcript of a long
//! session goes over a hundred megabytes, and of each message it wants the texts only.

use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::json::Raw;
use crate::message::{
    AssistantMessage, Block, Content, Message, StopReason, ToolCall, ToolResultMessage, Usage, UserMessage,
};
use crate::time::Millis;

/// The message with its texts, its calls and the places of its images; everything else is left empty, and blocks of
/// unknown types have no content. What is unusual in any way is read by [`Message::parse`], with its errors.
///
/// # Errors
/// Those of [`Message::parse`].
pub fn glance(raw: &Raw) -> Result<Message, serde_json::Error> {
    match serde_json::from_str::<Glance<'_>>(raw.as_str()).ok().and_then(Glance::message) {
        Some(message) => Ok(message),
        None => Message::parse(raw),
    }
}

#[derive(Deserialize)]
struct Glance<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    content: Texts,
}

impl Glance<'_> {
    fn message(self) -> Option<Message> {
        let timestamp = Millis(0);
        Some(match self.role.as_ref() {
            "user" => Message::User(UserMessage { content: self.content.0, timestamp }),
            "toolResult" => Message::ToolResult(ToolResultMessage {
                tool_call_id: String::new(),
                tool_name: String::new(),
                content: self.content.blocks()?,
                details: None,
                is_error: false,
                timestamp,
            }),
            "assistant" => Message::Assistant(AssistantMessage {
                content: self.content.blocks()?,
                api: String::new(),
                provider: String::new(),
                model: String::new(),
                usage: Usage::default(),
                stop_reason: StopReason::Stop,
                timestamp,
                response_id: None,
                response_model: None,
                raw_stop_reason: None,
                error_message: None,
                diagnostics: None,
                end_turn: None,
            }),
            _ => return None,
        })
    }
}

struct Texts(Content);

impl Texts {
    fn blocks(self) -> Option<Vec<Block>> {
        match self.0 {
            Content::Blocks(blocks) => Some(blocks),
            Content::Text(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;
        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or blocks")
            }
            fn visit_str<E>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(Content::Text(text.to_owned())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Texts, A::Error> {
                let mut blocks = Vec::new();
                while let Some(block) = seq.next_element::<Piece<'de>>()? {
                    blocks.push(block.block());
                }
                Ok(Texts(Content::Blocks(blocks)))
            }
        }
        deserializer.deserialize_any(TextsVisitor)
    }
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    text: Option<String>,
    thinking: Option<String>,
    name: Option<String>,
    arguments: Option<Raw>,
}

impl Piece<'_> {
    fn block(self) -> Block {
        match self.kind.as_ref() {
            "text" => Block::text(self.text.unwrap_or_default()),
            "thinking" => Block::Thinking {
                thinking: self.thinking.unwrap_or_default(),
                signature: None,
                redacted: false,
            },
            "image" => Block::Image { data: String::new(), mime_type: String::new() },
            "toolCall" => Block::ToolCall(ToolCall {
                id: String::new(),
                name: self.name.unwrap_or_default(),
                arguments: self.arguments.unwrap_or_else(Raw::empty_object),
                thought_signature: None,
            }),
            _ => Block::Other(Raw::null()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::transcript_lines;

    #[test]
    fn a_glance_gives_the_transcript_of_the_whole_message() {
        for text in [
            r#"{"role":"user","content":"plain \ud83d\ude00 \n","timestamp":1}"#,
            r#"{"role":"user","content":[{"type":"text","text":"a\tb"},{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"new","x":1}]}"#,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"h","thinkingSignature":"s"},{"type":"text","text":"t"},{"type":"toolCall","id":"1","name":"read","arguments":{"path":"x\ny","n":[1,{}]}}],"usage":{"input":1},"stopReason":"toolUse"}"#,
            r#"{"role":"toolResult","toolCallId":"1","content":[{"type":"text","text":"r"}],"details":{"a":[1]},"isError":true}"#,
            // Unusual, so read the long way.
            r#"{"role":"user","content":"lone \ud800"}"#,
            r#"{"role":"user","content":"first","content":"last"}"#,
            r#"{"role":"assistant","content":null,"stopReason":"stop"}"#,
            r#"{"role":"bashExecution","command":"ls","output":"x","exitCode":0}"#,
            r#"{"role":"custom","customType":"t","content":"c","display":true,"excludeFromContext":true}"#,
            r#"{"role":"branchSummary","summary":"s","fromId":"f"}"#,
        ] {
            let raw = Raw::parse(text).unwrap();
            let (quick, whole) = (glance(&raw).unwrap(), Message::parse(&raw).unwrap());
            assert_eq!(transcript_lines([quick]), transcript_lines([whole]), "{text}");
        }
        assert!(glance(&Raw::parse(r#"{"content":"x"}"#).unwrap()).is_err());
    }
}
