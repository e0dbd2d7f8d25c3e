//! HTTP clients and one POST that streams its answer.

use std::error::Error as _;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use futures_util::{Stream, StreamExt as _};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Certificate, Client, NoProxy, Proxy, Response, StatusCode};

use crate::env::Env;
use crate::error::Error;
use atomic_protocol::model::{MAX_RETRY_DELAY_MS, ModelFailure};

/// How long name look-up, TCP, proxy and TLS may take together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Clients kept. Sessions of one user share one or two settings; this only bounds what odd environments can pile up.
const MAX_CLIENTS: usize = 16;

/// Most bytes read of an error answer; only [`MAX_ERROR_CHARS`] are shown.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// Most characters of a provider's error text that are kept.
pub(crate) const MAX_ERROR_CHARS: usize = 4000;

/// How long an error answer's body may take: its status alone is worth reporting.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Who we are, to every provider.
const USER_AGENT: &str = concat!("atomic/", env!("CARGO_PKG_VERSION"));

/// The HTTP clients of the daemon: one for each distinct proxy and TLS setting, made on first use and shared by all
/// sessions. Cloning gives another handle.
#[derive(Clone, Default)]
pub struct Http {
    clients: Arc<Mutex<Vec<(Settings, Slot)>>>,
}

/// Filled by whoever needs the client first, off the async threads: reading the system's roots takes about 10 ms.
type Slot = Arc<OnceLock<Result<Client, Error>>>;

/// Addresses of this machine, which no proxy is asked for: it would look for them on its own.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// What distinguishes clients. No `Debug`: a proxy address may carry a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    https: Option<String>,
    http: Option<String>,
    all: Option<String>,
    no_proxy: Option<String>,
    extra_roots: Vec<String>,
}

impl Settings {
    pub(crate) fn from_env(env: &Env) -> Settings {
        // Lower case first, as curl and the reference's HTTP stack read them.
        let either = |name: &str| env.get(&name.to_lowercase()).or_else(|| env.get(name)).map(str::to_owned);
        let roots = ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"].into_iter().filter_map(|name| env.get(name));
        Settings {
            https: either("HTTPS_PROXY"),
            http: either("HTTP_PROXY"),
            all: either("ALL_PROXY"),
            no_proxy: either("NO_PROXY"),
            extra_roots: roots.map(str::to_owned).collect(),
        }
    }

    fn build(&self) -> Result<Client, Error> {
        static PROVIDER: Once = Once::new();
        // Fails when somebody installed one before, which is as good.
        PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let mut builder = Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .retry(reqwest::retry::never())
            // A redirect would carry the key to a host the user did not name.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(USER_AGENT);
        let proxies = [
            ("HTTPS_PROXY", &self.https, Proxy::https::<String> as fn(String) -> reqwest::Result<Proxy>),
            ("HTTP_PROXY", &self.http, Proxy::http::<String>),
            ("ALL_PROXY", &self.all, Proxy::all::<String>),
        ];
        for (name, address, make) in proxies {
            let Some(address) = address else { continue };
            let scheme = address.split_once("://").map_or("http", |(scheme, _)| scheme);
            if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") {
                let reason =
                    format!("{name} asks for \"{scheme}\", only http and https proxies are supported");
                return Err(Error::Proxy { reason });
            }
            let proxy = make(address.clone())
                .map_err(|_| Error::Proxy { reason: format!("{name} is not the address of a proxy") })?;
            let exceptions = match &self.no_proxy {
                Some(own) => NoProxy::from_string(&format!("{own},{LOOPBACK}")),
                None => NoProxy::from_string(LOOPBACK),
            };
            builder = builder.proxy(proxy.no_proxy(exceptions));
        }
        for file in &self.extra_roots {
            let roots = std::fs::read(file).map_err(|error| error.to_string());
            let roots =
                roots.and_then(|pem| Certificate::from_pem_bundle(&pem).map_err(|error| chain(&error)));
            match roots {
                Ok(roots) => builder = builder.tls_certs_merge(roots),
                // As the reference's runtime does: the system's roots may be enough.
                Err(reason) => tracing::warn!(file, reason, "extra root certificates are ignored"),
            }
        }
        builder.build().map_err(|error| Error::Client { reason: chain(&error) })
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Http").field("clients", &clients).finish()
    }
}

