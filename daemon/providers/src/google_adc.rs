//! Google's Application Default Credentials (cloud.google.com, "How Application Default Credentials works"): a file
//! that names an account, and a short-lived token that it is exchanged for. The libraries for it read the process's
//! environment and open connections of their own; ours belong to the session.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

use crate::auth::Secret;
use crate::env::Env;
use crate::error::Error;
use crate::http::{Settings, cut, whole};
use crate::stamp::Stamp;

/// What the token is to allow.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Where a user's account is exchanged; a service account's file says it itself.
const TOKEN_ADDRESS: &str = "https://oauth2.googleapis.com/token";

/// How long an assertion of a service account holds: the most the provider takes.
const ASSERTION_SECONDS: i64 = 3600;

/// A token this near its end is not used any more, in seconds.
const MARGIN_SECONDS: i64 = 60;

/// How long an exchange may take.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(15);

/// Tokens kept: one for each account and way to the network. Sessions of one user share one or two; this only bounds what
/// odd environments can pile up.
const MAX_TOKENS: usize = 16;

/// The tokens of all sessions of a daemon.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<Vec<Kept>>);

/// An exchange that is under way, or what it gave. All who wait for it get the same.
type Exchange = Shared<BoxFuture<'static, Result<Token, Error>>>;

struct Kept {
    origin: Origin,
    exchange: Exchange,
}

/// What makes tokens interchangeable: the same account file as it is now, asked for over the same way.
#[derive(Clone, PartialEq, Eq)]
struct Origin {
    file: PathBuf,
    stamp: Option<Stamp>,
    network: Settings,
}

#[derive(Clone)]
struct Token {
    secret: Secret,
    /// Unix time in seconds.
    expires: i64,
}

impl Tokens {
    /// The kept token, the exchange that somebody else has begun, or the one that `begin` starts. A failure is told to
    /// all who waited for it, and is not kept for those who come later.
    fn exchange(&self, origin: Origin, now: i64, begin: impl FnOnce() -> Exchange) -> Exchange {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|known| known.origin == origin) {
            match kept[at].exchange.peek() {
                None => return kept[at].exchange.clone(),
                Some(Ok(token)) if token.expires - MARGIN_SECONDS > now => return kept[at].exchange.clone(),
                Some(_) => drop(kept.remove(at)),
            }
        }
        // What the file said before it changed is of no use any more.
        kept.retain(|known| known.origin.file != origin.file || known.origin.stamp == origin.stamp);
        if kept.len() >= MAX_TOKENS {
            kept.remove(0);
        }
        let exchange = begin();
        kept.push(Kept { origin, exchange: exchange.clone() });
        exchange
    }
}

/// The file with the session's credentials: the one it names, else the one `gcloud` writes.
pub(crate) fn file(env: &Env) -> Option<PathBuf> {
    if let Some(named) = env.get("GOOGLE_APPLICATION_CREDENTIALS") {
        return Some(PathBuf::from(named));
    }
    let dir = match env.get("CLOUDSDK_CONFIG") {
        Some(dir) => PathBuf::from(dir),
        None if cfg!(windows) => Path::new(env.get("APPDATA")?).join("gcloud"),
        None => Path::new(env.home()?).join(".config").join("gcloud"),
    };
    Some(dir.join("application_default_credentials.json"))
}

/// A token for the session's account, made anew when the last one is about to end; however many sessions ask, one
/// exchange is made.
pub(crate) async fn token(
    client: &Client,
    tokens: &Tokens,
    env: &Env,
    provider: &str,
) -> Result<String, Error> {
    let file = file(env).ok_or_else(|| Error::NoApiKey {
        provider: provider.to_owned(),
        advice: "Set GOOGLE_CLOUD_API_KEY or GOOGLE_APPLICATION_CREDENTIALS.".to_owned(),
    })?;
    let now = jiff::Timestamp::now().as_second();
    let origin = Origin { stamp: Stamp::of(&file), file: file.clone(), network: Settings::from_env(env) };
    let exchange = tokens.exchange(origin, now, || {
        // A task of its own: it goes on when the session that began it is aborted, for those who wait with it.
        let task = tokio::spawn(exchanged(client.clone(), file.clone(), now));
        let cut_off = move |_| {
            Err(Error::GoogleCredentials { file, reason: "the request for a token was cut off".to_owned() })
        };
        task.map(|done| done.unwrap_or_else(cut_off)).boxed().shared()
    });
    exchange.await.map(|token| token.secret.0)
}

