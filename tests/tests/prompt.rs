//! What a prompt makes the daemon say, record by record.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::anthropic::{self, Builder};
use atomic_tests::{API_KEY, MODEL, ModelServer, Record, Sandbox, golden, keys, kinds, normalised, the_only};
use serde_json::{Value, json};

/// No tokens yet.
const U0: &str = r#"{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}"#;
/// What every scripted answer reports at its end.
const U1: &str = r#"{"input":10,"output":5,"cacheRead":0,"cacheWrite":0,"totalTokens":15,"cost":{"input":10,"output":10,"cacheRead":0,"cacheWrite":0,"total":20}}"#;
const OPEN: &str = r#"{"role":"assistant","content":[],"api":"anthropic-messages","provider":"mock","model":"mock-model","usage":$U0,"stopReason":"pending","timestamp":"T"}"#;
const UPDATE: &str = r#"{"type":"message_update","usage":$U0,"assistantMessageEvent":"#;

fn lines(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| normalised(record)).collect()
}

/// A finished assistant message with this content.
fn done(content: &str, stop_reason: &str) -> String {
    OPEN.replace("[]", content).replace("$U0", "$U1").replace(
        r#""pending","timestamp":"T""#,
        &format!(r#""{stop_reason}","timestamp":"T","responseId":"msg_1""#),
    )
}

#[test]
fn a_text_turn_is_exactly_this() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::texts(&["Hel", "lo"]));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "Hello, world!");
    let records = shim.until_settled();
    let expected = golden(
        r#"
        {"id":"1","type":"response","command":"prompt","success":true,"data":{"disposition":"started"}}
        {"type":"agent_start"}
        {"type":"turn_start"}
        {"type":"message_start","message":$USER}
        {"type":"message_end","message":$USER}
        {"type":"message_start","message":$OPEN}
        $UPDATE{"type":"text_start","contentIndex":0}}
        $UPDATE{"type":"text_delta","contentIndex":0,"delta":"Hel"}}
        $UPDATE{"type":"text_delta","contentIndex":0,"delta":"lo"}}
        $UPDATE{"type":"text_end","contentIndex":0,"content":"Hello"}}
        {"type":"message_end","message":$DONE}
        {"type":"turn_end","message":$DONE,"toolResults":[]}
        {"type":"agent_end","messages":[$USER,$DONE],"willRetry":false}
        {"type":"agent_settled","aborted":false}"#,
        &[
            (
                "$USER",
                r#"{"role":"user","content":[{"type":"text","text":"Hello, world!"}],"timestamp":"T"}"#,
            ),
            ("$OPEN", OPEN),
            ("$DONE", &done(r#"[{"type":"text","text":"Hello"}]"#, "stop")),
            ("$UPDATE", UPDATE),
            ("$U0", U0),
            ("$U1", U1),
        ],
    );
    assert_eq!(lines(&records), expected);
    shim.assert_quiet();

    let request = server.last_request();
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/messages"));
    assert_eq!(request.header("x-api-key"), Some(API_KEY));
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!((&request.body["model"], &request.body["stream"]), (&json!(MODEL), &json!(true)));
    assert_eq!(request.conversation(), ["user: Hello, world!"]);
}

