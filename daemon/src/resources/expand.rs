//! `/name args` and `/skill:NAME args`: what a user's line becomes before anything else looks at it.
//!
//! A name ends at the first space and at nothing else. A line that names nothing known is left as it is: it is for the
//! model. Texts that are put in are not looked through again.

use super::Resources;
use super::catalog::Selection;
use super::files;
use super::frontmatter;

/// What clients are told failed when it is a skill.
const SKILL: &str = "skill_expansion";

/// Longest text that a template may become, in bytes. A short line can name a long template in which a long argument
/// stands a thousand times, and all sessions share the memory.
const MAX_BYTES: usize = 8 << 20;

/// Longest place in a template, in bytes: with its default, `${…}`. What is longer is text.
const MAX_PLACE: usize = 1024;

/// What became of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Expanded {
    /// It names nothing known.
    AsItWas,
    /// It stands for this text.
    Text(String),
    /// It names something that cannot be used; the line stays as it is and clients are told.
    Failed {
        /// What failed: `skill_expansion` (reference 4.7) or `prompt_expansion`.
        event: &'static str,
        /// The file, or `skill:NAME` when no single one was meant.
        path: String,
        /// Why, for a person.
        error: String,
    },
}

/// What `text` becomes. Blocking when it names a skill: the skill's file is read.
pub fn expand(text: &str, resources: &Resources) -> Expanded {
    let Some(line) = text.strip_prefix('/') else { return Expanded::AsItWas };
    let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
    if let Some(name) = name.strip_prefix("skill:")
        && let Some(selection) = resources.skill(name)
    {
        return skill(name, selection, arguments.trim());
    }
    let Some(template) = resources.templates().iter().find(|template| template.name == name) else {
        return Expanded::AsItWas;
    };
    match substitute(&template.content, &split(arguments)) {
        Some(text) => Expanded::Text(text),
        None => Expanded::Failed {
            event: "prompt_expansion",
            path: template.file.to_string_lossy().into_owned(),
            error: format!("with these arguments /{name} is longer than {} MiB", MAX_BYTES >> 20),
        },
    }
}

/// Whether [`expand`] may have to read a file.
pub fn reads_a_file(text: &str) -> bool {
    text.starts_with("/skill:")
}

fn skill(name: &str, selection: Selection<'_>, arguments: &str) -> Expanded {
    let (skill, id) = match selection {
        Selection::One(skill, id) => (skill, id),
        Selection::Several(selectors) => {
            let selectors: Vec<String> =
                selectors.iter().map(|selector| format!("/skill:{selector}")).collect();
            let error =
                format!("There are several skills \"{name}\"; name one of them: {}", selectors.join(", "));
            return Expanded::Failed { event: SKILL, path: format!("skill:{name}"), error };
        }
    };
    let path = skill.file.display();
    let read = files::read(&skill.file).and_then(|text| {
        frontmatter::parse(&text).map_err(|error| format!("{path}: {error}; correct the head of the file"))
    });
    let body = match read {
        Ok(document) => document.body,
        Err(error) => return Expanded::Failed { event: SKILL, path: path.to_string(), error },
    };
    let directory = skill.directory().display();
    // Clients know the block by this shape (reference 4.7).
    let mut text = format!(
        "<skill name=\"{}\" location=\"{path}\" candidate=\"{id}\">\nReferences are relative to {directory}.\n\n{}\n</skill>",
        skill.name,
        body.trim()
    );
    if !arguments.is_empty() {
        text.push_str("\n\n");
        text.push_str(arguments);
    }
    Expanded::Text(text)
}

/// Arguments are set apart by spaces and tabs. Quotes of both kinds hold an argument together; there are no escapes, and
/// an argument without a character is none.
fn split(text: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut current = String::new();
    let mut quote = None;
    for next in text.chars() {
        match quote {
            Some(open) if open == next => quote = None,
            None if next == '"' || next == '\'' => quote = Some(next),
            None if next == ' ' || next == '\t' => {
                if !current.is_empty() {
                    arguments.push(std::mem::take(&mut current));
                }
            }
            _ => current.push(next),
        }
    }
    if !current.is_empty() {
        arguments.push(current);
    }
    arguments
}

/// Puts arguments in the places of a template, in one pass. None: it becomes longer than [`MAX_BYTES`].
fn substitute(template: &str, arguments: &[String]) -> Option<String> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match place(rest, arguments) {
            Some((text, length)) => {
                out.push_str(&text);
                rest = &rest[length..];
            }
            None => out.push('$'),
        }
        if out.len() > MAX_BYTES {
            return None;
        }
    }
    out.push_str(rest);
    Some(out)
}

