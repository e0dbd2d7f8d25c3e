//! OpenAI's Responses API (platform.openai.com, "Responses", with "Streaming events"), as OpenAI, Azure and others
//! speak it. Nothing is stored at the provider: what it thought comes encrypted and goes back with the conversation.
//!
//! # What goes back
//!
//! A thinking block's signature is the provider's reasoning item, verbatim. A text's signature is
//! `{"v":1,"id":…,"phase":…}` of its message item. A tool call's id is `call_id|item_id`; the second half goes back to
//! the same model only, because the provider checks which reasoning an item was made with.
//!
//! # How an answer ends
//!
//! | `status` | means |
//! |---|---|
//! | `completed` | the model is done; with tool calls: it waits for their results |
//! | `incomplete`, reason `max_output_tokens` | the limit of output tokens |
//! | `incomplete`, any other reason | a failure that names the reason |
//! | `failed`, `cancelled` | a failure with the provider's code and text |
//! | anything else | a failure that names the word |

pub mod azure;
mod compat;
mod records;
mod request;
mod stream;

use atomic_protocol::json::{Fields, Raw};
use atomic_protocol::model::{ModelEvent, ModelRequest};
use reqwest::header::HeaderMap;
use tokio::sync::mpsc;

use crate::auth::Credential;
use crate::endpoint::{self, Headers};
use crate::error::Error;
use crate::http::{self, Http};
use crate::pump::{Stop, pump};
use crate::registry::{CacheRetention, Registry};
use compat::Compat;

/// The dialect's name in models.
pub const API: &str = "openai-responses";

/// Sends the request and maps what comes.
pub(crate) async fn ask(
    http: &Http,
    registry: &Registry,
    request: &ModelRequest,
    credential: &Credential,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop> {
    let model = &*request.model;
    let options = registry.options();
    let compat = Compat::of(model);
    let cache = options.cache(&credential.env);
    let url = endpoint::address(model, credential, "/responses")?;
    let headers = headers(request, &compat, cache, credential)?;
    let sampling = registry.sampling_params(model);
    let body = request::body(request, &compat, cache, &model.id, sampling);
    let client = http.client(&credential.env).await?;
    let response = http::post(&client, &url, headers, body, options.deadline).await?;
    let mut answer = stream::Answer::new(model, Some(asked_tier(sampling)));
    pump(http::events(response), &mut answer, options.deadline, sink).await
}

/// The tier of service that the user's `samplingParams` ask for (`{"service_tier": "flex"}`), else nothing.
fn asked_tier(sampling: Option<&Raw>) -> String {
    let fields = sampling.and_then(|sampling| Fields::parse(sampling.as_str()).ok()).unwrap_or_default();
    fields.str("service_tier").unwrap_or_default().into_owned()
}

/// In rising order: those that lead a session's requests to the same machine, ours, the model's, the user's.
fn headers(
    request: &ModelRequest,
    compat: &Compat,
    cache: CacheRetention,
    credential: &Credential,
) -> Result<HeaderMap, Error> {
    let mut headers = Headers::new(&request.model.provider);
    if cache != CacheRetention::None && !request.session_id.is_empty() {
        for name in compat.affinity {
            headers.secret(name, &request.session_id, "session id")?;
        }
    }
    headers.key(credential, None)?;
    for (name, value) in endpoint::configured(&request.model, credential) {
        headers.configured(name, value)?;
    }
    headers.finish()
}

#[cfg(any(test, fuzzing))]
pub(crate) fn answer(model: &atomic_protocol::model::Model) -> impl crate::pump::Mapper + '_ {
    stream::Answer::new(model, Some(String::new()))
}

#[cfg(test)]
pub(crate) fn headers_of(request: &ModelRequest, cache: CacheRetention) -> HeaderMap {
    headers(request, &Compat::of(&request.model), cache, &crate::proof::credential()).expect("headers")
}

#[cfg(test)]
pub(crate) fn body_of(request: &ModelRequest, cache: CacheRetention) -> Vec<u8> {
    request::body(request, &Compat::of(&request.model), cache, &request.model.id, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Scheme, Secret, Source};

    #[test]
    fn headers_follow_the_affinity_format() {
        let session = "x-client-request-id: session";
        for (spec, cache, want) in [
            (
                r#"{"id":"m","provider":"openai"}"#,
                CacheRetention::Short,
                vec!["authorization: Bearer k1", "session-id: session", session],
            ),
            (r#"{"id":"m","provider":"openai"}"#, CacheRetention::None, vec!["authorization: Bearer k1"]),
            (
                r#"{"id":"m","provider":"p","compat":{"sessionAffinityFormat":"openai-nosession"}}"#,
                CacheRetention::Long,
                vec!["authorization: Bearer k1", session],
            ),
            (
                r#"{"id":"m","provider":"openrouter"}"#,
                CacheRetention::Short,
                vec!["authorization: Bearer k1", "x-session-id: session"],
            ),
            (
                r#"{"id":"m","provider":"cloudflare-ai-gateway"}"#,
                CacheRetention::None,
                vec!["cf-aig-authorization: Bearer k1"],
            ),
        ] {
            let request = crate::proof::request(spec, &[]);
            let credential = Credential {
                key: Some(Secret("k1".into())),
                scheme: Scheme::ApiKey,
                source: Source::Stored,
                headers: Vec::new(),
                env: crate::Env::default(),
            };
            let map = headers(&request, &Compat::of(&request.model), cache, &credential).unwrap();
            let mut lines: Vec<String> =
                map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            lines.sort();
            lines.retain(|line| !line.ends_with("application/json"));
            assert_eq!(lines, want, "{spec}");
        }
    }
}
