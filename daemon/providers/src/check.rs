//! Whether a provider takes the key, asked with one cheap request that no model answers.
//!
//! | dialect | request |
//! |---|---|
//! | `openai-completions`, `openai-responses` | `GET BASE/models` |
//! | `anthropic-messages` | `GET BASE/v1/models?limit=1` |
//! | `google-generative-ai` | `GET BASE/models?pageSize=1` |
//! | `mistral-conversations` | `GET BASE/v1/models` |
//! | `google-vertex` without a key | the exchange of the account for a token |
//! | `bedrock-converse-stream`, `google-vertex` with a key, `azure-openai-responses` | none is cheap and certain |
//!
//! OpenRouter is asked about the key itself (`GET BASE/key`): its list is open to everybody. Where another provider's list is
//! so, too, which the same request without a key tells, it proves nothing and this says so.

use std::time::Duration;

use atomic_protocol::model::Model;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use crate::auth::Credential;
use crate::endpoint::{self, Headers};
use crate::error::Error;
use crate::http::{Http, host_of, whole};
use crate::registry::{Registry, speaks};
use crate::{
    anthropic, google, google_adc, local, mistral, openai_completions, openai_responses, openrouter,
};

/// How long a provider may take.
pub const CHECK_DEADLINE: Duration = Duration::from_secs(15);

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The provider took the key; in a few words, what it answered.
    Works(String),
    /// Only a request that costs something would tell; why.
    NotCheckable(String),
    /// It did not: its own words, or why it could not be asked. Without the key.
    Failed(String),
}

/// What to ask.
enum Question {
    /// This address, with the key in the header of this name; none: as a bearer token.
    Get { url: String, header: Option<&'static str>, fixed: &'static [(&'static str, &'static str)] },
    /// For a token of Google.
    Token,
    /// Nothing, for this reason.
    Nothing(&'static str),
}

impl Registry {
    /// Checks the key of one provider.
    pub async fn check(&self, http: &Http, provider: &str) -> Checked {
        match self.checked(http, provider).await {
            Ok(checked) => checked,
            Err(error) => Checked::Failed(error.to_string()),
        }
    }

    async fn checked(&self, http: &Http, provider: &str) -> Result<Checked, Error> {
        if local::is_local(provider) && self.own(provider).is_none_or(|own| own.models.is_empty()) {
            let (view, failures) = self.with_local(http, &[provider], Duration::ZERO).await;
            return match failures.into_iter().next() {
                Some((_, error)) => Err(error),
                None => Ok(Checked::Works(count(view.models(provider).len()))),
            };
        }
        let Some(model) = self.asked_model(provider) else {
            return Ok(Checked::NotCheckable("no model of it is known".to_owned()));
        };
        let credential = self.credential(&model).await?;
        match question(&model, &credential)? {
            Question::Nothing(why) => Ok(Checked::NotCheckable(why.to_owned())),
            Question::Token => {
                let client = http.client(&credential.env).await?;
                google_adc::token(&client, self.google_tokens(), &credential.env, provider).await?;
                Ok(Checked::Works("the account was given a token".to_owned()))
            }
            Question::Get { url, header, fixed } => {
                let mut headers = Headers::new(provider);
                fixed.iter().for_each(|(name, value)| headers.fixed(name, value));
                headers.key(&credential, header)?;
                for (name, value) in endpoint::configured(&model, &credential) {
                    headers.configured(name, value)?;
                }
                let client = http.client(&credential.env).await?;
                let get = |headers: HeaderMap| whole(client.get(&url).headers(headers), CHECK_DEADLINE);
                let answer = match get(headers.finish()?).await {
                    Ok(answer) => answer,
                    Err(reason) => return Ok(Checked::Failed(format!("{}: {reason}", host_of(&url)))),
                };
                if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) {
                    let why = format!("{} has no list of models", host_of(&url));
                    return Ok(Checked::NotCheckable(why));
                }
                if !answer.status.is_success() {
                    return Ok(Checked::Failed(credential.redact(answer.text())));
                }
                // Who lists its models to everybody has not looked at the key.
                let mut without = Headers::new(provider);
                fixed.iter().for_each(|(name, value)| without.fixed(name, value));
                if get(without.finish()?).await.is_ok_and(|answer| answer.status.is_success()) {
                    let why = format!("{} lists its models to everybody", host_of(&url));
                    return Ok(Checked::NotCheckable(why));
                }
                Ok(Checked::Works(said(&answer.body)))
            }
        }
    }

    /// A model of the provider whose dialect has a list, if one has.
    fn asked_model(&self, provider: &str) -> Option<Model> {
        let spoken = || self.models(provider).iter().filter(|model| speaks(&model.api));
        let listed = [openai_completions::API, openai_responses::API];
        let model = spoken().find(|model| listed.contains(&model.api.as_str())).or_else(|| spoken().next());
        model.map(|model| Model::clone(model))
    }
}

fn question(model: &Model, credential: &Credential) -> Result<Question, Error> {
    let get = |path: &str, header, fixed| {
        Ok(Question::Get { url: endpoint::address(model, credential, path)?, header, fixed })
    };
    match model.api.as_str() {
        _ if model.provider == "azure" => {
            Ok(Question::Nothing("Azure lists models to a resource, not to a key"))
        }
        _ if model.provider == openrouter::PROVIDER => {
            let url = format!("{}/key", openrouter::base(model));
            Ok(Question::Get { url, header: None, fixed: &[] })
        }
        openai_completions::API | openai_responses::API => get("/models", None, &[]),
        anthropic::API => {
            get("/v1/models?limit=1", Some("x-api-key"), &[("anthropic-version", anthropic::VERSION)])
        }
        google::API => get("/models?pageSize=1", Some("x-goog-api-key"), &[]),
        mistral::API => get("/v1/models", None, &[]),
        google::vertex::API if credential.key.is_none() => Ok(Question::Token),
        google::vertex::API => Ok(Question::Nothing("Vertex AI answers keys only with a model's answer")),
        _ => Ok(Question::Nothing("this API answers only with a model's answer")),
    }
}

/// How long the list is, if it is one.
fn said(body: &[u8]) -> String {
    let list: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let models = list.get("data").or_else(|| list.get("models")).and_then(serde_json::Value::as_array);
    match models {
        // A page of one is no count.
        Some(models) if models.len() > 1 => count(models.len()),
        _ => "it takes the key".to_owned(),
    }
}

fn count(models: usize) -> String {
    format!("it has {models} {}", if models == 1 { "model" } else { "models" })
}
