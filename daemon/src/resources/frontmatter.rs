//! The head of a Markdown file: lines between two `---` that name the file's title, description and switches.
//!
//! It is YAML by name, and of YAML what people write there: `key: value`, quotes, comments, block texts (`|`, `>`) and
//! values that go on in indented lines. Lists and maps are other programs' business and are passed over. A whole YAML
//! reader would refuse what people write as well, above all descriptions with a colon in them.

/// A text in two parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document {
    /// Keys and values in the order of the file; none when the file has no head.
    fields: Vec<(String, String)>,
    /// What follows the head, trimmed; the whole text when there is no head.
    pub(super) body: String,
}

impl Document {
    /// The value of a key, if it is there and not empty.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let (_, value) = self.fields.iter().find(|(name, _)| name == key)?;
        Some(value.as_str()).filter(|value| !value.trim().is_empty())
    }

    /// The key says `true`.
    pub(super) fn is_true(&self, key: &str) -> bool {
        self.get(key) == Some("true")
    }
}

/// Reads a text.
///
/// # Errors
/// When the head is no head of this kind: the line (from 1) and what is wrong with it, for a person.
pub(super) fn parse(text: &str) -> Result<Document, String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines = text.split('\n');
    if lines.next().map(str::trim_end) != Some("---") {
        return Ok(Document { fields: Vec::new(), body: text });
    }
    let head: Vec<&str> = lines.clone().take_while(|line| line.trim_end() != "---").collect();
    let mut rest = lines.skip(head.len());
    if rest.next().is_none() {
        // Never closed: a rule at the top of the page, and no head.
        return Ok(Document { fields: Vec::new(), body: text });
    }
    let body = rest.collect::<Vec<_>>().join("\n").trim().to_owned();
    Ok(Document { fields: fields(&head)?, body })
}

fn fields(lines: &[&str]) -> Result<Vec<(String, String)>, String> {
    let mut fields = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if is_blank(line) || line.starts_with([' ', '\t']) || line.starts_with("- ") || line == "-" {
            // Indented lines and lists belong to a value that is passed over.
            continue;
        }
        let Some((key, value)) = split_key(line) else {
            // Lines of the file: the `---` before these is the first.
            return Err(format!("line {} is no `key: value`", at + 1));
        };
        let below =
            lines[at..].iter().take_while(|line| line.trim().is_empty() || line.starts_with([' ', '\t']));
        let below = &lines[at..at + below.count()];
        let value = match value.chars().next() {
            Some('|' | '>') => block(value, below),
            Some(quote @ ('"' | '\'')) => {
                let joined = folded(value, below);
                quoted(&joined, quote).ok_or_else(|| format!("the quote in line {} is not closed", at + 1))?
            }
            // The value is a list or a map.
            Some('[' | '{') | None if below.iter().any(|line| is_map_or_list(line)) => String::new(),
            _ => without_comment(&folded(without_comment(value), below)).to_owned(),
        };
        fields.push((key.to_owned(), value));
        at += below.len();
    }
    Ok(fields)
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

fn is_map_or_list(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("- ") || line == "-" || split_key(line).is_some()
}

/// `key: value` in its two parts, trimmed. The key may be quoted.
fn split_key(line: &str) -> Option<(&str, &str)> {
    let (key, value) = match line.split_once(": ") {
        Some(parts) => parts,
        None => (line.trim_end().strip_suffix(':')?, ""),
    };
    let key = key.trim().trim_matches(['"', '\'']);
    (!key.is_empty()).then(|| (key, value.trim()))
}

/// A value and the lines it goes on in: line ends are spaces, blank lines are line ends.
fn folded(first: &str, below: &[&str]) -> String {
    let mut out = first.to_owned();
    let mut breaks = 0;
    for line in below.iter().map(|line| line.trim()) {
        if line.is_empty() {
            breaks += 1;
            continue;
        }
        match breaks {
            0 if out.is_empty() => {}
            0 => out.push(' '),
            more => out.extend(std::iter::repeat_n('\n', more)),
        }
        breaks = 0;
        out.push_str(line);
    }
    out
}

