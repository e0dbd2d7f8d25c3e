//! What a session reads from files: when it is loaded, and again at `reload`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use atomic_agent::compaction::Parameters;
use atomic_agent::prompt::PromptParts;
use atomic_agent::{Budget, CompactionPolicy, FallbackModel, Limits, Reloaded, RetryPolicy};
use atomic_protocol::cli::SessionOptions;
use atomic_protocol::link::FromDaemon;
use atomic_protocol::model::{Model, ThinkingLevel};
use atomic_providers::{Env, Registry, RequestOptions, STREAM_DEADLINE};
use atomic_tools::SessionEnv;

use super::Opening;
use super::actor::Actor;
use super::fallback;
use super::prepare::warning;
use super::shape;
use crate::resources::trust::{self, Question};
use crate::resources::{self, Resources, Sources};
use crate::settings::{CompactionSettings, LimitSettings, RetrySettings, Settings};
use crate::ticket::Ticket;

/// Settings and resources, and what they were looked for with.
pub(super) struct Inputs {
    pub(super) settings: Settings,
    pub(super) resources: Arc<Resources>,
    legacy_agent_dir: Option<PathBuf>,
    trusted: bool,
}

impl Inputs {
    /// Reads them for a session in `cwd`. `previous`, on a reload, is what stays where a file cannot be used. Blocking.
    pub(super) fn load(
        agent_dir: &Path,
        opening: &Opening,
        cwd: &Path,
        previous: Option<(&Settings, &Resources)>,
        notices: &mut Vec<String>,
    ) -> Inputs {
        let home = opening.env.home();
        let legacy_agent_dir = resources::legacy_agent_dir(agent_dir, home);
        let legacy = legacy_agent_dir.as_deref();
        // The user's own say what holds for projects; a project's are not even opened before that.
        let (mut settings, mut warnings) = read_settings(agent_dir, legacy, None, previous);
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let question = Question {
            agent_dir,
            home,
            project: cwd,
            flag: opening.options.approve,
            here: real(&opening.cwd) == real(cwd),
            default: settings.default_project_trust,
        };
        let trusted = trust::decide(&question, notices);
        if trusted {
            (settings, warnings) = read_settings(agent_dir, legacy, Some(cwd), previous);
        }
        notices.extend(warnings);
        let mut inputs = Inputs { settings, resources: Arc::default(), legacy_agent_dir, trusted };
        let previous = previous.map(|(_, resources)| resources);
        let found = Resources::load(&inputs.sources(agent_dir, opening, cwd), previous, notices);
        inputs.resources = Arc::new(found);
        inputs
    }

    /// What other files are looked for with.
    pub(super) fn sources<'a>(
        &'a self,
        agent_dir: &'a Path,
        opening: &'a Opening,
        cwd: &'a Path,
    ) -> Sources<'a> {
        Sources {
            agent_dir,
            legacy_agent_dir: self.legacy_agent_dir.as_deref(),
            home: opening.env.home(),
            cwd,
            caller_cwd: &opening.cwd,
            trusted: self.trusted,
            options: &opening.options,
            settings: &self.settings,
        }
    }
}

fn read_settings(
    agent_dir: &Path,
    legacy: Option<&Path>,
    project: Option<&Path>,
    previous: Option<(&Settings, &Resources)>,
) -> (Settings, Vec<String>) {
    let Some((previous, _)) = previous else { return Settings::load(agent_dir, legacy, project) };
    let (settings, mut warnings) = Settings::reload(agent_dir, legacy, project);
    let settings = settings.unwrap_or_else(|| {
        warnings.push("the settings of this session stay as they were".to_owned());
        previous.clone()
    });
    (settings, warnings)
}

/// The agent's part of the settings.
pub(super) fn retry_policy(settings: &RetrySettings) -> RetryPolicy {
    RetryPolicy {
        enabled: settings.enabled,
        max_retries: settings.max_retries,
        base_delay_ms: settings.base_delay_ms,
    }
}

/// The agent's part of the settings.
pub(super) fn compaction_policy(settings: &CompactionSettings) -> CompactionPolicy {
    CompactionPolicy {
        enabled: settings.enabled,
        reserve_tokens: settings.reserve_tokens,
        strategy: settings.strategy,
        keep_recent_tokens: settings.keep_recent_tokens,
        parameters: Parameters {
            compression_ratio: settings.compression_ratio,
            preserve_recent: settings.preserve_recent,
            query: settings.query.clone(),
        },
    }
}

/// The agent's part of the settings and the command line, which goes before them.
pub(super) fn limits(settings: &LimitSettings, options: &SessionOptions) -> Limits {
    let run = Budget {
        max_turns: options.max_turns.or(settings.run.max_turns),
        max_cost: options.max_cost.or(settings.run.max_cost),
        ..settings.run
    };
    Limits { run, session: settings.session, priced: atomic_providers::price_is_known }
}

