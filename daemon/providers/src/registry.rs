//! One session's view of providers: which models there are, which can be used, and with what key.

mod keys;
mod servers;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atomic_protocol::json::Raw;
use atomic_protocol::model::Model;
use indexmap::IndexMap;

use crate::auth::{self, Credential, Scheme, Secret, Source, Stored, StoredCredential};
use crate::catalog::Catalog;
use crate::config_value::{ConfigValue, expand};
use crate::env::Env;
use crate::error::Error;
use crate::google_adc::Tokens;
use crate::local;
use crate::models_json::{Headers, ModelsFile, Provider};
use crate::pool::Pool;
use crate::stamp::Stamp;
use crate::{anthropic, bedrock, demo, google, mistral, openai_completions, openai_responses, shell};

pub use keys::KeyStatus;
use servers::Local;

/// The wire dialects this build speaks, apart from the built-in demo.
pub const SPOKEN_APIS: &[&str] = &[
    anthropic::API,
    openai_completions::API,
    openai_responses::API,
    openai_responses::azure::API,
    google::API,
    google::vertex::API,
    mistral::API,
    bedrock::API,
];

/// How long the provider keeps its cache of our prompts (Anthropic "Prompt caching").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheRetention {
    /// Ask for none.
    None,
    /// The provider's default.
    #[default]
    Short,
    /// An hour, where it is offered.
    Long,
}

/// What the user's settings say about requests.
#[derive(Clone, Debug)]
pub struct RequestOptions {
    /// Longest silence of a provider, before and between pieces of an answer. `None`: no limit. It does not run while
    /// the sink is full.
    pub deadline: Option<Duration>,
    /// `None`: `long` when the session's `PI_CACHE_RETENTION` says so, else short.
    pub cache_retention: Option<CacheRetention>,
    /// Thinking tokens for levels minimal, low, medium and high, for models that take a budget. `None`: the default.
    pub thinking_budgets: [Option<u64>; 4],
    /// Images that are larger than the model takes are made smaller.
    pub resize_images: bool,
}

/// Longest silence of a provider when settings do not say.
pub const STREAM_DEADLINE: Duration = Duration::from_secs(300);

impl RequestOptions {
    /// The retention to ask for in a session with these variables.
    pub(crate) fn cache(&self, env: &Env) -> CacheRetention {
        self.cache_retention.unwrap_or_else(|| match env.get("PI_CACHE_RETENTION") {
            Some("long") => CacheRetention::Long,
            _ => CacheRetention::Short,
        })
    }
}

impl Default for RequestOptions {
    fn default() -> Self {
        RequestOptions {
            deadline: Some(STREAM_DEADLINE),
            cache_retention: None,
            thinking_budgets: [None; 4],
            resize_images: true,
        }
    }
}

/// What a [`Registry`] is made from.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The agent directory, where `auth.json` and `models.json` are.
    pub agent_dir: PathBuf,
    /// The session's environment.
    pub env: Env,
    /// From settings.
    pub options: RequestOptions,
    /// What the sessions of the daemon have in common.
    pub pool: Pool,
}

/// One session's view of providers. Cloning shares everything; a clone can go into a task.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
    /// `--api-key` and the provider it is for.
    api_key: Option<Arc<(String, Secret)>>,
    demo: bool,
    /// Local servers that this session asked for, and what they have.
    local: Arc<IndexMap<&'static str, Local>>,
    /// In place of those it was made with.
    options: Option<Arc<RequestOptions>>,
}

struct Shared {
    setup: Setup,
    auth_files: Vec<PathBuf>,
    file: ModelsFile,
    /// The credentials last read, and what the files looked like just before.
    stored: Mutex<Option<(Stamps, Arc<Stored>)>>,
    /// What `!command` values printed; a session asks each command once.
    printed: Mutex<HashMap<String, String>>,
}

/// How the credential files looked, in order; `None` for one that is not there.
type Stamps = Vec<Option<Stamp>>;

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("agent_dir", &self.shared.setup.agent_dir).finish_non_exhaustive()
    }
}

impl Registry {
    /// Reads the user's `models.json` (blocking, one small file). A wrong file is ignored and named in
    /// [`Registry::warnings`]. `auth.json` is read anew whenever a key is looked up, so a new key needs no reload.
    pub fn load(setup: Setup) -> Registry {
        let file = ModelsFile::read(&setup.agent_dir.join("models.json"), None);
        Registry {
            shared: Shared::new(setup, file),
            api_key: None,
            demo: false,
            local: Arc::default(),
            options: None,
        }
    }

