//! What becomes of a run when its client leaves, and who decides.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{Exchange, ModelServer, Sandbox, Shim, anthropic, eventually};
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

fn release(mut exchange: Exchange) {
    let answer = anthropic::texts(&["one ", "two"]);
    for event in &answer.events[answer.events.len() - 4..] {
        exchange.event(event);
    }
    exchange.finish();
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