impl Http {
    /// No client yet.
    pub fn new() -> Http {
        Http::default()
    }

    /// The client for an environment's proxy and TLS variables.
    pub(crate) async fn client(&self, env: &Env) -> Result<Client, Error> {
        let settings = Settings::from_env(env);
        let slot = {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            match clients.iter().find(|(known, _)| *known == settings) {
                Some((_, slot)) => Arc::clone(slot),
                None => {
                    if clients.len() >= MAX_CLIENTS {
                        // The oldest goes; requests under way keep their own handle.
                        clients.remove(0);
                    }
                    let slot = Slot::default();
                    clients.push((settings.clone(), Arc::clone(&slot)));
                    slot
                }
            }
        };
        if let Some(Ok(client)) = slot.get() {
            return Ok(client.clone());
        }
        let made = {
            let slot = Arc::clone(&slot);
            tokio::task::spawn_blocking(move || slot.get_or_init(|| settings.build()).clone()).await
        };
        made.expect("making a client does not panic").inspect_err(|_| {
            // A certificate store may be repaired: the next request tries again.
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.retain(|(_, known)| !Arc::ptr_eq(known, &slot));
        })
    }
}

/// Sends one POST and waits for the head of the answer.
///
/// # Errors
/// No connection, no head before `deadline`, or a status other than 2xx with what the provider said about it.
pub(crate) async fn post(
    client: &Client,
    url: &str,
    headers: HeaderMap,
    body: Vec<u8>,
    deadline: Option<Duration>,
) -> Result<Response, ModelFailure> {
    let host = host_of(url);
    let request = client.post(url).headers(headers).body(body).send();
    let response = match deadline {
        Some(deadline) => tokio::time::timeout(deadline, request)
            .await
            .map_err(|_| ModelFailure::new(silence(&format!("no answer from {host}"), deadline)))?,
        None => request.await,
    };
    let response = response.map_err(|error| {
        ModelFailure::new(format!("Connection error: {host}: {}", chain(&error.without_url())))
    })?;
    if response.status().is_success() { Ok(response) } else { Err(refusal(response, deadline).await) }
}

/// Most bytes read of an answer that is no stream: a list of models is the largest.
const MAX_RECORD_BYTES: usize = 8 << 20;

/// A whole answer that is no stream.
pub(crate) struct Record {
    /// The status, whatever it is.
    pub(crate) status: StatusCode,
    /// At most [`MAX_RECORD_BYTES`] of the body.
    pub(crate) body: Vec<u8>,
}

impl Record {
    /// Status and body in the words of the other end, cut to a readable length.
    pub(crate) fn text(&self) -> String {
        error_text(self.status, &String::from_utf8_lossy(&self.body))
    }
}

/// Sends a request and reads the whole answer, both before `deadline`.
///
/// # Errors
/// A reason for a person: no connection, no whole answer in time. It does not name the host.
pub(crate) async fn whole(request: reqwest::RequestBuilder, deadline: Duration) -> Result<Record, String> {
    let read = async {
        let mut response = request.send().await.map_err(|error| cause(&error.without_url()))?;
        let (status, mut body) = (response.status(), Vec::new());
        while body.len() < MAX_RECORD_BYTES {
            match response.chunk().await.map_err(|error| cause(&error.without_url()))? {
                Some(piece) => body.extend_from_slice(&piece),
                None => break,
            }
        }
        Ok(Record { status, body })
    };
    match tokio::time::timeout(deadline, read).await {
        Ok(read) => read,
        Err(_) => Err(format!("no answer for {} s", deadline.as_secs_f32())),
    }
}

/// The text for a provider that stayed silent. Retry classification looks for these words.
pub(crate) fn silence(what: &str, deadline: Duration) -> String {
    format!("stream deadline exceeded: {what} for {} s", deadline.as_secs_f32())
}

