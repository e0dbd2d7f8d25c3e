//! Points at which extensions may look or interfere.
//!
//! Every blocking hook that belongs to the loop is a question the agent asks and an answer it waits for
//! (reference/extensions 1.2); while a question is out the agent takes every other input. Without extensions the actor
//! answers [`HookAnswer::Go`] at once. Hooks of a session's life (start, switch, fork, shutdown) and of a provider
//! request belong to the actor.

use atomic_protocol::command::StreamingBehavior;
use atomic_protocol::json::Raw;
use atomic_protocol::message::{Block, ToolCall};
use atomic_protocol::tool::ToolOutput;

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HookId(pub u64);

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Hook {
    /// A prompt arrived. May be handled, or its text and images replaced.
    Input {
        /// The text.
        text: String,
        /// Images after the text.
        images: Vec<Block>,
        /// Set when the prompt will be queued.
        behavior: Option<StreamingBehavior>,
    },
    /// A run is about to start. May add messages and replace the system prompt of this run.
    BeforeAgentStart {
        /// The prompt's text.
        text: String,
        /// Images after the text.
        images: Vec<Block>,
    },
    /// `agent_start` is about to be announced.
    AgentStart,
    /// `turn_start` is about to be announced.
    TurnStart,
    /// A message is complete and about to be written. May be replaced by one of the same role.
    MessageEnd {
        /// The message.
        message: Raw,
    },
    /// A model is about to be called. The messages may be replaced, for this call only.
    Context {
        /// The conversation.
        messages: Vec<Raw>,
    },
    /// A tool is about to run. May be blocked or get other arguments.
    ToolCall {
        /// The call.
        call: ToolCall,
    },
    /// A tool ended. Its result may be replaced.
    ToolResult {
        /// The call.
        call: ToolCall,
        /// The result.
        output: ToolOutput,
    },
    /// `turn_end` is about to be announced.
    TurnEnd {
        /// The answer.
        message: Raw,
        /// The results of its calls.
        results: Vec<Raw>,
    },
    /// `agent_end` is about to be announced.
    AgentEnd {
        /// Everything the run added.
        messages: Vec<Raw>,
    },
    /// `agent_settled` is about to be announced.
    AgentSettled,
}

/// What an extension can say. An answer that does not fit the question counts as [`HookAnswer::Go`].
#[derive(Clone, Debug, Default, PartialEq)]
pub enum HookAnswer {
    /// Go on unchanged.
    #[default]
    Go,
    /// To `Input`: handled, start nothing.
    Handled,
    /// To `Input`: go on with this text and these images.
    Transform {
        /// The text.
        text: String,
        /// Images after the text.
        images: Vec<Block>,
    },
    /// To `BeforeAgentStart`: add these `custom` messages after the prompt; use this system prompt.
    Start {
        /// Custom messages.
        messages: Vec<Raw>,
        /// The system prompt of this run.
        system: Option<String>,
    },
    /// To `MessageEnd`: this message instead.
    Message(Raw),
    /// To `Context`: these messages instead.
    Messages(Vec<Raw>),
    /// To `ToolCall`: do not run it.
    Block {
        /// Told to the model.
        reason: Option<String>,
        /// End the run when every result of the batch says so.
        terminate: bool,
    },
    /// To `ToolCall`: run it with these arguments.
    Arguments(Raw),
    /// To `ToolResult`: this result instead.
    Output(ToolOutput),
}
