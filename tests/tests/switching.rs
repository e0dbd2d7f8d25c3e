//! A connection goes on in another session: switch_session, import_session, new_session, and what a run has to do with it.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::path::{Path, PathBuf};

use atomic_tests::{
    Exchange, ModelServer, PLAIN_MODEL, Record, Sandbox, SessionFile, Shim, anthropic, eventually, kinds,
};
use serde_json::{Value, json};

#[track_caller]
fn talk(server: &ModelServer, shim: &mut Shim, question: &str, answer: &str) -> Vec<Record> {
    server.prepare(anthropic::text(answer));
    shim.rest();
    shim.ask(json!({"type": "prompt", "message": question})).data();
    shim.until_settled()
}

#[track_caller]
fn switch(shim: &mut Shim, path: impl AsRef<Path>) -> Record {
    shim.ask(json!({"type": "switch_session", "sessionPath": path.as_ref()}))
}

#[track_caller]
fn working_directory(shim: &mut Shim) -> PathBuf {
    let seen = shim.ask(json!({"type": "bash", "command": "pwd"}));
    PathBuf::from(seen.data()["output"].as_str().expect("an output").trim_end())
}

/// A session file with one question in it, of another program.
fn stored(sandbox: &Sandbox, name: &str, cwd: &Path) -> PathBuf {
    let header = json!({"type": "session", "version": 3, "id": "stored-one", "timestamp": "2026-01-01T00:00:00.000Z",
        "cwd": cwd});
    let model = json!({"type": "model_change", "id": "aaaaaaaa", "parentId": null,
        "timestamp": "2026-01-01T00:00:01.000Z", "provider": "mock", "modelId": PLAIN_MODEL});
    let level = json!({"type": "thinking_level_change", "id": "bbbbbbbb", "parentId": "aaaaaaaa",
        "timestamp": "2026-01-01T00:00:01.000Z", "thinkingLevel": "off"});
    let message = json!({"type": "message", "id": "cccccccc", "parentId": "bbbbbbbb",
        "timestamp": "2026-01-01T00:00:02.000Z",
        "message": {"role": "user", "content": [{"type": "text", "text": "stored?"}], "timestamp": 1}});
    sandbox.write(name, [header, model, level, message].map(|line| format!("{line}\n")).concat())
}

/// A shim in the middle of an answer.
fn streaming(server: &ModelServer, sandbox: &Sandbox) -> (Shim, Exchange) {
    let mut shim = sandbox.rpc();
    shim.prompt("1", "hi");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::text("hello"), 3);
    shim.wait_for_delta("hello");
    (shim, exchange)
}

#[test]
fn a_stored_session_comes_with_its_own_model_level_and_directory() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let elsewhere = sandbox.dir("elsewhere");
    let file = stored(&sandbox, "stored.jsonl", &elsewhere);
    let mut shim = sandbox.shim().args(["--thinking", "high"]).start();
    talk(&server, &mut shim, "one?", "one");
    let old = shim.session_file();
    assert_eq!(switch(&mut shim, &file).data(), &json!({"cancelled": false}));
    let state = shim.get("get_state");
    assert_eq!(
        (&state["sessionId"], &state["sessionFile"], &state["messageCount"]),
        (&json!("stored-one"), &json!(file), &json!(1))
    );
    assert_eq!((&state["model"]["id"], &state["thinkingLevel"]), (&json!(PLAIN_MODEL), &json!("off")));
    assert_eq!(working_directory(&mut shim), elsewhere);

    // A fresh one stays in the directory where the last one was.
    shim.ask(json!({"type": "new_session"})).data();
    assert_eq!(working_directory(&mut shim), elsewhere);
    // And back.
    switch(&mut shim, old.path()).data();
    assert_eq!(shim.get("get_last_assistant_text")["text"], "one");
    assert_eq!(working_directory(&mut shim), sandbox.project());
}

