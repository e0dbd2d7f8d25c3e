//! Models and the credentials they need: choose, list, refresh, log in and out.

use std::sync::Arc;

use atomic_agent::AgentCommand;
use atomic_protocol::command::{ApiKey, LoginKind};
use atomic_protocol::json::{ObjectWriter, Raw};
use atomic_protocol::model::{Model, ThinkingLevel};
use serde_json::{Value, json};

use super::actor::Actor;
use super::commands::saved;
use super::fallback;
use super::shape;
use crate::settings;
use crate::ticket::Ticket;

impl Actor {
    pub(super) async fn set_model(
        &mut self,
        ticket: Ticket,
        provider: String,
        model_id: String,
        persist: bool,
    ) {
        let models = self.available().await;
        let found = models.into_iter().find(|model| model.provider == provider && model.id == model_id);
        let Some(model) = found else {
            return ticket.fail(&format!("Model not found: {provider}/{model_id}"));
        };
        if persist && let Err(error) = self.save_model(&model).await {
            return ticket.fail(&error);
        }
        self.ask(ticket, AgentCommand::SetModel(model));
    }

    /// The next one of `--models`, else of those that can be used; `null` when there is no other.
    pub(super) async fn cycle_model(&mut self, ticket: Ticket, backward: bool, persist: bool) {
        let mut candidates = self.available().await;
        let is_scoped = !self.scope.is_empty();
        if is_scoped {
            let usable = |model: &&Arc<Model>| {
                candidates.iter().any(|known| is_same(known, model)) || model.provider == "demo"
            };
            candidates = self.scope.iter().filter(usable).cloned().collect();
        }
        if candidates.len() < 2 {
            return ticket.succeed(Some(b"null"));
        }
        let count = candidates.len();
        let at = self
            .agent
            .model()
            .and_then(|current| candidates.iter().position(|model| is_same(model, current)));
        let next = match (at, backward) {
            (Some(at), false) => (at + 1) % count,
            (Some(at), true) => (at + count - 1) % count,
            (None, _) => 0,
        };
        let model = candidates.swap_remove(next);
        if persist && let Err(error) = self.save_model(&model).await {
            return ticket.fail(&error);
        }
        self.ask(ticket, AgentCommand::CycleModel { model, is_scoped });
    }

    fn save_model(&self, model: &Model) -> impl Future<Output = Result<(), String>> + use<> {
        let level = model.clamp_thinking(self.agent.thinking());
        let changes = vec![
            ("defaultProvider", Value::from(model.provider.as_str())),
            ("defaultModel", Value::from(model.id.as_str())),
            ("defaultThinkingLevel", Value::from(level.as_str())),
        ];
        let agent_dir = self.daemon.agent_dir.clone();
        saved(move || settings::update(&agent_dir, &changes))
    }

    /// Saves the level as the default and, with a model, as that model's own (seed 001).
    pub(super) fn save_thinking(
        &self,
        level: ThinkingLevel,
    ) -> impl Future<Output = Result<(), String>> + use<> {
        let file = settings::file(&self.daemon.agent_dir);
        let model = self.agent.model().map(|model| format!("{}/{}", model.provider, model.id));
        saved(move || {
            let value = || Some(Value::from(level.as_str()));
            let mut changes: Vec<settings::Change<'_>> = vec![(&["defaultThinkingLevel"], value())];
            let own = model.as_deref().map(|model| ["modelThinkingLevels", model]);
            if let Some(own) = &own {
                changes.push((own, value()));
            }
            settings::edit(&file, &changes)
        })
    }

    /// The models that can be used now. Reads files, so on a blocking thread.
    pub(super) fn available(&self) -> impl Future<Output = Vec<Arc<Model>>> + use<> {
        let registry = self.registry.clone();
        async move { tokio::task::spawn_blocking(move || registry.available()).await.unwrap_or_default() }
    }

    pub(super) async fn get_available_models(&mut self, ticket: Ticket) {
        let models = self.available().await;
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        write_models(&mut object, "models", &models);
        object.end();
        ticket.succeed(Some(&data));
    }

