//! Disks that are full or read-only: the run ends with the file's name, nothing announced is missing, nothing half
//! written is left, other sessions do not notice, and all goes on when there is room again.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use atomic_tests::mounts::{fill, mount, remount, with_mounts};
use atomic_tests::{ModelServer, Record, Sandbox, SessionFile, Shim, anthropic, kinds, the_only};
use serde_json::{Value, json};

/// Longer than what a full file system still has room for: the rest of a page that is begun.
const LONG: usize = 5_000;

fn long(what: &str) -> String {
    format!("{what} {}", "x".repeat(LONG))
}

#[track_caller]
fn talk(server: &ModelServer, shim: &mut Shim, question: &str, answer: &str) -> Vec<Record> {
    server.prepare(anthropic::text(answer));
    let answered = shim.ask(json!({"type": "prompt", "message": question}));
    assert!(answered.succeeded(), "{}", answered.raw);
    let records = shim.until_settled();
    assert!(
        !records.iter().any(|record| record["message"]["stopReason"] == "error"),
        "{:#?}",
        kinds(&records)
    );
    records
}

/// Every line is whole, the parents come first, and each message that was announced is there, once.
#[track_caller]
fn holds_all(file: &SessionFile, announced: &[Record]) {
    assert_eq!(file.bytes().last(), Some(&b'\n'), "no line is half written");
    let entries = file.entries();
    for (at, entry) in entries.iter().enumerate() {
        let parent = &entry["parentId"];
        assert!(parent.is_null() || entries[..at].iter().any(|before| before["id"] == *parent), "{entry}");
    }
    let stored = file.messages();
    let ended = announced.iter().filter(|record| record.kind() == "message_end");
    // What only says that the file failed cannot be in the file.
    for record in ended.filter(|record| !record.raw.contains("cannot write to the session file")) {
        let times = stored.iter().filter(|message| **message == record["message"]).count();
        assert_eq!(times, 1, "{}", record.raw);
    }
}

/// The record that says which file could not be written, and why.
#[track_caller]
fn failure(records: &[Record], why: &str) -> String {
    let end = the_only(records, "the failure", |record| {
        record.is_message("message_end", "assistant") && record["message"]["stopReason"] == "error"
    });
    let text = end["message"]["errorMessage"].as_str().expect("a text").to_owned();
    assert!(text.contains("s.jsonl") && text.contains(why), "{text}");
    assert_eq!(records.iter().filter(|record| record.kind() == "agent_end").count(), 1);
    text
}

#[test]
fn a_disk_that_fills_up_during_an_answer_costs_that_answer_only() {
    with_mounts("a_disk_that_fills_up_during_an_answer_costs_that_answer_only", || {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let disk = sandbox.dir("disk");
        mount(&disk, "size=256k");
        let path = disk.join("s.jsonl");
        let file = SessionFile::at(&path);
        let mut shim = sandbox.shim().args(["--session", file.arg()]).start();
        let mut other = sandbox.rpc();
        let mut heard = talk(&server, &mut shim, "one?", "one");

        shim.prompt("2", "two?");
        let mut exchange = server.next_request();
        let answer = long("so");
        exchange.begin(&anthropic::texts(&["so ", &answer]), 4);
        shim.wait_for_delta("so ");
        fill(&disk, "filler");
        let before = file.bytes();
        exchange.event(&anthropic::text_delta(0, &answer));
        exchange.event(&anthropic::block_stop(0));
        exchange.event(&anthropic::message_delta("end_turn"));
        exchange.event(&anthropic::message_stop());
        exchange.finish();
        let records = shim.until_settled();
        failure(&records, "No space left on device");
        heard.extend(records);
        assert_eq!(file.bytes(), before, "what did not fit was taken back");

        // What has to be kept is refused, with the same reason; what is only read is answered.
        let refused = shim.ask(json!({"type": "set_session_name", "name": long("name")}));
        assert!(refused.error().contains("s.jsonl"), "{}", refused.raw);
        for _ in 0..3 {
            let refused = shim.ask(json!({"type": "prompt", "message": long("three?")}));
            assert!(refused.error().contains("No space left on device"), "{}", refused.raw);
        }
        assert_eq!(server.requests().len(), 2, "a message that is not kept is not sent");
        assert_eq!(file.bytes(), before);
        let state = shim.get("get_state");
        assert_eq!((&state["isStreaming"], &state["messageCount"]), (&json!(false), &json!(3)));
        talk(&server, &mut other, "and you?", "fine");

        fs::remove_file(disk.join("filler")).expect("the filler");
        shim.rest();
        heard.extend(talk(&server, &mut shim, &long("four?"), &long("four")));
        assert_eq!(shim.get("get_state")["messageCount"], 5);
        holds_all(&file, &heard);
        shim.kill();
        sandbox.kill_daemon();
        let mut again = sandbox.shim().args(["--session", file.arg()]).start();
        assert_eq!(again.get("get_messages")["messages"], json!(file.messages()));
        assert_eq!(again.stderr(), "", "nothing of the file is odd");
    });
}

