//! A conversation that outgrows its model is shortened, word for word, and goes on.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{Exchange, ModelServer, Record, Request, Sandbox, Shim, anthropic, keys, kinds};
use serde_json::{Value, json};

/// Tokens of the model's context window, at four bytes a token, as the server enforces it.
const WINDOW: usize = 8_000;

/// A sandbox with one model of a small window, and settings on top of ones that fit it.
fn small(server: &ModelServer, settings: Value) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write_models(&json!({"providers": {"small": {
        "baseUrl": server.url(), "api": "anthropic-messages", "apiKey": "key",
        "models": [{"id": "small-model", "contextWindow": WINDOW, "maxTokens": 500}]}}}));
    let mut all = json!({"compaction": {"reserveTokens": 2_000}, "retry": {"baseDelayMs": 1}});
    for (key, value) in settings.as_object().expect("settings are an object") {
        for (inner, value) in value.as_object().expect("grouped") {
            all[key][inner] = value.clone();
        }
    }
    sandbox.write_settings(&all);
    sandbox
}

/// `lines` lines that nobody needs.
fn long(lines: usize) -> String {
    let lines: Vec<String> = (1..=lines).map(|line| format!("Line {line} of a long story.")).collect();
    lines.join("\n")
}

/// An answer that reports these tokens as sent.
fn using(text: &str, input: u64) -> anthropic::Answer {
    let mut answer = anthropic::text(text);
    let at = answer.events.len() - 2;
    answer.events[at].data["usage"]["input_tokens"] = json!(input);
    answer
}

fn is_planner(request: &Request) -> bool {
    request.body["system"].to_string().contains("deletion records")
}

/// Two turns with more than enough lines.
fn begin(server: &ModelServer, shim: &mut Shim) {
    for (prompt, answer) in [("tell me a story", long(60)), ("and now?", "Now you know.".to_owned())] {
        server.prepare(anthropic::text(&answer));
        shim.prompt(prompt, prompt);
        shim.until_settled();
    }
    shim.rest();
}

fn compact(shim: &mut Shim, id: &str) {
    shim.send(json!({"id": id, "type": "compact"}));
}

/// The next request must be the planner's.
fn planner(server: &ModelServer) -> Exchange {
    let exchange = server.next_request();
    assert!(is_planner(&exchange.request), "{}", exchange.request.body);
    exchange
}

#[test]
fn a_client_asks_for_it() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    let file = shim.session_file();
    let before = file.bytes();
    shim.rest();
    compact(&mut shim, "c");
    let plan = planner(&server);
    let asked = plan.request.conversation().concat();
    assert!(
        asked.contains("\n1→[User]: tell me a story\n2→\n3→[Assistant]: Line 1 of a long story.\n"),
        "{asked}"
    );
    assert!(!asked.contains("Now you know."), "the newest messages stay out");
    assert!(plan.request.body.get("tools").is_none_or(|tools| tools == &json!([])), "{}", plan.request.body);
    let state = shim.get("get_state");
    assert_eq!((&state["isCompacting"], &state["compactionReason"]), (&json!(true), &json!("manual")));
    assert_eq!(state["isStreaming"], false);
    plan.answer(&anthropic::text("10,45\n47,47\n"));
    let records = shim.until("the answer", |record| record["id"] == "c");
    let records: Vec<Record> =
        records.into_iter().filter(|record| record["command"] != "get_state").collect();
    assert_eq!(kinds(&records), ["compaction_start", "compaction_end", "response compact"]);
    assert_eq!(records[0].raw, r#"{"type":"compaction_start","reason":"manual"}"#);
    let result = records[2].data();
    assert_eq!(&records[1]["result"], result, "one result for the event and for the answer");
    assert_eq!(keys(&records[1]), ["type", "reason", "result", "aborted", "willRetry"]);
    assert_eq!(
        keys(result),
        [
            "compactedText",
            "firstKeptEntryId",
            "tokensBefore",
            "stats",
            "parameters",
            "promptVersion",
            "rung",
            "backupPath"
        ]
    );
    let text = result["compactedText"].as_str().expect("a text");
    assert!(text.contains(
        "Line 7 of a long story.\n(filtered 36 lines)\nLine 44 of a long story.\n(filtered 1 lines)\n"
    ));
    assert_eq!(
        result["parameters"],
        json!({"compression_ratio": 0.5, "preserve_recent": 2, "query": "and now?"})
    );
    let backup = result["backupPath"].as_str().expect("a path");
    assert!(backup.starts_with(&format!("{}.", file.arg())) && backup.ends_with(".compact.bak"), "{backup}");
    assert_eq!(std::fs::read(backup).expect("the backup"), before);
    let entries = file.entries();
    let entry = entries.last().expect("an entry");
    assert_eq!(
        keys(entry),
        ["type", "id", "parentId", "timestamp", "summary", "firstKeptEntryId", "tokensBefore", "details"]
    );
    assert_eq!(entry["details"]["strategy"], "verbatim-lines");
    assert_eq!(entry["details"]["backupPath"], backup);
    assert!(file.bytes().starts_with(&before), "the file only grows");

    let usage = shim.get("get_session_stats")["contextUsage"].clone();
    assert_eq!(usage, json!({"tokens": null, "contextWindow": WINDOW, "percent": null}));
    let messages = shim.get("get_messages");
    assert_eq!(messages["messages"].as_array().map(Vec::len), Some(1));
    assert_eq!(messages["messages"][0]["customType"], "compaction");
    server.prepare(anthropic::text("fine"));
    shim.prompt("p", "more");
    shim.until_settled();
    let sent = server.last_request().conversation();
    assert!(sent.concat().contains(text) && sent.concat().contains("Now you know."), "{sent:?}");
    assert!(shim.get("get_session_stats")["contextUsage"]["tokens"].is_u64());

    // Whoever loads the file gets the same conversation.
    let messages = shim.get("get_messages");
    sandbox.kill_daemon();
    let mut again = sandbox.shim().args(["--session", file.arg()]).start();
    assert_eq!(again.get("get_messages"), messages);
}

