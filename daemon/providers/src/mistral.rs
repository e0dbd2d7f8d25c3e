//! Mistral's own Chat Completions API (docs.mistral.ai, "Chat Completion", streamed): close to OpenAI's, but content comes
//! in chunks of text and thinking, and ids of calls have exactly nine letters and digits.
//!
//! # How an answer ends
//!
//! | `finish_reason` | means |
//! |---|---|
//! | `stop` | the model is done; with tool calls: it waits for their results |
//! | `tool_calls` | it waits for results |
//! | `length`, `model_length` | the limit of output tokens, the end of the context window |
//! | `error` | a failure of the server, which passes |
//! | anything else | a failure that names the word |
//! | none at all | a failure at the end of the stream |

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
use crate::registry::{CacheRetention, Registry};

/// The dialect's name in models.
pub const API: &str = "mistral-conversations";

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
    let cache = options.cache(&credential.env);
    let url = endpoint::address(model, credential, "/v1/chat/completions")?;
    let headers = headers(request, cache, credential)?;
    let body = request::body(request, cache, registry.sampling_params(model));
    let client = http.client(&credential.env).await?;
    let response = http::post(&client, &url, headers, body, options.deadline).await?;
    pump(http::events(response), &mut stream::Answer::new(model), options.deadline, sink).await
}

/// In rising order: the one that leads a session's requests to the same machine, ours, the model's, the user's.
fn headers(
    request: &ModelRequest,
    cache: CacheRetention,
    credential: &Credential,
) -> Result<HeaderMap, Error> {
    let mut headers = Headers::new(&request.model.provider);
    headers.fixed("accept", "text/event-stream");
    if cache != CacheRetention::None && !request.session_id.is_empty() {
        headers.secret("x-affinity", &request.session_id, "session id")?;
    }
    headers.key(credential, None)?;
    for (name, value) in endpoint::configured(&request.model, credential) {
        headers.configured(name, value)?;
    }
    headers.finish()
}

#[cfg(any(test, fuzzing))]
pub(crate) fn answer(model: &atomic_protocol::model::Model) -> impl crate::pump::Mapper + '_ {
    stream::Answer::new(model)
}

#[cfg(test)]
pub(crate) fn body_of(request: &ModelRequest, cache: CacheRetention) -> Vec<u8> {
    request::body(request, cache, None)
}
