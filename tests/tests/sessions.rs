//! Session files: when they appear, what they hold, and going on where they stopped.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt as _;

use atomic_tests::{
    MODEL, ModelServer, PROVIDER, Record, Sandbox, SessionFile, Shim, anthropic, eventually, keys, kinds,
};
use serde_json::{Value, json};

fn talk(server: &ModelServer, shim: &mut Shim, question: &str, answer: &str) -> Vec<Record> {
    server.prepare(anthropic::text(answer));
    shim.rest();
    shim.prompt("talk", question);
    shim.until_settled()
}

/// The session's file after one exchange, with the shim killed and the daemon too.
fn left_behind(server: &ModelServer, sandbox: &Sandbox) -> SessionFile {
    let mut shim = sandbox.rpc();
    talk(server, &mut shim, "one?", "one");
    let file = shim.session_file();
    shim.kill();
    sandbox.kill_daemon();
    file
}

#[test]
fn the_file_appears_with_the_first_message() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let file = shim.session_file();
    assert!(!file.exists(), "an untouched session leaves none");
    let encoded = sandbox.project().display().to_string()[1..].replace('/', "-");
    let expected = sandbox.agent_dir().join("sessions").join(format!("--{encoded}--"));
    assert_eq!(file.path().parent(), Some(expected.as_path()));

    shim.prompt("1", "hi");
    let exchange = server.next_request();
    // The user's message is announced before the model is asked.
    shim.wait_for("the user's message", |record| record.is_message("message_end", "user"));
    let lines = file.lines();
    assert_eq!(keys(&lines[0]), ["type", "version", "id", "timestamp", "cwd"]);
    assert_eq!(
        (&lines[0]["type"], &lines[0]["version"], &lines[0]["cwd"]),
        (&json!("session"), &json!(3), &json!(sandbox.project()))
    );
    assert_eq!(lines[0]["id"], shim.get("get_state")["sessionId"]);
    assert!(lines[0]["timestamp"].as_str().is_some_and(|time| time.ends_with('Z') && time.len() == 24));
    let kinds: Vec<&Value> = lines.iter().map(|line| &line["type"]).collect();
    assert_eq!(json!(kinds), json!(["session", "model_change", "thinking_level_change", "message"]));
    assert_eq!((&lines[1]["provider"], &lines[1]["modelId"]), (&json!(PROVIDER), &json!(MODEL)));
    assert_eq!(lines[2]["thinkingLevel"], "medium");
    assert_eq!(keys(&lines[3]), ["type", "id", "parentId", "timestamp", "message"]);
    exchange.answer(&anthropic::text("hello"));
    shim.until_settled();
    let mode = file.path().metadata().expect("the file").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "a conversation is private");
}

#[test]
fn what_is_announced_is_in_the_file() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let file = shim.session_file();
    server.prepare(anthropic::tool_calls(&[
        ("c1", "bash", json!({"command": "echo 1"})),
        ("c2", "bash", json!({"command": "echo 2"})),
    ]));
    server.prepare(anthropic::thinking("hm", "sig", "done"));
    shim.prompt("1", "go");
    let mut announced = Vec::new();
    loop {
        let record = shim.wait_for("a message's end or the run's", |record| {
            ["message_end", "agent_settled"].contains(&record.kind())
        });
        if record.kind() == "agent_settled" {
            break;
        }
        announced.push(record["message"].clone());
        let stored = file.messages();
        assert!(stored.len() >= announced.len(), "announced before it was written: {}", record.raw);
        assert_eq!(json!(stored[..announced.len()]).to_string(), json!(announced).to_string());
    }
    assert_eq!(announced.len(), 5);
    assert_eq!(file.messages().len(), 5);
}

