//! Differences with their lines coloured: unified ones, and the numbered form that the edit tool shows.

use crate::html;

/// A block with more lines than this begins closed.
pub(crate) const OPEN_LINES: usize = 60;

/// Appends `diff` inside `<pre>`. Neighbouring lines of one kind share an element.
pub(crate) fn coloured(out: &mut String, diff: &str) {
    let unified = diff.lines().any(|line| line.starts_with("@@"));
    let mut open = "";
    for line in diff.split_inclusive('\n') {
        let class = match line.as_bytes().first() {
            _ if unified
                && (line.starts_with("+++ ") || line.starts_with("--- ") || line.starts_with("diff ")) =>
            {
                "file"
            }
            Some(b'+') => "add",
            Some(b'-') => "del",
            Some(b'@') if unified => "hunk",
            _ => "",
        };
        if class != open {
            if !open.is_empty() {
                out.push_str("</span>");
            }
            if !class.is_empty() {
                out.push_str("<span class=\"");
                out.push_str(class);
                out.push_str("\">");
            }
            open = class;
        }
        html::text(out, line);
    }
    if !open.is_empty() {
        out.push_str("</span>");
    }
}

/// Appends the lines of `text`, each with `sign` in front, as one coloured block.
pub(crate) fn block(out: &mut String, class: &'static str, sign: char, text: &str) {
    out.push_str("<span class=\"");
    out.push_str(class);
    out.push_str("\">");
    for line in text.split_inclusive('\n') {
        out.push(sign);
        html::text(out, line);
    }
    if !text.ends_with('\n') {
        out.push('\n');
    }
    out.push_str("</span>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(diff: &str) -> String {
        let mut out = String::new();
        coloured(&mut out, diff);
        out
    }

    #[test]
    fn both_forms() {
        assert_eq!(
            shown("  1 a\n-2 <b>\n-3 c\n+2 d\n   ...\n"),
            "  1 a\n<span class=\"del\">-2 &lt;b&gt;\n-3 c\n</span><span class=\"add\">+2 d\n</span>   ...\n"
        );
        assert_eq!(
            shown("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y"),
            "<span class=\"file\">--- a\n+++ b\n</span><span class=\"hunk\">@@ -1 +1 @@\n</span><span class=\"del\">-x\n</span><span class=\"add\">+y</span>"
        );
        assert_eq!(shown(""), "");
    }
}
