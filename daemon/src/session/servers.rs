//! Models that may come and go while a session lives: those of local servers, and those of a models file that is edited.
//!
//! A local server is contacted when it is asked for: by `--provider`, `--model`, `--models`, the settings, the model a stored
//! session used, an entry in `models.json`, or `refresh_models`. Opening a session waits for it only if one of the first
//! five names it.

use std::sync::Arc;
use std::time::Duration;

use atomic_agent::{AgentCommand, Input};
use atomic_protocol::cli::SessionOptions;
use atomic_protocol::json::ObjectWriter;
use atomic_protocol::link::FromDaemon;
use atomic_protocol::model::Model;
use atomic_providers::{Http, Registry, is_local, local_providers};
use atomic_session_store as store;
use serde_json::{Value, json};

use super::SessionMessage;
use super::actor::Actor;
use super::fallback;
use super::prepare::warning;
use super::shape;
use crate::settings::Settings;
use crate::ticket::Ticket;

/// How old a server's list may be when a session opens: windows that open together ask once.
const LIST_AGE: Duration = Duration::from_secs(10);

/// What can name a server when a session opens.
pub(super) struct Asked<'a> {
    pub(super) options: &'a SessionOptions,
    pub(super) saved: Option<&'a (String, String)>,
    pub(super) reattached: bool,
    pub(super) settings: &'a Settings,
}

impl Asked<'_> {
    /// The servers that the command line names as the place of the model.
    fn typed(&self) -> Vec<&'static str> {
        let model = self.options.model.as_deref().and_then(provider_in);
        servers([self.options.provider.as_deref(), model])
    }

    /// All that are named.
    fn named(&self) -> Vec<&'static str> {
        let scope = match &self.options.models[..] {
            [] => self.settings.enabled_models.as_deref().unwrap_or_default(),
            named => named,
        };
        let typed = self.options.provider.is_some() || self.options.model.is_some();
        let usual = self.settings.default_provider.as_deref().filter(|_| !typed && self.saved.is_none());
        let saved = self.saved.map(|(provider, _)| provider.as_str());
        let mut named = self.typed();
        named.extend(servers(scope.iter().map(|pattern| provider_in(pattern)).chain([usual, saved])));
        named
    }
}

/// The provider in `provider/pattern`.
fn provider_in(pattern: &str) -> Option<&str> {
    pattern.split_once('/').map(|(provider, _)| provider)
}

/// Those of the names that are servers of the user's own.
fn servers<'a>(names: impl IntoIterator<Item = Option<&'a str>>) -> Vec<&'static str> {
    let names = names.into_iter().flatten();
    names.filter_map(|name| local_providers().find(|known| known.eq_ignore_ascii_case(name))).collect()
}

/// The registry with the servers that this session names. Blocking, two seconds at most; without such a name it asks nobody.
///
/// # Errors
/// A line for the caller's stderr, when the command line names one that does not answer and the user's file knows no model
/// of it.
pub(super) fn open(
    registry: Registry,
    http: &Http,
    asked: &Asked<'_>,
    notices: &mut Vec<String>,
) -> Result<Registry, String> {
    let named = asked.named();
    if named.is_empty() {
        return Ok(registry);
    }
    let typed = asked.typed();
    let registry = match (&asked.options.api_key, typed.first()) {
        (Some(key), Some(provider)) => registry.with_api_key(provider, key),
        _ => registry,
    };
    let question = registry.with_local(http, &named, LIST_AGE);
    let (registry, failures) = tokio::runtime::Handle::current().block_on(question);
    for (provider, error) in failures {
        if registry.has_models(provider) {
            // The first request says what is wrong.
            continue;
        }
        if typed.contains(&provider) && !asked.reattached {
            return Err(format!("Error: {error}"));
        }
        notices.push(error.to_string());
    }
    Ok(registry)
}

/// What came of looking for models again.
#[derive(Debug)]
pub struct Found {
    /// Who asked; nobody, when an entry in the user's file did.
    ticket: Option<Ticket>,
    registry: Registry,
    /// The time for it was over.
    aborted: bool,
    errors: Vec<Value>,
}

impl Actor {
    /// `refresh_models`: reads the models file again and asks local servers, beside the session's other work. `within`: the
    /// time that servers have; `None`: they are not asked.
    pub(super) fn refresh_models(&self, ticket: Ticket, within: Option<Option<Duration>>) {
        self.look_for_models(Some(ticket), local_providers().collect(), within);
    }

    /// Servers that the user's file has an entry for are asked when the session begins; nobody waits for it.
    pub(super) fn ask_configured_servers(&self) {
        let unknown = |provider: &&'static str| !self.registry.knows_local(provider);
        let servers: Vec<&'static str> =
            self.registry.configured_local().into_iter().filter(unknown).collect();
        if !servers.is_empty() {
            self.look_for_models(None, servers, Some(None));
        }
    }

