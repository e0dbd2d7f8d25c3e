//! Many windows: on one session, on sessions of their own, at the same moment.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::collections::HashSet;

use atomic_tests::{ModelServer, Record, Sandbox, SessionFile, Shim, Signal, anthropic, eventually, kinds};
use serde_json::{Value, json};

#[track_caller]
fn talk(server: &ModelServer, shim: &mut Shim, question: &str, answer: &str) {
    server.prepare(anthropic::text(answer));
    let answered = shim.ask(json!({"type": "prompt", "message": question}));
    assert!(answered.succeeded(), "{}", answered.raw);
    shim.until_settled();
}

/// Each entry follows the one before it.
#[track_caller]
fn is_one_branch(file: &SessionFile) {
    let entries = file.entries();
    let ids: Vec<&Value> = entries.iter().map(|entry| &entry["id"]).collect();
    let parents: Vec<&Value> = entries.iter().map(|entry| &entry["parentId"]).collect();
    assert_eq!(parents[1..], ids[..ids.len() - 1]);
}

/// Quick turns one after the other while the machine is busy: no end of any of them is kept from any window.
#[test]
fn every_window_hears_the_end_of_every_turn() {
    const TURNS: usize = 200;
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut first = sandbox.rpc();
    talk(&server, &mut first, "begin", "yes");
    let file = first.session_file();
    let mut others: Vec<Shim> =
        (0..2).map(|_| sandbox.shim().args(["--session", file.arg()]).start()).collect();
    for other in &mut others {
        other.get("get_state");
        other.rest();
    }
    // Somebody else keeps every core busy.
    let mut busy = sandbox.rpc();
    busy.send(json!({"id": "busy", "type": "bash",
        "command": "for i in 1 2 3 4; do (while [ ! -e stop ]; do :; done) & done; wait"}));
    for turn in 0..TURNS {
        talk(&server, &mut first, &format!("question {turn}"), &format!("answer {turn}"));
    }
    sandbox.write("project/stop", "");
    assert!(busy.response("busy").succeeded());
    for other in &mut others {
        let mut ends = 0;
        let mut answers = Vec::new();
        while ends < TURNS {
            for record in other.until_settled() {
                ends += usize::from(record.kind() == "agent_end");
                if record.is_message("message_end", "assistant") {
                    answers.push(record["message"]["content"][0]["text"].clone());
                }
            }
        }
        assert_eq!(ends, TURNS);
        let expected: Vec<Value> = (0..TURNS).map(|turn| json!(format!("answer {turn}"))).collect();
        assert_eq!(answers, expected);
        other.assert_quiet();
    }
    is_one_branch(&file);
}

#[test]
fn two_that_continue_at_the_same_moment_meet_in_one_session() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let file = shim.session_file();
    shim.finish().expect_code(0);
    sandbox.kill_daemon();
    let mut windows: Vec<Shim> = (0..6).map(|_| sandbox.shim().args(["-c"]).start()).collect();
    for window in &mut windows {
        assert_eq!(window.get("get_state")["sessionFile"], json!(file.path()));
    }
    for (at, window) in windows.iter_mut().enumerate() {
        // The answer comes behind what was said in the runs of the others.
        window.get("get_state");
        window.rest();
        talk(&server, window, &format!("from {at}"), "yes");
    }
    is_one_branch(&file);
    assert_eq!(file.messages().len(), 2 + 2 * windows.len());
    assert_eq!(file.lines().iter().filter(|line| line["type"] == "session").count(), 1);
    assert_eq!(sandbox.daemons().len(), 1);
}

