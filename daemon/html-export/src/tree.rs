//! The session as a tree: which entries follow which, and in what order a page shows them.
//!
//! A page reads along the *active branch*, from its root to the leaf. What left that branch stands as a branch of its own at
//! the place where it left, and a branch of a branch inside it. Nothing here recurses: a conversation is as deep as it is
//! long.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use atomic_protocol::json::Fields;

use crate::html;

/// How deep branches stand inside each other. Deeper ones are shown one after another at the end of the page: browsers
/// flatten documents that are hundreds of elements deep, and nobody reads the ninth indentation.
const NESTED_BRANCHES: usize = 8;

/// One entry, as far as the tree needs it.
pub(crate) struct Node<'a> {
    /// The raw JSON line.
    pub(crate) line: &'a str,
    /// The wire's `type`; empty when there is none.
    pub(crate) kind: Cow<'a, str>,
    /// Unique on the page.
    pub(crate) anchor: String,
    parent: Option<usize>,
    children: Vec<usize>,
    /// How many entries stand here and below.
    size: usize,
    /// The last entry of the file that stands here or below.
    latest: usize,
}

/// All entries of a session in the order of the file.
pub(crate) struct Tree<'a> {
    pub(crate) nodes: Vec<Node<'a>>,
    roots: Vec<usize>,
    /// From a root to the leaf.
    active: Vec<usize>,
    by_id: HashMap<Cow<'a, str>, usize>,
}

impl<'a> Tree<'a> {
    /// Cuts the lines and links them. An entry without a parent in the file is a root; where entries form a circle, the
    /// first of them is.
    pub(crate) fn read(lines: &[&'a str], leaf: crate::Leaf<'_>) -> Tree<'a> {
        let mut by_id: HashMap<Cow<'a, str>, usize> = HashMap::with_capacity(lines.len());
        let mut parents = Vec::with_capacity(lines.len());
        let mut nodes: Vec<Node<'a>> = Vec::with_capacity(lines.len());
        for (at, line) in lines.iter().copied().enumerate() {
            let fields = Fields::parse(line).unwrap_or_default();
            parents.push(fields.str("parentId"));
            let id = fields.str("id");
            let anchor = match &id {
                Some(id) if !by_id.contains_key(id) => html::anchor(id),
                // No id, or one that another entry has: `~` and a number is no anchor of any id.
                _ => format!("entry-~{at}-"),
            };
            if let Some(id) = id {
                by_id.insert(id, at);
            }
            nodes.push(Node {
                line,
                kind: fields.str("type").unwrap_or_default(),
                anchor,
                parent: None,
                children: Vec::new(),
                size: 1,
                latest: at,
            });
        }
        for (at, parent) in parents.into_iter().enumerate() {
            nodes[at].parent = parent.and_then(|id| by_id.get(&id).copied()).filter(|parent| *parent != at);
        }
        cut_circles(&mut nodes);
        let mut roots = Vec::new();
        for at in 0..nodes.len() {
            match nodes[at].parent {
                Some(parent) => nodes[parent].children.push(at),
                None => roots.push(at),
            }
        }
        sum_up(&mut nodes, &roots);
        let leaf = match leaf {
            crate::Leaf::Last => nodes.len().checked_sub(1),
            crate::Leaf::BeforeFirst => None,
            crate::Leaf::Entry(id) => by_id.get(id).copied().or(nodes.len().checked_sub(1)),
        };
        let mut active: Vec<usize> = std::iter::successors(leaf, |at: &usize| nodes[*at].parent).collect();
        active.reverse();
        Tree { nodes, roots, active, by_id }
    }

