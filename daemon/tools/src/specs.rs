//! The built-in tools as a model knows them. Names, argument names and types are Pi's; the words are our own.

use atomic_protocol::Raw;
use bytes::Bytes;

use crate::ToolSpec;

/// Tools that are active when nobody says otherwise; grep, find and ls wait for `--tools` or `defaultTools`.
pub const DEFAULT_TOOLS: [&str; 4] = ["read", "bash", "edit", "write"];

const READ: &str = r#"{"type":"object","properties":{"path":{"type":"string","description":"File to read; relative paths start at the working directory"},"offset":{"type":"number","description":"First line to return, counted from 1"},"limit":{"type":"number","description":"How many lines to return at most"}},"required":["path"],"additionalProperties":false}"#;
const BASH: &str = r#"{"type":"object","properties":{"command":{"type":"string","description":"Command line for bash"},"timeout":{"type":"number","description":"Seconds after which the command is ended (optional; without it the command may run as long as it needs)"}},"required":["command"],"additionalProperties":false}"#;
const EDIT: &str = r#"{"type":"object","properties":{"path":{"type":"string","description":"File to change; relative paths start at the working directory"},"edits":{"type":"array","description":"Replacements, each matched against the file as it is now, not against the result of the ones before","items":{"type":"object","properties":{"oldText":{"type":"string","description":"Text to replace; it must occur exactly once and must not overlap another replacement"},"newText":{"type":"string","description":"Text to put in its place"}},"required":["oldText","newText"],"additionalProperties":false}}},"required":["path","edits"],"additionalProperties":false}"#;
const WRITE: &str = r#"{"type":"object","properties":{"path":{"type":"string","description":"File to write; relative paths start at the working directory"},"content":{"type":"string","description":"The whole new content"}},"required":["path","content"],"additionalProperties":false}"#;
const GREP: &str = r#"{"type":"object","properties":{"pattern":{"type":"string","description":"Regular expression, or plain text with literal"},"path":{"type":"string","description":"Directory or file to search (default: working directory)"},"glob":{"type":"string","description":"Search only files that match, for example '*.rs' or 'src/**/*.ts'"},"ignoreCase":{"type":"boolean","description":"Ignore upper and lower case (default: false)"},"literal":{"type":"boolean","description":"Take the pattern as plain text (default: false)"},"context":{"type":"number","description":"Lines to show around each match (default: 0)"},"limit":{"type":"number","description":"Most matches to return (default: 100)"}},"required":["pattern"],"additionalProperties":false}"#;
const FIND: &str = r#"{"type":"object","properties":{"pattern":{"type":"string","description":"Glob, for example '*.rs', '**/*.json' or 'src/**/*_test.go'"},"path":{"type":"string","description":"Directory to search (default: working directory)"},"limit":{"type":"number","description":"Most results to return (default: 1000)"}},"required":["pattern"],"additionalProperties":false}"#;
const LS: &str = r#"{"type":"object","properties":{"path":{"type":"string","description":"Directory to list (default: working directory)"},"limit":{"type":"number","description":"Most entries to return (default: 500)"}},"required":[]}"#;

/// All built-in tools, the active ones first. `sequential` is false for each: edits of one file are kept in order by a
/// queue of their own, so calls of one message may overlap.
pub fn builtin_specs() -> Vec<ToolSpec> {
    vec![
        spec(
            "read",
            READ,
            "Returns the content of a text file, or shows an image (png, jpeg, gif, webp). At most 2000 lines or 50 KiB come back at once; go on with offset and limit until you have what you need.",
            "Read a file or an image",
            &["Look at files with read rather than with cat or sed."],
        ),
        spec(
            "bash",
            BASH,
            "Runs a command with bash in the working directory and returns what it prints, stdout and stderr together. Of long output the last 2000 lines or 50 KiB come back and the path of a file with all of it. Standard input is empty. A timeout in seconds is optional.",
            "Run a shell command",
            &[],
        ),
        spec(
            "edit",
            EDIT,
            "Replaces exact pieces of one text file. Each oldText must occur exactly once, whitespace included; several replacements in one call must not overlap.",
            "Replace exact text in a file",
            &[
                "Change existing files with edit; keep each oldText as short as uniqueness allows.",
                "Put several changes of one file into one edit call with several entries in edits.",
            ],
        ),
        spec(
            "write",
            WRITE,
            "Writes a file, replacing what was there and making missing parent directories.",
            "Create or replace a whole file",
            &["Use write for new files and complete rewrites only."],
        ),
        spec(
            "grep",
            GREP,
            "Searches the content of files and returns matching lines with path and line number. Files that .gitignore names are left out. At most 100 matches or 50 KiB come back; lines are cut at 500 characters.",
            "Search file contents",
            &[],
        ),
        spec(
            "find",
            FIND,
            "Finds files and directories by glob and returns paths relative to the searched directory. What .gitignore names is left out. At most 1000 results or 50 KiB come back.",
            "Find files by glob",
            &[],
        ),
        spec(
            "ls",
            LS,
            "Lists a directory in alphabetical order, dotfiles included, with / after directories. At most 500 entries or 50 KiB come back.",
            "List a directory",
            &[],
        ),
    ]
}

fn spec(
    name: &str,
    parameters: &'static str,
    description: &str,
    snippet: &str,
    guidelines: &[&str],
) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: Raw::from_trusted(Bytes::from_static(parameters.as_bytes())),
        snippet: Some(snippet.to_owned()),
        guidelines: guidelines.iter().map(|line| (*line).to_owned()).collect(),
        sequential: false,
    }
}

/// The schema of a built-in tool.
pub(crate) fn schema(name: &str) -> Option<&'static str> {
    Some(match name {
        "read" => READ,
        "bash" => BASH,
        "edit" => EDIT,
        "write" => WRITE,
        "grep" => GREP,
        "find" => FIND,
        "ls" => LS,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_schema_that_is_json_and_the_default_ones_come_first() {
        let specs = builtin_specs();
        assert!(specs.iter().map(|spec| spec.name.as_str()).take(4).eq(DEFAULT_TOOLS));
        for spec in &specs {
            assert_eq!(schema(&spec.name), Some(spec.parameters.as_str()));
            let parsed: serde_json::Value = spec.parameters.read().unwrap();
            assert_eq!(parsed["type"], "object", "{}", spec.name);
        }
        assert_eq!(specs.len(), 7);
    }
}
