//! Two windows, one daemon: neither sees the other.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{API_KEY, MODEL, ModelServer, PLAIN_MODEL, PROVIDER, Sandbox, Shim, anthropic};
use serde_json::{Value, json};

fn run(shim: &mut Shim, command: &str) -> String {
    let answer = shim.ask(json!({"type": "bash", "command": command}));
    answer.data()["output"].as_str().expect("text").to_owned()
}

fn status(sandbox: &Sandbox) -> Value {
    let output = sandbox.atomic(&["status", "--json"]).expect_code(0);
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", output.stdout))
}

#[test]
fn each_has_its_own_directory_and_environment_in_one_daemon() {
    let sandbox = Sandbox::new();
    let (here, there) = (sandbox.dir("here"), sandbox.dir("there"));
    let mut first = sandbox.shim().directory(&here).env("MARKER", "one").env("ONLY_FIRST", "1").start();
    first.get("get_state");
    let mut second = sandbox.shim().directory(&there).env("MARKER", "two").env("LANG", "C").start();
    let show = r#"printf '%s|%s|%s|%s' "$(pwd)" "$MARKER" "${ONLY_FIRST-unset}" "$LANG""#;
    assert_eq!(run(&mut first, show), format!("{}|one|1|C.UTF-8", here.display()));
    assert_eq!(
        run(&mut second, show),
        format!("{}|two|unset|C", there.display()),
        "nothing of the starter's"
    );

    let status = status(&sandbox);
    assert_eq!(status["pid"], sandbox.daemon());
    let sessions = status["sessions"].as_array().expect("sessions");
    let mut directories: Vec<&Value> = sessions.iter().map(|session| &session["cwd"]).collect();
    directories.sort_by_key(|directory| directory.to_string());
    assert_eq!(json!(directories), json!([here, there]));
    assert!(sessions.iter().all(|session| session["clients"] == 1), "{status}");
}

#[test]
fn the_models_tools_run_in_the_sessions_environment() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut starter = sandbox.shim().env("MARKER", "starter").start();
    starter.get("get_state");
    let there = sandbox.dir("there");
    let mut shim = sandbox.shim().directory(&there).env("MARKER", "mine").start();
    server.prepare(anthropic::tool_call(
        "c1",
        "bash",
        json!({"command": "echo $MARKER > out; echo $MARKER; pwd"}),
    ));
    server.prepare(anthropic::text("done"));
    shim.prompt("1", "go");
    shim.until_settled();
    let expected = format!("user: [result] mine\n{}\n", there.display());
    assert_eq!(server.last_request().conversation()[2], expected);
    assert_eq!(std::fs::read_to_string(there.join("out")).expect("the file"), "mine\n");
}

#[test]
fn each_uses_its_own_key() {
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    let model = json!({"id": MODEL, "contextWindow": 1000, "maxTokens": 100});
    sandbox.write_models(&json!({"providers": {PROVIDER: {
        "baseUrl": server.url(), "api": "anthropic-messages", "apiKey": "$MOCK_KEY", "models": [model]}}}));
    for key in ["first-key", "second-key"] {
        let mut shim = sandbox.shim().args(["--no-session"]).env("MOCK_KEY", key).start();
        server.prepare(anthropic::text("ok"));
        shim.prompt("1", "hi");
        shim.until_settled();
        assert_eq!(server.last_request().header("x-api-key"), Some(key));
    }
    let mut without = sandbox.shim().args(["--no-session"]).start();
    assert_eq!(without.get("get_available_models")["models"], json!([]), "no key, no model");
    without.prompt("1", "hi");
    assert!(without.response("1").error().contains("API key"));
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_key_on_the_command_line_is_that_sessions_alone() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut mine =
        sandbox.shim().args(["--model", &format!("{PROVIDER}/{MODEL}"), "--api-key", "typed-key"]).start();
    let mut other = sandbox.rpc();
    for (shim, key) in [(&mut mine, "typed-key"), (&mut other, API_KEY)] {
        server.prepare(anthropic::text("ok"));
        shim.prompt("1", "hi");
        shim.until_settled();
        assert_eq!(server.last_request().header("x-api-key"), Some(key));
    }
    let log = sandbox.daemon_log();
    assert!(!log.contains("typed-key") && !log.contains(API_KEY), "no key in any log");
}

#[test]
fn runs_queues_and_settings_of_one_are_not_the_others() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut first = sandbox.rpc();
    let mut second = sandbox.rpc();
    assert_ne!(first.get("get_state")["sessionId"], second.get("get_state")["sessionId"]);
    first.rest();
    second.rest();
    first.prompt("1", "first");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one", "two"]), 4);
    first.wait_for_delta("one");
    first.ask(json!({"type": "follow_up", "message": "later"})).data();
    second.assert_quiet();
    let state = second.get("get_state");
    assert_eq!((&state["isStreaming"], &state["pendingMessageCount"]), (&json!(false), &json!(0)));

    // The second works while the first waits for its model.
    second.ask(json!({"type": "set_model", "provider": PROVIDER, "modelId": PLAIN_MODEL})).data();
    second.ask(json!({"type": "set_session_name", "name": "second"})).data();
    server.prepare(anthropic::text("ok"));
    second.rest();
    second.prompt("1", "second");
    second.until_settled();
    assert_eq!(server.last_request().conversation(), ["user: second"]);
    second.ask(json!({"type": "abort"})).data();

    let state = first.get("get_state");
    assert_eq!((&state["isStreaming"], &state["model"]["id"]), (&json!(true), &json!(MODEL)));
    assert_eq!(state.get("sessionName"), None);
    assert_eq!(state["pendingMessageCount"], 1);
    drop(exchange);
}

