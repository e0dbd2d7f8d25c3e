//! Events: what a session tells its clients.
//!
//! Shapes and key order are those of seed 001 "Events" and reference 2.1-2.3. Messages inside an event are [`Raw`] text,
//! the same bytes that stand in the session file. An event is written at most once however many clients there are.

mod compaction;

use std::borrow::Cow;

pub use self::compaction::{CompactionEnd, CompactionReason};
use crate::cli::Dialect;
use crate::json::{Fields, ObjectWriter, Raw};

/// One event record.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A run begins.
    AgentStart,
    /// A run ends.
    AgentEnd {
        /// Everything the run added, in order.
        messages: Vec<Raw>,
        /// It failed in passing and is tried again.
        will_retry: bool,
    },
    /// Nothing more will happen until the next command: the last record of a run and of its continuations.
    AgentSettled {
        /// Somebody stopped it.
        aborted: bool,
    },
    /// A turn begins: one answer and the tools it calls.
    TurnStart,
    /// A turn ends.
    TurnEnd {
        /// The answer.
        message: Raw,
        /// The results of its calls, in the order of the calls.
        tool_results: Vec<Raw>,
    },
    /// A message begins.
    MessageStart {
        /// The message so far.
        message: Raw,
    },
    /// An answer grows.
    MessageUpdate {
        /// Tokens and money so far.
        usage: Raw,
        /// What was added.
        delta: Delta,
        /// The provider's explicit end-of-turn signal.
        end_turn: Option<bool>,
    },
    /// A message is complete (and, unless the file failed, in the file).
    MessageEnd {
        /// The message.
        message: Raw,
    },
    /// A tool call begins.
    ToolExecutionStart {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// The arguments as the model gave them.
        args: Raw,
    },
    /// A tool call has something to show; replaces what it showed before.
    ToolExecutionUpdate {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// The arguments as the model gave them.
        args: Raw,
        /// `{content, details?}` so far.
        partial_result: Raw,
    },
    /// A tool call ends.
    ToolExecutionEnd {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// `{content, details?, terminate?}`.
        result: Raw,
        /// It failed.
        is_error: bool,
    },
    /// A client's shell command printed something.
    BashExecutionUpdate {
        /// The command line's id, if it had one.
        id: Option<Raw>,
        /// `stdout` or `stderr`.
        channel: Channel,
        /// What it printed.
        delta: String,
    },
    /// The queues changed.
    QueueUpdate {
        /// Texts of the steering queue.
        steering: Vec<String>,
        /// Texts of the follow-up queue.
        follow_up: Vec<String>,
    },
    /// A failed call will be tried again.
    AutoRetryStart {
        /// Which retry, from 1.
        attempt: u32,
        /// How many there will be at most.
        max_attempts: u32,
        /// How long until then, in milliseconds.
        delay_ms: u64,
        /// Why the last try failed.
        error_message: String,
    },
    /// Retrying is over.
    AutoRetryEnd {
        /// An answer came.
        success: bool,
        /// Retries made.
        attempt: u32,
        /// Why it did not.
        final_error: Option<String>,
    },
    /// The conversation is about to be shortened.
    CompactionStart {
        /// Why.
        reason: CompactionReason,
        /// Between two turns of a run.
        mid_turn: bool,
    },
    /// Shortening is over, however it ended.
    CompactionEnd(Box<CompactionEnd>),
    /// A failed call of the model that plans a compaction will be made again.
    SummarizationRetryScheduled {
        /// Which retry, from 1.
        attempt: u32,
        /// How many there will be at most.
        max_attempts: u32,
        /// How long until then, in milliseconds.
        delay_ms: u64,
        /// Why the last try failed.
        error_message: String,
    },
    /// That call is made again.
    SummarizationRetryAttemptStart {
        /// Why the conversation is shortened. `None`: the call is for the summary of a branch.
        reason: Option<CompactionReason>,
    },
    /// No more of these retries will follow.
    SummarizationRetryFinished,
    /// The session has another model.
    ModelChanged {
        /// The new one.
        model: Raw,
        /// The old one, if there was one.
        previous_model: Option<Raw>,
        /// `set`, `cycle`, `restore`, `fallback`.
        source: String,
    },
    /// A model failed, and one of `fallbackModels` takes its place for the rest of the user's turn.
    ModelFallbackStart {
        /// The model that failed, `provider/id`.
        from: String,
        /// The one that takes its place, `provider/id`.
        to: String,
        /// How it failed.
        reason: String,
        /// Which change of models this is in the user's turn, from 1.
        attempt: u32,
    },
    /// The model in use is the user's own again.
    ModelFallbackEnd {
        /// The last model of the chain answered.
        success: bool,
        /// The model that took the place, `provider/id`.
        from: Option<String>,
        /// The user's model, `provider/id`; absent when the user chose another meanwhile.
        to: Option<String>,
        /// Why there was no answer.
        final_error: Option<String>,
    },
    /// The session has another thinking level.
    ThinkingLevelChanged {
        /// The effective one.
        level: String,
    },
    /// The session has another name.
    SessionInfoChanged {
        /// The name; absent when cleared.
        name: Option<String>,
    },
    /// Something of the user's own failed: an extension, or a skill that was named and cannot be used.
    ExtensionError {
        /// Its file.
        extension_path: String,
        /// What it was asked to do, for example `tool_call` or `skill_expansion`.
        event: String,
        /// Why, for a person.
        error: String,
    },
}

