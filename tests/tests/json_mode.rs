//! `atomic --mode json`: the session's header, the events of its messages, and an exit code.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{MODEL, ModelServer, Sandbox, SessionFile, Signal, anthropic, eventually};
use serde_json::{Value, json};

/// Stdout of a finished client: nothing but records, the header first.
#[track_caller]
fn records(stdout: &str) -> Vec<Value> {
    let records: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(stdout.ends_with('\n'), "{stdout:?}");
    assert_eq!(records.first().map(|record| &record["type"]), Some(&json!("session")), "{stdout}");
    assert!(!records.iter().any(|record| record["type"] == "response"), "{stdout}");
    records
}

fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["type"].as_str().unwrap_or_default()).collect()
}

/// What the user said, as the run's events tell it.
fn said(records: &[Value]) -> Vec<Value> {
    let ends = records.iter().filter(|record| record["type"] == "message_end");
    ends.filter(|end| end["message"]["role"] == "user").map(|end| end["message"]["content"].clone()).collect()
}

#[test]
fn the_header_comes_first_then_every_event_of_the_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::texts(&["one ", "two"]));
    let finished = sandbox.atomic(&["--mode", "json", "say it"]).expect_code(0);
    assert_eq!(finished.stderr, "");
    let records = records(&finished.stdout);
    assert_eq!(
        kinds(&records),
        [
            "session",
            "agent_start",
            "turn_start",
            "message_start",
            "message_end",
            "message_start",
            "message_update",
            "message_update",
            "message_update",
            "message_update",
            "message_end",
            "turn_end",
            "agent_end",
            "agent_settled"
        ]
    );
    // The very line that the file begins with, and the file holds the run.
    let file = SessionFile::at(&sandbox.session_files()[0]);
    let first = std::fs::read_to_string(&sandbox.session_files()[0]).unwrap();
    assert_eq!(finished.stdout.lines().next(), first.lines().next());
    assert_eq!(records[0]["version"], 3);
    assert_eq!(records[0]["cwd"], json!(sandbox.project()));
    assert_eq!(file.messages().last().unwrap()["content"][0]["text"], "one two");
    // Deltas only: no cumulative message.
    let update = records.iter().find(|record| record["type"] == "message_update").unwrap();
    assert!(update.get("message").is_none(), "{update}");
}

#[test]
fn without_a_message_there_is_the_header_only() {
    let sandbox = Sandbox::new();
    for stdin in [&b""[..], b" \n\t\n"] {
        let finished = sandbox.atomic_fed(&["--mode", "json", "--no-session"], stdin).expect_code(0);
        assert_eq!(kinds(&records(&finished.stdout)), ["session"]);
    }
    assert_eq!(sandbox.session_files(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn stdin_and_the_first_argument_are_one_message_and_each_further_one_its_own() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let path = sandbox.write("project/notes.txt", "a note");
    sandbox.write("project/empty.txt", "");
    (0..3).for_each(|_| server.prepare(anthropic::text("yes")));
    let arguments = ["--mode", "json", "first", "@notes.txt", "second", "@empty.txt", "--", "-third"];
    let finished = sandbox.atomic_fed(&arguments, b"\n  piped\n\n").expect_code(0);
    let records = records(&finished.stdout);
    let first = format!("piped<file name=\"{}\">\na note\n</file>\nfirst", path.display());
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    assert_eq!(said(&records), [text(&first), text("second"), text("-third")]);
    assert_eq!(kinds(&records).iter().filter(|kind| **kind == "agent_settled").count(), 3);
    assert_eq!(
        server.last_request().conversation().len(),
        5,
        "one session, one message after the other: {:?}",
        server.last_request().conversation()
    );
}

/// A picture of one point.
const DOT: &[u8] =
    b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x01D\0;";

#[test]
fn an_image_goes_beside_the_text_whatever_its_name() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let path = sandbox.write("project/picture.txt", DOT);
    server.prepare(anthropic::text("a dot"));
    let finished = sandbox.atomic(&["--mode", "json", "what is it?", "@picture.txt"]).expect_code(0);
    let records = records(&finished.stdout);
    let text = format!("<file name=\"{}\"></file>\nwhat is it?", path.display());
    let image = json!({"type": "image", "data": "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", "mimeType": "image/gif"});
    assert_eq!(said(&records), [json!([{"type": "text", "text": text}, image])]);
    let asked = server.last_request().conversation();
    assert!(asked[0].contains("what is it?") && asked[1].contains("[image]"), "{asked:?}");
}

#[test]
fn a_failed_run_does_not_stop_the_next_and_the_last_one_counts() {
    for (answers, code) in [(&[400, 200][..], 0), (&[200, 400], 1)] {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let mut client = sandbox.client(&["--mode", "json", "one", "two"]);
        for answer in answers {
            let exchange = server.next_request();
            match answer {
                200 => exchange.answer(&anthropic::text("fine")),
                status => {
                    let body =
                        json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}});
                    exchange.reply(*status, &body.to_string());
                }
            }
        }
        let finished = client.wait_for_exit().expect_code(code);
        assert_eq!(finished.stderr, "", "the record says it");
        let records = records(&finished.stdout);
        let reasons: Vec<&Value> = records
            .iter()
            .filter(|record| record["type"] == "message_end" && record["message"]["role"] == "assistant")
            .map(|record| &record["message"]["stopReason"])
            .collect();
        let want: Vec<&str> =
            answers.iter().map(|code| if *code == 200 { "stop" } else { "error" }).collect();
        assert_eq!(reasons, want);
    }
}

