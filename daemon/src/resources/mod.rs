//! What users and projects bring along for a session: prompt templates, skills, system prompts in files, and whether a
//! project's own are trusted.
//!
//! * [`trust`] decides about the project; `places` says where to look, in which order;
//! * `templates` and `skills` read what is there (`frontmatter`, `overrides`), `catalog` names skills, `prompt_files`
//!   finds `SYSTEM.md`;
//! * [`expand`] turns `/name args` into a text; `listing` tells clients what there is.
//!
//! Names, orders and shapes are those of reference 4.5-4.8 and 1.8. A mistake in a file never keeps a session from
//! starting: it is a warning for the caller's stderr. Everything here blocks on the disk; call it from where that is
//! allowed.

mod catalog;
pub mod expand;
mod files;
mod frontmatter;
mod listing;
mod overrides;
mod places;
mod prompt_files;
mod skills;
mod templates;
pub mod trust;

use std::fs;
use std::path::{Path, PathBuf};

use atomic_agent::prompt::SkillSummary;
use atomic_protocol::cli::SessionOptions;
use atomic_protocol::json::Raw;

use crate::settings::Settings;
use catalog::{Selection, Selector};
use places::{Kind, Place};
use skills::Skill;
use templates::Template;

/// What resources are looked for with.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The agent directory.
    pub agent_dir: &'a Path,
    /// The one of an older program, see [`legacy_agent_dir`].
    pub legacy_agent_dir: Option<&'a Path>,
    /// The user's home directory, for `~`.
    pub home: Option<&'a Path>,
    /// The session's directory.
    pub cwd: &'a Path,
    /// The caller's directory: paths on its command line start there.
    pub caller_cwd: &'a Path,
    /// The project is trusted.
    pub trusted: bool,
    /// The caller's options.
    pub options: &'a SessionOptions,
    /// The session's settings.
    pub settings: &'a Settings,
}

/// The resources of a session.
#[derive(Debug, Default)]
pub struct Resources {
    templates: Vec<Template>,
    /// Every skill, those that share a name as well.
    skills: Vec<Skill>,
    selectors: Vec<Selector>,
    /// Users may name skills (setting `enableSkillCommands`).
    skill_commands: bool,
}

impl Resources {
    /// Looks for resources. What cannot be used is a warning, and on a reload what `previous` had of the same file stays.
    pub fn load(
        sources: &Sources<'_>,
        previous: Option<&Resources>,
        warnings: &mut Vec<String>,
    ) -> Resources {
        let templates = templates::discover(&places::of(Kind::Prompts, sources), previous, warnings);
        let skills = skills::discover(&places::of(Kind::Skills, sources), previous, warnings);
        let selectors = catalog::selectors(&skills);
        Resources { templates, skills, selectors, skill_commands: sources.settings.enable_skill_commands }
    }

    /// The prompt templates, each name once.
    fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// The skill that `/skill:NAME` means.
    fn skill(&self, name: &str) -> Option<Selection<'_>> {
        if !self.skill_commands {
            return None;
        }
        catalog::select(name, &self.skills, &self.selectors)
    }

    /// What models are told of skills.
    pub fn skill_summaries(&self) -> Vec<SkillSummary> {
        catalog::for_models(&self.skills, &self.selectors)
            .map(|(name, skill)| SkillSummary {
                name: name.to_owned(),
                description: skill.description.clone(),
                location: skill.file.to_string_lossy().into_owned(),
            })
            .collect()
    }

    /// The commands that clients can send as prompts, for `get_commands`.
    pub fn commands(&self) -> Vec<Raw> {
        listing::commands(self)
    }
}

/// The text of the system prompt's file, and of the file behind it.
///
/// # Errors
/// When a file is there and cannot be read; a line for the caller's stderr.
pub fn prompt_files(sources: &Sources<'_>) -> Result<(Option<String>, Option<String>), String> {
    let error = |error: String| format!("Error: {error}");
    let system = prompt_files::system(sources).map_err(error)?;
    Ok((system, prompt_files::append_system(sources).map_err(error)?))
}

/// The agent directory of an older program of this family, whose files stand beneath those of ours: `~/.pi/agent`. None
/// when ours is not at its usual place; who names a directory wants that one.
pub fn legacy_agent_dir(agent_dir: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let usual = home?.join(".atomic").join("agent").canonicalize().ok()?;
    let legacy = home?.join(".pi").join("agent");
    (agent_dir.canonicalize().ok()? == usual && legacy.is_dir()).then_some(legacy)
}

/// The Markdown files directly in a place, by name; a file of its own when the place is one.
fn markdown_files(place: &Place, kind: Kind, warnings: &mut Vec<String>) -> Vec<PathBuf> {
    let path = &place.path;
    let is_markdown = |path: &Path| path.extension().is_some_and(|extension| extension == "md");
    if path.is_file() && is_markdown(path) {
        return vec![path.clone()];
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(_) if !place.named && !path.exists() => return Vec::new(),
        Err(error) => {
            let word = kind.word();
            warnings.push(if path.is_file() {
                format!("{} is no {word}: its name does not end in .md; it is not used", path.display())
            } else {
                format!("cannot read {}: {error}; there is no {word} in it", path.display())
            });
            return Vec::new();
        }
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| is_markdown(path) && path.is_file());
    files.sort();
    files
}

/// A warning about a file, and what became of it.
fn not_used(warning: &str, kept: bool) -> String {
    let outcome = if kept { "what it said before stays" } else { "it is not used" };
    format!("{warning}; {outcome}")
}

#[cfg(test)]
mod tests;
