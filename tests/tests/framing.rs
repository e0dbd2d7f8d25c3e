//! Lines in, lines out: every line gets exactly one answer.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Sandbox, anthropic, kinds};
use serde_json::{Value, json};

/// The answer to one line that no other line follows.
fn answer_to(line: &[u8]) -> String {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    shim.send_raw(line);
    let answer = shim.wait_for_kind("response");
    shim.assert_quiet();
    answer.raw
}

#[test]
fn errors_are_exactly_these() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    for (line, answer) in [
        (
            "",
            r#"{"type":"response","command":"parse","success":false,"error":"Failed to parse command: Unexpected end of JSON input"}"#,
        ),
        (
            r#"{"id":"u","type":"context_compact"}"#,
            r#"{"id":"u","type":"response","command":"context_compact","success":false,"error":"Unknown command: context_compact"}"#,
        ),
        (
            r#"{"id":"m","type":"set_model","provider":"invalid","modelId":"model"}"#,
            r#"{"id":"m","type":"response","command":"set_model","success":false,"error":"Model not found: invalid/model"}"#,
        ),
        (
            r#"{"id":"e","type":"get_entries","since":"nope"}"#,
            r#"{"id":"e","type":"response","command":"get_entries","success":false,"error":"Entry not found: nope"}"#,
        ),
    ] {
        shim.send_raw(format!("{line}\n").as_bytes());
        assert_eq!(shim.wait_for_kind("response").raw, answer);
    }
    shim.assert_quiet();
}

#[test]
fn what_is_no_command_is_answered_once_and_the_rest_goes_on() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    for (line, command) in [
        ("not json", json!("parse")),
        ("{\"type\":\"get_state\"", json!("parse")),
        ("{\"type\":\"get_state\"} {}", json!("parse")),
        ("   ", json!("parse")),
        ("\u{feff}{\"type\":\"get_state\"}", json!("parse")),
        ("null", json!("unknown")),
        ("5", json!("unknown")),
        ("true", json!("unknown")),
        ("\"s\"", json!("unknown")),
        ("[]", json!("unknown")),
        ("{}", Value::Null),
        ("{\"type\":5}", json!(5)),
    ] {
        shim.send_raw(format!("{line}\n").as_bytes());
        let answer = shim.wait_for_kind("response");
        assert_eq!(answer["command"], command, "{line}: {}", answer.raw);
        assert_eq!(answer.get("id"), None, "{line}: {}", answer.raw);
        if command == "parse" {
            assert!(answer.error().starts_with("Failed to parse command: "), "{}", answer.raw);
        } else {
            answer.error();
        }
        shim.assert_quiet();
    }
}

#[test]
fn ids_of_every_kind_come_back_as_they_were() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    for id in [
        "\"x\"",
        "\"\"",
        "\"\\u00e9\\/\"",
        "\"\u{2028}\"",
        "7",
        "-0",
        "1.0",
        "1e2",
        "123456789012345678901234567890",
        "null",
        "true",
        "{\"a\" : 1}",
        "[1,\t2]",
    ] {
        for (command, known) in [("clear_queue", true), ("nope", false), ("fork", false)] {
            shim.send_raw(format!("{{\"type\":\"{command}\",\"id\":{id}}}\n").as_bytes());
            let answer = shim.wait_for_kind("response");
            let expected =
                format!("{{\"id\":{id},\"type\":\"response\",\"command\":\"{command}\",\"success\":{known}");
            assert!(answer.raw.starts_with(&expected), "{id}: {}", answer.raw);
        }
    }
    shim.send_raw(b"{\"type\":\"clear_queue\"}\n");
    assert!(shim.wait_for_kind("response").raw.starts_with("{\"type\":\"response\""), "no id is no key");
    let long = "x".repeat(1_000_000);
    shim.send(json!({"id": long, "type": "clear_queue"}));
    assert!(shim.response(long).succeeded());
}

#[test]
fn of_a_repeated_key_the_last_one_counts() {
    let answer = answer_to(b"{\"id\":1,\"type\":\"nope\",\"id\":2,\"type\":\"clear_queue\"}\n");
    assert!(
        answer.starts_with(r#"{"id":2,"type":"response","command":"clear_queue","success":true"#),
        "{answer}"
    );
}

#[test]
fn wrong_fields_are_named() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    for (command, field) in [
        (json!({"type": "prompt"}), "message"),
        (json!({"type": "prompt", "message": 5}), "message"),
        (json!({"type": "prompt", "message": "x", "images": 5}), "images"),
        (json!({"type": "prompt", "message": "x", "streamingBehavior": "sometimes"}), "streamingBehavior"),
        (json!({"type": "steer"}), "message"),
        (json!({"type": "follow_up", "message": null}), "message"),
        (json!({"type": "bash"}), "command"),
        (json!({"type": "set_model", "provider": "x"}), "modelId"),
        (json!({"type": "set_thinking_level", "level": "bogus"}), "level"),
        (json!({"type": "set_steering_mode"}), "mode"),
        (json!({"type": "set_session_name"}), "name"),
        (json!({"type": "get_entries", "since": 5}), "since"),
        (json!({"type": "new_session", "parentSession": 5}), "parentSession"),
    ] {
        let name = command["type"].as_str().expect("a name").to_owned();
        let answer = shim.ask(command);
        let start = format!("Invalid {name} command: {field} must be ");
        assert!(answer.error().starts_with(&start), "{}", answer.raw);
    }
    shim.rest();
    shim.assert_quiet();
}

