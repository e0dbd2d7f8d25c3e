//! OpenRouter's public way to a key of the user's own (openrouter.ai, "OAuth PKCE"): the user says yes on its page, the page
//! sends the browser to an address of ours with a code, and the code is exchanged for a key. No client is registered for
//! it: it is meant for every program.

use std::fmt;
use std::time::Duration;

use atomic_protocol::model::Model;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::Deserialize;

use crate::auth::Secret;
use crate::error::Error;
use crate::http::{Http, host_of, whole};
use crate::registry::Registry;

/// Provider id.
pub const PROVIDER: &str = "openrouter";

/// Where it is unless the user's file says otherwise.
const BASE: &str = "https://openrouter.ai/api/v1";

/// How long the exchange may take.
const EXCHANGE_DEADLINE: Duration = Duration::from_secs(30);

/// The address of the API, without the path of a dialect: its models that speak another have a shorter one.
pub(crate) fn base(model: &Model) -> String {
    let base = model.base_url.trim().trim_end_matches('/');
    if base.is_empty() {
        BASE.to_owned()
    } else if base.ends_with("/v1") {
        base.to_owned()
    } else {
        format!("{base}/v1")
    }
}

/// One login: what is secret in it, and where it goes. `Debug` shows the place only.
pub struct Login {
    base: String,
    verifier: Secret,
    state: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Login {
    /// A new one, with random numbers of its own.
    ///
    /// # Errors
    /// [`Error::Login`] when the system has no random numbers.
    pub fn begin(registry: &Registry) -> Result<Login, Error> {
        let random = || {
            let mut bytes = [0; 32];
            let filled = SystemRandom::new().fill(&mut bytes);
            filled.map(|()| URL_SAFE_NO_PAD.encode(bytes)).map_err(|_| Error::Login {
                provider: PROVIDER.to_owned(),
                reason: "this system has no random numbers".to_owned(),
            })
        };
        let own = registry.own(PROVIDER).and_then(|own| own.base_url.as_deref());
        let base = own.unwrap_or(BASE).trim().trim_end_matches('/').to_owned();
        Ok(Login { base, verifier: Secret(random()?), state: random()? })
    }

    /// The path, on a loopback address of ours, at which the code is expected. Nobody can guess it.
    pub fn callback_path(&self) -> String {
        format!("/callback/{}", self.state)
    }

    /// The page to open in a browser, which then goes to `callback`.
    pub fn page(&self, callback: &str) -> String {
        let site = self.base.strip_suffix("/api/v1").unwrap_or(&self.base);
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier.0.as_bytes()));
        let pairs =
            [("callback_url", callback), ("code_challenge", &challenge), ("code_challenge_method", "S256")];
        match reqwest::Url::parse_with_params(&format!("{site}/auth"), pairs) {
            Ok(page) => page.into(),
            // A base that is no address fails with its name at the exchange; here it is only shown.
            Err(_) => format!("{site}/auth"),
        }
    }

    /// The code in what the user pasted: the code itself or the address that the browser ended at.
    pub fn pasted(&self, text: &str) -> Option<String> {
        let text = text.trim();
        match reqwest::Url::parse(text) {
            Ok(url) => url.query_pairs().find(|(name, _)| name == "code").map(|(_, code)| code.into_owned()),
            Err(_) => (!text.is_empty() && !text.contains(char::is_whitespace)).then(|| text.to_owned()),
        }
    }

    /// The key for the code.
    ///
    /// # Errors
    /// [`Error::Login`] with the provider's own words.
    pub async fn key(&self, http: &Http, registry: &Registry, code: &str) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Granted {
            key: String,
        }
        let failed = |reason: String| Error::Login { provider: PROVIDER.to_owned(), reason };
        let url = format!("{}/auth/keys", self.base);
        let body = serde_json::json!({
            "code": code, "code_verifier": self.verifier.0, "code_challenge_method": "S256",
        });
        let client = http.client(registry.env()).await?;
        let request = client.post(&url).header("content-type", "application/json").body(body.to_string());
        let answer = whole(request, EXCHANGE_DEADLINE).await;
        let answer = answer.map_err(|reason| failed(format!("{}: {reason}", host_of(&url))))?;
        let granted =
            answer.status.is_success().then(|| serde_json::from_slice::<Granted>(&answer.body).ok());
        match granted.flatten() {
            Some(Granted { key }) if !key.trim().is_empty() => Ok(key),
            // What came with success may hold a key in a shape we do not know.
            _ if answer.status.is_success() => {
                Err(failed(format!("{} answered without a key", host_of(&url))))
            }
            _ => Err(failed(format!("{} answered {}", host_of(&url), answer.text()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_has_a_page_a_path_and_reads_what_is_pasted() {
        let login = Login {
            base: "http://h:1/api/v1".into(),
            // The example of RFC 7636, appendix B.
            verifier: Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into()),
            state: "s".into(),
        };
        assert_eq!(
            login.page("http://127.0.0.1:2/callback/s"),
            "http://h:1/auth?callback_url=http%3A%2F%2F127.0.0.1%3A2%2Fcallback%2Fs&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256"
        );
        assert_eq!(login.callback_path(), "/callback/s");
        for (text, want) in [
            (" code1\n", Some("code1")),
            ("http://127.0.0.1:2/callback/s?code=c%2B2&x=1", Some("c+2")),
            ("http://127.0.0.1:2/callback/s", None),
            ("no code here", None),
            ("", None),
        ] {
            assert_eq!(login.pasted(text).as_deref(), want, "{text}");
        }
        assert!(!format!("{login:?}").contains("dBjf"));
    }

    #[test]
    fn two_logins_share_nothing() {
        let registry = Registry::load(crate::Setup::default());
        let (one, two) = (Login::begin(&registry).unwrap(), Login::begin(&registry).unwrap());
        assert!(one.verifier != two.verifier && one.state != two.state && one.verifier.0.len() >= 43);
        assert!(one.page("x").starts_with("https://openrouter.ai/auth?callback_url=x&"));
    }
}
