//! How a shim ends, and what goes on without it.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{Exchange, ModelServer, Sandbox, SessionFile, Shim, Signal, anthropic, eventually, kinds};
use serde_json::{Value, json};

/// A shim whose run waits in the middle of its answer.
fn streaming(server: &ModelServer, sandbox: &Sandbox, arguments: &[&str]) -> (Shim, Exchange) {
    let mut shim = sandbox.shim().args(arguments).start();
    shim.prompt("1", "start");
    let mut exchange = server.next_request();
    exchange.begin(&anthropic::texts(&["one ", "two"]), 4);
    shim.wait_for_delta("one ");
    (shim, exchange)
}

/// Ends the answer of [`streaming`].
fn release(mut exchange: Exchange) {
    let answer = anthropic::texts(&["one ", "two"]);
    for event in &answer.events[answer.events.len() - 4..] {
        exchange.event(event);
    }
    exchange.finish();
}

/// The whole answer of [`streaming`] is in the file.
fn answered(file: &SessionFile) -> bool {
    file.messages()
        .iter()
        .any(|message| message["role"] == "assistant" && message["content"][0]["text"] == "one two")
}

#[test]
fn every_line_before_eof_is_answered() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.send_together(&[
        json!({"id": 1, "type": "get_available_models"}),
        json!({"id": 2, "type": "bash", "command": "echo hi"}),
        json!({"id": 3, "type": "nope"}),
        json!({"id": 4, "type": "get_state"}),
    ]);
    let finished = shim.finish().expect_code(0);
    let mut ids: Vec<u64> =
        shim.records().iter().filter(|r| r.is_response()).filter_map(|r| r["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4]);
    assert_eq!(finished.stderr, "");
}

#[test]
fn an_empty_stdin_ends_it_at_once_without_a_word() {
    let sandbox = Sandbox::new();
    let finished = sandbox.atomic(&["--mode", "rpc"]).expect_code(0);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("", ""));
}

#[test]
fn a_command_that_still_runs_at_eof_is_cancelled_and_answered() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.send(json!({"id": "b", "type": "bash", "command": "echo up; sleep 651"}));
    shim.wait_for_kind("bash_execution_update");
    shim.finish().expect_code(0);
    let answer = shim.response("b");
    assert_eq!(answer.data(), &json!({"output": "up\n", "cancelled": true, "truncated": false}));
    assert!(!sandbox.processes().iter().any(|process| process.command.contains("sleep 651")));
}

#[test]
fn at_eof_a_run_with_a_file_goes_on_to_its_end() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox, &[]);
    let file = shim.session_file();
    shim.finish().expect_code(0);
    let rest = kinds(&shim.rest());
    assert!(!rest.iter().any(|kind| kind == "agent_end"), "it ended without waiting for the run: {rest:?}");
    release(exchange);
    eventually("the answer is in the file", || answered(&file).then_some(()));
    let mut next = sandbox.shim().args(["--session", file.arg()]).start();
    assert_eq!(next.get("get_last_assistant_text")["text"], "one two");
}

#[test]
fn at_eof_a_run_without_a_file_is_aborted() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox, &["--no-session"]);
    shim.finish().expect_code(0);
    exchange.wait_for_hang_up();
}

#[test]
fn a_killed_shim_does_not_stop_its_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox, &[]);
    let file = shim.session_file();
    shim.kill();
    release(exchange);
    eventually("the answer is in the file", || answered(&file).then_some(()));
    let (mut lost, exchange) = streaming(&server, &sandbox, &["--no-session"]);
    lost.kill();
    exchange.wait_for_hang_up();
}

#[test]
fn signals_end_it_with_their_number() {
    let sandbox = Sandbox::new();
    for (signal, code) in [(Signal::Terminate, 143), (Signal::Hangup, 129)] {
        let mut shim = sandbox.rpc();
        shim.get("get_state");
        shim.signal(signal);
        shim.wait_for_exit().expect_code(code);
    }
}

