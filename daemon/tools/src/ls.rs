//! ls: the names in a directory.

use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::environment::ToolEnvironment;
use crate::error::ToolError;
use crate::run::{count_argument, text_argument};
use crate::truncate::{self, MAX_BYTES, Truncation};
use crate::{ToolOutput, paths};

const DEFAULT_LIMIT: usize = 500;

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    truncation: Option<Truncation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry_limit_reached: Option<usize>,
}

pub(crate) fn run(
    arguments: &Map<String, Value>,
    environment: &ToolEnvironment,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let written = text_argument(arguments, "path").filter(|path| !path.is_empty()).unwrap_or(".");
    let limit = count_argument(arguments, "limit").unwrap_or(DEFAULT_LIMIT);
    let path = paths::resolve_existing(written, environment);
    match path.metadata() {
        Err(_) => return Err(ToolError::refused(format!("Path not found: {}", path.display()))),
        Ok(meta) if !meta.is_dir() => {
            return Err(ToolError::refused(format!("Not a directory: {}", path.display())));
        }
        Ok(_) => {}
    }
    let unreadable = |error: std::io::Error| ToolError::refused(format!("Cannot read directory: {error}"));
    let mut names = Vec::new();
    for entry in path.read_dir().map_err(unreadable)? {
        if cancel.is_cancelled() {
            return Err(ToolError::Aborted);
        }
        names.push(entry.map_err(unreadable)?.file_name());
    }
    names.sort_by_cached_key(|name| {
        let name = name.to_string_lossy().into_owned();
        (name.to_lowercase(), name)
    });
    let mut rows = Vec::new();
    let mut reached = false;
    for name in names {
        if cancel.is_cancelled() {
            return Err(ToolError::Aborted);
        }
        if rows.len() >= limit {
            reached = true;
            break;
        }
        // A link that leads nowhere and a file that is gone by now are left out.
        let Ok(meta) = path.join(&name).metadata() else { continue };
        let mark = if meta.is_dir() { "/" } else { "" };
        rows.push(format!("{}{mark}", name.to_string_lossy()));
    }
    if rows.is_empty() && !reached {
        return Ok(ToolOutput::text("(empty directory)"));
    }
    let shown = truncate::head(&rows.join("\n"), None, MAX_BYTES);
    let mut out = shown.content.clone();
    let mut notices = Vec::new();
    let mut details = Details::default();
    if reached {
        notices.push(format!(
            "{limit} entries limit reached. Use limit={} for more",
            limit.saturating_mul(2).max(1)
        ));
        details.entry_limit_reached = Some(limit);
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

#[cfg(test)]
mod tests {
    use crate::testing::{Place, details, text};
    use serde_json::json;

    #[tokio::test]
    async fn names_are_sorted_without_case_and_directories_marked() {
        let place = Place::new();
        for name in ["b", "A", ".hidden", "Dir/x", "c/y"] {
            place.write(name, "");
        }
        let output = place.call("ls", json!({})).await;
        assert_eq!((text(&output), &output.details), (".hidden\nA\nb\nc/\nDir/", &None));
        let output = place.call("ls", json!({"path":"Dir","limit":1})).await;
        assert_eq!(text(&output), "x");
        let output = place.call("ls", json!({"limit":2})).await;
        assert_eq!(text(&output), ".hidden\nA\n\n[2 entries limit reached. Use limit=4 for more]");
        assert_eq!(details(&output), json!({"entryLimitReached":2}));
    }

    #[tokio::test]
    async fn what_is_no_directory_is_refused() {
        let place = Place::new();
        place.write("file", "");
        std::fs::create_dir(place.path("empty")).unwrap();
        let at = |name: &str| place.path(name).display().to_string();
        for (path, expected) in [
            ("none", format!("Path not found: {}", at("none"))),
            ("file", format!("Not a directory: {}", at("file"))),
            ("empty", "(empty directory)".to_owned()),
        ] {
            assert_eq!(text(&place.call("ls", json!({"path":path})).await), expected);
        }
    }

    #[tokio::test]
    async fn many_bytes_are_cut_at_a_whole_name() {
        let place = Place::new();
        for number in 0..300 {
            place.write(&format!("{number:0>200}"), "");
        }
        let output = place.call("ls", json!({})).await;
        assert!(text(&output).ends_with("\n\n[50.0KB limit reached]"));
        assert_eq!(details(&output)["truncation"]["outputLines"], 254);
    }
}
