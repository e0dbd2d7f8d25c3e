//! What a tool is told and what it returns.

use serde::Serialize;

use crate::json::{ObjectWriter, Raw};
use crate::message::Block;

/// A tool as a model and the system prompt know it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Name on the wire.
    pub name: String,
    /// Told to the model.
    pub description: String,
    /// JSON Schema of the arguments, an object.
    pub parameters: Raw,
    /// One line for the system prompt's list of tools; none keeps it off the list.
    pub snippet: Option<String>,
    /// Bullets for the system prompt while the tool is active.
    pub guidelines: Vec<String>,
    /// Calls of one message never overlap with a call of this tool.
    pub sequential: bool,
}

/// What a tool gives back, in part or in full: `partialResult` of `tool_execution_update`, `result` of
/// `tool_execution_end`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// Text and images for the model.
    pub content: Vec<Block>,
    /// For clients; models do not see it.
    pub details: Option<Raw>,
    /// The call failed.
    pub is_error: bool,
    /// When every result of a batch says so, the run ends without another model call.
    pub terminate: bool,
}

impl ToolOutput {
    /// A result of one text.
    pub fn text(text: impl Into<String>) -> Self {
        ToolOutput { content: vec![Block::text(text)], ..Self::default() }
    }

    /// A failed call.
    pub fn error(text: impl Into<String>) -> Self {
        ToolOutput { is_error: true, ..Self::text(text) }
    }

    /// With details for clients.
    pub fn with_details<T: Serialize + ?Sized>(mut self, details: &T) -> Self {
        self.details = Some(Raw::from_serialize(details));
        self
    }

    /// The record's `result` or `partialResult`: content, details, terminate. Whether it failed stands beside it.
    pub fn to_raw(&self) -> Raw {
        let mut out = Vec::new();
        let mut object = ObjectWriter::begin(&mut out);
        object.value("content", &self.content);
        if let Some(details) = &self.details {
            object.raw("details", details.bytes());
        }
        if self.terminate {
            object.bool("terminate", true);
        }
        object.end();
        Raw::from_trusted(out.into())
    }
}
