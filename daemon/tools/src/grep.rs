//! grep: lines of files that match.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch,
};
use ignore::overrides::OverrideBuilder;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::environment::ToolEnvironment;
use crate::error::ToolError;
use crate::find::{slashes, walker};
use crate::run::{count_argument, text_argument};
use crate::truncate::{self, MAX_BYTES, MAX_LINE_CHARS, Truncation};
use crate::{ToolOutput, paths, read};

const DEFAULT_LIMIT: usize = 100;
/// Most bytes of rows that are collected: twice what is shown, so that the cut is a true one.
const ROWS_BYTES: usize = 2 * MAX_BYTES;
/// Longest line that is searched; a file with a longer one is left out. Memory is bounded by it.
const HEAP_LIMIT: usize = 256 * 1024 * 1024;

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    truncation: Option<Truncation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    match_limit_reached: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines_truncated: Option<bool>,
}

pub(crate) fn run(
    arguments: &Map<String, Value>,
    environment: &ToolEnvironment,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let written = text_argument(arguments, "path").filter(|path| !path.is_empty()).unwrap_or(".");
    let root = paths::resolve_existing(written, environment);
    let meta =
        root.metadata().map_err(|_| ToolError::refused(format!("Path not found: {}", root.display())))?;
    let matcher = matcher(arguments)?;
    let context = count_argument(arguments, "context").unwrap_or(0);
    let limit = count_argument(arguments, "limit").unwrap_or(DEFAULT_LIMIT).max(1);
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .before_context(context)
        .after_context(context)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(HEAP_LIMIT))
        .build();
    let mut rows = Rows { limit, ..Rows::new(cancel) };
    if meta.is_dir() {
        for path in files(&root, text_argument(arguments, "glob"))? {
            if cancel.is_cancelled() {
                return Err(ToolError::Aborted);
            }
            let Ok(path) = path else { continue };
            rows.name = slashes(path.strip_prefix(&root).unwrap_or(&path));
            // What cannot be read is left out, as ripgrep does in a directory.
            if let Ok(file) = read::open_regular(&path) {
                search(&mut searcher, &matcher, file, &path, &mut rows);
            }
            if rows.is_full() {
                break;
            }
        }
    } else {
        rows.name = root.file_name().map_or_else(|| slashes(&root), |name| slashes(Path::new(name)));
        search(&mut searcher, &matcher, read::open_regular(&root)?, &root, &mut rows);
    }
    if cancel.is_cancelled() {
        return Err(ToolError::Aborted);
    }
    Ok(rows.into_output())
}

fn matcher(arguments: &Map<String, Value>) -> Result<RegexMatcher, ToolError> {
    let flag = |name: &str| arguments.get(name).and_then(Value::as_bool).unwrap_or(false);
    let mut builder = RegexMatcherBuilder::new();
    builder.case_insensitive(flag("ignoreCase")).fixed_strings(flag("literal")).line_terminator(Some(b'\n'));
    let pattern = text_argument(arguments, "pattern").unwrap_or_default();
    builder.build(pattern).map_err(|error| ToolError::refused(error.to_string()))
}

/// Files below `root` in the order of their names.
fn files(
    root: &Path,
    glob: Option<&str>,
) -> Result<impl Iterator<Item = Result<PathBuf, ignore::Error>>, ToolError> {
    let mut builder = walker(root, glob.unwrap_or_default());
    if let Some(glob) = glob.filter(|glob| !glob.is_empty()) {
        let mut overrides = OverrideBuilder::new(root);
        let built = overrides.add(glob).and_then(|overrides| overrides.build());
        builder
            .overrides(built.map_err(|error| ToolError::refused(format!("Invalid glob pattern: {error}")))?);
    }
    let walk = builder.sort_by_file_name(|one, other| one.cmp(other)).build();
    Ok(walk.filter_map(|entry| match entry {
        Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => Some(Ok(entry.into_path())),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }))
}

fn search(searcher: &mut Searcher, matcher: &RegexMatcher, file: File, path: &Path, rows: &mut Rows<'_>) {
    let reader = Cancellable { file, cancel: rows.cancel };
    if let Err(error) = searcher.search_reader(matcher, reader, &mut *rows) {
        tracing::debug!(path = %path.display(), %error, "a file was not searched to its end");
    }
}

/// A file whose reading stops when the call is cancelled.
struct Cancellable<'a> {
    file: File,
    cancel: &'a CancellationToken,
}

impl Read for Cancellable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("the call was cancelled"));
        }
        self.file.read(buffer)
    }
}

/// What was found so far.
struct Rows<'a> {
    cancel: &'a CancellationToken,
    /// The file at hand, as it is shown.
    name: String,
    limit: usize,
    matches: usize,
    rows: Vec<String>,
    bytes: usize,
    cut_lines: bool,
}

