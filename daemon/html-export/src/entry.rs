//! One entry as HTML, whatever its type.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use atomic_protocol::json::Fields;
use atomic_protocol::time::Millis;

use crate::markdown::{self, Breaks};
use crate::record::{self, Piece};
use crate::tool::{self, Answer};
use crate::tree::{Node, Tree};
use crate::{html, image, json_view};

/// Thinking of at most this many bytes stands open: two lines have nothing to fold, and `<details>` is by far the dearest
/// element a browser makes (some 40 µs each; measured with Chromium 148).
const OPEN_THINKING: usize = 240;

/// A point in time as the page shows it, in UTC. Empty when the file has none that can be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stamp(Option<Millis>);

impl Stamp {
    pub(crate) fn of(fields: &Fields<'_>) -> Stamp {
        Stamp(record::time(fields))
    }

    /// `2026-08-22`, or nothing.
    pub(crate) fn day(&self) -> String {
        self.part(0, 10)
    }

    /// `10:11`, or nothing.
    pub(crate) fn clock(&self) -> String {
        self.part(11, 16)
    }

    fn part(&self, from: usize, to: usize) -> String {
        self.0.and_then(|time| time.iso().get(from..to).map(str::to_owned)).unwrap_or_default()
    }

    /// `2026-08-22 10:11:12 UTC`, or nothing.
    fn exactly(&self) -> String {
        match self.0 {
            Some(_) => format!("{} {} UTC", self.day(), self.part(11, 19)),
            None => String::new(),
        }
    }
}

/// Appends the link to an entry, which is its time.
pub(crate) fn link(out: &mut String, stamp: &Stamp, anchor: &str) {
    out.push_str("<a class=\"anchor\" href=\"#");
    out.push_str(anchor);
    out.push('"');
    html::attribute(out, "title", &stamp.exactly());
    out.push('>');
    let clock = stamp.clock();
    html::text(out, if clock.is_empty() { "link" } else { &clock });
    out.push_str("</a>");
}

/// What has to be known of the entries around one.
pub(crate) struct Around<'r, 'a> {
    pub(crate) tree: &'r Tree<'a>,
    /// The label in force on this entry.
    pub(crate) label: Option<&'r str>,
    /// The entries that follow on the same branch.
    pub(crate) ahead: &'r [usize],
    /// The model that answered before, on this branch.
    pub(crate) model: &'r mut String,
    /// The entry before was an answer too, so this one goes on with it.
    pub(crate) goes_on: &'r mut bool,
    /// Entries whose content was shown inside this one.
    pub(crate) taken: &'r mut HashSet<usize>,
}

/// Appends one entry.
pub(crate) fn write(out: &mut String, node: &Node<'_>, around: &mut Around<'_, '_>) {
    let fields = record::fields(node.line);
    let stamp = Stamp::of(&fields);
    let goes_on = std::mem::replace(around.goes_on, false);
    let view = View { out, anchor: &node.anchor, stamp, label: around.label };
    match &*node.kind {
        "message" => {
            let raw = fields.get("message").unwrap_or("null");
            let message = record::fields(raw);
            match message.str("role").as_deref() {
                Some("user") => view.user(&message),
                Some("assistant") => {
                    *around.goes_on = true;
                    view.assistant(&message, around, goes_on);
                }
                Some("toolResult") => {
                    *around.goes_on = goes_on;
                    view.lone_result(&message);
                }
                Some("bashExecution") => view.user_command(&message),
                Some("custom" | "hookMessage") => view.custom_message(&message),
                Some("branchSummary" | "compactionSummary") => {
                    view.summary("Summary of a branch", &message, true)
                }
                role => {
                    let name = format!(
                        "Message of role {}",
                        role.map_or("none".into(), |role| html::brief(role, 40))
                    );
                    view.raw(&name, "", node.line);
                }
            }
        }
        "custom_message" => view.custom_message(&fields),
        "compaction" => view.compaction(&fields, around.tree),
        "branch_summary" => view.summary("Summary of a branch", &fields, true),
        "session_summary" => view.summary("Summary of the session", &fields, false),
        "model_change" => {
            *around.goes_on = goes_on;
            let name = |key| fields.str(key).unwrap_or_default();
            view.row("Model", &format!("{}/{}", name("provider"), name("modelId")));
        }
        "thinking_level_change" => {
            *around.goes_on = goes_on;
            view.row("Thinking level", &fields.str("thinkingLevel").unwrap_or_default());
        }
        "session_info" => match fields.str("name").filter(|name| !name.trim().is_empty()) {
            Some(name) => view.row("Session named", &name),
            None => view.row("Session name", "cleared"),
        },
        "label" => view.label(&fields, around.tree),
        "custom" => {
            *around.goes_on = goes_on;
            let kind = fields.str("customType").unwrap_or_default();
            view.raw("Data of an extension", &kind, fields.get("data").unwrap_or(node.line));
        }
        "context_compaction" => view.raw("Context compaction", "", node.line),
        "" => view.raw("Record that is no entry", "", node.line),
        kind => view.raw("Entry of type", kind, node.line),
    }
}

