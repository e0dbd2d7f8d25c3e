//! How a change is shown: numbered rows for people, a unified patch for programs.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use similar::{DiffOp, TextDiff};

/// Unchanged lines around a change.
const CONTEXT: usize = 4;
/// After this the diff of a huge change is allowed to be larger than need be.
const DEADLINE: Duration = Duration::from_secs(1);

/// A change in its two forms.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Rows `+NN text`, `-NN text`, ` NN text`; unchanged rows have the old number.
    pub(crate) display: String,
    /// Unified.
    pub(crate) patch: String,
    /// In the new text, counted from 1. `None` when nothing changed.
    pub(crate) first_changed_line: Option<usize>,
}

/// Compares two texts with line feeds only.
pub(crate) fn difference(path: &str, before: &str, after: &str) -> Difference {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let diff = TextDiff::configure().timeout(DEADLINE).diff_slices(&old, &new);
    let changed = diff.ops().iter().find(|op| !matches!(op, DiffOp::Equal { .. }));
    Difference {
        display: display(diff.ops(), &old, &new, before, after),
        patch: patch(path, &diff.grouped_ops(CONTEXT), &old, &new),
        first_changed_line: changed.map(|op| op.new_range().start + 1),
    }
}

fn display(ops: &[DiffOp], old: &[&str], new: &[&str], before: &str, after: &str) -> String {
    // The reference counts the empty part after a trailing line feed when it pads.
    let most = before.split('\n').count().max(after.split('\n').count());
    let width = most.to_string().len();
    let mut rows = Vec::new();
    let skipped = format!(" {:width$} ...", "");
    let same = |rows: &mut Vec<String>, lines: Range<usize>| {
        rows.extend(lines.map(|at| format!(" {:>width$} {}", at + 1, bare(old[at]))));
    };
    for (at, op) in ops.iter().enumerate() {
        if let DiffOp::Equal { .. } = op {
            let lines = op.old_range();
            let after_change = if at > 0 { CONTEXT } else { 0 };
            let before_change = if at + 1 < ops.len() { CONTEXT } else { 0 };
            if lines.len() <= after_change + before_change {
                same(&mut rows, lines);
                continue;
            }
            same(&mut rows, lines.start..lines.start + after_change);
            rows.push(skipped.clone());
            same(&mut rows, lines.end - before_change..lines.end);
            continue;
        }
        rows.extend(op.old_range().map(|at| format!("-{:>width$} {}", at + 1, bare(old[at]))));
        rows.extend(op.new_range().map(|at| format!("+{:>width$} {}", at + 1, bare(new[at]))));
    }
    rows.join("\n")
}

fn bare(line: &str) -> &str {
    line.strip_suffix('\n').unwrap_or(line)
}

fn patch(path: &str, groups: &[Vec<DiffOp>], old: &[&str], new: &[&str]) -> String {
    let mut out = format!("--- {path}\n+++ {path}\n");
    for group in groups {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old_lines = first.old_range().start..last.old_range().end;
        let new_lines = first.new_range().start..last.new_range().end;
        writeln!(out, "@@ -{} +{} @@", span(&old_lines), span(&new_lines)).expect("writing to a string");
        for op in group {
            if let DiffOp::Equal { .. } = op {
                op.old_range().for_each(|at| row(&mut out, ' ', old[at]));
            } else {
                op.old_range().for_each(|at| row(&mut out, '-', old[at]));
                op.new_range().for_each(|at| row(&mut out, '+', new[at]));
            }
        }
    }
    out
}

/// `start,length`; an empty range names the line before it.
fn span(lines: &Range<usize>) -> String {
    let start = if lines.is_empty() { lines.start } else { lines.start + 1 };
    format!("{start},{}", lines.len())
}

fn row(out: &mut String, sign: char, line: &str) {
    out.push(sign);
    out.push_str(line);
    if !line.ends_with('\n') {
        out.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_change_is_shown_as_the_reference_shows_it() {
        let before: String = (1..=24).map(|n| format!("line{n}\n")).collect();
        let after = before.replace("line3\n", "LINE3\n").replace("line20\n", "line20\nadded\n");
        let shown = difference("p", &before, &after);
        let expected = [
            "  1 line1",
            "  2 line2",
            "- 3 line3",
            "+ 3 LINE3",
            "  4 line4",
            "  5 line5",
            "  6 line6",
            "  7 line7",
            "    ...",
            " 17 line17",
            " 18 line18",
            " 19 line19",
            " 20 line20",
            "+21 added",
            " 21 line21",
            " 22 line22",
            " 23 line23",
            " 24 line24",
        ];
        assert_eq!(shown.display, expected.join("\n"));
        assert_eq!(shown.first_changed_line, Some(3));
        let hunks: Vec<&str> = shown.patch.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(hunks, ["@@ -1,7 +1,7 @@", "@@ -17,8 +17,9 @@"]);
        assert!(
            shown
                .patch
                .starts_with("--- p\n+++ p\n@@ -1,7 +1,7 @@\n line1\n line2\n-line3\n+LINE3\n line4\n")
        );
    }

    #[test]
    fn edges_of_a_file() {
        let shown = difference("p", "a", "b\n");
        assert_eq!(shown.patch, "--- p\n+++ p\n@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+b\n");
        assert_eq!(shown.display, "-1 a\n+1 b");
        let shown = difference("p", "", "a\n");
        assert_eq!(shown.patch, "--- p\n+++ p\n@@ -0,0 +1,1 @@\n+a\n");
        let shown = difference("p", "a\n", "");
        assert_eq!(shown.patch, "--- p\n+++ p\n@@ -1,1 +0,0 @@\n-a\n");
        assert_eq!(difference("p", "a", "a").first_changed_line, None);
    }
}