    /// This view with `models.json` read anew (blocking, one small file), and what is wrong with it. A wrong file changes
    /// nothing.
    pub fn reloaded(&self) -> (Registry, Vec<String>) {
        let shared = &self.shared;
        let setup = shared.setup.clone();
        let file = ModelsFile::read(&setup.agent_dir.join("models.json"), Some(&shared.file));
        let warnings = file.warning.iter().cloned().collect();
        let mut new = Registry { shared: Shared::new(setup, file), ..self.clone() };
        let mut local = IndexMap::clone(&self.local);
        local.retain(|provider, known| new.base_of(provider).is_ok_and(|base| base == known.base));
        for (provider, known) in &mut local {
            known.models = new.over_found(provider, &known.found);
        }
        new.local = Arc::new(local);
        (new, warnings)
    }

    /// Whether `models.json` has changed since it was read. One look at the file's status.
    pub fn is_outdated(&self) -> bool {
        Stamp::of(&self.shared.setup.agent_dir.join("models.json")) != self.shared.file.stamp
    }

    /// What went wrong with the user's files, for a person.
    pub fn warnings(&self) -> &[String] {
        self.shared.file.warning.as_slice()
    }

    /// What the user's file says of a provider.
    pub(crate) fn own(&self, provider: &str) -> Option<&Provider> {
        self.shared.file.providers.get(provider)
    }

    /// This view with a key (`--api-key`) that goes before every other of `provider`.
    #[must_use]
    pub fn with_api_key(mut self, provider: &str, key: &str) -> Registry {
        self.api_key = Some(Arc::new((provider.to_owned(), Secret(key.to_owned()))));
        self
    }

    /// This view with the demo among the available models: for a session whose user named it.
    #[must_use]
    pub fn with_demo(mut self) -> Registry {
        self.demo = true;
        self
    }

    /// This view with other options.
    #[must_use]
    pub fn with_options(mut self, options: RequestOptions) -> Registry {
        self.options = Some(Arc::new(options));
        self
    }

    /// What the session's settings say about requests.
    pub fn options(&self) -> &RequestOptions {
        self.options.as_deref().unwrap_or(&self.shared.setup.options)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.shared.setup.env
    }

    /// The tokens that Google gave to this daemon.
    pub(crate) fn google_tokens(&self) -> &Tokens {
        self.shared.setup.pool.google_tokens()
    }

    pub(crate) fn auth_file(&self) -> PathBuf {
        self.shared.setup.agent_dir.join("auth.json")
    }

    /// All provider ids: shipped ones, then the user's own, in the order of their tables, then local servers; `demo` is
    /// last.
    pub(crate) fn providers(&self) -> impl Iterator<Item = &str> {
        let own = self.shared.file.providers.keys().map(String::as_str);
        let own = own.filter(|name| Catalog::shipped().models(name).is_empty());
        let local = local::SERVERS.iter().map(|server| -> &str { server.provider });
        let local = local.filter(|name| self.own(name).is_none());
        Catalog::shipped().providers().chain(own).chain(local).chain([demo::PROVIDER])
    }

    /// The models of one provider: shipped ones, the user's own, those that a local server said it has.
    pub(crate) fn models(&self, provider: &str) -> &[Arc<Model>] {
        match (self.local.get(provider), self.own(provider)) {
            (Some(local), _) => &local.models,
            (None, Some(own)) => &own.models,
            (None, None) => Catalog::shipped().models(provider),
        }
    }

    /// The models that can be used now: their provider has a key configured and this build speaks their dialect
    /// ([`SPOKEN_APIS`]). Catalog order, then the user's own; the demo only after [`Registry::with_demo`]. Reads
    /// `auth.json` (blocking, one small file); runs no command.
    pub fn available(&self) -> Vec<Arc<Model>> {
        // An unusable file is reported with its reason when a key is needed.
        let stored = Stored::read(&self.shared.auth_files).unwrap_or_default();
        let usable = self.providers().filter(|provider| match *provider {
            demo::PROVIDER => self.demo,
            provider => self.has_key(provider, &stored),
        });
        let models = usable.flat_map(|provider| self.models(provider));
        models.filter(|model| speaks(&model.api)).cloned().collect()
    }

    /// Exactly this model, available or not. The demo is `demo`/`demo`.
    pub fn find(&self, provider: &str, id: &str) -> Option<Arc<Model>> {
        self.models(provider).iter().find(|model| model.id == id).cloned()
    }