/// Where a shell command printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Channel {
    /// The wire's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Channel::Stdout => "stdout",
            Channel::Stderr => "stderr",
        }
    }
}

/// What was added to an answer. `index` is the position of the content block.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// A text block began.
    TextStart {
        /// Which block.
        index: usize,
    },
    /// More text.
    TextDelta {
        /// Which block.
        index: usize,
        /// The piece.
        delta: String,
    },
    /// A text block ended.
    TextEnd {
        /// Which block.
        index: usize,
        /// All of it.
        content: String,
    },
    /// A thinking block began.
    ThinkingStart {
        /// Which block.
        index: usize,
    },
    /// More thinking.
    ThinkingDelta {
        /// Which block.
        index: usize,
        /// The piece.
        delta: String,
    },
    /// A thinking block ended.
    ThinkingEnd {
        /// Which block.
        index: usize,
        /// All of it.
        content: String,
    },
    /// A tool call began.
    ToolCallStart {
        /// Which block.
        index: usize,
        /// The call.
        id: String,
        /// The tool.
        tool_name: String,
    },
    /// More of the arguments' JSON text.
    ToolCallDelta {
        /// Which block.
        index: usize,
        /// The piece.
        delta: String,
    },
    /// A tool call ended.
    ToolCallEnd {
        /// Which block.
        index: usize,
        /// The whole block.
        tool_call: Raw,
    },
}

impl Event {
    named! {
            Event::AgentStart => "agent_start",
            Event::AgentEnd { .. } => "agent_end",
            Event::AgentSettled { .. } => "agent_settled",
            Event::TurnStart => "turn_start",
            Event::TurnEnd { .. } => "turn_end",
            Event::MessageStart { .. } => "message_start",
            Event::MessageUpdate { .. } => "message_update",
            Event::MessageEnd { .. } => "message_end",
            Event::ToolExecutionStart { .. } => "tool_execution_start",
            Event::ToolExecutionUpdate { .. } => "tool_execution_update",
            Event::ToolExecutionEnd { .. } => "tool_execution_end",
            Event::BashExecutionUpdate { .. } => "bash_execution_update",
            Event::QueueUpdate { .. } => "queue_update",
            Event::AutoRetryStart { .. } => "auto_retry_start",
            Event::AutoRetryEnd { .. } => "auto_retry_end",
            Event::CompactionStart { .. } => "compaction_start",
            Event::CompactionEnd(_) => "compaction_end",
            Event::SummarizationRetryScheduled { .. } => "summarization_retry_scheduled",
            Event::SummarizationRetryAttemptStart { .. } => "summarization_retry_attempt_start",
            Event::SummarizationRetryFinished => "summarization_retry_finished",
            Event::ModelChanged { .. } => "model_changed",
            Event::ModelFallbackStart { .. } => "model_fallback_start",
            Event::ModelFallbackEnd { .. } => "model_fallback_end",
            Event::ThinkingLevelChanged { .. } => "thinking_level_changed",
            Event::SessionInfoChanged { .. } => "session_info_changed",
            Event::ExtensionError { .. } => "extension_error",
    }