#[test]
fn twenty_sessions_at_once_have_nothing_of_each_other() {
    const WINDOWS: usize = 20;
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut windows: Vec<Shim> = (0..WINDOWS)
        .map(|at| {
            let dir = sandbox.dir(&format!("project-{at}"));
            sandbox.shim().directory(dir).env("MINE", format!("value-{at}")).start()
        })
        .collect();
    // All runs are under way at the same time, and each is answered by what it asked.
    for (at, window) in windows.iter_mut().enumerate() {
        window.prompt("p", &format!("question of {at}."));
    }
    let mut exchanges: Vec<_> = (0..WINDOWS).map(|_| server.next_request()).collect();
    for exchange in &mut exchanges {
        let [asked] = &exchange.request.conversation()[..] else { panic!("one message") };
        let text = asked.replace("user: question", "answer");
        exchange.begin(&anthropic::text(&text), 3);
    }
    for (at, window) in windows.iter_mut().enumerate() {
        window.send(json!({"id": "b", "type": "bash", "command": "pwd; echo $MINE"}));
        window.send(json!({"id": "n", "type": "set_session_name", "name": format!("name {at}")}));
    }
    for mut exchange in exchanges.into_iter().rev() {
        exchange.event(&anthropic::block_stop(0));
        exchange.event(&anthropic::message_delta("end_turn"));
        exchange.event(&anthropic::message_stop());
        exchange.finish();
    }
    let mut files = HashSet::new();
    for (at, window) in windows.iter_mut().enumerate() {
        let records = window.until_settled();
        let mine = format!("of {at}.");
        for record in records.iter().filter(|record| record.kind() == "message_end") {
            assert!(record.raw.contains(&mine), "{}", record.raw);
        }
        let bash = window.response("b");
        let expected = format!("{}\nvalue-{at}\n", sandbox.dir(&format!("project-{at}")).display());
        assert_eq!(bash.data()["output"], expected);
        let state = window.get("get_state");
        assert_eq!(state["sessionName"], format!("name {at}"));
        let answer = window.get("get_last_assistant_text");
        assert_eq!(answer["text"], format!("answer of {at}."));
        let file = window.session_file();
        assert_eq!(file.messages().iter().filter(|message| message["role"] == "user").count(), 1);
        files.insert(file.path().to_owned());
    }
    assert_eq!(files.len(), WINDOWS);
    assert_eq!(sandbox.daemons().len(), 1);
}

/// A window dies in the middle of an answer. The next one asks for what it has not seen yet, and has it once.
#[test]
fn what_a_dead_window_missed_is_there_exactly_once() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let file = shim.session_file();
    let entries = shim.get("get_entries");
    let seen = entries["entries"].as_array().expect("entries").clone();
    let last = seen.last().expect("one")["id"].clone();
    shim.prompt("2", "two?");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["so ", "far"]), 4);
    shim.wait_for_delta("so ");
    shim.kill();
    // The run goes on without anybody, and a new window comes into the middle of it.
    let mut again = sandbox.shim().args(["--session", file.arg()]).start();
    let state = again.get("get_state");
    assert_eq!(state["isStreaming"], true);
    let begin: Vec<Record> = again.until("the state", |record| record.is_response());
    assert_eq!(
        kinds(&begin),
        ["agent_start", "turn_start", "message_start assistant", "response get_state"],
        "what is open comes first"
    );
    assert_eq!(begin[2]["message"]["content"][0]["text"], "so ");
    exchange.event(&anthropic::text_delta(0, "far"));
    exchange.event(&anthropic::block_stop(0));
    exchange.event(&anthropic::message_delta("end_turn"));
    exchange.event(&anthropic::message_stop());
    exchange.finish();
    again.wait_for_delta("far");
    let end = again.wait_for("the answer", |record| record.is_message("message_end", "assistant"));
    assert_eq!(end["message"]["content"][0]["text"], "so far");
    again.until_settled();
    let new = again.ask(json!({"type": "get_entries", "since": last}));
    let new = new.data()["entries"].as_array().expect("entries").clone();
    let roles: Vec<&Value> = new.iter().map(|entry| &entry["message"]["role"]).collect();
    assert_eq!(roles, ["user", "assistant"]);
    let all: Vec<Value> = seen.into_iter().chain(new).collect();
    assert_eq!(all, file.entries());
}

/// Whoever comes after an answer that failed sees it in the conversation, and no run that is open.
#[test]
fn a_window_that_comes_after_a_failed_answer_sees_why() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    server
        .next_request()
        .reply(400, r#"{"type":"error","error":{"type":"invalid_request_error","message":"no such luck"}}"#);
    shim.until_settled();
    let file = shim.session_file();
    let mut second = sandbox.shim().args(["--session", file.arg()]).start();
    let state = second.get("get_state");
    assert_eq!(state["isStreaming"], false);
    let messages = second.get("get_messages");
    let last = messages["messages"].as_array().expect("messages").last().expect("one").clone();
    assert_eq!(last["stopReason"], "error");
    assert!(last["errorMessage"].as_str().is_some_and(|text| text.contains("no such luck")), "{last}");
    assert_eq!(kinds(&second.rest()), ["response get_state", "response get_messages"]);
}

