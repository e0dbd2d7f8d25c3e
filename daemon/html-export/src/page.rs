//! The page around the entries: head, facts, outline, branches, foot.

use std::collections::{HashMap, HashSet};
use std::io;

use crate::entry::{self, Around, Stamp};
use crate::totals::Totals;
use crate::tree::{Step, Tree};
use crate::{Options, Session, html, outline, policy, record};

/// Entries of the active branch that stand in one element. A browser leaves out the style and layout of parts that are not
/// in sight as a whole; with each entry alone it would still have ten thousand of them to watch.
const PART: usize = 40;

/// HTML is handed to the writer in pieces of about this many bytes.
const PIECE: usize = 64 * 1024;

pub(crate) fn write(
    session: &Session<'_>,
    options: &Options<'_>,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let tree = Tree::read(session.entries, session.leaf);
    let totals = Totals::of(&tree);
    let labels = labels(&tree);
    let header = record::fields(session.header);
    let title = title(&totals, header.str("id").as_deref());

    let mut page = String::with_capacity(2 * PIECE);
    head(&mut page, &title);
    bar(&mut page, &title);
    page.push_str("<div class=\"layout\">\n<nav id=\"outline\" aria-label=\"Outline\"><p class=\"nav-head\">Outline <a class=\"close\" href=\"#conversation\">Close</a></p>");
    outline::write(&mut page, &tree, &labels);
    page.push_str("</nav>\n<main id=\"conversation\">\n");
    facts(&mut page, &title, &header, &tree, &totals);
    let mut reading = Reading {
        tree: &tree,
        labels: &labels,
        places: vec![Place::default()],
        taken: HashSet::new(),
        in_part: None,
    };
    let mut walk = tree.walk();
    while let Some(step) = walk.next() {
        reading.step(&mut page, step, walk.ahead());
        if page.len() >= PIECE {
            out.write_all(page.as_bytes())?;
            page.clear();
        }
    }
    reading.end_part(&mut page);
    if tree.nodes.is_empty() {
        page.push_str("<p class=\"note\">This session has no entries.</p>\n");
    }
    foot(&mut page, options);
    out.write_all(page.as_bytes())
}

/// The labels in force: the last in the file wins, an empty one removes.
fn labels(tree: &Tree<'_>) -> HashMap<usize, String> {
    let mut labels = HashMap::new();
    for node in tree.nodes.iter().filter(|node| node.kind == "label") {
        let fields = record::fields(node.line);
        let Some(target) = fields.str("targetId").and_then(|id| tree.find(&id)) else { continue };
        match fields.str("label").filter(|label| !label.is_empty()) {
            Some(label) => labels.insert(target, label.into_owned()),
            None => labels.remove(&target),
        };
    }
    labels
}

fn title(totals: &Totals, id: Option<&str>) -> String {
    let named = totals.name.as_deref().or(totals.first_text.as_deref()).map(|name| html::brief(name, 90));
    named.unwrap_or_else(|| format!("Session {}", html::brief(id.unwrap_or("without an id"), 60)))
}

fn head(out: &mut String, title: &str) {
    let style = policy::style();
    out.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\"");
    html::attribute(out, "content", &policy::policy(&style));
    out.push_str(">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    html::text(out, title);
    out.push_str("</title>\n<style>");
    out.push_str(&style);
    out.push_str("</style>\n<script>");
    out.push_str(policy::SCRIPT);
    out.push_str("</script>\n</head>\n<body>\n");
}

/// The bar at the top. What needs the script is hidden without it.
fn bar(out: &mut String, title: &str) {
    out.push_str("<a class=\"skip\" href=\"#conversation\">Skip to the conversation</a>\n<header class=\"bar\"><a class=\"to-outline\" href=\"#outline\">Outline</a><p class=\"bar-title\">");
    html::isolated(out, title);
    out.push_str("</p>");
    out.push_str(concat!(
        "<div class=\"tools\" role=\"toolbar\" aria-label=\"Page\">",
        "<search><input id=\"search\" type=\"search\" placeholder=\"Search\" aria-label=\"Search the session\" autocomplete=\"off\" spellcheck=\"false\">",
        "<output id=\"found\" for=\"search\" aria-live=\"polite\"></output></search>",
        "<button type=\"button\" data-do=\"expand\" title=\"Expand all (e)\">Expand</button>",
        "<button type=\"button\" data-do=\"collapse\" title=\"Collapse all (c)\">Collapse</button>",
        "<button type=\"button\" data-do=\"theme\" title=\"Light or dark (t)\">Theme</button>",
        "<button type=\"button\" data-do=\"help\" title=\"Keys (?)\" aria-label=\"Keys\">?</button>",
        "</div></header>\n",
    ));
}

