//! Where prompt templates and skills lie, in the order in which they are looked for: the first of a name is taken.
//!
//! The project's come before the user's, in each the paths that settings name before the usual directories; what the
//! command line names is last. Without trust nothing of the project is looked at.

use std::path::{Path, PathBuf};

use super::Sources;
use crate::settings::PathList;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Prompts,
    Skills,
}

impl Kind {
    /// The directory's name, which is the settings key as well.
    fn directory(self) -> &'static str {
        match self {
            Kind::Prompts => "prompts",
            Kind::Skills => "skills",
        }
    }

    /// What a message calls one of them.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Prompts => "prompt template",
            Kind::Skills => "skill",
        }
    }
}

/// Whose a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The user's.
    User,
    /// The project's.
    Project,
    /// This session's: the command line names it.
    Temporary,
}

/// How a file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// In one of the usual directories.
    Usual,
    /// Settings name it.
    Settings,
    /// The command line names it.
    CommandLine,
}

/// Where a file comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// Whose it is.
    pub(super) scope: Scope,
    /// How it was found.
    pub(super) found: Found,
    /// The directory that relative names start from: that of the settings, or the one around the usual directory.
    pub(super) base: PathBuf,
}

/// One place to look at.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) origin: Origin,
    /// Somebody named it: that it is missing is worth a warning.
    pub(super) named: bool,
    /// Words of the settings that leave files of this place out or take them in again.
    pub(super) overrides: Vec<String>,
}

/// The places of `kind`, in order.
pub(super) fn of(kind: Kind, sources: &Sources<'_>) -> Vec<Place> {
    let (disabled, named) = match kind {
        Kind::Prompts => (sources.options.no_prompt_templates, &sources.options.prompt_templates),
        Kind::Skills => (sources.options.no_skills, &sources.options.skills),
    };
    let mut places = Vec::new();
    if !disabled {
        let lists = match kind {
            Kind::Prompts => &sources.settings.prompts,
            Kind::Skills => &sources.settings.skills,
        };
        for scope in [Scope::Project, Scope::User] {
            if scope == Scope::Project && !sources.trusted {
                continue;
            }
            of_scope(kind, scope, sources, lists, &mut places);
        }
    }
    places.extend(named.iter().map(|path| {
        let path = sources.caller_cwd.join(expand_home(path, sources.home));
        let base = path.parent().unwrap_or(&path).to_owned();
        let origin = Origin { scope: Scope::Temporary, found: Found::CommandLine, base };
        Place { path, origin, named: true, overrides: Vec::new() }
    }));
    places
}

fn of_scope(kind: Kind, scope: Scope, sources: &Sources<'_>, lists: &[PathList], places: &mut Vec<Place>) {
    let directories: Vec<PathBuf> = match scope {
        Scope::Project => project_directories(sources.cwd).to_vec(),
        _ => user_directories(sources.agent_dir, sources.legacy_agent_dir),
    };
    // As with every list in settings, that of the stronger file stands in place of the weaker one's.
    let list = lists.iter().find(|list| directories.contains(&list.directory));
    let is_override = |entry: &&String| entry.starts_with(['!', '+', '-']);
    let overrides: Vec<String> =
        list.iter().flat_map(|list| &list.entries).filter(is_override).cloned().collect();
    for (list, entry) in list.iter().flat_map(|list| list.entries.iter().map(move |entry| (list, entry))) {
        if is_override(&entry) {
            continue;
        }
        let path = list.directory.join(expand_home(Path::new(entry.trim()), sources.home));
        let origin = Origin { scope, found: Found::Settings, base: list.directory.clone() };
        places.push(Place { path, origin, named: true, overrides: overrides.clone() });
    }
    let mut usual = |directory: &Path| {
        let origin = Origin { scope, found: Found::Usual, base: directory.to_owned() };
        let path = directory.join(kind.directory());
        places.push(Place { path, origin, named: false, overrides: overrides.clone() });
    };
    directories.iter().for_each(|directory| usual(directory));
    if kind == Kind::Skills {
        let shared = match scope {
            Scope::Project => shared_directories(sources.cwd, sources.home),
            _ => sources.home.map(|home| home.join(AGENTS)).into_iter().collect(),
        };
        shared.iter().for_each(|directory| usual(directory));
    }
}

/// A directory that several agents share.
const AGENTS: &str = ".agents";

/// The directories of a project that are ours, the stronger first; `.pi` is the older name.
pub(super) fn project_directories(cwd: &Path) -> [PathBuf; 2] {
    [cwd.join(".atomic"), cwd.join(".pi")]
}

/// The user's, the stronger first.
pub(super) fn user_directories(agent_dir: &Path, legacy: Option<&Path>) -> Vec<PathBuf> {
    [agent_dir].into_iter().chain(legacy).map(Path::to_owned).collect()
}

/// Those that a project shares with other agents, the nearest first: of `cwd` and the directories around it as far as its
/// repository goes; outside one, to the root. The user's own is none of them.
pub(super) fn shared_directories(cwd: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let end = cwd.ancestors().position(|directory| directory.join(".git").exists());
    let count = end.map_or(usize::MAX, |end| end + 1);
    let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
    let own = home.map(|home| real(home.join(AGENTS)));
    let directories = cwd.ancestors().take(count).map(|directory| directory.join(AGENTS));
    directories.filter(|directory| Some(real(directory.clone())) != own).collect()
}

/// The path with a leading `~` resolved.
fn expand_home(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(below), Some(home)) => home.join(below),
        _ => path.to_owned(),
    }
}
