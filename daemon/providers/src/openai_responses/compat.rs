//! How an endpoint differs from OpenAI's own Responses API.

use atomic_protocol::json::Fields;
use atomic_protocol::model::Model;

/// The keys of a model's `compat` that this dialect reads. Keys that are not here, and values of another type, are
/// ignored.
#[derive(Debug)]
pub(super) struct Compat {
    /// `supportsDeveloperRole`: the system prompt of models that think has the role `developer`.
    pub(super) developer_role: bool,
    /// `sessionAffinityFormat`: names of the headers that carry the session's id.
    pub(super) affinity: &'static [&'static str],
    /// `promptCacheKeyMode`: requests of a session name their cache, unless it is `disabled`.
    pub(super) cache_key: bool,
    /// `supportsLongCacheRetention`: caches may be asked to live longer.
    pub(super) long_cache: bool,
    /// `supportsExplicitPromptCacheMode`: the cache is governed by `prompt_cache_options`.
    pub(super) explicit_cache: bool,
    /// `supportsStrictMode`: tools say that their schema is no strict one. Without a word OpenAI takes it for strict.
    pub(super) strict: bool,
    /// `supportsMaxOutputTokens`.
    pub(super) max_tokens: bool,
    /// `supportsReasoningEffort`: the model can be told how much to think.
    pub(super) effort: bool,
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
        let router = model.provider == "openrouter" || model.base_url.contains("openrouter.ai");
        let affinity: &[&str] = match fields.str("sessionAffinityFormat").as_deref() {
            Some("openai-nosession") => &["x-client-request-id"],
            Some("openrouter") => &["x-session-id"],
            Some("openai") => &["session-id", "x-client-request-id"],
            _ if router => &["x-session-id"],
            _ => &["session-id", "x-client-request-id"],
        };
        Compat {
            developer_role: flag("supportsDeveloperRole", true),
            affinity,
            cache_key: fields.str("promptCacheKeyMode").as_deref() != Some("disabled"),
            long_cache: flag("supportsLongCacheRetention", true),
            explicit_cache: flag("supportsExplicitPromptCacheMode", false),
            strict: flag("supportsStrictMode", model.api == super::azure::API),
            max_tokens: flag("supportsMaxOutputTokens", true),
            effort: flag("supportsReasoningEffort", true),
        }
    }
}