/// A comment begins with `#` behind a space.
fn without_comment(value: &str) -> &str {
    if value.starts_with('#') {
        return "";
    }
    value.find(" #").map_or(value, |at| &value[..at]).trim_end()
}

/// A text in quotes, up to the closing one.
fn quoted(value: &str, quote: char) -> Option<String> {
    let mut out = String::new();
    let mut chars = value.chars().skip(1).peekable();
    while let Some(next) = chars.next() {
        match next {
            '\'' if quote == '\'' && chars.peek() == Some(&'\'') => {
                chars.next();
                out.push('\'');
            }
            '\\' if quote == '"' => match chars.next()? {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                other => out.push(other),
            },
            end if end == quote => return Some(out),
            other => out.push(other),
        }
    }
    None
}

/// A block text: `|` keeps line ends, `>` folds them. The indentation of its first line is taken off.
fn block(header: &str, below: &[&str]) -> String {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let first = below.iter().find(|line| !line.trim().is_empty()).map_or(0, |line| indent(line));
    let lines: Vec<&str> = below
        .iter()
        .map(|line| if indent(line) >= first { &line[first..] } else { line.trim_start() })
        .collect();
    let text = if header.starts_with('>') { folded("", &lines) } else { lines.join("\n") };
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(head: &str) -> Option<String> {
        parse(&format!("---\n{head}\n---\nbody")).unwrap().get("k").map(str::to_owned)
    }

    #[test]
    fn values() {
        for (head, expected) in [
            ("k: v", Some("v")),
            ("k:   two words  ", Some("two words")),
            ("k: a: b # c", Some("a: b")),
            ("k: a#b", Some("a#b")),
            ("# c\n\nk: v", Some("v")),
            ("k: \"a \\\"b\\\"\\n\\\\ # c\" # d", Some("a \"b\"\n\\ # c")),
            ("k: 'it''s \\n'", Some("it's \\n")),
            ("k: \"two\n  lines\"", Some("two lines")),
            ("k: one\n  two\n\n  three\nother: x", Some("one two\nthree")),
            ("k: >\n  one\n  two\n\n  three\n", Some("one two\nthree")),
            ("k: >-\n  one\n  two", Some("one two")),
            ("k: |\n  one\n    two\n\n  # three\nother: x", Some("one\n  two\n\n# three")),
            ("k:\n  below", Some("below")),
            ("\"k\": v", Some("v")),
            ("k: # nothing", None),
            ("k:", None),
            ("k: ''", None),
            ("k:\n  - a\n  - b", None),
            ("k:\n  a: b", None),
            ("metadata:\n  k: inner\nother:\n- x\n- y: z", None),
            ("k: ü", Some("ü")),
        ] {
            assert_eq!(value(head).as_deref(), expected, "{head}");
        }
    }

    #[test]
    fn a_head_stands_between_two_rules_at_the_top() {
        for (text, k, body) in [
            ("---\nk: v\n---\n\n body \n\n", Some("v"), "body"),
            ("---\r\nk: v\r\n---\r\none\r\ntwo", Some("v"), "one\ntwo"),
            ("--- \nk: v\n---  ", Some("v"), ""),
            ("---\n---\nx", None, "x"),
            (" body\n---\nk: v\n---\n", None, " body\n---\nk: v\n---\n"),
            ("---\nk: v", None, "---\nk: v"),
            ("----\nk: v\n---\n", None, "----\nk: v\n---\n"),
            ("---\nk: v\n---\na\n---\nb", Some("v"), "a\n---\nb"),
            ("", None, ""),
        ] {
            let document = parse(text).unwrap();
            assert_eq!((document.get("k"), document.body.as_str()), (k, body), "{text:?}");
        }
    }

    #[test]
    fn mistakes_name_their_line() {
        assert_eq!(parse("---\nk: v\nwords\n---\n").unwrap_err(), "line 3 is no `key: value`");
        assert_eq!(parse("---\nk: \"v\n---\n").unwrap_err(), "the quote in line 2 is not closed");
    }

    #[test]
    fn switches() {
        for (text, expected) in [("true", true), ("\"true\"", true), ("yes", false), ("false", false)] {
            assert_eq!(parse(&format!("---\nk: {text}\n---\n")).unwrap().is_true("k"), expected);
        }
    }
}