#[test]
fn prompts_of_others_wait_and_reads_do_not() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut asker = sandbox.rpc();
    begin(&server, &mut asker);
    let file = asker.session_file();
    let mut other = sandbox.shim().args(["--session", file.arg()]).start();
    other.get("get_state");
    compact(&mut asker, "c");
    let plan = planner(&server);
    other.wait_for_kind("compaction_start");
    other.prompt("p", "meanwhile");
    compact(&mut asker, "joins nobody: the lane is held");
    let joined = other.get("get_state");
    assert_eq!(joined["isCompacting"], true);
    server.prepare(anthropic::text("done"));
    server.prepare(anthropic::text("1,1"));
    plan.answer(&anthropic::text("10,45"));
    let records = other.until_settled();
    let order: Vec<String> =
        kinds(&records).into_iter().filter(|kind| kind != "response get_state").collect();
    assert_eq!(order[..3], ["compaction_end", "response prompt", "agent_start"]);
    assert!(asker.response("c").succeeded());
}

#[test]
fn it_is_taken_back() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    let lines = shim.session_file().bytes();
    shim.rest();
    compact(&mut shim, "c");
    let plan = planner(&server);
    shim.send(json!({"id": "a", "type": "abort_compaction"}));
    let records = shim.until("the answer", |record| record["id"] == "c");
    let order = kinds(&records);
    assert_eq!(
        order,
        ["compaction_start", "response abort_compaction", "compaction_end", "response compact"]
    );
    assert_eq!(
        records[2].raw,
        r#"{"type":"compaction_end","reason":"manual","result":null,"aborted":true,"willRetry":false}"#
    );
    assert_eq!(records[3].error(), "Compaction cancelled");
    plan.wait_for_hang_up();
    assert_eq!(shim.session_file().bytes(), lines);
    assert!(shim.ask(json!({"type": "abort_compaction"})).succeeded(), "late ones do no harm");
}

#[test]
fn nothing_to_shorten_and_planners_that_fail() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    compact(&mut shim, "0");
    assert_eq!(shim.response("0").error(), "Nothing to compact (session too small)");
    begin(&server, &mut shim);
    compact(&mut shim, "1");
    for _ in 0..2 {
        planner(&server)
            .reply(529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#);
    }
    planner(&server).answer(&anthropic::text("Sure! I would delete 1,5."));
    let records = shim.until("the answer", |record| record["id"] == "1");
    assert_eq!(
        kinds(&records),
        [
            "compaction_start",
            "summarization_retry_scheduled",
            "summarization_retry_attempt_start",
            "summarization_retry_scheduled",
            "summarization_retry_attempt_start",
            "summarization_retry_finished",
            "compaction_end",
            "response compact"
        ]
    );
    assert_eq!(
        records[2].raw,
        r#"{"type":"summarization_retry_attempt_start","source":"compaction","reason":"manual"}"#
    );
    assert_eq!(records[6]["errorMessage"], json!(format!("Compaction failed: {}", records[7].error())));
    assert!(records[6]["result"].is_null());
    assert_eq!(shim.get("get_messages")["messages"].as_array().map(Vec::len), Some(4));
}

