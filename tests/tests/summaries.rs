//! A model writes down what a branch came to, or what the older part of a conversation was about.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{Exchange, ModelServer, Record, Sandbox, Shim, anthropic, keys, kinds};
use serde_json::{Value, json};

/// One question and its answer.
#[track_caller]
fn talk(server: &ModelServer, shim: &mut Shim, question: &str, answer: &str) {
    server.prepare(anthropic::text(answer));
    shim.prompt(question, question);
    shim.until_settled();
}

/// The id of the user message with this text.
#[track_caller]
fn message_id(shim: &mut Shim, text: &str) -> String {
    let entries = shim.get("get_entries");
    let is_it =
        |entry: &&Value| entry["message"]["role"] == "user" && entry["message"]["content"][0]["text"] == text;
    let found = entries["entries"].as_array().into_iter().flatten().find(is_it);
    found.and_then(|entry| entry["id"].as_str()).unwrap_or_else(|| panic!("no {text}: {entries}")).to_owned()
}

/// The next request must be one for notes.
#[track_caller]
fn notes(server: &ModelServer) -> Exchange {
    let exchange = server.next_request();
    let system = exchange.request.body["system"].to_string();
    assert!(system.contains("You write notes"), "{}", exchange.request.body);
    exchange
}

const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;

/// Two turns, and where the second one begins.
fn talked(server: &ModelServer, sandbox: &Sandbox) -> (Shim, String) {
    sandbox.write_settings(&json!({"retry": {"baseDelayMs": 1}}));
    let mut shim = sandbox.rpc();
    talk(server, &mut shim, "one?", "one");
    talk(server, &mut shim, "two?", "two");
    let second = message_id(&mut shim, "two?");
    shim.rest();
    (shim, second)
}

fn navigate(shim: &mut Shim, target: &str, options: Value) {
    shim.send(json!({"id": "n", "type": "navigate_tree", "targetId": target, "options": options}));
}

#[test]
fn a_branch_is_summed_up_when_it_is_left() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, second) = talked(&server, &sandbox);
    navigate(
        &mut shim,
        &second,
        json!({"summarize": true, "customInstructions": "the names", "label": "old way"}),
    );
    notes(&server).reply(529, OVERLOADED);
    let asked = notes(&server);
    let request = asked.request.conversation().concat();
    assert!(request.contains("<conversation>\n[Assistant]: two\n</conversation>"), "{request}");
    assert!(request.ends_with("the names"), "{request}");
    // Meanwhile the session answers, and what would change the conversation waits.
    let state = shim.get("get_state");
    assert_eq!((&state["isCompacting"], &state["isStreaming"]), (&json!(true), &json!(false)));
    assert!(state.get("compactionReason").is_none(), "{state}");
    asked.answer(&anthropic::text("## Goal\nTwo."));
    let records = shim.until("the answer", |record| record["id"] == "n");
    let records: Vec<Record> =
        records.into_iter().filter(|record| record["command"] != "get_state").collect();
    assert_eq!(
        kinds(&records),
        [
            "summarization_retry_scheduled",
            "summarization_retry_attempt_start",
            "summarization_retry_finished",
            "response navigate_tree"
        ]
    );
    assert_eq!(records[1].raw, r#"{"type":"summarization_retry_attempt_start","source":"branchSummary"}"#);
    assert_eq!(records[3].data(), &json!({"cancelled": false, "editorText": "two?"}));
    let entries = shim.session_file().entries();
    let entry = entries.iter().find(|entry| entry["type"] == "branch_summary").expect("an entry");
    assert_eq!(keys(entry), ["type", "id", "parentId", "timestamp", "fromId", "summary", "details", "usage"]);
    assert_eq!(entry["fromId"], entry["parentId"]);
    assert_eq!(entry["details"], json!({"readFiles": [], "modifiedFiles": []}));
    let summary = entry["summary"].as_str().expect("a text");
    assert!(summary.ends_with("\n\n## Goal\nTwo."), "{summary}");
    let label = entries.last().expect("a label");
    assert_eq!((&label["targetId"], &label["label"]), (&entry["id"], &json!("old way")));

    talk(&server, &mut shim, "two, better?", "better");
    let conversation = server.last_request().conversation();
    assert_eq!(conversation.len(), 4, "{conversation:?}");
    assert!(conversation[2].contains(summary), "{conversation:?}");
    let messages = shim.get("get_messages");
    let stats = shim.get("get_session_stats");
    assert_eq!(stats["tokens"]["output"], json!(5 * 4), "the summary counts: {stats}");
    let file = shim.session_file();
    shim.kill();
    sandbox.kill_daemon();
    let mut again = sandbox.shim().args(["--session", file.arg()]).start();
    assert_eq!(again.get("get_messages"), messages);
}