#[test]
fn a_live_session_is_joined_also_in_the_middle_of_a_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut first, mut exchange) = streaming(&server, &sandbox);
    let file = first.session_file();
    let mut second = sandbox.rpc();
    second.get("get_state");
    second.rest();
    second.send(json!({"id": "s", "type": "switch_session", "sessionPath": file.path()}));
    let seen = second.until("the answer", |record| record["id"] == "s");
    assert!(seen.last().is_some_and(Record::succeeded), "{:#?}", kinds(&seen));
    let joined = if seen.len() > 1 {
        seen
    } else {
        second.until("the answer so far", |record| record.is_message("message_start", "assistant"))
    };
    let so_far: Vec<&Record> =
        joined.iter().filter(|record| record.is_message("message_start", "assistant")).collect();
    assert_eq!(so_far.len(), 1);
    assert_eq!(so_far[0]["message"]["content"][0]["text"], "hello");
    for event in [anthropic::block_stop(0), anthropic::message_delta("end_turn"), anthropic::message_stop()] {
        exchange.event(&event);
    }
    exchange.finish();
    first.until_settled();
    second.until_settled();
    assert_eq!(second.get("get_state")["sessionId"], first.get("get_state")["sessionId"]);
}

#[test]
fn a_path_without_a_file_becomes_a_session() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let path = sandbox.project().join("fresh.jsonl");
    switch(&mut shim, "fresh.jsonl").data();
    let state = shim.get("get_state");
    assert_eq!((&state["sessionFile"], &state["messageCount"]), (&json!(path), &json!(0)));
    assert!(!path.exists(), "as with any untouched session");
    talk(&server, &mut shim, "one?", "one");
    assert_eq!(SessionFile::at(&path).messages().len(), 2);
    eventually("it is told on stderr", || shim.stderr().contains("does not exist").then_some(()));
}

#[test]
fn what_cannot_be_opened_leaves_the_client_where_it_was() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let nowhere = sandbox.project().join("nowhere");
    let gone = stored(&sandbox, "gone.jsonl", &nowhere);
    let notes = sandbox.write("notes.txt", "These are notes.\n");
    let mut shim = sandbox.rpc();
    let before = shim.get("get_state");
    assert_eq!(
        switch(&mut shim, &gone).error(),
        format!(
            "Stored session working directory does not exist: {}\nSession file: {}\nCurrent working directory: {}",
            nowhere.display(),
            gone.display(),
            sandbox.project().display()
        )
    );
    let refused = switch(&mut shim, &notes);
    let text = format!("Session file is not a valid atomic session: {}", notes.display());
    assert_eq!(refused.error(), text);
    assert!(!switch(&mut shim, sandbox.project()).succeeded(), "a directory is no session");
    assert_eq!(shim.get("get_state"), before);
    talk(&server, &mut shim, "one?", "one");
    assert_eq!(std::fs::read_to_string(&notes).expect("the notes"), "These are notes.\n");
}

#[test]
fn an_import_is_a_copy_beside_the_other_sessions() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let file = stored(&sandbox, "stored.jsonl", &sandbox.project());
    let bytes = std::fs::read(&file).expect("the file");
    let mut shim = sandbox.rpc();
    let dir = shim.session_file().path().parent().expect("a directory").to_owned();
    let import = json!({"type": "import_session", "inputPath": "../stored.jsonl"});
    assert_eq!(shim.ask(import.clone()).data(), &json!({"cancelled": false}));
    let copy = shim.session_file();
    assert_eq!(copy.path(), dir.join("stored.jsonl"));
    assert_eq!(copy.bytes(), bytes);
    talk(&server, &mut shim, "more?", "more");
    assert_eq!(server.last_request().conversation(), ["user: stored?", "user: more?"]);
    assert_eq!(std::fs::read(&file).expect("the file"), bytes, "the original is untouched");

    // A second time there is one of that name: it is not overwritten, and the client stays where it is.
    let (kept, state) = (copy.bytes(), shim.get("get_state"));
    let refused = shim.ask(import);
    assert!(refused.error().contains(&copy.path().display().to_string()), "{}", refused.raw);
    assert_eq!(copy.bytes(), kept);
    assert_eq!(shim.get("get_state"), state);
    let missing = sandbox.project().join("missing.jsonl");
    let refused = shim.ask(json!({"type": "import_session", "inputPath": "missing.jsonl"}));
    assert_eq!(refused.error(), format!("File not found: {}", missing.display()));
}

