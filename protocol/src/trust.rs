//! The file of remembered decisions about projects, `trust.json` of the agent directory: an object from canonical
//! directories to true or false. A decision holds for what lies below its directory, the nearest one counts. Other
//! programs of this family read and write it too.

use std::collections::BTreeMap;
use std::path::Path;

use crate::json;

/// The file's name in the agent directory.
pub const FILE: &str = "trust.json";

/// Directory that writers of the file make while they write, and heed when it is there.
pub const LOCK: &str = "trust.json.lock";

/// What is decided, by directory. Null, which other programs write, is no decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions(BTreeMap<String, Option<bool>>);

impl Decisions {
    /// Reads the file's text.
    ///
    /// # Errors
    /// When it is no object of true, false and null. The reason, for a person.
    pub fn parse(text: &str) -> Result<Decisions, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        json::from_str(text)
            .map(Decisions)
            .map_err(|error| format!("it is not a JSON object from directories to true or false ({error})"))
    }

    /// The file's text.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.0).expect("text and truth values serialise");
        text.push('\n');
        text
    }

    /// The decision for a canonical directory, and the directory it was made for.
    pub fn about<'a>(&self, directory: &'a Path) -> Option<(&'a Path, bool)> {
        directory.ancestors().find_map(|directory| Some((directory, (*self.0.get(&key(directory)?)?)?)))
    }

    /// Remembers a decision for a canonical directory, or forgets it. False: the directory's name is not Unicode and cannot
    /// stand in the file.
    pub fn set(&mut self, directory: &Path, decision: Option<bool>) -> bool {
        let Some(key) = key(directory) else { return false };
        match decision {
            None => drop(self.0.remove(&key)),
            Some(_) => drop(self.0.insert(key, decision)),
        }
        true
    }
}

/// A directory as the file spells it. Windows' own long form of a canonical path is nobody else's.
fn key(directory: &Path) -> Option<String> {
    let text = directory.to_str()?;
    Some(text.strip_prefix(r"\\?\").unwrap_or(text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_decision_counts() {
        let decisions = Decisions::parse(r#"{"/a":true,"/a/b":false,"/a/b/c":null,"/x/":true}"#).unwrap();
        for (directory, expected) in [
            ("/a", Some(("/a", true))),
            ("/a/other/deep", Some(("/a", true))),
            ("/a/b", Some(("/a/b", false))),
            ("/a/b/c", Some(("/a/b", false))),
            ("/ab", None),
            ("/x", None),
            ("/", None),
        ] {
            let expected = expected.map(|(directory, decision)| (Path::new(directory), decision));
            assert_eq!(decisions.about(Path::new(directory)), expected, "{directory}");
        }
    }

    #[test]
    fn decisions_are_remembered_and_forgotten() {
        let mut decisions = Decisions::parse("\u{feff}{\"/b\": null}").unwrap();
        assert!(
            decisions.set(Path::new("/a"), Some(true)) && decisions.set(Path::new(r"\\?\C:\p"), Some(false))
        );
        let text = "{\n  \"/a\": true,\n  \"/b\": null,\n  \"C:\\\\p\": false\n}\n";
        assert_eq!(decisions.to_text(), text);
        assert_eq!(Decisions::parse(text), Ok(decisions.clone()));
        decisions.set(Path::new("/a"), None);
        assert_eq!(decisions.about(Path::new("/a")), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "[]", "{", r#"{"/":"yes"}"#, r#"{"/":1}"#] {
            assert!(Decisions::parse(text).is_err(), "{text}");
        }
    }
}