#[test]
fn no_session_leaves_nothing() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    talk(&server, &mut shim, "hi", "hello");
    shim.ask(json!({"type": "bash", "command": "echo x"})).data();
    shim.finish().expect_code(0);
    assert_eq!(sandbox.session_files(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_session_goes_on_after_the_daemon_was_killed() {
    for by_file in [true, false] {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let file = left_behind(&server, &sandbox);
        let before = file.lines();
        let launch = if by_file {
            sandbox.shim().args(["--session", file.arg()])
        } else {
            sandbox.shim().args(["--continue"])
        };
        let mut shim = launch.start();
        let state = shim.get("get_state");
        assert_eq!(state["sessionFile"], json!(file.path()), "by_file: {by_file}");
        assert_eq!(state["sessionId"], before[0]["id"]);
        assert_eq!(state["messageCount"], 2);
        assert_eq!(shim.get("get_last_assistant_text")["text"], "one");
        talk(&server, &mut shim, "two?", "two");
        assert_eq!(server.last_request().conversation(), ["user: one?", "assistant: one", "user: two?"]);
        let after = file.lines();
        assert_eq!(after[..before.len()], before[..], "what was there stays");
        assert_eq!(after.len(), before.len() + 2, "nothing but the two new messages");
        assert_eq!(after[before.len()]["parentId"], before[before.len() - 1]["id"]);
    }
}

#[test]
fn a_session_is_found_by_id_and_from_another_directory() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let file = left_behind(&server, &sandbox);
    let id = file.lines()[0]["id"].as_str().expect("an id").to_owned();
    let mut by_id = sandbox.shim().args(["--session", &id]).start();
    assert_eq!(by_id.get("get_state")["sessionFile"], json!(file.path()));
    by_id.finish().expect_code(0);

    let mut elsewhere =
        sandbox.shim().directory(sandbox.dir("other")).args(["--session", file.arg()]).start();
    let project = format!("{}\n", sandbox.project().display());
    let pwd = elsewhere.ask(json!({"type": "bash", "command": "pwd"}));
    assert_eq!(pwd.data()["output"], project.as_str(), "a session keeps its directory");
    elsewhere.finish().expect_code(0);

    let unknown = sandbox.atomic(&["--mode", "rpc", "--session", "no-such-id"]).expect_code(1);
    assert!(unknown.stderr.contains("No session found matching 'no-such-id'"), "{}", unknown.stderr);
    assert_eq!(unknown.stdout, "");
}

#[test]
fn continue_takes_the_newest_of_this_directory_and_else_begins_anew() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut files = Vec::new();
    for (directory, question) in [("project", "old"), ("other", "foreign"), ("project", "new")] {
        let mut shim = sandbox.shim().directory(sandbox.dir(directory)).start();
        talk(&server, &mut shim, question, "ok");
        files.push(shim.session_file());
        shim.finish().expect_code(0);
    }
    sandbox.kill_daemon();
    let mut shim = sandbox.shim().args(["-c"]).start();
    assert_eq!(shim.session_file().path(), files[2].path());
    let mut fresh = sandbox.shim().directory(sandbox.dir("third")).args(["-c"]).start();
    assert_eq!(fresh.get("get_state")["messageCount"], 0);
}

#[test]
fn a_path_that_does_not_exist_becomes_the_session() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let path = sandbox.project().join("mine.jsonl");
    let mut shim = sandbox.shim().args(["--session", "mine.jsonl"]).start();
    talk(&server, &mut shim, "hi", "hello");
    assert_eq!(shim.session_file().path(), path);
    assert_eq!(SessionFile::at(&path).messages().len(), 2);
}

#[test]
fn a_call_that_the_crash_left_open_is_answered_for_the_model() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::tool_call("c1", "bash", json!({"command": "echo up; sleep 621"})));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "go");
    shim.wait_for("the call's output", |record| record.shows_output("up"));
    let file = shim.session_file();
    shim.kill();
    sandbox.kill_daemon();
    let mut shim = sandbox.shim().args(["--session", file.arg()]).start();
    talk(&server, &mut shim, "and?", "sorry");
    let request = server.last_request();
    let conversation = request.conversation();
    assert_eq!(conversation[..2], ["user: go", "assistant: [bash]"], "{conversation:#?}");
    assert!(conversation[2].starts_with("user: [result] "), "{conversation:#?}");
    assert_eq!(conversation[3], "user: and?");
    let result = &request.body["messages"][2]["content"][0];
    assert_eq!((&result["tool_use_id"], &result["is_error"]), (&json!("c1"), &json!(true)));
}

#[test]
fn a_torn_last_line_costs_only_itself() {
    // In the middle of JSON, in the middle of a character, and zeros as after a power loss.
    for torn in
        [&b"{\"type\":\"message\",\"id\":\"ffff"[..], b"{\"type\":\"label\",\"x\":\"\xf0\x9f", b"\0\0\0\0"]
    {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let file = left_behind(&server, &sandbox);
        let before = file.lines();
        let mut bytes = file.bytes();
        bytes.extend_from_slice(torn);
        std::fs::write(file.path(), &bytes).expect("the file");
        let mut shim = sandbox.shim().args(["--session", file.arg()]).start();
        assert_eq!(shim.get("get_state")["messageCount"], 2);
        talk(&server, &mut shim, "two?", "two");
        assert_eq!(server.last_request().conversation(), ["user: one?", "assistant: one", "user: two?"]);
        shim.finish().expect_code(0);
        let bytes = file.bytes();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && *line != torn);
        let parsed: Vec<Value> =
            lines.map(|line| serde_json::from_slice(line).expect("new lines stand on their own")).collect();
        assert_eq!(parsed.len(), before.len() + 2);
        assert_eq!(parsed[..before.len()], before[..]);
    }
}

#[test]
fn two_shims_on_one_file_are_in_one_session() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut first = sandbox.rpc();
    talk(&server, &mut first, "one?", "one");
    let file = first.session_file();
    let link = sandbox.project().join("link.jsonl");
    std::os::unix::fs::symlink(file.path(), &link).expect("a symlink");
    let mut second = sandbox.shim().args(["--session", "link.jsonl"]).start();
    assert_eq!(second.get("get_state")["sessionId"], first.get("get_state")["sessionId"]);
    first.rest();
    talk(&server, &mut second, "two?", "two");
    let seen = first.until_settled();
    assert!(seen.iter().any(|record| record.is_message("message_end", "assistant")), "events go to all");
    assert!(!seen.iter().any(Record::is_response), "answers go to the one who asked");
    let entries = file.entries();
    let ids: Vec<&Value> = entries.iter().map(|entry| &entry["id"]).collect();
    let parents: Vec<&Value> = entries.iter().map(|entry| &entry["parentId"]).collect();
    assert_eq!(parents[1..], ids[..ids.len() - 1], "one branch");
}