#[test]
fn ids_of_commands_are_per_client() {
    let sandbox = Sandbox::new();
    let mut first = sandbox.rpc();
    let mut second = sandbox.rpc();
    for (shim, text) in [(&mut first, "one"), (&mut second, "two")] {
        shim.send(json!({"id": "b", "type": "bash", "command": format!("echo {text}; sleep 641")}));
        assert_eq!(shim.wait_for_kind("bash_execution_update")["delta"], format!("{text}\n"));
    }
    first.ask(json!({"type": "abort_bash"})).data();
    assert_eq!(first.response("b").data()["cancelled"], true);
    second.rest();
    second.assert_quiet();
    second.ask(json!({"type": "abort_bash", "requestId": "b"})).data();
    assert_eq!(second.response("b").data()["output"], "two\n");
}

#[test]
fn a_joiner_brings_its_login_and_nothing_else() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("one"));
    let mut first = sandbox.shim().env("SSH_AUTH_SOCK", "/old").env("FOO", "first").start();
    first.prompt("1", "make the file");
    first.until_settled();
    let file = first.session_file();
    let mut second = sandbox
        .shim()
        .args(["--session", file.arg()])
        .env("SSH_AUTH_SOCK", "/new")
        .env("FOO", "second")
        .env("BAR", "second")
        .start();
    second.get("get_state");
    let seen = run(&mut first, "echo $SSH_AUTH_SOCK $FOO ${BAR-unset}");
    assert_eq!(seen, "/new first unset\n", "for everybody in the session");
}

/// Whose session it was before does not matter: what a client begins is made of what the client brought along.
#[test]
fn a_joiner_that_goes_on_to_another_session_takes_its_own_environment() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("one"));
    let mut first = sandbox.shim().args(["--tools", "read"]).env("FOO", "first").start();
    first.prompt("1", "make the file");
    first.until_settled();
    let file = first.session_file();
    let mut second = sandbox.shim().args(["--session", file.arg()]).env("FOO", "second").start();
    assert_eq!(run(&mut second, "echo $FOO"), "first\n");
    for command in ["new_session", "switch_session"] {
        let stored = sandbox.project().join(format!("{command}.jsonl"));
        second.ask(json!({"type": command, "sessionPath": stored})).data();
        assert_eq!(run(&mut second, "echo $FOO"), "second\n", "{command}");
    }
    // And the tools are the usual ones, not those of the first client's command line.
    server.prepare(anthropic::text("two"));
    second.prompt("1", "hi");
    second.until_settled();
    assert_eq!(server.last_request().body["tools"].as_array().map(Vec::len), Some(4));
    assert_eq!(run(&mut first, "echo $FOO"), "first\n");
}

#[test]
fn a_session_whose_directory_is_gone_says_so_and_others_do_not_notice() {
    let sandbox = Sandbox::new();
    let gone = sandbox.dir("gone");
    let mut lost = sandbox.shim().directory(&gone).start();
    lost.get("get_state");
    let mut other = sandbox.rpc();
    std::fs::remove_dir_all(&gone).expect("an empty directory");
    let seen = run(&mut lost, "pwd");
    assert!(seen.contains("Working directory does not exist"), "{seen}");
    lost.get("get_messages");
    assert_eq!(run(&mut other, "echo here"), "here\n");
}

/// A session whose directory is gone when it is opened: one is told what is missing, it can be read, and it goes on
/// elsewhere.
#[test]
fn a_stored_session_without_its_directory_is_refused_by_name_and_can_be_read() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let gone = sandbox.dir("gone");
    let mut shim = sandbox.shim().directory(&gone).start();
    server.prepare(anthropic::text("hello"));
    shim.prompt("1", "hi");
    shim.until_settled();
    let file = shim.session_file();
    shim.finish().expect_code(0);
    sandbox.kill_daemon();
    std::fs::remove_dir_all(&gone).expect("the directory");
    let before = file.bytes();
    for _ in 0..3 {
        let refused = sandbox.atomic(&["--mode", "rpc", "--session", file.arg()]).expect_code(1);
        let text = format!("Error: Stored session working directory does not exist: {}", gone.display());
        assert!(refused.stderr.starts_with(&text), "{}", refused.stderr);
        assert_eq!(refused.stdout, "");
    }
    sandbox.atomic(&["sessions", "show", file.arg()]).expect_code(0);
    sandbox.atomic(&["sessions", "export", file.arg(), "page.html"]).expect_code(0);
    assert_eq!(file.bytes(), before);
    let mut other = sandbox.rpc();
    let elsewhere =
        json!({"type": "import_session", "inputPath": file.arg(), "cwdOverride": sandbox.project()});
    other.ask(elsewhere).data();
    assert_eq!(run(&mut other, "pwd"), format!("{}\n", sandbox.project().display()));
    assert_eq!(other.get("get_messages")["messages"].as_array().map(Vec::len), Some(2 + 1));
}