#[test]
fn a_signal_cancels_its_commands_and_leaves_its_run() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, exchange) = streaming(&server, &sandbox, &[]);
    let file = shim.session_file();
    shim.send(json!({"id": "b", "type": "bash", "command": "echo up; sleep 652"}));
    shim.wait_for_kind("bash_execution_update");
    shim.signal(Signal::Terminate);
    shim.wait_for_exit().expect_code(143);
    eventually("the command is gone", || {
        (!sandbox.processes().iter().any(|process| process.command.contains("sleep 652"))).then_some(())
    });
    release(exchange);
    eventually("the answer is in the file", || answered(&file).then_some(()));
}

#[test]
fn the_first_interrupt_is_the_clients_business() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.get("get_state");
    shim.signal(Signal::Interrupt);
    shim.get("get_state");
    assert!(shim.process().is_running());
}

#[test]
fn a_closed_stdout_ends_it_and_not_the_session() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().start_with_closed_stdout();
    shim.send(json!({"id": 1, "type": "get_state"}));
    shim.wait_for_exit().expect_code(1);
    let mut next = sandbox.rpc();
    next.get("get_state");
}

#[test]
fn the_daemon_survives_its_shims() {
    let sandbox = Sandbox::new();
    let mut first = sandbox.rpc();
    first.get("get_state");
    let daemon = sandbox.daemon();
    first.kill();
    let mut second = sandbox.rpc();
    second.get("get_state");
    second.finish().expect_code(0);
    let mut third = sandbox.rpc();
    third.get("get_state");
    assert_eq!(sandbox.daemon(), daemon);
}

#[test]
fn drain_stays_until_the_run_has_settled() {
    for memory in [&[][..], &["--no-session"]] {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let arguments: Vec<&str> = memory.iter().copied().chain(["--drain"]).collect();
        let (mut shim, exchange) = streaming(&server, &sandbox, &arguments);
        shim.close_stdin();
        release(exchange);
        shim.until_settled();
        shim.wait_for_exit().expect_code(0);
    }
}

#[test]
fn on_disconnect_abort_ends_the_run_before_the_shim_leaves() {
    for by_setting in [false, true] {
        let server = ModelServer::start();
        let sandbox = Sandbox::with_models(&server);
        let mut arguments = vec![];
        match by_setting {
            true => sandbox.write_settings(&json!({"daemon": {"onDisconnect": "abort"}})),
            false => arguments.extend(["--on-disconnect", "abort"]),
        }
        let (mut shim, exchange) = streaming(&server, &sandbox, &arguments);
        let file = shim.session_file();
        shim.close_stdin();
        shim.until_settled();
        shim.wait_for_exit().expect_code(0);
        exchange.wait_for_hang_up();
        let last: Vec<Value> = file.messages();
        assert_eq!(last.last().expect("an answer")["stopReason"], "aborted");
    }
}

#[test]
fn the_flag_goes_before_the_setting() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    sandbox.write_settings(&json!({"daemon": {"onDisconnect": "abort"}}));
    let (mut shim, exchange) = streaming(&server, &sandbox, &["--on-disconnect", "finish"]);
    let file = shim.session_file();
    shim.finish().expect_code(0);
    release(exchange);
    eventually("the run goes on to its end", || {
        file.messages().iter().any(|message| message["content"][0]["text"] == "one two").then_some(())
    });
}

#[test]
fn another_client_keeps_the_run_and_hears_it_end() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut first, exchange) = streaming(&server, &sandbox, &["--on-disconnect", "abort"]);
    let file = first.session_file();
    let mut second = sandbox.shim().args(["--session", file.arg()]).start();
    let joined = second.until("the answer so far", |record| record["type"] == "message_start");
    assert!(joined.iter().any(|record| record["type"] == "agent_start"));
    let so_far = joined.last().expect("message_start");
    assert_eq!(so_far["message"]["content"][0]["text"], "one ");
    first.finish().expect_code(0);
    release(exchange);
    let rest = second.until_settled();
    assert!(
        rest.iter().any(|record| record["assistantMessageEvent"]["delta"] == "two"),
        "the live tail, no gap"
    );
}
