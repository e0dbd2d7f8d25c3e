//! edit: replaces exact pieces of one text file, and only them: what is not replaced keeps its bytes, line endings and
//! byte order mark included.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::environment::ToolEnvironment;
use crate::error::{self, ToolError};
use crate::run::text_argument;
use crate::{ToolOutput, diff, paths, read, write};

mod fuzzy;
mod lines;
mod replace;

use replace::Edit;

const BOM: &str = "\u{feff}";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    diff: String,
    patch: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_changed_line: Option<usize>,
}

/// Brings forms that models produce into the schema's: `edits` as JSON text or as one object, `oldText` and `newText`
/// beside `path`.
pub(crate) fn forgive(arguments: &mut Value) {
    let Some(map) = arguments.as_object_mut() else { return };
    if let Some(Value::String(text)) = map.get("edits")
        && let Ok(parsed @ (Value::Array(_) | Value::Object(_))) = serde_json::from_str(text)
    {
        map.insert("edits".to_owned(), parsed);
    }
    if let Some(Value::Object(_)) = map.get("edits") {
        let one = map.remove("edits");
        map.insert("edits".to_owned(), Value::Array(one.into_iter().collect()));
    }
    if map.get("oldText").is_some_and(Value::is_string) && map.get("newText").is_some_and(Value::is_string) {
        let one = json!({"oldText": map.remove("oldText"), "newText": map.remove("newText")});
        match map.get_mut("edits") {
            Some(Value::Array(edits)) => edits.push(one),
            _ => drop(map.insert("edits".to_owned(), json!([one]))),
        }
    }
}

pub(crate) fn run(
    arguments: &Map<String, Value>,
    environment: &ToolEnvironment,
) -> Result<ToolOutput, ToolError> {
    let written = text_argument(arguments, "path").unwrap_or_default();
    let edits: Vec<Edit> = match arguments.get("edits") {
        Some(Value::Array(edits)) => edits.iter().map(edit_of).collect(),
        _ => Vec::new(),
    };
    if edits.is_empty() {
        return Err(ToolError::refused(
            "Edit tool input is invalid. edits must contain at least one replacement.",
        ));
    }
    let path = paths::resolve_existing(written, environment);
    let original = read_text(written, &path)?;
    let (bom, text) = match original.strip_prefix(BOM) {
        Some(text) => (BOM, text),
        None => ("", original.as_str()),
    };
    let replaced = replace::replace(written, text, &edits).map_err(ToolError::Refused)?;
    write::put(&path, format!("{bom}{replaced}").as_bytes())?;
    let (before, after) = (lines::with_line_feeds(text), lines::with_line_feeds(&replaced));
    let difference = diff::difference(written, &before, &after);
    let details = Details {
        diff: difference.display,
        patch: difference.patch,
        first_changed_line: difference.first_changed_line,
    };
    let count = edits.len();
    Ok(ToolOutput::text(format!("Successfully replaced {count} block(s) in {written}."))
        .with_details(&details))
}

fn edit_of(value: &Value) -> Edit {
    let text =
        |name: &str| lines::with_line_feeds(value.get(name).and_then(Value::as_str).unwrap_or_default());
    Edit { old: text("oldText"), new: text("newText") }
}

fn read_text(written: &str, path: &std::path::Path) -> Result<String, ToolError> {
    use std::io::Read as _;
    let refused = |error: &std::io::Error| {
        let reason = match error::code(error) {
            Some(code) => format!("Error code: {code}"),
            None => error.to_string(),
        };
        ToolError::refused(format!("Could not edit file: {written}. {reason}."))
    };
    let mut file = read::open_regular(path).map_err(|error| match &error {
        ToolError::Os { source, .. } => refused(source),
        _ => error,
    })?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| refused(&error))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ToolError::refused(format!(
            "Could not edit file: {written}. It is not valid UTF-8 (byte {at}), and editing would destroy those bytes; use bash."
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, details, text};

    #[tokio::test]
    async fn a_file_is_changed_and_the_change_described() {
        let place = Place::new();
        let lines: String = (1..=24).map(|n| format!("line{n}\n")).collect();
        place.write("p", &lines);
        let edits = json!([
            {"oldText":"line3\n","newText":"LINE3\n"},
            {"oldText":"line20\n","newText":"line20\nadded\n"},
        ]);
        let output = place.call("edit", json!({"path":"p","edits":edits})).await;
        assert_eq!((text(&output), output.is_error), ("Successfully replaced 2 block(s) in p.", false));
        assert_eq!(
            place.read("p"),
            lines.replace("line3\n", "LINE3\n").replace("line20\n", "line20\nadded\n")
        );
        let details = details(&output);
        assert_eq!(details["firstChangedLine"], 3);
        assert!(details["diff"].as_str().unwrap().starts_with("  1 line1\n"));
        assert!(details["patch"].as_str().unwrap().starts_with("--- p\n+++ p\n@@ -1,7 +1,7 @@\n"));
    }

    #[tokio::test]
    async fn mark_and_line_endings_stay() {
        let place = Place::new();
        place.write("p", "\u{feff}a\r\nb\nc\rd\r\n");
        let edit = json!({"path":"p","edits":[{"oldText":"a\n","newText":"x\ny\n"}]});
        assert!(!place.call("edit", edit).await.is_error);
        assert_eq!(place.read("p"), "\u{feff}x\r\ny\r\nb\nc\rd\r\n");
    }

    #[tokio::test]
    async fn forms_of_models_are_forgiven() {
        let edit = json!({"oldText":"a","newText":"b"});
        for arguments in [
            json!({"path":"p","edits":edit.to_string()}),
            json!({"path":"p","edits":json!([edit]).to_string()}),
            json!({"path":"p","edits":edit}),
            json!({"path":"p","oldText":"a","newText":"b"}),
            json!({"path":"p","edits":[],"oldText":"a","newText":"b"}),
        ] {
            let place = Place::new();
            place.write("p", "a");
            let output = place.call("edit", arguments.clone()).await;
            assert_eq!((place.read("p").as_str(), output.is_error), ("b", false), "{arguments}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_edited_is_left_alone() {
        let place = Place::new();
        place.write("bad", b"a\xff");
        let edits = json!([{"oldText":"a","newText":"b"}]);
        for (path, expected) in [
            ("none", "Could not edit file: none. Error code: ENOENT."),
            (
                "bad",
                "Could not edit file: bad. It is not valid UTF-8 (byte 1), and editing would destroy those bytes; use bash.",
            ),
        ] {
            assert_eq!(text(&place.call("edit", json!({"path":path,"edits":edits})).await), expected);
        }
        assert_eq!(std::fs::read(place.path("bad")).unwrap(), b"a\xff");
        let output = place.call("edit", json!({"path":"bad","edits":[]})).await;
        let expected = "Edit tool input is invalid. edits must contain at least one replacement.";
        assert_eq!(text(&output), expected);
    }
}
