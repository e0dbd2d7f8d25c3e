//! What a reader finds on a page, entry type by entry type.
#![forbid(unsafe_code)]

mod sessions;

use atomic_html_export::{Leaf, Options, Session, write_page};
use scraper::{ElementRef, Html, Selector};
use serde_json::{Value, json};

fn page(lines: &[String], leaf: Leaf<'_>) -> Html {
    let entries: Vec<&str> = lines[1..].iter().map(String::as_str).collect();
    let session = Session { header: &lines[0], entries: &entries, leaf };
    let mut out = Vec::new();
    write_page(&session, &Options::default(), &mut out).expect("writing into memory cannot fail");
    Html::parse_document(std::str::from_utf8(&out).expect("a page is UTF-8"))
}

/// The page of one entry.
fn one(kind: &str, body: Value) -> Html {
    page(
        &[sessions::header("/w").to_string(), sessions::entry("e1", None, 0, kind, body).to_string()],
        Leaf::Last,
    )
}

fn message(message: Value) -> Html {
    one("message", json!({ "message": message }))
}

fn all<'a>(html: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    html.select(&Selector::parse(selector).expect("a selector")).collect()
}

/// The texts of what the selector finds, blanks collapsed.
fn texts(html: &Html, selector: &str) -> Vec<String> {
    let text = |element: &ElementRef<'_>| {
        element.text().collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    all(html, selector).iter().map(text).collect()
}

#[test]
fn the_demo_reads_from_top_to_bottom() {
    let html = page(&sessions::demo(), Leaf::Last);
    assert_eq!(texts(&html, "title"), ["Fix the rounding of totals"]);
    assert_eq!(texts(&html, "h1"), ["Fix the rounding of totals"]);
    let facts = texts(&html, ".facts dl > div").join("; ");
    for fact in [
        "Directory/home/mira/code/tally",
        "Modelsclaude-example-5, gpt-example",
        "Began2026-08-22 10:11 UTC",
        "Messages4 from the user, 9 answers, 6 tool calls",
        "Entries30, 2 of them on other branches",
        "Tokens9300 in · 3400 out · 168k from cache · 21.7k to cache",
        "Cost$0.2112",
    ] {
        assert!(facts.contains(fact), "{fact} in {facts}");
    }
    // The active branch, the other one folded where it left.
    assert_eq!(texts(&html, ".part > .entry.user > .text").len(), 3);
    assert_eq!(texts(&html, ".part > details.branch > summary"), ["Another branch 2 entries, “Saturate.”"]);
    assert_eq!(texts(&html, "details.branch .entry h2"), ["User", "Assistant"]);
    let link = all(&html, "#entry-a0000004 > .head > a.anchor")[0];
    assert_eq!(link.attr("title"), Some("2026-08-22 10:02:28 UTC"));
    assert_eq!(
        (link.text().collect::<String>().as_str(), link.attr("href")),
        ("10:02", Some("#entry-a0000004"))
    );
    let branch = all(&html, ".part > details.branch")[0];
    let before = branch.prev_siblings().filter_map(ElementRef::wrap).next().expect("an entry before");
    assert_eq!(before.attr("id"), Some("entry-a000000d"));
    // The outline has the turns, the label, the boundaries and the branch, each with a link that leads somewhere.
    let outline = texts(&html, "nav > ol > li > a");
    assert_eq!(outline.len(), 8, "{outline:?}");
    assert!(
        outline.contains(&"rounding fixed".to_owned()) && outline.contains(&"Branch, 2 entries".to_owned())
    );
    for link in all(&html, "a[href^='#']") {
        let target = &link.attr("href").expect("selected by it")[1..];
        assert_eq!(all(&html, &format!("[id='{target}']")).len(), 1, "{target}");
    }
    // Results stand with their calls, and every entry is somewhere.
    assert_eq!(texts(&html, ".tool > summary b").join(" "), "grep read edit write bash read bash");
    for line in &sessions::demo()[1..] {
        let entry: Value = serde_json::from_str(line).expect("the demo is JSON");
        let id = entry["id"].as_str().expect("an id");
        assert_eq!(all(&html, &format!("#entry-{id}")).len(), 1, "{id}");
    }
    assert_eq!(all(&html, "#entry-a0000008 #entry-a0000009 pre.diff .add").len(), 1);
    assert!(all(&html, "#entry-a0000008 details.tool")[0].attr("open").is_some());
    assert_eq!(texts(&html, "#entry-a000000c pre .f1"), ["FAILED"]);
    assert_eq!(all(&html, "#entry-a0000012 img[src^='data:image/png;base64,']").len(), 1);
    assert_eq!(texts(&html, "#entry-a0000013 .label"), ["rounding fixed"]);
    assert_eq!(texts(&html, ".leaf"), ["The session stands here"]);
    assert_eq!(texts(&html, ".day"), ["2026-08-22"]);
    // Landmarks and names.
    for one in ["html[lang=en]", "main", "nav[aria-label]", "header.bar", "footer", "h1"] {
        assert_eq!(all(&html, one).len(), 1, "{one}");
    }
}