/// One entry being written.
struct View<'o, 'n> {
    out: &'o mut String,
    anchor: &'n str,
    stamp: Stamp,
    label: Option<&'n str>,
}

impl View<'_, '_> {
    /// Opens the entry's element and writes its head.
    fn open(&mut self, class: &str, heading: &str, beside: &str) {
        self.out.push_str("<article class=\"entry ");
        self.out.push_str(class);
        self.out.push('"');
        html::attribute(self.out, "id", self.anchor);
        self.out.push_str("><header class=\"head\"><h2>");
        html::text(self.out, heading);
        self.out.push_str("</h2>");
        if !beside.is_empty() {
            self.out.push_str("<span class=\"beside\">");
            html::isolated(self.out, beside);
            self.out.push_str("</span>");
        }
        self.end_of_head();
        self.out.push_str("</header>");
    }

    /// Opens the element of an entry that goes on with the one before, so it needs no head.
    fn open_on(&mut self) {
        self.out.push_str("<article class=\"entry assistant goes-on\"");
        html::attribute(self.out, "id", self.anchor);
        self.out.push('>');
        self.end_of_head();
    }

    fn end_of_head(&mut self) {
        if let Some(label) = self.label {
            self.out.push_str("<span class=\"label\">");
            html::isolated(self.out, &html::brief(label, 60));
            self.out.push_str("</span>");
        }
        link(self.out, &self.stamp, self.anchor);
    }

    fn close(self) {
        self.out.push_str("</article>\n");
    }

    /// A line that says one thing.
    fn row(mut self, what: &str, value: &str) {
        self.open_row(what);
        html::isolated(self.out, &html::brief(value, 200));
        self.close_row();
    }

    fn open_row(&mut self, what: &str) {
        self.out.push_str("<div class=\"entry row\"");
        html::attribute(self.out, "id", self.anchor);
        self.out.push_str("><span class=\"what\">");
        html::text(self.out, what);
        self.out.push_str("</span> <span class=\"value\">");
    }

    fn close_row(&mut self) {
        self.out.push_str("</span>");
        self.end_of_head();
        self.out.push_str("</div>\n");
    }

    fn label(mut self, fields: &Fields<'_>, tree: &Tree<'_>) {
        let label = fields.str("label").filter(|label| !label.is_empty());
        self.open_row(if label.is_some() { "Label" } else { "Label removed" });
        html::isolated(self.out, &html::brief(label.as_deref().unwrap_or_default(), 200));
        link_to(self.out, fields.str("targetId"), tree, " on an ", "entry");
        self.close_row();
    }

    /// A closed row with JSON in it.
    fn raw(mut self, what: &str, name: &str, raw: &str) {
        self.open_folded("row", false, what, &html::brief(name, 80));
        json_view::block(self.out, raw);
        self.out.push_str("</details>\n");
    }

    fn open_folded(&mut self, class: &str, open: bool, what: &str, value: &str) {
        self.out.push_str("<details class=\"entry ");
        self.out.push_str(class);
        self.out.push('"');
        html::attribute(self.out, "id", self.anchor);
        self.out.push_str(if open {
            " open><summary><span class=\"what\">"
        } else {
            "><summary><span class=\"what\">"
        });
        html::text(self.out, what);
        self.out.push_str("</span> <span class=\"value\">");
        html::isolated(self.out, value);
        self.out.push_str("</span>");
        self.end_of_head();
        self.out.push_str("</summary>");
    }

