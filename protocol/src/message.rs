//! Messages and content blocks: what a conversation is made of.
//!
//! A message is kept as [`Raw`] text from the moment it is finished: the same bytes stand in the session file, in
//! `message_end`, `turn_end`, `agent_end` and `get_messages`. The types here are for those who write a message or have
//! to look inside one. Key order is that of the wire (reference shapes: seed 001 "Types").

use std::borrow::Cow;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::{self, Raw};
use crate::time::Millis;

/// One message of any role.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Message {
    /// What the user said.
    User(UserMessage),
    /// What the model answered.
    Assistant(AssistantMessage),
    /// What a tool returned.
    ToolResult(ToolResultMessage),
    /// A command the client ran with `bash`.
    BashExecution(BashExecutionMessage),
    /// A message made by an extension or by compaction.
    Custom(CustomMessage),
    /// The summary of an abandoned branch.
    BranchSummary(BranchSummaryMessage),
    /// A role this version does not know; kept, never sent to a model.
    Other(Raw),
}

impl Message {
    /// Reads a message. Roles we do not know become [`Message::Other`].
    ///
    /// # Errors
    /// When the text is no object, has no role, or a known role lacks a field it cannot do without.
    pub fn parse(raw: &Raw) -> Result<Message, serde_json::Error> {
        Ok(match role(raw).as_deref() {
            Some("user") => Message::User(raw.read()?),
            Some("assistant") => Message::Assistant(raw.read()?),
            Some("toolResult") => Message::ToolResult(raw.read()?),
            Some("bashExecution") => Message::BashExecution(raw.read()?),
            Some("custom") => Message::Custom(raw.read()?),
            Some("branchSummary") => Message::BranchSummary(raw.read()?),
            Some(_) => Message::Other(raw.clone()),
            None => return Err(serde::de::Error::custom("a message has a role")),
        })
    }

    /// The message's text, written once.
    pub fn to_raw(&self) -> Raw {
        Raw::from_serialize(self)
    }
}

/// The `role` of a message without parsing the rest of it.
pub fn role(raw: &Raw) -> Option<String> {
    json::Fields::parse(raw.as_str()).ok()?.str("role").map(Cow::into_owned)
}

/// What the user said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "user")]
pub struct UserMessage {
    /// Text and images.
    pub content: Content,
    /// When it was sent.
    #[serde(default)]
    pub timestamp: Millis,
}

/// Content as the wire allows it: a plain string or blocks. We always write blocks.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// One text.
    Text(String),
    /// Blocks in order.
    Blocks(Vec<Block>),
}

impl Content {
    /// The blocks; a plain string is one text block.
    pub fn blocks(&self) -> Cow<'_, [Block]> {
        match self {
            Content::Text(text) => Cow::Owned(vec![Block::text(text.clone())]),
            Content::Blocks(blocks) => Cow::Borrowed(blocks),
        }
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Content::Text(text) => serializer.serialize_str(text),
            Content::Blocks(blocks) => blocks.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: Raw = Deserialize::deserialize(deserializer)?;
        match raw.as_str().as_bytes().first() {
            Some(b'"') => Ok(Content::Text(json::string(raw.as_str()).unwrap_or_default().into_owned())),
            Some(b'n') => Ok(Content::Blocks(Vec::new())),
            _ => raw.read().map(Content::Blocks).map_err(serde::de::Error::custom),
        }
    }
}

/// One piece of content.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Text, with the signature some providers want back.
    Text {
        /// The text.
        text: String,
        /// Opaque to us.
        signature: Option<String>,
    },
    /// An image, base64.
    Image {
        /// Base64 of the bytes.
        data: String,
        /// For example `image/png`.
        mime_type: String,
    },
    /// The model's reasoning.
    Thinking {
        /// The text, or a notice when it was redacted.
        thinking: String,
        /// Opaque to us; must go back unchanged to the model that made it.
        signature: Option<String>,
        /// The provider withheld the text; `signature` carries its data.
        redacted: bool,
    },
    /// A call of a tool.
    ToolCall(ToolCall),
    /// A block type this version does not know; kept as it stands.
    Other(Raw),
}

impl Block {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Block {
        Block::Text { text: text.into(), signature: None }
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Block::Text { text, .. } => Some(text),
            _ => None,
        }
    }
}

