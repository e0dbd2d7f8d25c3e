//! No session can run script, load anything or leave its place on the page: seen through a parser that browsers agree with.
#![forbid(unsafe_code)]

mod sessions;

use std::collections::HashSet;

use atomic_html_export::{Leaf, Options, Session, write_page};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use scraper::{Html, Node, Selector};
use sessions::PAYLOADS;
use sha2::{Digest as _, Sha256};

/// The elements of a page; anything else came out of a session.
const ELEMENTS: &[&str] = &[
    "html",
    "head",
    "meta",
    "title",
    "style",
    "script",
    "body",
    "a",
    "header",
    "p",
    "div",
    "search",
    "input",
    "output",
    "button",
    "nav",
    "ol",
    "ul",
    "li",
    "main",
    "section",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "dl",
    "dt",
    "dd",
    "article",
    "details",
    "summary",
    "span",
    "b",
    "bdi",
    "code",
    "pre",
    "em",
    "strong",
    "del",
    "blockquote",
    "hr",
    "br",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "img",
    "footer",
    "dialog",
    "form",
    "kbd",
];

const ATTRIBUTES: &[&str] = &[
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "class",
    "href",
    "id",
    "role",
    "aria-label",
    "type",
    "placeholder",
    "autocomplete",
    "spellcheck",
    "for",
    "aria-live",
    "data-do",
    "title",
    "dir",
    "data-language",
    "open",
    "rel",
    "loading",
    "decoding",
    "alt",
    "src",
    "start",
    "method",
];

/// Ids that are the page's own.
const IDS: [&str; 6] = ["search", "found", "outline", "conversation", "help", "said"];

fn page(lines: &[String], leaf: Leaf<'_>) -> String {
    let entries: Vec<&str> = lines[1..].iter().map(String::as_str).collect();
    let session = Session { header: &lines[0], entries: &entries, leaf };
    let mut out = Vec::new();
    write_page(&session, &Options { program: Some("<script>alert(0)</script>"), exported: None }, &mut out)
        .expect("writing into memory cannot fail");
    String::from_utf8(out).expect("a page is UTF-8")
}

/// The page as a parser of HTML sees it. Panics at the first thing on it that is not the page's.
fn inspect(page: &str, what: &str) -> Html {
    let html = Html::parse_document(page);
    if let Some(fault) = fault(&html) {
        panic!("{what}: {fault}");
    }
    html
}

/// The first thing that came out of a session as more than text.
fn fault(html: &Html) -> Option<String> {
    if let Some(error) = html.errors.first() {
        return Some(format!("parse error: {error}"));
    }
    let mut ids = HashSet::new();
    let mut counts = (0, 0);
    for node in html.tree.values() {
        let element = match node {
            Node::Element(element) => element,
            Node::Text(text) => {
                let control =
                    text.chars().find(|letter| letter.is_control() && !matches!(letter, '\n' | '\t'));
                match control {
                    Some(control) => return Some(format!("control character {control:?}")),
                    None => continue,
                }
            }
            Node::Comment(_) | Node::ProcessingInstruction(_) => return Some(format!("{node:?}")),
            _ => continue,
        };
        let name = element.name();
        if !ELEMENTS.contains(&name) {
            return Some(format!("element {name}"));
        }
        counts.0 += usize::from(name == "script");
        counts.1 += usize::from(name == "style");
        for (attribute, value) in element.attrs() {
            let allowed = match attribute {
                "href" => ["#", "http://", "https://", "mailto:"]
                    .iter()
                    .any(|start| value.to_ascii_lowercase().starts_with(start)),
                "src" => value
                    .strip_prefix("data:image/png;base64,")
                    .is_some_and(|data| STANDARD.decode(data).is_ok()),
                "id" => {
                    let own =
                        IDS.contains(&value) || value.starts_with("entry-") || value.starts_with("branch-");
                    let plain = value.bytes().all(|byte| {
                        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'-')
                    });
                    own && plain && ids.insert(value.to_owned())
                }
                "class" => {
                    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b' '))
                }
                "name" => name == "meta",
                _ => ATTRIBUTES.contains(&attribute),
            };
            if !allowed {
                return Some(format!("{name} with {attribute}={value:?}"));
            }
        }
    }
    (counts != (1, 1)).then(|| format!("scripts and styles: {counts:?}"))
}

