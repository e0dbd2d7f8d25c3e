//! Shell commands that the client runs.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Record, Sandbox, Shim, anthropic, eventually, keys, kinds};
use serde_json::{Value, json};

fn bash(shim: &mut Shim, id: &str, command: &str) {
    shim.send(json!({"id": id, "type": "bash", "command": command}));
}

/// The `data` of a command's answer.
fn run(shim: &mut Shim, command: &str) -> Value {
    shim.ask(json!({"type": "bash", "command": command})).data().clone()
}

/// What the updates of this id say, joined.
fn deltas(records: &[Record], id: &str, channel: Option<&str>) -> String {
    let updates =
        records.iter().filter(|record| record.kind() == "bash_execution_update" && record["id"] == id);
    let wanted = updates.filter(|record| channel.is_none_or(|channel| record["channel"] == channel));
    wanted.filter_map(|record| record["delta"].as_str()).collect()
}

fn none_left(sandbox: &Sandbox, command: &str) {
    let left: Vec<_> = sandbox.processes().into_iter().filter(|p| p.command.contains(command)).collect();
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn output_streams_by_channel_and_comes_whole_in_the_answer() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    bash(&mut shim, "b", "echo out; echo err >&2; until [ -e go ]; do sleep 0.01; done; echo more");
    shim.wait_for("the error", |record| record["channel"] == "stderr");
    sandbox.write("project/go", "");
    let answer = shim.response("b");
    assert_eq!(keys(answer.data()), ["output", "exitCode", "cancelled", "truncated"]);
    assert_eq!(answer["data"]["exitCode"], 0);
    let records = shim.records().to_vec();
    assert_eq!(deltas(&records, "b", Some("stdout")), "out\nmore\n");
    assert_eq!(deltas(&records, "b", Some("stderr")), "err\n");
    assert_eq!(answer["data"]["output"], deltas(&records, "b", None), "the deltas are the output");
    let update = records.iter().find(|record| record["channel"] == "stderr").expect("an update");
    assert_eq!(update.raw, r#"{"type":"bash_execution_update","id":"b","channel":"stderr","delta":"err\n"}"#);
    assert_eq!(kinds(&records).last().map(String::as_str), Some("response bash"), "the answer comes last");
}

#[test]
fn two_commands_one_cancelled_is_exactly_this() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    bash(&mut shim, "b1", "sleep 611");
    bash(&mut shim, "b2", "echo hi");
    let mut records = shim.until("the second answer", |record| record.is_response() && record["id"] == "b2");
    shim.send(json!({"id": "c", "type": "abort_bash", "requestId": "b1"}));
    records.extend(shim.until("the first answer", |record| record.is_response() && record["id"] == "b1"));
    let lines: Vec<&str> = records.iter().map(|record| record.raw.as_str()).collect();
    assert_eq!(
        lines,
        [
            r#"{"type":"bash_execution_update","id":"b2","channel":"stdout","delta":"hi\n"}"#,
            r#"{"id":"b2","type":"response","command":"bash","success":true,"data":{"output":"hi\n","exitCode":0,"cancelled":false,"truncated":false}}"#,
            r#"{"id":"c","type":"response","command":"abort_bash","success":true}"#,
            r#"{"id":"b1","type":"response","command":"bash","success":true,"data":{"output":"","cancelled":true,"truncated":false}}"#,
        ]
    );
    none_left(&sandbox, "sleep 611");
}

#[test]
fn exit_codes_are_told_and_signals_are_128_more() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    for (command, code) in
        [("exit 0", 0), ("exit 3", 3), ("exit 300", 44), ("kill -9 $$", 137), ("nothing-here", 127)]
    {
        let data = run(&mut shim, command);
        assert_eq!(data["exitCode"], code, "{command}: {data}");
        assert_eq!(data["cancelled"], false, "{command}: {data}");
    }
}

/// A command that ends before anybody looks has its own code all the same, however many of them run at once.
#[test]
fn many_commands_that_fail_at_once_keep_their_codes() {
    const COMMANDS: usize = 300;
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    let code = |at: usize| [1, 44, 137][at % 3];
    for at in 0..COMMANDS {
        bash(&mut shim, &at.to_string(), ["exit 1", "exit 300", "kill -9 $$"][at % 3]);
    }
    for at in 0..COMMANDS {
        let answer = shim.response(at.to_string());
        assert_eq!(
            answer.data(),
            &json!({"output": "", "exitCode": code(at), "cancelled": false, "truncated": false})
        );
    }
}

