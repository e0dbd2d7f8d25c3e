//! Whether a project's own inputs are loaded: its settings, its prompts and skills, its system prompt, the context files
//! at and above its directory.
//!
//! Nothing is trusted unless the user said so: by a flag for this session, by a decision that was remembered for the
//! directory or one around it, or by the setting `defaultProjectTrust` for all. This is about what is loaded and no
//! sandbox: tools can read every file anyway.

use std::io;
use std::path::{Path, PathBuf};

use atomic_protocol::trust::{Decisions, FILE};

use super::{files, places, prompt_files};
use crate::context_files;

/// Parts of a project's directory of ours that need trust. Others (state of other programs) do not.
const INPUTS: [&str; 7] = [
    "settings.json",
    "extensions",
    "skills",
    "prompts",
    "themes",
    prompt_files::SYSTEM,
    prompt_files::APPEND_SYSTEM,
];

/// `defaultProjectTrust`: what holds for a project nobody has decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultTrust {
    /// Ask the user; where nobody can be asked, as here, the project is not trusted and a note says so.
    #[default]
    Ask,
    /// Trust every project.
    Always,
    /// Trust none.
    Never,
}

impl DefaultTrust {
    /// From the word in the settings.
    pub fn parse(word: &str) -> Option<DefaultTrust> {
        match word {
            "ask" => Some(DefaultTrust::Ask),
            "always" => Some(DefaultTrust::Always),
            "never" => Some(DefaultTrust::Never),
            _ => None,
        }
    }
}

/// What a decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The agent directory.
    pub agent_dir: &'a Path,
    /// The user's home directory.
    pub home: Option<&'a Path>,
    /// The session's directory.
    pub project: &'a Path,
    /// `--approve` or `--no-approve`.
    pub flag: Option<bool>,
    /// The caller stands in the session's directory. A flag that approves means the directory it was typed in, not that
    /// of a stored session somewhere else.
    pub here: bool,
    /// The setting.
    pub default: DefaultTrust,
}

/// Decides; what there is to say about it is added to `notices`. Blocking: it looks at directories and one small file.
pub fn decide(question: &Question<'_>, notices: &mut Vec<String>) -> bool {
    match question.flag {
        Some(false) => return false,
        Some(true) if question.here => return true,
        _ => {}
    }
    match remembered(question.agent_dir, question.project) {
        Ok(Some(decision)) => return decision,
        Ok(None) => {}
        // What cannot be read may have said no.
        Err(warning) => {
            notices.push(warning);
            return false;
        }
    }
    match question.default {
        DefaultTrust::Always => return true,
        DefaultTrust::Never => return false,
        DefaultTrust::Ask => {}
    }
    if let Some(input) = first_input(question.project, question.home) {
        notices.push(format!(
            "Note: {} and whatever else this project brings along is not loaded, because nobody has decided to trust {}; \
             start there with --approve, or run `atomic trust` there once (--no-approve says the same without this note)",
            input.display(),
            question.project.display()
        ));
    }
    false
}

/// The decision for `project` or the nearest directory around it.
fn remembered(agent_dir: &Path, project: &Path) -> Result<Option<bool>, String> {
    let path = agent_dir.join(FILE);
    if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let unusable =
        |why: &str| format!("{}: {why}; no project is trusted until it is corrected", path.display());
    let text = files::read(&path)
        .map_err(|error| format!("{error}; no project is trusted until it is corrected"))?;
    let decisions = Decisions::parse(&text).map_err(|error| unusable(&error))?;
    let project = project.canonicalize().unwrap_or_else(|_| project.to_owned());
    Ok(decisions.about(&project).map(|(_, decision)| decision))
}

