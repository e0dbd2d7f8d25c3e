//! Commands that change the session: each reaches the agent, the settings, or both.

use std::time::Duration;

use atomic_agent::compaction::Instructions;
use atomic_agent::{AgentCommand, Wish};
use atomic_protocol::cli::Dialect;
use atomic_protocol::command::{Command, CompactParameters};
use atomic_protocol::json::ObjectWriter;
use serde_json::Value;

use super::actor::Actor;
use super::branches::Navigation;
use crate::clock;
use crate::page::{self, Shown};
use crate::settings;
use crate::ticket::Ticket;

/// The settings name a default of a provider that nobody knows (literal of the reference; the name of the command in it
/// is that of its terminal program).
pub(crate) const UNSUPPORTED_DEFAULT: &str = "Configured default model is unavailable or unsupported. Update defaultProvider/defaultModel or use /model.";

impl Actor {
    pub(super) async fn command(&mut self, ticket: Ticket, command: Command) {
        match command {
            Command::Prompt { message, images, streaming_behavior } => {
                if self.info.unsupported_default && self.agent.model().is_none() {
                    return ticket.fail(UNSUPPORTED_DEFAULT);
                }
                self.look_at_models_file(&ticket).await;
                if self.agent.model().is_none() {
                    self.late_model().await;
                }
                if self.agent.is_paused() {
                    let command =
                        AgentCommand::Prompt { text: message, images, behavior: streaming_behavior };
                    return self.ask(ticket, command);
                }
                if self.agent.is_idle() && !self.has_key() {
                    if let Some(refusal) = self.cannot_start().await {
                        return ticket.fail(&refusal);
                    }
                    self.key_found_for = self.agent.model().map(|model| model.provider.clone());
                }
                if self.agent.is_idle() {
                    self.look_for_fallbacks().await;
                }
                let tz = self.environment.env.get_set("TZ").and_then(|tz| tz.to_str()).map(str::to_owned);
                self.agent.set_date(clock::local_date(tz.as_deref()));
                let text = self.expanded(message).await;
                let command = AgentCommand::Prompt { text, images, behavior: streaming_behavior };
                self.ask(ticket, command);
            }
            Command::Steer { message, images } => {
                let text = self.expanded(message).await;
                self.ask(ticket, AgentCommand::Steer { text, images });
            }
            Command::FollowUp { message, images } => {
                let text = self.expanded(message).await;
                self.ask(ticket, AgentCommand::FollowUp { text, images });
            }
            Command::Abort => {
                let keep_queue = ticket.client().dialect() == Dialect::Pi;
                self.ask(ticket, AgentCommand::Abort { keep_queue });
            }
            Command::ClearQueue => self.ask(ticket, AgentCommand::ClearQueue),
            Command::PauseQueuedMessages => self.ask(ticket, AgentCommand::PauseQueues),
            Command::ResumeQueuedMessages => self.ask(ticket, AgentCommand::ResumeQueues),
            Command::SetModel { provider, model_id, persist } => {
                self.set_model(ticket, provider, model_id, persist).await;
            }
            Command::CycleModel { backward, persist } => self.cycle_model(ticket, backward, persist).await,
            Command::SetThinkingLevel { level, persist } => {
                let effective = self.agent.model().map_or(level, |model| model.clamp_thinking(level));
                if persist && let Err(error) = self.save_thinking(effective).await {
                    return ticket.fail(&error);
                }
                self.ask(ticket, AgentCommand::SetThinking(level));
            }
            Command::CycleThinkingLevel { persist } => {
                let next = self.agent.next_thinking();
                if persist
                    && let Some(level) = next
                    && let Err(error) = self.save_thinking(level).await
                {
                    return ticket.fail(&error);
                }
                self.ask(ticket, AgentCommand::CycleThinking);
            }
            Command::SetSteeringMode { mode } => {
                if let Err(error) = self.save("steeringMode", Value::from(mode.as_str())).await {
                    return ticket.fail(&error);
                }
                self.ask(ticket, AgentCommand::SetSteeringMode(mode));
            }
            Command::SetFollowUpMode { mode } => {
                if let Err(error) = self.save("followUpMode", Value::from(mode.as_str())).await {
                    return ticket.fail(&error);
                }
                self.ask(ticket, AgentCommand::SetFollowUpMode(mode));
            }
            Command::SetAutoRetry { enabled } => {
                if let Err(error) = self.save("retry.enabled", Value::from(enabled)).await {
                    return ticket.fail(&error);
                }
                self.ask(ticket, AgentCommand::SetAutoRetry(enabled));
            }
            Command::AbortRetry => self.ask(ticket, AgentCommand::AbortRetry),
            Command::Compact { custom_instructions, parameters } => {
                self.compact(ticket, custom_instructions, parameters).await;
            }
            Command::SetAutoCompaction { enabled } => {
                if let Err(error) = self.save("compaction.enabled", Value::from(enabled)).await {
                    return ticket.fail(&error);
                }
                self.settings.compaction.enabled = enabled;
                self.ask(ticket, AgentCommand::SetAutoCompaction(enabled));
            }
            Command::AbortCompaction => self.ask(ticket, AgentCommand::AbortCompaction),
            Command::SetSessionName { name } => self.ask(ticket, AgentCommand::SetName(name)),
            Command::SetLabel { entry_id, label } => self.set_label(ticket, &entry_id, label),
            Command::NavigateTree {
                target_id: target,
                summarize,
                custom_instructions,
                replace_instructions,
                label,
            } => {
                let instructions = || Instructions::new(custom_instructions, replace_instructions);
                let summarize = summarize.then(instructions);
                self.navigate(ticket, Navigation { target, summarize, label }).await;
            }
            Command::GetAvailableModels => self.get_available_models(ticket).await,
            Command::RefreshModels { allow_network, timeout_ms } => {
                let within = allow_network.then_some(timeout_ms.map(Duration::from_millis));
                self.refresh_models(ticket, within);
            }
            Command::LoginProvider { provider, kind } => self.login(ticket, &provider, kind),
            Command::SaveProviderCredential { provider, key } => {
                self.save_credential(ticket, provider, key).await;
            }
            // No login waits here: each is answered at once.
            Command::CancelLoginProvider { .. } => ticket.succeed(None),
            Command::LogoutProvider { provider } => self.logout(ticket, provider).await,
            Command::ExportHtml { output_path } => self.export_html(ticket, output_path.as_deref()),
            Command::InvokeShortcut { key } => ticket.fail(&format!("Shortcut not found: {key}")),
            Command::Reload => self.reload(ticket).await,
            read => self.read(ticket, &read),
        }
    }