async fn exchanged(client: Client, file: PathBuf, now: i64) -> Result<Token, Error> {
    let failed = |reason: String| Error::GoogleCredentials { file: file.clone(), reason };
    let text = tokio::fs::read_to_string(&file).await.map_err(|error| failed(error.to_string()))?;
    let (address, form) = exchange(&text, now).map_err(failed)?;
    let request = client.post(&address).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
    let answer = whole(request, EXCHANGE_TIMEOUT).await;
    let answer = answer.map_err(|reason| failed(format!("cannot reach {address}: {reason}")))?;
    let granted = answer.status.is_success().then(|| serde_json::from_slice::<Granted>(&answer.body).ok());
    let granted = granted.flatten();
    let granted = granted.ok_or_else(|| failed(format!("{address} answered {}", answer.text())))?;
    let expires = now.saturating_add(granted.expires_in.unwrap_or(ASSERTION_SECONDS));
    Ok(Token { secret: Secret(granted.access_token), expires })
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: Option<i64>,
}

/// The file's fields. Which are there depends on the type.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Account {
    #[serde(rename = "type")]
    kind: String,
    client_id: String,
    client_secret: String,
    refresh_token: String,
    client_email: String,
    private_key: String,
    private_key_id: String,
    token_uri: Option<String>,
}

/// Where to ask for a token and with what. The error is a reason for a person.
fn exchange(text: &str, now: i64) -> Result<(String, String), String> {
    let account: Account =
        serde_json::from_str(text).map_err(|_| "it is not a JSON object with an account".to_owned())?;
    let address = account.token_uri.clone().unwrap_or_else(|| TOKEN_ADDRESS.to_owned());
    match account.kind.as_str() {
        "authorized_user" => Ok((
            address,
            form(&[
                ("grant_type", "refresh_token"),
                ("client_id", &account.client_id),
                ("client_secret", &account.client_secret),
                ("refresh_token", &account.refresh_token),
            ]),
        )),
        "service_account" => {
            let assertion = assertion(&account, &address, now)?;
            let grant = ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
            Ok((address, form(&[grant, ("assertion", &assertion)])))
        }
        other => Err(format!(
            "it holds an account of type \"{}\"; a service account or a login made by gcloud auth application-default login is needed",
            cut(other)
        )),
    }
}