    /// Reads the models file again. There is no catalog to fetch: it is part of the program.
    pub(super) async fn refresh_models(&mut self, ticket: Ticket) {
        let (registry, settings) = (self.registry.clone(), self.settings.clone());
        let opening = self.info.opening.clone();
        let read = tokio::task::spawn_blocking(move || {
            let (registry, warnings) = registry.reloaded();
            // What matches nothing was told when the session began.
            let (scope, _) = shape::scope(&registry, &opening.options, &settings);
            let fallbacks = fallback::resolve(&registry, &settings, &mut Vec::new());
            (registry, scope, fallbacks, warnings)
        });
        let Ok((registry, scope, fallbacks, warnings)) = read.await else {
            return ticket.fail("Reading the models failed; the log of atomicd says why");
        };
        (self.registry, self.scope, self.fallbacks) = (registry, scope, fallbacks);
        self.key_found_for = None;
        let errors: Vec<Value> =
            warnings.iter().map(|warning| json!({"provider": "models.json", "message": warning})).collect();
        let models = self.available().await;
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        object.bool("aborted", false).value("errors", &errors);
        self.write_catalog(&mut object, &models);
        object.end();
        ticket.succeed(Some(&data));
    }

    /// The keys that every answer about models ends with (reference 1.5).
    fn write_catalog(&self, object: &mut ObjectWriter<'_>, models: &[Arc<Model>]) {
        write_models(object, "models", models);
        write_models(object, "scopedModels", &self.scope);
        // Logins through a provider's page, and providers of extensions, are not built.
        object.raw("customAuthProviders", b"[]").raw("oauthProviders", b"[]");
    }

    /// A login needs somebody who types a key or opens a page; a client of the protocol sends what was typed with
    /// `save_provider_credential`.
    pub(super) fn login(&self, ticket: Ticket, provider: &str, kind: LoginKind) {
        match kind {
            LoginKind::ApiKey => ticket.fail("Provider login requires an interactive input host"),
            LoginKind::Oauth => ticket.fail(&format!("Unknown OAuth provider: {provider}")),
        }
    }

    pub(super) async fn save_credential(&mut self, ticket: Ticket, provider: String, key: ApiKey) {
        let file = self.daemon.agent_dir.join("auth.json");
        let write = saved(move || {
            let credential = json!({"type": "api_key", "key": key.0});
            settings::edit(&file, &[(&[&provider], Some(credential))])
        });
        if let Err(error) = write.await {
            return ticket.fail(&error);
        }
        self.key_found_for = None;
        let models = self.available().await;
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        self.write_catalog(&mut object, &models);
        object.end();
        ticket.succeed(Some(&data));
    }

    /// Forgets what is kept for a provider, known or not; what the environment holds stays and is named.
    pub(super) async fn logout(&mut self, ticket: Ticket, provider: String) {
        let file = self.daemon.agent_dir.join("auth.json");
        let name = provider.clone();
        let write = saved(move || match file.exists() {
            true => settings::edit(&file, &[(&[&name], None)]),
            false => Ok(()),
        });
        if let Err(error) = write.await {
            return ticket.fail(&error);
        }
        self.key_found_for = None;
        let (registry, name) = (self.registry.clone(), provider.clone());
        let status =
            tokio::task::spawn_blocking(move || registry.auth_status(&name)).await.unwrap_or_default();
        let models = self.available().await;
        let mut data = Vec::new();
        let mut object = ObjectWriter::begin(&mut data);
        object.str("provider", &provider);
        let mut auth = ObjectWriter::begin(object.key("authStatus"));
        auth.bool("configured", status.is_some());
        if let Some((source, label)) = status {
            auth.str("source", source);
            if let Some(label) = label {
                auth.str("label", &label);
            }
        }
        auth.end();
        write_models(&mut object, "models", &models);
        write_models(&mut object, "scopedModels", &self.scope);
        object.end();
        ticket.succeed(Some(&data));
    }
}

fn is_same(a: &Model, b: &Model) -> bool {
    a.provider == b.provider && a.id == b.id
}

fn write_models(object: &mut ObjectWriter<'_>, key: &'static str, models: &[Arc<Model>]) {
    let models: Vec<Raw> = models.iter().map(|model| model.raw.clone()).collect();
    object.raws(key, &models);
}