#[test]
fn a_refused_message_stops_the_rest_with_its_text_on_stderr() {
    let sandbox = Sandbox::new();
    let finished = sandbox.atomic(&["--mode", "json", "one", "two"]).expect_code(1);
    assert_eq!(kinds(&records(&finished.stdout)), ["session"]);
    assert!(finished.stderr.starts_with("No model selected."), "{}", finished.stderr);
    assert_eq!(finished.stderr.matches("No model selected.").count(), 1, "{}", finished.stderr);
    // A known model without a key.
    let arguments = ["--mode", "json", "--model", "anthropic/claude-opus-5", "one"];
    let finished = sandbox.atomic(&arguments).expect_code(1);
    assert!(finished.stderr.contains("No API key found for anthropic"), "{}", finished.stderr);
    assert_eq!(kinds(&records(&finished.stdout)), ["session"]);
}

#[test]
fn what_fails_before_the_session_leaves_stdout_empty() {
    let sandbox = Sandbox::new();
    let missing = sandbox.project().join("gone.txt");
    let not_found = format!("Error: File not found: {}\n", missing.display());
    for (arguments, text) in [
        (&["--mode", "json", "@gone.txt"][..], not_found.as_str()),
        (&["--mode", "json", "@sub/../gone.txt"], &not_found),
        (&["--mode", "json", "@."], "Error: cannot read "),
        (&["--mode", "json", "--session", "nope", "x"], "No session found matching 'nope'\n"),
        (&["--mode", "json", "--fork", "nope", "x"], "No session found matching 'nope'\n"),
        (&["--mode", "json", "--model", "nope", "x"], "Error: Model \"nope\" not found."),
        (&["--mode", "json", "--name", " ", "x"], "Error: --name requires a non-empty value\n"),
    ] {
        let finished = sandbox.atomic(arguments).expect_code(1);
        assert!(finished.stderr.starts_with(text), "{arguments:?}: {}", finished.stderr);
        assert_eq!(finished.stdout, "", "{arguments:?}");
    }
}

#[test]
fn a_signal_aborts_the_run_and_gives_its_code() {
    for (signal, code) in [(Signal::Terminate, 143), (Signal::Hangup, 129), (Signal::Interrupt, 130)] {
        for memory in [&[][..], &["--no-session"]] {
            let server = ModelServer::start();
            let sandbox = Sandbox::with_models(&server);
            let arguments: Vec<&str> = [&["--mode", "json"], memory, &["start", "never"]].concat();
            let mut client = sandbox.client(&arguments);
            let mut exchange = server.next_request();
            exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
            client.wait_for_delta("one ");
            client.signal(signal);
            exchange.wait_for_hang_up();
            let finished = client.wait_for_exit().expect_code(code);
            let records = records(&finished.stdout);
            assert_eq!(kinds(&records).last(), Some(&"agent_settled"), "{signal:?}");
            assert_eq!(server.requests().len(), 1, "the second message is not run");
            if memory.is_empty() {
                let messages = SessionFile::at(&sandbox.session_files()[0]).messages();
                assert_eq!(messages.last().unwrap()["stopReason"], "aborted");
            }
        }
    }
}

