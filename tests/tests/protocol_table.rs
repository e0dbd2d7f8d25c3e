//! The tables of PROTOCOL.md are those of the code, and every test that they name exists.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use atomic_protocol::command::Command;
use atomic_protocol::command::Request;
use atomic_protocol::event::Event;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the workspace").to_owned()
}

/// One row of a table.
struct Row {
    cells: Vec<String>,
}

impl Row {
    /// What stands between back quotes in this cell.
    fn quoted(&self, cell: usize) -> Vec<&str> {
        self.cells[cell].split('`').skip(1).step_by(2).collect()
    }

    fn name(&self) -> &str {
        match self.quoted(0)[..] {
            [name] => name,
            _ => panic!("a row is about one thing: {}", self.cells.join(" | ")),
        }
    }
}

/// The rows of the table whose first heading is this.
fn table(heading: &str) -> Vec<Row> {
    let path = root().join("PROTOCOL.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let first = format!("| {heading} |");
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&first));
    let columns =
        lines.next().unwrap_or_else(|| panic!("PROTOCOL.md has no table of {heading}")).matches('|').count();
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        // A bar inside a cell is written `\|`.
        let line = line.replace("\\|", "\u{1}");
        assert_eq!(line.matches('|').count(), columns, "{line}");
        let cells = line.trim_matches('|').split('|').map(|cell| cell.trim().replace('\u{1}', "|"));
        Row { cells: cells.collect() }
    })
    .collect()
}

/// Fails unless the rows are about exactly these, each once.
#[track_caller]
fn assert_complete(rows: &[Row], names: &[&str]) {
    let mut rows: Vec<&str> = rows.iter().map(Row::name).collect();
    let mut names = names.to_vec();
    rows.sort_unstable();
    names.sort_unstable();
    let missing: Vec<&&str> = names.iter().filter(|name| !rows.contains(name)).collect();
    let unknown: Vec<&&str> = rows.iter().filter(|name| !names.contains(name)).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "without a row: {missing:?}; unknown: {unknown:?}");
    assert_eq!(rows, names, "a row is there twice");
}

/// Fails unless the cell names tests as `file.rs::function`, and each is there.
#[track_caller]
fn assert_tests_exist(row: &Row, cell: usize) {
    let named = row.quoted(cell);
    assert!(!named.is_empty(), "{} names no test", row.name());
    for test in named {
        let (file, function) =
            test.split_once("::").unwrap_or_else(|| panic!("no file.rs::function: {test}"));
        let path = root().join("tests/tests").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{test}: {error}"));
        assert!(has_test(&text, function), "{test} does not exist");
    }
}

/// The source holds a test of this name: a function below `#[test]`, or a file of the corpus.
fn has_test(source: &str, name: &str) -> bool {
    let mut lines = source.lines().map(str::trim);
    let function = format!("fn {name}()");
    let mut is_test = false;
    let in_function = lines.any(|line| {
        let found = is_test && line.starts_with(&function);
        is_test = line == "#[test]" || (is_test && line.starts_with("#["));
        found
    });
    let in_corpus = source
        .split_once("\ncorpus! {")
        .and_then(|(_, rest)| rest.split_once('}'))
        .is_some_and(|(names, _)| names.split(',').any(|listed| listed.trim() == name));
    in_function || in_corpus
}

#[test]
fn every_command_has_its_row_its_lane_and_its_test() {
    let rows = table("command");
    assert_complete(&rows, Command::NAMES);
    for row in &rows {
        // Whatever the fields: the lane is the name's.
        let everything = format!(
            r#"{{"type":"{}","message":"","provider":"p","modelId":"m","level":"off","mode":"all","enabled":true,
            "command":"c","name":"n","sessionPath":"s","sessionId":"s","inputPath":"i","entryId":"e","targetId":"t","key":"k",
            "commandName":"c","argumentPrefix":"","credential":{{"type":"api_key","key":"k"}}}}"#,
            row.name()
        );
        let request = Request::parse(&everything.into_bytes().into())
            .unwrap_or_else(|answer| panic!("{}: {}", row.name(), String::from_utf8_lossy(&answer)));
        assert_eq!(request.command.name(), row.name());
        assert_eq!(row.cells[2], request.command.lane().as_str(), "the lane of {}", row.name());
        assert_sources(row);
        assert_tests_exist(row, 4);
    }
}

#[test]
fn every_event_has_its_row_and_its_test() {
    let rows = table("event");
    assert_complete(&rows, Event::NAMES);
    for row in &rows {
        assert_sources(row);
        assert_tests_exist(row, 3);
    }
}

/// Where it is described: seeds, Atomic's or Pi's own clients, or here alone.
#[track_caller]
fn assert_sources(row: &Row) {
    let known = ["S0", "S1", "S2", "S3", "A", "P", "ours"];
    let sources: Vec<&str> = row.cells[1].split(' ').collect();
    assert!(sources.iter().all(|source| known.contains(source)), "sources of {}: {sources:?}", row.name());
}

#[test]
fn what_upstream_loses_has_its_test() {
    for row in table("what goes wrong elsewhere") {
        let named = row.quoted(2);
        assert!(!named.is_empty(), "no test: {}", row.cells[0]);
        for test in named {
            let (file, function) =
                test.split_once("::").unwrap_or_else(|| panic!("no file.rs::function: {test}"));
            // Beside end-to-end tests also those of a crate, by the path of their file.
            let path = match file.contains('/') {
                true => root().join(file),
                false => root().join("tests/tests").join(file),
            };
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{test}: {error}"));
            assert!(has_test(&text, function), "{test} does not exist");
        }
    }
}

#[test]
fn a_test_is_found_where_it_is_and_nowhere_else() {
    let source = "fn helper() {}\n#[test]\n#[ignore = \"x\"]\nfn real() {\n}\nmacro!\ncorpus! {\n    one, two,\n}\nthree";
    for (name, found) in [("real", true), ("helper", false), ("rea", false), ("two", true), ("three", false)]
    {
        assert_eq!(has_test(source, name), found, "{name}");
    }
}