#[test]
fn a_run_is_aborted_for_it() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    shim.prompt("p", "long work");
    let mut run = server.next_request();
    run.begin(&anthropic::texts(&["half", "whole"]), 4);
    shim.wait_for_delta("half");
    compact(&mut shim, "c");
    let plan = planner(&server);
    run.wait_for_hang_up();
    plan.answer(&anthropic::text("10,45"));
    let records = shim.until("the answer", |record| record["id"] == "c");
    let order = [
        "message_end assistant",
        "turn_end",
        "agent_end",
        "agent_settled",
        "compaction_start",
        "compaction_end",
        "response compact",
    ];
    assert_eq!(kinds(&records), order);
    shim.assert_quiet();
}

#[test]
fn a_window_that_is_nearly_full_is_made_room_in() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    server.prepare(using("a lot", 6_100));
    shim.prompt("p", "go on");
    planner(&server).answer(&anthropic::text("10,45"));
    let records = shim.until_settled();
    let order = kinds(&records);
    assert_eq!(
        order[order.len() - 4..],
        ["agent_end", "compaction_start", "compaction_end", "agent_settled"]
    );
    let end = &records[records.len() - 2];
    assert_eq!((&end["reason"], &end["willRetry"]), (&json!("threshold"), &json!(false)));
    assert!(end["result"]["backupPath"].as_str().is_some_and(|path| path.ends_with(".auto-compact.bak")));
    assert_eq!(shim.get("get_last_assistant_text")["text"], "a lot");

    assert!(shim.ask(json!({"type": "set_auto_compaction", "enabled": false})).succeeded());
    assert_eq!(shim.get("get_state")["autoCompactionEnabled"], false);
    shim.rest();
    server.prepare(using("a lot", 7_900));
    shim.prompt("q", "go on");
    let order = kinds(&shim.until_settled());
    assert_eq!(order[order.len() - 2..], ["agent_end", "agent_settled"], "turned off");
}

/// The server's part in what follows: it refuses what does not fit, plans when it is asked to, and else says `answer`.
/// Gives whether the request was one for an answer that fitted.
fn enforce(exchange: Exchange, plan: &str, answer: &str) -> bool {
    let tokens = exchange.request.body.to_string().len() / 4;
    let planner = is_planner(&exchange.request);
    if tokens > WINDOW {
        let message = format!("prompt is too long: {tokens} tokens > {WINDOW} maximum");
        let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
        exchange.reply(400, &body.to_string());
        return false;
    }
    exchange.answer(&using(if planner { plan } else { answer }, tokens as u64));
    !planner
}

/// Rounds of a session whose model enforces its window.
const ROUNDS: usize = 20;

#[test]
fn a_conversation_many_times_the_window_goes_on() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    let mut sent = 0;
    for turn in 0..ROUNDS {
        let text = format!("Turn {turn}.\n{}", long(120));
        sent += text.len();
        shim.prompt(&format!("p{turn}"), &text);
        // A planner that keeps the first lines only.
        while !enforce(server.next_request(), "4,100000", &format!("Answer {turn}.\n{}", long(20))) {}
        shim.wait_for(&format!("answer {turn}"), |record| {
            record.is_message("message_end", "assistant") && record["message"]["stopReason"] == "stop"
        });
        // What is left of the run: a compaction, if it is time for one.
        let next = |shim: &mut Shim| {
            let is_next = |record: &Record| ["compaction_start", "agent_settled"].contains(&record.kind());
            shim.wait_for("agent_settled", is_next)
        };
        while next(&mut shim).kind() == "compaction_start" {
            assert!(!enforce(server.next_request(), "4,100000", "never"), "a planner is asked");
        }
    }
    assert!(sent / 4 > WINDOW, "{sent}");
    let records = shim.records();
    let compactions = records.iter().filter(|record| record["type"] == "compaction_end").count();
    assert!((3..=ROUNDS).contains(&compactions), "{compactions}");
    assert!(records.iter().all(|record| record["errorMessage"].is_null()), "no compaction failed");
    assert!(records.iter().all(|record| record["unresolvedOverflow"].is_null()), "nor was one in vain");
    assert!(server.requests().len() <= ROUNDS + 2 * compactions, "{}", server.requests().len());
    let state = shim.get("get_messages")["messages"].clone();
    assert!(state[0]["content"][0]["text"].as_str().is_some_and(|text| text.contains("Turn 0.")), "{state}");
}