    /// The entry with this id.
    pub(crate) fn find(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// The leaf's place, unless the session stands before its first entry.
    pub(crate) fn leaf(&self) -> Option<usize> {
        self.active.last().copied()
    }

    /// How many entries the active branch has.
    pub(crate) fn active_length(&self) -> usize {
        self.active.len()
    }

    /// The order of the page.
    pub(crate) fn walk(&self) -> Walk<'_, 'a> {
        let first = self.active.first().copied();
        let others = self.roots.iter().copied().filter(|root| Some(*root) != first).collect();
        let line = Line { entries: self.active.clone(), at: 0, branches: others, opened: None };
        Walk { tree: self, open: vec![line], later: VecDeque::new(), in_later: false }
    }

    /// At most `most` entries of the branch that begins at `first`: at each fork on to the entry that was worked on last.
    pub(crate) fn line(&self, first: usize, most: usize) -> Vec<usize> {
        std::iter::successors(Some(first), |at| {
            self.nodes[*at].children.iter().copied().max_by_key(|child| self.nodes[*child].latest)
        })
        .take(most)
        .collect()
    }
}

/// Makes the first entry of each circle a root.
fn cut_circles(nodes: &mut [Node<'_>]) {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        OnThisWay,
        Before,
    }
    let mut seen = vec![Seen::No; nodes.len()];
    let mut way = Vec::new();
    for start in 0..nodes.len() {
        let mut next = Some(start);
        while let Some(at) = next {
            match seen[at] {
                Seen::Before => break,
                Seen::OnThisWay => {
                    let circle = way.iter().rev().take_while(|entry| **entry != at).copied();
                    let first = circle.chain([at]).min().unwrap_or(at);
                    nodes[first].parent = None;
                    break;
                }
                Seen::No => {
                    seen[at] = Seen::OnThisWay;
                    way.push(at);
                    next = nodes[at].parent;
                }
            }
        }
        for at in way.drain(..) {
            seen[at] = Seen::Before;
        }
    }
}

/// Fills `size` and `latest`, children before parents.
fn sum_up(nodes: &mut [Node<'_>], roots: &[usize]) {
    let mut order = roots.to_vec();
    let mut at = 0;
    while at < order.len() {
        order.extend_from_slice(&nodes[order[at]].children);
        at += 1;
    }
    for at in order.into_iter().rev() {
        let (size, latest) = (nodes[at].size, nodes[at].latest);
        if let Some(parent) = nodes[at].parent {
            nodes[parent].size += size;
            nodes[parent].latest = nodes[parent].latest.max(latest);
        }
    }
}

/// What comes next on the page.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Show this entry.
    Entry(usize),
    /// A branch begins with the entry `first`; it left the branch around it, after `parent`, and has `size` entries.
    Open { first: usize, parent: Option<usize>, size: usize },
    /// The branch that was opened last ends.
    Close,
    /// The branches that were too deep follow.
    Later,
}

/// The steps of a page, in order.
pub(crate) struct Walk<'t, 'a> {
    tree: &'t Tree<'a>,
    open: Vec<Line>,
    later: VecDeque<(usize, Option<usize>)>,
    in_later: bool,
}

/// A branch that is being shown.
struct Line {
    entries: Vec<usize>,
    at: usize,
    /// Those that left after the entry before `at`.
    branches: VecDeque<usize>,
    /// Its first entry, once that is known to be a branch's.
    opened: Option<usize>,
}

impl Walk<'_, '_> {
    /// The entries that follow on the branch that is being shown, the next one first.
    pub(crate) fn ahead(&self) -> &[usize] {
        self.open.last().map(|line| &line.entries[line.at..]).unwrap_or_default()
    }

    fn branch(&mut self, first: usize, parent: Option<usize>) -> Step {
        let entries = self.tree.line(first, usize::MAX);
        self.open.push(Line { entries, at: 0, branches: VecDeque::new(), opened: Some(first) });
        Step::Open { first, parent, size: self.tree.nodes[first].size }
    }
}

impl Iterator for Walk<'_, '_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            let depth = self.open.len();
            let Some(line) = self.open.last_mut() else {
                let (first, parent) = self.later.front().copied()?;
                if !std::mem::replace(&mut self.in_later, true) {
                    return Some(Step::Later);
                }
                self.later.pop_front();
                return Some(self.branch(first, parent));
            };
            let before = line.at.checked_sub(1).map(|at| line.entries[at]);
            if let Some(first) = line.branches.pop_front() {
                // The active branch is no branch of the page; at the end of the page there is none around.
                if depth + usize::from(self.in_later) > NESTED_BRANCHES {
                    self.later.push_back((first, before));
                    continue;
                }
                return Some(self.branch(first, before));
            }
            let Some(entry) = line.entries.get(line.at).copied() else {
                let closed = line.opened.is_some();
                self.open.pop();
                if closed {
                    return Some(Step::Close);
                }
                continue;
            };
            line.at += 1;
            let next = line.entries.get(line.at).copied();
            let children = self.tree.nodes[entry].children.iter().copied();
            line.branches = children.filter(|child| Some(*child) != next).collect();
            return Some(Step::Entry(entry));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Leaf;

