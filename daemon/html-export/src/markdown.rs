//! Markdown into HTML, where the Markdown was written by a model or a user and is data.
//!
//! Raw HTML is shown as text. A link is a link only to `http:`, `https:` or `mailto:`; other targets are shown beside their
//! text. An image from elsewhere is never loaded: it is a link. Nothing gets an `id`, so nothing can stand in the way of the
//! page's own anchors.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::{code, diff, html, image, languages};

/// Elements inside each other. Deeper ones lose their element and keep their text: browsers flatten documents that are
/// hundreds of elements deep.
const NESTED: usize = 40;

/// Markdown's own headings begin below the page's (`h1`) and the entry's (`h2`).
const HEADING_SHIFT: usize = 2;

/// How single line feeds are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// As blanks, as Markdown has it.
    Soft,
    /// As typed: people break lines where they want them.
    Hard,
}

/// Appends `text` rendered.
pub(crate) fn render(out: &mut String, text: &str, breaks: Breaks) {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut renderer = Renderer {
        out,
        breaks,
        open: Vec::new(),
        alignments: Vec::new(),
        table: false,
        cell: 0,
        head: false,
        links: 0,
        code: None,
    };
    for event in Parser::new_ext(text, options) {
        renderer.event(event);
    }
    while let Some(close) = renderer.open.pop() {
        renderer.out.push_str(&close);
    }
}

/// The target may be followed: it names one of three schemes literally, so that no browser reads another into it.
fn may_be_followed(url: &str) -> bool {
    ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

struct Renderer<'a> {
    out: &'a mut String,
    breaks: Breaks,
    /// What ends each open element; empty for one that was too deep or is no element.
    open: Vec<String>,
    alignments: Vec<Alignment>,
    /// The open table is an element, so its parts are, however deep they stand.
    table: bool,
    cell: usize,
    head: bool,
    /// Open links and images; the ones inside another are no elements of their own.
    links: usize,
    /// The open code block: its language's name and text so far.
    code: Option<(String, String)>,
}

impl Renderer<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(end) => self.end(end),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => html::text(self.out, &text),
            },
            Event::Html(text) | Event::InlineHtml(text) => html::text(self.out, &text),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.out.push_str("<code>");
                html::text(self.out, &text);
                self.out.push_str("</code>");
            }
            Event::SoftBreak if self.breaks == Breaks::Soft => self.out.push('\n'),
            Event::SoftBreak | Event::HardBreak => self.out.push_str("<br>\n"),
            Event::Rule => self.out.push_str("<hr>"),
            Event::TaskListMarker(done) => self.out.push_str(if done { "☑ " } else { "☐ " }),
            Event::FootnoteReference(name) => html::text(self.out, &name),
        }
    }

    fn element(&mut self, open: &str, close: &str) {
        if self.open.len() >= NESTED && !self.table {
            return self.open.push(String::new());
        }
        self.out.push_str(open);
        self.open.push(close.to_owned());
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.element("<p>", "</p>"),
            Tag::Heading { level, .. } => {
                let level = (rank(level) + HEADING_SHIFT).min(6);
                self.element(&format!("<h{level}>"), &format!("</h{level}>"));
            }
            Tag::BlockQuote(_) => self.element("<blockquote>", "</blockquote>"),
            Tag::CodeBlock(kind) => {
                let language = match &kind {
                    // What follows the first word is for other programs.
                    CodeBlockKind::Fenced(info) => {
                        info.split([' ', ',', '{', '\t']).next().unwrap_or_default()
                    }
                    CodeBlockKind::Indented => "",
                };
                self.code = Some((language.to_owned(), String::new()));
                self.open.push(String::new());
            }
            Tag::HtmlBlock => self.element("<p class=\"html\">", "</p>"),
            Tag::List(None) => self.element("<ul>", "</ul>"),
            Tag::List(Some(1)) => self.element("<ol>", "</ol>"),
            Tag::List(Some(first)) => self.element(&format!("<ol start=\"{first}\">"), "</ol>"),
            Tag::Item => self.element("<li>", "</li>"),
            Tag::Table(alignments) => {
                self.alignments = alignments;
                self.table = self.open.len() < NESTED;
                self.element("<div class=\"table\"><table>", "</tbody></table></div>");
            }
            // Without their table, its parts are text.
            Tag::TableHead | Tag::TableRow | Tag::TableCell if !self.table => {
                self.out.push(' ');
                self.open.push(String::new());
            }
            Tag::TableHead => {
                self.head = true;
                self.cell = 0;
                self.element("<thead><tr>", "</tr></thead><tbody>");
            }
            Tag::TableRow => {
                self.cell = 0;
                self.element("<tr>", "</tr>");
            }
            Tag::TableCell => {
                let class = match self.alignments.get(self.cell) {
                    Some(Alignment::Center) => " class=\"center\"",
                    Some(Alignment::Right) => " class=\"right\"",
                    _ => "",
                };
                self.cell += 1;
                if self.head {
                    self.element(&format!("<th{class}>"), "</th>");
                } else {
                    self.element(&format!("<td{class}>"), "</td>");
                }
            }
            Tag::Emphasis => self.element("<em>", "</em>"),
            Tag::Strong => self.element("<strong>", "</strong>"),
            Tag::Strikethrough => self.element("<del>", "</del>"),
            Tag::Link { dest_url, .. } => self.link(&dest_url, ""),
            Tag::Image { dest_url, .. } => match image::data_url(&dest_url) {
                Some((mime, data)) => {
                    self.links += 1;
                    image::inline(self.out, data, mime);
                    self.open.push(String::new());
                }
                None => self.link(&dest_url, "Image: "),
            },
            _ => self.open.push(String::new()),
        }
    }

    fn link(&mut self, url: &str, before: &'static str) {
        self.links += 1;
        if may_be_followed(url) && self.links == 1 {
            let mut open = String::from("<a rel=\"noopener noreferrer\"");
            html::attribute(&mut open, "href", url);
            open.push('>');
            open.push_str(before);
            self.element(&open, "</a>");
        } else {
            let mut close = String::from("</span>");
            if !url.is_empty() {
                close.push_str(" (<code>");
                html::text(&mut close, &html::brief(url, 200));
                close.push_str("</code>)");
            }
            self.element(&format!("<span>{before}"), &close);
        }
    }

    fn end(&mut self, end: TagEnd) {
        if end == TagEnd::CodeBlock
            && let Some((language, text)) = self.code.take()
        {
            block(self.out, &text, &language);
        }
        match end {
            TagEnd::TableHead => self.head = false,
            TagEnd::Table => self.table = false,
            TagEnd::Link | TagEnd::Image => self.links = self.links.saturating_sub(1),
            _ => {}
        }
        if let Some(close) = self.open.pop() {
            self.out.push_str(&close);
        }
    }
}