/// A call of a tool, as the model made it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Unique within the session.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// A JSON object, kept as text: only the tool looks inside.
    pub arguments: Raw,
    /// Opaque to us (Google models).
    pub thought_signature: Option<String>,
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "toolCall")?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("arguments", &self.arguments)?;
        if let Some(signature) = &self.thought_signature {
            map.serialize_entry("thoughtSignature", signature)?;
        }
        map.end()
    }
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Block::ToolCall(call) => return call.serialize(serializer),
            Block::Other(raw) => return raw.serialize(serializer),
            _ => {}
        }
        let mut map = serializer.serialize_map(None)?;
        match self {
            Block::Text { text, signature } => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
                if let Some(signature) = signature {
                    map.serialize_entry("textSignature", signature)?;
                }
            }
            Block::Image { data, mime_type } => {
                map.serialize_entry("type", "image")?;
                map.serialize_entry("data", data)?;
                map.serialize_entry("mimeType", mime_type)?;
            }
            Block::Thinking { thinking, signature, redacted } => {
                map.serialize_entry("type", "thinking")?;
                map.serialize_entry("thinking", thinking)?;
                if let Some(signature) = signature {
                    map.serialize_entry("thinkingSignature", signature)?;
                }
                if *redacted {
                    map.serialize_entry("redacted", &true)?;
                }
            }
            Block::ToolCall(_) | Block::Other(_) => unreachable!("written above"),
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Flat {
            #[serde(rename = "type")]
            kind: String,
            text: Option<String>,
            text_signature: Option<String>,
            data: Option<String>,
            mime_type: Option<String>,
            thinking: Option<String>,
            thinking_signature: Option<String>,
            redacted: Option<bool>,
            id: Option<String>,
            name: Option<String>,
            arguments: Option<Raw>,
            thought_signature: Option<String>,
        }
        let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
        let flat: Flat = json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        Ok(match flat.kind.as_str() {
            "text" => Block::Text { text: flat.text.unwrap_or_default(), signature: flat.text_signature },
            "image" => Block::Image {
                data: flat.data.unwrap_or_default(),
                mime_type: flat.mime_type.unwrap_or_default(),
            },
            "thinking" => Block::Thinking {
                thinking: flat.thinking.unwrap_or_default(),
                signature: flat.thinking_signature,
                redacted: flat.redacted.unwrap_or(false),
            },
            "toolCall" => Block::ToolCall(ToolCall {
                id: flat.id.unwrap_or_default(),
                name: flat.name.unwrap_or_default(),
                arguments: flat.arguments.unwrap_or_else(Raw::empty_object),
                thought_signature: flat.thought_signature,
            }),
            _ => Block::Other(Raw::from_trusted(String::from(Box::<str>::from(raw)).into())),
        })
    }
}

/// Tokens and money of one answer. Counts are tokens; `input` excludes what came from the cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Tokens sent that were not cached.
    #[serde(with = "json::count")]
    pub input: u64,
    /// Tokens received, reasoning included.
    #[serde(with = "json::count")]
    pub output: u64,
    /// Tokens read from the provider's cache.
    #[serde(with = "json::count")]
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    #[serde(with = "json::count")]
    pub cache_write: u64,
    /// The part of `output` that was reasoning, when the provider says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Sum of the four counts.
    #[serde(with = "json::count")]
    pub total_tokens: u64,
    /// US dollars.
    pub cost: Cost,
}

/// US dollars.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cost {
    /// For `input` tokens.
    #[serde(with = "json::number")]
    pub input: f64,
    /// For `output` tokens.
    #[serde(with = "json::number")]
    pub output: f64,
    /// For cache reads.
    #[serde(with = "json::number")]
    pub cache_read: f64,
    /// For cache writes.
    #[serde(with = "json::number")]
    pub cache_write: f64,
    /// Sum.
    #[serde(with = "json::number")]
    pub total: f64,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// Still streaming; never on a finished message.
    Pending,
    /// The model was done.
    Stop,
    /// The output limit was hit.
    Length,
    /// The model wants tools run.
    ToolUse,
    /// The request failed; `errorMessage` says how.
    Error,
    /// The run was aborted.
    Aborted,
}

/// What the model answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "assistant", rename_all = "camelCase")]
pub struct AssistantMessage {
    /// Text, thinking and tool calls in the order the model made them.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub content: Vec<Block>,
    /// Wire dialect that was spoken, for example `anthropic-messages`.
    #[serde(default)]
    pub api: String,
    /// Provider id.
    #[serde(default)]
    pub provider: String,
    /// Model id that was asked.
    #[serde(default)]
    pub model: String,
    /// Tokens and money.
    #[serde(default)]
    pub usage: Usage,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// When the answer began.
    #[serde(default)]
    pub timestamp: Millis,
    /// The provider's id of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// The model that answered, when the provider names another than was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_model: Option<String>,
    /// The provider's own word for the stop reason, when it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_stop_reason: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// What the provider said it did to the request: a list of objects with `type`, `timestamp` and `details`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Box<Raw>>,
    /// The provider's explicit end-of-turn signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_turn: Option<bool>,
}