#[test]
fn a_client_that_is_gone_aborts_its_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut killed = sandbox.client(&["--mode", "json", "start"]);
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    killed.wait_for_delta("one ");
    killed.kill();
    exchange.wait_for_hang_up();
    // Unless it wants it otherwise.
    let mut killed = sandbox.client(&["--mode", "json", "--on-disconnect", "finish", "start"]);
    let mut exchange = server.next_request();
    let answer = anthropic::texts(&["one ", "two"]);
    exchange.begin(&answer, 4);
    killed.wait_for_delta("one ");
    killed.kill();
    answer.events[answer.events.len() - 4..].iter().for_each(|event| exchange.event(event));
    exchange.finish();
    eventually("the run went on to its end", || {
        let mut all = sandbox.session_files().into_iter().flat_map(|file| SessionFile::at(&file).messages());
        all.any(|message| message["content"][0]["text"] == "one two").then_some(())
    });
}

#[test]
fn a_lost_daemon_leaves_records_only_and_is_not_asked_again() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut client = sandbox.client(&["--mode", "json", "start", "never"]);
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    client.wait_for_delta("one ");
    sandbox.kill_daemon();
    let finished = client.wait_for_exit().expect_code(1);
    let records = records(&finished.stdout);
    assert_eq!(
        kinds(&records)[records.len() - 4..],
        ["message_end", "turn_end", "agent_end", "agent_settled"]
    );
    assert!(finished.stderr.contains("the connection to atomicd was lost"), "{}", finished.stderr);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn sessions_are_chosen_as_in_rpc_mode() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("first answer"));
    let first = sandbox.atomic(&["--mode", "json", "--name", "mine", "one"]).expect_code(0);
    let id = records(&first.stdout)[0]["id"].clone();
    let header = |arguments: &[&str]| {
        server.prepare(anthropic::text("next answer"));
        let arguments = [&["--mode", "json"], arguments, &["two"]].concat();
        let finished = sandbox.atomic(&arguments).expect_code(0);
        records(&finished.stdout)[0].clone()
    };
    assert_eq!(header(&["--continue"])["id"], id);
    assert_eq!(server.last_request().conversation().len(), 3);
    assert_eq!(header(&["--session", id.as_str().unwrap()])["id"], id);
    let chosen = header(&["--session-id", "my-own"]);
    assert_eq!(chosen["id"], "my-own");
    // A copy goes on from what the first one holds, and leaves it alone.
    let source = sandbox
        .session_files()
        .into_iter()
        .find(|file| file.to_string_lossy().contains(id.as_str().unwrap()));
    let source = source.unwrap();
    let before = std::fs::read(&source).unwrap();
    let forked = header(&["--fork", id.as_str().unwrap(), "--session-id", "copy"]);
    assert_eq!((&forked["id"], &forked["parentSession"]), (&json!("copy"), &json!(source)));
    assert_eq!(server.last_request().conversation().len(), 7, "{:?}", server.last_request().conversation());
    assert_eq!(std::fs::read(&source).unwrap(), before);
    let again = sandbox
        .atomic(&["--mode", "json", "--fork", id.as_str().unwrap(), "--session-id", "copy", "x"])
        .expect_code(1);
    assert_eq!(again.stderr, "Session already exists with id 'copy'\n");
    assert_eq!(server.last_request().body["model"], MODEL);
}

#[test]
fn a_busy_session_refuses_and_its_run_goes_on() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut window = sandbox.rpc();
    window.prompt("1", "start");
    let mut exchange = server.next_request();
    let answer = anthropic::texts(&["one ", "two"]);
    exchange.begin(&answer, 4);
    window.wait_for_delta("one ");
    let file = window.session_file();
    let finished = sandbox.atomic(&["--mode", "json", "--session", file.arg(), "me too"]).expect_code(1);
    assert!(finished.stderr.contains("Agent is already processing"), "{}", finished.stderr);
    let joined = records(&finished.stdout);
    assert_eq!(kinds(&joined)[..3], ["session", "agent_start", "turn_start"], "what a joiner hears");
    answer.events[answer.events.len() - 4..].iter().for_each(|event| exchange.event(event));
    exchange.finish();
    window.until_settled();
}

#[test]
fn an_unsupported_saved_default_ends_it_before_the_header() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    sandbox.write_settings(&json!({"defaultProvider": "gone", "defaultModel": "m"}));
    for mode in [&["--mode", "json"][..], &["-p"]] {
        let finished = sandbox.atomic(&[mode, &["hello"]].concat()).expect_code(1);
        assert_eq!(finished.stdout, "");
        assert_eq!(
            finished.stderr,
            "Error: Configured default model is unavailable or unsupported. Update defaultProvider/defaultModel or use \
             /model.\n"
        );
    }
    assert!(server.requests().is_empty());
}
