//! When bytes reach the file, and what happens when they cannot.

use std::fs;

use atomic_protocol::entry::EntryBody;
use atomic_session_store::{Error, Store};

use crate::{HEADER, entry, header, ids, message, model, user, write};

const MODEL_LINE: &str = r#"{"type":"model_change","id":"a","parentId":null,"timestamp":"2024-12-03T14:02:47.890Z","provider":"p","modelId":"m"}"#;
const USER_LINE: &str = r#"{"type":"message","id":"b","parentId":"a","timestamp":"2024-12-03T14:02:47.890Z","message":{"role":"user","content":"b","timestamp":1}}"#;

#[test]
fn the_file_appears_with_the_first_message_and_holds_all_that_was_kept_back() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = dir.path().join("x/--w--");
    let mut store = Store::create(header("s"), Some(&sessions)).unwrap();
    let path = sessions.join("2024-12-03T14-02-47-890Z_s.jsonl");
    assert_eq!(store.path(), Some(&*path));
    store.append(&model("a", None)).unwrap();
    assert!(!path.exists() && !store.is_written() && store.sync().unwrap().is_none());
    assert_eq!(store.leaf().unwrap().as_str(), "a");

    store.append(&user("b", Some("a"))).unwrap();
    assert!(store.is_written());
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{HEADER}\n{MODEL_LINE}\n{USER_LINE}\n"));

    store.append(&model("c", Some("b"))).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 4);
    assert_eq!(text.matches(HEADER).count(), 1);
    store.sync().unwrap().unwrap().sync().unwrap();
}

#[test]
fn what_is_kept_back_can_be_written_for_another_process_to_go_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(header("s"), Some(dir.path())).unwrap();
    store.write_out().unwrap();
    assert!(!store.path().unwrap().exists(), "there is nothing to write");
    store.append(&model("a", None)).unwrap();
    store.write_out().unwrap();
    store.write_out().unwrap();
    let path = store.path().unwrap().to_owned();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{HEADER}\n{MODEL_LINE}\n"));
    store.append(&user("b", Some("a"))).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{HEADER}\n{MODEL_LINE}\n{USER_LINE}\n"));
    let mut memory = Store::create(header("m"), None).unwrap();
    memory.append(&model("a", None)).unwrap();
    memory.write_out().unwrap();
}

#[test]
fn a_name_and_an_extensions_message_make_the_file_too() {
    let dir = tempfile::tempdir().unwrap();
    for (id, body) in [
        ("n", EntryBody::SessionInfo { name: Some("x".into()) }),
        (
            "c",
            EntryBody::CustomMessage {
                custom_type: "t".into(),
                content: atomic_protocol::Raw::parse("\"c\"").unwrap(),
                display: false,
                details: None,
                exclude_from_context: false,
            },
        ),
    ] {
        let mut store = Store::create(header(id), Some(dir.path())).unwrap();
        store.append(&entry("e", None, body)).unwrap();
        assert!(store.path().unwrap().exists(), "{id}");
    }
}

#[test]
fn a_session_in_memory_has_no_file() {
    let mut store = Store::create(header("s"), None).unwrap();
    store.append(&user("a", None)).unwrap();
    assert_eq!((store.path(), store.is_written(), ids(&store)), (None, false, vec!["a"]));
}

/// Upstream appends everything again when the first answer arrives in a file that existed before.
#[test]
fn an_empty_file_becomes_a_session_without_repeating_anything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.jsonl");
    fs::write(&path, "").unwrap();
    assert!(matches!(Store::open(&path), Err(Error::Empty { .. })));
    let (mut store, _) = Store::open_or_create(&path, || header("s")).unwrap();
    assert!(matches!(Store::create_at(header("t"), path.clone()), Err(Error::Locked { .. })));
    store.append(&model("a", None)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
    store.append(&user("b", Some("a"))).unwrap();
    store
        .append(&message("c", Some("b"), r#"{"role":"assistant","content":[],"stopReason":"stop"}"#))
        .unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 4);
    drop(store);
    let (store, problems) = Store::open(&path).unwrap();
    assert_eq!((ids(&store), problems), (vec!["a", "b", "c"], vec![]));
}

#[test]
fn one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(header("s"), Some(dir.path())).unwrap();
    store.append(&user("a", None)).unwrap();
    let path = store.path().unwrap().to_path_buf();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(&error, Error::Locked { path: locked, .. } if *locked == path));
    assert!(error.to_string().contains(path.to_str().unwrap()));
    if cfg!(target_os = "linux") {
        // Our own process holds it; the kernel may show another device than the file does, and then names nobody.
        let Error::Locked { holder, .. } = &error else { unreachable!("matched above") };
        let wanted = format!("(process {})", std::process::id());
        assert!(holder.is_none() || error.to_string().contains(&wanted), "{error}");
    }
    // Reading is free, and a sync still under way does not keep the lock (on Windows it does).
    assert_eq!(ids(&Store::open_read_only(&path).unwrap().0), ["a"]);
    let mut syncing = store.sync().unwrap();
    if cfg!(windows) {
        syncing = None;
    }
    drop(store);
    let (mut store, _) = Store::open(&path).unwrap();
    syncing.map_or(Ok(()), atomic_session_store::SyncHandle::sync).unwrap();
    store.append(&user("b", Some("a"))).unwrap();
    let (mut reader, _) = Store::open_read_only(&path).unwrap();
    assert!(matches!(reader.append(&user("c", Some("b"))), Err(Error::ReadOnly { .. })));
}