/// Something of the project that trust would load.
fn first_input(project: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let own = places::project_directories(project).into_iter();
    let own = own.flat_map(|directory| INPUTS.map(|name| directory.join(name)));
    let shared =
        places::shared_directories(project, home).into_iter().map(|directory| directory.join("skills"));
    let mut context = project
        .ancestors()
        .flat_map(|directory| context_files::NAMES.map(|name| directory.join(name)))
        .filter(|path| path.is_file());
    own.chain(shared).find(|path| path.exists()).or_else(|| context.next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    struct World {
        _dir: TempDir,
        root: PathBuf,
    }

    impl World {
        fn new(files: &[&str]) -> World {
            let dir = TempDir::new().unwrap();
            let world = World { root: dir.path().canonicalize().unwrap(), _dir: dir };
            for path in ["agent/x", "home/p/q/x"].iter().chain(files) {
                world.write(path, "");
            }
            world
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn decide(&self, flag: Option<bool>, here: bool, default: DefaultTrust) -> (bool, Vec<String>) {
            let mut notices = Vec::new();
            let question = Question {
                agent_dir: &self.root.join("agent"),
                home: Some(&self.root.join("home")),
                project: &self.root.join("home/p/q"),
                flag,
                here,
                default,
            };
            let trusted = decide(&question, &mut notices);
            (trusted, notices)
        }
    }

    #[test]
    fn flag_then_memory_then_setting() {
        use DefaultTrust::{Always, Ask, Never};
        let world = World::new(&["home/p/q/AGENTS.md"]);
        for (remembered, flag, default, trusted) in [
            (None, None, Ask, false),
            (None, None, Never, false),
            (None, None, Always, true),
            (None, Some(true), Never, true),
            (None, Some(false), Always, false),
            (Some(true), None, Never, true),
            (Some(false), None, Always, false),
            (Some(true), Some(false), Always, false),
            (Some(false), Some(true), Never, true),
        ] {
            let text = match remembered {
                Some(decision) => {
                    serde_json::json!({world.root.join("home/p/q").to_str().unwrap(): decision})
                }
                None => serde_json::json!({}),
            };
            world.write("agent/trust.json", &text.to_string());
            let decided = world.decide(flag, true, default).0;
            assert_eq!(decided, trusted, "{remembered:?} {flag:?} {default:?}");
        }
    }

    #[test]
    fn the_nearest_directory_decides() {
        let world = World::new(&[]);
        let at = |path: &str| world.root.join(path).to_str().unwrap().to_owned();
        for (decisions, trusted) in [
            (serde_json::json!({at("home"): true}), true),
            (serde_json::json!({at("home"): true, at("home/p"): false}), false),
            (serde_json::json!({at("home"): true, at("home/p"): false, at("home/p/q"): true}), true),
            (serde_json::json!({at("home"): true, at("home/p"): null}), true),
            (serde_json::json!({at("home/p/q/r"): true, at("hom"): true}), false),
        ] {
            world.write("agent/trust.json", &decisions.to_string());
            assert_eq!(world.decide(None, true, DefaultTrust::Ask).0, trusted, "{decisions}");
        }
    }

    #[test]
    fn approval_means_the_directory_it_was_typed_in() {
        let world = World::new(&["home/p/q/AGENTS.md"]);
        let (trusted, notices) = world.decide(Some(true), false, DefaultTrust::Ask);
        assert!(!trusted && notices.len() == 1 && notices[0].contains("--approve"), "{notices:?}");
        world.write("agent/trust.json", &serde_json::json!({world.root.to_str().unwrap(): true}).to_string());
        assert!(!world.decide(Some(false), false, DefaultTrust::Always).0);
        assert!(world.decide(Some(true), false, DefaultTrust::Never).0, "remembered");
    }

    #[test]
    fn a_note_is_worth_it_only_when_something_is_left_out() {
        for (file, noted) in [
            ("home/p/q/src/main.rs", false),
            ("home/p/q/.atomic/todos/1", false),
            ("home/p/q/.atomic/prompts/x.md", true),
            ("home/p/q/.pi/SYSTEM.md", true),
            ("home/p/.atomic/settings.json", false),
            ("home/p/CLAUDE.md", true),
            ("home/p/.agents/skills/x/SKILL.md", true),
            ("home/.agents/skills/x/SKILL.md", false),
            ("home/.atomic/agent/AGENTS.md", false),
        ] {
            let world = World::new(&[file]);
            let notes = world.decide(None, true, DefaultTrust::Ask).1;
            let expected: Vec<bool> = if noted { vec![true] } else { vec![] };
            let found: Vec<bool> = notes.iter().map(|note| note.contains("--approve")).collect();
            assert_eq!(found, expected, "{file}: {notes:?}");
            assert_eq!(world.decide(None, true, DefaultTrust::Never), (false, vec![]), "{file}");
        }
    }

    #[test]
    fn what_cannot_be_read_trusts_nothing() {
        let world = World::new(&[]);
        for text in ["", "[]", r#"{"/": "yes"}"#, "{"] {
            world.write("agent/trust.json", text);
            let (trusted, warnings) = world.decide(None, true, DefaultTrust::Always);
            assert!(
                !trusted && warnings.len() == 1 && warnings[0].contains("trust.json"),
                "{text}: {warnings:?}"
            );
            assert!(world.decide(Some(true), true, DefaultTrust::Ask).0, "the flag needs no file");
        }
    }
}
