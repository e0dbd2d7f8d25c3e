//! The outline: what the user said, labels and boundaries, with the branches where they left.

use std::collections::HashMap;

use crate::tree::{Step, Tree};
use crate::{html, record};

/// Lines that stand in one list. A browser leaves out the lists that are not in sight as a whole.
const PART: usize = 50;

/// Characters of an outline's line.
const BRIEF: usize = 72;

/// Appends the outline's lists.
pub(crate) fn write(out: &mut String, tree: &Tree<'_>, labels: &HashMap<usize, String>) {
    out.push_str("<ol>");
    let (mut depth, mut lines) = (0usize, 0);
    for step in tree.walk() {
        if depth == 0 && lines >= PART {
            out.push_str("</ol><ol>");
            lines = 0;
        }
        match step {
            Step::Entry(at) => {
                if let Some((class, text)) = line(tree, at, labels) {
                    lines += 1;
                    out.push_str("<li");
                    html::attribute(out, "class", class);
                    out.push_str("><a href=\"#");
                    html::text(out, &tree.nodes[at].anchor);
                    out.push_str("\">");
                    html::isolated(out, &text);
                    out.push_str("</a></li>");
                }
            }
            Step::Open { first, size, .. } => {
                depth += 1;
                lines += 1;
                out.push_str("<li class=\"branch\"><a href=\"#");
                html::text(out, &branch_anchor(tree, first));
                out.push_str("\">Branch, ");
                html::text(out, &entries(size));
                out.push_str("</a><ol>");
            }
            Step::Close => {
                depth -= 1;
                out.push_str("</ol></li>");
            }
            Step::Later => {}
        }
    }
    out.push_str("</ol>");
}

/// The anchor of the branch that begins at `first`.
pub(crate) fn branch_anchor(tree: &Tree<'_>, first: usize) -> String {
    format!("branch-{}", &tree.nodes[first].anchor["entry-".len()..])
}

/// `1 entry`, `2 entries`.
pub(crate) fn entries(count: usize) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

fn line(tree: &Tree<'_>, at: usize, labels: &HashMap<usize, String>) -> Option<(&'static str, String)> {
    let node = &tree.nodes[at];
    if let Some(label) = labels.get(&at) {
        return Some(("labelled", html::brief(label, BRIEF)));
    }
    let fields = record::fields(node.line);
    match &*node.kind {
        "message" => {
            let message = record::fields(fields.get("message")?);
            let text = match message.str("role").as_deref()? {
                "user" => record::texts(&message),
                "bashExecution" => format!("$ {}", message.str("command")?),
                _ => return None,
            };
            let text = html::brief(&text, BRIEF);
            Some(("turn", if text.is_empty() { "(no text)".to_owned() } else { text }))
        }
        "compaction" => Some(("mark", "Compaction".to_owned())),
        "branch_summary" => Some(("mark", "Summary of a branch".to_owned())),
        _ => None,
    }
}
