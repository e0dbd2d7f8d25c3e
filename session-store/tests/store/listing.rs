//! Listings: what they say, what they read, and how little they believe their index.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atomic_session_store::{Listing, Summary, listing, search};

use crate::{HEADER, write};

struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { root: tempfile::tempdir().unwrap() }
    }

    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.root.path().join("sessions").join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn index(&self) -> PathBuf {
        self.root.path().join("cache/sessions-index.jsonl")
    }

    /// Listed a minute later, when every file has settled.
    fn list(&self, dirs: &[PathBuf]) -> Listing {
        let now = SystemTime::now() + Duration::from_secs(60);
        listing(dirs, None, Some(&self.index()), now).unwrap()
    }
}

fn header(id: &str, cwd: &str) -> String {
    format!(
        r#"{{"type":"session","version":3,"id":"{id}","timestamp":"2024-12-03T14:02:47.890Z","cwd":"{cwd}"}}"#
    )
}

fn said(id: &str, role: &str, time: u64, text: &str) -> String {
    format!(
        r#"{{"type":"message","id":"{id}","parentId":null,"message":{{"role":"{role}","content":[{{"type":"text","text":"{text}"}}],"timestamp":{time}}}}}"#
    )
}

fn session(dir: &Path, id: &str, lines: &[&str]) -> PathBuf {
    let path = dir.join(format!("{id}.jsonl"));
    let header = header(id, "/w");
    write(&path, &[&[header.as_str()], lines].concat());
    path
}

fn ids(sessions: &[Summary]) -> Vec<&str> {
    sessions.iter().map(|session| session.id.as_str()).collect()
}

const NEWER: u64 = 1_800_000_000_000;

#[test]
fn a_summary_says_what_a_person_looks_for() {
    let place = Place::new();
    let dir = place.dir("a");
    let tool = r#"{"type":"message","id":"t","message":{"role":"toolResult","content":[],"timestamp":9900000000000}}"#;
    let summary =
        r#"{"type":"session_summary","id":"u","summary":"All about beans","summarizedThroughId":"c"}"#;
    session(
        &dir,
        "s",
        &[
            r#"{"type":"session_info","id":"n","name":" first name "}"#,
            &said("a", "assistant", 5, "hm"),
            &said("b", "user", NEWER, "  wörld \\n"),
            "not json",
            &said("c", "assistant", NEWER - 1, "x"),
            tool,
            summary,
            r#"{"type":"session_info","id":"m","name":"second"}"#,
        ],
    );
    let listed = place.list(std::slice::from_ref(&dir));
    let found = &listed.sessions[0];
    assert_eq!((found.id.as_str(), found.cwd.as_str(), found.name.as_deref()), ("s", "/w", Some("second")));
    assert_eq!((found.message_count, found.first_message.as_str(), found.has_name), (4, "wörld", true));
    assert_eq!((found.modified.0, found.created.iso().as_str()), (NEWER, "2024-12-03T14:02:47.890Z"));
    assert_eq!(found.summary.as_deref(), Some("All about beans"));
    assert_eq!(found.size, fs::metadata(&found.path).unwrap().len());

    // A summary counts only while it covers everything, a name until it is cleared, the first message not for ever.
    session(
        &dir,
        "t",
        &[
            &said("c", "user", 1, &"ä".repeat(5_000)),
            &summary.replace("\"c\"", "\"b\""),
            r#"{"type":"session_info","id":"n","name":"x"}"#,
            r#"{"type":"session_info","id":"m"}"#,
        ],
    );
    let listed = place.list(&[dir]);
    assert_eq!(ids(&listed.sessions), ["s", "t"], "the last spoken in first");
    let found = &listed.sessions[1];
    assert_eq!((found.summary.as_deref(), found.name.as_deref(), found.has_name), (None, None, true));
    assert_eq!(found.first_message, "ä".repeat(Summary::FIRST_MESSAGE_CHARS));
}

#[test]
fn a_file_is_read_again_when_it_has_changed_and_only_then() {
    let place = Place::new();
    let (a, b) = (place.dir("a"), place.dir("b"));
    let both = [a.clone(), b.clone()];
    let grows = session(&a, "grows", &[&said("1", "user", 1, "one")]);
    session(&a, "stays", &[]);
    let other = session(&b, "other", &[]);
    fs::write(a.join("notes.jsonl"), "no session\n").unwrap();
    let first = place.list(&both);
    assert_eq!((first.read, first.sessions.len(), first.unreadable.len()), (4, 3, 0));
    assert!(first.not_kept.is_none());
    let again = place.list(&both);
    assert_eq!((again.read, &again.sessions), (0, &first.sessions), "what is no session is known as well");

    write(&grows, &[&header("grows", "/w"), &said("1", "user", 1, "one"), &said("2", "user", 2, "two")]);
    let after = place.list(&both);
    assert_eq!(after.read, 1);
    assert_eq!(after.sessions.iter().find(|found| found.id == "grows").unwrap().message_count, 2);

    // A listing of one directory keeps what is known of the others.
    assert_eq!((place.list(std::slice::from_ref(&a)).sessions.len(), place.list(&both).read), (2, 0));
    fs::remove_file(&other).unwrap();
    assert_eq!((place.list(&both).sessions.len(), place.list(&both).read), (2, 0));
    let index = fs::read_to_string(place.index()).unwrap();
    assert!(!index.contains("other"), "what is gone is forgotten: {index}");
    fs::remove_dir_all(&b).unwrap();
    assert_eq!(place.list(&both).sessions.len(), 2);
}

