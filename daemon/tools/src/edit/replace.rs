//! Finds the pieces and puts the new ones in their place. Error texts are Pi's.

use super::fuzzy::fuzzy;
use super::lines::{Endings, Piece};

/// One replacement, with line feeds only.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) old: String,
    pub(super) new: String,
}

/// Where an edit matches: bytes of the text that was searched.
struct Match {
    index: usize,
    start: usize,
    end: usize,
}

/// `text` (without a byte order mark) with all edits made. Each is matched against the text as it was.
///
/// Exact matches are tried first. When one edit has none, all are matched in the fuzzy form; then the lines that a match
/// touches are written in that form, all others keep their bytes.
pub(super) fn replace(path: &str, text: &str, edits: &[Edit]) -> Result<String, String> {
    let single = edits.len() == 1;
    for (index, edit) in edits.iter().enumerate() {
        if edit.old.is_empty() {
            return Err(match single {
                true => format!("oldText must not be empty in {path}."),
                false => format!("edits[{index}].oldText must not be empty in {path}."),
            });
        }
    }
    let endings = Endings::new(text);
    let plain = endings.plain();
    let exact = edits.iter().all(|edit| plain.contains(&edit.old));
    let fuzzy_plain = fuzzy(plain);
    let space = if exact { plain } else { &fuzzy_plain };
    let mut matches = Vec::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        let fuzzy_old = fuzzy(&edit.old);
        let old = if exact { &edit.old } else { &fuzzy_old };
        let found = if old.is_empty() { None } else { space.find(old.as_str()) };
        let start = found.ok_or_else(|| match single {
            true => format!(
                "Could not find the exact text in {path}. The old text must match exactly including all whitespace and newlines."
            ),
            false => format!(
                "Could not find edits[{index}] in {path}. The oldText must match exactly including all whitespace and newlines."
            ),
        })?;
        // Counted in the fuzzy form even for an exact match: a twin that differs in a quote is still a twin.
        let count = match fuzzy_old.is_empty() {
            true => plain.matches(&edit.old).count(),
            false => fuzzy_plain.matches(&fuzzy_old).count(),
        };
        if count > 1 {
            return Err(match single {
                true => format!(
                    "Found {count} occurrences of the text in {path}. The text must be unique. Please provide more context to make it unique."
                ),
                false => format!(
                    "Found {count} occurrences of edits[{index}] in {path}. Each oldText must be unique. Please provide more context to make it unique."
                ),
            });
        }
        matches.push(Match { index, start, end: start + old.len() });
    }
    matches.sort_by_key(|found| found.start);
    for pair in matches.windows(2) {
        if pair[0].end > pair[1].start {
            let (first, second) = (pair[0].index, pair[1].index);
            return Err(format!(
                "edits[{first}] and edits[{second}] overlap in {path}. Merge them into one edit or target disjoint regions."
            ));
        }
    }
    let pieces = match exact {
        true => matches
            .iter()
            .map(|found| Piece { start: found.start, end: found.end, new: edits[found.index].new.clone() })
            .collect(),
        false => whole_lines(plain, &fuzzy_plain, &matches, edits),
    };
    let replaced = endings.splice(&pieces);
    if replaced == text {
        return Err(match single {
            true => format!(
                "No changes made to {path}. The replacement produced identical content. This might indicate an issue with special characters or the text not existing as expected."
            ),
            false => format!("No changes made to {path}. The replacements produced identical content."),
        });
    }
    Ok(replaced)
}

/// Matches in the fuzzy form as pieces of whole lines of the plain text: both forms have the same lines.
fn whole_lines(plain: &str, fuzzy: &str, matches: &[Match], edits: &[Edit]) -> Vec<Piece> {
    let (plain_lines, fuzzy_lines) = (line_starts(plain), line_starts(fuzzy));
    let line_at = |place: usize| fuzzy_lines.partition_point(|start| *start <= place) - 1;
    let mut pieces: Vec<Piece> = Vec::new();
    // Where the last piece ends: in lines, and in bytes of the fuzzy form.
    let mut last: Option<(usize, usize)> = None;
    for found in matches {
        let first_line = line_at(found.start);
        // A match that ends with a line feed touches nothing of the line after it.
        let last_line = line_at(found.end.max(found.start + 1) - 1);
        let new = &edits[found.index].new;
        match (&mut last, pieces.last_mut()) {
            (Some((line, end)), Some(piece)) if *line >= first_line => {
                piece.new.push_str(&fuzzy[*end..found.start]);
                piece.new.push_str(new);
                (*line, *end) = (last_line, found.end);
            }
            _ => {
                finish(&mut pieces, last, plain, fuzzy, &plain_lines, &fuzzy_lines);
                let mut text = fuzzy[fuzzy_lines[first_line]..found.start].to_owned();
                text.push_str(new);
                pieces.push(Piece { start: plain_lines[first_line], end: 0, new: text });
                last = Some((last_line, found.end));
            }
        }
    }
    finish(&mut pieces, last, plain, fuzzy, &plain_lines, &fuzzy_lines);
    pieces
}

