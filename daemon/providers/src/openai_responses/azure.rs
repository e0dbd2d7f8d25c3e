//! OpenAI's Responses API on Azure (learn.microsoft.com, "Azure OpenAI Responses API"): the same records at an address
//! of the user's own, where models have the names of their deployments.
//!
//! | variable | says |
//! |---|---|
//! | `AZURE_OPENAI_API_KEY` | the key |
//! | `AZURE_OPENAI_BASE_URL` | where the resource is, with or without `/openai/v1` |
//! | `AZURE_OPENAI_RESOURCE_NAME` | the resource's name, instead of its address |
//! | `AZURE_OPENAI_API_VERSION` | `api-version`; `v1` if it is not set |
//! | `AZURE_OPENAI_DEPLOYMENT_NAME_MAP` | `model=deployment,…`; a deployment has its model's name if it is not there |

use atomic_protocol::model::{Model, ModelEvent, ModelRequest};
use reqwest::header::HeaderMap;
use tokio::sync::mpsc;

use super::compat::Compat;
use super::{request, stream};
use crate::auth::Credential;
use crate::endpoint::{self, Headers};
use crate::env::Env;
use crate::error::Error;
use crate::http::{self, Http};
use crate::pump::{Stop, pump};
use crate::registry::Registry;

/// The dialect's name in models.
pub const API: &str = "azure-openai-responses";

/// The version asked for if nobody says another.
const VERSION: &str = "v1";

/// Hosts of Azure's own, at which the API stands under one path.
const HOSTS: &[&str] = &[".openai.azure.com", ".cognitiveservices.azure.com", ".ai.azure.com"];

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
    let url = address(model, &credential.env)?;
    let headers = headers(request, credential)?;
    let name = deployment(model, &credential.env);
    let body = request::body(request, &compat, cache, name, registry.sampling_params(model));
    let client = http.client(&credential.env).await?;
    let response = http::post(&client, &url, headers, body, options.deadline).await?;
    let mut answer = stream::Answer::new(model, None);
    pump(http::events(response), &mut answer, options.deadline, sink).await
}

fn headers(request: &ModelRequest, credential: &Credential) -> Result<HeaderMap, Error> {
    let mut headers = Headers::new(&request.model.provider);
    headers.key(credential, Some("api-key"))?;
    for (name, value) in endpoint::configured(&request.model, credential) {
        headers.configured(name, value)?;
    }
    headers.finish()
}

/// The base address: the session's, else the model's.
pub(crate) fn base(model: &Model, env: &Env) -> Result<String, Error> {
    let named = env.get("AZURE_OPENAI_RESOURCE_NAME");
    let base = match (env.get("AZURE_OPENAI_BASE_URL"), named, model.base_url.trim()) {
        (Some(base), ..) => base.trim().to_owned(),
        (None, Some(name), _) => format!("https://{name}.openai.azure.com"),
        (None, None, "") => return Err(Error::NoAzureAddress { provider: model.provider.clone() }),
        (None, None, base) => base.to_owned(),
    };
    let mut url = reqwest::Url::parse(&base)
        .map_err(|_| Error::BadAddress { provider: model.provider.clone(), address: base.clone() })?;
    let ours = url.host_str().is_some_and(|host| HOSTS.iter().any(|end| host.ends_with(end)));
    if ours && matches!(url.path().trim_end_matches('/'), "" | "/openai" | "/openai/v1/responses") {
        url.set_path("/openai/v1");
        url.set_query(None);
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn address(model: &Model, env: &Env) -> Result<String, Error> {
    let version = env.get("AZURE_OPENAI_API_VERSION").unwrap_or(VERSION);
    let base = base(model, env)?;
    let mut url = reqwest::Url::parse(&base)
        .map_err(|_| Error::BadAddress { provider: model.provider.clone(), address: base.clone() })?;
    url.set_path(&format!("{}/responses", url.path().trim_end_matches('/')));
    url.query_pairs_mut().append_pair("api-version", version);
    Ok(url.into())
}

/// The name of the model's deployment.
pub(crate) fn deployment<'a>(model: &'a Model, env: &'a Env) -> &'a str {
    let map = env.get("AZURE_OPENAI_DEPLOYMENT_NAME_MAP").unwrap_or_default();
    let pairs = map.split(',').filter_map(|pair| pair.split_once('='));
    let mut named = pairs.map(|(id, name)| (id.trim(), name.trim()));
    named.rfind(|(id, name)| *id == model.id && !name.is_empty()).map_or(&model.id, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_protocol::model::ModelSpec;

    fn model(base_url: &str) -> Model {
        let spec = format!(r#"{{"id":"gpt-x","provider":"azure","baseUrl":"{base_url}"}}"#);
        Model::from_spec(serde_json::from_str::<ModelSpec>(&spec).unwrap())
    }

    #[test]
    fn addresses_come_from_the_session_or_the_model() {
        const BASE: &str = "AZURE_OPENAI_BASE_URL";
        const NAME: &str = "AZURE_OPENAI_RESOURCE_NAME";
        let whole = "https://r.openai.azure.com/openai/v1/responses?api-version=v1";
        for (env, base_url, want) in [
            (&[(NAME, "r")][..], "", Ok(whole)),
            (&[(NAME, "x"), (BASE, "https://r.openai.azure.com/")], "https://other", Ok(whole)),
            (&[(BASE, "https://r.openai.azure.com/openai")], "", Ok(whole)),
            (&[(BASE, "https://r.openai.azure.com/openai/v1/responses?api-version=old")], "", Ok(whole)),
            (&[], "https://r.openai.azure.com/openai/v1/", Ok(whole)),
            (
                &[(NAME, "r"), ("AZURE_OPENAI_API_VERSION", "2025-04-01-preview")],
                "",
                Ok("https://r.openai.azure.com/openai/v1/responses?api-version=2025-04-01-preview"),
            ),
            (
                &[(BASE, "http://proxy:8080/azure/")],
                "",
                Ok("http://proxy:8080/azure/responses?api-version=v1"),
            ),
            (&[], "", Err("AZURE_OPENAI_BASE_URL")),
            (&[(BASE, "not an address")], "", Err("not an address")),
        ] {
            let env: Env = env.iter().copied().collect();
            match (address(&model(base_url), &env), want) {
                (Ok(url), Ok(want)) => assert_eq!(url, want),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{error}"),
                (got, want) => panic!("{env:?}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn deployments_have_names_of_their_own() {
        for (map, want) in [
            ("", "gpt-x"),
            ("gpt-x=mine", "mine"),
            (" gpt-y=no , gpt-x = mine ,broken", "mine"),
            ("gpt-x=", "gpt-x"),
        ] {
            let env: Env = [("AZURE_OPENAI_DEPLOYMENT_NAME_MAP", map)].into_iter().collect();
            assert_eq!(deployment(&model(""), &env), want, "{map}");
        }
    }
}