#[test]
fn a_tool_turn_is_exactly_this() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    sandbox.write("project/a", "");
    server.prepare(anthropic::tool_call("c1", "bash", json!({"command": "ls"})));
    server.prepare(anthropic::text("done"));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "run it");
    let records = shim.until_settled();

    // How often progress is reported depends on time; that it begins with nothing does not.
    let first =
        records.iter().find(|record| record.kind() == "tool_execution_update").expect("an update").clone();
    assert_eq!(keys(&first), ["type", "toolCallId", "toolName", "args", "partialResult"], "{}", first.raw);
    assert_eq!(first["partialResult"]["content"], json!([]), "{}", first.raw);
    let rest: Vec<Record> =
        records.into_iter().filter(|record| record.kind() != "tool_execution_update").collect();

    let call = r#"{"type":"toolCall","id":"c1","name":"bash","arguments":{"command":"ls"}}"#;
    let expected = golden(
        r#"
        {"id":"1","type":"response","command":"prompt","success":true,"data":{"disposition":"started"}}
        {"type":"agent_start"}
        {"type":"turn_start"}
        {"type":"message_start","message":$USER}
        {"type":"message_end","message":$USER}
        {"type":"message_start","message":$OPEN}
        $UPDATE{"type":"toolcall_start","contentIndex":0,"id":"c1","toolName":"bash"}}
        $UPDATE{"type":"toolcall_delta","contentIndex":0,"delta":"{\"command\":\"ls\"}"}}
        $UPDATE{"type":"toolcall_end","contentIndex":0,"toolCall":$CALL}}
        {"type":"message_end","message":$ASKED}
        {"type":"tool_execution_start","toolCallId":"c1","toolName":"bash","args":{"command":"ls"}}
        {"type":"tool_execution_end","toolCallId":"c1","toolName":"bash","result":{"content":[{"type":"text","text":"a\n"}],"details":"D"},"isError":false}
        {"type":"message_start","message":$RESULT}
        {"type":"message_end","message":$RESULT}
        {"type":"turn_end","message":$ASKED,"toolResults":[$RESULT]}
        {"type":"turn_start"}
        {"type":"message_start","message":$OPEN}
        $UPDATE{"type":"text_start","contentIndex":0}}
        $UPDATE{"type":"text_delta","contentIndex":0,"delta":"done"}}
        $UPDATE{"type":"text_end","contentIndex":0,"content":"done"}}
        {"type":"message_end","message":$SAID}
        {"type":"turn_end","message":$SAID,"toolResults":[]}
        {"type":"agent_end","messages":[$USER,$ASKED,$RESULT,$SAID],"willRetry":false}
        {"type":"agent_settled","aborted":false}"#,
        &[
            ("$USER", r#"{"role":"user","content":[{"type":"text","text":"run it"}],"timestamp":"T"}"#),
            ("$OPEN", OPEN),
            ("$ASKED", &done("[$CALL]", "toolUse")),
            ("$SAID", &done(r#"[{"type":"text","text":"done"}]"#, "stop")),
            (
                "$RESULT",
                r#"{"role":"toolResult","toolCallId":"c1","toolName":"bash","content":[{"type":"text","text":"a\n"}],"details":"D","isError":false,"timestamp":"T"}"#,
            ),
            ("$CALL", call),
            ("$UPDATE", UPDATE),
            ("$U0", U0),
            ("$U1", U1),
        ],
    );
    assert_eq!(lines(&rest), expected);
    let conversation = server.last_request().conversation();
    assert_eq!(conversation, ["user: run it", "assistant: [bash]", "user: [result] a\n"]);
}

#[test]
fn parallel_calls_start_in_order_end_as_they_end_and_are_answered_in_order() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    // The first call can only end after the second: run one after the other, they would never end.
    server.prepare(anthropic::tool_calls(&[
        ("c1", "bash", json!({"command": "until [ -e go ]; do sleep 0.01; done; echo one"})),
        ("c2", "bash", json!({"command": "echo two"})),
    ]));
    server.prepare(anthropic::text("both"));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "go");
    let mut records = shim.until("end of the second call", |record| {
        record.kind() == "tool_execution_end" && record["toolCallId"] == "c2"
    });
    sandbox.write("project/go", "");
    records.extend(shim.until_settled());

    let order: Vec<String> = kinds(&records)
        .into_iter()
        .filter(|kind| kind.starts_with("tool_execution_") && !kind.contains("update"))
        .collect();
    assert_eq!(
        order,
        [
            "tool_execution_start c1",
            "tool_execution_start c2",
            "tool_execution_end c2",
            "tool_execution_end c1"
        ]
    );
    let results: Vec<&Value> =
        records.iter().filter(|r| r.is_message("message_end", "toolResult")).map(|r| &r["message"]).collect();
    let ids: Vec<&str> = results.iter().filter_map(|result| result["toolCallId"].as_str()).collect();
    assert_eq!(ids, ["c1", "c2"]);
    let last_end = records.iter().rposition(|r| r.kind() == "tool_execution_end");
    let first_result = records.iter().position(|r| r.is_message("message_start", "toolResult"));
    assert!(last_end < first_result, "results come after all ends");
    let turn_end = records.iter().find(|record| record.kind() == "turn_end").expect("a turn end");
    assert_eq!(turn_end["toolResults"], json!(results));
    let conversation = server.last_request().conversation();
    assert_eq!(
        conversation,
        [
            "user: go",
            "assistant: [bash]",
            "assistant: [bash]",
            "user: [result] one\n",
            "user: [result] two\n"
        ]
    );
}

