//! Entries of the settings' `prompts` and `skills` that begin with `!`, `-` or `+`: they name no place, they leave out
//! what was found (`!pattern`, `-path`) or take it in again (`+path`, which `-path` beats).

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The overrides of one settings file. Patterns and paths start from its directory.
pub(super) struct Overrides(Option<Gitignore>);

impl Overrides {
    pub(super) fn new(base: &Path, entries: &[String], warnings: &mut Vec<String>) -> Overrides {
        if entries.is_empty() {
            return Overrides(None);
        }
        let mut builder = GitignoreBuilder::new(base);
        // The last rule that fits decides, so the strongest kind comes last.
        for (mark, before) in [('!', ""), ('+', "!/"), ('-', "/")] {
            for pattern in entries.iter().filter_map(|entry| entry.strip_prefix(mark)) {
                let pattern = pattern.trim().trim_start_matches("./").trim_start_matches('/');
                let added = builder.add_line(None, &format!("{before}{pattern}"));
                if let Err(error) = added {
                    warnings.push(format!("{}: {mark}{pattern}: {error}; it is ignored", base.display()));
                }
            }
        }
        match builder.build() {
            Ok(rules) => Overrides(Some(rules)),
            Err(error) => {
                warnings
                    .push(format!("{}: {error}; its `!`, `+` and `-` entries are ignored", base.display()));
                Overrides(None)
            }
        }
    }

    /// The file is not wanted.
    pub(super) fn leaves_out(&self, file: &Path) -> bool {
        let Some(rules) = &self.0 else { return false };
        file.starts_with(rules.path()) && rules.matched_path_or_any_parents(file, false).is_ignore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_kind_decides() {
        let entries =
            ["!skills/old-*", "+skills/old-but-good", "-skills/x/SKILL.md", "-skills/y", "+skills/y"]
                .map(str::to_owned);
        let mut warnings = Vec::new();
        let overrides = Overrides::new(Path::new("/agent"), &entries, &mut warnings);
        for (file, out) in [
            ("/agent/skills/old-a/SKILL.md", true),
            ("/agent/skills/old-but-good/SKILL.md", false),
            ("/agent/skills/x/SKILL.md", true),
            ("/agent/skills/y/SKILL.md", true),
            ("/agent/skills/z/SKILL.md", false),
            ("/elsewhere/skills/x/SKILL.md", false),
        ] {
            assert_eq!(overrides.leaves_out(Path::new(file)), out, "{file}");
        }
        assert_eq!(warnings, [""; 0]);
    }
}