#[test]
fn a_file_of_this_very_moment_is_not_kept() {
    let place = Place::new();
    let dir = place.dir("a");
    session(&dir, "s", &[]);
    for _ in 0..2 {
        let now = SystemTime::now();
        assert_eq!(listing(std::slice::from_ref(&dir), None, Some(&place.index()), now).unwrap().read, 1);
    }
}

/// Whatever stands in the index, the files are what is listed.
#[test]
fn a_broken_index_is_made_anew() {
    let place = Place::new();
    let dirs = [place.dir("a")];
    session(&dirs[0], "s", &[]);
    let good = place.list(&dirs).sessions;
    let index = fs::read_to_string(place.index()).unwrap();
    let (head, rest) = index.split_once('\n').unwrap();
    for broken in [
        "".to_owned(),
        "\0\0\0".to_owned(),
        head.to_owned(),
        rest.to_owned(),
        index.replace("\"version\":1", "\"version\":2"),
        index[..index.len() - 20].to_owned(),
        format!("{index}garbage\n"),
        index.replace("\"size\":", "\"size\":-"),
    ] {
        fs::write(place.index(), &broken).unwrap();
        let listed = place.list(&dirs);
        assert_eq!((&listed.sessions, listed.read), (&good, 1), "{broken:?}");
        assert_eq!(fs::read_to_string(place.index()).unwrap(), index);
    }
    // An index that speaks of files that never were.
    let invented = format!("{index}{}", rest.replace("s.jsonl", "t.jsonl"));
    fs::write(place.index(), invented).unwrap();
    assert_eq!(place.list(&dirs).sessions, good);
    // A directory in its place: listed all the same, and said.
    fs::remove_file(place.index()).unwrap();
    fs::create_dir(place.index()).unwrap();
    let listed = place.list(&dirs);
    assert_eq!(listed.sessions, good);
    assert!(listed.not_kept.unwrap().to_string().contains("sessions-index.jsonl"));
}

#[test]
fn what_is_no_session_is_left_out_and_what_cannot_be_read_is_named() {
    let place = Place::new();
    let dir = place.dir("a");
    for (name, content) in [("empty", ""), ("text", "# Read me\n"), ("torn", &HEADER[..40]), ("json", "{}\n")]
    {
        fs::write(dir.join(format!("{name}.jsonl")), content).unwrap();
    }
    fs::create_dir(dir.join("folder.jsonl")).unwrap();
    fs::write(dir.join("big.jsonl"), "x\n".repeat(1 << 20)).unwrap();
    let internal = HEADER.replace(
        "\"id\":\"s\"",
        r#""id":"i","internal":true,"workflow":{"runId":"r","stageId":"s","stageName":"n"}"#,
    );
    fs::write(dir.join("internal.jsonl"), internal).unwrap();
    fs::write(dir.join("bak.jsonl.v1.bak"), HEADER).unwrap();
    // No line end, a byte order mark, zeros: still a session.
    fs::write(dir.join("s.jsonl"), format!("\u{feff}{HEADER}\n{}\0\0\0", said("a", "user", 1, "x"))).unwrap();
    let listed = place.list(&[dir, place.root.path().join("missing")]);
    assert_eq!((ids(&listed.sessions), listed.unreadable.len()), (vec!["s"], 0));
    assert_eq!(listed.sessions[0].message_count, 1);
}

#[test]
fn every_word_is_found_in_what_was_said_and_in_nothing_else() {
    let place = Place::new();
    let dir = place.dir("a");
    session(
        &dir,
        "s",
        &[
            r#"{"type":"session_info","id":"n","name":"Garden"}"#,
            &said("a", "user", 1, "Plant the BEANS"),
            &said("b", "assistant", 2, "Übung macht \\\"den\\\" Meister"),
            r#"{"type":"message","id":"t","message":{"role":"toolResult","content":[{"type":"text","text":"secret \"user\""}]}}"#,
        ],
    );
    session(&dir, "t", &[&said("a", "user", 1, "beans")]);
    for (query, want) in [
        ("beans", vec!["s", "t"]),
        ("beans meister", vec!["s"]),
        ("GARDEN übung", vec!["s"]),
        ("\"den\"", vec!["s"]),
        ("secret", vec![]),
        ("beans zebra", vec![]),
        ("", vec!["s", "t"]),
        ("/w t", vec!["s", "t"]),
    ] {
        let mut found = search(place.list(std::slice::from_ref(&dir)).sessions, query);
        found.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!(ids(&found), want, "{query}");
    }
}

#[cfg(unix)]
#[test]
fn the_index_is_for_its_owner_and_pipes_are_not_waited_for() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::new();
    let dir = place.dir("a");
    session(&dir, "s", &[]);
    assert!(std::process::Command::new("mkfifo").arg(dir.join("p.jsonl")).status().unwrap().success());
    assert_eq!(place.list(&[dir]).sessions.len(), 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&place.index()), mode(place.index().parent().unwrap())), (0o600, 0o700));
}