/// The text for the place that begins behind a `$`, and how many bytes the place has. `None`: it is none.
fn place(text: &str, arguments: &[String]) -> Option<(String, usize)> {
    let all = || arguments.join(" ");
    // Arguments are counted from 1.
    let one = |number: usize| number.checked_sub(1).and_then(|at| arguments.get(at)).cloned();
    let Some(inner) = text.strip_prefix('{') else {
        return match text {
            _ if text.starts_with('@') => Some((all(), 1)),
            _ if text.starts_with("ARGUMENTS") => Some((all(), "ARGUMENTS".len())),
            _ => number(text).map(|(number, length)| (one(number).unwrap_or_default(), length)),
        };
    };
    let inner = &inner[..inner.bytes().take(MAX_PLACE).position(|byte| byte == b'}')?];
    let length = inner.len() + 2;
    if let Some((target, default)) = inner.split_once(":-") {
        let value = match target {
            "@" | "ARGUMENTS" => all(),
            _ => one(whole(target)?).unwrap_or_default(),
        };
        return Some((if value.is_empty() { default.to_owned() } else { value }, length));
    }
    let slice = inner.strip_prefix("@:")?;
    let (start, count) = match slice.split_once(':') {
        Some((start, count)) => (whole(start)?, whole(count)?),
        None => (whole(slice)?, usize::MAX),
    };
    let chosen: Vec<&str> =
        arguments.iter().skip(start.saturating_sub(1)).take(count).map(String::as_str).collect();
    Some((chosen.join(" "), length))
}

/// A number at the beginning of `text`, and its length.
fn number(text: &str) -> Option<(usize, usize)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((whole(&text[..length])?, length))
}

/// A number of digits only; one too large for a count of arguments is as good as the largest.
fn whole(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_split_at_spaces_and_held_by_quotes() {
        for (text, expected) in [
            ("", vec![]),
            ("a  b\tc ", vec!["a", "b", "c"]),
            ("'a b' \"c d\"", vec!["a b", "c d"]),
            ("a'b c'd", vec!["ab cd"]),
            ("\"it's\" 'say \"x\"'", vec!["it's", "say \"x\""]),
            ("'' a \"\"", vec!["a"]),
            (r#"a\ b \"c d\""#, vec![r"a\", "b", r"\c d\"]),
            ("'open a b", vec!["open a b"]),
            ("a\nb", vec!["a\nb"]),
        ] {
            assert_eq!(split(text), expected, "{text}");
        }
    }

    #[test]
    fn places_are_filled_once() {
        for (template, expected) in [
            ("$1-$2-$3-$4", "a-b c-d-"),
            ("$10 $0 $", "  $"),
            ("$@|$ARGUMENTS", "a b c d|a b c d"),
            ("${@:2}", "b c d"),
            ("${@:2:1}|${@:0:1}|${@:1:0}|${@:9}", "b c|a||"),
            ("${1:-x}|${4:-x y}|${4:-}", "a|x y|"),
            ("${@:-none}|${ARGUMENTS:-none}", "a b c d|a b c d"),
            (
                "${1}|${x}|${@}|${@:x}|${@:1:}|${:-y}|$x|$$1|${1",
                "${1}|${x}|${@}|${@:x}|${@:1:}|${:-y}|$x|$a|${1",
            ),
            ("$ARGUMENTSX $1st é$2é", "a b c dX ast éb cé"),
            ("${4:-a\nb}", "a\nb"),
            ("$99999999999999999999999|", "|"),
        ] {
            let arguments = ["a", "b c", "d"].map(str::to_owned);
            assert_eq!(substitute(template, &arguments).as_deref(), Some(expected), "{template}");
        }
        assert_eq!(substitute("${@:-none}|${2:-two}|$1", &[]).unwrap(), "none|two|");
        let arguments = ["$2", "x"].map(str::to_owned);
        assert_eq!(substitute("$1 $2", &arguments).unwrap(), "$2 x", "not looked through again");
    }

    #[test]
    fn what_would_not_end_is_bounded() {
        let unclosed = "${".repeat(1 << 19);
        assert_eq!(substitute(&unclosed, &[]).unwrap(), unclosed, "in linear time");
        let long = format!("${{1:-{}}}", "é".repeat(MAX_PLACE));
        assert_eq!(substitute(&long, &[]).unwrap(), long);
        let megabyte = ["a".repeat(1 << 20)];
        assert_eq!(substitute(&"$@".repeat(8), &megabyte).unwrap().len(), MAX_BYTES);
        assert_eq!(substitute(&"$@".repeat(100_000), &megabyte), None);
    }
}
