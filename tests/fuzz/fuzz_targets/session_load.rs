//! A session file of any bytes: opening never panics and changes nothing but an old version, once; what is appended is
//! there when it is opened again.
#![no_main]

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use atomic_session_store::{Problem, Store, context, labels, new_entry_id, tree};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

thread_local! {
    static DIR: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
}

fn file() -> PathBuf {
    DIR.with(|dir| dir.get_or_init(|| tempfile::tempdir().expect("a directory")).path().join("session.jsonl"))
}

fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("the file is there")
}

/// All that can be asked of a session. The leaf itself is returned: the last entry of the file.
fn look(store: &Store, problems: &[Problem]) -> Option<String> {
    for problem in problems {
        assert!(!problem.to_string().is_empty());
    }
    let leaf = store.leaf().cloned();
    assert_eq!(leaf.as_ref().map(|id| id.as_str()), store.entries().last().map(|entry| entry.id.as_str()));
    let branch = store.branch(leaf.as_ref());
    assert!(branch.len() <= store.entries().len() && branch.iter().all(|at| *at < store.entries().len()));
    for entry in store.entries() {
        assert!(store.find(entry.id.as_str()).is_some());
        assert!(serde_json::from_str::<&RawValue>(entry.line.as_str()).is_ok());
    }
    for (_, message) in context(store).messages {
        assert!(serde_json::from_str::<&RawValue>(message.as_str()).is_ok());
    }
    assert!(serde_json::from_str::<&RawValue>(tree(store).as_str()).is_ok());
    let _ = (labels(store), store.name(), store.stats(), store.header());
    leaf.map(|id| id.to_string())
}

fuzz_target!(|bytes: &[u8]| {
    let path = file();
    std::fs::write(&path, bytes).expect("a file");

    let peeked = Store::open_read_only(&path);
    assert_eq!(content(&path), bytes, "reading only changes nothing");
    let opened = Store::open(&path);
    let (mut store, problems) = match (opened, peeked) {
        (Err(error), Err(_)) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(content(&path), bytes, "a refused file is unchanged");
            return;
        }
        (Ok(opened), Ok((peeked, problems))) => {
            look(&peeked, &problems);
            assert_eq!(opened.0.entries().len(), peeked.entries().len());
            opened
        }
        (opened, peeked) => panic!("{:?} but {:?}", opened.err(), peeked.err()),
    };
    let after = content(&path);
    if after != bytes {
        let (was, _) = Store::open_read_only(&path).expect("a migrated file");
        assert_eq!(was.stored_header().version, 3, "only an old version is rewritten, as version 3");
    }
    let leaf = look(&store, &problems);
    let entries = store.entries().len();

    let id = new_entry_id(|id| store.find(id).is_some());
    let parent = leaf.map_or("null".to_owned(), |leaf| serde_json::to_string(&leaf).expect("a string"));
    let line = format!(
        r#"{{"type":"message","id":"{id}","parentId":{parent},"timestamp":"2026-01-01T00:00:00.000Z","message":{{"role":"user","content":"hello"}}}}"#
    );
    store.append_line(line.clone().into_bytes()).expect("an entry below the leaf");
    let mut want = after.clone();
    if want.last() != Some(&b'\n') {
        want.push(b'\n');
    }
    want.extend_from_slice(line.as_bytes());
    want.push(b'\n');
    assert_eq!(content(&path), want, "appending only appends");
    drop(store);

    let (again, problems) = Store::open(&path).expect("the same file");
    assert_eq!(content(&path), want, "nothing is migrated twice");
    assert_eq!(look(&again, &problems).as_deref(), Some(id.as_str()));
    // An open last line that was an entry stays one; a torn one stays skipped.
    assert_eq!(again.entries().len(), entries + 1);
});