    /// Appends the record with its LF, as PROTOCOL.md has it.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        self.write_line_in(Dialect::Atomic, out);
    }

    /// Appends the record with its LF, if the dialect has it. `legacy` needs more than an event for an update that grows:
    /// see [`Cumulative`](crate::legacy::Cumulative).
    pub fn write_line_in(&self, dialect: Dialect, out: &mut Vec<u8>) {
        if dialect == Dialect::Legacy && matches!(self, Event::AgentSettled { .. }) {
            return;
        }
        let mut object = ObjectWriter::begin(out);
        object.str("type", self.name());
        match self {
            Event::AgentStart | Event::TurnStart | Event::SummarizationRetryFinished => {}
            Event::CompactionStart { reason, mid_turn } => {
                object.str("reason", reason.as_str());
                if *mid_turn {
                    object.bool("midTurn", true);
                }
            }
            Event::CompactionEnd(end) => end.write(&mut object),
            Event::SummarizationRetryAttemptStart { reason } => match reason {
                Some(reason) => {
                    object.str("source", "compaction").str("reason", reason.as_str());
                }
                None => {
                    object.str("source", "branchSummary");
                }
            },
            Event::AgentSettled { aborted } => {
                object.bool("aborted", *aborted);
            }
            Event::AgentEnd { messages, will_retry } => {
                object.raws("messages", messages).bool("willRetry", *will_retry);
            }
            Event::TurnEnd { message, tool_results } => {
                object.raw("message", message.bytes()).raws("toolResults", tool_results);
            }
            Event::MessageStart { message } | Event::MessageEnd { message } => {
                object.raw("message", message.bytes());
            }
            Event::MessageUpdate { usage, delta, end_turn } => {
                object.raw("usage", usage.bytes());
                delta.write(object.key("assistantMessageEvent"));
                if let Some(end_turn) = end_turn {
                    object.bool("endTurn", *end_turn);
                }
            }
            Event::ToolExecutionStart { tool_call_id, tool_name, args } => {
                object.str("toolCallId", tool_call_id).str("toolName", tool_name).raw("args", args.bytes());
            }
            Event::ToolExecutionUpdate { tool_call_id, tool_name, args, partial_result } => {
                object.str("toolCallId", tool_call_id).str("toolName", tool_name).raw("args", args.bytes());
                object.raw("partialResult", partial_result.bytes());
            }
            Event::ToolExecutionEnd { tool_call_id, tool_name, result, is_error } => {
                object.str("toolCallId", tool_call_id).str("toolName", tool_name);
                object.raw("result", result.bytes()).bool("isError", *is_error);
            }
            Event::BashExecutionUpdate { id, channel, delta } => {
                if let Some(id) = id {
                    object.raw("id", id.bytes());
                }
                if dialect != Dialect::Pi {
                    object.str("channel", channel.as_str());
                }
                object.str("delta", delta);
            }
            Event::QueueUpdate { steering, follow_up } => {
                object.value("steering", steering).value("followUp", follow_up);
            }
            Event::AutoRetryStart { attempt, max_attempts, delay_ms, error_message }
            | Event::SummarizationRetryScheduled { attempt, max_attempts, delay_ms, error_message } => {
                object.int("attempt", i64::from(*attempt)).int("maxAttempts", i64::from(*max_attempts));
                object.count("delayMs", *delay_ms).str("errorMessage", error_message);
            }
            Event::AutoRetryEnd { success, attempt, final_error } => {
                object.bool("success", *success).int("attempt", i64::from(*attempt));
                if let Some(error) = final_error {
                    object.str("finalError", error);
                }
            }
            Event::ModelChanged { model, previous_model, source } => {
                object.raw("model", model.bytes());
                if let Some(previous) = previous_model {
                    object.raw("previousModel", previous.bytes());
                }
                object.str("source", source);
            }
            Event::ModelFallbackStart { from, to, reason, attempt } => {
                object.str("from", from).str("to", to).str("reason", reason);
                object.int("attempt", i64::from(*attempt));
            }
            Event::ModelFallbackEnd { success, from, to, final_error } => {
                object.bool("success", *success);
                for (key, text) in [("from", from), ("to", to), ("finalError", final_error)] {
                    if let Some(text) = text {
                        object.str(key, text);
                    }
                }
            }
            Event::ThinkingLevelChanged { level } => {
                object.str("level", level);
            }
            Event::ExtensionError { extension_path, event, error } => {
                object.str("extensionPath", extension_path).str("event", event).str("error", error);
            }
            Event::SessionInfoChanged { name } => {
                if let Some(name) = name {
                    object.str("name", name);
                }
            }
        }
        object.end();
        out.push(b'\n');
    }

    /// Reads a record. `None` when it is no event of this version.
    pub fn parse(line: &str) -> Option<Event> {
        let fields = Fields::parse(line).ok()?;
        let raw = |key| fields.get(key).map(|text| Raw::from_trusted(text.to_owned().into()));
        let string = |key| fields.str(key).map(Cow::into_owned);
        let raws = |key| serde_json::from_str::<Vec<Raw>>(fields.get(key)?).ok();
        let strings = |key| serde_json::from_str::<Vec<String>>(fields.get(key)?).ok();
        Some(match fields.str("type")?.as_ref() {
            "agent_start" => Event::AgentStart,
            "agent_end" => Event::AgentEnd {
                messages: raws("messages")?,
                will_retry: fields.get("willRetry") == Some("true"),
            },
            "agent_settled" => Event::AgentSettled { aborted: fields.get("aborted") == Some("true") },
            "turn_start" => Event::TurnStart,
            "turn_end" => Event::TurnEnd { message: raw("message")?, tool_results: raws("toolResults")? },
            "message_start" => Event::MessageStart { message: raw("message")? },
            "message_end" => Event::MessageEnd { message: raw("message")? },
            "message_update" => Event::MessageUpdate {
                usage: raw("usage")?,
                delta: Delta::parse(fields.get("assistantMessageEvent")?)?,
                end_turn: fields.get("endTurn").map(|text| text == "true"),
            },
            "tool_execution_start" => Event::ToolExecutionStart {
                tool_call_id: string("toolCallId")?,
                tool_name: string("toolName")?,
                args: raw("args")?,
            },
            "tool_execution_update" => Event::ToolExecutionUpdate {
                tool_call_id: string("toolCallId")?,
                tool_name: string("toolName")?,
                args: raw("args")?,
                partial_result: raw("partialResult")?,
            },
            "tool_execution_end" => Event::ToolExecutionEnd {
                tool_call_id: string("toolCallId")?,
                tool_name: string("toolName")?,
                result: raw("result")?,
                is_error: fields.get("isError")? == "true",
            },
            "bash_execution_update" => Event::BashExecutionUpdate {
                id: raw("id"),
                channel: match fields.str("channel")?.as_ref() {
                    "stdout" => Channel::Stdout,
                    "stderr" => Channel::Stderr,
                    _ => return None,
                },
                delta: string("delta")?,
            },
            "queue_update" => {
                Event::QueueUpdate { steering: strings("steering")?, follow_up: strings("followUp")? }
            }
            "auto_retry_start" => Event::AutoRetryStart {
                attempt: fields.get("attempt")?.parse().ok()?,
                max_attempts: fields.get("maxAttempts")?.parse().ok()?,
                delay_ms: fields.get("delayMs")?.parse().ok()?,
                error_message: string("errorMessage")?,
            },
            "compaction_start" => Event::CompactionStart {
                reason: CompactionReason::parse(&fields.str("reason")?)?,
                mid_turn: fields.get("midTurn") == Some("true"),
            },
            "compaction_end" => Event::CompactionEnd(Box::new(CompactionEnd::parse(&fields)?)),
            "summarization_retry_scheduled" => Event::SummarizationRetryScheduled {
                attempt: fields.get("attempt")?.parse().ok()?,
                max_attempts: fields.get("maxAttempts")?.parse().ok()?,
                delay_ms: fields.get("delayMs")?.parse().ok()?,
                error_message: string("errorMessage")?,
            },
            "summarization_retry_attempt_start" => Event::SummarizationRetryAttemptStart {
                reason: fields.str("reason").and_then(|word| CompactionReason::parse(&word)),
            },
            "summarization_retry_finished" => Event::SummarizationRetryFinished,
            "auto_retry_end" => Event::AutoRetryEnd {
                success: fields.get("success")? == "true",
                attempt: fields.get("attempt")?.parse().ok()?,
                final_error: string("finalError"),
            },
            "model_changed" => Event::ModelChanged {
                model: raw("model")?,
                previous_model: raw("previousModel"),
                source: string("source")?,
            },
            "model_fallback_start" => Event::ModelFallbackStart {
                from: string("from")?,
                to: string("to")?,
                reason: string("reason")?,
                attempt: fields.get("attempt")?.parse().ok()?,
            },
            "model_fallback_end" => Event::ModelFallbackEnd {
                success: fields.get("success")? == "true",
                from: string("from"),
                to: string("to"),
                final_error: string("finalError"),
            },
            "thinking_level_changed" => Event::ThinkingLevelChanged { level: string("level")? },
            "extension_error" => Event::ExtensionError {
                extension_path: string("extensionPath")?,
                event: string("event")?,
                error: string("error")?,
            },
            "session_info_changed" => Event::SessionInfoChanged { name: string("name") },
            _ => return None,
        })
    }
}