#[test]
fn a_fault_would_be_seen() {
    let page = page(&sessions::demo(), Leaf::Last);
    assert_eq!(fault(&Html::parse_document(&page)), None);
    for bad in [
        "<script>1</script>",
        "<p onclick=\"x\">x</p>",
        "<p style=\"x\">x</p>",
        "<img src=\"https://e.org\">",
        "<a href=\"javascript:x\">x</a>",
        "<a href=\" https://e.org\">x</a>",
        "<p id=\"search\">x</p>",
        "<p id=\"location\">x</p>",
        "<svg></svg>",
        "<!-- x -->",
        "</p>",
        "<p title=\"x\" title=\"y\">x</p>",
        "\u{1}",
    ] {
        let broken = page.replacen("<footer>", &format!("{bad}<footer>"), 1);
        assert!(fault(&Html::parse_document(&broken)).is_some(), "{bad:?}");
    }
}

#[test]
fn every_attempt_in_every_field_stays_text() {
    for payload in PAYLOADS {
        let lines = sessions::hostile(&[payload]);
        let html = inspect(&page(&lines, Leaf::Last), payload);
        // The attempt is on the page, so the corpus reached it.
        let text: String = html.root_element().text().collect();
        let word: String = payload.chars().filter(char::is_ascii_alphanumeric).take(4).collect();
        let shown: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
        assert!(shown.matches(&word).count() > 100, "{payload}: shown {}", shown.matches(&word).count());
    }
}

#[test]
fn all_attempts_on_one_page_wherever_the_leaf_is() {
    let lines = sessions::hostile(PAYLOADS);
    for leaf in [Leaf::Last, Leaf::BeforeFirst, Leaf::Entry("00000042"), Leaf::Entry("<script>")] {
        inspect(&page(&lines, leaf), "all");
    }
}

#[test]
fn torn_and_twisted_lines_stay_text() {
    let demo = sessions::demo();
    // A fixed sequence of numbers: a failure can be repeated.
    let mut state = 42u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..40 {
        let mut lines = demo.clone();
        for _ in 0..12 {
            let at = next(lines.len());
            let cuts: Vec<usize> = lines[at].char_indices().map(|(cut, _)| cut).collect();
            if cuts.is_empty() {
                continue;
            }
            let (from, to) = (cuts[next(cuts.len())], cuts[next(cuts.len())]);
            let payload = PAYLOADS[next(PAYLOADS.len())];
            match next(4) {
                0 => lines[at].truncate(from),
                1 => lines[at].insert_str(from, payload),
                2 => lines[at].replace_range(from.min(to)..from.max(to), ""),
                _ => {
                    let quoted = serde_json::Value::from(payload).to_string();
                    lines[at].insert_str(from, &quoted[1..quoted.len() - 1]);
                }
            }
        }
        inspect(&page(&lines, Leaf::Last), &format!("round {round}"));
    }
}

#[test]
fn the_policy_names_the_one_script_and_the_one_style_by_their_hashes() {
    let page = page(&sessions::demo(), Leaf::Last);
    let html = inspect(&page, "demo");
    let text = |selector: &str| -> String {
        let selector = Selector::parse(selector).expect("a selector");
        html.select(&selector).next().expect("one of them").text().collect()
    };
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    let policy = Selector::parse("meta[http-equiv=Content-Security-Policy]").expect("a selector");
    let policy = html.select(&policy).next().and_then(|meta| meta.attr("content")).expect("a policy");
    assert_eq!(
        policy,
        format!(
            "default-src 'none'; img-src data:; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
            hash(&text("style")),
            hash(&text("script"))
        )
    );
    // The policy stands before anything that it has to stop.
    assert!(page.find("Content-Security-Policy") < page.find("<title>"));
}

#[test]
fn links_go_to_three_schemes_only_and_tell_nothing() {
    let mut lines = vec![sessions::header("/w").to_string()];
    let text = "[a](https://e.org) [b](mailto:x@e.org) [c](ftp://e.org) [d](//e.org) [e](HTTPS://E.ORG) [f](src/x.rs) [g](https&colon;//e.org)";
    let message = serde_json::json!({"message":{"role":"assistant","content":[{"type":"text","text":text}]}});
    lines.push(sessions::entry("1", None, 0, "message", message).to_string());
    let html = Html::parse_document(&page(&lines, Leaf::Last));
    let links = Selector::parse(".text a").expect("a selector");
    let found: Vec<_> =
        html.select(&links).map(|link| (link.attr("href").unwrap_or(""), link.attr("rel"))).collect();
    let rel = Some("noopener noreferrer");
    assert_eq!(
        found,
        [("https://e.org", rel), ("mailto:x@e.org", rel), ("HTTPS://E.ORG", rel), ("https://e.org", rel)]
    );
}