/// The pieces of an answer's body.
pub(crate) fn pieces(response: Response) -> impl Stream<Item = Result<Bytes, ModelFailure>> + Send + Unpin {
    let host = address(response.url());
    let stream = response.bytes_stream().map(move |piece| {
        piece.map_err(|error| {
            let reason = chain(&error.without_url());
            ModelFailure::new(format!("Connection error: the answer of {host} broke off: {reason}"))
        })
    });
    Box::pin(stream)
}

/// The pieces of a body of events; one JSON record instead of them becomes the data of one event.
pub(crate) fn events(response: Response) -> impl Stream<Item = Result<Bytes, ModelFailure>> + Send + Unpin {
    if is_json(response.headers()) {
        Either::Left(Box::pin(one_record(pieces(response))))
    } else {
        Either::Right(pieces(response))
    }
}

/// Whether the answer is one JSON record instead of a stream of events: an error under status 200, or a server that
/// does not stream.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("application/json")
}

/// The whole body as the data of one event. Line breaks in JSON stand between its tokens, where a space does as well.
fn one_record<S>(pieces: S) -> impl Stream<Item = Result<Bytes, ModelFailure>> + Send + 'static
where
    S: Stream<Item = Result<Bytes, ModelFailure>> + Send + Unpin + 'static,
{
    let body = pieces.map(|piece| {
        piece.map(|bytes| {
            bytes
                .iter()
                .map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte })
                .collect::<Bytes>()
        })
    });
    futures_util::stream::once(std::future::ready(Ok(Bytes::from_static(b"data: ")))).chain(body)
}

async fn refusal(mut response: Response, deadline: Option<Duration>) -> ModelFailure {
    let status = response.status();
    let retry_after_ms = retry_after(response.headers());
    let should_retry = should_retry(response.headers());
    let mut body = Vec::new();
    let read = async {
        while body.len() < MAX_ERROR_BYTES {
            match response.chunk().await {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) | Err(_) => return,
            }
        }
    };
    // A body that stays open is cut: the status says most of it.
    let limit = deadline.map_or(ERROR_BODY_TIMEOUT, |deadline| deadline.min(ERROR_BODY_TIMEOUT));
    let _ = tokio::time::timeout(limit, read).await;
    let message = error_text(status, &String::from_utf8_lossy(&body));
    let message = match retry_after_ms.filter(|wait| *wait > MAX_RETRY_DELAY_MS) {
        Some(wait) if should_retry.unwrap_or_else(|| passes(status)) => refused_wait(wait, &message),
        _ => message,
    };
    ModelFailure { status: Some(status.as_u16()), retry_after_ms, should_retry, ..ModelFailure::new(message) }
}

/// Whether a status is one of load or of a fault that passes: then the provider's waiting time is about another try.
fn passes(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 425 | 429)
}

/// The text for a provider that asks for a longer wait than anybody would sit through (literal of the reference).
fn refused_wait(wait_ms: u64, message: &str) -> String {
    let (asked, most) = (wait_ms.div_ceil(1000), MAX_RETRY_DELAY_MS / 1000);
    format!("Server requested {asked}s retry delay (max: {most}s). {message}")
}

/// What the provider itself says about another try (OpenAI's and Anthropic's own clients heed it).
fn should_retry(headers: &HeaderMap) -> Option<bool> {
    match headers.get("x-should-retry")?.to_str().ok()?.trim() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn error_text(status: StatusCode, body: &str) -> String {
    match body.trim() {
        "" => format!("{} status code (no body)", status.as_u16()),
        body => format!("{} {}", status.as_u16(), cut(body)),
    }
}

/// At most [`MAX_ERROR_CHARS`] of a provider's text.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_ERROR_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}... [truncated {} chars]", &text[..end], text[end..].chars().count()),
    }
}