#[test]
fn two_sessions_cannot_take_one_reserved_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.jsonl");
    let mut first = Store::create_at(header("a"), path.clone()).unwrap();
    let mut second = Store::create_at(header("b"), path.clone()).unwrap();
    first.append(&user("a", None)).unwrap();
    assert!(matches!(second.append(&user("b", None)), Err(Error::Locked { .. })));
    drop(first);
    let before = fs::read(&path).unwrap();
    assert!(matches!(second.append(&user("b", None)), Err(Error::Exists { .. })));
    assert!(matches!(Store::create_at(header("c"), path.clone()), Err(Error::Exists { .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(second.entries().is_empty());
}

#[test]
fn what_is_no_entry_of_this_session_is_refused_before_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(header("s"), Some(dir.path())).unwrap();
    store.append(&user("a", None)).unwrap();
    let before = fs::read(store.path().unwrap()).unwrap();
    assert!(matches!(store.append(&user("a", None)), Err(Error::EntryExists { id }) if id == "a"));
    assert!(matches!(store.append(&user("b", Some("z"))), Err(Error::EntryNotFound { id }) if id == "z"));
    for line in ["{}", "{", "5", r#"{"type":"session","id":"x"}"#] {
        assert!(matches!(store.append_line(line.into()), Err(Error::NotAnEntry { .. })), "{line}");
    }
    assert!(matches!(Store::create(header("../x"), Some(dir.path())), Err(Error::SessionId { .. })));
    assert_eq!(fs::read(store.path().unwrap()).unwrap(), before);
    assert_eq!(ids(&store), ["a"]);
}

#[test]
fn a_line_feed_between_tokens_does_not_cut_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(header("s"), Some(dir.path())).unwrap();
    store.append(&message("a", None, "{\"role\":\"user\",\n\"content\":\"x\\ny\"}")).unwrap();
    let path = store.path().unwrap().to_path_buf();
    let line = store.entries()[0].line.clone();
    drop(store);
    let (store, problems) = Store::open(&path).unwrap();
    assert_eq!((store.entries()[0].line.clone(), problems), (line, vec![]));
}

#[test]
fn the_leaf_moves_in_memory_and_the_last_line_is_the_leaf_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let mut store = Store::create_at(header("s"), path.clone()).unwrap();
    store.append(&user("a", None)).unwrap();
    store.append(&user("b", Some("a"))).unwrap();
    store.set_leaf(Some(&"a".into())).unwrap();
    assert_eq!(store.leaf().unwrap().as_str(), "a");
    assert!(store.set_leaf(Some(&"z".into())).is_err());
    drop(store);
    let (mut store, _) = Store::open(&path).unwrap();
    assert_eq!(store.leaf().unwrap().as_str(), "b");
    store.set_leaf(None).unwrap();
    assert_eq!(store.leaf(), None);
    store.append(&user("c", None)).unwrap();
    assert_eq!(store.leaf().unwrap().as_str(), "c");
}

#[test]
fn the_last_name_of_the_file_counts_on_whatever_branch() {
    let mut store = Store::create(header("s"), None).unwrap();
    let named = |id: &str, name: Option<&str>| {
        entry(id, None, EntryBody::SessionInfo { name: name.map(str::to_owned) })
    };
    assert_eq!(store.name(), None);
    store.append(&named("a", Some(" one "))).unwrap();
    assert_eq!(store.name(), Some("one"));
    store.append(&named("b", Some("two"))).unwrap();
    store.append(&user("c", Some("a"))).unwrap();
    assert_eq!(store.name(), Some("two"));
    store.append(&named("d", None)).unwrap();
    assert_eq!(store.name(), None);
}