#[test]
fn a_summary_that_fails_or_is_given_up_leaves_the_session_where_it_is() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let (mut shim, second) = talked(&server, &sandbox);
    let (bytes, messages) = (shim.session_file().bytes(), shim.get("get_messages"));
    shim.rest();
    navigate(&mut shim, &second, json!({"summarize": true}));
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no such model"}}"#;
    notes(&server).reply(404, refusal);
    assert!(shim.response("n").error().contains("no such model"));
    for abort in ["abort_compaction", "abort"] {
        shim.rest();
        navigate(&mut shim, &second, json!({"summarize": true, "label": "x"}));
        let asked = notes(&server);
        shim.send(json!({"id": "a", "type": abort}));
        let records = shim.until("both answers", {
            let last = if abort == "abort" { "a" } else { "n" };
            move |record| record["id"] == last
        });
        let mut order = vec!["response navigate_tree".to_owned(), format!("response {abort}")];
        if abort == "abort_compaction" {
            order.reverse();
        }
        assert_eq!(kinds(&records), order);
        let answer = records.iter().find(|record| record["id"] == "n").expect("an answer");
        assert_eq!(answer.data(), &json!({"cancelled": true}));
        asked.wait_for_hang_up();
    }
    assert_eq!(shim.session_file().bytes(), bytes);
    assert_eq!(shim.get("get_messages"), messages);
    // To where nothing is left behind: no summary, and nobody is asked.
    shim.ask(json!({"type": "navigate_tree", "targetId": second})).data();
    let first = message_id(&mut shim, "one?");
    let last = shim.session_file().entries().last().expect("entries")["id"].clone();
    let back = json!({"type": "navigate_tree", "targetId": last, "options": {"summarize": true}});
    assert_eq!(shim.ask(back).data(), &json!({"cancelled": false}));
    // At end of input it is given up as well.
    navigate(&mut shim, &first, json!({"summarize": true}));
    let asked = notes(&server);
    assert_eq!(shim.finish().code(), Some(0));
    assert_eq!(shim.rest().pop().expect("records").data(), &json!({"cancelled": true}));
    asked.wait_for_hang_up();
}

/// Enough for a tail of 100 tokens to be kept and something to be summed up.
fn long_enough(server: &ModelServer, shim: &mut Shim) {
    for (prompt, answer) in [("first", 600), ("second", 600), ("third", 300)] {
        talk(server, shim, prompt, &"word ".repeat(answer / 5));
    }
    shim.rest();
}

#[test]
fn in_the_dialect_of_pi_a_conversation_is_summed_up() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    sandbox.write_settings(&json!({"compaction": {"keepRecentTokens": 70}}));
    let mut shim = sandbox.shim().args(["--rpc-compat", "pi"]).start();
    long_enough(&server, &mut shim);
    shim.send(json!({"id": "c", "type": "compact", "customInstructions": "the plan"}));
    let asked = notes(&server);
    let request = asked.request.conversation().concat();
    assert!(request.contains("<conversation>\n[User]: first\n\n[Assistant]: word"), "{request}");
    assert!(request.ends_with("the plan") && !request.contains("third"), "{request}");
    asked.answer(&anthropic::text("## Goal\nWords."));
    // The third turn is cut: its beginning is summed up, too.
    let turn = notes(&server);
    assert!(turn.request.conversation().concat().contains("[User]: third\n</conversation>"));
    turn.answer(&anthropic::text("## Request\nThird."));
    let records = shim.until("the answer", |record| record["id"] == "c");
    assert_eq!(kinds(&records), ["compaction_start", "compaction_end", "response compact"]);
    let result = records[2].data();
    assert_eq!(&records[1]["result"], result);
    assert_eq!(
        keys(result),
        ["summary", "firstKeptEntryId", "tokensBefore", "estimatedTokensAfter", "usage", "details"]
    );
    let summary = result["summary"].as_str().expect("a text");
    assert!(
        summary.starts_with("## Goal\nWords.\n\n---\n\n") && summary.ends_with("## Request\nThird."),
        "{summary}"
    );
    let entries = shim.session_file().entries();
    let entry = entries.last().expect("an entry");
    assert_eq!(
        keys(entry),
        [
            "type",
            "id",
            "parentId",
            "timestamp",
            "summary",
            "firstKeptEntryId",
            "tokensBefore",
            "details",
            "usage"
        ]
    );
    assert_eq!(entry["firstKeptEntryId"], entries[entries.len() - 2]["id"], "the last answer stays");
    assert_eq!(shim.get("get_session_stats")["contextUsage"]["tokens"], Value::Null);
    let messages = shim.get("get_messages");
    assert_eq!(messages["messages"].as_array().map(Vec::len), Some(2));
    talk(&server, &mut shim, "fourth", "done");
    let sent = server.last_request().conversation();
    assert!(
        sent[0].contains(summary) && sent[1].starts_with("assistant: word") && sent[2] == "user: fourth",
        "{sent:?}"
    );
    assert!(shim.get("get_session_stats")["contextUsage"]["tokens"].is_u64());

    let file = shim.session_file();
    let messages = shim.get("get_messages");
    shim.kill();
    sandbox.kill_daemon();
    let mut again = sandbox.shim().args(["--session", file.arg()]).start();
    assert_eq!(again.get("get_messages"), messages, "whoever loads the file gets the same conversation");
}