    /// The fields that the user's file adds to the body of each request to `model` (`samplingParams`).
    pub(crate) fn sampling_params(&self, model: &Model) -> Option<&Raw> {
        self.own(&model.provider)?.sampling.get(&model.id)
    }

    /// Whether the model's provider has a key configured. Blocking as [`Registry::available`].
    pub fn has_auth(&self, model: &Model) -> bool {
        model.provider == demo::PROVIDER
            || self.has_key(&model.provider, &Stored::read(&self.shared.auth_files).unwrap_or_default())
    }

    fn has_key(&self, provider: &str, stored: &Stored) -> bool {
        if self.api_key.as_ref().is_some_and(|given| given.0 == provider) {
            return true;
        }
        let env = self.env();
        match stored.get(provider) {
            Some((StoredCredential::Login, _)) => false,
            Some((StoredCredential::ApiKey { key, env: own }, _)) => {
                let env = env.overlay(own);
                match key {
                    Some(key) => ConfigValue::parse(key).unset(&env).is_none(),
                    None => Self::found(provider, &env),
                }
            }
            None => match self.own(provider).and_then(|own| own.api_key.as_ref()) {
                Some(key) => ConfigValue::parse(key).unset(env).is_none(),
                None => Self::found(provider, env),
            },
        }
    }

    fn found(provider: &str, env: &Env) -> bool {
        auth::from_environment(provider, env).is_some()
            || auth::ambient(provider, env).is_some()
            || local::is_local(provider)
    }

    /// What a request to `model` authenticates with. Looked up now: files are read and commands run off the async
    /// threads, with a time limit of 10 s for each command.
    ///
    /// # Errors
    /// The text says what is missing and names the ways out; it contains "API key" when no key was found.
    pub async fn credential(&self, model: &Model) -> Result<Credential, Error> {
        let provider = model.provider.as_str();
        if provider == demo::PROVIDER {
            return Ok(Credential {
                key: None,
                scheme: Scheme::ApiKey,
                source: Source::NotNeeded,
                headers: Vec::new(),
                env: self.env().clone(),
            });
        }
        let own = self.own(provider);
        let stored = self.stored().await;
        let given = self.api_key.as_ref().filter(|given| given.0 == provider);
        let mut env = self.env().clone();
        let (key, scheme, source) = if let Some(given) = given {
            // The key is given; a broken file only matters for the variables it may carry.
            if let Ok(stored) = &stored
                && let Some((StoredCredential::ApiKey { env: own, .. }, _)) = stored.get(provider)
            {
                env = env.overlay(own);
            }
            (Some(given.1.clone()), Scheme::ApiKey, Source::CommandLine)
        } else {
            match stored?.get(provider) {
                Some((StoredCredential::Login, file)) => {
                    return Err(Error::SubscriptionLogin {
                        provider: provider.to_owned(),
                        file: file.clone(),
                        advice: auth::advice(provider, &self.shared.setup.agent_dir),
                    });
                }
                Some((StoredCredential::ApiKey { key, env: own }, _)) => {
                    env = env.overlay(own);
                    match key {
                        Some(key) => {
                            let key = self.look_up(key, provider, "API key", &env).await?;
                            (Some(Secret(key)), Scheme::ApiKey, Source::Stored)
                        }
                        None => self.environment_key(provider, &env)?,
                    }
                }
                None => match own.and_then(|own| own.api_key.as_ref()) {
                    Some(key) => {
                        let key = self.look_up(key, provider, "API key", &env).await?;
                        (Some(Secret(key)), Scheme::ApiKey, Source::ModelsJson)
                    }
                    None => self.environment_key(provider, &env)?,
                },
            }
        };
        let mut headers = Vec::new();
        if let Some(own) = own {
            if let Some(key) = key.as_ref().filter(|_| own.auth_header) {
                headers.push(("authorization".to_owned(), Some(Secret(format!("Bearer {}", key.0)))));
            }
            let none = Headers::new();
            let of_model = own.model_headers.get(&model.id).unwrap_or(&none);
            for (name, value) in own.headers.iter().chain(of_model) {
                let value = match value {
                    Some(value) => {
                        Some(Secret(self.look_up(value, provider, &format!("header {name}"), &env).await?))
                    }
                    None => None,
                };
                headers.push((name.clone(), value));
            }
        }
        Ok(Credential { key, scheme, source, headers, env })
    }