#[test]
fn unknown_commands_are_unknown() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    for command in ["context_compact", "Prompt", "", "response", "quit"] {
        let answer = shim.ask(json!({"type": command}));
        assert_eq!(answer["command"], command);
        assert_eq!(answer.error(), format!("Unknown command: {command}"));
    }
    // The one line that gets no answer.
    shim.send(json!({"type": "extension_ui_response", "id": "x", "value": "y"}));
    shim.rest();
    shim.assert_quiet();
}

#[test]
fn lines_end_at_lf_only_however_they_arrive() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    // CRLF; separators that other readers take for line ends, raw; one byte per write.
    shim.send_raw(b"{\"id\":\"crlf\",\"type\":\"get_state\"}\r\n");
    assert!(shim.response("crlf").succeeded());
    shim.send_raw("{\"id\":\"u\u{2028}\u{2029}\u{85}\",\"type\":\"get_state\"}\n".as_bytes());
    assert!(shim.response("u\u{2028}\u{2029}\u{85}").succeeded());
    for byte in b"{\"id\":\"bytes\",\"type\":\"get_state\"}\n" {
        shim.send_raw(&[*byte]);
    }
    assert!(shim.response("bytes").succeeded());
    shim.send_raw(
        b"{\"id\":\"a\",\"type\":\"get_state\"}\n{\"id\":\"b\",\"type\":\"get_state\"}\n{\"id\":\"c\",",
    );
    assert!(shim.response("a").succeeded());
    assert!(shim.response("b").succeeded());
    shim.send_raw(b"\"type\":\"get_state\"}\n");
    assert!(shim.response("c").succeeded());
    assert_eq!(shim.records().len(), 6);
}

#[test]
fn bad_utf8_becomes_the_replacement_character() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("ok"));
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    shim.send_raw(b"{\"id\":\"\xff\",\"type\":\"prompt\",\"message\":\"a\xffb \\ud800 \\u2028\"}\n");
    assert!(shim.response("\u{fffd}").succeeded());
    shim.until_settled();
    assert_eq!(server.last_request().conversation(), ["user: a\u{fffd}b \u{fffd} \u{2028}"]);
}

#[test]
fn a_line_that_begins_like_a_link_record_is_a_parse_error() {
    let answer = answer_to(b"\x1e{\"eof\":true}\n");
    assert!(answer.starts_with(r#"{"type":"response","command":"parse","success":false"#), "{answer}");
}

#[test]
fn line_separators_go_out_raw() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let text = "a\u{2028}b\u{2029}c\u{85}\u{0}d\"\\\u{1f600}";
    server.prepare(anthropic::text(text));
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    shim.prompt("1", text);
    let records = shim.until_settled();
    let delta = records.iter().find(|record| record.delta_kind() == "text_delta").expect("a delta");
    assert_eq!(delta["assistantMessageEvent"]["delta"], text);
    assert!(delta.raw.contains('\u{2028}') && delta.raw.contains('\u{2029}'), "{}", delta.raw);
    assert_eq!(server.last_request().conversation(), [format!("user: {text}")]);
}

#[test]
fn a_line_of_eight_mebibytes_passes_both_ways() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("long"));
    let mut shim = sandbox.rpc();
    let message = "0123456789abcdef".repeat(8 << 16);
    assert_eq!(message.len(), 8 << 20);
    shim.prompt("1", &message);
    let records = shim.until_settled();
    assert!(records[0].succeeded());
    let text = |value: &Value| value[0]["text"].as_str().map(str::to_owned);
    assert!(text(&records[3]["message"]["content"]).as_ref() == Some(&message), "the event carries it whole");
    assert!(text(&server.last_request().body["messages"][0]["content"]).as_ref() == Some(&message));
    let listed = shim.get("get_messages");
    assert!(text(&listed["messages"][0]["content"]).as_ref() == Some(&message));
}

#[test]
fn deep_nesting_is_no_trouble() {
    let (open, close) = ("[".repeat(20_000), "]".repeat(20_000));
    let answer =
        answer_to(format!("{{\"id\":1,\"type\":\"clear_queue\",\"deep\":{open}{close}}}\n").as_bytes());
    assert!(
        answer.starts_with(r#"{"id":1,"type":"response","command":"clear_queue","success":true"#),
        "{answer}"
    );
}

#[test]
fn the_last_line_needs_no_lf() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.rpc();
    shim.send_raw(b"{\"id\":\"last\",\"type\":\"get_state\"}");
    let finished = shim.finish().expect_code(0);
    let records = shim.rest();
    assert_eq!(kinds(&records), ["response get_state"], "{}", finished.stderr);
    assert_eq!(records[0]["id"], "last");
}

#[test]
fn every_line_of_many_gets_one_answer_in_order() {
    let sandbox = Sandbox::new();
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    let commands: Vec<Value> =
        (0..500).map(|n| json!({"id": n, "type": if n % 3 == 0 { "get_state" } else { "nope" }})).collect();
    shim.send_together(&commands);
    shim.finish().expect_code(0);
    let ids: Vec<Option<u64>> = shim.rest().iter().map(|record| record["id"].as_u64()).collect();
    assert!(ids.iter().copied().eq((0..500).map(Some)), "{ids:?}");
}

#[test]
fn nothing_is_said_before_the_first_answer() {
    let sandbox = Sandbox::new();
    sandbox.write("home/.atomic/agent/settings.json", "{ broken");
    let mut shim = sandbox.shim().env("RUST_LOG", "trace").start();
    shim.send(json!({"id": 1, "type": "get_state"}));
    shim.response(1);
    assert_eq!(kinds(shim.records()), ["response get_state"]);
}