#[test]
fn user_text_keeps_its_lines() {
    let html = message(json!({"role":"user","content":"one\ntwo **three**"}));
    assert_eq!(all(&html, ".user .text p br").len(), 1);
    assert_eq!(texts(&html, ".user strong"), ["three"]);
    assert_eq!(texts(&html, "title"), ["one two **three**"]);
}

#[test]
fn an_answer_says_how_it_ended() {
    let html = message(
        json!({"role":"assistant","content":[],"model":"m","stopReason":"error","errorMessage":"503 <busy>","usage":{"input":5,"output":0,"cost":{"total":0.5}}}),
    );
    assert_eq!(texts(&html, ".end.failed"), ["The request failed: 503 <busy>"]);
    assert_eq!(texts(&html, ".usage"), ["5 in · 0 out · $0.5000"]);
    assert_eq!(texts(&html, ".beside"), ["m"]);
    let html =
        message(json!({"role":"assistant","content":[{"type":"text","text":"x"}],"stopReason":"length"}));
    assert_eq!(texts(&html, ".end"), ["The output limit was hit"]);
    let long = "why ".repeat(100);
    let html = message(
        json!({"role":"assistant","content":[{"type":"thinking","thinking":"a **b**"},{"type":"thinking","thinking":long},{"type":"thinking","thinking":"","redacted":true}],"stopReason":"stop"}),
    );
    // Two lines have nothing to fold.
    assert_eq!(texts(&html, "div.thinking strong"), ["b"]);
    assert_eq!(texts(&html, "details.thinking > summary").len(), 1);
    assert!(texts(&html, "details.thinking > summary")[0].starts_with("Thinking why why"));
    assert_eq!(texts(&html, ".note"), ["Thinking that the provider withheld."]);
}

#[test]
fn tool_calls_show_what_they_do() {
    let call = |name: &str, arguments: Value| {
        message(
            json!({"role":"assistant","content":[{"type":"toolCall","id":"c","name":name,"arguments":arguments}],"stopReason":"toolUse"}),
        )
    };
    let html = call("read", json!({"path":"a.rs","offset":10,"limit":5}));
    assert_eq!(texts(&html, ".tool > summary"), ["read a.rs:10-14 no result"]);
    let html = call("bash", json!({"command":"echo $HOME # x"}));
    assert_eq!(texts(&html, "pre.command .hc"), ["# x"]);
    let html = call("edit", json!({"path":"a.rs","edits":[{"oldText":"a\nb","newText":"c"}]}));
    assert_eq!(
        (texts(&html, "pre.diff .del"), texts(&html, "pre.diff .add")),
        (vec!["-a -b".to_owned()], vec!["+c".to_owned()])
    );
    let html = call("write", json!({"path":"a.py","content":"def f(): pass"}));
    assert_eq!(texts(&html, ".tool pre .hk"), ["def", "pass"]);
    let html = call(
        "deploy",
        json!({"where":"prod","count":3,"plan":{"steps":["one","two","three","four","five"]}}),
    );
    assert_eq!(texts(&html, "pre.arguments"), ["where: prod count: 3"]);
    assert_eq!(texts(&html, ".key"), ["plan"]);
    assert_eq!(all(&html, "pre.raw").len(), 1);
}