fn form(pairs: &[(&str, &str)]) -> String {
    let mut url = reqwest::Url::parse("http://form/").expect("a constant address");
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

/// What a service account says about itself, signed (RFC 7523; RS256 of RFC 7518).
fn assertion(account: &Account, address: &str, now: i64) -> Result<String, String> {
    #[derive(Serialize)]
    struct Head<'a> {
        alg: &'a str,
        typ: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        kid: &'a str,
    }
    #[derive(Serialize)]
    struct Claims<'a> {
        iss: &'a str,
        scope: &'a str,
        aud: &'a str,
        iat: i64,
        exp: i64,
    }
    let part = |json: serde_json::Result<Vec<u8>>| json.map(|json| URL_SAFE_NO_PAD.encode(json));
    let head = Head { alg: "RS256", typ: "JWT", kid: &account.private_key_id };
    let claims = Claims {
        iss: &account.client_email,
        scope: SCOPE,
        aud: address,
        iat: now,
        exp: now.saturating_add(ASSERTION_SECONDS),
    };
    let (head, claims) = (part(serde_json::to_vec(&head)), part(serde_json::to_vec(&claims)));
    let signed = format!(
        "{}.{}",
        head.map_err(|error| error.to_string())?,
        claims.map_err(|error| error.to_string())?
    );
    let unusable = || "its private key cannot be used".to_owned();
    let der = PrivatePkcs8KeyDer::from_pem_slice(account.private_key.as_bytes()).map_err(|_| unusable())?;
    let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|_| unusable())?;
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .map_err(|_| unusable())?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    /// Made for this test; it opens nothing.
    const ACCOUNT: &str = include_str!("google/fixtures/service_account.json");

    fn pairs(form: &str) -> Vec<(String, String)> {
        let url = reqwest::Url::parse(&format!("http://x/?{form}")).unwrap();
        url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    }

    #[test]
    fn a_service_account_signs_what_it_asks() {
        let (address, form) = exchange(ACCOUNT, 1000).unwrap();
        assert_eq!(address, "https://token.example/token");
        let pairs = pairs(&form);
        assert_eq!(pairs[0].1, "urn:ietf:params:oauth:grant-type:jwt-bearer");
        let parts: Vec<&str> = pairs[1].1.split('.').collect();
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        assert_eq!(decoded(parts[0]), br#"{"alg":"RS256","typ":"JWT","kid":"key1"}"#);
        let claims = format!(
            r#"{{"iss":"me@example","scope":"{SCOPE}","aud":"https://token.example/token","iat":1000,"exp":4600}}"#
        );
        assert_eq!(String::from_utf8(decoded(parts[1])).unwrap(), claims);
        let account: Account = serde_json::from_str(ACCOUNT).unwrap();
        let der = PrivatePkcs8KeyDer::from_pem_slice(account.private_key.as_bytes()).unwrap();
        let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public().as_ref());
        let signed = format!("{}.{}", parts[0], parts[1]);
        public.verify(signed.as_bytes(), &decoded(parts[2])).unwrap();
    }

    #[test]
    fn a_users_login_is_refreshed_and_others_are_named() {
        let user = r#"{"type":"authorized_user","client_id":"i","client_secret":"s&=","refresh_token":"r"}"#;
        let (address, form) = exchange(user, 0).unwrap();
        assert_eq!(address, TOKEN_ADDRESS);
        let want = [
            ("grant_type", "refresh_token"),
            ("client_id", "i"),
            ("client_secret", "s&="),
            ("refresh_token", "r"),
        ];
        assert_eq!(pairs(&form), want.map(|(n, v)| (n.to_owned(), v.to_owned())));
        for (text, want) in [
            ("7", "not a JSON object"),
            (r#"{"type":"external_account"}"#, "external_account"),
            (r#"{"type":"service_account","private_key":"no"}"#, "private key"),
        ] {
            assert!(exchange(text, 0).unwrap_err().contains(want), "{text}");
        }
    }

    #[test]
    fn the_file_is_named_or_where_gcloud_puts_it() {
        let home = if cfg!(windows) { ("APPDATA", "/d") } else { ("HOME", "/d") };
        for (env, want) in [
            (vec![home, ("GOOGLE_APPLICATION_CREDENTIALS", "/f")], Some(PathBuf::from("/f"))),
            (
                vec![home, ("CLOUDSDK_CONFIG", "/c")],
                Some(Path::new("/c").join("application_default_credentials.json")),
            ),
            (vec![], None),
        ] {
            assert_eq!(file(&env.into_iter().collect()), want);
        }
        assert!(
            file(&[home].into_iter().collect())
                .unwrap()
                .ends_with("gcloud/application_default_credentials.json")
        );
    }

    fn origin(file: &str, network: &[(&str, &str)]) -> Origin {
        let network = Settings::from_env(&network.iter().copied().collect());
        Origin { file: file.into(), stamp: None, network }
    }

    fn ready(secret: &str, expires: i64) -> Exchange {
        let token = Token { secret: Secret(secret.into()), expires };
        std::future::ready(Ok(token)).boxed().shared()
    }

    #[tokio::test]
    async fn tokens_are_kept_until_they_are_about_to_end() {
        let tokens = Tokens::default();
        let ask = async |file: &str, network: &[(&str, &str)], now: i64, fresh: &str| {
            let exchange = tokens.exchange(origin(file, network), now, || ready(fresh, now + 1000));
            exchange.await.map(|token| token.secret.0).map_err(|error| error.to_string())
        };
        let proxy = [("HTTPS_PROXY", "http://p:1")];
        for (file, network, now, fresh, want) in [
            ("a", &[][..], 0, "one", "one"),
            ("a", &[], 1000 - MARGIN_SECONDS - 1, "two", "one"),
            ("a", &[], 1000 - MARGIN_SECONDS, "three", "three"),
            ("a", &proxy, 1000, "another way", "another way"),
            ("b", &[], 1000, "another account", "another account"),
            ("a", &[], 1000, "no", "three"),
        ] {
            assert_eq!(ask(file, network, now, fresh).await.as_deref(), Ok(want));
        }
        for index in 0..2 * MAX_TOKENS {
            ask(&index.to_string(), &[], 0, "x").await.unwrap();
        }
        assert_eq!(tokens.0.lock().unwrap().len(), MAX_TOKENS);
    }

    #[tokio::test]
    async fn those_who_wait_share_one_exchange_and_its_failure_which_is_not_kept() {
        let tokens = Tokens::default();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let failed = || Error::GoogleCredentials { file: "f".into(), reason: "no".into() };
        let first =
            tokens.exchange(origin("f", &[]), 0, || receiver.map(move |_| Err(failed())).boxed().shared());
        let second = tokens.exchange(origin("f", &[]), 0, || panic!("a second exchange"));
        sender.send(()).unwrap();
        let (first, second) = tokio::join!(first, second);
        assert!(first.is_err() && second.is_err());
        let third = tokens.exchange(origin("f", &[]), 0, || ready("t", 1000)).await;
        assert_eq!(third.map(|token| token.secret.0).ok().as_deref(), Some("t"));
    }
}
