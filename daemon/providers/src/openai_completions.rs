//! OpenAI's Chat Completions API (platform.openai.com, "Chat Completions", with "Streaming"), which most other providers
//! and nearly every server that runs on one's own machine speak too.
//!
//! # Local servers
//!
//! Those of [`crate::local_providers`] are asked what they have. Another one is described in `models.json` of the agent
//! directory. `id` is the name the server knows; `apiKey` is needed and may be any text where the server asks for none.
//! `baseUrl` ends with `/v1`:
//!
//! ```json
//! {"providers": {"mine": {
//!   "baseUrl": "http://gpu.lan:8080/v1", "api": "openai-completions", "apiKey": "none",
//!   "models": [{"id": "gpt-oss-20b", "contextWindow": 65536, "reasoning": true, "thinkingLevelMap": {"minimal": null}}]
//! }}}
//! ```
//!
//! `contextWindow` should be what the server was started with: Ollama cuts longer prompts without a word. `input` is
//! `["text", "image"]` for models that see. `samplingParams` of a model (`{"temperature": 0.6}`) goes into each request
//! and wins over what this program would send. Where a server differs, `compat` says how; its keys stand in `compat.rs`.
//!
//! # Thinking
//!
//! It is read from `reasoning_content`, `reasoning`, `reasoning_text`, `reasoning_details` and from `<think>` at the
//! beginning of the text. The block's signature says how it goes back to the same model: the name of the field it came
//! in, or the details themselves as a list; thinking from the text has none and does not go back.
//!
//! # How an answer ends
//!
//! | `finish_reason` | means |
//! |---|---|
//! | `stop`, `end` | the model is done; with tool calls: it waits for their results |
//! | `tool_calls`, `function_call` | it waits for results |
//! | `length` | the limit of output tokens |
//! | anything else | a failure that names the word |
//! | null, empty, none at all | not yet; at the end of the stream a failure, unless `supportsFinishReason` is false |

mod compat;
mod reasoning;
mod request;
mod stream;
mod think_tag;

use atomic_protocol::model::{ModelEvent, ModelRequest};
use reqwest::header::HeaderMap;
use tokio::sync::mpsc;

use crate::auth::Credential;
use crate::endpoint::{self, Headers};
use crate::error::Error;
use crate::http::{self, Http};
use crate::openai_responses::azure;
use crate::pump::{Stop, pump};
use crate::registry::{CacheRetention, Registry};
use compat::Compat;

/// The dialect's name in models.
pub const API: &str = "openai-completions";

/// The fields in which endpoints send thinking, best first: some fill two with the same text.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// Begins the user message that shows the images of tool results.
const IMAGES_OF_RESULTS: &str = "Attached image(s) from tool result:";

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
    // Azure is the one provider of this dialect whose address and names of models are the user's own.
    let (url, name) = if model.provider == "azure" {
        let base = azure::base(model, &credential.env)?;
        (format!("{base}/chat/completions"), azure::deployment(model, &credential.env))
    } else {
        (endpoint::address(model, credential, "/chat/completions")?, model.id.as_str())
    };
    let headers = headers(request, &compat, cache, credential)?;
    let body = request::body(request, &compat, cache, name, options, registry.sampling_params(model));
    let client = http.client(&credential.env).await?;
    let response = http::post(&client, &url, headers, body, options.deadline).await?;
    let mut answer = stream::Answer::new(model, compat.finish_reason);
    pump(http::events(response), &mut answer, options.deadline, sink).await
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
    stream::Answer::new(model, true)
}

#[cfg(test)]
pub(crate) fn headers_of(request: &ModelRequest, cache: CacheRetention) -> HeaderMap {
    headers(request, &Compat::of(&request.model), cache, &crate::proof::credential()).expect("headers")
}

#[cfg(test)]
pub(crate) fn body_of(
    request: &ModelRequest,
    cache: CacheRetention,
    options: &crate::RequestOptions,
) -> Vec<u8> {
    request::body(request, &Compat::of(&request.model), cache, &request.model.id, options, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Scheme, Secret, Source};

    fn shown(spec: &str, cache: CacheRetention, headers_of_user: &[(&str, Option<&str>)]) -> Vec<String> {
        let request = request::tests::request(spec, &[]);
        let credential = Credential {
            key: Some(Secret("k1".into())),
            scheme: Scheme::ApiKey,
            source: Source::Stored,
            headers: headers_of_user
                .iter()
                .map(|(n, v)| ((*n).into(), v.map(|v| Secret(v.into()))))
                .collect(),
            env: [("UNUSED", "")].into_iter().collect(),
        };
        let map = headers(&request, &Compat::of(&request.model), cache, &credential).unwrap();
        let mut lines: Vec<String> =
            map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines.retain(|line| !line.ends_with("application/json"));
        lines
    }

    #[test]
    fn headers_follow_provider_and_user() {
        let short = CacheRetention::Short;
        for (spec, cache, user, want) in [
            (r#"{"id":"m","provider":"p"}"#, short, &[][..], &["authorization: Bearer k1"][..]),
            (
                r#"{"id":"m","provider":"openrouter"}"#,
                short,
                &[],
                &["authorization: Bearer k1", "x-session-id: session"],
            ),
            (
                r#"{"id":"m","provider":"openrouter"}"#,
                CacheRetention::None,
                &[],
                &["authorization: Bearer k1"],
            ),
            (
                r#"{"id":"m","provider":"p","compat":{"sendSessionAffinityHeaders":true},"headers":{"X-A":"model","session_id":null}}"#,
                short,
                &[("x-a", Some("user")), ("Authorization", None)],
                &["x-a: user", "x-client-request-id: session", "x-session-affinity: session"],
            ),
            (
                r#"{"id":"m","provider":"cloudflare-ai-gateway"}"#,
                short,
                &[],
                &["cf-aig-authorization: Bearer k1"],
            ),
        ] {
            assert_eq!(shown(spec, cache, user), want, "{spec}");
        }
    }

    /// What the module's documentation tells people to write works.
    #[tokio::test]
    async fn the_documented_files_are_right() {
        let text: String = include_str!("openai_completions.rs")
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .map(|line| format!("{line}\n"))
            .collect();
        let files: Vec<&str> =
            text.split("```json").skip(1).filter_map(|part| part.split("```").next()).collect();
        assert_eq!(files.len(), 1);
        for file in files {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("models.json"), file).unwrap();
            let setup = crate::Setup { agent_dir: dir.path().to_owned(), ..crate::Setup::default() };
            let registry = Registry::load(setup);
            assert!(registry.warnings().is_empty(), "{:?}", registry.warnings());
            let models = registry.available();
            assert_eq!((models.len(), models[0].api.as_str()), (1, API));
            assert!(registry.credential(&models[0]).await.is_ok());
        }
    }
}