#[test]
fn without_an_id_all_are_cancelled_and_control_lines_wait_for_nobody() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    bash(&mut shim, "1", "echo one; sleep 612");
    bash(&mut shim, "2", "echo two; sleep 613");
    for id in ["1", "2"] {
        eventually("both run", || (!deltas(shim.records(), id, None).is_empty()).then_some(()));
    }
    assert_eq!(shim.get("get_state")["isStreaming"], false, "a command is no run");
    shim.ask(json!({"type": "abort_bash"})).data();
    for (id, output) in [("1", "one\n"), ("2", "two\n")] {
        let answer = shim.response(id);
        assert_eq!(answer.data(), &json!({"output": output, "cancelled": true, "truncated": false}));
    }
    none_left(&sandbox, "sleep 61");
    shim.ask(json!({"type": "abort_bash", "requestId": "nobody"})).data();
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_with_its_children() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    bash(
        &mut shim,
        "b",
        r#"trap "" TERM; echo ready; sh -c 'trap "" TERM; sleep 614; sleep 615'; sleep 616"#,
    );
    shim.wait_for_kind("bash_execution_update");
    shim.ask(json!({"type": "abort_bash", "requestId": "b"})).data();
    let answer = shim.response("b");
    assert_eq!(answer.data()["cancelled"], true);
    none_left(&sandbox, "sleep 61");
}

#[test]
fn a_command_that_catches_sigterm_and_succeeds_is_still_cancelled() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    bash(&mut shim, "b", r#"trap "echo bye; exit 0" TERM; echo ready; while :; do sleep 0.05; done"#);
    shim.wait_for_kind("bash_execution_update");
    shim.ask(json!({"type": "abort_bash"})).data();
    let answer = shim.response("b");
    assert_eq!(answer.data()["cancelled"], true);
    assert_eq!(answer.data().get("exitCode"), None);
}

#[test]
fn stdin_is_empty_and_not_the_protocols() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.send_together(&[
        json!({"id": "b", "type": "bash", "command": "cat; echo end"}),
        json!({"id": "s", "type": "get_state"}),
    ]);
    assert_eq!(shim.response("b").data()["output"], "end\n");
    assert!(shim.response("s").succeeded());
}

#[test]
fn a_live_id_cannot_be_used_twice() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    bash(&mut shim, "b", "echo first; sleep 617");
    shim.wait_for_kind("bash_execution_update");
    bash(&mut shim, "b", "echo second");
    let refused = shim.response("b");
    assert_eq!(refused.error(), "Bash request id already active: b");
    shim.ask(json!({"type": "abort_bash"})).data();
    assert_eq!(shim.response("b").data()["output"], "first\n");
    bash(&mut shim, "b", "echo third");
    assert_eq!(shim.response("b").data()["output"], "third\n", "a finished id is free again");
}

#[test]
fn results_reach_the_model_with_the_next_prompt() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    run(&mut shim, "echo hi");
    run(&mut shim, "true");
    run(&mut shim, "echo bad; exit 3");
    shim.ask(json!({"type": "bash", "command": "echo private", "excludeFromContext": true})).data();
    assert!(
        !kinds(shim.records()).iter().any(|kind| kind.starts_with("message")),
        "no event tells of a result"
    );
    assert_eq!(server.requests().len(), 0, "a result starts nothing");

    server.prepare(anthropic::text("seen"));
    shim.prompt("1", "look");
    shim.until_settled();
    let conversation = server.last_request().conversation();
    assert_eq!(conversation.len(), 4, "{conversation:#?}");
    assert!(conversation[0].starts_with("user: Ran `echo hi`\n```\nhi\n"), "{conversation:#?}");
    assert!(conversation[0].ends_with("```"), "{conversation:#?}");
    assert_eq!(conversation[1], "user: Ran `true`\n(no output)");
    assert!(conversation[2].ends_with("Command exited with code 3"), "{conversation:#?}");
    assert_eq!(conversation[3], "user: look");

    let recorded: Vec<Value> = shim
        .session_file()
        .messages()
        .into_iter()
        .filter(|message| message["role"] == "bashExecution")
        .map(|message| message["command"].clone())
        .collect();
    assert_eq!(
        json!(recorded),
        json!(["echo hi", "true", "echo bad; exit 3", "echo private"]),
        "each exactly once"
    );
}

#[test]
fn during_a_run_it_answers_at_once_and_is_recorded_between_turns() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::tool_call(
        "c1",
        "bash",
        json!({"command": "echo up; until [ -e go ]; do sleep 0.01; done"}),
    ));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "start");
    shim.wait_for("the call's output", |record| record.shows_output("up"));
    assert_eq!(run(&mut shim, "echo aside")["output"], "aside\n");
    server.prepare(anthropic::text("done"));
    sandbox.write("project/go", "");
    shim.until_settled();
    let messages = shim.session_file().messages();
    let roles: Vec<&Value> = messages.iter().map(|message| &message["role"]).collect();
    let call = roles.iter().position(|role| **role == "assistant").expect("the call");
    assert_eq!(roles[call + 1], "toolResult", "nothing stands between a call and its result: {roles:?}");
    assert_eq!(roles.iter().filter(|role| **role == "bashExecution").count(), 1, "{roles:?}");
    let listed = shim.get("get_messages")["messages"].to_string();
    assert!(listed.contains("aside"), "{listed}");
}

