//! What a model is, what it is asked and what it answers, in words no vendor owns.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::json::{self, Fields, ObjectWriter, Raw};
use crate::message::{Message, StopReason, Usage};
use crate::tool::ToolSpec;

/// A model as catalog and clients know it (seed 001 "Model"). Keys we do not use are kept in `raw`.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The whole object as clients see it.
    pub raw: Raw,
    /// The fields we look at.
    pub spec: ModelSpec,
}

impl Model {
    /// From the parsed fields; what clients see is exactly them. `compat` gets both names of a claim that has two.
    pub fn from_spec(mut spec: ModelSpec) -> Model {
        if let Some(compat) = spec.compat.as_ref().and_then(grammar_in_step) {
            spec.compat = Some(compat);
        }
        Model { raw: Raw::from_serialize(&spec), spec }
    }

    /// From the text of a model object.
    ///
    /// # Errors
    /// When a field has the wrong type or `id` is missing.
    pub fn parse(raw: Raw) -> Result<Model, serde_json::Error> {
        Ok(Model { spec: raw.read()?, raw })
    }
}

impl std::ops::Deref for Model {
    type Target = ModelSpec;
    fn deref(&self) -> &ModelSpec {
        &self.spec
    }
}

/// The fields of a [`Model`]. Prices are US dollars per million tokens; windows are tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    /// Id the vendor knows.
    pub id: String,
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// Wire dialect, for example `anthropic-messages`.
    #[serde(default)]
    pub api: String,
    /// Provider id.
    #[serde(default)]
    pub provider: String,
    /// Where requests go, without the dialect's own path.
    #[serde(default)]
    pub base_url: String,
    /// It can think.
    #[serde(default)]
    pub reasoning: bool,
    /// Level → the vendor's word; null: not supported; absent: the default rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_level_map: Option<BTreeMap<ThinkingLevel, Option<String>>>,
    /// `text`, `image`.
    #[serde(default)]
    pub input: Vec<String>,
    /// Prices.
    #[serde(default)]
    pub cost: ModelCost,
    /// Token budget of one request.
    #[serde(default)]
    pub context_window: u64,
    /// Most tokens of one answer.
    #[serde(default)]
    pub max_tokens: u64,
    /// Extra headers of every request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, Option<String>>>,
    /// Differences of this endpoint from its dialect, an object only the adapter reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compat: Option<Raw>,
    /// What a request may hold, an object only providers read. It is no part of what clients see.
    #[serde(default, skip_serializing)]
    pub input_limits: Option<Raw>,
}

/// Two names of one claim, canonical first: the model can be held to a grammar (seed 001, "get_available_models").
const GRAMMAR_TOOLS: [&str; 2] = ["supportsOpenAIGrammarTools", "supportsGrammarTools"];

/// The claim under both names, with the canonical one's value; `None` when there is nothing to change.
fn grammar_in_step(compat: &Raw) -> Option<Raw> {
    let fields = Fields::parse(compat.as_str()).ok()?;
    let [canonical, alias] = GRAMMAR_TOOLS.map(|name| fields.get(name));
    let value = canonical.or(alias)?;
    if canonical == alias {
        return None;
    }
    let mut out = Vec::with_capacity(compat.as_str().len() + 40);
    let mut object = ObjectWriter::begin(&mut out);
    for (name, value) in fields.iter().filter(|(name, _)| !GRAMMAR_TOOLS.contains(name)) {
        // The last of equal names is the one that counts.
        if fields.get(name).map(str::as_ptr) == Some(value.as_ptr()) {
            object.raw(name, value.as_bytes());
        }
    }
    for name in GRAMMAR_TOOLS {
        object.raw(name, value.as_bytes());
    }
    object.end();
    Raw::parse(std::str::from_utf8(&out).ok()?).ok()
}

/// US dollars per million tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelCost {
    /// For input.
    #[serde(with = "json::number")]
    pub input: f64,
    /// For output.
    #[serde(with = "json::number")]
    pub output: f64,
    /// For cache reads.
    #[serde(with = "json::number")]
    pub cache_read: f64,
    /// For cache writes.
    #[serde(with = "json::number")]
    pub cache_write: f64,
    /// Other prices above a number of input tokens; the highest tier strictly exceeded holds for the whole request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<CostTier>,
}