    fn look_for_models(
        &self,
        ticket: Option<Ticket>,
        servers: Vec<&'static str>,
        within: Option<Option<Duration>>,
    ) {
        let (registry, http, own) = (self.registry.clone(), self.daemon.http.clone(), self.own.clone());
        let age = if ticket.is_some() { Duration::ZERO } else { LIST_AGE };
        let in_use = self.agent.model().map(|model| model.provider.clone());
        tokio::spawn(async move {
            let reading = registry.clone();
            let read = tokio::task::spawn_blocking(move || reading.reloaded()).await;
            let (mut registry, warnings) = read.unwrap_or((registry, Vec::new()));
            let mut errors: Vec<Value> = warnings
                .iter()
                .map(|warning| json!({"provider": "models.json", "message": warning}))
                .collect();
            let mut aborted = false;
            if let Some(within) = within {
                // Where nobody said that there is a server, one that is not there is no error.
                let expected = |provider: &str| {
                    registry.configured_local().contains(&provider)
                        || registry.knows_local(provider)
                        || in_use.as_deref() == Some(provider)
                };
                let question = registry.with_local(&http, &servers, age);
                let answer = match within {
                    Some(within) => tokio::time::timeout(within, question).await.ok(),
                    None => Some(question.await),
                };
                aborted = answer.is_none();
                if let Some((view, failures)) = answer {
                    let failures = failures.into_iter().filter(|(provider, _)| expected(provider));
                    errors.extend(failures.map(
                        |(provider, error)| json!({"provider": provider, "message": error.to_string()}),
                    ));
                    registry = view;
                }
            }
            // A session that is over wants none; a ticket that is dropped answers so.
            let _ = own.send(SessionMessage::Models(Found { ticket, registry, aborted, errors })).await;
        });
    }

    pub(super) async fn take_found(&mut self, found: Found) {
        let Found { ticket, registry, aborted, errors } = found;
        self.take_registry(registry).await;
        for error in &errors {
            tracing::info!(session = self.info.id, %error, "models");
        }
        let Some(ticket) = ticket else { return };
        let models = self.available().await;
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        object.bool("aborted", aborted).value("errors", &errors);
        self.write_catalog(&mut object, &models);
        object.end();
        ticket.succeed(Some(&data));
    }

    /// Reads the models file again if it has changed. What is wrong with it is told to the client that asks, once.
    pub(super) async fn look_at_models_file(&mut self, ticket: &Ticket) {
        if !self.registry.is_outdated() {
            return;
        }
        let registry = self.registry.clone();
        let Ok((registry, warnings)) = tokio::task::spawn_blocking(move || registry.reloaded()).await else {
            return;
        };
        for notice in warnings {
            tracing::info!(session = self.info.id, notice, "models file");
            ticket.client().outbox.link(&FromDaemon::Notice(warning(&notice)));
        }
        self.take_registry(registry).await;
        self.ask_configured_servers();
    }

    /// Goes on with another view of the models: the scope and the fallback models are looked for in it, and the model in
    /// use is as it says.
    async fn take_registry(&mut self, registry: Registry) {
        let (opening, settings, view) = (self.info.opening.clone(), self.settings.clone(), registry.clone());
        // What matches nothing was told when the session began.
        let look = move || {
            let scope = shape::scope(&view, &opening.options, &settings).0;
            (scope, fallback::resolve(&view, &settings, &mut Vec::new()))
        };
        if let Ok((scope, fallbacks)) = tokio::task::spawn_blocking(look).await {
            (self.scope, self.fallbacks) = (scope, fallbacks);
        }
        self.registry = registry;
        self.key_found_for = None;
        let current = self.agent.model();
        let now = current.and_then(|current| self.registry.find(&current.provider, &current.id));
        if let Some(now) = now.filter(|now| current != Some(now)) {
            self.use_model(now);
        }
    }

    /// A model for a session that has none because nothing could be used when it began: somebody may have logged in, or
    /// started a server, since. A session that was held with a server of the user's own goes on with that or not at all.
    pub(super) async fn late_model(&mut self) {
        let held_with = store::context(&self.store).model.filter(|(provider, _)| is_local(provider));
        let usual = self.settings.default_provider.clone();
        let server = held_with.as_ref().map(|(provider, _)| provider.clone()).or_else(|| usual.clone());
        if let Some(server) = server.filter(|name| is_local(name) && !self.registry.knows_local(name)) {
            let (registry, _) = self.registry.with_local(&self.daemon.http, &[&server], LIST_AGE).await;
            self.registry = registry;
        }
        let (registry, model) = (self.registry.clone(), self.settings.default_model.clone());
        let look = move || match held_with {
            Some((provider, id)) => registry.find(&provider, &id),
            None => registry.initial(usual.as_deref(), model.as_deref()),
        };
        if let Ok(Some(model)) = tokio::task::spawn_blocking(look).await {
            self.use_model(model);
        }
    }

    fn use_model(&mut self, model: Arc<Model>) {
        let request = self.next_request();
        self.feed(Input::Command { request, command: AgentCommand::SetModel(model) });
    }
}