/// Pictures in flight: more than an outbox holds waits for a client that has stopped reading, which then has all of it.
#[test]
fn pictures_wait_for_a_reader_that_rests() {
    const PICTURES: usize = 6;
    /// What is sent inline at most is a little more, as text.
    const PICTURE_BYTES: usize = 3 << 20;
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let file = shim.session_file();
    // One point, and behind the end of the picture what nobody looks at.
    let mut picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\x00\x00\x00\x0d\x49\x44\x41\x54\x78\xda\x63\x64\x60\xf8\x5f\x0f\x00\x02\x87\x01\x80\xeb\x47\xba\x92\x00\x00\x00\x00\x49\x45\x4e\x44\xae\x42\x60\x82".to_vec();
    picture.resize(PICTURE_BYTES, 7);
    let calls: Vec<(String, Value)> = (0..PICTURES)
        .map(|at| {
            sandbox.write(&format!("project/{at}.png"), &picture);
            (format!("c{at}"), json!({"path": format!("{at}.png")}))
        })
        .collect();
    let calls: Vec<(&str, &str, Value)> =
        calls.iter().map(|(id, arguments)| (id.as_str(), "read", arguments.clone())).collect();
    shim.prompt("1", "look");
    let exchange = server.next_request();
    shim.wait_for_kind("agent_start");
    shim.signal(Signal::Stop);
    server.prepare(anthropic::text("seen"));
    exchange.answer(&anthropic::tool_calls(&calls));
    eventually("all of them are in the file", || {
        let results = file.messages().iter().filter(|message| message["role"] == "toolResult").count();
        (results == PICTURES).then_some(())
    });
    shim.signal(Signal::Continue);
    let records = shim.until_settled();
    let ends: Vec<&Record> =
        records.iter().filter(|record| record.is_message("message_end", "toolResult")).collect();
    assert_eq!(ends.len(), PICTURES);
    for end in ends {
        let data = end["message"]["content"][1]["data"].as_str().expect("a picture");
        assert_eq!(data.len(), PICTURE_BYTES.div_ceil(3) * 4);
    }
    let asked = server.last_request().body["messages"].to_string();
    assert!(asked.len() > PICTURES * PICTURE_BYTES, "all of them went to the model");
    assert_eq!(shim.finish().expect_code(0).stderr, "", "nobody was let go");
}

/// Calls that end in any order while the client reads now and then: every turn goes on, and nothing is lost.
#[test]
fn turns_of_parallel_calls_go_on_behind_a_reader_that_rests_again_and_again() {
    const TURNS: usize = 24;
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "go");
    for turn in 0..TURNS {
        let exchange = server.next_request();
        if turn % 3 == 0 {
            shim.signal(Signal::Stop);
        }
        // The three end in another order each time.
        let calls: Vec<(String, Value)> = (0..3)
            .map(|call| {
                let rest = (turn + call * 2) % 3;
                let command = format!("sleep 0.0{rest}; yes {turn}-{call} | head -n 500");
                (format!("{turn}-{call}"), json!({"command": command}))
            })
            .collect();
        let calls: Vec<(&str, &str, Value)> =
            calls.iter().map(|(id, arguments)| (id.as_str(), "bash", arguments.clone())).collect();
        exchange.answer(&anthropic::tool_calls(&calls));
        if turn % 3 == 2 {
            shim.signal(Signal::Continue);
        }
    }
    shim.signal(Signal::Continue);
    server.next_request().answer(&anthropic::text("done"));
    let records = shim.until_settled();
    let count = |kind: &str| records.iter().filter(|record| record["type"] == kind).count();
    assert_eq!((count("turn_start"), count("turn_end")), (TURNS + 1, TURNS + 1));
    let ended: Vec<&str> = records
        .iter()
        .filter(|record| record["type"] == "tool_execution_end")
        .filter_map(|record| record["toolCallId"].as_str())
        .collect();
    let mut all: Vec<String> =
        (0..TURNS).flat_map(|turn| (0..3).map(move |call| format!("{turn}-{call}"))).collect();
    let mut sorted: Vec<String> = ended.iter().map(|id| (*id).to_owned()).collect();
    all.sort();
    sorted.sort();
    assert_eq!(sorted, all, "each call ended once");
    assert_eq!(shim.finish().expect_code(0).stderr, "", "nobody was let go");
}
