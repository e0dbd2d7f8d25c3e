//! JSON for people: indented, and otherwise exactly as it stands in the file.

use crate::html;

/// JSON longer than this is shown as it stands: indenting what nobody reads only makes it longer.
const INDENTED_BYTES: usize = 256 * 1024;

/// Deeper levels are not indented further, so that the size stays linear in the input.
const INDENTED_LEVELS: usize = 24;

/// Appends `raw` as a block.
pub(crate) fn block(out: &mut String, raw: &str) {
    out.push_str("<pre class=\"raw\">");
    // What is not JSON keeps its own blanks.
    if raw.len() > INDENTED_BYTES || serde_json::from_str::<&serde_json::value::RawValue>(raw).is_err() {
        html::text(out, raw);
    } else {
        html::text(out, &indented(raw));
    }
    out.push_str("</pre>");
}

fn indented(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len() * 2);
    let mut level = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut characters = raw.trim().chars().peekable();
    let line = |out: &mut String, level: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", level.min(INDENTED_LEVELS)));
    };
    while let Some(character) = characters.next() {
        if in_string {
            out.push(character);
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
            continue;
        }
        match character {
            '"' => {
                in_string = true;
                out.push('"');
            }
            '{' | '[' => {
                out.push(character);
                while characters.peek().is_some_and(|next| next.is_ascii_whitespace()) {
                    characters.next();
                }
                if let Some(close @ ('}' | ']')) = characters.peek().copied() {
                    characters.next();
                    out.push(close);
                } else {
                    level += 1;
                    line(&mut out, level);
                }
            }
            '}' | ']' => {
                level = level.saturating_sub(1);
                line(&mut out, level);
                out.push(character);
            }
            ',' => {
                out.push(',');
                line(&mut out, level);
            }
            ':' => out.push_str(": "),
            blank if blank.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_as_written() {
        assert_eq!(
            indented(r#"{"a":[1, 2.50],"b":{},"c":[ ],"d":"x\"{,: \\"}"#),
            "{\n  \"a\": [\n    1,\n    2.50\n  ],\n  \"b\": {},\n  \"c\": [],\n  \"d\": \"x\\\"{,: \\\\\"\n}"
        );
        let mut out = String::new();
        block(&mut out, "no [json <b>");
        assert_eq!(out, "<pre class=\"raw\">no [json &lt;b&gt;</pre>");
    }

    #[test]
    fn depth_costs_what_it_must() {
        let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        assert!(indented(&deep).len() < 6_000_000);
    }
}