#[test]
fn an_overflow_is_recovered_from_and_a_second_one_ends_the_run() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    let too_long = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9000 tokens > 8000 maximum"}}"#;
    shim.prompt("p", "go on");
    server.next_request().reply(400, too_long);
    planner(&server).answer(&anthropic::text("10,45"));
    server.next_request().answer(&anthropic::text("fits"));
    let order = kinds(&shim.until_settled());
    let start = order.iter().position(|kind| kind == "compaction_start").expect("a compaction");
    assert_eq!(order[start - 1], "agent_end");
    assert_eq!(order[start + 1..start + 4], ["compaction_end", "agent_start", "turn_start"]);

    server.prepare(anthropic::text(&long(60)));
    shim.prompt("q", "another story");
    shim.until_settled();
    let before = server.requests().len();
    shim.prompt("r", "go on");
    server.next_request().reply(400, too_long);
    planner(&server).answer(&anthropic::text("10,45"));
    server.next_request().reply(400, too_long);
    let records = shim.until_settled();
    let order = kinds(&records);
    assert_eq!(order[order.len() - 3..], ["agent_end", "compaction_end", "agent_settled"]);
    assert_eq!(
        records[records.len() - 2].raw,
        r#"{"type":"compaction_end","reason":"overflow","result":null,"aborted":false,"willRetry":false,"unresolvedOverflow":true,"errorMessage":"Context overflow recovery failed after one compact-and-retry attempt. Try reducing context or switching to a larger-context model."}"#
    );
    shim.assert_quiet();
    assert_eq!(server.requests().len(), before + 3, "no further requests");
}

/// Some servers say so in the middle of an answer that began well.
#[test]
fn an_overflow_that_comes_in_the_stream_is_one_too() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    let error = anthropic::error("invalid_request_error", "prompt is too long: 9000 tokens > 8000 maximum");
    server.prepare(anthropic::Answer { events: vec![anthropic::message_start(), error] });
    shim.prompt("p", "go on");
    planner(&server).answer(&anthropic::text("10,45"));
    server.next_request().answer(&anthropic::text("fits"));
    let records = shim.until_settled();
    let end = records.iter().find(|record| record.kind() == "compaction_end").expect("a compaction");
    assert_eq!((&end["reason"], &end["willRetry"]), (&json!("overflow"), &json!(true)));
    let retries = |record: &Record| record.kind().contains("_retry_");
    assert!(!records.iter().any(retries), "nothing is tried blindly");
}

#[test]
fn a_window_that_is_nearly_full_is_made_room_in_before_a_prompt() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({"compaction": {"enabled": false}}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    server.prepare(using("a lot", 6_100));
    shim.prompt("p", "go on");
    shim.until_settled();
    assert!(shim.ask(json!({"type": "set_auto_compaction", "enabled": true})).succeeded());
    shim.rest();
    shim.prompt("q", "next");
    planner(&server).answer(&anthropic::text("10,45"));
    server.next_request().answer(&anthropic::text("done"));
    let order = kinds(&shim.until_settled());
    assert_eq!(order[..4], ["compaction_start", "compaction_end", "response prompt", "agent_start"]);
}

#[test]
fn an_abort_ends_one_that_nobody_asked_for() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    server.prepare(using("a lot", 6_100));
    shim.prompt("p", "go on");
    let plan = planner(&server);
    shim.wait_for_kind("compaction_start");
    assert_eq!(shim.get("get_state")["isStreaming"], true);
    shim.rest();
    shim.send(json!({"id": "a", "type": "abort"}));
    let records = shim.until("the answer", |record| record["id"] == "a");
    assert_eq!(kinds(&records), ["compaction_end", "agent_settled", "response abort"]);
    assert_eq!(records[0]["aborted"], true);
    plan.wait_for_hang_up();
    assert_eq!(shim.get("get_state")["isStreaming"], false);
}