/// Prices above a number of input tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CostTier {
    /// Holds when input and cache tokens together exceed this.
    pub input_tokens_above: u64,
    /// For input.
    #[serde(with = "json::number")]
    pub input: f64,
    /// For output.
    #[serde(with = "json::number")]
    pub output: f64,
    /// For cache reads.
    #[serde(with = "json::number")]
    pub cache_read: f64,
    /// For cache writes.
    #[serde(with = "json::number")]
    pub cache_write: f64,
}

/// How much a model should think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingLevel {
    /// Not at all.
    Off,
    /// As little as possible.
    Minimal,
    /// A little.
    Low,
    /// The default.
    Medium,
    /// Much.
    High,
    /// More than that, on models that list it.
    Xhigh,
    /// All there is, on models that list it.
    Max,
}

impl ThinkingLevel {
    /// From least to most.
    pub const ALL: [ThinkingLevel; 7] = [
        ThinkingLevel::Off,
        ThinkingLevel::Minimal,
        ThinkingLevel::Low,
        ThinkingLevel::Medium,
        ThinkingLevel::High,
        ThinkingLevel::Xhigh,
        ThinkingLevel::Max,
    ];

    /// The wire's word.
    pub fn as_str(self) -> &'static str {
        match self {
            ThinkingLevel::Off => "off",
            ThinkingLevel::Minimal => "minimal",
            ThinkingLevel::Low => "low",
            ThinkingLevel::Medium => "medium",
            ThinkingLevel::High => "high",
            ThinkingLevel::Xhigh => "xhigh",
            ThinkingLevel::Max => "max",
        }
    }

    /// From the wire's word.
    pub fn parse(word: &str) -> Option<ThinkingLevel> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}

impl ModelSpec {
    /// The levels this model supports, from least to most. A model that cannot think has only `off`.
    pub fn thinking_levels(&self) -> Vec<ThinkingLevel> {
        if !self.reasoning {
            return vec![ThinkingLevel::Off];
        }
        let mapped = |level| self.thinking_level_map.as_ref().and_then(|map| map.get(&level));
        ThinkingLevel::ALL
            .into_iter()
            .filter(|level| match mapped(*level) {
                Some(None) => false,
                Some(Some(_)) => true,
                None => *level < ThinkingLevel::Xhigh,
            })
            .collect()
    }

    /// The supported level for a wish: itself, else the next one up, else the next one down.
    pub fn clamp_thinking(&self, wish: ThinkingLevel) -> ThinkingLevel {
        let levels = self.thinking_levels();
        let up = levels.iter().copied().find(|level| *level >= wish);
        up.or_else(|| levels.last().copied()).unwrap_or(ThinkingLevel::Off)
    }
}

/// One call of a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// Whom to ask.
    pub model: Arc<Model>,
    /// How much to think; already clamped to what the model supports.
    pub thinking: ThinkingLevel,
    /// The system prompt.
    pub system: Arc<str>,
    /// The conversation, ready for a model: only user, assistant and tool-result messages, every call answered.
    pub messages: Vec<Message>,
    /// The tools it may call, in a stable order.
    pub tools: Arc<[ToolSpec]>,
    /// For providers that keep a cache per session.
    pub session_id: String,
}

