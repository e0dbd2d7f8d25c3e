//! Model catalog, credentials, and one folder per vendor API.
//!
//! * [`Catalog`] is the shipped table of models; [`Registry`] is one session's view of it: with the user's own
//!   `models.json`, with the keys this session can find, with its environment.
//! * [`stream`] asks a model and sends what it answers, in the words of [`atomic_protocol::model`]. Vendors' words stay
//!   in their folder: [`anthropic`], [`openai_completions`], and a built-in [`demo`] that needs neither key nor network.
//! * Inside, no vendor's code touches sockets or time: `http` sends, `sse` cuts bytes into events, `pump` keeps the
//!   deadline and makes batches, `endpoint` merges headers, `transform` fits a conversation to a model and `images` its
//!   images; `blocks` and `record` are what the mappers of all vendors share.
//!
//! Nothing here reads the process's environment or working directory.

#![forbid(unsafe_code)]

pub mod anthropic;
#[cfg(any(test, fuzzing))]
pub mod any_stream;
mod auth;
pub mod bedrock;
mod blocks;
mod body;
mod catalog;
mod check;
mod config_value;
mod cost;
pub mod demo;
mod diagnostic;
mod endpoint;
mod env;
mod error;
mod estimate;
#[cfg(test)]
mod flags;
pub mod google;
mod google_adc;
mod http;
mod images;
#[cfg(test)]
mod judge;
mod local;
mod login;
pub mod mistral;
mod models_json;
pub mod openai_completions;
pub mod openai_responses;
pub mod openrouter;
mod partial_json;
mod pool;
#[cfg(test)]
mod proof;
mod pump;
mod record;
mod registry;
mod resolve;
mod shell;
#[cfg(test)]
mod speed;
mod sse;
mod stamp;
mod thinking_budget;
mod transform;
mod wire;

use atomic_protocol::model::{ModelEvent, ModelFailure, ModelRequest};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use auth::{Credential, Scheme, Source, key_variables};
pub use catalog::Catalog;
pub use check::{CHECK_DEADLINE, Checked};
pub use cost::price_is_known;
pub use env::Env;
pub use error::Error;
pub use http::{CONNECT_TIMEOUT, Http};
pub use local::{LIST_DEADLINE, UNKNOWN_CONTEXT, is_local, local_providers};
pub use login::stored_key;
pub use partial_json::arguments as beginning_of_arguments;
pub use pool::Pool;
pub use registry::{
    CacheRetention, KeyStatus, Registry, RequestOptions, SPOKEN_APIS, STREAM_DEADLINE, Setup,
};
pub use resolve::Resolved;

use pump::Stop;

/// Batches that fit into a sink. A few keep network and session busy at the same time; more would only delay the moment
/// when a slow reader slows the provider down.
pub const SINK_CAPACITY: usize = 16;

/// Asks a model. Each batch in `sink` holds the events of one piece of the answer as it came from the network; the last
/// event of the last batch is the only terminal one, [`ModelEvent::Done`] or [`ModelEvent::Failed`].
///
/// Every failure is an event, a missing key included. There are two silent ends: after `cancel`, and when nobody holds
/// the receiver any more. Either way the connection is closed at once. Nothing is tried twice: retrying is the agent's
/// decision.
pub async fn stream(
    http: &Http,
    registry: &Registry,
    request: ModelRequest,
    sink: mpsc::Sender<Vec<ModelEvent>>,
    cancel: CancellationToken,
) {
    let run = async {
        let outcome = match request.model.api.as_str() {
            api if SPOKEN_APIS.contains(&api) => ask(http, registry, request, &sink).await,
            demo::API => demo::stream(registry.env(), &request, &sink).await,
            other => Err(Stop::Failed(ModelFailure::new(format!(
                "Model {}/{} speaks \"{other}\", which this version of atomic does not. Choose another with --model or set_model.",
                request.model.provider, request.model.id
            )))),
        };
        if let Err(Stop::Failed(failure)) = outcome {
            // Nobody listening is not a failure of ours.
            let _ = sink.send(vec![ModelEvent::Failed(failure)]).await;
        }
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        () = run => {}
    }
}

/// Asks a vendor. What it says about a failure is reported without the key.
async fn ask(
    http: &Http,
    registry: &Registry,
    request: ModelRequest,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop> {
    let request = &images::fitted(request, registry.options().resize_images).await;
    let credential = registry.credential(&request.model).await?;
    let outcome = match request.model.api.as_str() {
        openai_completions::API => openai_completions::ask(http, registry, request, &credential, sink).await,
        openai_responses::API => openai_responses::ask(http, registry, request, &credential, sink).await,
        openai_responses::azure::API => {
            openai_responses::azure::ask(http, registry, request, &credential, sink).await
        }
        google::API => google::ask(http, registry, request, &credential, sink).await,
        google::vertex::API => google::vertex::ask(http, registry, request, &credential, sink).await,
        mistral::API => mistral::ask(http, registry, request, &credential, sink).await,
        bedrock::API => bedrock::ask(http, registry, request, &credential, sink).await,
        _ => anthropic::ask(http, registry, request, &credential, sink).await,
    };
    outcome.map_err(|stop| match stop {
        Stop::Failed(failure) => {
            Stop::Failed(ModelFailure { message: credential.redact(failure.message), ..failure })
        }
        Stop::SinkClosed => Stop::SinkClosed,
    })
}

/// What would be sent, without sending it.
#[cfg(test)]
fn body_of(request: &ModelRequest, cache: CacheRetention, options: &RequestOptions) -> Vec<u8> {
    match request.model.api.as_str() {
        openai_completions::API => openai_completions::body_of(request, cache, options),
        openai_responses::API | openai_responses::azure::API => openai_responses::body_of(request, cache),
        google::API | google::vertex::API => google::body_of(request, options),
        mistral::API => mistral::body_of(request, cache),
        bedrock::API => bedrock::body_of(request, cache, options),
        _ => anthropic::body_of(request, cache, options, None),
    }
}
