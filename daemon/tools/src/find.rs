//! find: files and directories by glob.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, Walk, WalkBuilder};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::environment::ToolEnvironment;
use crate::error::ToolError;
use crate::run::{count_argument, text_argument};
use crate::truncate::{self, MAX_BYTES, Truncation};
use crate::{ToolOutput, paths};

const DEFAULT_LIMIT: usize = 1000;

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    truncation: Option<Truncation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_limit_reached: Option<usize>,
}

pub(crate) fn run(
    arguments: &Map<String, Value>,
    environment: &ToolEnvironment,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let pattern = text_argument(arguments, "pattern").unwrap_or_default();
    let written = text_argument(arguments, "path").filter(|path| !path.is_empty()).unwrap_or(".");
    let limit = count_argument(arguments, "limit").unwrap_or(DEFAULT_LIMIT).max(1);
    let root = paths::resolve_existing(written, environment);
    match root.metadata() {
        Err(_) => return Err(ToolError::refused(format!("Path not found: {}", root.display()))),
        Ok(meta) if !meta.is_dir() => {
            return Err(ToolError::refused(format!("Not a directory: {}", root.display())));
        }
        Ok(_) => {}
    }
    let wanted = Wanted::new(pattern)?;
    let mut rows: Vec<String> = Vec::new();
    for entry in walk(&root, pattern) {
        if cancel.is_cancelled() {
            return Err(ToolError::Aborted);
        }
        // What cannot be read is left out, as fd does.
        let Ok(entry) = entry else { continue };
        if entry.depth() == 0 {
            continue;
        }
        let Ok(relative) = entry.path().strip_prefix(&root) else { continue };
        if wanted.matches(relative) {
            rows.push(row(&entry, relative));
            if rows.len() >= limit {
                break;
            }
        }
    }
    if rows.is_empty() {
        return Ok(ToolOutput::text("No files found matching pattern"));
    }
    let shown = truncate::head(&rows.join("\n"), None, MAX_BYTES);
    let mut out = shown.content.clone();
    let mut notices = Vec::new();
    let mut details = Details::default();
    if rows.len() >= limit {
        let more = limit.saturating_mul(2);
        notices.push(format!("{limit} results limit reached. Use limit={more} for more, or refine pattern"));
        details.result_limit_reached = Some(limit);
    }
    if shown.truncated {
        notices.push(format!("{} limit reached", truncate::size(MAX_BYTES as u64)));
        details.truncation = Some(shown);
    }
    if notices.is_empty() {
        return Ok(ToolOutput::text(out));
    }
    out.push_str(&format!("\n\n[{}]", notices.join(". ")));
    Ok(ToolOutput::text(out).with_details(&details))
}

fn row(entry: &DirEntry, relative: &Path) -> String {
    let mark = if entry.file_type().is_some_and(|kind| kind.is_dir()) { "/" } else { "" };
    format!("{}{mark}", slashes(relative))
}

/// A path for the model: `/` between parts on every system.
pub(crate) fn slashes(path: &Path) -> String {
    let text = path.to_string_lossy();
    if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() }
}

/// A walk in the order of names: hidden files too, but not what ignore files name, not `.git`, and `node_modules` only
/// when `wish` (a pattern) or the root speaks of it.
pub(crate) fn walk(root: &Path, wish: &str) -> Walk {
    let mut builder = walker(root, wish);
    builder.sort_by_file_name(|one, other| one.cmp(other)).build()
}

/// [`walk`] before it is built.
pub(crate) fn walker(root: &Path, wish: &str) -> WalkBuilder {
    const MODULES: &str = "node_modules";
    let with_modules = wish.contains(MODULES) || root.components().any(|part| part.as_os_str() == MODULES);
    let mut builder = WalkBuilder::new(root);
    // `require_git(false)`: a .gitignore counts outside a repository as well.
    builder.hidden(false).require_git(false).follow_links(false);
    builder.filter_entry(move |entry| {
        let name = entry.file_name();
        entry.depth() == 0 || !(name == ".git" || (name == MODULES && !with_modules))
    });
    builder
}

/// A glob as fd takes it: on names, or on whole paths when it has a slash; without upper-case letters case is ignored.
struct Wanted {
    glob: GlobMatcher,
    on_path: bool,
}

impl Wanted {
    fn new(pattern: &str) -> Result<Wanted, ToolError> {
        let on_path = pattern.contains('/');
        let from_anywhere = on_path && !pattern.starts_with('/') && !pattern.starts_with("**/");
        let full = match (from_anywhere, pattern.strip_prefix('/')) {
            (true, _) => format!("**/{pattern}"),
            (false, Some(from_root)) => from_root.to_owned(),
            (false, None) => pattern.to_owned(),
        };
        let smart_case = !pattern.chars().any(char::is_uppercase);
        let glob = GlobBuilder::new(&full).literal_separator(true).case_insensitive(smart_case).build();
        let glob = glob.map_err(|error| ToolError::refused(format!("Invalid glob pattern: {error}")))?;
        Ok(Wanted { glob: glob.compile_matcher(), on_path })
    }

    fn matches(&self, relative: &Path) -> bool {
        if self.on_path {
            return self.glob.is_match(relative);
        }
        relative.file_name().is_some_and(|name| self.glob.is_match(Path::new(name)))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Place, details, text};
    use serde_json::json;

    fn tree() -> Place {
        let place = Place::new();
        for name in [
            "a.rs",
            "B.RS",
            "src/lib.rs",
            "src/deep/x.spec.ts",
            ".hidden.rs",
            "target/out.rs",
            "node_modules/m/i.rs",
            ".git/HEAD.rs",
        ] {
            place.write(name, "");
        }
        place.write(".gitignore", "target/\n");
        place
    }

    #[tokio::test]
    async fn globs_match_names_or_paths() {
        let place = tree();
        for (arguments, expected) in [
            (json!({"pattern":"*.rs"}), ".hidden.rs\nB.RS\na.rs\nsrc/lib.rs"),
            (json!({"pattern":"*.RS"}), "B.RS"),
            (json!({"pattern":"src/**/*.spec.ts"}), "src/deep/x.spec.ts"),
            (json!({"pattern":"deep/*.ts"}), "src/deep/x.spec.ts"),
            (json!({"pattern":"**/lib.rs"}), "src/lib.rs"),
            (json!({"pattern":"deep"}), "src/deep/"),
            (json!({"pattern":"*.rs","path":"src"}), "lib.rs"),
            (json!({"pattern":"node_modules/**/*.rs"}), "node_modules/m/i.rs"),
            (json!({"pattern":"*.none"}), "No files found matching pattern"),
        ] {
            assert_eq!(text(&place.call("find", arguments.clone()).await), expected, "{arguments}");
        }
    }

    #[tokio::test]
    async fn limits_and_errors() {
        let place = tree();
        let output = place.call("find", json!({"pattern":"*.rs","limit":2})).await;
        let expected =
            ".hidden.rs\nB.RS\n\n[2 results limit reached. Use limit=4 for more, or refine pattern]";
        assert_eq!(text(&output), expected);
        assert_eq!(details(&output), json!({"resultLimitReached":2}));
        let output = place.call("find", json!({"pattern":"*","path":"none"})).await;
        assert_eq!(text(&output), format!("Path not found: {}", place.path("none").display()));
        let output = place.call("find", json!({"pattern":"*","path":"a.rs"})).await;
        assert!(output.is_error && text(&output).starts_with("Not a directory: "));
        let output = place.call("find", json!({"pattern":"[a"})).await;
        assert!(output.is_error && text(&output).starts_with("Invalid glob pattern: "), "{}", text(&output));
    }
}