#[test]
fn a_background_child_that_holds_the_pipe_does_not_hold_the_answer() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    let data = run(&mut shim, "sleep 618 & echo hi");
    assert_eq!((&data["output"], &data["exitCode"]), (&json!("hi\n"), &json!(0)));
    // One that goes on printing is no different, and what it prints later belongs to nobody.
    let data = run(&mut shim, "(while :; do echo tick; sleep 0.02; done) & echo done");
    assert_eq!(data["exitCode"], 0);
    assert!(data["output"].as_str().is_some_and(|output| output.contains("done\n")), "{data}");
    shim.rest();
    shim.assert_quiet();
}

#[test]
fn long_output_keeps_its_end_and_all_of_it_in_a_file() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    let data = run(&mut shim, "seq 1 5000");
    assert_eq!(keys(&data), ["output", "exitCode", "cancelled", "truncated", "fullOutputPath"]);
    assert_eq!(data["truncated"], true);
    let output = data["output"].as_str().expect("text");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!((lines.first(), lines.last(), lines.len()), (Some(&"3001"), Some(&"5000"), 2000));
    let path = std::path::PathBuf::from(data["fullOutputPath"].as_str().expect("a path"));
    assert!(path.starts_with(sandbox.temporary()), "{} is in the session's TMPDIR", path.display());
    let all = std::fs::read_to_string(&path).expect("the file");
    assert_eq!(all.lines().count(), 5000);

    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &std::path::Path| path.metadata().expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().expect("a directory"))), (0o600, 0o700));
}

#[test]
fn a_log_that_cannot_be_kept_is_told_as_null() {
    let sandbox = Sandbox::new();
    let owner = std::os::unix::fs::MetadataExt::uid(&sandbox.home().metadata().expect("a home"));
    sandbox.write(&format!("tmp/atomic-{owner}"), "in the way of the directory");
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    let answer = shim.ask(json!({"type": "bash", "command": "seq 1 3000"}));
    let data = answer.data();
    assert_eq!(keys(data), ["output", "exitCode", "cancelled", "truncated", "fullOutputPath"]);
    assert_eq!((&data["truncated"], &data["fullOutputPath"]), (&json!(true), &Value::Null));
    assert!(data["output"].as_str().is_some_and(|output| output.trim_end().ends_with("2999\n3000")));
    let message = &shim.get("get_messages")["messages"][0];
    assert_eq!(message.get("fullOutputPath"), Some(&Value::Null), "{message}");
}

#[test]
fn text_survives_pieces_bad_bytes_and_terminal_codes() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    for (command, output) in [
        // Four bytes of one character in two writes, the second after the first was read.
        (r"printf '\360\237'; sleep 0.1; printf '\230\200\n'", "😀\n"),
        (r"printf 'a\377b\n'", "a\u{fffd}b\n"),
        (r"printf '\033[31mred\033[0m\n'", "red\n"),
        (r"printf 'a\r\nb\n'", "a\nb\n"),
        (r"printf '\342\200\250|\n'", "\u{2028}|\n"),
    ] {
        assert_eq!(run(&mut shim, command)["output"], output, "{command}");
    }
}

#[test]
fn it_runs_in_the_clients_directory() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    let expected = format!("{}\n", sandbox.project().display());
    assert_eq!(run(&mut shim, "pwd")["output"], expected.as_str());
}

#[test]
fn a_users_command_is_run_streamed_and_recorded_like_any() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.send(json!({"id": "u", "type": "user_bash", "command": "echo out; exit 2"}));
    let records = shim.until("the answer", |record| record["id"] == "u" && record.is_response());
    assert_eq!(kinds(&records), ["bash_execution_update", "response user_bash"]);
    assert_eq!(
        records[1].data(),
        &json!({"output": "out\n", "exitCode": 2, "cancelled": false, "truncated": false})
    );
    shim.send(
        json!({"id": "v", "type": "user_bash", "command": "echo up; sleep 600", "excludeFromContext": true}),
    );
    shim.wait_for("its output", |record| record["id"] == "v");
    let twice = json!({"id": "v", "type": "bash", "command": "true"});
    shim.send(twice);
    assert_eq!(shim.response("v").error(), "Bash request id already active: v");
    shim.ask(json!({"type": "abort_bash", "requestId": "v"})).data();
    assert_eq!(shim.response("v").data()["cancelled"], true);
    server.prepare(anthropic::text("seen"));
    shim.prompt("1", "look");
    shim.until_settled();
    let conversation = server.last_request().conversation();
    assert!(conversation[0].contains("out") && conversation.len() == 2, "{conversation:?}");
}
