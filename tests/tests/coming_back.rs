//! Leaving a session and coming back to it: what stays in memory, and what the one who joins is told first.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Record, Sandbox, Shim, anthropic, eventually, kinds};
use serde_json::{Value, json};

fn live(sandbox: &Sandbox) -> Vec<Value> {
    let status = sandbox.atomic(&["status", "--json"]).expect_code(0);
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    status["sessions"].as_array().expect("a list").iter().map(|session| session["id"].clone()).collect()
}

/// A session of one question and one answer, and its id.
fn talked(server: &ModelServer, sandbox: &Sandbox, arguments: &[&str]) -> (Shim, Value) {
    let mut shim = sandbox.shim().args(arguments).start();
    server.prepare(anthropic::text("one"));
    shim.prompt("1", "one?");
    shim.until_settled();
    let id = shim.get("get_state")["sessionId"].clone();
    (shim, id)
}

#[test]
fn an_idle_session_is_unloaded_after_its_time_unless_it_is_kept() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    sandbox.write_settings(&json!({"daemon": {"unloadAfter": 0.3}}));
    let (mut watcher, watched) = talked(&server, &sandbox, &[]);
    let (mut kept, kept_id) = talked(&server, &sandbox, &["--on-disconnect", "keep"]);
    let (mut finished, finished_id) = talked(&server, &sandbox, &["--on-disconnect", "finish"]);
    kept.finish().expect_code(0);
    finished.finish().expect_code(0);
    eventually("the other one is unloaded", || (!live(&sandbox).contains(&finished_id)).then_some(()));
    let left = live(&sandbox);
    assert!(left.contains(&kept_id) && left.contains(&watched), "{left:?}");
    // The last leaver's word counts.
    let mut back = sandbox.shim().args(["--session", kept_id.as_str().expect("an id")]).start();
    assert_eq!(back.get("get_state")["messageCount"], 2);
    back.finish().expect_code(0);
    eventually("nobody keeps it any more", || (!live(&sandbox).contains(&kept_id)).then_some(()));
    assert_eq!(watcher.get("get_state")["messageCount"], 2);
}

#[test]
fn whoever_joins_during_a_tool_hears_its_start_and_its_last_update() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut first, id) = talked(&server, &sandbox, &[]);
    let gate = sandbox.project().join("gate");
    let command = "echo so far; while [ ! -e gate ]; do sleep 0.02; done; echo end";
    server.prepare(anthropic::tool_call("c1", "bash", json!({"command": command})));
    server.prepare(anthropic::text("done"));
    first.prompt("2", "go");
    first.wait_for("the output", |record| record.shows_output("so far"));
    let mut second = sandbox.shim().args(["--session", id.as_str().expect("an id")]).start();
    let begin: Vec<Record> = second.until("the update", |record| record.kind() == "tool_execution_update");
    assert_eq!(
        kinds(&begin),
        ["agent_start", "turn_start", "tool_execution_start c1", "tool_execution_update c1"]
    );
    assert_eq!(begin[2]["args"]["command"], command);
    assert!(begin[3].shows_output("so far"), "{}", begin[3].raw);
    std::fs::write(gate, "").expect("a file");
    let (one, two) = (first.until_settled(), second.until_settled());
    let from_end = |records: &[Record]| {
        let end = records.iter().position(|record| record.kind() == "tool_execution_end").expect("it ends");
        records[end..].iter().map(|record| record.raw.clone()).collect::<Vec<_>>()
    };
    assert_eq!(from_end(&one), from_end(&two), "the same from there on");
}

#[test]
fn whoever_joins_during_a_calls_arguments_gets_them_as_one_delta() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut first, id) = talked(&server, &sandbox, &[]);
    first.prompt("2", "go");
    let mut exchange = server.next_request();
    exchange.head(200);
    exchange.event(&anthropic::message_start());
    exchange.event(&anthropic::block_start(
        0,
        json!({"type": "tool_use", "id": "c1", "name": "bash", "input": {}}),
    ));
    let piece =
        |text: &str| anthropic::block_delta(0, json!({"type": "input_json_delta", "partial_json": text}));
    for text in ["{\"comm", "and\": \"ec"] {
        exchange.event(&piece(text));
    }
    for _ in 0..2 {
        first.wait_for("a delta", |record| record.delta_kind() == "toolcall_delta");
    }
    let mut second = sandbox.shim().args(["--session", id.as_str().expect("an id")]).start();
    let begin = second.until("the delta", |record| record.delta_kind() == "toolcall_delta");
    let start = &begin[begin.len() - 2];
    assert_eq!(kinds(&begin[..3]), ["agent_start", "turn_start", "message_start assistant"]);
    assert_eq!(start["message"]["content"][0]["arguments"], json!({}));
    assert_eq!(begin.last().expect("it came")["assistantMessageEvent"]["delta"], "{\"command\": \"ec");
    exchange.event(&piece("ho hi\"}"));
    exchange.event(&anthropic::block_stop(0));
    exchange.event(&anthropic::message_delta("tool_use"));
    exchange.event(&anthropic::message_stop());
    exchange.finish();
    server.prepare(anthropic::text("done"));
    let (one, two) = (first.until_settled(), second.until_settled());
    let ends = |records: &[Record]| {
        records
            .iter()
            .filter(|record| record.kind() != "message_update")
            .map(|r| r.raw.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(&one), ends(&two));
    assert!(
        two.iter()
            .any(|record| record["message"]["content"][0]["arguments"] == json!({"command": "echo hi"}))
    );
}

#[test]
fn a_joiner_is_told_which_of_its_options_do_not_apply() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut first, id) = talked(&server, &sandbox, &[]);
    let id = id.as_str().expect("an id");
    let before = first.get("get_state");
    let mut second = sandbox.shim().args(["--session", id, "--thinking", "high", "--tools", "read"]).start();
    let after = second.get("get_state");
    assert_eq!(
        (&after["thinkingLevel"], &after["sessionId"]),
        (&before["thinkingLevel"], &before["sessionId"])
    );
    let said = second.finish().expect_code(0).stderr;
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in ["Warning: ", "--thinking", "--tools", "set_thinking_level"] {
        assert!(said.contains(part), "{said}");
    }
}