/// Appends a block of code in the language that a fence names.
pub(crate) fn block(out: &mut String, text: &str, language: &str) {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let difference = language.eq_ignore_ascii_case("diff") || language.eq_ignore_ascii_case("patch");
    out.push_str("<pre class=\"");
    out.push_str(if difference { "code diff" } else { "code" });
    out.push('"');
    if !language.is_empty() {
        html::attribute(out, "data-language", &html::brief(language, 24));
    }
    out.push('>');
    leading_line_feed(out, text);
    if difference {
        diff::coloured(out, text);
    } else {
        code::highlighted(out, text, languages::find(language));
    }
    out.push_str("</pre>");
}

/// A parser of HTML drops the first line feed in `<pre>`.
pub(crate) fn leading_line_feed(out: &mut String, text: &str) {
    if text.starts_with(['\n', '\r']) {
        out.push('\n');
    }
}

fn rank(level: HeadingLevel) -> usize {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut out = String::new();
        render(&mut out, text, Breaks::Soft);
        out
    }

    #[test]
    fn the_usual() {
        for (text, expected) in [
            ("# A *b* `c<`", "<h3>A <em>b</em> <code>c&lt;</code></h3>"),
            ("###### f", "<h6>f</h6>"),
            ("3. a\n4. b", "<ol start=\"3\"><li>a</li><li>b</li></ol>"),
            ("- [x] a", "<ul><li>☑ a</li></ul>"),
            ("a\nb  \nc", "<p>a\nb<br>\nc</p>"),
            (
                "|a|b|\n|-|-:|\n|1|2|",
                "<div class=\"table\"><table><thead><tr><th>a</th><th class=\"right\">b</th></tr></thead><tbody><tr><td>1</td><td class=\"right\">2</td></tr></tbody></table></div>",
            ),
            (
                "```rust title\nfn\n```",
                "<pre class=\"code\" data-language=\"rust\"><span class=\"hk\">fn</span></pre>",
            ),
            (
                "[t](https://e.org/?a=1&b \"x\")",
                "<p><a rel=\"noopener noreferrer\" href=\"https://e.org/?a=1&amp;b\">t</a></p>",
            ),
            (
                "<https://e.org>",
                "<p><a rel=\"noopener noreferrer\" href=\"https://e.org\">https://e.org</a></p>",
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_shown_as_written() {
        for (text, expected) in [
            ("<b onclick=x>y</b>", "<p>&lt;b onclick=x&gt;y&lt;/b&gt;</p>"),
            ("<script>x</script>", "<p class=\"html\">&lt;script&gt;x&lt;/script&gt;</p>"),
            ("[x](javascript:alert(1))", "<p><span>x</span> (<code>javascript:alert(1)</code>)</p>"),
            ("[x](<java\tscript:y>)", "<p><span>x</span> (<code>java script:y</code>)</p>"),
            ("[x](src/main.rs)", "<p><span>x</span> (<code>src/main.rs</code>)</p>"),
            (
                "![alt](https://e.org/x.png)",
                "<p><a rel=\"noopener noreferrer\" href=\"https://e.org/x.png\">Image: alt</a></p>",
            ),
            (
                "![a](data:text/html;base64,AAAA)",
                "<p><span class=\"note\">Image of type text/html, not shown.</span>a</p>",
            ),
            (
                "[![a](https://e.org/x.png)](https://e.org)",
                "<p><a rel=\"noopener noreferrer\" href=\"https://e.org\"><span>Image: a</span> (<code>https://e.org/x.png</code>)</a></p>",
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn depth_is_bounded_and_text_stays() {
        let deep = format!("{}x", "> ".repeat(500));
        let out = shown(&deep);
        assert!(out.contains('x') && out.matches("<blockquote>").count() == NESTED);
        assert_eq!(out.matches("<blockquote>").count(), out.matches("</blockquote>").count());
    }
}
