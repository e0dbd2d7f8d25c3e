//! Model servers on the user's own machine: which models they have is asked, so neither a key nor `models.json` is needed.
//! Requests then go over [`crate::openai_completions`], which all of them speak.
//!
//! | provider | address | what is asked |
//! |---|---|---|
//! | `ollama` | `OLLAMA_HOST`, else 127.0.0.1:11434 | `/api/tags`; of each model `/api/show`; `/api/ps` |
//! | `llama.cpp` | `LLAMA_BASE_URL`, else 127.0.0.1:8080 | `/v1/models`, `/props` |
//! | `lmstudio` | `LMSTUDIO_BASE_URL`, else 127.0.0.1:1234 | `/api/v0/models`, else `/v1/models` |
//! | `vllm` | `VLLM_BASE_URL`, else 127.0.0.1:8000 | `/v1/models` |
//!
//! `baseUrl` in the user's `models.json` goes before the variable. A server is contacted when somebody asks for it and at
//! no other time (see [`crate::Registry::with_local`]).
//!
//! Where a server does not say how long a conversation may be, [`UNKNOWN_CONTEXT`] is taken; `modelOverrides` in
//! `models.json` knows better.

mod facts;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use atomic_protocol::model::{Model, ModelSpec};
use futures_util::{FutureExt as _, StreamExt as _};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::auth::Credential;
use crate::endpoint::{self, Headers};
use crate::env::Env;
use crate::error::Error;
use crate::http::{Http, host_of, whole};
use crate::openai_completions;
use facts::Facts;

/// How long a server may take to say which models it has. It is on this machine, or on the next desk.
pub const LIST_DEADLINE: Duration = Duration::from_secs(1);

/// How long it may take after that to say more about them. What comes too late is not waited for.
const FACTS_DEADLINE: Duration = Duration::from_secs(1);

/// Context window of a model whose server does not say.
pub const UNKNOWN_CONTEXT: u64 = 32_768;

/// Most output tokens asked for, and never more than half the window.
const MAX_TOKENS: u64 = 16_384;

/// Models of one server that are asked about one by one; the others keep what the list says.
const ASKED_ABOUT: usize = 64;

/// Questions about models that are out at the same time.
const AT_ONCE: usize = 8;

/// Lists kept. There are four kinds of server and few addresses of each.
const MAX_LISTS: usize = 16;

/// A kind of server.
#[derive(Debug)]
pub(crate) struct Server {
    /// Provider id.
    pub(crate) provider: &'static str,
    /// As its makers write it.
    name: &'static str,
    port: u16,
    variable: &'static str,
    /// How to start it.
    start: &'static str,
    /// How to give it a model.
    fill: &'static str,
}

/// All kinds.
pub(crate) static SERVERS: [Server; 4] = [
    Server {
        provider: "ollama",
        name: "Ollama",
        port: 11434,
        variable: "OLLAMA_HOST",
        start: "ollama serve",
        fill: "ollama pull MODEL",
    },
    Server {
        provider: "llama.cpp",
        name: "llama.cpp",
        port: 8080,
        variable: "LLAMA_BASE_URL",
        start: "llama-server -m MODEL.gguf",
        fill: "llama-server -m MODEL.gguf",
    },
    Server {
        provider: "lmstudio",
        name: "LM Studio",
        port: 1234,
        variable: "LMSTUDIO_BASE_URL",
        start: "lms server start",
        fill: "lms get MODEL",
    },
    Server {
        provider: "vllm",
        name: "vLLM",
        port: 8000,
        variable: "VLLM_BASE_URL",
        start: "vllm serve MODEL",
        fill: "vllm serve MODEL",
    },
];

/// The kind of this provider id.
pub(crate) fn server(provider: &str) -> Option<&'static Server> {
    SERVERS.iter().find(|server| server.provider == provider)
}

/// The ids of all kinds of local servers.
pub fn local_providers() -> impl Iterator<Item = &'static str> {
    SERVERS.iter().map(|server| server.provider)
}

/// Whether the provider is a server of the user's own that is asked what it has.
pub fn is_local(provider: &str) -> bool {
    server(provider).is_some()
}