impl AssistantMessage {
    /// The tool calls in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

/// What a tool returned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "toolResult", rename_all = "camelCase")]
pub struct ToolResultMessage {
    /// The call it answers.
    pub tool_call_id: String,
    /// The tool's name.
    #[serde(default)]
    pub tool_name: String,
    /// Text and images.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub content: Vec<Block>,
    /// For clients; models do not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Raw>,
    /// The call failed.
    #[serde(default)]
    pub is_error: bool,
    /// When it ended.
    #[serde(default)]
    pub timestamp: Millis,
}

/// A command the client ran with `bash`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "bashExecution", rename_all = "camelCase")]
pub struct BashExecutionMessage {
    /// The command line.
    #[serde(default)]
    pub command: String,
    /// What it printed, possibly cut.
    #[serde(default)]
    pub output: String,
    /// Exit code; absent when cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// It was aborted.
    #[serde(default)]
    pub cancelled: bool,
    /// `output` is not all of it.
    #[serde(default)]
    pub truncated: bool,
    /// Where all of it is. `Some(None)` is an explicit null: the file was refused.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub full_output_path: Option<Option<String>>,
    /// When it ended.
    #[serde(default)]
    pub timestamp: Millis,
    /// Keep it from the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclude_from_context: bool,
}

/// A message made by an extension or by compaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "custom", rename_all = "camelCase")]
pub struct CustomMessage {
    /// Who made it.
    #[serde(default)]
    pub custom_type: String,
    /// What the model sees as user content.
    pub content: Content,
    /// Clients should show it.
    #[serde(default)]
    pub display: bool,
    /// For clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Raw>,
    /// When it was made.
    #[serde(default)]
    pub timestamp: Millis,
    /// Keep it from the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclude_from_context: bool,
}

/// The summary of an abandoned branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "branchSummary", rename_all = "camelCase")]
pub struct BranchSummaryMessage {
    /// The summary.
    pub summary: String,
    /// The entry branched to.
    #[serde(default)]
    pub from_id: String,
    /// When it was made.
    #[serde(default)]
    pub timestamp: Millis,
}

fn null_as_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Block>, D::Error> {
    Ok(Option::<Vec<Block>>::deserialize(deserializer)?.unwrap_or_default())
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes → value → bytes: what we read we write again to the byte.
    #[test]
    fn messages_round_trip_to_the_byte() {
        for text in [
            r#"{"role":"user","content":"Hello!","timestamp":1733234567890}"#,
            r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","data":"aGk=","mimeType":"image/png"}],"timestamp":1}"#,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"s"},{"type":"text","text":"x"},{"type":"toolCall","id":"c1","name":"bash","arguments":{"z":1,"a":[1.5]}}],"api":"anthropic-messages","provider":"anthropic","model":"m","usage":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":3,"cost":{"input":0.003,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.003}},"stopReason":"toolUse","timestamp":5,"responseId":"r"}"#,
            r#"{"role":"toolResult","toolCallId":"c1","toolName":"bash","content":[{"type":"text","text":"o"}],"details":{"exitCode":0},"isError":false,"timestamp":6}"#,
            r#"{"role":"bashExecution","command":"ls","output":"","exitCode":0,"cancelled":false,"truncated":true,"fullOutputPath":null,"timestamp":7}"#,
            r#"{"role":"custom","customType":"t","content":"c","display":true,"timestamp":8}"#,
            r#"{"role":"branchSummary","summary":"s","fromId":"root","timestamp":9}"#,
            r#"{"role":"system","anything":[1]}"#,
        ] {
            let message = Message::parse(&Raw::parse(text).unwrap()).unwrap();
            assert_eq!(message.to_raw().as_str(), text);
        }
    }

    #[test]
    fn unknown_blocks_and_null_content_are_kept() {
        let raw = Raw::parse(r#"{"role":"assistant","content":[{"type":"new","x":1}],"stopReason":"stop"}"#)
            .unwrap();
        let Message::Assistant(message) = Message::parse(&raw).unwrap() else { panic!("an assistant") };
        assert!(
            matches!(&message.content[0], Block::Other(raw) if raw.as_str() == r#"{"type":"new","x":1}"#)
        );
        let raw = Raw::parse(r#"{"role":"assistant","content":null,"stopReason":"stop"}"#).unwrap();
        assert!(matches!(Message::parse(&raw).unwrap(), Message::Assistant(m) if m.content.is_empty()));
    }
}
