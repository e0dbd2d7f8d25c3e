//! What shapes a session: its model, its tools, its system prompt.

use std::sync::Arc;

use atomic_agent::prompt::PromptParts;
use atomic_protocol::cli::SessionOptions;
use atomic_protocol::model::{Model, ThinkingLevel};
use atomic_protocol::tool::ToolSpec;
use atomic_providers::{Registry, demo, is_local};
use atomic_tools::{DEFAULT_TOOLS, builtin_specs};

use crate::context_files;
use crate::resources::{self, Resources, Sources};
use crate::settings::Settings;

/// Longest `--system-prompt` that may be the path of a file.
const MAX_PATH: usize = 4096;

/// A model, if one could be chosen, and the registry that knows its key.
pub(super) struct Chosen {
    pub(super) registry: Registry,
    pub(super) model: Option<Arc<Model>>,
    /// The level typed with the model.
    pub(super) thinking: Option<ThinkingLevel>,
    /// The models that `cycle_model` goes through, if some are named.
    pub(super) scope: Vec<Arc<Model>>,
    /// No model, because the settings' default is of a provider that nobody knows.
    pub(super) unsupported_default: bool,
}

impl Chosen {
    fn new(registry: Registry, model: Option<Arc<Model>>, thinking: Option<ThinkingLevel>) -> Chosen {
        Chosen { registry, model, thinking, scope: Vec::new(), unsupported_default: false }
    }
}

/// Command line, then the first of a scope in a session without a past, then the session's own, then the settings' default,
/// then the first that can be used; and the scope.
pub(super) fn choose_model(
    registry: Registry,
    options: &SessionOptions,
    saved: Option<&(String, String)>,
    reattached: bool,
    settings: &Settings,
    notices: &mut Vec<String>,
) -> Result<Chosen, String> {
    let (scope, warnings) = scope(&registry, options, settings);
    notices.extend(warnings);
    let mut chosen = choose(registry, options, &scope, saved, reattached, settings, notices)?;
    chosen.unsupported_default = chosen.model.is_none()
        && settings.default_model.is_some()
        && settings.default_provider.as_ref().is_some_and(|name| !chosen.registry.knows_provider(name));
    chosen.scope = scope;
    Ok(chosen)
}

/// The models that `--models` names, else the settings, and what names none. Blocking.
pub(super) fn scope(
    registry: &Registry,
    options: &SessionOptions,
    settings: &Settings,
) -> (Vec<Arc<Model>>, Vec<String>) {
    let named = match &options.models[..] {
        [] => settings.enabled_models.as_deref().unwrap_or_default(),
        named => named,
    };
    registry.scope(named)
}

fn choose(
    mut registry: Registry,
    options: &SessionOptions,
    scope: &[Arc<Model>],
    saved: Option<&(String, String)>,
    reattached: bool,
    settings: &Settings,
    notices: &mut Vec<String>,
) -> Result<Chosen, String> {
    let saved_demo = saved.is_some_and(|(provider, _)| provider == demo::PROVIDER);
    let named_demo = options.provider.as_deref() == Some(demo::PROVIDER);
    if named_demo || saved_demo {
        registry = registry.with_demo();
    }
    if options.provider.is_some() || options.model.is_some() {
        let resolved = registry
            .resolve(options.provider.as_deref(), options.model.as_deref())
            .map_err(|error| format!("Error: {error}"))?;
        notices.extend(resolved.warnings);
        if resolved.model.provider == demo::PROVIDER {
            registry = registry.with_demo();
        }
        if let Some(key) = &options.api_key {
            registry = registry.with_api_key(&resolved.model.provider, key);
        }
        if !(reattached && saved.is_some()) {
            return Ok(Chosen::new(registry, Some(resolved.model), resolved.thinking));
        }
    }
    let first = scope.iter().find(|model| options.api_key.is_some() || registry.has_auth(model)).cloned();
    if let (Some(key), Some(first)) = (&options.api_key, &first) {
        registry = registry.with_api_key(&first.provider, key);
    } else if options.api_key.is_some() && !reattached {
        return Err(
            "Error: --api-key requires a model to be specified via --model, --provider/--model, or --models"
                .to_owned(),
        );
    }
    if let Some((provider, id)) = saved {
        match registry.find(provider, id) {
            Some(model) if registry.has_auth(&model) => {
                return Ok(Chosen::new(registry, Some(model), None));
            }
            found => {
                let reason = if found.is_some() { "no auth configured" } else { "model no longer exists" };
                // What was said on the user's own machine is not sent elsewhere without a word of theirs.
                let stays = is_local(provider);
                let other = (!stays).then(|| {
                    registry.initial(settings.default_provider.as_deref(), settings.default_model.as_deref())
                });
                let other = other.flatten();
                let instead = match &other {
                    Some(model) => format!("Using {}/{}.", model.provider, model.id),
                    None if stays => "No other is used in its place; choose one with set_model.".to_owned(),
                    None => "No other model is available.".to_owned(),
                };
                notices.push(format!("Could not restore model {provider}/{id} ({reason}). {instead}"));
                return Ok(Chosen::new(registry, other, None));
            }
        }
    }
    let model = first.or_else(|| {
        registry.initial(settings.default_provider.as_deref(), settings.default_model.as_deref())
    });
    Ok(Chosen::new(registry, model, None))
}

