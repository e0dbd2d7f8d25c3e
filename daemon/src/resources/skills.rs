//! Skills: directories with a `SKILL.md` that tells a model how to do one thing. The model sees their names and reads the
//! file when it needs one; a user names one by `/skill:NAME`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::frontmatter;
use super::overrides::Overrides;
use super::places::{Kind, Origin, Place};
use super::{Resources, files};

/// The file that makes a directory a skill.
const DECLARED: &str = "SKILL.md";

/// Files in a directory of skills that name what is not looked at, the later one stronger.
const IGNORE_FILES: [&str; 3] = [".gitignore", ".ignore", ".fdignore"];

/// Longest name, in characters (Agent Skills specification).
const MAX_NAME: usize = 64;

/// Longest description, in characters (Agent Skills specification).
const MAX_DESCRIPTION: usize = 1024;

/// Directories below a place of skills that are looked into, one in another. Links may lead in circles.
const MAX_DEPTH: usize = 12;

/// Directories that are looked into for one place. Who names `/` as a directory of skills waits seconds, not hours.
const MAX_DIRECTORIES: usize = 4096;

/// A skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skill {
    /// From its head; without one the directory's name.
    pub(super) name: String,
    /// What it is for.
    pub(super) description: String,
    /// Its Markdown file.
    pub(super) file: PathBuf,
    /// Where it comes from.
    pub(super) origin: Origin,
    /// Only a user may name it; models are not told of it.
    pub(super) hidden: bool,
}

impl Skill {
    /// The directory that names in its text start from.
    pub(super) fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(&self.file)
    }
}

/// The skills in `places`, each file once, in order; names may repeat. A file that cannot be used is a warning; what it
/// was in `previous` stays.
pub(super) fn discover(
    places: &[Place],
    previous: Option<&Resources>,
    warnings: &mut Vec<String>,
) -> Vec<Skill> {
    let mut skills = Vec::new();
    let mut seen = HashSet::new();
    for place in places {
        let overrides = Overrides::new(&place.origin.base, &place.overrides, warnings);
        let mut walk = Walk { files: Vec::new(), ignored: Vec::new(), directories: 0 };
        if place.path.is_dir() {
            walk.directory(&place.path, 0);
            if walk.directories > MAX_DIRECTORIES {
                warnings.push(format!(
                    "{} holds more than {MAX_DIRECTORIES} directories; not all were looked into for skills",
                    place.path.display()
                ));
            }
        } else {
            walk.files = super::markdown_files(place, Kind::Skills, warnings);
        }
        for file in walk.files {
            let real = file.canonicalize().unwrap_or_else(|_| file.clone());
            if overrides.leaves_out(&file) || !seen.insert(real) {
                continue;
            }
            match read(&file, &place.origin, warnings) {
                Ok(skill) => skills.extend(skill),
                Err(warning) => {
                    let old = previous.and_then(|old| old.skills.iter().find(|old| old.file == file));
                    warnings.push(super::not_used(&warning, old.is_some()));
                    skills.extend(old.cloned());
                }
            }
        }
    }
    skills
}

/// A walk through one directory of skills.
struct Walk {
    files: Vec<PathBuf>,
    /// The rules of the directories above, the deepest last.
    ignored: Vec<Gitignore>,
    directories: usize,
}

impl Walk {
    fn directory(&mut self, directory: &Path, depth: usize) {
        self.directories += 1;
        if depth > MAX_DEPTH || self.directories > MAX_DIRECTORIES {
            return;
        }
        let mut rules = GitignoreBuilder::new(directory);
        for name in IGNORE_FILES {
            let file = directory.join(name);
            // Not what is no file: to open a named pipe would wait for its writer.
            if file.is_file() {
                // A rule that cannot be read is no rule, as with git.
                let _ = rules.add(&file);
            }
        }
        self.ignored.push(rules.build().unwrap_or_else(|_| Gitignore::empty()));
        let declared = directory.join(DECLARED);
        if declared.is_file() && !self.is_ignored(&declared, false) {
            self.files.push(declared);
        } else {
            self.entries(directory, depth);
        }
        self.ignored.pop();
    }

    fn entries(&mut self, directory: &Path, depth: usize) {
        // A directory that cannot be listed is as good as an empty one; a missing one is the usual case.
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        entries.sort();
        for path in entries {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') || name == "node_modules" {
                continue;
            }
            let is_directory = path.is_dir();
            if self.is_ignored(&path, is_directory) {
                continue;
            }
            if is_directory {
                self.directory(&path, depth + 1);
            } else if depth == 0 && name != DECLARED && name.ends_with(".md") && path.is_file() {
                self.files.push(path);
            }
        }
    }

    fn is_ignored(&self, path: &Path, is_directory: bool) -> bool {
        for rules in self.ignored.iter().rev() {
            match rules.matched(path, is_directory) {
                Match::None => {}
                found => return found.is_ignore(),
            }
        }
        false
    }
}

/// Reads a skill. `None`: a Markdown file that does not say it is one.
fn read(file: &Path, origin: &Origin, warnings: &mut Vec<String>) -> Result<Option<Skill>, String> {
    let declared = file.file_name().is_some_and(|name| name == DECLARED);
    let text = files::read(file)?;
    let document = match frontmatter::parse(&text) {
        Ok(document) => document,
        // A page beside skills may begin with anything.
        Err(_) if !declared => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", file.display())),
    };
    let Some(description) = document.get("description") else {
        return match declared {
            false => Ok(None),
            true => Err(format!("{}: it has no description in its head", file.display())),
        };
    };
    let length = description.chars().count();
    if length > MAX_DESCRIPTION {
        warnings.push(format!(
            "{}: the description has {length} characters, more than {MAX_DESCRIPTION}; shorten it",
            file.display()
        ));
    }
    let unnamed = if declared { file.parent().and_then(Path::file_name) } else { file.file_stem() };
    let name = match document.get("name") {
        Some(name) => name.trim().to_owned(),
        None => unnamed.unwrap_or_default().to_string_lossy().into_owned(),
    };
    if let Some(mistake) = mistake_in_name(&name) {
        warnings.push(format!("{}: the name \"{name}\" {mistake}", file.display()));
    }
    Ok(Some(Skill {
        name,
        description: description.to_owned(),
        file: file.to_owned(),
        origin: origin.clone(),
        hidden: document.is_true("disable-model-invocation"),
    }))
}

/// What the Agent Skills specification has against a name.
fn mistake_in_name(name: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.chars().count() > MAX_NAME {
        Some(format!("is longer than {MAX_NAME} characters"))
    } else if name.is_empty() || !name.chars().all(good) {
        Some("may hold only a-z, 0-9 and hyphens".to_owned())
    } else if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        Some("may have hyphens only between words, one at a time".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, good) in [
            ("pdf", true),
            ("a-b-2", true),
            (&"a".repeat(64), true),
            (&"a".repeat(65), false),
            ("", false),
            ("Pdf", false),
            ("a_b", false),
            ("-a", false),
            ("a-", false),
            ("a--b", false),
        ] {
            assert_eq!(mistake_in_name(name).is_none(), good, "{name}");
        }
    }
}