impl<'a> Rows<'a> {
    fn new(cancel: &'a CancellationToken) -> Rows<'a> {
        Rows {
            cancel,
            name: String::new(),
            limit: DEFAULT_LIMIT,
            matches: 0,
            rows: Vec::new(),
            bytes: 0,
            cut_lines: false,
        }
    }

    fn is_full(&self) -> bool {
        self.matches >= self.limit || self.bytes > ROWS_BYTES
    }

    /// Adds `name:number: text`, or with `-` for context.
    fn add(&mut self, mark: char, number: Option<u64>, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.replace(['\r', '\n'], "");
        let (text, cut) = truncate::line(&text);
        self.cut_lines |= cut;
        let row = format!("{}{mark}{}{mark} {text}", self.name, number.unwrap_or_default());
        self.bytes += row.len() + 1;
        self.rows.push(row);
    }

    fn into_output(self) -> ToolOutput {
        if self.matches == 0 {
            return ToolOutput::text("No matches found");
        }
        let shown = truncate::head(&self.rows.join("\n"), None, MAX_BYTES);
        let mut out = shown.content.clone();
        let mut notices = Vec::new();
        let mut details = Details::default();
        if self.matches >= self.limit {
            let (limit, more) = (self.limit, self.limit.saturating_mul(2));
            notices
                .push(format!("{limit} matches limit reached. Use limit={more} for more, or refine pattern"));
            details.match_limit_reached = Some(limit);
        }
        if shown.truncated {
            notices.push(format!("{} limit reached", truncate::size(MAX_BYTES as u64)));
            details.truncation = Some(shown);
        }
        if self.cut_lines {
            let text = "Use read tool to see full lines";
            notices.push(format!("Some lines truncated to {MAX_LINE_CHARS} chars. {text}"));
            details.lines_truncated = Some(true);
        }
        if notices.is_empty() {
            return ToolOutput::text(out);
        }
        out.push_str(&format!("\n\n[{}]", notices.join(". ")));
        ToolOutput::text(out).with_details(&details)
    }
}

impl Sink for &mut Rows<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        // The last match still gets the lines after it; the next match ends the search of this file.
        if self.is_full() {
            return Ok(false);
        }
        let lines = found.bytes().split_inclusive(|byte| *byte == LineTerminator::default().as_byte());
        for (at, line) in lines.enumerate() {
            self.add(':', found.line_number().map(|number| number + at as u64), line);
        }
        self.matches += 1;
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        if self.is_full() && *context.kind() != SinkContextKind::After {
            return Ok(false);
        }
        self.add('-', context.line_number(), context.bytes());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Place, details, text};
    use serde_json::json;

    #[tokio::test]
    async fn rows_are_path_number_and_text() {
        let place = Place::new();
        place.write("a.txt", "one\ntwo\r\nthree\nfour\nfive\n");
        place.write("src/b.rs", "fn two() {}\nlet x = a.b;\n");
        place.write("skip/c.txt", "two\n");
        place.write(".gitignore", "skip/\n");
        place.write(".git/d.txt", "two\n");
        place.write("bin", b"two\0two\n");
        for (arguments, expected) in [
            (json!({"pattern":"two"}), "a.txt:2: two\nsrc/b.rs:1: fn two() {}"),
            (json!({"pattern":"TWO","ignoreCase":true,"glob":"*.rs"}), "src/b.rs:1: fn two() {}"),
            (json!({"pattern":"TWO"}), "No matches found"),
            (json!({"pattern":"a.b","literal":true}), "src/b.rs:2: let x = a.b;"),
            (
                json!({"pattern":"two|four","path":"a.txt","context":1}),
                "a.txt-1- one\na.txt:2: two\na.txt-3- three\na.txt:4: four\na.txt-5- five",
            ),
            (json!({"pattern":"^f","path":"src","glob":"**/*.rs"}), "b.rs:1: fn two() {}"),
            (json!({"pattern":"two","path":"skip"}), "c.txt:1: two"),
            (json!({"pattern":"two","path":"bin"}), "No matches found"),
        ] {
            assert_eq!(text(&place.call("grep", arguments.clone()).await), expected, "{arguments}");
        }
    }

    #[tokio::test]
    async fn limits_are_told() {
        let place = Place::new();
        place.write("a", "x\n".repeat(10));
        let output = place.call("grep", json!({"pattern":"x","limit":2,"context":1})).await;
        let expected = "a:1: x\na:2: x\n\n[2 matches limit reached. Use limit=4 for more, or refine pattern]";
        assert_eq!(text(&output), expected);
        assert_eq!(details(&output), json!({"matchLimitReached":2}));
        place.write("a", "x1\ny\nx2\nz\n");
        let output = place.call("grep", json!({"pattern":"x","limit":2,"context":1})).await;
        assert!(text(&output).starts_with("a:1: x1\na-2- y\na:3: x2\na-4- z\n\n["), "{}", text(&output));
        place.write("a", "y".repeat(600));
        let output = place.call("grep", json!({"pattern":"y"})).await;
        let notice = "\n\n[Some lines truncated to 500 chars. Use read tool to see full lines]";
        assert_eq!(text(&output), format!("a:1: {}... [truncated]{notice}", "y".repeat(500)));
        assert_eq!(details(&output), json!({"linesTruncated":true}));
        place.write("a", format!("{}\n", "z".repeat(400)).repeat(1000));
        let output = place.call("grep", json!({"pattern":"z","limit":1000})).await;
        assert!(text(&output).ends_with("\n\n[50.0KB limit reached]"));
    }

    #[tokio::test]
    async fn errors_are_told() {
        let place = Place::new();
        let output = place.call("grep", json!({"pattern":"x","path":"none"})).await;
        assert_eq!(text(&output), format!("Path not found: {}", place.path("none").display()));
        let output = place.call("grep", json!({"pattern":"("})).await;
        assert!(output.is_error && text(&output).contains("unclosed group"), "{}", text(&output));
        let output = place.call("grep", json!({"pattern":"x","glob":"[a"})).await;
        assert!(output.is_error && text(&output).starts_with("Invalid glob pattern: "), "{}", text(&output));
    }
}
