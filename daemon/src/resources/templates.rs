//! Prompt templates: Markdown files that a line `/name args` stands for.

use std::path::{Path, PathBuf};

use super::frontmatter;
use super::overrides::Overrides;
use super::places::{Kind, Origin, Place};
use super::{Resources, files};

/// Longest description that is taken from a template's text, in characters.
const DESCRIPTION: usize = 60;

/// A prompt template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    /// The file's name without `.md`.
    pub(super) name: String,
    /// From its head, or its first line.
    pub(super) description: String,
    /// The text without the head.
    pub(super) content: String,
    /// The file.
    pub(super) file: PathBuf,
    /// Where it comes from.
    pub(super) origin: Origin,
}

/// The templates in `places`, each name once. A file that cannot be used is a warning; what it was in `previous` stays.
pub(super) fn discover(
    places: &[Place],
    previous: Option<&Resources>,
    warnings: &mut Vec<String>,
) -> Vec<Template> {
    let mut templates: Vec<Template> = Vec::new();
    for place in places {
        let overrides = Overrides::new(&place.origin.base, &place.overrides, warnings);
        for file in super::markdown_files(place, Kind::Prompts, warnings) {
            let Some(name) = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()) else {
                continue;
            };
            if overrides.leaves_out(&file) || templates.iter().any(|template| template.name == name) {
                continue;
            }
            match read(&file, &name, &place.origin) {
                Ok(template) => templates.push(template),
                Err(warning) => {
                    let old = previous.and_then(|old| old.templates.iter().find(|old| old.file == file));
                    warnings.push(super::not_used(&warning, old.is_some()));
                    templates.extend(old.cloned());
                }
            }
        }
    }
    templates
}

fn read(file: &Path, name: &str, origin: &Origin) -> Result<Template, String> {
    let text = files::read(file)?;
    let document = frontmatter::parse(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let description = match document.get("description") {
        Some(description) => description.to_owned(),
        None => first_line(&document.body),
    };
    Ok(Template {
        name: name.to_owned(),
        description,
        content: document.body,
        file: file.to_owned(),
        origin: origin.clone(),
    })
}

fn first_line(body: &str) -> String {
    let line = body.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    match line.char_indices().nth(DESCRIPTION) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_first_line_is_cut() {
        assert_eq!(first_line("\n \n# Title\nmore"), "# Title");
        assert_eq!(first_line(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(first_line(&"é".repeat(61)), "é".repeat(60) + "...");
        assert_eq!(first_line(""), "");
    }
}
