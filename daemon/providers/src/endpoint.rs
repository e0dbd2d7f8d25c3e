//! What every dialect's request has around its body: where it goes and the headers.

use std::collections::BTreeMap;

use atomic_protocol::model::Model;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::auth::{Credential, Scheme};
use crate::error::Error;
use crate::http::secret_value;

/// Where to send: the model's base address with `path` behind it. `{NAME}` in a base address stands for a variable.
pub(crate) fn address(model: &Model, credential: &Credential, path: &str) -> Result<String, Error> {
    let mut url = String::new();
    let mut rest = model.base_url.trim().trim_end_matches('/');
    if rest.is_empty() {
        return Err(Error::NoAddress { provider: model.provider.clone() });
    }
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
    url.push_str(path);
    Ok(url)
}

/// Headers that are merged before they are sent: of one name the last wins, and nothing takes it away.
pub(crate) struct Headers<'a> {
    provider: &'a str,
    all: BTreeMap<String, Option<HeaderValue>>,
}

impl<'a> Headers<'a> {
    /// JSON goes out and comes in.
    pub(crate) fn new(provider: &'a str) -> Headers<'a> {
        let mut headers = Headers { provider, all: BTreeMap::new() };
        headers.fixed("accept", "application/json");
        headers.fixed("content-type", "application/json");
        headers
    }

    /// One of our own.
    pub(crate) fn fixed(&mut self, name: &str, value: &'static str) {
        self.all.insert(name.to_owned(), Some(HeaderValue::from_static(value)));
    }

    /// A value that logs do not show; `what` names it in an error, never the value itself.
    pub(crate) fn secret(&mut self, name: &str, value: &str, what: &str) -> Result<(), Error> {
        let value = secret_value(value).ok_or_else(|| self.bad(what))?;
        self.all.insert(name.to_ascii_lowercase(), Some(value));
        Ok(())
    }

    /// The key: in the dialect's `own` header if it has one and the key may go there, else as a bearer token.
    pub(crate) fn key(&mut self, credential: &Credential, own: Option<&str>) -> Result<(), Error> {
        let Some(key) = &credential.key else { return Ok(()) };
        let bearer = format!("Bearer {}", key.0);
        match (credential.scheme, own) {
            // The gateway's own key; the vendor's stands in the gateway's configuration.
            (Scheme::ApiKey, _) if self.provider == "cloudflare-ai-gateway" => {
                self.secret("cf-aig-authorization", &bearer, "API key")
            }
            (Scheme::ApiKey, Some(own)) => self.secret(own, &key.0, "API key"),
            _ => self.secret("authorization", &bearer, "API key"),
        }
    }

    /// A configured header: the model's or the user's.
    pub(crate) fn configured(&mut self, name: &str, value: Option<&str>) -> Result<(), Error> {
        match value {
            Some(value) => self.secret(name, value, &format!("header {name}")),
            None => {
                self.all.insert(name.to_ascii_lowercase(), None);
                Ok(())
            }
        }
    }

    /// A value that cannot travel.
    pub(crate) fn bad(&self, what: &str) -> Error {
        Error::BadHeader { provider: self.provider.to_owned(), what: what.to_owned() }
    }

    /// All that are left.
    pub(crate) fn finish(self) -> Result<HeaderMap, Error> {
        let mut map = HeaderMap::with_capacity(self.all.len());
        for (name, value) in &self.all {
            if let Some(value) = value {
                let key = HeaderName::try_from(name).map_err(|_| self.bad(&format!("header name {name}")))?;
                map.insert(key, value.clone());
            }
        }
        Ok(map)
    }
}

/// The model's headers, then the user's.
pub(crate) fn configured<'a>(
    model: &'a Model,
    credential: &'a Credential,
) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
    let of_model = model.headers.iter().flatten().map(|(name, value)| (name.as_str(), value.as_deref()));
    let of_user =
        credential.headers.iter().map(|(name, value)| (name.as_str(), value.as_ref().map(|v| v.0.as_str())));
    of_model.chain(of_user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Secret, Source};
    use atomic_protocol::model::ModelSpec;

    #[test]
    fn addresses_are_filled_in() {
        let credential = Credential {
            key: Some(Secret("k1".into())),
            scheme: Scheme::ApiKey,
            source: Source::Stored,
            headers: Vec::new(),
            env: [("CLOUDFLARE_ACCOUNT_ID", "acc")].into_iter().collect(),
        };
        for (base, want) in [
            ("https://api.example", Ok("https://api.example/v1/messages")),
            ("https://api.example/", Ok("https://api.example/v1/messages")),
            ("https://g/{CLOUDFLARE_ACCOUNT_ID}/x//", Ok("https://g/acc/x/v1/messages")),
            ("https://g/{NOPE}/x", Err("NOPE")),
            ("", Err("\"baseUrl\" of p")),
        ] {
            let spec = format!(r#"{{"id":"m","provider":"p","baseUrl":"{base}"}}"#);
            let model = Model::from_spec(serde_json::from_str::<ModelSpec>(&spec).unwrap());
            match (address(&model, &credential, "/v1/messages"), want) {
                (Ok(url), Ok(want)) => assert_eq!(url, want),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{error}"),
                (got, want) => panic!("{base}: {got:?}, not {want:?}"),
            }
        }
    }
}
