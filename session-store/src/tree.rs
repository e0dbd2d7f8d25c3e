//! The tree of a session's entries, as `get_tree` shows it (seed 001).

use std::collections::HashMap;

use atomic_protocol::json::{Fields, write_string};

use bytes::Bytes;

use crate::Store;
use crate::entry::Kind;

/// The labels in force, by the id of the entry they name: text, and time as its entry spells it. The last in the file
/// wins; an empty one removes.
pub fn labels(store: &Store) -> HashMap<String, (String, String)> {
    let mut labels = HashMap::new();
    for entry in store.entries().iter().filter(|entry| entry.kind == Kind::Label) {
        let Ok(fields) = Fields::parse(entry.line.as_str()) else { continue };
        let Some(target) = fields.str("targetId") else { continue };
        match fields.str("label").filter(|label| !label.is_empty()) {
            Some(label) => {
                let time = fields.str("timestamp").unwrap_or_default().into_owned();
                labels.insert(target.into_owned(), (label.into_owned(), time));
            }
            None => {
                labels.remove(&*target);
            }
        }
    }
    labels
}

/// The JSON array of the tree's roots, in parts that share the entries' bytes: nodes `{entry, children, label?,
/// labelTimestamp?}`. Roots are entries without a parent, with a missing one or with themselves as one, in the order of
/// the file; where entries form a circle, its first. Children stand in the order of their times.
pub fn tree(store: &Store) -> Vec<Bytes> {
    let entries = store.entries();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); entries.len()];
    let mut roots = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        match entry.parent_id.as_ref().and_then(|parent| store.find(parent.as_str())) {
            Some(parent) if parent != at => children[parent].push(at),
            _ => roots.push(at),
        }
    }
    for list in &mut children {
        list.sort_by_key(|at| entries[*at].timestamp);
    }
    break_circles(&mut roots, &children);
    write(store, &roots, &children)
}

/// Adds, for each circle, its first entry to the roots: nothing leads there from elsewhere.
fn break_circles(roots: &mut Vec<usize>, children: &[Vec<usize>]) {
    let mut reached = vec![false; children.len()];
    let mut open = roots.clone();
    for first in 0..=children.len() {
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut reached[at], true) {
                open.extend(&children[at]);
            }
        }
        if first < children.len() && !reached[first] {
            roots.push(first);
            open.push(first);
        }
    }
    roots.sort_unstable();
}

/// What is to be written next. A list on the heap, since a conversation is as deep as it is long.
enum Step {
    Open(usize, bool),
    Close(usize),
}

fn write(store: &Store, roots: &[usize], children: &[Vec<usize>]) -> Vec<Bytes> {
    let labels = labels(store);
    let entries = store.entries();
    let mut out = Vec::with_capacity(4 * entries.len() + 2);
    let mut visited = vec![false; entries.len()];
    let mut steps = Vec::new();
    let mut push = |steps: &mut Vec<Step>, nodes: &[usize]| {
        let fresh: Vec<usize> =
            nodes.iter().copied().filter(|at| !std::mem::replace(&mut visited[*at], true)).collect();
        steps.extend(fresh.iter().enumerate().rev().map(|(place, at)| Step::Open(*at, place > 0)));
    };
    out.push(Bytes::from_static(b"["));
    push(&mut steps, roots);
    while let Some(step) = steps.pop() {
        match step {
            Step::Open(at, comma) => {
                out.push(Bytes::from_static(if comma { b",{\"entry\":" } else { b"{\"entry\":" }));
                out.push(entries[at].line.bytes().clone());
                out.push(Bytes::from_static(b",\"children\":["));
                steps.push(Step::Close(at));
                push(&mut steps, &children[at]);
            }
            Step::Close(at) => {
                let Some((label, time)) = labels.get(entries[at].id.as_str()) else {
                    out.push(Bytes::from_static(b"]}"));
                    continue;
                };
                let mut end = b"],\"label\":".to_vec();
                write_string(&mut end, label);
                end.extend_from_slice(b",\"labelTimestamp\":");
                write_string(&mut end, time);
                end.push(b'}');
                out.push(end.into());
            }
        }
    }
    out.push(Bytes::from_static(b"]"));
    out
}
