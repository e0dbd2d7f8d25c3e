//! Gemini at Vertex AI (cloud.google.com, "Gemini in Vertex AI"): the same records at an address of a project and a
//! place, with a key or with the user's Application Default Credentials.
//!
//! | variable | says |
//! |---|---|
//! | `GOOGLE_CLOUD_API_KEY` | a key; project and place are not needed then |
//! | `GOOGLE_APPLICATION_CREDENTIALS` | the file of a service account or of `gcloud auth application-default login` |
//! | `GOOGLE_CLOUD_PROJECT`, `GCLOUD_PROJECT` | the project |
//! | `GOOGLE_CLOUD_LOCATION` | the place, `global` among them |
//!
//! The metadata server of Google's machines, external accounts and impersonation are not asked.

use atomic_protocol::model::{Model, ModelEvent, ModelRequest};
use tokio::sync::mpsc;

use super::{KEY, METHOD, send};
use crate::auth::{Credential, Scheme, Secret};
use crate::env::Env;
use crate::error::Error;
use crate::google_adc;
use crate::http::Http;
use crate::pump::Stop;
use crate::registry::Registry;

/// The dialect's name in models.
pub const API: &str = "google-vertex";

/// The version of the API.
const VERSION: &str = "v1";

/// Stands in `auth.json` for credentials that are found elsewhere.
const ELSEWHERE: &str = "gcp-vertex-credentials";

/// Sends the request and maps what comes.
pub(crate) async fn ask(
    http: &Http,
    registry: &Registry,
    request: &ModelRequest,
    credential: &Credential,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop> {
    let model = &*request.model;
    let key = credential.key.as_ref().filter(|key| {
        let key = key.0.trim();
        key != ELSEWHERE && !(key.starts_with('<') && key.ends_with('>'))
    });
    if key.is_some() {
        let url = address(model, &credential.env, true)?;
        return send(http, registry, request, credential, &url, Some(KEY), sink).await;
    }
    let url = address(model, &credential.env, false)?;
    let client = http.client(&credential.env).await?;
    let token =
        google_adc::token(&client, registry.google_tokens(), &credential.env, &model.provider).await?;
    let bearer = Credential { key: Some(Secret(token)), scheme: Scheme::Bearer, ..credential.clone() };
    send(http, registry, request, &bearer, &url, Some(KEY), sink).await.map_err(|stop| match stop {
        // The token is a secret of its own that the caller does not know.
        Stop::Failed(failure) => {
            let message = bearer.redact(failure.message);
            Stop::Failed(atomic_protocol::model::ModelFailure { message, ..failure })
        }
        stop => stop,
    })
}

/// Where to send.
fn address(model: &Model, env: &Env, with_key: bool) -> Result<String, Error> {
    let method = format!("publishers/google/models/{}{METHOD}", model.id);
    let base = model.base_url.trim().trim_end_matches('/');
    if !base.is_empty() && !base.contains("{location}") {
        // An address of the user's own stands for project and place.
        let versioned = base.split('/').any(|part| {
            part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        });
        let version = if versioned { String::new() } else { format!("{VERSION}/") };
        return Ok(format!("{base}/{version}{method}"));
    }
    if with_key {
        return Ok(format!("https://aiplatform.googleapis.com/{VERSION}/{method}"));
    }
    let missing =
        |variable: &str| Error::Address { provider: model.provider.clone(), variable: variable.to_owned() };
    let project = project(env).ok_or_else(|| missing("GOOGLE_CLOUD_PROJECT"))?;
    let location = env.get("GOOGLE_CLOUD_LOCATION").ok_or_else(|| missing("GOOGLE_CLOUD_LOCATION"))?;
    let host = match location {
        "global" => "aiplatform.googleapis.com".to_owned(),
        "us" | "eu" => format!("aiplatform.{location}.rep.googleapis.com"),
        location => format!("{location}-aiplatform.googleapis.com"),
    };
    Ok(format!("https://{host}/{VERSION}/projects/{project}/locations/{location}/{method}"))
}

/// The session's project.
pub(crate) fn project(env: &Env) -> Option<&str> {
    env.get("GOOGLE_CLOUD_PROJECT").or_else(|| env.get("GCLOUD_PROJECT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_from_key_project_and_place() {
        let shipped = "https://{location}-aiplatform.googleapis.com";
        let place = [("GCLOUD_PROJECT", "p"), ("GOOGLE_CLOUD_LOCATION", "europe-west4")];
        let global = [("GOOGLE_CLOUD_PROJECT", "p"), ("GOOGLE_CLOUD_LOCATION", "global")];
        let method = "publishers/google/models/m:streamGenerateContent?alt=sse";
        for (env, base, key, want) in [
            (&[][..], shipped, true, Ok("https://aiplatform.googleapis.com/v1/".to_owned())),
            (
                &place,
                shipped,
                false,
                Ok("https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/europe-west4/"
                    .into()),
            ),
            (
                &global,
                "",
                false,
                Ok("https://aiplatform.googleapis.com/v1/projects/p/locations/global/".into()),
            ),
            (&place, "https://proxy.example/vertex/", false, Ok("https://proxy.example/vertex/v1/".into())),
            (&[], "http://proxy:1/v1beta1", true, Ok("http://proxy:1/v1beta1/".into())),
            (&place[..1], shipped, false, Err("GOOGLE_CLOUD_LOCATION")),
            (&place[1..], shipped, false, Err("GOOGLE_CLOUD_PROJECT")),
        ] {
            let model = crate::proof::model(&format!(
                r#"{{"id":"m","provider":"google-vertex","baseUrl":"{base}"}}"#
            ));
            let env: Env = env.iter().copied().collect();
            match (address(&model, &env, key), want) {
                (Ok(url), Ok(want)) => assert_eq!(url, format!("{want}{method}")),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{error}"),
                (got, want) => panic!("{base} {env:?}: {got:?}, not {want:?}"),
            }
        }
    }
}