#[test]
fn an_import_whose_directory_is_gone_needs_another_and_leaves_no_copy_until_then() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let nowhere = sandbox.project().join("nowhere");
    let file = stored(&sandbox, "gone.jsonl", &nowhere);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let files = sandbox.session_files();
    let refused = shim.ask(json!({"type": "import_session", "inputPath": file}));
    let text = format!("Stored session working directory does not exist: {}", nowhere.display());
    assert!(refused.error().starts_with(&text), "{}", refused.raw);
    assert!(refused.error().contains(&format!("\nSession file: {}\n", file.display())), "{}", refused.raw);
    let refused = shim.ask(json!({"type": "import_session", "inputPath": file, "cwdOverride": nowhere}));
    assert!(refused.error().contains("does not exist"), "{}", refused.raw);
    assert_eq!(sandbox.session_files(), files);
    let elsewhere = sandbox.dir("elsewhere");
    let asked = json!({"type": "import_session", "inputPath": file, "cwdOverride": elsewhere});
    shim.ask(asked).data();
    assert_eq!(working_directory(&mut shim), elsewhere);
    assert_eq!(sandbox.session_files().len(), files.len() + 1);
}

#[test]
fn the_only_client_sees_its_run_end_before_it_goes() {
    let aborted = ["message_end assistant", "turn_end", "agent_end", "agent_settled"];
    for command in ["new_session", "switch_session", "fork", "clone", "import_session"] {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let file = stored(&sandbox, "stored.jsonl", &sandbox.project());
        let (mut shim, exchange) = streaming(&server, &sandbox);
        let entry = shim.get("get_fork_messages")["messages"][0]["entryId"].clone();
        let old = shim.session_file();
        shim.rest();
        shim.send(
            json!({"id": "m", "type": command, "sessionPath": file, "inputPath": file, "entryId": entry}),
        );
        let seen = shim.until("the answer", |record| record["id"] == "m");
        assert!(seen.last().is_some_and(Record::succeeded), "{command}: {:?}", seen.last());
        assert_eq!(kinds(&seen[..seen.len() - 1]), aborted, "{command}");
        assert_eq!(
            old.messages().last().map(|message| message["stopReason"].clone()),
            Some(json!("aborted"))
        );
        exchange.wait_for_hang_up();
        assert_eq!(shim.get("get_state")["isStreaming"], false);
        shim.finish().expect_code(0);
    }
}

#[test]
fn with_another_client_the_run_goes_on() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut first, mut exchange) = streaming(&server, &sandbox);
    let file = first.session_file();
    let mut second = sandbox.shim().args(["--session", file.arg()]).start();
    second.wait_for("the answer so far", |record| record.is_message("message_start", "assistant"));
    first.rest();
    first.send(json!({"id": "n", "type": "new_session"}));
    let seen = first.until("the answer", |record| record["id"] == "n");
    let kinds = kinds(&seen);
    assert_eq!(kinds[kinds.len() - 3..], ["agent_end", "agent_settled", "response new_session"], "{kinds:?}");
    for event in [anthropic::block_stop(0), anthropic::message_delta("end_turn"), anthropic::message_stop()] {
        exchange.event(&event);
    }
    exchange.finish();
    let records = second.until_settled();
    let end = records.iter().find(|record| record.is_message("message_end", "assistant")).expect("an end");
    assert_eq!(end["message"]["stopReason"], "stop");
    first.assert_quiet();
}