#[test]
fn new_session_begins_another_file() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let old = shim.session_file();
    let bytes = old.bytes();
    let new = json!({"id": "n", "type": "new_session", "parentSession": old.arg()});
    shim.send(new);
    let answer = shim.response("n");
    assert_eq!(
        answer.raw,
        r#"{"id":"n","type":"response","command":"new_session","success":true,"data":{"cancelled":false}}"#
    );
    let state = shim.get("get_state");
    assert_eq!(state["messageCount"], 0);
    assert_ne!(state["sessionFile"], json!(old.path()));
    let file = shim.session_file();
    assert!(!file.exists());
    talk(&server, &mut shim, "two?", "two");
    assert_eq!(server.last_request().conversation(), ["user: two?"]);
    assert_eq!(file.lines()[0]["parentSession"], json!(old.path()));
    assert_eq!(old.bytes(), bytes, "the old file is untouched");
}

#[test]
fn new_session_during_a_run_settles_it_first() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    shim.wait_for_delta("one ");
    let old = shim.session_file();
    shim.rest();
    shim.send(json!({"id": "n", "type": "new_session"}));
    let records = shim.until("the answer", |record| record["id"] == "n");
    assert_eq!(
        kinds(&records),
        ["message_end assistant", "turn_end", "agent_end", "agent_settled", "response new_session"]
    );
    assert_eq!(records[0]["message"]["stopReason"], "aborted");
    assert_eq!(old.messages().len(), 2, "the aborted answer is kept");
    exchange.wait_for_hang_up();
    shim.assert_quiet();
}

#[test]
fn a_command_records_into_the_session_where_it_began() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let old = shim.session_file();
    let command = "echo a; until [ -e go ]; do sleep 0.01; done; echo b";
    shim.send(json!({"id": "b", "type": "bash", "command": command}));
    shim.wait_for_kind("bash_execution_update");
    shim.ask(json!({"type": "new_session"})).data();
    sandbox.write("project/go", "");
    assert_eq!(shim.response("b").data()["output"], "a\nb\n");
    eventually("the result is in the old file", || {
        let recorded =
            old.messages().into_iter().filter(|message| message["role"] == "bashExecution").count();
        (recorded == 1).then_some(())
    });
    assert_eq!(shim.get("get_state")["messageCount"], 0, "and not in the new one");
}

#[test]
fn a_file_that_cannot_be_written_stops_the_run_and_says_so() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let directory = sandbox.dir("closed");
    let file = directory.join("s.jsonl");
    let mut shim = sandbox.shim().args(["--session", file.to_str().expect("UTF-8")]).start();
    shim.get("get_state");
    // Gone before the first append: opening it fails for root too.
    std::fs::remove_dir_all(&directory).expect("an empty directory");
    std::fs::write(&directory, "in the way").expect("a file");
    shim.rest();
    shim.prompt("1", "hi");
    let records = shim.until_settled();
    assert!(records.iter().any(|record| record.raw.contains("s.jsonl")), "{:#?}", kinds(&records));
    assert_eq!(
        records.iter().filter(|record| record.kind() == "agent_end").count(),
        1,
        "{:#?}",
        kinds(&records)
    );
    assert_eq!(shim.get("get_state")["isStreaming"], false);
    // From now on a prompt is accepted only when it is in the file.
    shim.prompt("2", "hi");
    let answer = shim.response("2");
    assert!(answer.error().contains("s.jsonl"), "{}", answer.raw);
    assert_eq!(server.requests().len(), 0, "a message that is not kept is not sent");

    std::fs::remove_file(&directory).expect("the file in the way");
    sandbox.dir("closed");
    server.prepare(anthropic::text("hello"));
    shim.rest();
    shim.prompt("3", "hi again");
    assert!(shim.until_settled()[0].succeeded());
    assert_eq!(server.last_request().conversation(), ["user: hi again"]);
    assert_eq!(SessionFile::at(&file).messages().len(), 2);
}

#[test]
fn what_is_asked_behind_new_session_is_asked_of_the_new_one() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    let old = shim.get("get_state")["sessionId"].clone();
    shim.send_together(&[
        json!({"id": "n", "type": "new_session"}),
        json!({"id": "s", "type": "get_state"}),
        json!({"id": "m", "type": "set_session_name", "name": "fresh"}),
        json!({"id": "t", "type": "get_state"}),
    ]);
    let new = shim.response("s").data().clone();
    assert_ne!(new["sessionId"], old);
    let named = shim.response("t").data().clone();
    assert_eq!((&named["sessionId"], &named["sessionName"]), (&new["sessionId"], &json!("fresh")));
}