impl Server {
    /// Where it is, without `/v1`; `own` is what `models.json` says.
    ///
    /// # Errors
    /// [`Error::BadAddress`].
    pub(crate) fn base(&self, own: Option<&str>, env: &Env) -> Result<String, Error> {
        let usual = || format!("127.0.0.1:{}", self.port);
        let given = own.or_else(|| env.get(self.variable)).map_or_else(usual, str::to_owned);
        let bad = || Error::BadAddress { provider: self.provider.to_owned(), address: given.clone() };
        let text = given.trim().trim_matches(['"', '\'']);
        let has_scheme = text.contains("://");
        let text = text.trim_end_matches('/');
        let text = if has_scheme { text.to_owned() } else { format!("http://{text}") };
        // A bare `:11500` names the port only.
        let text = text.replacen("://:", "://127.0.0.1:", 1);
        let mut url = reqwest::Url::parse(&text).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(bad());
        }
        // Without a scheme the port is the server's own, with one it is the scheme's.
        if !has_scheme && url.port().is_none() {
            url.set_port(Some(self.port)).map_err(|()| bad())?;
        }
        // "All addresses" is where a server listens, not where one goes.
        match url.host_str() {
            Some("0.0.0.0") => url.set_host(Some("127.0.0.1")).map_err(|_| bad())?,
            Some("[::]") => url.set_host(Some("[::1]")).map_err(|_| bad())?,
            _ => {}
        }
        let base = url.as_str().trim_end_matches('/');
        Ok(base.strip_suffix("/v1").unwrap_or(base).trim_end_matches('/').to_owned())
    }

    /// The models it says it has.
    ///
    /// # Errors
    /// The text names host and way out.
    pub(crate) async fn models(
        &'static self,
        http: &Http,
        credential: &Credential,
        base: &str,
    ) -> Result<Vec<ModelSpec>, Error> {
        let spec = ModelSpec {
            provider: self.provider.to_owned(),
            base_url: format!("{base}/v1"),
            api: openai_completions::API.to_owned(),
            input: vec!["text".to_owned()],
            ..ModelSpec::default()
        };
        let questions = Questions::new(http, credential, base, &Model::from_spec(spec.clone())).await?;
        let failed = |reason: String| Error::LocalServer {
            name: self.name,
            address: host_of(base),
            reason,
            start: self.start,
            variable: self.variable,
            provider: self.provider,
        };
        let found = match self.provider {
            "ollama" => ollama(&questions).await,
            "llama.cpp" => llama_cpp(&questions).await,
            "lmstudio" => lm_studio(&questions).await,
            _ => questions.list("/v1/models").await.map(|list| facts::openai(&list)),
        };
        let found = found.map_err(failed)?;
        if found.is_empty() {
            let (name, address) = (self.name, host_of(base));
            return Err(Error::NoLocalModels { name, address, fill: self.fill });
        }
        Ok(found.into_iter().map(|facts| facts.spec(&spec)).collect())
    }
}

/// What is asked of one server, and how.
struct Questions<'a> {
    client: reqwest::Client,
    headers: HeaderMap,
    base: &'a str,
}

impl<'a> Questions<'a> {
    async fn new(
        http: &Http,
        credential: &Credential,
        base: &'a str,
        model: &Model,
    ) -> Result<Questions<'a>, Error> {
        let mut headers = Headers::new(&model.provider);
        headers.key(credential, None)?;
        for (name, value) in endpoint::configured(model, credential) {
            headers.configured(name, value)?;
        }
        Ok(Questions { client: http.client(&credential.env).await?, headers: headers.finish()?, base })
    }

    /// The list at this path. The error is a reason for a person.
    async fn list(&self, path: &str) -> Result<Value, String> {
        let request = self.client.get(format!("{}{path}", self.base)).headers(self.headers.clone());
        let record = whole(request, LIST_DEADLINE).await?;
        if !record.status.is_success() {
            return Err(format!("{path} was answered with {}", record.text()));
        }
        serde_json::from_slice(&record.body).map_err(|_| format!("what it said at {path} is no JSON"))
    }

    /// A fact that is good to have: null when it is not to be had.
    async fn fact(&self, path: &str, body: Option<Value>) -> Value {
        let address = format!("{}{path}", self.base);
        let request = match body {
            Some(body) => self.client.post(address).body(body.to_string()),
            None => self.client.get(address),
        };
        match whole(request.headers(self.headers.clone()), FACTS_DEADLINE).await {
            Ok(record) if record.status.is_success() => {
                serde_json::from_slice(&record.body).unwrap_or_default()
            }
            _ => Value::Null,
        }
    }
}