#[test]
fn the_setting_makes_it_the_strategy_of_everything() {
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    sandbox.write_models(&json!({"providers": {"small": {
        "baseUrl": server.url(), "api": "anthropic-messages", "apiKey": "key",
        "models": [{"id": "small-model", "contextWindow": 8_000, "maxTokens": 500}]}}}));
    sandbox.write_settings(
        &json!({"compaction": {"strategy": "summary", "keepRecentTokens": 60, "reserveTokens": 2_000}}),
    );
    let mut shim = sandbox.rpc();
    long_enough(&server, &mut shim);
    let mut full = anthropic::text("full");
    let at = full.events.len() - 2;
    full.events[at].data["usage"]["input_tokens"] = json!(6_100);
    server.prepare(full);
    shim.prompt("p", "go on");
    notes(&server).answer(&anthropic::text("notes"));
    notes(&server).answer(&anthropic::text("turn"));
    let records = shim.until_settled();
    let order = kinds(&records);
    assert_eq!(
        order[order.len() - 4..],
        ["agent_end", "compaction_start", "compaction_end", "agent_settled"]
    );
    let end = &records[records.len() - 2];
    assert_eq!(end["result"]["details"]["strategy"], "summary");
    assert!(
        end["result"]["details"]["backupPath"]
            .as_str()
            .is_some_and(|path| path.ends_with(".auto-compact.bak"))
    );
    talk(&server, &mut shim, "next", "done");
    let sent = server.last_request().conversation();
    assert!(
        sent[0].contains("notes\n\n---\n\n") && sent.last().is_some_and(|last| last == "user: next"),
        "{sent:?}"
    );
}

/// What Pi wrote: a summary that does not say what it is. Only those who work with summaries have it count.
#[test]
fn a_file_of_pi_opens_as_it_does_there_for_those_who_want_summaries() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let message = |id: &str, parent: Value, role: &str, text: &str| {
        json!({"type": "message", "id": id, "parentId": parent, "timestamp": "2026-01-01T00:00:01.000Z",
            "message": {"role": role, "content": [{"type": "text", "text": text}], "timestamp": 1, "api": "a",
                "provider": "p", "model": "m", "stopReason": "stop", "usage": {"input": 9, "output": 1}}})
    };
    let lines = [
        json!({"type": "session", "version": 3, "id": "pi", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": sandbox.project()}),
        message("aaaaaaaa", Value::Null, "user", "old question"),
        message("bbbbbbbb", json!("aaaaaaaa"), "assistant", "old answer"),
        message("cccccccc", json!("bbbbbbbb"), "user", "kept question"),
        json!({"type": "compaction", "id": "dddddddd", "parentId": "cccccccc", "timestamp": "2026-01-01T00:00:02.000Z",
            "summary": "pi's notes", "firstKeptEntryId": "cccccccc", "tokensBefore": 10,
            "details": {"readFiles": [], "modifiedFiles": []}}),
        message("eeeeeeee", json!("dddddddd"), "assistant", "later answer"),
    ];
    let file = sandbox.write("pi.jsonl", lines.map(|line| format!("{line}\n")).concat());
    let sent = |question: &str| {
        let mut shim = sandbox.shim().args(["--session".as_ref(), file.as_os_str()]).start();
        talk(&server, &mut shim, question, "fine");
        shim.kill();
        sandbox.kill_daemon();
        server.last_request().conversation()
    };
    let all = sent("all of it?");
    assert_eq!(all.len(), 5, "{all:?}");
    assert_eq!(all[0], "user: old question");
    sandbox.write_settings(&json!({"compaction": {"strategy": "summary"}}));
    let summed_up = sent("summed up?");
    assert!(summed_up[0].contains("<summary>\npi's notes\n</summary>"), "{summed_up:?}");
    assert_eq!(summed_up[1..3], ["user: kept question", "assistant: later answer"]);
}