#[test]
fn room_is_made_between_two_turns() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    let mut call = anthropic::tool_call("t1", "bash", json!({"command": "echo found it"}));
    let at = call.events.len() - 2;
    call.events[at].data["usage"]["input_tokens"] = json!(6_500);
    server.prepare(call);
    shim.prompt("p", "look");
    planner(&server).answer(&anthropic::text("10,45"));
    let next = server.next_request();
    assert!(next.request.conversation().concat().contains("found it"));
    next.answer(&anthropic::text("done"));
    let records = shim.until_settled();
    let order = kinds(&records);
    let start = order.iter().position(|kind| kind == "compaction_start").expect("a compaction");
    assert_eq!(order[start - 1..start + 3], ["turn_end", "compaction_start", "compaction_end", "turn_start"]);
    assert_eq!(records[start].raw, r#"{"type":"compaction_start","reason":"threshold","midTurn":true}"#);
    assert_eq!(order.iter().filter(|kind| *kind == "agent_start").count(), 1);
}

#[test]
fn at_end_of_input_it_is_given_up_and_answered() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    compact(&mut shim, "c");
    let plan = planner(&server);
    let finished = shim.finish();
    assert_eq!(finished.code(), Some(0));
    let last = shim.rest().pop().expect("records");
    assert_eq!(last.error(), "Compaction cancelled");
    plan.wait_for_hang_up();
}

/// What is kept beside a session file of its planners: each with its kind.
fn kept(file: &std::path::Path) -> Vec<(String, std::path::PathBuf)> {
    let directory = file.parent().expect("a directory");
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let files = std::fs::read_dir(directory).expect("the directory").flatten();
    let mut kept: Vec<_> = files
        .filter_map(|entry| {
            let other = entry.file_name().into_string().ok()?;
            let rest = other.strip_prefix(&name)?.strip_suffix(".json")?.to_owned();
            Some((rest.rsplit('.').next()?.to_owned(), entry.path()))
        })
        .collect();
    kept.sort();
    kept
}

#[test]
fn why_a_planner_failed_is_kept_beside_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.rpc();
    begin(&server, &mut shim);
    let file = std::path::PathBuf::from(shim.session_file().arg());
    compact(&mut shim, "1");
    planner(&server).answer(&anthropic::text("Sure! I would delete 1,5."));
    let error = shim.response("1").error().to_owned();
    let [(kind, path)] = &kept(&file)[..] else { panic!("one: {:?}", kept(&file)) };
    assert_eq!(kind, "planner-diagnostic");
    let told = format!("was not a list of line ranges (diagnostic: {})", path.display());
    assert!(error.ends_with(&told), "{error}");
    assert_eq!(std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(path).expect("readable");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let mut keys: Vec<&String> = record.as_object().expect("an object").keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "failureCategory",
            "failureMessage",
            "model",
            "providerError",
            "rawResponse",
            "requestMaxTokens",
            "stopReason",
            "timestamp",
            "usage",
            "version"
        ]
    );
    assert_eq!(record["failureCategory"], "malformed_output");
    assert_eq!(record["rawResponse"], "Sure! I would delete 1,5.");
    assert_eq!(record["model"]["id"], "small-model");
    assert!(!text.contains("Line 7"), "the conversation is not in it");

    // An answer that was cut off and could be used is worth a note, and no error.
    compact(&mut shim, "2");
    let mut cut = anthropic::text("10,45\n47");
    let at = cut.events.len() - 2;
    cut.events[at].data["delta"]["stop_reason"] = json!("max_tokens");
    planner(&server).answer(&cut);
    assert!(shim.response("2").succeeded());
    let kinds: Vec<String> = kept(&file).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["planner-diagnostic", "planner-recovery"]);
}

#[test]
fn without_a_file_nothing_of_a_planner_is_kept() {
    let server = ModelServer::start();
    let sandbox = small(&server, json!({}));
    let mut shim = sandbox.shim().args(["--no-session"]).start();
    begin(&server, &mut shim);
    compact(&mut shim, "1");
    planner(&server).answer(&anthropic::text("Sure!"));
    let answer = shim.response("1");
    assert!(answer.error().ends_with("was not a list of line ranges"), "{}", answer.error());
}