    /// The stored credentials as the files have them now. A file that has not changed is not read again: two thread
    /// hand-overs before every request are what a user would wait for.
    async fn stored(&self) -> Result<Arc<Stored>, Error> {
        let files = &self.shared.auth_files;
        let stamps: Stamps = files.iter().map(|file| Stamp::of(file)).collect();
        let kept = || self.shared.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, stored)) = &*kept()
            && *known == stamps
        {
            return Ok(Arc::clone(stored));
        }
        let files = files.clone();
        let read = tokio::task::spawn_blocking(move || Stored::read(&files)).await;
        let stored = Arc::new(read.expect("reading a file does not panic")?);
        *kept() = Some((stamps, Arc::clone(&stored)));
        Ok(stored)
    }

    fn environment_key(&self, provider: &str, env: &Env) -> Result<(Option<Secret>, Scheme, Source), Error> {
        if let Some((key, scheme, variable)) = auth::from_environment(provider, env) {
            return Ok((Some(key), scheme, Source::Environment(variable.to_owned())));
        }
        if let Some(what) = auth::ambient(provider, env) {
            return Ok((None, Scheme::Bearer, Source::Ambient(what)));
        }
        if local::is_local(provider) {
            return Ok((None, Scheme::ApiKey, Source::NotNeeded));
        }
        let advice = auth::advice(provider, &self.shared.setup.agent_dir);
        Err(Error::NoApiKey { provider: provider.to_owned(), advice })
    }

    async fn look_up(&self, text: &str, provider: &str, what: &str, env: &Env) -> Result<String, Error> {
        let command = match ConfigValue::parse(text) {
            ConfigValue::Command(command) => command,
            ConfigValue::Text(pieces) => {
                return expand(&pieces, env).map_err(|variable| Error::UnsetVariable {
                    provider: provider.to_owned(),
                    what: what.to_owned(),
                    variable,
                });
            }
        };
        let printed = || self.shared.printed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = printed().get(&command).cloned();
        if let Some(value) = known {
            return Ok(value);
        }
        let dir = &self.shared.setup.agent_dir;
        match shell::output(&command, env, dir, shell::COMMAND_TIMEOUT).await {
            Ok(value) => {
                printed().insert(command, value.clone());
                Ok(value)
            }
            Err(reason) => {
                let (provider, what) = (provider.to_owned(), what.to_owned());
                Err(Error::Command { provider, what, command, reason })
            }
        }
    }
}

impl Shared {
    fn new(setup: Setup, file: ModelsFile) -> Arc<Shared> {
        let auth_files = auth::files(&setup.agent_dir, &setup.env);
        Arc::new(Shared { setup, auth_files, file, stored: Mutex::default(), printed: Mutex::default() })
    }
}