impl Delta {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::begin(out);
        self.write_keys(&mut object);
        object.end();
    }

    /// The keys of the delta, in an object that is left open.
    pub(crate) fn write_keys(&self, object: &mut ObjectWriter<'_>) {
        let (name, index) = match self {
            Delta::TextStart { index } => ("text_start", index),
            Delta::TextDelta { index, .. } => ("text_delta", index),
            Delta::TextEnd { index, .. } => ("text_end", index),
            Delta::ThinkingStart { index } => ("thinking_start", index),
            Delta::ThinkingDelta { index, .. } => ("thinking_delta", index),
            Delta::ThinkingEnd { index, .. } => ("thinking_end", index),
            Delta::ToolCallStart { index, .. } => ("toolcall_start", index),
            Delta::ToolCallDelta { index, .. } => ("toolcall_delta", index),
            Delta::ToolCallEnd { index, .. } => ("toolcall_end", index),
        };
        object.str("type", name).int("contentIndex", *index as i64);
        match self {
            Delta::TextDelta { delta, .. }
            | Delta::ThinkingDelta { delta, .. }
            | Delta::ToolCallDelta { delta, .. } => {
                object.str("delta", delta);
            }
            Delta::TextEnd { content, .. } | Delta::ThinkingEnd { content, .. } => {
                object.str("content", content);
            }
            Delta::ToolCallEnd { tool_call, .. } => {
                object.raw("toolCall", tool_call.bytes());
            }
            Delta::ToolCallStart { id, tool_name, .. } => {
                object.str("id", id).str("toolName", tool_name);
            }
            Delta::TextStart { .. } | Delta::ThinkingStart { .. } => {}
        }
    }

    fn parse(text: &str) -> Option<Delta> {
        let fields = Fields::parse(text).ok()?;
        let index: usize = fields.get("contentIndex")?.parse().ok()?;
        let delta = || fields.str("delta").map(Cow::into_owned);
        let content = || fields.str("content").map(Cow::into_owned);
        Some(match fields.str("type")?.as_ref() {
            "text_start" => Delta::TextStart { index },
            "text_delta" => Delta::TextDelta { index, delta: delta()? },
            "text_end" => Delta::TextEnd { index, content: content()? },
            "thinking_start" => Delta::ThinkingStart { index },
            "thinking_delta" => Delta::ThinkingDelta { index, delta: delta()? },
            "thinking_end" => Delta::ThinkingEnd { index, content: content()? },
            "toolcall_start" => Delta::ToolCallStart {
                index,
                id: fields.str("id")?.into_owned(),
                tool_name: fields.str("toolName")?.into_owned(),
            },
            "toolcall_delta" => Delta::ToolCallDelta { index, delta: delta()? },
            "toolcall_end" => {
                let tool_call = Raw::from_trusted(fields.get("toolCall")?.to_owned().into());
                Delta::ToolCallEnd { index, tool_call }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes → value → bytes, at least one line for each event and each delta.
    #[test]
    fn each_event_round_trips_to_the_byte() {
        let update = |delta: &str| {
            format!(r#"{{"type":"message_update","usage":{{"input":1}},"assistantMessageEvent":{delta}}}"#)
        };
        let mut corpus: Vec<String> = [
            r#"{"type":"agent_start"}"#,
            r#"{"type":"agent_end","messages":[{"role":"user","content":"a"},{"role":"x"}],"willRetry":false}"#,
            r#"{"type":"agent_end","messages":[],"willRetry":true}"#,
            r#"{"type":"agent_settled","aborted":false}"#,
            r#"{"type":"agent_settled","aborted":true}"#,
            r#"{"type":"turn_start"}"#,
            r#"{"type":"turn_end","message":{"role":"assistant"},"toolResults":[{"role":"toolResult"}]}"#,
            r#"{"type":"message_start","message":{"role":"user"}}"#,
            r#"{"type":"message_end","message":{"role":"user"}}"#,
            r#"{"type":"message_update","usage":{},"assistantMessageEvent":{"type":"text_start","contentIndex":0},"endTurn":false}"#,
            r#"{"type":"tool_execution_start","toolCallId":"c","toolName":"bash","args":{"command":"ls -la"}}"#,
            r#"{"type":"tool_execution_update","toolCallId":"c","toolName":"bash","args":{},"partialResult":{"content":[]}}"#,
            r#"{"type":"tool_execution_end","toolCallId":"c","toolName":"bash","result":{"content":[]},"isError":true}"#,
            r#"{"type":"bash_execution_update","id":"req-1","channel":"stdout","delta":"building...\n"}"#,
            r#"{"type":"bash_execution_update","channel":"stderr","delta":"warning\n"}"#,
            r#"{"type":"queue_update","steering":["Focus on error handling"],"followUp":["After that, summarize the result"]}"#,
            r#"{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"529 x"}"#,
            r#"{"type":"auto_retry_end","success":true,"attempt":2}"#,
            r#"{"type":"auto_retry_end","success":false,"attempt":3,"finalError":"529 overloaded_error: Overloaded"}"#,
            r#"{"type":"model_changed","model":{"id":"m"},"previousModel":{"id":"n"},"source":"set"}"#,
            r#"{"type":"model_fallback_start","from":"a/b","to":"c/d","reason":"529 busy","attempt":1}"#,
            r#"{"type":"model_fallback_end","success":true,"from":"c/d","to":"a/b"}"#,
            r#"{"type":"model_fallback_end","success":false,"from":"c/d","finalError":"529 busy"}"#,
            r#"{"type":"thinking_level_changed","level":"off"}"#,
            r#"{"type":"compaction_start","reason":"manual"}"#,
            r#"{"type":"compaction_start","reason":"threshold","midTurn":true}"#,
            r#"{"type":"compaction_end","reason":"manual","result":{"compactedText":"x"},"aborted":false,"willRetry":false}"#,
            r#"{"type":"compaction_end","reason":"overflow","result":null,"aborted":false,"willRetry":false,"unresolvedOverflow":true,"errorMessage":"e"}"#,
            r#"{"type":"compaction_end","reason":"threshold","result":null,"aborted":true,"willRetry":false,"midTurn":true,"manualTakeoverPending":true}"#,
            r#"{"type":"summarization_retry_scheduled","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"terminated"}"#,
            r#"{"type":"summarization_retry_attempt_start","source":"compaction","reason":"threshold"}"#,
            r#"{"type":"summarization_retry_attempt_start","source":"branchSummary"}"#,
            r#"{"type":"summarization_retry_finished"}"#,
            r#"{"type":"session_info_changed","name":"n"}"#,
            r#"{"type":"session_info_changed"}"#,
        ]
        .map(str::to_owned)
        .into();
        corpus.extend(
            [
                r#"{"type":"text_start","contentIndex":0}"#,
                r#"{"type":"text_delta","contentIndex":0,"delta":"Hello"}"#,
                r#"{"type":"text_end","contentIndex":0,"content":"Hello world"}"#,
                r#"{"type":"thinking_start","contentIndex":1}"#,
                "{\"type\":\"thinking_delta\",\"contentIndex\":1,\"delta\":\"\u{2028}\"}",
                r#"{"type":"thinking_end","contentIndex":1,"content":"x"}"#,
                r#"{"type":"toolcall_start","contentIndex":2,"id":"c1","toolName":"bash"}"#,
                r#"{"type":"toolcall_delta","contentIndex":2,"delta":"{\"command\":"}"#,
                r#"{"type":"toolcall_end","contentIndex":2,"toolCall":{"type":"toolCall","id":"c1","name":"bash","arguments":{"command":"ls"}}}"#,
            ]
            .map(update),
        );
        let mut names = std::collections::BTreeSet::new();
        for line in &corpus {
            let event = Event::parse(line).unwrap_or_else(|| panic!("{line}"));
            names.insert(event.name());
            let mut out = Vec::new();
            event.write_line(&mut out);
            assert_eq!(String::from_utf8(out).unwrap().trim_end_matches('\n'), line);
        }
        assert_eq!(names.len(), 25, "an event without a line in the corpus");
    }

    #[test]
    fn no_event_grows_with_the_message_it_updates() {
        let size = |delta: &str| {
            let mut out = Vec::new();
            let delta = Delta::TextDelta { index: 0, delta: delta.into() };
            Event::MessageUpdate { usage: Raw::empty_object(), delta, end_turn: None }.write_line(&mut out);
            out.len()
        };
        assert_eq!(size("xx") - size("x"), 1);
    }
}