    /// Writes the session as a page: work that grows with it, so beside it.
    fn export_html(&self, ticket: Ticket, output: Option<&str>) {
        let Some(file) = &self.info.file else {
            return ticket.fail("Cannot export in-memory session to HTML");
        };
        if !self.store.is_written() {
            return ticket.fail("Nothing to export yet - start a conversation first");
        }
        let path = match output.filter(|output| !output.is_empty()) {
            Some(output) => self.info.cwd.join(output),
            None => self.info.cwd.join(page::default_name(file)),
        };
        let shown = Shown::of(&self.store);
        tokio::task::spawn_blocking(move || match shown.write(&path) {
            Ok(()) => {
                let mut data = Vec::new();
                let mut object = ObjectWriter::begin(&mut data);
                object.str("path", &path.to_string_lossy());
                object.end();
                ticket.succeed(Some(&data));
            }
            Err(error) => ticket.fail(&format!("Cannot write {}: {error}", path.display())),
        });
    }

    /// In the dialect `pi` it means what it means there: a summary, whatever the settings say, and its result.
    async fn compact(
        &mut self,
        ticket: Ticket,
        instructions: Option<String>,
        mut parameters: CompactParameters,
    ) {
        if let Some(refusal) = self.no_key().await {
            return ticket.fail(&refusal);
        }
        let wish = match ticket.client().dialect() {
            Dialect::Pi => Wish::Summary(instructions),
            Dialect::Atomic | Dialect::Legacy => {
                parameters.query = parameters.query.or(instructions);
                Wish::Settings(parameters)
            }
        };
        self.look_for_fallbacks().await;
        self.ask(ticket, AgentCommand::Compact(wish));
    }

    /// Why the model cannot be asked now, if there is one.
    pub(super) fn no_key(&self) -> impl Future<Output = Option<String>> + use<> {
        let unsure = self.agent.model().is_some() && !self.has_key();
        let refusal = self.cannot_start();
        async move { if unsure { refusal.await } else { None } }
    }

    /// A key was found for the model's provider before. Should it be gone, the run fails and says so.
    fn has_key(&self) -> bool {
        self.key_found_for.is_some()
            && self.key_found_for.as_ref() == self.agent.model().map(|model| &model.provider)
    }

    /// Why a run cannot start now, apart from what the agent knows itself.
    fn cannot_start(&self) -> impl Future<Output = Option<String>> + use<> {
        let registry = self.registry.clone();
        let model = self.agent.model().cloned();
        async move {
            let model = model?;
            let probe = (registry.clone(), model.clone());
            if tokio::task::spawn_blocking(move || probe.0.has_auth(&probe.1)).await.unwrap_or(false) {
                return None;
            }
            // Without a key this fails at once and says why; should one have appeared meanwhile, the run may start.
            registry.credential(&model).await.err().map(|error| error.to_string())
        }
    }

    /// Saves one value to the global settings file, before the change is announced.
    fn save(&self, key: &'static str, value: Value) -> impl Future<Output = Result<(), String>> + use<> {
        let agent_dir = self.daemon.agent_dir.clone();
        saved(move || settings::update(&agent_dir, &[(key, value)]))
    }
}

/// Runs what writes a shared file where that may block.
pub(super) async fn saved(
    write: impl FnOnce() -> Result<(), settings::SettingsError> + Send + 'static,
) -> Result<(), String> {
    match tokio::task::spawn_blocking(write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(error) => Err(format!("Saving failed: {error}")),
    }
}