/// The model's own command fills the disk: its result cannot be kept, so the model is not asked again.
#[test]
fn a_tool_that_fills_the_disk_ends_its_run() {
    with_mounts("a_tool_that_fills_the_disk_ends_its_run", || {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let disk = sandbox.dir("disk");
        mount(&disk, "size=256k");
        let file = SessionFile::at(disk.join("s.jsonl"));
        let mut shim = sandbox.shim().args(["--session", file.arg()]).start();
        let mut heard = talk(&server, &mut shim, "one?", "one");
        let command = format!("seq 1 2000; head -c 1M /dev/zero > {}/filler", disk.display());
        server.prepare(anthropic::tool_call("c1", "bash", json!({"command": command})));
        shim.prompt("2", "fill it");
        let records = shim.until_settled();
        failure(&records, "No space left on device");
        let end = the_only(&records, "the call's end", |record| record.kind() == "tool_execution_end");
        assert_eq!(end["toolCallId"], "c1");
        heard.extend(records);
        assert_eq!(server.requests().len(), 2);

        fs::remove_file(disk.join("filler")).expect("the filler");
        shim.rest();
        heard.extend(talk(&server, &mut shim, "go on", "yes"));
        // The call that was left open is answered for the model.
        let request = server.last_request();
        assert!(request.body.to_string().contains("tool_result"), "{:#?}", request.conversation());
        holds_all(&file, &heard);
    });
}

#[test]
fn a_file_that_cannot_be_created_for_want_of_room_is_created_later() {
    with_mounts("a_file_that_cannot_be_created_for_want_of_room_is_created_later", || {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let disk = sandbox.dir("disk");
        // The root and one file: then there are no inodes.
        mount(&disk, "size=256k,nr_inodes=2");
        fs::write(disk.join("filler"), "").expect("the last inode");
        let file = SessionFile::at(disk.join("s.jsonl"));
        let mut shim = sandbox.shim().args(["--session", file.arg()]).start();
        shim.prompt("1", "one?");
        failure(&shim.until_settled(), "No space left on device");
        let refused = shim.ask(json!({"type": "prompt", "message": "one?"}));
        assert!(refused.error().contains("s.jsonl"), "{}", refused.raw);
        assert!(!file.exists());
        fs::remove_file(disk.join("filler")).expect("the filler");
        // An inode, but no room in it: nothing is left of the attempt.
        remount(&disk, "size=4k,nr_inodes=3");
        fill(&disk, "filler");
        let refused = shim.ask(json!({"type": "prompt", "message": "one?"}));
        assert!(refused.error().contains("s.jsonl"), "{}", refused.raw);
        assert!(!file.exists(), "an empty file is no session");
        fs::remove_file(disk.join("filler")).expect("the filler");
        remount(&disk, "size=256k");
        shim.rest();
        let heard = talk(&server, &mut shim, "one?", "one");
        holds_all(&file, &heard);
        assert_eq!(file.messages().len(), 2);
    });
}