fn facts(
    out: &mut String,
    title: &str,
    header: &atomic_protocol::json::Fields<'_>,
    tree: &Tree<'_>,
    totals: &Totals,
) {
    out.push_str("<section class=\"facts\" aria-label=\"About this session\"><h1>");
    html::isolated(out, title);
    out.push_str("</h1>\n<dl>");
    let mut fact = |name: &str, value: &str| {
        if !value.is_empty() {
            out.push_str("<div><dt>");
            html::text(out, name);
            out.push_str("</dt><dd>");
            html::isolated(out, value);
            out.push_str("</dd></div>");
        }
    };
    fact("Directory", &header.str("cwd").unwrap_or_default());
    let models: Vec<&str> = totals.models.iter().map(String::as_str).collect();
    fact(if models.len() == 1 { "Model" } else { "Models" }, &html::brief(&models.join(", "), 300));
    fact("Began", &moment(&Stamp::of(header)));
    fact("Last entry", &moment(&totals.last));
    let mut messages = format!("{} from the user, {} answers", totals.user, totals.assistant);
    if totals.calls > 0 {
        messages.push_str(&format!(", {} tool calls", totals.calls));
    }
    fact("Messages", &messages);
    let elsewhere = tree.nodes.len() - tree.active_length();
    let mut entries = tree.nodes.len().to_string();
    if elsewhere > 0 {
        entries.push_str(&format!(", {elsewhere} of them on other branches"));
    }
    fact("Entries", &entries);
    let tokens = [
        (totals.input, "in"),
        (totals.output, "out"),
        (totals.cache_read, "from cache"),
        (totals.cache_write, "to cache"),
    ];
    let tokens = tokens.iter().filter(|(count, _)| *count > 0);
    let tokens: Vec<String> = tokens.map(|(count, what)| format!("{} {what}", html::count(*count))).collect();
    fact("Tokens", &tokens.join(" · "));
    if totals.cost > 0.0 {
        fact("Cost", &html::dollars(totals.cost));
    }
    fact("Session", &header.str("id").unwrap_or_default());
    fact("From session", &header.str("parentSession").unwrap_or_default());
    out.push_str("</dl></section>\n");
}

/// `2026-08-22 10:11 UTC`, or nothing.
fn moment(stamp: &Stamp) -> String {
    let day = stamp.day();
    if day.is_empty() { day } else { format!("{day} {} UTC", stamp.clock()) }
}

fn foot(out: &mut String, options: &Options<'_>) {
    out.push_str("</main>\n</div>\n<footer>");
    if let Some(program) = options.program {
        out.push_str("Exported by ");
        html::isolated(out, program);
        if let Some(time) = options.exported {
            out.push_str(" on ");
            html::text(out, time.iso().get(..10).unwrap_or_default());
        }
        out.push_str(". ");
    }
    out.push_str("Times are UTC.</footer>\n");
    out.push_str(concat!(
        "<dialog id=\"help\" aria-label=\"Keys\"><h2>Keys</h2><dl>",
        "<div><dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next, previous entry</dd></div>",
        "<div><dt><kbd>J</kbd> <kbd>K</kbd></dt><dd>next, previous message of the user</dd></div>",
        "<div><dt><kbd>g</kbd> <kbd>G</kbd></dt><dd>first, last entry</dd></div>",
        "<div><dt><kbd>o</kbd></dt><dd>open or close what the entry holds</dd></div>",
        "<div><dt><kbd>e</kbd> <kbd>c</kbd></dt><dd>expand, collapse all</dd></div>",
        "<div><dt><kbd>/</kbd></dt><dd>search; <kbd>Enter</kbd> and <kbd>Shift</kbd> <kbd>Enter</kbd> go through what was found</dd></div>",
        "<div><dt><kbd>n</kbd> <kbd>N</kbd></dt><dd>next, previous entry that was found</dd></div>",
        "<div><dt><kbd>y</kbd></dt><dd>copy the link to the entry</dd></div>",
        "<div><dt><kbd>t</kbd></dt><dd>light or dark</dd></div>",
        "<div><dt><kbd>?</kbd> <kbd>Esc</kbd></dt><dd>this list, close</dd></div>",
        "</dl><form method=\"dialog\"><button>Close</button></form></dialog>\n",
        "<p id=\"said\" role=\"status\"></p>\n</body>\n</html>\n",
    ));
}

