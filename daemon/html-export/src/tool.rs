//! A tool call with its result: one card that opens.

use std::borrow::Cow;

use atomic_protocol::json::{self, Fields};

use crate::entry::{self, Stamp};
use crate::record::{self, Piece};
use crate::{ansi, code, diff, html, image, json_view, languages, markdown};

/// Characters of the line that stands for a closed card.
const BRIEF: usize = 120;

/// The result of a call and the entry it came in.
pub(crate) struct Answer<'a> {
    pub(crate) message: Fields<'a>,
    pub(crate) anchor: String,
    pub(crate) stamp: Stamp,
}

/// Appends the card of a call. `answer` is its result, when it stands on the same branch.
pub(crate) fn card(out: &mut String, name: &str, arguments: &str, answer: Option<&Answer<'_>>) {
    let arguments = record::fields(arguments);
    let failed = answer.is_some_and(|answer| record::is_true(&answer.message, "isError"));
    let diff = answer.and_then(|answer| difference(&answer.message));
    let open = !failed
        && name == "edit"
        && diff.as_ref().is_some_and(|diff| diff.lines().count() <= diff::OPEN_LINES);
    out.push_str(if failed { "<details class=\"tool failed\"" } else { "<details class=\"tool\"" });
    out.push_str(if open { " open>" } else { ">" });
    let state = match answer {
        None => "no result",
        Some(_) if failed => "failed",
        Some(_) => "",
    };
    summary(out, name, &in_brief(name, &arguments), state);
    out.push_str("<div class=\"body\">");
    if !(name == "edit" && diff.is_some()) {
        self::arguments(out, name, &arguments);
    }
    if let Some(answer) = answer {
        out.push_str("<section class=\"result\"");
        html::attribute(out, "id", &answer.anchor);
        out.push('>');
        entry::link(out, &answer.stamp, &answer.anchor);
        let path = arguments.str("path").or_else(|| arguments.str("file_path"));
        let language = path.filter(|_| name == "read").and_then(|path| languages::of_path(&path));
        content(out, &answer.message, language.filter(|_| !failed));
        if let Some(diff) = &diff {
            difference_block(out, diff);
        }
        out.push_str("</section>");
    }
    out.push_str("</div></details>");
}

/// Appends a result whose call is not in sight.
pub(crate) fn lone_result(out: &mut String, message: &Fields<'_>) {
    let failed = record::is_true(message, "isError");
    out.push_str(if failed { "<details class=\"tool failed\">" } else { "<details class=\"tool\">" });
    let name = message.str("toolName").unwrap_or_default();
    let texts = record::texts(message);
    let first = texts.lines().next().unwrap_or_default();
    summary(out, &name, &ansi::bare(first), if failed { "failed" } else { "result" });
    out.push_str("<div class=\"body\">");
    content(out, message, None);
    if let Some(diff) = difference(message) {
        difference_block(out, &diff);
    }
    out.push_str("</div></details>");
}

/// Appends the card of a command that the user ran.
pub(crate) fn user_command(out: &mut String, message: &Fields<'_>) {
    let command = message.str("command").unwrap_or_default();
    let output = message.str("output").unwrap_or_default();
    let exit = record::given(message, "exitCode");
    let cancelled = record::is_true(message, "cancelled");
    let failed = cancelled || exit.is_some_and(|code| code != "0");
    out.push_str(if failed {
        "<details class=\"tool failed\" open>"
    } else {
        "<details class=\"tool\" open>"
    });
    let state = match exit {
        _ if cancelled => Cow::Borrowed("cancelled"),
        Some("0") | None => Cow::Borrowed(""),
        Some(code) => Cow::Owned(format!("exit {}", html::brief(code, 12))),
    };
    summary(out, "bash", &command, &state);
    out.push_str("<div class=\"body\">");
    command_block(out, &command);
    output_block(out, &output, None);
    if record::is_true(message, "truncated") {
        out.push_str("<p class=\"note\">The output was cut");
        if let Some(path) = message.str("fullOutputPath") {
            out.push_str("; all of it was in <code>");
            html::text(out, &path);
            out.push_str("</code>");
        }
        out.push_str(".</p>");
    }
    if record::is_true(message, "excludeFromContext") {
        out.push_str("<p class=\"note\">Kept from the model.</p>");
    }
    out.push_str("</div></details>");
}

fn summary(out: &mut String, name: &str, brief: &str, state: &str) {
    out.push_str("<summary><b>");
    html::isolated(out, if name.is_empty() { "tool" } else { name });
    out.push_str("</b> <code>");
    html::isolated(out, &html::brief(brief, BRIEF));
    out.push_str("</code>");
    if !state.is_empty() {
        out.push_str(" <span class=\"state\">");
        html::text(out, state);
        out.push_str("</span>");
    }
    out.push_str("</summary>");
}