    fn lines(entries: &[(&str, Option<&str>)]) -> Vec<String> {
        let line = |(id, parent): &(&str, Option<&str>)| match parent {
            Some(parent) => format!(r#"{{"type":"x","id":"{id}","parentId":"{parent}"}}"#),
            None => format!(r#"{{"type":"x","id":"{id}","parentId":null}}"#),
        };
        entries.iter().map(line).collect()
    }

    /// The walk as text: ids, brackets around branches, `|` before the later ones.
    fn walked(entries: &[(&str, Option<&str>)], leaf: Leaf<'_>) -> String {
        let lines = lines(entries);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let tree = Tree::read(&lines, leaf);
        let step = |step| match step {
            Step::Entry(at) => entries[at].0.to_owned(),
            Step::Open { size, .. } => format!("[{size}:"),
            Step::Close => "]".to_owned(),
            Step::Later => "|".to_owned(),
        };
        tree.walk().map(step).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn branches_stand_where_they_left() {
        let entries = [
            ("a", None),
            ("b", Some("a")),
            ("c", Some("b")),
            ("d", Some("b")),
            ("e", Some("a")),
            ("f", Some("e")),
        ];
        assert_eq!(walked(&entries, Leaf::Last), "a [3: b [1: c ] d ] e f");
        assert_eq!(walked(&entries, Leaf::Entry("c")), "a [2: e f ] b [1: d ] c");
        assert_eq!(walked(&entries, Leaf::Entry("b")), "a [2: e f ] b [1: c ] [1: d ]");
        assert_eq!(walked(&entries, Leaf::Entry("unknown")), "a [3: b [1: c ] d ] e f");
        assert_eq!(walked(&entries, Leaf::BeforeFirst), "[6: a [3: b [1: c ] d ] e f ]");
        assert_eq!(walked(&[], Leaf::Last), "");
    }

    #[test]
    fn roots_orphans_circles_and_equal_ids() {
        assert_eq!(walked(&[("a", None), ("b", None), ("c", Some("gone"))], Leaf::Last), "[1: a ] [1: b ] c");
        assert_eq!(
            walked(&[("a", Some("b")), ("b", Some("a")), ("c", Some("c"))], Leaf::Last),
            "[2: a b ] c"
        );
        // Parents are found by the last entry that has the id, as the session store does.
        assert_eq!(walked(&[("a", None), ("a", None), ("b", Some("a"))], Leaf::Last), "[1: a ] a b");
        assert_eq!(
            walked(&[("a", Some("c")), ("b", Some("a")), ("c", Some("b")), ("d", Some("b"))], Leaf::Last),
            "a b [1: c ] d"
        );
    }

    #[test]
    fn each_entry_has_its_own_anchor() {
        let lines = [r#"{"id":"a"}"#, r#"{"id":"a"}"#, "5", "not json", r#"{"id":7}"#];
        let tree = Tree::read(&lines, Leaf::Last);
        let mut anchors: Vec<_> = tree.nodes.iter().map(|node| node.anchor.as_str()).collect();
        assert_eq!(anchors[0], "entry-a");
        anchors.sort_unstable();
        anchors.dedup();
        assert_eq!(anchors.len(), 5);
    }

    #[test]
    fn deep_branches_come_later_and_none_is_lost() {
        // Each entry of a chain has two children: the next of the chain, and the end of the file goes on from the root.
        let ids: Vec<String> = (0..40).map(|at| format!("n{at}")).collect();
        let mut entries = vec![("root", None)];
        // n(k) is a child of n(k-1) and so is a later sibling s(k) that the line prefers.
        let siblings: Vec<String> = (0..40).map(|at| format!("s{at}")).collect();
        for at in 0..40 {
            let parent = if at == 0 { "root" } else { ids[at - 1].as_str() };
            entries.push((ids[at].as_str(), Some(parent)));
        }
        for at in (0..40).rev() {
            entries.push((siblings[at].as_str(), Some(ids[at].as_str())));
        }
        entries.push(("leaf", Some("root")));
        let shown = walked(&entries, Leaf::Last);
        for (id, _) in &entries {
            assert_eq!(shown.split(' ').filter(|word| word == id).count(), 1, "{id} once in {shown}");
        }
        // A chain whose every fork leads deeper: the main line is short, the rest hangs below.
        let mut nested = vec![("root", None)];
        for at in 0..40 {
            let parent = if at == 0 { "root" } else { siblings[at - 1].as_str() };
            nested.push((siblings[at].as_str(), Some(parent)));
        }
        for at in (0..40).rev() {
            let parent = if at == 0 { "root" } else { siblings[at - 1].as_str() };
            nested.push((ids[at].as_str(), Some(parent)));
        }
        let shown = walked(&nested, Leaf::Last);
        assert!(shown.contains('|'), "{shown}");
        let (mut depth, mut deepest) = (0usize, 0);
        for character in shown.chars() {
            match character {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            deepest = deepest.max(depth);
        }
        assert_eq!((depth, deepest), (0, NESTED_BRANCHES));
        for (id, _) in &nested {
            assert_eq!(shown.split(' ').filter(|word| word == id).count(), 1, "{id} once in {shown}");
        }
    }

    #[test]
    fn a_long_conversation_does_not_recurse() {
        let ids: Vec<String> = (0..100_000).map(|at| at.to_string()).collect();
        let entries: Vec<_> = (0..ids.len())
            .map(|at| (ids[at].as_str(), at.checked_sub(1).map(|at| ids[at].as_str())))
            .collect();
        let lines = lines(&entries);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(Tree::read(&lines, Leaf::Last).walk().count(), 100_000);
    }
}