/// Where the reading stands on one branch.
#[derive(Clone, Default)]
struct Place {
    day: String,
    model: String,
    goes_on: bool,
}

struct Reading<'r, 'a> {
    tree: &'r Tree<'a>,
    labels: &'r HashMap<usize, String>,
    /// One for the active branch and one for each open branch in it.
    places: Vec<Place>,
    /// Results that were shown with their calls.
    taken: HashSet<usize>,
    /// How many steps of the active branch stand in the open part.
    in_part: Option<usize>,
}

impl Reading<'_, '_> {
    fn step(&mut self, out: &mut String, step: Step, ahead: &[usize]) {
        self.part(out, &step);
        match step {
            Step::Entry(at) => self.entry(out, at, ahead),
            Step::Open { first, parent, size } => self.open(out, first, parent, size),
            Step::Close => {
                out.push_str("</details>\n");
                self.places.pop();
                if let Some(place) = self.places.last_mut() {
                    place.goes_on = false;
                }
            }
            Step::Later => {
                out.push_str("<h2 class=\"later\">Branches of branches</h2>\n");
                self.places.truncate(1);
            }
        }
    }

    /// Begins a part where there is none, and the next where one is full.
    fn part(&mut self, out: &mut String, next: &Step) {
        let nested = self.places.len() > 1 || *next == Step::Later;
        if !nested && self.in_part.is_some_and(|steps| steps >= PART) {
            self.end_part(out);
        }
        match &mut self.in_part {
            Some(steps) => *steps += usize::from(!nested),
            None => {
                out.push_str("<div class=\"part\">");
                self.in_part = Some(1);
            }
        }
    }

    fn end_part(&mut self, out: &mut String) {
        if self.in_part.take().is_some() {
            out.push_str("</div>\n");
        }
    }

    fn entry(&mut self, out: &mut String, at: usize, ahead: &[usize]) {
        if !self.taken.remove(&at) {
            self.entry_itself(out, at, ahead);
        }
        if self.tree.leaf() == Some(at) {
            out.push_str("<p class=\"leaf\">The session stands here</p>\n");
        }
    }

    fn entry_itself(&mut self, out: &mut String, at: usize, ahead: &[usize]) {
        let node = &self.tree.nodes[at];
        let Some(place) = self.places.last_mut() else { return };
        let day = Stamp::of(&record::fields(node.line)).day();
        if !day.is_empty() && day != place.day {
            out.push_str("<p class=\"day\">");
            html::text(out, &day);
            out.push_str("</p>\n");
            place.day = day;
        }
        let mut around = Around {
            tree: self.tree,
            label: self.labels.get(&at).map(String::as_str),
            ahead,
            model: &mut place.model,
            goes_on: &mut place.goes_on,
            taken: &mut self.taken,
        };
        entry::write(out, node, &mut around);
    }

    fn open(&mut self, out: &mut String, first: usize, parent: Option<usize>, size: usize) {
        out.push_str("<details class=\"branch\"");
        html::attribute(out, "id", &outline::branch_anchor(self.tree, first));
        out.push_str("><summary><b>Another branch</b> <span>");
        html::text(out, &outline::entries(size));
        if let Some(text) = self.first_text(first) {
            out.push_str(", “");
            html::isolated(out, &html::brief(&text, 80));
            out.push('”');
        }
        out.push_str("</span></summary>\n");
        if let Some(parent) = parent {
            out.push_str("<p class=\"note\">It left after <a href=\"#");
            html::text(out, &self.tree.nodes[parent].anchor);
            out.push_str("\">this entry</a>.</p>\n");
        }
        let place = Place { goes_on: false, ..self.places.last().cloned().unwrap_or_default() };
        self.places.push(place);
    }

    /// The first thing said on a branch, if it is said within its first few entries.
    fn first_text(&self, first: usize) -> Option<String> {
        let entries = self.tree.line(first, 4);
        entries.into_iter().find_map(|at| {
            let fields = record::fields(self.tree.nodes[at].line);
            let message = record::fields(fields.get("message")?);
            Some(record::texts(&message)).filter(|text| !text.trim().is_empty())
        })
    }
}
