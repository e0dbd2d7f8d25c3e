//! Amazon Bedrock's ConverseStream (docs.aws.amazon.com, "ConverseStream"): one form of request for the models of many
//! vendors, signed or with a key, answered in AWS's own binary frames.
//!
//! | variable | says |
//! |---|---|
//! | `AWS_BEARER_TOKEN_BEDROCK` | a key; nothing is signed then |
//! | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` | what requests are signed with |
//! | `AWS_PROFILE`, `AWS_SHARED_CREDENTIALS_FILE`, `AWS_CONFIG_FILE` | where else that stands |
//! | `AWS_REGION`, `AWS_DEFAULT_REGION` | the region |
//! | `AWS_BEDROCK_SKIP_AUTH` | `1`: a proxy signs, we do not |
//! | `AWS_BEDROCK_FORCE_CACHE` | `1`: the model behind an inference profile of the user's own takes cache points |
//!
//! Of a profile its keys are used; one that has to be exchanged first (single sign-on, roles, `credential_process`) is
//! refused with its name.
//!
//! # How an answer ends
//!
//! | `stopReason` | means |
//! |---|---|
//! | `end_turn`, `stop_sequence` | the model is done |
//! | `tool_use` | it waits for results |
//! | `max_tokens`, `model_context_window_exceeded` | the limit of output tokens, the end of the context window |
//! | anything else | a failure that names the word |
//! | none at all | a failure at the end of the stream |
//!
//! `supportsStrictMode`, the one key of `compat` that shipped models of this dialect have, does nothing: no tool of ours
//! asks for a strict schema.

mod frames;
mod place;
pub(crate) mod profile;
mod request;
mod stream;

use std::time::SystemTime;

use atomic_protocol::model::{ModelEvent, ModelFailure, ModelRequest};
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use reqwest::header::{HeaderMap, HeaderName};
use tokio::sync::mpsc;

use crate::auth::{Credential, Scheme};
use crate::endpoint::{self, Headers};
use crate::error::Error;
use crate::http::{self, Http, secret_value};
use crate::pump::{Stop, pump};
use crate::registry::Registry;
pub(crate) use frames::events;
use profile::Keys;

/// The dialect's name in models.
pub const API: &str = "bedrock-converse-stream";

/// The service's name in signatures.
const SERVICE: &str = "bedrock";

/// Sends the request and maps what comes.
pub(crate) async fn ask(
    http: &Http,
    registry: &Registry,
    request: &ModelRequest,
    credential: &Credential,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop> {
    let model = &*request.model;
    let env = &credential.env;
    let options = registry.options();
    let skip = env.get("AWS_BEDROCK_SKIP_AUTH") == Some("1");
    let own = env.get("AWS_PROFILE").filter(|name| registry.env().get("AWS_PROFILE") != Some(name));
    let found = match &credential.key {
        Some(_) => None,
        None if skip => None,
        None => Some(profile::find(env, own.is_some(), &model.provider).await?),
    };
    let region = place::region(model, env, found.as_ref().and_then(|found| found.region.as_deref()));
    let url = place::address(model, env, &region)?;
    let body = request::body(request, options.cache(env), &options.thinking_budgets, env);
    let mut headers = headers(request, credential, skip)?;
    if let Some(found) = &found {
        signed(&mut headers, &url, &body, &found.keys, &region, SystemTime::now(), &model.provider)?;
    }
    let client = http.client(env).await?;
    let response = http::post(&client, &url, headers, body, options.deadline).await.map_err(named)?;
    let mut answer = stream::Answer::new(model);
    pump(events(http::pieces(response)), &mut answer, options.deadline, sink).await
}

/// A refusal that comes instead of a stream gets the words that one inside a stream has: load is told by its first words,
/// because "Too many tokens" means too many in a minute there and too long a prompt elsewhere.
fn named(failure: ModelFailure) -> ModelFailure {
    let words = match failure.status {
        Some(429) => "Throttling error",
        Some(500) => "Internal server error",
        Some(503) => "Service unavailable",
        _ => return failure,
    };
    ModelFailure { message: format!("{words}: {}", failure.message), ..failure }
}

/// In rising order: ours, the model's, the user's. Those that a signature speaks of belong to the signature.
fn headers(request: &ModelRequest, credential: &Credential, skip: bool) -> Result<HeaderMap, Error> {
    let mut headers = Headers::new(&request.model.provider);
    headers.fixed("accept", "application/vnd.amazon.eventstream");
    for (name, value) in endpoint::configured(&request.model, credential) {
        let lower = name.to_ascii_lowercase();
        if !(lower == "authorization" || lower == "host" || lower.starts_with("x-amz-")) {
            headers.configured(name, value)?;
        }
    }
    if !skip {
        headers.key(&Credential { scheme: Scheme::Bearer, ..credential.clone() }, None)?;
    }
    headers.finish()
}

/// Adds the signature (Signature Version 4).
fn signed(
    headers: &mut HeaderMap,
    url: &str,
    body: &[u8],
    keys: &Keys,
    region: &str,
    now: SystemTime,
    provider: &str,
) -> Result<(), Error> {
    let failed = |reason: String| Error::Signature { provider: provider.to_owned(), reason };
    let identity = Credentials::new(
        keys.id.clone(),
        keys.secret.0.clone(),
        keys.token.as_ref().map(|t| t.0.clone()),
        None,
        "session",
    );
    let identity = identity.into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(SERVICE)
        .time(now)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let plain = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let signable = SignableRequest::new("POST", url, plain, SignableBody::Bytes(body))
        .map_err(|error| failed(error.to_string()))?;
    let (instructions, _) =
        sign(signable, &params.into()).map_err(|error| failed(error.to_string()))?.into_parts();
    for (name, value) in instructions.headers() {
        let name = HeaderName::try_from(name).map_err(|error| failed(error.to_string()))?;
        let value = secret_value(value).ok_or_else(|| failed(format!("a {name} that is no header")))?;
        headers.insert(name, value);
    }
    Ok(())
}

#[cfg(any(test, fuzzing))]
pub(crate) fn answer(model: &atomic_protocol::model::Model) -> impl crate::pump::Mapper + '_ {
    stream::Answer::new(model)
}

