//! How an endpoint differs from Anthropic's own.

use atomic_protocol::json::{Fields, Raw};
use atomic_protocol::model::{Model, ModelCost};
use serde::Deserialize;

/// The keys of a model's `compat` that this dialect reads.
#[derive(Debug)]
pub(super) struct Compat {
    /// Tools may ask for their input to be streamed as it is written.
    pub(super) eager_tool_input: bool,
    /// Caches may be asked to live an hour.
    pub(super) long_cache: bool,
    /// Requests of a session should reach the same machine.
    pub(super) session_affinity: bool,
    /// Tools may carry a cache mark.
    pub(super) cache_on_tools: bool,
    /// `temperature` is taken, while the model does not think.
    pub(super) temperature: bool,
    /// The model decides itself how long it thinks; we give an effort, not a budget.
    pub(super) adaptive_thinking: bool,
    /// Thinking without a signature may go back.
    pub(super) empty_signature: bool,
    /// Models the provider may answer with instead.
    pub(super) fallbacks: Vec<Fallback>,
}

/// A model the provider may answer with instead.
#[derive(Debug, Deserialize)]
pub(super) struct Fallback {
    pub(super) model: String,
    /// Its prices, when they are known.
    pub(super) cost: Option<ModelCost>,
}

impl Compat {
    pub(super) fn of(model: &Model) -> Compat {
        let fields =
            model.compat.as_ref().and_then(|compat| Fields::parse(compat.as_str()).ok()).unwrap_or_default();
        let flag = |name: &str, otherwise: bool| match fields.get(name) {
            Some("true") => true,
            Some("false") => false,
            _ => otherwise,
        };
        let fallbacks: Vec<Raw> = fields
            .get("allowedFallbackModels")
            .and_then(|list| serde_json::from_str(list).ok())
            .unwrap_or_default();
        Compat {
            eager_tool_input: flag("supportsEagerToolInputStreaming", true),
            long_cache: flag("supportsLongCacheRetention", true),
            session_affinity: flag("sendSessionAffinityHeaders", false),
            cache_on_tools: flag("supportsCacheControlOnTools", true),
            temperature: flag("supportsTemperature", true),
            adaptive_thinking: flag("forceAdaptiveThinking", false),
            empty_signature: flag("allowEmptySignature", false),
            fallbacks: fallbacks.iter().filter_map(read_fallback).collect(),
        }
    }
}

/// A bare id or an object.
fn read_fallback(raw: &Raw) -> Option<Fallback> {
    raw.read::<String>().map(|model| Fallback { model, cost: None }).or_else(|_| raw.read()).ok()
}
