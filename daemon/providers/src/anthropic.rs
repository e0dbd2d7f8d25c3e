//! Anthropic's Messages API (docs.anthropic.com, "Messages" and "Streaming messages"), and the endpoints of others that
//! speak it.

mod compat;
mod request;
mod stream;

use std::collections::BTreeMap;

use atomic_protocol::model::{Model, ModelEvent, ModelRequest};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::mpsc;

use crate::auth::{Credential, Scheme};
use crate::error::Error;
use crate::http::{self, Http, secret_value};
use crate::pump::{Stop, pump};
use crate::registry::{CacheRetention, Registry};
use atomic_protocol::model::ModelFailure;
use compat::Compat;

/// The dialect's name in models.
pub const API: &str = "anthropic-messages";

/// The version of the API this adapter was written against.
const VERSION: &str = "2023-06-01";

/// Asks for tool arguments as they are written, from endpoints that have no per-tool switch for it.
const BETA_TOOL_STREAMING: &str = "fine-grained-tool-streaming-2025-05-14";
/// Lets models with a thinking budget think between tool calls.
const BETA_INTERLEAVED: &str = "interleaved-thinking-2025-05-14";
/// Lets the provider answer with the named other models.
const BETA_FALLBACK: &str = "server-side-fallback-2026-07-01";

pub(crate) async fn stream(
    http: &Http,
    registry: &Registry,
    request: &ModelRequest,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop> {
    let failed = |error: Error| Stop::Failed(ModelFailure::new(error.to_string()));
    let credential = registry.credential(&request.model).await.map_err(failed)?;
    let outcome = ask(http, registry, request, &credential, sink).await;
    outcome.map_err(|stop| match stop {
        Stop::Failed(failure) => {
            Stop::Failed(ModelFailure { message: credential.redact(failure.message), ..failure })
        }
        Stop::SinkClosed => Stop::SinkClosed,
    })
}

async fn ask(
    http: &Http,
    registry: &Registry,
    request: &ModelRequest,
    credential: &Credential,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop> {
    let failed = |error: Error| Stop::Failed(ModelFailure::new(error.to_string()));
    let options = registry.options();
    let compat = Compat::of(&request.model);
    let cache = options.cache_retention.unwrap_or_else(|| match credential.env.get("PI_CACHE_RETENTION") {
        Some("long") => CacheRetention::Long,
        _ => CacheRetention::Short,
    });
    let url = address(&request.model, credential).map_err(failed)?;
    let headers = headers(request, &compat, credential).map_err(failed)?;
    let body = request::body(request, &compat, cache, &options.thinking_budgets);
    let client = http.client(&credential.env).await.map_err(failed)?;
    let response = http::post(&client, &url, headers, body, options.deadline).await?;
    let mut mapper = stream::Answer::new(&request.model, compat.fallbacks);
    pump(http::pieces(response), &mut mapper, options.deadline, sink).await
}

/// Where to send. `{NAME}` in a base address stands for a variable.
fn address(model: &Model, credential: &Credential) -> Result<String, Error> {
    let mut url = String::new();
    let mut rest = model.base_url.trim().trim_end_matches('/');
    while let Some((before, after)) = rest.split_once('{') {
        let Some((variable, tail)) = after.split_once('}') else { break };
        url.push_str(before);
        url.push_str(credential.env.get(variable).ok_or_else(|| Error::Address {
            provider: model.provider.clone(),
            variable: variable.to_owned(),
        })?);
        rest = tail;
    }
    url.push_str(rest);
    url.push_str("/v1/messages");
    Ok(url)
}

/// In rising order: ours, the model's, the user's; of one name the last wins, and nothing takes it away. The list of
/// betas is joined, not replaced.
fn headers(request: &ModelRequest, compat: &Compat, credential: &Credential) -> Result<HeaderMap, Error> {
    let mut all: BTreeMap<String, Option<HeaderValue>> = BTreeMap::new();
    let mut set = |name: &str, value: Option<HeaderValue>| all.insert(name.to_ascii_lowercase(), value);
    set("accept", Some(HeaderValue::from_static("application/json")));
    set("content-type", Some(HeaderValue::from_static("application/json")));
    set("anthropic-version", Some(HeaderValue::from_static(VERSION)));
    let provider = &request.model.provider;
    let bad = |what: &str| Error::BadHeader { provider: provider.clone(), what: what.to_owned() };
    if let Some(key) = &credential.key {
        let bearer = || secret_value(&format!("Bearer {}", key.0));
        let (name, value) = match credential.scheme {
            Scheme::Bearer => ("authorization", bearer()),
            // The gateway's own key; the vendor's stands in the gateway's configuration.
            Scheme::ApiKey if provider == "cloudflare-ai-gateway" => ("cf-aig-authorization", bearer()),
            Scheme::ApiKey => ("x-api-key", secret_value(&key.0)),
        };
        set(name, Some(value.ok_or_else(|| bad("API key"))?));
    }
    if compat.session_affinity {
        set("x-session-affinity", secret_value(&request.session_id));
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
    let of_model = request.model.headers.iter().flatten().map(|(name, value)| (name, value.as_deref()));
    let of_user = credential.headers.iter().map(|(name, value)| (name, value.as_ref().map(|v| v.0.as_str())));
    for (name, value) in of_model.chain(of_user) {
        match value {
            Some(value) if name.eq_ignore_ascii_case("anthropic-beta") => {
                betas.extend(value.split(',').map(str::trim));
            }
            Some(value) => {
                let value = secret_value(value).ok_or_else(|| bad(&format!("header {name}")))?;
                set(name, Some(value));
            }
            None if name.eq_ignore_ascii_case("anthropic-beta") => betas.clear(),
            None => drop(set(name, None)),
        }
    }
    if !betas.is_empty() {
        set(
            "anthropic-beta",
            Some(HeaderValue::from_str(&betas.join(",")).map_err(|_| bad("header anthropic-beta"))?),
        );
    }
    let mut map = HeaderMap::with_capacity(all.len());
    for (name, value) in all {
        if let Some(value) = value {
            map.insert(HeaderName::try_from(&name).map_err(|_| bad(&format!("header name {name}")))?, value);
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Secret, Source};
    use atomic_protocol::json::Raw;
    use atomic_protocol::model::ModelSpec;

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

    #[test]
    fn addresses_are_filled_in() {
        for (base, want) in [
            ("https://api.example", Ok("https://api.example/v1/messages")),
            ("https://api.example/", Ok("https://api.example/v1/messages")),
            ("https://g/{CLOUDFLARE_ACCOUNT_ID}/x//", Ok("https://g/acc/x/v1/messages")),
            ("https://g/{NOPE}/x", Err("NOPE")),
        ] {
            let spec: ModelSpec = Raw::parse(&format!(r#"{{"id":"m","provider":"p","baseUrl":"{base}"}}"#))
                .unwrap()
                .read()
                .unwrap();
            match (address(&Model::from_spec(spec), &credential(Scheme::ApiKey, &[])), want) {
                (Ok(url), Ok(want)) => assert_eq!(url, want),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{error}"),
                (got, want) => panic!("{base}: {got:?}, not {want:?}"),
            }
        }
    }
}