/// The active tools: `--tools`, else the setting, else the usual four; less what is excluded.
pub(super) fn choose_tools(
    options: &SessionOptions,
    settings: &Settings,
    notices: &mut Vec<String>,
) -> Arc<[ToolSpec]> {
    let specs = builtin_specs();
    let wanted: Vec<String> = match (&options.tools, &settings.default_tools) {
        _ if options.no_tools || options.no_builtin_tools => Vec::new(),
        (Some(named), _) => named.clone(),
        (None, Some(named)) => named.clone(),
        (None, None) => DEFAULT_TOOLS.iter().map(|name| (*name).to_owned()).collect(),
    };
    for name in &wanted {
        if !specs.iter().any(|spec| spec.name == *name) {
            notices.push(format!("There is no tool \"{name}\""));
        }
    }
    let active =
        |spec: &&ToolSpec| wanted.contains(&spec.name) && !options.exclude_tools.contains(&spec.name);
    specs.iter().filter(active).cloned().collect()
}

/// What the system prompt is made of; what the agent keeps current itself is empty. Blocking: reads the files that are
/// named, those of the agent directories and the project, and the context files. A context file that was in `previous` and
/// cannot be read now stays as it was.
///
/// # Errors
/// When a file that stands for a whole prompt cannot be read; a line for the caller's stderr.
pub(super) fn prompt_parts(
    sources: &Sources<'_>,
    resources: &Resources,
    previous: Option<&PromptParts>,
    notices: &mut Vec<String>,
) -> Result<PromptParts, String> {
    let options = sources.options;
    // A prompt may be given as a text or as the path of a file that holds it.
    let text_of = |given: &String| {
        let path = sources.caller_cwd.join(given);
        if given.len() >= MAX_PATH || !path.is_file() {
            return Ok(given.clone());
        }
        std::fs::read_to_string(&path)
            .map_err(|error| format!("Error: cannot read the system prompt {}: {error}", path.display()))
    };
    let given = options.system_prompt.as_ref().map(text_of).transpose()?;
    let appended: Vec<String> = options.append_system_prompt.iter().map(text_of).collect::<Result<_, _>>()?;
    let (system, append_system) = resources::prompt_files(sources)?;
    let (files, warnings) = if options.no_context_files {
        (Vec::new(), Vec::new())
    } else {
        let known = previous.map_or(&[][..], |previous| &previous.context_files);
        context_files::discover(
            sources.agent_dir,
            sources.legacy_agent_dir,
            sources.cwd,
            sources.trusted,
            known,
        )
    };
    notices.extend(warnings);
    Ok(PromptParts {
        custom: given.or(system),
        append: if appended.is_empty() { append_system.into_iter().collect() } else { appended },
        tools: Arc::default(),
        context_files: files
            .into_iter()
            .map(|file| (file.path.to_string_lossy().into_owned(), file.content))
            .collect(),
        skills: resources.skill_summaries(),
        model_name: String::new(),
        thinking: ThinkingLevel::Off,
        // Set when a prompt comes: a session may live for days.
        date: String::new(),
        cwd: sources.cwd.to_string_lossy().into_owned(),
    })
}