/// What a model answers, piece by piece. `index` is the position in *our* list of content blocks, counted from 0 in
/// order of `*Start`. A stream ends with exactly one [`ModelEvent::Done`] or [`ModelEvent::Failed`].
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// The answer began: the first event, unless the request failed before.
    Start {
        /// The provider's id of the answer.
        response_id: Option<String>,
        /// The model that answers, when it is another than was asked.
        response_model: Option<String>,
    },
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
        /// To be kept with the block.
        signature: Option<String>,
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
        /// To be kept with the block.
        signature: Option<String>,
        /// The provider withheld the text.
        redacted: bool,
    },
    /// A tool call began.
    ToolCallStart {
        /// Which block.
        index: usize,
        /// The provider's id; the agent may replace it.
        id: String,
        /// The tool's name.
        name: String,
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
        /// The arguments: always a JSON object.
        arguments: Raw,
        /// Opaque to us (Google models).
        thought_signature: Option<String>,
    },
    /// Tokens and money so far; replaces what was said before.
    Usage(Usage),
    /// What the provider says it did to the request, for people who look into a session. At most one in an answer.
    Diagnostic {
        /// For example `anthropic_input_transformations`.
        kind: String,
        /// A JSON object.
        details: Raw,
    },
    /// The answer is complete.
    Done {
        /// `Stop`, `Length` or `ToolUse`.
        reason: StopReason,
        /// The provider's own word, when it is not the usual one for `reason`.
        raw_reason: Option<String>,
        /// The provider's explicit end-of-turn signal.
        end_turn: Option<bool>,
    },
    /// The request failed, before or after pieces of an answer.
    Failed(ModelFailure),
}

/// Longest wait for another try, in milliseconds. A provider that asks for more is not waited for, and the failure says
/// so.
pub const MAX_RETRY_DELAY_MS: u64 = 60_000;

/// How a model call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFailure {
    /// For the message's `errorMessage`: status and body as the provider sent them, never a key.
    pub message: String,
    /// The provider's own word for the stop reason, when the stream ended with one.
    pub raw_reason: Option<String>,
    /// HTTP status, when there was a response.
    pub status: Option<u16>,
    /// How long the provider asked us to wait, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Whether another try may help, when the provider says so itself (header `x-should-retry`).
    pub should_retry: Option<bool>,
}

impl ModelFailure {
    /// A failure that is only a text.
    pub fn new(message: impl Into<String>) -> Self {
        ModelFailure {
            message: message.into(),
            raw_reason: None,
            status: None,
            retry_after_ms: None,
            should_retry: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> ModelSpec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_claim_of_two_names_has_one_value() {
        for (compat, want) in [
            (
                r#"{"supportsOpenAIGrammarTools":true}"#,
                r#"{"supportsOpenAIGrammarTools":true,"supportsGrammarTools":true}"#,
            ),
            (
                r#"{"a":1,"supportsGrammarTools":false,"b":[]}"#,
                r#"{"a":1,"b":[],"supportsOpenAIGrammarTools":false,"supportsGrammarTools":false}"#,
            ),
            (
                r#"{"supportsGrammarTools":false,"supportsOpenAIGrammarTools":true}"#,
                r#"{"supportsOpenAIGrammarTools":true,"supportsGrammarTools":true}"#,
            ),
            (r#"{"supportsStrictMode":true}"#, r#"{"supportsStrictMode":true}"#),
        ] {
            let model =
                Model::from_spec(spec(&format!(r#"{{"id":"m","compat":{compat},"inputLimits":{{}}}}"#)));
            assert_eq!(model.compat.as_ref().unwrap().as_str(), want);
            assert!(model.raw.as_str().contains(want) && !model.raw.as_str().contains("inputLimits"));
        }
    }

    #[test]
    fn thinking_levels_follow_the_map() {
        let plain = spec(r#"{"id":"m","reasoning":true}"#);
        assert_eq!(plain.thinking_levels().len(), 5);
        assert_eq!(plain.clamp_thinking(ThinkingLevel::Max), ThinkingLevel::High);
        let mapped =
            spec(r#"{"id":"m","reasoning":true,"thinkingLevelMap":{"off":null,"minimal":null,"max":"max"}}"#);
        assert_eq!(mapped.clamp_thinking(ThinkingLevel::Off), ThinkingLevel::Low);
        assert_eq!(mapped.clamp_thinking(ThinkingLevel::Xhigh), ThinkingLevel::Max);
        let dull = spec(r#"{"id":"m"}"#);
        assert_eq!(dull.clamp_thinking(ThinkingLevel::High), ThinkingLevel::Off);
    }
}