/// What a call does, in one line: its most telling argument.
fn in_brief(name: &str, arguments: &Fields<'_>) -> String {
    const TELLING: [&str; 9] =
        ["command", "path", "file_path", "pattern", "query", "url", "prompt", "title", "name"];
    if matches!(name, "grep" | "find")
        && let (Some(pattern), Some(path)) = (arguments.str("pattern"), arguments.str("path"))
    {
        return format!("{pattern} in {path}");
    }
    let mut brief = TELLING
        .iter()
        .find_map(|key| arguments.str(key))
        .or_else(|| arguments.iter().find_map(|(_, raw)| json::string(raw)))
        .map(Cow::into_owned)
        .unwrap_or_default();
    if name == "read"
        && let Some(from) = arguments.get("offset").and_then(|raw| raw.parse::<u64>().ok())
    {
        brief.push(':');
        brief.push_str(&from.to_string());
        if let Some(lines) = arguments.get("limit").and_then(|raw| raw.parse::<u64>().ok()) {
            brief.push('-');
            brief.push_str(&from.saturating_add(lines).saturating_sub(1).to_string());
        }
    }
    brief
}

fn arguments(out: &mut String, name: &str, arguments: &Fields<'_>) {
    let path = arguments.str("path").or_else(|| arguments.str("file_path"));
    let edits = arguments.get("edits").map(record::elements).unwrap_or_default();
    let mut small = Vec::new();
    for (key, raw) in arguments.iter() {
        match (name, key, json::string(raw)) {
            ("bash", "command", Some(command)) => command_block(out, &command),
            ("write", "content", Some(text)) => {
                out.push_str("<pre>");
                markdown::leading_line_feed(out, &text);
                code::highlighted(out, &text, path.as_deref().and_then(languages::of_path));
                out.push_str("</pre>");
            }
            ("edit", "edits", None) if !edits.is_empty() => {
                for edit in &edits {
                    let edit = record::fields(edit);
                    replacement(out, edit.str("oldText"), edit.str("newText"));
                }
            }
            // What the card's line says already.
            ("read" | "write" | "edit", "path" | "file_path", Some(path)) if path.chars().count() < BRIEF => {
            }
            (_, _, Some(text)) if text.contains('\n') || text.len() > BRIEF => {
                out.push_str("<p class=\"key\">");
                html::isolated(out, key);
                out.push_str("</p><pre>");
                markdown::leading_line_feed(out, &text);
                html::text(out, &text);
                out.push_str("</pre>");
            }
            (_, _, Some(text)) => small.push((key, text)),
            (_, _, None) if raw.starts_with(['{', '[']) && raw.len() > 40 => {
                out.push_str("<p class=\"key\">");
                html::isolated(out, key);
                out.push_str("</p>");
                json_view::block(out, raw);
            }
            (_, _, None) => small.push((key, Cow::Borrowed(raw))),
        }
    }
    if !small.is_empty() {
        out.push_str("<pre class=\"arguments\">");
        for (at, (key, value)) in small.into_iter().enumerate() {
            if at > 0 {
                out.push('\n');
            }
            html::isolated(out, key);
            out.push_str(": ");
            html::isolated(out, &value);
        }
        out.push_str("</pre>");
    }
}

fn command_block(out: &mut String, command: &str) {
    out.push_str("<pre class=\"command\">");
    markdown::leading_line_feed(out, command);
    code::highlighted(out, command, languages::find("bash"));
    out.push_str("</pre>");
}

fn replacement(out: &mut String, old: Option<Cow<'_, str>>, new: Option<Cow<'_, str>>) {
    out.push_str("<pre class=\"diff\">");
    if let Some(old) = old {
        diff::block(out, "del", '-', &old);
    }
    if let Some(new) = new {
        diff::block(out, "add", '+', &new);
    }
    out.push_str("</pre>");
}

/// The difference that the edit tool reports.
fn difference<'a>(message: &Fields<'a>) -> Option<Cow<'a, str>> {
    let details = record::fields(record::given(message, "details")?);
    details.str("diff").or_else(|| details.str("patch")).filter(|diff| !diff.is_empty())
}

fn difference_block(out: &mut String, text: &str) {
    out.push_str("<pre class=\"diff\">");
    markdown::leading_line_feed(out, text);
    diff::coloured(out, text);
    out.push_str("</pre>");
}

fn content(out: &mut String, message: &Fields<'_>, language: Option<&'static languages::Language>) {
    for piece in record::pieces(message) {
        match piece {
            Piece::Text(text) => output_block(out, &text, language),
            Piece::Image { data, mime } => image::inline(out, &data, &mime),
            Piece::Other(raw) => json_view::block(out, raw),
            Piece::Thinking { text, .. } => output_block(out, &text, None),
            Piece::ToolCall { name, arguments, .. } => card(out, &name, arguments, None),
        }
    }
}

fn output_block(out: &mut String, text: &str, language: Option<&'static languages::Language>) {
    if text.trim().is_empty() {
        return;
    }
    out.push_str("<pre class=\"output\">");
    markdown::leading_line_feed(out, text);
    if language.is_some() && !text.contains('\x1b') {
        code::highlighted(out, text, language);
    } else {
        ansi::coloured(out, text);
    }
    out.push_str("</pre>");
}