#[test]
fn a_result_without_its_call_and_a_command_of_the_user() {
    let html = message(
        json!({"role":"toolResult","toolCallId":"c","toolName":"bash","content":[{"type":"text","text":"\u{1b}[31mred\u{1b}[0m"}],"isError":true}),
    );
    assert_eq!(texts(&html, ".tool.failed > summary"), ["bash red failed"]);
    let html = message(
        json!({"role":"bashExecution","command":"ls","output":"a\nb","exitCode":2,"truncated":true,"fullOutputPath":"/tmp/x","excludeFromContext":true}),
    );
    assert_eq!(texts(&html, ".tool > summary"), ["bash ls exit 2"]);
    assert_eq!(
        texts(&html, ".note"),
        ["The output was cut; all of it was in /tmp/x.", "Kept from the model."]
    );
}

#[test]
fn the_other_types() {
    let row = |kind, body| {
        texts(
            &one(kind, body),
            ".entry > .what, .entry > .value, .entry > summary > .what, .entry > summary > .value",
        )
        .join(" ")
    };
    assert_eq!(row("model_change", json!({"provider":"p","modelId":"m"})), "Model p/m");
    assert_eq!(row("thinking_level_change", json!({"thinkingLevel":"high"})), "Thinking level high");
    assert_eq!(row("session_info", json!({"name":"N"})), "Session named N");
    assert_eq!(row("session_info", json!({})), "Session name cleared");
    assert_eq!(row("label", json!({"targetId":"e1","label":"L"})), "Label L on an entry");
    assert_eq!(row("label", json!({"targetId":"gone"})), "Label removed ");
    assert_eq!(row("custom", json!({"customType":"t","data":[1]})), "Data of an extension t");
    assert_eq!(
        row("custom_message", json!({"customType":"t","content":"c","display":false})),
        "Message of an extension t"
    );
    assert_eq!(
        row("compaction", json!({"summary":"s","firstKeptEntryId":"e1","tokensBefore":20500})),
        "Compaction 20.5k tokens before"
    );
    assert_eq!(row("branch_summary", json!({"summary":"s"})), "Summary of a branch ");
    assert_eq!(row("session_summary", json!({"summary":"s"})), "Summary of the session ");
    assert_eq!(row("context_compaction", json!({})), "Context compaction ");
    assert_eq!(row("usage", json!({"x":1})), "Entry of type usage");
    assert_eq!(texts(&message(json!({"role":"system","content":"x"})), ".what"), ["Message of role system"]);
    let html = one(
        "custom_message",
        json!({"customType":"t","content":[{"type":"text","text":"c"}],"display":true}),
    );
    assert_eq!(
        (texts(&html, ".custom h2"), texts(&html, ".custom .beside"), texts(&html, ".custom p")),
        (vec!["Extension".to_owned()], vec!["t".to_owned()], vec!["c".to_owned()])
    );
    let lines = ["kept", "elided"].join("\n");
    let html = one("compaction", json!({"summary":lines,"details":{"strategy":"verbatim-lines"}}));
    assert_eq!(texts(&html, ".boundary pre"), ["kept elided"]);
}

#[test]
fn whatever_stands_in_the_file_there_is_a_page() {
    let header = sessions::header("/w").to_string();
    for entries in [
        vec![],
        vec![
            "",
            "null",
            "5",
            "[]",
            "not json",
            "{\"type\":5,\"id\":{},\"parentId\":[],\"timestamp\":\"yesterday\"}",
        ],
        vec![
            r#"{"type":"message"}"#,
            r#"{"type":"message","message":[]}"#,
            r#"{"type":"message","message":{"role":"assistant","content":{"a":1},"usage":{"input":"x"}}}"#,
        ],
        vec![
            r#"{"type":"message","id":"a","parentId":"b","message":{"role":"user","content":"\ud800 lone"}}"#,
            r#"{"type":"x","id":"b","parentId":"a"}"#,
        ],
    ] {
        let lines: Vec<String> =
            std::iter::once(header.as_str()).chain(entries.iter().copied()).map(str::to_owned).collect();
        let html = page(&lines, Leaf::Last);
        assert!(html.errors.is_empty(), "{:?}", html.errors);
        assert_eq!(all(&html, "main .entry").len(), entries.len());
    }
    let html = page(&["nonsense".to_owned()], Leaf::Entry("x"));
    assert_eq!(texts(&html, "h1"), ["Session without an id"]);
    let deep = format!(r#"{{"type":"x","id":"d","data":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(all(&page(&[header, deep], Leaf::Last), "pre.raw").len(), 1);
}