#[test]
fn counts_cover_all_branches_and_are_the_same_after_reading() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let mut store = Store::create_at(header("s"), path.clone()).unwrap();
    let usage = |input: u32| {
        format!(
            r#"{{"input":{input},"output":2,"cacheRead":3,"cacheWrite":4,"totalTokens":9,"cost":{{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.25}}}}"#
        )
    };
    let assistant = |input| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"text","text":"toolCall"}},{{"type":"toolCall","id":"1","name":"ls","arguments":{{}}}}],"usage":{},"stopReason":"toolUse"}}"#,
            usage(input)
        )
    };
    store.append(&user("a", None)).unwrap();
    store.append(&message("b", Some("a"), &assistant(10))).unwrap();
    store.append(&message("c", Some("a"), &assistant(20))).unwrap();
    store
        .append(&message(
            "d",
            Some("c"),
            &format!(r#"{{"role":"toolResult","toolCallId":"1","content":[],"usage":{}}}"#, usage(1)),
        ))
        .unwrap();
    store.append(&message("e", Some("d"), r#"{"role":"bashExecution","command":"ls"}"#)).unwrap();
    let summary =
        format!(r#"{{"type":"branch_summary","id":"f","parentId":"a","summary":"s","usage":{}}}"#, usage(2));
    store.append_line(summary.into_bytes()).unwrap();
    store.append(&message("g", Some("f"), r#"{"role":"assistant","content":null,"usage":"odd"}"#)).unwrap();

    let stats = store.stats();
    assert_eq!(
        (
            stats.user_messages,
            stats.assistant_messages,
            stats.tool_calls,
            stats.tool_results,
            stats.total_messages
        ),
        (1, 3, 2, 1, 6)
    );
    assert_eq!((stats.tokens.input, stats.tokens.total(), stats.cost), (33, 33 + 8 + 12 + 16, 1.0));
    drop(store);
    assert_eq!(Store::open(&path).unwrap().0.stats(), stats);
}

/// A program that knows nothing of the lock. Windows keeps it out; there is nothing to see there.
#[cfg(unix)]
mod foreign {
    use std::io::Write as _;
    use std::path::Path;

    use super::*;
    use crate::branch_ids;

    fn line(id: &str, parent: &str) -> String {
        String::from_utf8(user(id, Some(parent)).to_line()).unwrap()
    }

    fn append_foreign(path: &Path, text: &str) {
        fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn half_a_line_stays_and_ours_stands_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        write(&path, &[HEADER]);
        let (mut store, _) = Store::open(&path).unwrap();
        append_foreign(&path, "{\"type\":\"mess");
        store.look().unwrap();
        store.append(&user("a", None)).unwrap();
        assert_eq!(store.take_foreign(), 0, "half a line is no entry");
        drop(store);
        assert_eq!(ids(&Store::open(&path).unwrap().0), ["a"]);
        assert!(fs::read_to_string(&path).unwrap().contains("{\"type\":\"mess\n{"));
    }

    #[test]
    fn whole_lines_are_taken_in_beside_the_branch_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        let mut store = Store::create_at(header("s"), path.clone()).unwrap();
        store.append(&user("a", None)).unwrap();
        append_foreign(&path, &format!("{}\n{}", line("x", "a"), line("y", "x")));
        store.look().unwrap();
        assert_eq!((store.take_foreign(), ids(&store)), (1, vec!["a", "x"]), "y has no end yet");
        assert_eq!(store.leaf().unwrap().as_str(), "a");
        store.append(&user("b", Some("a"))).unwrap();
        assert_eq!((store.take_foreign(), ids(&store)), (1, vec!["a", "x", "y", "b"]));
        append_foreign(&path, &format!("{}\n", line("z", "b")));
        store.append(&user("c", Some("b"))).unwrap();
        assert_eq!((store.take_foreign(), store.take_foreign()), (1, 0));
        assert_eq!(branch_ids(&store, "c"), ["a", "b", "c"]);
        assert_eq!(store.stats().user_messages, 6);
        let known: Vec<String> = ids(&store).into_iter().map(str::to_owned).collect();
        drop(store);
        let (store, problems) = Store::open(&path).unwrap();
        assert_eq!((ids(&store), problems), (known.iter().map(String::as_str).collect(), vec![]));
        assert_eq!(store.leaf().unwrap().as_str(), "c");
    }

    #[test]
    fn who_writes_into_the_empty_file_first_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.jsonl");
        fs::write(&path, "").unwrap();
        let mut store = Store::create_at(header("s"), path.clone()).unwrap();
        append_foreign(&path, "mine\n");
        for _ in 0..2 {
            assert!(matches!(store.append(&user("a", None)), Err(Error::Exists { .. })));
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine\n");
    }
}