    fn user(mut self, message: &Fields<'_>) {
        self.open("user", "User", "");
        self.pieces(record::pieces(message), Breaks::Hard);
        self.close();
    }

    fn user_command(mut self, message: &Fields<'_>) {
        self.open("user", "User ran a command", "");
        tool::user_command(self.out, message);
        self.close();
    }

    fn lone_result(mut self, message: &Fields<'_>) {
        self.open_on();
        tool::lone_result(self.out, message);
        self.close();
    }

    fn custom_message(mut self, message: &Fields<'_>) {
        let kind = message.str("customType").unwrap_or_default();
        let pieces = record::pieces(message);
        if record::is_true(message, "display") {
            self.open("custom", "Extension", &html::brief(&kind, 60));
            self.pieces(pieces, Breaks::Hard);
            self.close();
        } else {
            self.open_folded("row", false, "Message of an extension", &html::brief(&kind, 80));
            self.pieces(pieces, Breaks::Hard);
            self.out.push_str("</details>\n");
        }
    }

    fn summary(mut self, what: &str, fields: &Fields<'_>, open: bool) {
        self.open_folded("boundary", open, what, "");
        let text = fields.str("summary").unwrap_or_default();
        self.text(&text, Breaks::Soft);
        self.out.push_str("</details>\n");
    }

    fn compaction(mut self, fields: &Fields<'_>, tree: &Tree<'_>) {
        let before = fields.get("tokensBefore").and_then(|raw| raw.parse::<f64>().ok());
        let value = before.map(|tokens| format!("{} tokens before", html::count(tokens.max(0.0) as u64)));
        self.open_folded("boundary", false, "Compaction", &value.unwrap_or_default());
        link_to(self.out, fields.str("firstKeptEntryId"), tree, "<p class=\"note\">Kept from ", "this entry");
        let text = fields.str("summary").unwrap_or_default();
        let details = record::fields(record::given(fields, "details").unwrap_or("{}"));
        if details.str("strategy").as_deref() == Some("verbatim-lines") {
            // Lines of a transcript, not Markdown.
            self.out.push_str("<pre class=\"output\">");
            markdown::leading_line_feed(self.out, &text);
            html::text(self.out, &text);
            self.out.push_str("</pre>");
        } else {
            self.text(&text, Breaks::Soft);
        }
        self.out.push_str("</details>\n");
    }