/// The providers' part of the settings.
pub(super) fn request_options(settings: &Settings) -> RequestOptions {
    let budget = |level| settings.thinking_budgets.get(&level).copied();
    RequestOptions {
        deadline: match settings.stream_deadline_ms {
            None => Some(STREAM_DEADLINE),
            Some(0) => None,
            Some(millis) => Some(Duration::from_millis(millis)),
        },
        thinking_budgets: [
            budget(ThinkingLevel::Minimal),
            budget(ThinkingLevel::Low),
            budget(ThinkingLevel::Medium),
            budget(ThinkingLevel::High),
        ],
        resize_images: settings.image_auto_resize,
        ..RequestOptions::default()
    }
}

/// The variables that providers see: the session's, with the proxy of the settings where the session names none.
pub(super) fn provider_env(env: &SessionEnv, settings: &Settings) -> Env {
    let own: Env = env
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned())))
        .collect();
    let Some(proxy) = &settings.http_proxy else { return own };
    let named = |name: &str| own.get(name).or_else(|| own.get(&name.to_lowercase())).is_some();
    let added: Vec<(String, String)> = ["HTTP_PROXY", "HTTPS_PROXY"]
        .into_iter()
        .filter(|name| !named(name))
        .map(|name| (name.to_owned(), proxy.clone()))
        .collect();
    own.overlay(added.iter().map(|(name, value)| (name, value)))
}

/// What a reload found.
struct Found {
    inputs: Inputs,
    registry: Registry,
    scope: Vec<Arc<Model>>,
    fallbacks: Vec<FallbackModel>,
    /// Those of them that can be used.
    usable: Vec<FallbackModel>,
    prompt: PromptParts,
    notices: Vec<String>,
}

impl Actor {
    /// `reload`. The model in use, its thinking level and the active tools stay. What is wrong with files is told to the
    /// client that asked, as at its start.
    pub(super) async fn reload(&mut self, ticket: Ticket) {
        let (daemon, info) = (self.daemon.clone(), self.info.clone());
        let (settings, resources, registry) =
            (self.settings.clone(), self.resources.clone(), self.registry.clone());
        let prompt = self.agent.prompt_parts().clone();
        let read = tokio::task::spawn_blocking(move || {
            let (agent_dir, opening, cwd) = (&daemon.agent_dir, &info.opening, &info.cwd);
            let mut notices = Vec::new();
            let inputs = Inputs::load(agent_dir, opening, cwd, Some((&settings, &resources)), &mut notices);
            let (registry, warnings) = registry.reloaded();
            let registry = registry.with_options(request_options(&inputs.settings));
            notices.extend(warnings);
            let (scope, warnings) = shape::scope(&registry, &opening.options, &inputs.settings);
            notices.extend(warnings);
            let fallbacks = fallback::resolve(&registry, &inputs.settings, &mut notices);
            let usable = fallback::usable(&registry, &fallbacks);
            let sources = inputs.sources(agent_dir, opening, cwd);
            let parts = shape::prompt_parts(&sources, &inputs.resources, Some(&prompt), &mut notices);
            let prompt = parts.unwrap_or_else(|error| {
                notices
                    .push(format!("{error}; the system prompt stays as it was").replacen("Error: ", "", 1));
                prompt
            });
            Found { inputs, registry, scope, fallbacks, usable, prompt, notices }
        });
        let Ok(Found { inputs, registry, scope, fallbacks, usable, prompt, notices }) = read.await else {
            return ticket.fail("Reading the files failed; the log of atomicd says why");
        };
        let settings = &inputs.settings;
        self.agent.reload(Reloaded {
            prompt,
            model: self.agent.model().and_then(|model| registry.find(&model.provider, &model.id)),
            steering_mode: settings.steering_mode,
            follow_up_mode: settings.follow_up_mode,
            retry: retry_policy(&settings.retry),
            compaction: compaction_policy(&settings.compaction),
            fallback_models: usable,
            limits: limits(&settings.limits, &self.info.opening.options),
        });
        self.environment.shell_path = settings.shell_path.clone().map(PathBuf::from);
        self.environment.shell_command_prefix = settings.shell_command_prefix.clone();
        self.environment.resize_images = settings.image_auto_resize;
        self.settings = inputs.settings;
        self.resources = inputs.resources;
        self.registry = registry;
        self.scope = scope;
        self.fallbacks = fallbacks;
        self.key_found_for = None;
        for notice in notices {
            tracing::info!(session = self.info.id, notice, "reload");
            ticket.client().outbox.link(&FromDaemon::Notice(warning(&notice)));
        }
        ticket.succeed(None);
    }
}
