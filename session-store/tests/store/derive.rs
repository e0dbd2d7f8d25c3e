//! Finding sessions, and making new ones out of them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atomic_protocol::entry::{EntryId, Header};
use atomic_session_store::{Error, Store, find_by_id, fork_file, import, list, newest, session_dirs};

use crate::{HEADER, branch_ids, header, ids, model, user, write};

fn session(dir: &Path, name: &str, header: &str, age: u64) -> PathBuf {
    let path = dir.join(name);
    write(&path, &[header]);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - age);
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    path
}

fn head(id: &str, cwd: &str) -> String {
    HEADER.replace("\"s\"", &format!("\"{id}\"")).replace("/w", cwd)
}

#[test]
fn sessions_are_found_by_time_directory_and_id() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let old = session(dir, "old.jsonl", &head("abc1", "/w"), 30);
    let new = session(dir, "new.jsonl", &head("abc2", "/w"), 20);
    let other = session(dir, "other.jsonl", &head("abc", "/other"), 40);
    session(dir, "foreign.jsonl", "# Read me", 5);
    session(dir, "no-suffix.bak", &head("abc9", "/w"), 4);
    let internal =
        HEADER.replace('}', r#","internal":true,"workflow":{"runId":"r","stageId":"s","stageName":"n"}}"#);
    session(dir, "internal.jsonl", &internal, 3);
    fs::create_dir(dir.join("folder.jsonl")).unwrap();

    let paths: Vec<_> = list(dir, None).unwrap().into_iter().map(|session| session.path).collect();
    assert_eq!(paths, [new.clone(), old, other.clone()]);
    assert_eq!(newest(dir, None).unwrap().unwrap().path, new);
    assert_eq!(newest(dir, Some("/other")).unwrap().unwrap().path, other);
    assert!(newest(dir, Some("/none")).unwrap().is_none());
    let by_id = |id| find_by_id(dir, id).unwrap().map(|session| session.path);
    assert_eq!(by_id("abc"), Some(other), "the exact id comes first");
    assert_eq!(by_id("ab"), Some(new), "then the last written with the prefix");
    assert_eq!((by_id("x"), by_id("")), (None, None));
    assert!(newest(&dir.join("none"), None).unwrap().is_none());
    assert_eq!(session_dirs(dir).unwrap(), [dir.join("folder.jsonl")]);
}

#[test]
fn a_live_session_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(header("s"), Some(dir.path())).unwrap();
    assert!(newest(dir.path(), None).unwrap().is_none(), "untouched sessions leave nothing to continue");
    store.append(&user("a", None)).unwrap();
    assert_eq!(newest(dir.path(), Some("/w")).unwrap().unwrap().path, store.path().unwrap());
}

fn forked(id: &str, parent: &Path) -> Header {
    Header { parent_session: Some(parent.to_str().unwrap().into()), ..header(id) }
}

#[test]
fn a_fork_has_the_branch_with_its_labels_and_one_header() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    let label = r#"{"type":"label","id":"l","parentId":"b","timestamp":"2024-12-03T14:02:48.000Z","targetId":"a","label":"x"}"#;
    let line = |entry: atomic_protocol::entry::Entry| String::from_utf8(entry.to_line()).unwrap();
    write(
        &path,
        &[
            HEADER,
            &line(model("m", None)),
            &line(user("a", Some("m"))),
            &line(user("b", Some("a"))),
            label,
            &line(user("c", Some("l"))),
            &line(user("other", Some("a"))),
        ],
    );
    let before = fs::read(&path).unwrap();
    let (store, _) = Store::open(&path).unwrap();

    let mut fork = store.fork(Some(&"c".into()), forked("f", &path), Some(dir.path())).unwrap();
    assert!(fork.is_written());
    assert_eq!(ids(&fork)[..4], ["m", "a", "b", "c"]);
    assert_eq!(
        branch_ids(&fork, "c"),
        ["m", "a", "b", "c"],
        "the label was a parent; its child is no orphan"
    );
    let copied = &fork.entries()[4];
    assert!(
        copied.line.as_str().ends_with(
            r#""parentId":"c","timestamp":"2024-12-03T14:02:48.000Z","targetId":"a","label":"x"}"#
        )
    );
    let leaf = fork.leaf().unwrap().to_string();
    assert_eq!(leaf, copied.id.as_str());
    fork.append(&user("d", Some(&leaf))).unwrap();
    let text = fs::read_to_string(fork.path().unwrap()).unwrap();
    assert_eq!((text.lines().count(), text.matches("\"type\":\"session\"").count()), (7, 1));
    assert!(text.lines().next().unwrap().contains("parentSession"));

    // Nothing said yet: nothing written, and then all of it once.
    let mut early = store.fork(Some(&"m".into()), forked("e", &path), Some(dir.path())).unwrap();
    assert!(!early.is_written() && !early.path().unwrap().exists());
    early.append(&user("n", Some("m"))).unwrap();
    assert_eq!(fs::read_to_string(early.path().unwrap()).unwrap().lines().count(), 3);

    let empty = store.fork(None, forked("g", &path), Some(dir.path())).unwrap();
    assert!(empty.entries().is_empty());
    assert!(matches!(
        store.fork(Some(&EntryId::from("none")), forked("h", &path), None),
        Err(Error::EntryNotFound { .. })
    ));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_is_forked_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.jsonl");
    write(
        &path,
        &[HEADER, r#"{"type":"message", "id":"a","parentId":"gone","message":{"role":"user"}}"#, "torn"],
    );
    let fork = fork_file(&path, forked("f", &path), Some(&dir.path().join("d"))).unwrap();
    let text = fs::read_to_string(fork.path().unwrap()).unwrap();
    assert_eq!(
        text.lines().skip(1).collect::<Vec<_>>(),
        [r#"{"type":"message", "id":"a","parentId":"gone","message":{"role":"user"}}"#]
    );
    fs::write(&path, "# Read me").unwrap();
    assert!(matches!(fork_file(&path, header("g"), None), Err(Error::NotASession { .. })));
}

#[test]
fn import_copies_and_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("s.jsonl");
    write(&source, &[HEADER]);
    let into = dir.path().join("sessions");
    let copy = import(&source, &into).unwrap();
    assert_eq!(copy, into.join("s.jsonl"));
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&source).unwrap());
    assert_eq!(import(&copy, &into).unwrap(), copy, "what lies there already is not copied");
    assert!(matches!(import(&source, &into), Err(Error::Exists { .. })));
    let foreign = dir.path().join("passwd");
    fs::write(&foreign, "root:x:0:0\n").unwrap();
    assert!(matches!(import(&foreign, &into), Err(Error::NotASession { .. })));
    assert!(matches!(import(dir.path(), &into), Err(Error::NotAFile { .. })));
    assert!(matches!(import(&dir.path().join("none"), &into), Err(Error::NotFound { .. })));
    assert_eq!(fs::read_dir(&into).unwrap().count(), 1);
}
