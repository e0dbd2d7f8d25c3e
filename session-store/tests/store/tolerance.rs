//! What crashes, power losses and other programs leave behind.

use std::fs;

use atomic_protocol::json::Fields;
use atomic_session_store::{Error, Kind, Problem, ProblemKind, Role, Store};
use proptest::prelude::*;

use crate::{HEADER, branch_ids, ids, user, write};

fn line(id: &str, parent: Option<&str>) -> String {
    String::from_utf8(user(id, parent).to_line()).unwrap()
}

fn tree(store: &Store) -> String {
    String::from_utf8(atomic_session_store::tree(store).concat()).unwrap()
}

/// Every prefix of a last line, with and without zeros behind it: what was whole is kept, and the next line stands alone.
#[test]
fn a_last_line_torn_at_any_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let whole = format!("{HEADER}\n{}\n", line("a", None));
    let last =
        r#"{"type":"message","id":"b","parentId":"a","message":{"role":"user","content":"é😀\u00e9"}}"#;
    for cut in 0..=last.len() {
        for zeros in [0, 7] {
            let mut bytes = whole.clone().into_bytes();
            bytes.extend_from_slice(&last.as_bytes()[..cut]);
            bytes.extend(std::iter::repeat_n(0, zeros));
            fs::write(&path, &bytes).unwrap();

            let (mut store, problems) = Store::open(&path).unwrap();
            let finished = cut == last.len();
            let kept: &[&str] = if finished { &["a", "b"] } else { &["a"] };
            assert_eq!(ids(&store), kept, "cut at {cut}");
            let torn = [Problem { line: 3, kind: ProblemKind::Torn }];
            assert_eq!(
                problems,
                if finished || cut + zeros == 0 { &[][..] } else { &torn[..] },
                "cut at {cut}"
            );
            let leaf = store.leaf().unwrap().to_string();
            store.append(&user("c", Some(&leaf))).unwrap();
            drop(store);

            let after = fs::read(&path).unwrap();
            assert_eq!(after[..bytes.len()], bytes, "nothing that was there is touched");
            let (store, _) = Store::open(&path).unwrap();
            assert_eq!(branch_ids(&store, "c"), [kept, &["c"]].concat(), "cut at {cut}");
        }
    }
}

/// A writer that was killed in its first write.
#[test]
fn a_torn_header_is_no_session() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    for cut in 1..HEADER.len() {
        fs::write(&path, &HEADER[..cut]).unwrap();
        assert!(matches!(Store::open(&path), Err(Error::NotASession { .. })), "cut at {cut}");
        assert_eq!(fs::read_to_string(&path).unwrap(), HEADER[..cut]);
    }
    fs::write(&path, HEADER).unwrap();
    let (mut store, _) = Store::open(&path).unwrap();
    store.append(&user("a", None)).unwrap();
    drop(store);
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{HEADER}\n{}\n", line("a", None)));
}

#[test]
fn foreign_files_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    for content in [
        "# Read me\n\nText.\n",
        "{\"a\":1}\n",
        "[]",
        "\n\n",
        "\0\0\0",
        "{\"type\":\"message\",\"id\":\"a\"}\n",
        "5\n",
    ] {
        fs::write(&path, content).unwrap();
        for error in [
            Store::open(&path).unwrap_err(),
            Store::open_or_create(&path, || crate::header("s")).unwrap_err(),
            Store::open_read_only(&path).unwrap_err(),
        ] {
            assert_eq!(
                error.to_string(),
                format!("Session file is not a valid atomic session: {}", path.display()),
                "{content:?}"
            );
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    assert!(matches!(Store::open(dir.path()), Err(Error::NotAFile { .. })));
    assert!(matches!(Store::open(&dir.path().join("none")), Err(Error::NotFound { .. })));
}

#[test]
fn odd_lines_are_skipped_or_kept_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let unknown = r#"{"type":"usage", "id":"u","parentId":"a","x":[1.50]}"#;
    let surrogate =
        r#"{"type":"message","id":"\ud800","parentId":"u","message":{"role":"user","content":"\udc00"}}"#;
    let deep = format!(
        r#"{{"type":"custom","id":"d","parentId":"u","data":{}{}}}"#,
        "[".repeat(9999),
        "]".repeat(9999)
    );
    write(
        &path,
        &[
            "\u{feff}",
            HEADER,
            &format!("{}\r", line("a", None)),
            "",
            "not json",
            "[1]",
            r#"{"type":"message"}"#,
            HEADER,
            &line("a", None),
            unknown,
            surrogate,
            &deep,
            r#"{"type":"message","id":"b","id":"c","parentId":"d","message":{"role":"new","content":1}}"#,
        ],
    );
    let (store, problems) = Store::open(&path).unwrap();
    assert_eq!(ids(&store), ["a", "u", "\u{fffd}", "d", "c"]);
    assert_eq!(store.entries()[0].line.as_str(), line("a", None));
    assert_eq!(store.entries()[1].line.as_str(), unknown);
    assert_eq!(store.entries()[2].line.as_str(), surrogate);
    assert_eq!(store.entries()[1].kind, Kind::Other);
    assert_eq!(store.entries()[4].role, Some(Role::Other));
    assert_eq!(branch_ids(&store, "c"), ["a", "u", "d", "c"]);
    let kinds: Vec<_> = problems.iter().map(|problem| (problem.line, problem.kind)).collect();
    assert_eq!(
        kinds,
        [
            (5, ProblemKind::NotJson),
            (6, ProblemKind::NotAnEntry),
            (7, ProblemKind::NotAnEntry),
            (8, ProblemKind::SecondHeader),
            (9, ProblemKind::Repeated),
        ]
    );
}