#[cfg(test)]
pub(crate) fn body_of(
    request: &ModelRequest,
    cache: crate::CacheRetention,
    options: &crate::RequestOptions,
) -> Vec<u8> {
    request::body(request, cache, &options.thinking_budgets, &crate::Env::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Secret, Source};
    use std::time::{Duration, UNIX_EPOCH};

    fn credential(key: Option<&str>) -> Credential {
        Credential {
            key: key.map(|key| Secret(key.into())),
            scheme: Scheme::ApiKey,
            source: Source::Stored,
            headers: vec![
                ("X-Mine".into(), Some(Secret("yes".into()))),
                ("Authorization".into(), Some(Secret("no".into()))),
                ("x-amz-date".into(), Some(Secret("no".into()))),
            ],
            env: crate::Env::default(),
        }
    }

    #[test]
    fn load_is_told_by_its_first_words() {
        for (status, want) in
            [(429, "Throttling error: 429 x"), (503, "Service unavailable: 429 x"), (400, "429 x")]
        {
            let failure = ModelFailure { status: Some(status), ..ModelFailure::new("429 x") };
            assert_eq!(named(failure).message, want, "{status}");
        }
    }

    #[test]
    fn a_key_is_a_bearer_token_and_signatures_are_not_the_users() {
        let request = crate::proof::request(r#"{"id":"m","provider":"amazon-bedrock"}"#, &[]);
        let map = headers(&request, &credential(Some("k1")), false).unwrap();
        assert_eq!(map["authorization"], "Bearer k1");
        assert_eq!((&map["x-mine"], map.get("x-amz-date")), (&"yes".parse().unwrap(), None));
        assert!(!headers(&request, &credential(Some("k1")), true).unwrap().contains_key("authorization"));
    }

    #[test]
    fn signatures_are_those_of_the_vendor() {
        let mut map = HeaderMap::new();
        map.insert("content-type", "application/json".parse().unwrap());
        let keys =
            Keys { id: "AKID".into(), secret: Secret("secret".into()), token: Some(Secret("tok".into())) };
        let url = "https://bedrock-runtime.us-east-1.amazonaws.com/model/a.b-v1%3A0/converse-stream";
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        signed(&mut map, url, b"{}", &keys, "us-east-1", now, "p").unwrap();
        assert_eq!(map["x-amz-date"], "20231114T221320Z");
        assert_eq!(map["x-amz-security-token"], "tok");
        let text = map["authorization"].to_str().unwrap();
        let (head, signature) = text.rsplit_once("Signature=").unwrap();
        assert_eq!(
            head,
            "AWS4-HMAC-SHA256 Credential=AKID/20231114/us-east-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, "
        );
        assert!(signature.len() == 64 && map["authorization"].is_sensitive(), "{text}");
    }
}