/// Ends the last piece where its last line ends, with what is left of that line.
fn finish(
    pieces: &mut [Piece],
    last: Option<(usize, usize)>,
    plain: &str,
    fuzzy: &str,
    plain_lines: &[usize],
    fuzzy_lines: &[usize],
) {
    let (Some((line, end)), Some(piece)) = (last, pieces.last_mut()) else { return };
    let next = plain_lines.get(line + 1).copied();
    if fuzzy_lines.get(line + 1) == Some(&end) {
        // The match took the line feed along.
        piece.end = next.unwrap_or(plain.len());
        return;
    }
    let fuzzy_end = fuzzy_lines.get(line + 1).map_or(fuzzy.len(), |next| next - 1);
    piece.new.push_str(&fuzzy[end..fuzzy_end]);
    piece.end = next.map_or(plain.len(), |next| next - 1);
}

fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str, edits: &[(&str, &str)]) -> Result<String, String> {
        let edits: Vec<Edit> =
            edits.iter().map(|(old, new)| Edit { old: (*old).to_owned(), new: (*new).to_owned() }).collect();
        replace("p", text, &edits)
    }

    #[test]
    fn errors_are_worded_as_pi_words_them() {
        for (edits, expected) in [
            (&[("", "x")][..], "oldText must not be empty in p."),
            (
                &[("z", "x")],
                "Could not find the exact text in p. The old text must match exactly including all whitespace and newlines.",
            ),
            (
                &[("a", "x")],
                "Found 2 occurrences of the text in p. The text must be unique. Please provide more context to make it unique.",
            ),
            (
                &[("abc", "x"), ("bc a", "y")],
                "edits[0] and edits[1] overlap in p. Merge them into one edit or target disjoint regions.",
            ),
            (
                &[("bc a", "y"), ("abc", "x")],
                "edits[1] and edits[0] overlap in p. Merge them into one edit or target disjoint regions.",
            ),
            (
                &[("abc", "abc")],
                "No changes made to p. The replacement produced identical content. This might indicate an issue with special characters or the text not existing as expected.",
            ),
            (
                &[("ab", "ab"), ("c", "c")],
                "No changes made to p. The replacements produced identical content.",
            ),
            (
                &[("abc", "x"), ("z", "y")],
                "Could not find edits[1] in p. The oldText must match exactly including all whitespace and newlines.",
            ),
            (
                &[("bc", "x"), ("a", "y")],
                "Found 2 occurrences of edits[1] in p. Each oldText must be unique. Please provide more context to make it unique.",
            ),
        ] {
            assert_eq!(run("abc a", edits), Err(expected.to_owned()), "{edits:?}");
        }
    }

    #[test]
    fn fuzzy_matches_rewrite_only_the_lines_they_touch() {
        let text = "it’s  a “test”   \nkeep  \nx – y\n";
        assert_eq!(run(text, &[("it's  a \"test\"", "OK")]).unwrap(), "OK\nkeep  \nx – y\n");
        assert_eq!(run(text, &[("it's  a \"test\"\n", "OK\n")]).unwrap(), "OK\nkeep  \nx – y\n");
        assert_eq!(run(text, &[("\"test\"\nkeep\nx -", "1\n2")]).unwrap(), "it's  a 1\n2 y\n");
        // Two edits on one line, and one further on.
        assert_eq!(
            run(text, &[("it's", "A"), ("\"test\"", "B"), ("x - y", "C")]).unwrap(),
            "A  a B\nkeep  \nC\n"
        );
        // A match that ends where the next one's line begins.
        assert_eq!(run(text, &[("\"test\"\n", "B\n"), ("keep\nx -", "K")]).unwrap(), "it's  a B\nK y\n");
        // Line endings of untouched lines stay; new ones are local.
        assert_eq!(run("“a”\r\nb  \r\nc\n", &[("\"a\"", "1\n2")]).unwrap(), "1\r\n2\r\nb  \r\nc\n");
        // The last line without a line feed.
        assert_eq!(run("k  \n“a”", &[("\"a\"", "b")]).unwrap(), "k  \nb");
    }

    #[test]
    fn white_space_alone_is_no_match_for_everything() {
        assert!(run("a\nb", &[("   ", "x")]).unwrap_err().starts_with("Could not find"));
        assert_eq!(run("a   b", &[("   ", "-")]).unwrap(), "a-b");
    }

    #[test]
    fn edits_are_made_in_the_text_as_it_was() {
        assert_eq!(run("one two", &[("two", "one"), ("one", "two")]).unwrap(), "two one");
        assert_eq!(run("ab", &[("a", "1"), ("b", "2")]).unwrap(), "12");
    }
}
