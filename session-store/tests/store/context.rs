//! What a model is to see.

use std::fs;

use atomic_session_store::{Context, Store, context, context_at, leaves_something, left_behind, shortenable};

use crate::HEADER;

fn of(lines: &[&str]) -> (Store, Context) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, format!("{HEADER}\n{}\n", lines.join("\n"))).unwrap();
    let (store, problems) = Store::open(&path).unwrap();
    assert_eq!(problems, []);
    let context = context(&store);
    (store, context)
}

fn texts(context: &Context) -> Vec<(&str, &str)> {
    context.messages.iter().map(|(id, raw)| (id.as_str(), raw.as_str())).collect()
}

const USER: &str =
    r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"one", "timestamp":1}}"#;

#[test]
fn an_empty_session_has_an_empty_context() {
    let store = Store::create(crate::header("s"), None).unwrap();
    let context = context(&store);
    assert!(context.messages.is_empty() && context.thinking.is_none() && context.model.is_none());
}

#[test]
fn messages_of_every_kind_on_the_branch_of_the_leaf() {
    let (store, context) = of(&[
        USER,
        r#"{"type":"message","id":"other","parentId":"a","message":{"role":"user","content":"left"}}"#,
        r#"{"type":"branch_summary","id":"b","parentId":"a","timestamp":"1970-01-01T00:00:00.007Z","fromId":"a","summary":"sum"}"#,
        r#"{"type":"branch_summary","id":"b2","parentId":"b","fromId":"b","summary":""}"#,
        r#"{"type":"custom_message","customType":"t","content":[{"type":"text","text":"x"}],"display":true,"details":{"k":1.0},"excludeFromContext":true,"id":"c","parentId":"b2","timestamp":"1970-01-01T00:00:00.008Z"}"#,
        r#"{"type":"custom_message","customType":"t","content":null,"display":false,"id":"c2","parentId":"c"}"#,
        r#"{"type":"compaction","id":"old","parentId":"c2","summary":"of another program","firstKeptEntryId":"c","tokensBefore":1}"#,
        r#"{"type":"message","id":"d","parentId":"old","message":{"role":"assistant","content":null,"provider":"p","model":"m","stopReason":"stop"}}"#,
        r#"{"type":"label","id":"l","parentId":"d","targetId":"a","label":"x"}"#,
    ]);
    assert_eq!(
        texts(&context),
        [
            ("a", r#"{"role":"user","content":"one", "timestamp":1}"#),
            ("b", r#"{"role":"branchSummary","summary":"sum","fromId":"a","timestamp":7}"#),
            (
                "c",
                r#"{"role":"custom","customType":"t","content":[{"type":"text","text":"x"}],"display":true,"details":{"k":1.0},"timestamp":8,"excludeFromContext":true}"#
            ),
            ("c2", r#"{"role":"custom","customType":"t","content":[],"display":false,"timestamp":0}"#),
            ("d", r#"{"role":"assistant","content":[],"provider":"p","model":"m","stopReason":"stop"}"#),
        ]
    );
    assert_eq!(context.model, Some(("p".into(), "m".into())));
    let other = context_at(&store, Some(&"other".into()));
    assert_eq!(other.messages.len(), 2);
    assert!(context_at(&store, None).messages.is_empty());
}

#[test]
fn a_fallback_that_did_not_end_leaves_the_users_model() {
    const LINES: [&str; 7] = [
        r#"{"type":"model_change","id":"a","parentId":null,"provider":"p","modelId":"own"}"#,
        r#"{"type":"thinking_level_change","id":"b","parentId":"a","thinkingLevel":"high"}"#,
        r#"{"type":"model_change","id":"c","parentId":"b","provider":"p","modelId":"other","inPlaceOf":{"provider":"p","modelId":"own"}}"#,
        r#"{"type":"thinking_level_change","id":"d","parentId":"c","thinkingLevel":"low","inPlaceOf":"high"}"#,
        r#"{"type":"message","id":"e","parentId":"d","message":{"role":"assistant","content":[],"provider":"p","model":"other"}}"#,
        // The user's wish during the fallback.
        r#"{"type":"thinking_level_change","id":"f","parentId":"e","thinkingLevel":"medium"}"#,
        // Another program went on with a model of its own.
        r#"{"type":"message","id":"g","parentId":"f","message":{"role":"assistant","content":[],"provider":"p","model":"third"}}"#,
    ];
    let (store, _) = of(&LINES);
    for (leaf, model, thinking) in [
        ("b", "own", "high"),
        ("c", "own", "high"),
        ("d", "own", "high"),
        ("e", "own", "high"),
        ("f", "own", "medium"),
        ("g", "third", "medium"),
    ] {
        let context = context_at(&store, Some(&leaf.into()));
        assert_eq!(context.model, Some(("p".into(), model.into())), "{leaf}");
        assert_eq!(context.thinking.as_deref(), Some(thinking), "{leaf}");
    }
}

#[test]
fn model_and_thinking_are_the_last_on_the_branch() {
    let (store, context) = of(&[
        r#"{"type":"model_change","id":"a","parentId":null,"provider":"p1","modelId":"m1"}"#,
        r#"{"type":"thinking_level_change","id":"b","parentId":"a","thinkingLevel":"low"}"#,
        r#"{"type":"message","id":"c","parentId":"b","message":{"role":"assistant","content":[],"provider":"p2","model":"m2"}}"#,
        r#"{"type":"model_change","id":"d","parentId":"c","provider":"p3","modelId":"m3"}"#,
        r#"{"type":"thinking_level_change","id":"e","parentId":"a","thinkingLevel":"high"}"#,
    ]);
    assert_eq!(
        (context.thinking.as_deref(), context.model),
        (Some("high"), Some(("p1".into(), "m1".into())))
    );
    let at = |id: &str| context_at(&store, Some(&id.into()));
    assert_eq!((at("c").thinking.as_deref(), at("c").model), (Some("low"), Some(("p2".into(), "m2".into()))));
    assert_eq!(at("d").model, Some(("p3".into(), "m3".into())));
    assert_eq!(at("a").thinking, None);
}

fn boundary(kept: &str, summary: &str) -> String {
    format!(
        r#"{{"type":"compaction","id":"k","parentId":"b","timestamp":"1970-01-01T00:00:00.009Z","summary":"{summary}","firstKeptEntryId":{kept},"tokensBefore":77,"details":{{"strategy":"verbatim-lines"}}}}"#
    )
}

#[test]
fn a_boundary_is_one_message_with_the_kept_tail_as_text() {
    let result = r#"{"type":"message","id":"b","parentId":"a","message":{"role":"toolResult","toolCallId":"1","content":[{"type":"text","text":"out"},{"type":"image","data":"aGk=","mimeType":"image/png"}]}}"#;
    let later = r#"{"type":"message","id":"z","parentId":"k","message":{"role":"user","content":"later"}}"#;
    for (kept, summary, first_ends, images) in [
        ("\"b\"", "short", "\n\nshort\n\n[Tool result]: out\n", 1),
        ("\"a\"", "", "\n\n[User]: one\n\n[Tool result]: out\n", 1),
        ("null", "short", "\n\nshort", 0),
        // Only what comes before the boundary can be kept.
        ("\"z\"", "short", "\n\nshort", 0),
        ("\"k\"", "short", "\n\nshort", 0),
    ] {
        let (_, context) = of(&[USER, result, &boundary(kept, summary), later]);
        assert_eq!(context.messages.len(), 2, "kept {kept}");
        let (id, raw) = &context.messages[0];
        let message: serde_json::Value = raw.read().unwrap();
        assert_eq!(id.as_str(), "k");
        let first = message["content"][0]["text"].as_str().unwrap();
        assert!(first.starts_with("The earlier part"), "{first}");
        assert!(first.ends_with(first_ends), "{first}");
        assert_eq!(message["content"].as_array().unwrap().len(), 1 + images);
        assert!(
            raw.as_str()
                .starts_with(r#"{"role":"custom","customType":"compaction","content":[{"type":"text","#)
        );
        assert!(
            raw.as_str()
                .ends_with(r#""display":true,"details":{"strategy":"verbatim-lines"},"timestamp":9}"#)
        );
        assert_eq!(texts(&context)[1], ("z", r#"{"role":"user","content":"later"}"#));
    }
}

#[test]
fn what_a_compaction_works_on() {
    let answer = r#"{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":[],"stopReason":"stop"}}"#;
    let later = r#"{"type":"message","id":"z","parentId":"k","message":{"role":"user","content":"later"}}"#;
    for (boundary, expected) in [
        (None, &["a", "b"][..]),
        (Some(boundary("\"b\"", "short")), &["b", "z"]),
        (Some(boundary("null", "short")), &["z"]),
        // Not on the branch before the boundary, so nothing was kept.
        (Some(boundary("\"z\"", "short")), &["z"]),
    ] {
        let mut lines = vec![USER, answer];
        if let Some(boundary) = &boundary {
            lines.extend([boundary.as_str(), later]);
        }
        let (store, _) = of(&lines);
        let found = shortenable(&store);
        let ids: Vec<&str> = found.messages.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, expected, "{boundary:?}");
        assert_eq!(found.previous.map(|line| line.as_str().to_owned()), boundary);
    }
}

#[test]
fn a_later_boundary_hides_an_earlier_one() {
    let second = boundary("null", "second")
        .replace("\"id\":\"k\",\"parentId\":\"b\"", "\"id\":\"k2\",\"parentId\":\"k\"");
    let (_, context) = of(&[USER, &boundary("null", "first").replace("\"b\"", "\"a\""), &second]);
    assert_eq!(context.messages.len(), 1);
    assert!(
        context.messages[0].1.as_str().contains("second")
            && !context.messages[0].1.as_str().contains("first")
    );
}

const ASSISTANT: &str = r#"{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":[],"provider":"p","model":"m"}}"#;

fn ids(context: &Context) -> Vec<&str> {
    context.messages.iter().map(|(id, _)| id.as_str()).collect()
}

/// Our own summaries say what they are; those of Pi do not, and count only where that is wanted.
#[test]
fn a_summary_stands_in_front_of_the_messages_that_were_kept() {
    let later = r#"{"type":"message","id":"z","parentId":"k","message":{"role":"user","content":"now"}}"#;
    let ours = boundary("\"b\"", "the gist").replace("verbatim-lines", "summary");
    let (_, context) = of(&[USER, ASSISTANT, &ours, later]);
    assert_eq!(ids(&context), ["k", "b", "z"]);
    assert_eq!(
        texts(&context)[0].1,
        r#"{"role":"custom","customType":"compaction","content":[{"type":"text","text":"The earlier part of this conversation was replaced by the summary below.\n\n<summary>\nthe gist\n</summary>"}],"display":true,"details":{"strategy":"summary"},"timestamp":9}"#
    );
    // Pi's way to say that nothing was kept: its own id.
    for (kept, expected) in [("null", &["k", "z"]), ("\"k\"", &["k", "z"])] {
        let (_, context) = of(&[
            USER,
            ASSISTANT,
            &ours.replace("\"firstKeptEntryId\":\"b\"", &format!("\"firstKeptEntryId\":{kept}")),
            later,
        ]);
        assert_eq!(ids(&context), expected);
    }
    let pis = r#"{"type":"compaction","id":"k","parentId":"b","timestamp":"1970-01-01T00:00:00.009Z","summary":"pi's gist","firstKeptEntryId":"b","tokensBefore":77,"details":{"readFiles":[],"modifiedFiles":[]}}"#;
    let (mut store, inert) = of(&[USER, ASSISTANT, pis, later]);
    assert_eq!(ids(&inert), ["a", "b", "z"]);
    assert_eq!(shortenable(&store).previous, None);
    store.take_unmarked_summaries(true);
    assert_eq!(ids(&self::context(&store)), ["k", "b", "z"]);
    let found = shortenable(&store);
    assert_eq!((found.previous.is_some(), found.messages.len()), (true, 2));
}

#[test]
fn what_is_left_behind_begins_where_the_branches_part() {
    let (store, _) = of(&[
        USER,
        ASSISTANT,
        r#"{"type":"branch_summary","id":"s","parentId":"b","fromId":"b","summary":"earlier","details":{"readFiles":["r"]}}"#,
        r#"{"type":"label","id":"l","parentId":"s","targetId":"a","label":"x"}"#,
        r#"{"type":"message","id":"c","parentId":"l","message":{"role":"user","content":"two"}}"#,
    ]);
    let left = |target: &str| -> Vec<bool> {
        let left = left_behind(&store, &target.into());
        left.iter().map(|left| left.summary.is_some()).collect()
    };
    assert!(left("c").is_empty());
    assert_eq!(left("l"), [false]);
    assert_eq!(left("a"), [false, true, false]);
    assert_eq!(left("nope"), [false, false, true, false]);
    assert!(!leaves_something(&store, &"c".into()) && leaves_something(&store, &"l".into()));
}