/// Longest wait that is passed on. Whoever retries gives up far below; this only keeps nonsense out of sums and texts.
const MAX_RETRY_AFTER_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// `retry-after-ms`, else `retry-after` as seconds or date (RFC 9110, 10.2.3), in milliseconds from now.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    if let Some(millis) = text("retry-after-ms").and_then(number) {
        return Some((millis as u64).min(MAX_RETRY_AFTER_MS));
    }
    let value = text("retry-after")?;
    let millis = match number(value) {
        Some(seconds) => (seconds * 1000.0) as u64,
        None => {
            let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
            let wait = date.as_millisecond().saturating_sub(jiff::Timestamp::now().as_millisecond());
            u64::try_from(wait).unwrap_or(0)
        }
    };
    Some(millis.min(MAX_RETRY_AFTER_MS))
}

/// An error and its causes in one line.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// What an error comes down to.
fn cause(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

pub(crate) fn host_of(url: &str) -> String {
    reqwest::Url::parse(url).map_or_else(|_| "the configured address".to_owned(), |url| address(&url))
}

/// Host, and the port when it is not the scheme's own.
fn address(url: &reqwest::Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// A header value that logs do not show.
pub(crate) fn secret_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Env {
        pairs.iter().copied().collect()
    }

    #[tokio::test]
    async fn one_client_for_each_setting() {
        let http = Http::new();
        for (variables, count) in [
            (&[][..], 1),
            (&[("UNRELATED", "x")], 1),
            (&[("HTTPS_PROXY", "http://user:pw@proxy:3128")], 2),
            (&[("https_proxy", "http://user:pw@proxy:3128"), ("HTTPS_PROXY", "http://other:1")], 2),
            (&[("HTTPS_PROXY", "http://user:pw@proxy:3128"), ("NO_PROXY", "localhost")], 3),
        ] {
            http.client(&env(variables)).await.unwrap();
            assert_eq!(http.clients.lock().unwrap().len(), count, "{variables:?}");
        }
        for index in 0..2 * MAX_CLIENTS {
            http.client(&env(&[("NO_PROXY", &index.to_string())])).await.unwrap();
        }
        assert_eq!(http.clients.lock().unwrap().len(), MAX_CLIENTS);
    }

    #[tokio::test]
    async fn a_bad_proxy_is_named_without_its_password() {
        let http = Http::new();
        for (name, value) in
            [("HTTPS_PROXY", "socks5://u:hunter2@h:1"), ("ALL_PROXY", "http://u:hunter2@:x:y/")]
        {
            let error = http.client(&env(&[(name, value)])).await.unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("hunter2"), "{error}");
        }
        assert_eq!(http.clients.lock().unwrap().len(), 0, "a failure is tried again");
    }

    #[test]
    fn error_texts_keep_status_and_body() {
        let status = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(error_text(status, " {\"a\":1}\n"), "429 {\"a\":1}");
        assert_eq!(error_text(status, ""), "429 status code (no body)");
        let long = "ä".repeat(MAX_ERROR_CHARS + 7);
        assert!(error_text(status, &long).ends_with("ä... [truncated 7 chars]"));
    }

    #[test]
    fn waiting_times_are_read_in_every_form() {
        let headers = |pairs: &[(&'static str, &str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
        };
        for (pairs, want) in [
            (&[("retry-after", "7")][..], Some(7000)),
            (&[("retry-after", "0.5")], Some(500)),
            (&[("retry-after", "7"), ("retry-after-ms", "120")], Some(120)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(0)),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "-1")], None),
            (&[], None),
        ] {
            assert_eq!(retry_after(&headers(pairs)), want, "{pairs:?}");
        }
        for (name, value) in [
            ("retry-after", "Fri, 31 Dec 2100 23:59:59 GMT"),
            ("retry-after", "1e300"),
            ("retry-after-ms", "99999999999999"),
        ] {
            assert_eq!(retry_after(&headers(&[(name, value)])), Some(MAX_RETRY_AFTER_MS), "{value}");
        }
        for (value, want) in [("true", Some(true)), ("false", Some(false)), ("1", None)] {
            assert_eq!(should_retry(&headers(&[("x-should-retry", value)])), want);
        }
        assert_eq!(should_retry(&headers(&[])), None);
    }
}