#[test]
fn on_a_read_only_disk_sessions_are_read_and_begin_when_it_is_writable_again() {
    with_mounts("on_a_read_only_disk_sessions_are_read_and_begin_when_it_is_writable_again", || {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let disk = sandbox.dir("disk");
        mount(&disk, "size=256k");
        let old = SessionFile::at(disk.join("old.jsonl"));
        let mut shim = sandbox.shim().args(["--session", old.arg()]).start();
        talk(&server, &mut shim, "one?", "one");
        shim.kill();
        sandbox.kill_daemon();
        remount(&disk, "ro");
        let before = old.bytes();

        // One that is there is not opened for writing, and can be read.
        let refused = sandbox.atomic(&["--mode", "rpc", "--session", old.arg()]).expect_code(1);
        assert!(
            refused.stderr.contains("old.jsonl") && refused.stderr.contains("Read-only"),
            "{}",
            refused.stderr
        );
        let shown = sandbox.atomic(&["sessions", "show", old.arg(), "--json"]).expect_code(0);
        let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
        assert_eq!(shown["stats"]["userMessages"], 1);
        sandbox.atomic(&["sessions", "export", old.arg(), "page.html"]).expect_code(0);
        for arguments in [["rename", old.arg(), "name"], ["delete", "-y", old.arg()]] {
            let refused = sandbox.atomic(&[&["sessions"][..], &arguments].concat()).expect_code(1);
            assert!(refused.stderr.contains("old.jsonl"), "{}", refused.stderr);
        }
        // A session that goes elsewhere begins with what it holds.
        let mut fork = sandbox.shim().args(["--fork", old.arg()]).start();
        assert_eq!(fork.get("get_state")["messageCount"], 2);
        fork.finish().expect_code(0);

        // A new one is refused by name as long as it cannot be kept.
        let file = SessionFile::at(disk.join("s.jsonl"));
        let mut shim = sandbox.shim().args(["--session", file.arg()]).start();
        shim.prompt("1", "hello?");
        failure(&shim.until_settled(), "Read-only");
        let refused = shim.ask(json!({"type": "prompt", "message": "hello?"}));
        assert!(refused.error().contains("s.jsonl"), "{}", refused.raw);
        assert_eq!(old.bytes(), before);
        remount(&disk, "rw");
        shim.rest();
        let heard = talk(&server, &mut shim, "hello?", "hello");
        holds_all(&file, &heard);
    });
}

/// An old file is rewritten only when it is kept, and the copy needs room.
#[test]
fn an_old_file_is_not_rewritten_without_room_for_its_copy() {
    with_mounts("an_old_file_is_not_rewritten_without_room_for_its_copy", || {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let disk = sandbox.dir("disk");
        mount(&disk, "size=256k");
        let cwd = serde_json::to_string(&sandbox.project()).expect("a path");
        let old = format!(
            "{{\"type\":\"session\",\"id\":\"old\",\"timestamp\":\"2024-01-01T00:00:00.000Z\",\"cwd\":{cwd}}}\n\
             {{\"type\":\"message\",\"timestamp\":\"2024-01-01T00:00:00.000Z\",\"message\":{{\"role\":\"user\",\
             \"content\":\"hi {}\",\"timestamp\":1}}}}\n",
            "x".repeat(LONG)
        );
        let path = disk.join("old.jsonl");
        fs::write(&path, &old).expect("the old file");
        fill(&disk, "filler");
        let names = |dir: &Path| {
            let mut names: Vec<_> = fs::read_dir(dir)
                .expect("the disk")
                .map(|entry| entry.expect("an entry").file_name())
                .collect();
            names.sort();
            names
        };
        let before = names(&disk);
        let refused =
            sandbox.atomic(&["--mode", "rpc", "--session", path.to_str().expect("UTF-8")]).expect_code(1);
        for part in ["old.jsonl", "No space left on device", "unchanged"] {
            assert!(refused.stderr.contains(part), "{}", refused.stderr);
        }
        assert_eq!(fs::read_to_string(&path).expect("the file"), old);
        assert_eq!(names(&disk), before, "no half copy is left");
        fs::remove_file(disk.join("filler")).expect("the filler");
        let mut shim = sandbox.attach(path.to_str().expect("UTF-8"));
        assert_eq!(shim.get("get_state")["messageCount"], 1);
        assert_eq!(fs::read_to_string(disk.join("old.jsonl.v1.bak")).expect("the copy"), old);
        shim.finish().expect_code(0);
    });
}

/// The index of sessions is a cache: where it cannot be written, sessions are listed all the same, and one is told.
#[test]
fn a_listing_needs_no_room_for_its_index() {
    with_mounts("a_listing_needs_no_room_for_its_index", || {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let mut shim = sandbox.rpc();
        talk(&server, &mut shim, "one?", "one");
        shim.finish().expect_code(0);
        let cache = sandbox.dir("home/.atomic/agent/cache");
        mount(&cache, "size=4k");
        fill(&cache, "filler");
        let listed = sandbox.atomic(&["sessions", "--json"]).expect_code(0);
        let sessions: Value = serde_json::from_str(&listed.stdout).expect("JSON");
        assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1));
        for part in ["sessions-index.jsonl", "No space left on device"] {
            assert!(listed.stderr.contains(part), "{}", listed.stderr);
        }
        assert_eq!(fs::read_dir(&cache).expect("the cache").count(), 1, "no half index is left");
        remount(&cache, "ro");
        let listed = sandbox.atomic(&["sessions", "--json"]).expect_code(0);
        assert!(listed.stderr.contains("Read-only"), "{}", listed.stderr);
    });
}