#[test]
fn garbage_does_not_become_as_many_problems() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    fs::write(&path, format!("{HEADER}\n{}", "x\n".repeat(1000))).unwrap();
    let (_, problems) = Store::open(&path).unwrap();
    assert_eq!(problems.len(), 65);
    assert_eq!(problems[64], Problem { line: 66, kind: ProblemKind::More(936) });
}

#[test]
fn a_newer_version_is_read_and_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let newer = HEADER.replace(":3,", ":4,");
    write(&path, &[&newer, r#"{"type":"future","id":"a","parentId":null}"#]);
    let before = fs::read_to_string(&path).unwrap();
    let (mut store, problems) = Store::open(&path).unwrap();
    assert_eq!(problems, [Problem { line: 1, kind: ProblemKind::NewerVersion(4) }]);
    store.append(&user("b", Some("a"))).unwrap();
    drop(store);
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{before}{}\n", line("b", Some("a"))));
}

#[test]
fn an_old_file_is_kept_to_the_byte_before_it_is_rewritten_whatever_was_kept_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let old = |text: &str| {
        format!(
            "{{\"type\":\"session\",\"version\":2,\"id\":\"s\"}}\n{{\"type\":\"message\",\"id\":\"{text}\"}}\nnot json\n{{\"ty"
        )
    };
    let kept = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    // The same bytes twice are kept once; others get a number.
    for (content, name) in
        [(old("a"), "s.jsonl.v2.bak"), (old("a"), "s.jsonl.v2.bak"), (old("b"), "s.jsonl.v2.2.bak")]
    {
        fs::write(&path, &content).unwrap();
        let (store, _) = Store::open(&path).unwrap();
        assert_eq!(store.backup(), Some(&*dir.path().join(name)));
        assert_eq!(kept(name), content);
        assert!(fs::read_to_string(&path).unwrap().contains("\"version\":3"));
    }
    assert_eq!(kept("s.jsonl.v2.bak"), old("a"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);

    let mut gone = atomic_session_store::delete(&path).unwrap();
    gone.sort();
    let names = ["s.jsonl", "s.jsonl.v2.2.bak", "s.jsonl.v2.bak"];
    assert_eq!(gone, names.map(|name| dir.path().join(name)));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn only_a_session_that_is_nobodys_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let delete = |path: &std::path::Path| atomic_session_store::delete(path);
    let path = dir.path().join("s.jsonl");
    assert!(matches!(delete(&path), Err(Error::NotFound { .. })));
    assert!(matches!(delete(dir.path()), Err(Error::NotAFile { .. })));
    fs::write(&path, "# Read me\n").unwrap();
    assert!(matches!(delete(&path), Err(Error::NotASession { .. })));
    fs::write(&path, "").unwrap();
    assert!(matches!(delete(&path), Err(Error::NotASession { .. })));
    write(&path, &[HEADER]);
    fs::write(dir.path().join("s.jsonl.x.html"), "").unwrap();
    let (store, _) = Store::open(&path).unwrap();
    assert!(matches!(delete(&path), Err(Error::Locked { .. })));
    drop(store);
    assert_eq!(delete(&path).unwrap(), std::slice::from_ref(&path));
    assert!(!path.exists() && dir.path().join("s.jsonl.x.html").exists());
}

#[test]
fn circles_and_orphans_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let lines = [
        line("a", Some("b")),
        line("b", Some("a")),
        line("x", Some("gone")),
        line("y", Some("x")),
        line("z", Some("z")),
    ];
    write(&path, &[HEADER, &lines[0], &lines[1], &lines[2], &lines[3], &lines[4]]);
    let (store, _) = Store::open(&path).unwrap();
    assert_eq!(branch_ids(&store, "b"), ["a", "b"]);
    assert_eq!(branch_ids(&store, "y"), ["x", "y"]);
    assert_eq!(branch_ids(&store, "z"), ["z"]);
    assert_eq!(store.branch(None), Vec::<usize>::new());
    assert_eq!(store.branch(Some(&"none".into())), Vec::<usize>::new());
    let node = |at: usize, children: &str| format!(r#"{{"entry":{},"children":[{children}]}}"#, lines[at]);
    assert_eq!(
        tree(&store),
        format!("[{},{},{}]", node(0, &node(1, "")), node(2, &node(3, "")), node(4, ""))
    );
}

#[test]
fn of_two_entries_with_one_id_references_mean_the_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let other = line("a", None).replace("\"content\":\"a\"", "\"content\":\"other\"");
    write(&path, &[HEADER, &line("a", None), &other, &line("b", Some("a"))]);
    let (store, problems) = Store::open(&path).unwrap();
    assert_eq!(ids(&store), ["a", "a", "b"]);
    assert_eq!(store.branch(store.leaf()), [1, 2]);
    assert_eq!(problems, [Problem { line: 3, kind: ProblemKind::SameId }]);
}