    fn assistant(mut self, message: &Fields<'_>, around: &mut Around<'_, '_>, goes_on: bool) {
        let model = message.str("model").unwrap_or_default();
        let beside = if *around.model == model { "" } else { &*model };
        if goes_on && beside.is_empty() {
            self.open_on();
        } else {
            self.open("assistant", "Assistant", &html::brief(beside, 80));
        }
        around.model.replace_range(.., &model);
        let pieces = record::pieces(message);
        let calls: HashSet<&str> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::ToolCall { id, .. } => Some(&**id),
                _ => None,
            })
            .collect();
        let mut answers = answers(&calls, around);
        for piece in pieces {
            match piece {
                Piece::ToolCall { id, name, arguments } => {
                    let answer = answers.remove(&*id);
                    around.taken.extend(answer.iter().map(|(at, _)| *at));
                    tool::card(self.out, &name, arguments, answer.as_ref().map(|(_, answer)| answer));
                }
                other => self.piece(other, Breaks::Soft),
            }
        }
        let error = message.str("errorMessage").filter(|error| !error.is_empty());
        let ended = match message.str("stopReason").as_deref() {
            Some("error") => Some(("failed", "The request failed")),
            Some("aborted") => Some(("note", "Aborted")),
            Some("length") => Some(("note", "The output limit was hit")),
            _ => error.as_ref().map(|_| ("note", "Error")),
        };
        if let Some((class, what)) = ended {
            self.out.push_str("<p class=\"end ");
            self.out.push_str(class);
            self.out.push_str("\">");
            self.out.push_str(what);
            if let Some(error) = error {
                self.out.push_str(": ");
                html::isolated(self.out, &error);
            }
            self.out.push_str("</p>");
        }
        if let Some(usage) = record::usage(message).filter(|usage| usage.output > 0 || usage.input > 0) {
            let sent = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
            self.out.push_str("<p class=\"usage\">");
            html::text(self.out, &format!("{} in · {} out", html::count(sent), html::count(usage.output)));
            if usage.cost.total > 0.0 {
                html::text(self.out, &format!(" · {}", html::dollars(usage.cost.total)));
            }
            self.out.push_str("</p>");
        }
        self.close();
    }

    fn pieces(&mut self, pieces: Vec<Piece<'_>>, breaks: Breaks) {
        for piece in pieces {
            self.piece(piece, breaks);
        }
    }

    fn piece(&mut self, piece: Piece<'_>, breaks: Breaks) {
        match piece {
            Piece::Text(text) => self.text(&text, breaks),
            Piece::Thinking { text, redacted } => self.thinking(&text, redacted),
            Piece::Image { data, mime } => {
                self.out.push_str("<p class=\"image\">");
                image::inline(self.out, &data, &mime);
                self.out.push_str("</p>");
            }
            Piece::ToolCall { name, arguments, .. } => tool::card(self.out, &name, arguments, None),
            Piece::Other(raw) => {
                self.out.push_str("<details class=\"tool\"><summary><b>Content of another type</b></summary><div class=\"body\">");
                json_view::block(self.out, raw);
                self.out.push_str("</div></details>");
            }
        }
    }

    fn text(&mut self, text: &str, breaks: Breaks) {
        if text.trim().is_empty() {
            return;
        }
        self.rendered(text, breaks);
    }

    fn thinking(&mut self, text: &str, redacted: bool) {
        if redacted {
            self.out.push_str("<p class=\"note\">Thinking that the provider withheld.</p>");
            return;
        }
        if text.trim().is_empty() {
            return;
        }
        if text.len() <= OPEN_THINKING {
            self.out.push_str("<div class=\"thinking\">");
            self.rendered(text, Breaks::Soft);
            self.out.push_str("</div>");
            return;
        }
        self.out.push_str("<details class=\"thinking\"><summary>Thinking <span>");
        html::isolated(self.out, &html::brief(&text.replace("**", ""), 100));
        self.out.push_str("</span></summary>");
        self.rendered(text, Breaks::Soft);
        self.out.push_str("</details>");
    }

    fn rendered(&mut self, text: &str, breaks: Breaks) {
        // Where nothing can turn, looking for a direction is left to nobody: browsers do it element by element.
        let turns = html::may_turn(text);
        self.out.push_str(if turns { "<div class=\"text\" dir=\"auto\">" } else { "<div class=\"text\">" });
        markdown::render(self.out, text, breaks);
        self.out.push_str("</div>");
    }
}

/// Appends `before` and a link to the entry, if the session has it.
fn link_to(
    out: &mut String,
    id: Option<Cow<'_, str>>,
    tree: &Tree<'_>,
    before: &'static str,
    name: &'static str,
) {
    let Some(at) = id.and_then(|id| tree.find(&id)) else { return };
    out.push_str(before);
    out.push_str("<a href=\"#");
    html::text(out, &tree.nodes[at].anchor);
    out.push_str("\">");
    out.push_str(name);
    out.push_str("</a>");
    if before.starts_with("<p") {
        out.push_str(".</p>");
    }
}

/// The results of these calls, by the call's id: the first for each among what follows until the next answer or question.
fn answers<'a>(calls: &HashSet<&str>, around: &Around<'_, 'a>) -> HashMap<String, (usize, Answer<'a>)> {
    let mut found = HashMap::new();
    if calls.is_empty() {
        return found;
    }
    for at in around.ahead.iter().copied() {
        let node = &around.tree.nodes[at];
        if node.kind != "message" {
            continue;
        }
        let fields = record::fields(node.line);
        let message = record::fields(fields.get("message").unwrap_or("null"));
        match message.str("role").as_deref() {
            Some("assistant" | "user") => break,
            Some("toolResult") => {}
            _ => continue,
        }
        if let Some(id) = message.str("toolCallId").filter(|id| calls.contains(&**id)) {
            let id = id.into_owned();
            let answer = Answer { message, anchor: node.anchor.clone(), stamp: Stamp::of(&fields) };
            found.entry(id).or_insert((at, answer));
        }
    }
    found
}