#[test]
fn calls_that_cannot_run_are_answered_with_errors() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::tool_calls(&[
        ("c1", "no_such_tool", json!({})),
        ("c2", "bash", json!({})),
        ("c3", "bash", json!({"command": "echo out; exit 3"})),
    ]));
    server.prepare(anthropic::text("sorry"));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "go");
    let records = shim.until_settled();
    let result = |id: &str| {
        let message = the_only(&records, "the result of the call", |record| {
            record.is_message("message_end", "toolResult") && record["message"]["toolCallId"] == id
        });
        assert_eq!(message["message"]["isError"], true, "{}", message.raw);
        message["message"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(result("c1"), "Tool no_such_tool not found");
    assert!(result("c2").contains("command"), "the missing field is named: {}", result("c2"));
    assert_eq!(result("c3"), "out\n\n\nCommand exited with code 3");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn thinking_streams_and_goes_back_signed() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(Builder::default().thinking(&["I ", "think"], "sig").text(&["so"]).end("end_turn"));
    server.prepare(anthropic::text("yes"));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "why?");
    let records = shim.until_settled();
    let deltas: Vec<&Value> = records
        .iter()
        .filter(|record| record.kind() == "message_update")
        .map(|record| &record["assistantMessageEvent"])
        .collect();
    assert_eq!(
        json!(deltas),
        json!([
            {"type": "thinking_start", "contentIndex": 0},
            {"type": "thinking_delta", "contentIndex": 0, "delta": "I "},
            {"type": "thinking_delta", "contentIndex": 0, "delta": "think"},
            {"type": "thinking_end", "contentIndex": 0, "content": "I think"},
            {"type": "text_start", "contentIndex": 1},
            {"type": "text_delta", "contentIndex": 1, "delta": "so"},
            {"type": "text_end", "contentIndex": 1, "content": "so"},
        ])
    );
    let end = the_only(&records, "the answer's end", |record| record.is_message("message_end", "assistant"));
    assert_eq!(
        end["message"]["content"],
        json!([{"type": "thinking", "thinking": "I think", "thinkingSignature": "sig"}, {"type": "text", "text": "so"}])
    );
    shim.prompt("2", "and?");
    shim.until_settled();
    let thought = &server.last_request().body["messages"][1]["content"][0];
    assert_eq!(thought, &json!({"type": "thinking", "thinking": "I think", "signature": "sig"}));
}

#[test]
fn images_reach_the_model_and_rubbish_is_refused() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(anthropic::text("a dot"));
    let mut shim = sandbox.rpc();
    // One transparent pixel.
    let png =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
    let image = json!({"type": "image", "data": png, "mimeType": "image/png"});
    shim.send(json!({"id": "1", "type": "prompt", "message": "see?", "images": [image]}));
    let records = shim.until_settled();
    let user = the_only(&records, "the user's message", |record| record.is_message("message_end", "user"));
    assert_eq!(user["message"]["content"], json!([{"type": "text", "text": "see?"}, image]));
    let sent = &server.last_request().body["messages"][0]["content"];
    assert_eq!(sent[1]["source"], json!({"type": "base64", "media_type": "image/png", "data": png}));

    let bad = json!({"type": "image", "data": "not base64!", "mimeType": "image/png"});
    let answer = shim.ask(json!({"type": "prompt", "message": "see?", "images": [bad]}));
    assert!(answer.error().contains("image"), "{}", answer.raw);
    shim.rest();
    shim.assert_quiet();
}

#[test]
fn updates_carry_the_newest_usage_and_no_snapshot() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    shim.prompt("1", "count");
    let mut exchange = server.next_request();
    let mut answer = anthropic::texts(&["one", "two"]);
    answer.events[0].data["message"]["usage"] = json!({"input_tokens": 7, "output_tokens": 1});
    exchange.begin(&answer, 4);
    shim.wait_for_delta("one");
    for event in &answer.events[answer.events.len() - 4..] {
        exchange.event(event);
    }
    exchange.finish();
    shim.until_settled();
    let updates: Vec<&Record> = shim.records().iter().filter(|r| r.kind() == "message_update").collect();
    assert_eq!(updates.len(), 4);
    for update in updates {
        assert_eq!(keys(update), ["type", "usage", "assistantMessageEvent"], "{}", update.raw);
        assert!(!update.raw.contains("\"partial\""), "{}", update.raw);
        assert_eq!((&update["usage"]["input"], &update["usage"]["output"]), (&json!(7), &json!(1)));
        assert_eq!(update["usage"]["totalTokens"], 8, "{}", update.raw);
    }
}

#[test]
fn an_answer_twice_as_long_costs_twice_the_bytes() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let mut bytes = |deltas: usize| {
        server.prepare(anthropic::texts(&vec!["twelve bytes"; deltas]));
        shim.prompt("1", "talk");
        let records = shim.until_settled();
        assert_eq!(
            records.iter().filter(|r| r.delta_kind() == "text_delta").count(),
            deltas,
            "none is merged"
        );
        let updates = records.iter().filter(|record| record.kind() == "message_update");
        updates.map(|record| record.raw.len()).sum::<usize>() as f64
    };
    let (once, twice) = (bytes(200), bytes(400));
    assert!(twice / once < 2.2, "{twice} bytes against {once}");
}

#[test]
fn the_length_limit_is_told() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    server.prepare(
        Builder::default().tool_call("c1", "bash", &json!({"command": "touch ran"})).end("max_tokens"),
    );
    server.prepare(anthropic::text("again"));
    let mut shim = sandbox.rpc();
    shim.prompt("1", "go");
    let records = shim.until_settled();
    let asked = records.iter().find(|r| r.is_message("message_end", "assistant")).expect("an answer");
    assert_eq!(asked["message"]["stopReason"], "length");
    let result = the_only(&records, "the result", |record| record.is_message("message_end", "toolResult"));
    let text = result["message"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("Tool call \"bash\" was not executed"), "{text}");
    assert!(!sandbox.project().join("ran").exists(), "a call that may be cut is not run");
}