#[test]
fn the_tree_has_labels_and_children_by_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let early = line("c", Some("a")).replace("2024", "2023");
    let labels = [
        r#"{"type":"label","id":"l1","parentId":"a","timestamp":"2024-12-03T14:02:48.000Z","targetId":"c","label":"x"}"#,
        r#"{"type":"label","id":"l2","parentId":"l1","timestamp":"2024-12-03T14:02:49.000Z","targetId":"b","label":"y"}"#,
        r#"{"type":"label","id":"l3","parentId":"l2","timestamp":"2024-12-03T14:02:50.000Z","targetId":"b"}"#,
    ];
    write(&path, &[HEADER, &line("a", None), &line("b", Some("a")), &early, labels[0], labels[1], labels[2]]);
    let (store, _) = Store::open(&path).unwrap();
    let roots: Vec<atomic_protocol::Raw> = serde_json::from_str(&tree(&store)).unwrap();
    let root = Fields::parse(roots[0].as_str()).unwrap();
    let children: Vec<serde_json::Value> = serde_json::from_str(root.get("children").unwrap()).unwrap();
    let id = |at: usize| children[at]["entry"]["id"].as_str().unwrap();
    assert_eq!((roots.len(), id(0), id(1), id(2)), (1, "c", "b", "l1"));
    assert_eq!(children[0]["label"], "x");
    assert_eq!(children[0]["labelTimestamp"], "2024-12-03T14:02:48.000Z");
    assert!(children[1].get("label").is_none());
}

#[test]
fn a_long_conversation_is_a_deep_tree() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let mut text = format!("{HEADER}\n{}\n", line("0", None));
    for at in 1..20_000 {
        text.push_str(&line(&at.to_string(), Some(&(at - 1).to_string())));
        text.push('\n');
    }
    fs::write(&path, text).unwrap();
    let (store, _) = Store::open(&path).unwrap();
    assert_eq!(store.branch(store.leaf()).len(), 20_000);
    assert!(tree(&store).ends_with(&format!("{}]", "]}".repeat(20_000))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Whatever bytes follow a header: opening neither fails nor changes them, every branch ends, and the next entry is found
    /// again as the leaf.
    #[test]
    fn any_bytes_after_a_header(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                "[{}\\[\\]\",:a-c0\\\\u]{0,20}".prop_map(String::into_bytes),
                ("[a-d]", prop::option::of("[a-d]")).prop_map(|(id, parent)| {
                    let mut bytes = line(&id, parent.as_deref()).into_bytes();
                    bytes.push(b'\n');
                    bytes
                }),
                Just(b"\n".to_vec()),
            ],
            0..12,
        )
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        let mut bytes = format!("{HEADER}\n").into_bytes();
        bytes.extend(pieces.concat());
        fs::write(&path, &bytes).unwrap();
        let (mut store, _) = Store::open(&path).unwrap();
        prop_assert_eq!(fs::read(&path).unwrap(), bytes.clone());
        for entry in store.entries() {
            prop_assert!(store.branch(Some(&entry.id)).len() <= store.entries().len());
        }
        serde_json::from_str::<serde_json::Value>(&tree(&store)).unwrap();
        atomic_session_store::context(&store);
        let leaf = store.leaf().map(ToString::to_string);
        store.append(&user("new", leaf.as_deref())).unwrap();
        let count = store.entries().len();
        drop(store);
        let (store, _) = Store::open(&path).unwrap();
        prop_assert_eq!(store.leaf().unwrap().as_str(), "new");
        prop_assert_eq!(store.entries().len(), count);
        prop_assert!(fs::read(&path).unwrap().starts_with(&bytes));
    }
}