/// Whether this build speaks a model's dialect.
pub(crate) fn speaks(api: &str) -> bool {
    SPOKEN_APIS.contains(&api) || api == demo::API
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn registry(dir: &Path, env: &[(&str, &str)], auth: &str, models: &str) -> Registry {
        for (name, text) in [("auth.json", auth), ("models.json", models)] {
            let file = dir.join(name);
            if text.is_empty() {
                drop(std::fs::remove_file(file))
            } else {
                std::fs::write(file, text).unwrap()
            }
        }
        Registry::load(Setup {
            agent_dir: dir.to_owned(),
            env: env.iter().copied().collect(),
            ..Setup::default()
        })
    }

    const STORED: &str = r#"{"anthropic":{"type":"api_key","key":"$MINE","env":{"MINE":"stored"}}}"#;
    const MODELS: &str = r#"{"providers":{"anthropic":{"apiKey":"file-$ANTHROPIC_API_KEY","headers":{"X-A":"${ANTHROPIC_API_KEY}","x-b":null}}}}"#;

    #[tokio::test]
    async fn keys_come_in_the_documented_order() {
        let dir = tempfile::tempdir().unwrap();
        let env = [("ANTHROPIC_API_KEY", "env")];
        let both =
            [("ANTHROPIC_API_KEY", "env"), ("ANTHROPIC_AUTH_TOKEN", "tok"), ("ANTHROPIC_OAUTH_TOKEN", "sub")];
        let variable = |name: &str| Source::Environment(name.into());
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str, Option<&'a str>, &'a str, Source, Scheme);
        let rows: [Row<'_>; 6] = [
            (&env, STORED, MODELS, Some("cli"), "cli", Source::CommandLine, Scheme::ApiKey),
            (&env, STORED, MODELS, None, "stored", Source::Stored, Scheme::ApiKey),
            (&env, "", MODELS, None, "file-env", Source::ModelsJson, Scheme::ApiKey),
            (&env, "", "", None, "env", variable("ANTHROPIC_API_KEY"), Scheme::ApiKey),
            (&both, "", "", None, "tok", variable("ANTHROPIC_AUTH_TOKEN"), Scheme::Bearer),
            (&both[2..], "", "", None, "sub", variable("ANTHROPIC_OAUTH_TOKEN"), Scheme::ApiKey),
        ];
        for (env, auth, models, cli, key, source, scheme) in rows {
            let mut registry = registry(dir.path(), env, auth, models);
            if let Some(key) = cli {
                registry = registry.with_api_key("anthropic", key);
            }
            let model = registry.find("anthropic", "claude-opus-5").unwrap();
            assert!(registry.has_auth(&model));
            assert!(registry.available().iter().all(|model| model.provider == "anthropic"));
            assert!(registry.available().contains(&model));
            let credential = registry.credential(&model).await.unwrap();
            assert_eq!(credential.key.as_ref().map(|key| key.0.as_str()), Some(key));
            assert_eq!((credential.source(), credential.scheme), (&source, scheme));
            if !models.is_empty() {
                let value =
                    credential.headers.iter().map(|(n, v)| (n.as_str(), v.as_ref().map(|v| v.0.as_str())));
                assert_eq!(value.collect::<Vec<_>>(), [("X-A", Some("env")), ("x-b", None)]);
            }
        }
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_named_and_does_not_fall_through() {
        let dir = tempfile::tempdir().unwrap();
        let env = [("ANTHROPIC_API_KEY", "env")];
        for (env, auth, models, want) in [
            (&env[..0], "", "", "No API key found for anthropic. Set ANTHROPIC_API_KEY, or put an API key"),
            (&env, r#"{"anthropic":{"type":"oauth","access":"a","expires":9}}"#, "", "subscription login"),
            (&env, r#"{"anthropic":{"type":"api_key","key":"$GONE"}}"#, "", "environment variable GONE"),
            (&env, "{", "", "not a JSON object"),
            (&env[..0], "", MODELS, "environment variable ANTHROPIC_API_KEY"),
        ] {
            let registry = registry(dir.path(), env, auth, models);
            let model = registry.find("anthropic", "claude-opus-5").unwrap();
            let error = registry.credential(&model).await.unwrap_err().to_string();
            assert!(error.contains(want), "{auth}: {error}");
            if auth != "{" {
                assert!(registry.available().is_empty(), "{auth}");
            }
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_command_is_asked_once_a_session() {
        let dir = tempfile::tempdir().unwrap();
        let auth = r#"{"anthropic":{"type":"api_key","key":"!echo x >> runs; echo printed"},"minimax":{"type":"api_key","key":"!echo out; exit 7"}}"#;
        let registry = registry(dir.path(), &[("PATH", "/usr/bin:/bin")], auth, "");
        let model = registry.find("anthropic", "claude-opus-5").unwrap();
        assert!(registry.has_auth(&model));
        assert!(!dir.path().join("runs").exists(), "looking around runs nothing");
        for _ in 0..2 {
            assert_eq!(registry.credential(&model).await.unwrap().key, Some(Secret("printed".into())));
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("runs")).unwrap(), "x\n");
        let error =
            registry.credential(&registry.models("minimax")[0].clone()).await.unwrap_err().to_string();
        assert!(error.contains("API key of minimax") && error.contains('7'), "{error}");
    }

    #[test]
    fn available_models_are_spoken_ones_in_catalog_order_then_own() {
        let dir = tempfile::tempdir().unwrap();
        let models = r#"{"providers":{"mine":{"baseUrl":"http://x","api":"anthropic-messages","apiKey":"k","models":[{"id":"a"},{"id":"b","api":"other"}]}}}"#;
        let env = [("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "k"), ("MINIMAX_API_KEY", "k")];
        let registry = registry(dir.path(), &env, "", models);
        let mut providers: Vec<String> = registry.available().iter().map(|m| m.provider.clone()).collect();
        providers.dedup();
        assert_eq!(providers, ["anthropic", "minimax", "openai", "mine"]);
        assert!(registry.find("mine", "b").is_some() && !registry.available().iter().any(|m| m.id == "b"));
        assert!(registry.find("demo", "demo").is_some());
        let with_demo = registry.with_demo().available();
        assert_eq!(with_demo.last().map(|m| m.provider.as_str()), Some("demo"));
    }
}
