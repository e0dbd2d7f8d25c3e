//! Anthropic's Messages API (docs.anthropic.com, "Messages" and "Streaming messages"), and the endpoints of others that
//! speak it.

mod compat;
mod request;
mod stream;

use atomic_protocol::model::{ModelEvent, ModelRequest};
use reqwest::header::HeaderMap;
use tokio::sync::mpsc;

use crate::auth::Credential;
use crate::endpoint::{self, Headers};
use crate::error::Error;
use crate::http::{self, Http};
use crate::pump::{Stop, pump};
use crate::registry::Registry;
use compat::Compat;

/// The dialect's name in models.
pub const API: &str = "anthropic-messages";

/// The version of the API this adapter was written against.
pub(crate) const VERSION: &str = "2023-06-01";

/// Asks for tool arguments as they are written, from endpoints that have no per-tool switch for it.
const BETA_TOOL_STREAMING: &str = "fine-grained-tool-streaming-2025-05-14";
/// Lets models with a thinking budget think between tool calls.
const BETA_INTERLEAVED: &str = "interleaved-thinking-2025-05-14";
/// Lets the provider answer with the named other models.
const BETA_FALLBACK: &str = "server-side-fallback-2026-07-01";

/// Sends the request and maps what comes.
pub(crate) async fn ask(
    http: &Http,
    registry: &Registry,
    request: &ModelRequest,
    credential: &Credential,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop> {
    let options = registry.options();
    let compat = Compat::of(&request.model);
    let url = endpoint::address(&request.model, credential, "/v1/messages")?;
    let headers = headers(request, &compat, credential)?;
    let cache = options.cache(&credential.env);
    let sampling = registry.sampling_params(&request.model);
    let body = request::body(request, &compat, cache, &options.thinking_budgets, sampling);
    let client = http.client(&credential.env).await?;
    let response = http::post(&client, &url, headers, body, options.deadline).await?;
    let mut mapper = stream::Answer::new(&request.model, compat.fallbacks);
    pump(http::pieces(response), &mut mapper, options.deadline, sink).await
}

/// In rising order: ours, the model's, the user's. The list of betas is joined, not replaced.
fn headers(request: &ModelRequest, compat: &Compat, credential: &Credential) -> Result<HeaderMap, Error> {
    let mut headers = Headers::new(&request.model.provider);
    headers.fixed("anthropic-version", VERSION);
    headers.key(credential, Some("x-api-key"))?;
    if compat.session_affinity {
        headers.secret("x-session-affinity", &request.session_id, "session id")?;
    }
    let mut betas: Vec<&str> = Vec::new();
    if !request.tools.is_empty() && !compat.eager_tool_input {
        betas.push(BETA_TOOL_STREAMING);
    }
    if !compat.adaptive_thinking {
        betas.push(BETA_INTERLEAVED);
    }
    if !compat.fallbacks.is_empty() {
        betas.push(BETA_FALLBACK);
    }
    for (name, value) in endpoint::configured(&request.model, credential) {
        match value {
            Some(value) if name.eq_ignore_ascii_case("anthropic-beta") => {
                betas.extend(value.split(',').map(str::trim));
            }
            None if name.eq_ignore_ascii_case("anthropic-beta") => betas.clear(),
            value => headers.configured(name, value)?,
        }
    }
    if !betas.is_empty() {
        headers.secret("anthropic-beta", &betas.join(","), "header anthropic-beta")?;
    }
    headers.finish()
}

#[cfg(any(test, fuzzing))]
pub(crate) fn answer(model: &atomic_protocol::model::Model) -> impl crate::pump::Mapper + '_ {
    stream::Answer::new(model, Compat::of(model).fallbacks)
}

#[cfg(test)]
pub(crate) fn headers_of(request: &ModelRequest) -> HeaderMap {
    headers(request, &Compat::of(&request.model), &crate::proof::credential()).expect("headers")
}

#[cfg(test)]
pub(crate) fn body_of(
    request: &ModelRequest,
    cache: crate::CacheRetention,
    options: &crate::RequestOptions,
    sampling: Option<&atomic_protocol::json::Raw>,
) -> Vec<u8> {
    request::body(request, &Compat::of(&request.model), cache, &options.thinking_budgets, sampling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Scheme, Secret, Source};

    fn request(spec: &str) -> ModelRequest {
        request::tests::request(spec, &[])
    }

    fn credential(scheme: Scheme, headers: &[(&str, Option<&str>)]) -> Credential {
        Credential {
            key: Some(Secret("k1".into())),
            scheme,
            source: Source::Stored,
            headers: headers.iter().map(|(n, v)| ((*n).into(), v.map(|v| Secret(v.into())))).collect(),
            env: [("CLOUDFLARE_ACCOUNT_ID", "acc")].into_iter().collect(),
        }
    }

    fn shown(request: &ModelRequest, credential: &Credential) -> Vec<String> {
        let map = headers(request, &Compat::of(&request.model), credential).unwrap();
        let mut lines: Vec<String> =
            map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn headers_are_merged_in_order() {
        let plain = request(r#"{"id":"m","provider":"anthropic"}"#);
        assert_eq!(
            shown(&plain, &credential(Scheme::ApiKey, &[])),
            [
                "accept: application/json",
                "anthropic-beta: interleaved-thinking-2025-05-14",
                "anthropic-version: 2023-06-01",
                "content-type: application/json",
                "x-api-key: k1"
            ]
        );
        let mut rich = request(
            r#"{"id":"m","provider":"anthropic","headers":{"X-One":"model","X-Two":"model","Accept":null},
                "compat":{"forceAdaptiveThinking":true,"sendSessionAffinityHeaders":true,"supportsEagerToolInputStreaming":false,"allowedFallbackModels":[{"model":"o"}]}}"#,
        );
        rich.tools = request::tests::tools();
        let user = [("x-two", Some("user")), ("anthropic-beta", Some("mine")), ("content-type", Some("a/b"))];
        assert_eq!(
            shown(&rich, &credential(Scheme::Bearer, &user)),
            [
                "anthropic-beta: fine-grained-tool-streaming-2025-05-14,server-side-fallback-2026-07-01,mine",
                "anthropic-version: 2023-06-01",
                "authorization: Bearer k1",
                "content-type: a/b",
                "x-one: model",
                "x-session-affinity: session",
                "x-two: user"
            ]
        );
        let gateway = request(
            r#"{"id":"m","provider":"cloudflare-ai-gateway","compat":{"forceAdaptiveThinking":true}}"#,
        );
        assert!(
            shown(&gateway, &credential(Scheme::ApiKey, &[]))
                .contains(&"cf-aig-authorization: Bearer k1".into())
        );
        let broken = credential(Scheme::ApiKey, &[("x-a", Some("two\nlines"))]);
        let error = headers(&plain, &Compat::of(&plain.model), &broken).unwrap_err().to_string();
        assert!(error.contains("header x-a of anthropic") && !error.contains("two"), "{error}");
    }
}