#[test]
fn what_is_written_behind_a_replacement_is_meant_for_the_new_session() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let elsewhere = sandbox.dir("elsewhere");
    let file = stored(&sandbox, "stored.jsonl", &elsewhere);
    let mut shim = sandbox.rpc();
    talk(&server, &mut shim, "one?", "one");
    let old = shim.session_file();
    let bytes = old.bytes();
    shim.send_together(&[
        json!({"id": "l", "type": "set_thinking_level", "level": "medium"}),
        json!({"id": "s", "type": "switch_session", "sessionPath": file}),
        json!({"id": "p", "type": "pause_queued_messages"}),
        json!({"id": "b", "type": "bash", "command": "pwd"}),
        json!({"id": "q", "type": "steer", "message": "held"}),
        json!({"id": "g", "type": "get_state"}),
        json!({"id": "c", "type": "clear_queue"}),
    ]);
    let state = shim.response("g").data().clone();
    assert_eq!((&state["sessionId"], &state["queuedMessagesPaused"]), (&json!("stored-one"), &json!(true)));
    assert_eq!(shim.response("b").data()["output"], format!("{}\n", elsewhere.display()));
    shim.response("c").data();
    assert_eq!(old.bytes(), bytes, "nothing of it reached the old one");
}

#[test]
fn the_old_queues_are_gone_and_the_modes_are_those_of_the_settings() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.ask(json!({"type": "set_steering_mode", "mode": "all"})).data();
    shim.ask(json!({"type": "steer", "message": "held"})).data();
    shim.ask(json!({"type": "pause_queued_messages"})).data();
    shim.ask(json!({"type": "new_session"})).data();
    let state = shim.get("get_state");
    assert_eq!((&state["pendingMessageCount"], &state["steeringMode"]), (&json!(0), &json!("all")));
    assert_eq!(state.get("queuedMessagesPaused"), None::<&Value>);
    talk(&server, &mut shim, "one?", "one");
    assert_eq!(server.last_request().conversation(), ["user: one?"]);
}

#[test]
fn a_name_from_the_command_line_is_the_first_sessions_alone() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.shim().args(["--name", "the first"]).start();
    assert_eq!(shim.get("get_state")["sessionName"], "the first");
    talk(&server, &mut shim, "one?", "one");
    shim.ask(json!({"type": "new_session"})).data();
    assert_eq!(shim.get("get_state").get("sessionName"), None);
    switch(&mut shim, sandbox.project().join("other.jsonl")).data();
    assert_eq!(shim.get("get_state").get("sessionName"), None);
}

#[test]
fn a_session_without_a_directory_is_opened_where_the_client_is() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let header =
        json!({"type": "session", "version": 3, "id": "old", "timestamp": "2026-01-01T00:00:00.000Z"});
    let file = sandbox.write("old.jsonl", format!("{header}\n"));
    let mut shim = sandbox.rpc();
    switch(&mut shim, &file).data();
    assert_eq!(working_directory(&mut shim), sandbox.project());
}

#[test]
fn two_clients_that_go_to_one_file_meet_there() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let file = stored(&sandbox, "stored.jsonl", &sandbox.project());
    let (mut first, mut second) = (sandbox.rpc(), sandbox.rpc());
    let go = json!({"id": "s", "type": "switch_session", "sessionPath": file});
    first.send(go.clone());
    second.send(go);
    first.response("s").data();
    second.response("s").data();
    second.rest();
    talk(&server, &mut first, "together?", "yes");
    assert!(second.until_settled().iter().any(|record| record.is_message("message_end", "assistant")));
    assert_eq!(SessionFile::at(&file).messages().len(), 3);
}

/// `switch_session` to the session where the client is: nothing happens to it, not even to its run.
#[test]
fn to_itself_is_nowhere() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, mut exchange) = streaming(&server, &sandbox);
    let file = shim.session_file();
    switch(&mut shim, file.path()).data();
    for event in [anthropic::block_stop(0), anthropic::message_delta("end_turn"), anthropic::message_stop()] {
        exchange.event(&event);
    }
    exchange.finish();
    shim.until_settled();
    assert_eq!(shim.get("get_last_assistant_text")["text"], "hello");
}
