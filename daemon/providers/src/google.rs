//! Google's Gemini API (ai.google.dev, "Generate content", streamed), at Google's developer endpoint, at Vertex AI and at
//! gateways that speak it.
//!
//! # What goes back
//!
//! Each part may carry a signature of what the model thought before it; it goes back with that part and to the same
//! model only. The signature of a text block may stand on an empty text.
//!
//! # How an answer ends
//!
//! | `finishReason` | means |
//! |---|---|
//! | `STOP` | the model is done; with tool calls: it waits for their results |
//! | `MAX_TOKENS`, `CONTINUATION` | the limit of output tokens |
//! | anything else, `promptFeedback.blockReason` | a failure that names the word |
//! | none at all | a failure at the end of the stream |

mod request;
mod stream;
pub mod vertex;

use atomic_protocol::model::{ModelEvent, ModelRequest};
use reqwest::header::HeaderMap;
use tokio::sync::mpsc;

use crate::auth::Credential;
use crate::endpoint::{self, Headers};
use crate::error::Error;
use crate::http::{self, Http};
use crate::pump::{Stop, pump};
use crate::registry::Registry;

/// The dialect's name in models.
pub const API: &str = "google-generative-ai";

/// The header that carries a key.
const KEY: &str = "x-goog-api-key";

/// Sends the request and maps what comes.
pub(crate) async fn ask(
    http: &Http,
    registry: &Registry,
    request: &ModelRequest,
    credential: &Credential,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop> {
    let model = &*request.model;
    let url = endpoint::address(model, credential, &format!("/models/{}{METHOD}", model.id))?;
    send(http, registry, request, credential, &url, Some(KEY), sink).await
}

/// What is asked of a model.
const METHOD: &str = ":streamGenerateContent?alt=sse";

/// The rest is the same at each endpoint. `key` is the header for the key.
async fn send(
    http: &Http,
    registry: &Registry,
    request: &ModelRequest,
    credential: &Credential,
    url: &str,
    key: Option<&str>,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop> {
    let model = &*request.model;
    let options = registry.options();
    let headers = headers(request, credential, key)?;
    let body = request::body(request, &options.thinking_budgets, registry.sampling_params(model));
    let client = http.client(&credential.env).await?;
    let response = http::post(&client, url, headers, body, options.deadline).await?;
    pump(http::events(response), &mut stream::Answer::new(model), options.deadline, sink).await
}

/// In rising order: ours, the model's, the user's.
fn headers(request: &ModelRequest, credential: &Credential, key: Option<&str>) -> Result<HeaderMap, Error> {
    let mut headers = Headers::new(&request.model.provider);
    headers.key(credential, key)?;
    for (name, value) in endpoint::configured(&request.model, credential) {
        headers.configured(name, value)?;
    }
    headers.finish()
}

/// What is known about a model by its name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traits {
    /// Calls and their results carry ids.
    ids: bool,
    /// Results carry images.
    images_in_results: bool,
    /// How it is told how much to think.
    thinking: Thinking,
}

/// How a model is told how much to think (ai.google.dev, "Gemini thinking").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thinking {
    /// By a word.
    Level,
    /// By a number of tokens for minimal, low, medium and high, and the least it takes.
    Budget([i64; 4], i64),
}

impl Traits {
    fn of(id: &str) -> Traits {
        let id = id.to_ascii_lowercase();
        let version = gemini_version(&id);
        let named = |name: &str| id.contains(name);
        let level = version.is_some_and(|version| version >= 3)
            || matches!(
                id.as_str(),
                "gemini-flash-latest" | "gemini-flash-lite-latest" | "gemini-pro-latest"
            )
            || named("gemini-robotics-er-2")
            || named("gemma-4")
            || named("gemma4");
        let thinking = if level {
            Thinking::Level
        } else if named("2.5-pro") {
            // This one cannot be kept from thinking.
            Thinking::Budget([128, 2048, 8192, 32_768], 128)
        } else if named("2.5-flash-lite") {
            Thinking::Budget([512, 2048, 8192, 24_576], 0)
        } else if named("2.5-flash") {
            Thinking::Budget([128, 2048, 8192, 24_576], 0)
        } else {
            // The model decides.
            Thinking::Budget([-1; 4], 0)
        };
        Traits {
            ids: version.is_some_and(|version| version >= 3)
                || id.starts_with("claude-")
                || id.starts_with("gpt-oss-"),
            images_in_results: version.is_none_or(|version| version >= 3),
            thinking,
        }
    }
}

/// The major version in a name like `gemini-3.1-pro`.
fn gemini_version(id: &str) -> Option<u32> {
    let rest = id.strip_prefix("gemini-")?;
    let rest = rest.strip_prefix("live-").unwrap_or(rest);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(any(test, fuzzing))]
pub(crate) fn answer(model: &atomic_protocol::model::Model) -> impl crate::pump::Mapper + '_ {
    stream::Answer::new(model)
}

#[cfg(test)]
pub(crate) fn body_of(request: &ModelRequest, options: &crate::RequestOptions) -> Vec<u8> {
    request::body(request, &options.thinking_budgets, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_known_by_name() {
        let line = |id: &str| {
            let Traits { ids, images_in_results, thinking } = Traits::of(id);
            let thinking = match thinking {
                Thinking::Level => "level".to_owned(),
                Thinking::Budget(steps, least) => format!("{steps:?} {least}"),
            };
            format!("{} {} {thinking}", u8::from(ids), u8::from(images_in_results))
        };
        for (id, want) in [
            ("gemini-2.5-pro", "0 0 [128, 2048, 8192, 32768] 128"),
            ("gemini-2.5-flash-lite", "0 0 [512, 2048, 8192, 24576] 0"),
            ("gemini-2.5-flash", "0 0 [128, 2048, 8192, 24576] 0"),
            ("gemini-2.5-computer-use-preview-10-2025", "0 0 [-1, -1, -1, -1] 0"),
            ("gemini-3-flash-preview", "1 1 level"),
            ("gemini-3.1-pro-preview", "1 1 level"),
            ("gemini-4-argon", "1 1 level"),
            ("gemini-live-10-x", "1 1 level"),
            ("gemini-flash-latest", "0 1 level"),
            ("gemma-4-31b-it", "0 1 level"),
            ("claude-opus", "1 1 [-1, -1, -1, -1] 0"),
            ("deep-research-preview-04-2026", "0 1 [-1, -1, -1, -1] 0"),
        ] {
            assert_eq!(line(id), want, "{id}");
        }
    }
}