async fn ollama(questions: &Questions<'_>) -> Result<Vec<Facts>, String> {
    let names = facts::ollama_names(&questions.list("/api/tags").await?);
    let show = |name: &String| questions.fact("/api/show", Some(json!({"model": name}))).boxed();
    let asked: Vec<_> = names.iter().take(ASKED_ABOUT).map(show).collect();
    let asked = futures_util::stream::iter(asked).buffered(AT_ONCE).collect::<Vec<Value>>();
    // All of them together have the time of one.
    let asked = async { tokio::time::timeout(FACTS_DEADLINE, asked).await.unwrap_or_default() };
    let (shown, running) = tokio::join!(asked, questions.fact("/api/ps", None));
    let mut shown = shown.into_iter();
    let all = names.into_iter().map(|name| facts::ollama(name, &shown.next().unwrap_or_default(), &running));
    Ok(all.flatten().collect())
}

async fn llama_cpp(questions: &Questions<'_>) -> Result<Vec<Facts>, String> {
    let (list, props) = tokio::join!(questions.list("/v1/models"), questions.fact("/props", None));
    list.map(|list| facts::llama_cpp(&list, &props))
}

async fn lm_studio(questions: &Questions<'_>) -> Result<Vec<Facts>, String> {
    match questions.list("/api/v0/models").await {
        Ok(list) if list.get("data").is_some_and(Value::is_array) => Ok(facts::lm_studio(&list)),
        _ => questions.list("/v1/models").await.map(|list| facts::openai(&list)),
    }
}

/// The lists that servers gave, by provider and address.
#[derive(Default)]
pub(crate) struct Lists(Mutex<Vec<Kept>>);

struct Kept {
    provider: &'static str,
    base: String,
    at: Instant,
    models: Arc<[ModelSpec]>,
}

impl Lists {
    /// The list, if it is not older than `age`.
    pub(crate) fn get(&self, provider: &str, base: &str, age: Duration) -> Option<Arc<[ModelSpec]>> {
        let lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lists.iter().find(|known| known.provider == provider && known.base == base)?;
        (known.at.elapsed() < age).then(|| Arc::clone(&known.models))
    }

    /// Keeps a list.
    pub(crate) fn put(&self, provider: &'static str, base: &str, models: Arc<[ModelSpec]>) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|known| known.provider != provider || known.base != base);
        if lists.len() >= MAX_LISTS {
            lists.remove(0);
        }
        lists.push(Kept { provider, base: base.to_owned(), at: Instant::now(), models });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_people_and_vendors_write() {
        for (provider, own, variable, want) in [
            ("ollama", None, None, Ok("http://127.0.0.1:11434")),
            ("ollama", None, Some("0.0.0.0"), Ok("http://127.0.0.1:11434")),
            ("ollama", None, Some("[::]:7"), Ok("http://[::1]:7")),
            ("ollama", None, Some(":11500"), Ok("http://127.0.0.1:11500")),
            ("ollama", None, Some("gpu"), Ok("http://gpu:11434")),
            ("ollama", None, Some("https://gpu.example/"), Ok("https://gpu.example")),
            ("ollama", None, Some("\"gpu:1\""), Ok("http://gpu:1")),
            ("ollama", Some("http://own:2/v1/"), Some("gpu"), Ok("http://own:2")),
            ("llama.cpp", None, Some("http://localhost:9999/v1"), Ok("http://localhost:9999")),
            ("lmstudio", None, None, Ok("http://127.0.0.1:1234")),
            ("vllm", Some("https://h/prefix/v1"), None, Ok("https://h/prefix")),
            ("vllm", None, Some("ftp://h"), Err(())),
            ("vllm", None, Some("http://"), Err(())),
        ] {
            let server = server(provider).unwrap();
            let env: Env = variable.map(|value| (server.variable, value)).into_iter().collect();
            let base = server.base(own, &env);
            assert_eq!(base.as_deref().map_err(|_| ()), want, "{provider} {own:?} {variable:?}: {base:?}");
        }
    }

    #[test]
    fn lists_are_kept_by_address_and_age() {
        let lists = Lists::default();
        let list =
            |id: &str| -> Arc<[ModelSpec]> { [ModelSpec { id: id.into(), ..ModelSpec::default() }].into() };
        lists.put("vllm", "a", list("1"));
        lists.put("vllm", "b", list("2"));
        lists.put("vllm", "a", list("3"));
        let long = Duration::from_secs(3600);
        let id = |base: &str, age| lists.get("vllm", base, age).map(|found| found[0].id.clone());
        assert_eq!((id("a", long), id("b", long)), (Some("3".into()), Some("2".into())));
        assert_eq!((id("a", Duration::ZERO), id("c", long)), (None, None));
        for index in 0..2 * MAX_LISTS {
            lists.put("vllm", &index.to_string(), list("x"));
        }
        assert_eq!(lists.0.lock().unwrap().len(), MAX_LISTS);
    }
}
