//! The store as its users see it, on real files.

#[cfg(unix)]
mod unix;

mod append;
mod context;
mod derive;
mod listing;
mod speed;
mod tolerance;

use std::path::Path;

use atomic_protocol::Raw;
use atomic_protocol::entry::{Entry, EntryBody, EntryId, Header};
use atomic_protocol::time::Millis;
use atomic_session_store::Store;

const TIME: Millis = Millis(1_733_234_567_890);

fn header(id: &str) -> Header {
    Header { id: id.into(), timestamp: TIME, cwd: "/w".into(), parent_session: None }
}

fn entry(id: &str, parent: Option<&str>, body: EntryBody) -> Entry {
    Entry { id: id.into(), parent_id: parent.map(EntryId::from), timestamp: TIME, body }
}

fn message(id: &str, parent: Option<&str>, json: &str) -> Entry {
    entry(id, parent, EntryBody::Message(Raw::parse(json).unwrap()))
}

fn user(id: &str, parent: Option<&str>) -> Entry {
    message(id, parent, &format!(r#"{{"role":"user","content":"{id}","timestamp":1}}"#))
}

fn model(id: &str, parent: Option<&str>) -> Entry {
    entry(
        id,
        parent,
        EntryBody::ModelChange { provider: "p".into(), model_id: "m".into(), in_place_of: None },
    )
}

/// A session file of these lines, each with its LF.
fn write(path: &Path, lines: &[&str]) {
    std::fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

fn ids(store: &Store) -> Vec<&str> {
    store.entries().iter().map(|entry| entry.id.as_str()).collect()
}

fn branch_ids<'a>(store: &'a Store, leaf: &str) -> Vec<&'a str> {
    store.branch(Some(&leaf.into())).into_iter().map(|at| store.entries()[at].id.as_str()).collect()
}

const HEADER: &str =
    r#"{"type":"session","version":3,"id":"s","timestamp":"2024-12-03T14:02:47.890Z","cwd":"/w"}"#;
