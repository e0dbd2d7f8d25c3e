//! Each vendor's API from end to end: the shim that an editor starts, the daemon, and a server that speaks the vendor's
//! bytes. The model thinks, calls a tool, gets its result and answers; what goes back is what the vendor wants to see.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{ModelServer, Record, Sandbox, Shim, the_only};
use serde_json::{Value, json};

/// One server-sent event of only data.
fn event(data: &Value) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

/// A conversation with a vendor.
struct Talk {
    server: ModelServer,
    /// Kept for its directories.
    _sandbox: Sandbox,
    shim: Shim,
}

impl Talk {
    /// A shim that talks to `model` of `provider` at the server, under `path`, with these variables. `$URL` in a
    /// variable stands for the server.
    fn new(provider: &str, model: &str, path: &str, env: &[(&str, &str)]) -> Talk {
        let server = ModelServer::start();
        let sandbox = Sandbox::new();
        sandbox
            .write_models(&json!({"providers": {provider: {"baseUrl": format!("{}{path}", server.url())}}}));
        let launch = sandbox.shim().args(["--provider", provider, "--model", model, "--thinking", "high"]);
        let launch = env
            .iter()
            .fold(launch, |launch, (name, value)| launch.env(name, value.replace("$URL", &server.url())));
        let shim = launch.start();
        Talk { server, _sandbox: sandbox, shim }
    }

    /// The two turns. `first` and `second` are the events of the two answers; the first delta of `first` says `seen`.
    /// Gives the two requests and the records.
    fn run(&mut self, first: &[Vec<u8>], seen: &str, second: &[Vec<u8>]) -> (Asked, Asked, Vec<Record>) {
        self.shim.prompt("1", "What is here?");
        let mut exchange = self.server.next_request();
        let asked = Asked::of(&exchange.request);
        exchange.head(200);
        let until = first.iter().position(|event| String::from_utf8_lossy(event).contains(seen));
        let until = until.expect("an event says it") + 1;
        first[..until].iter().for_each(|event| exchange.send(event));
        // Nothing more was sent: what is seen now came piece by piece.
        self.shim.wait_for(seen, |record| record["assistantMessageEvent"]["delta"] == seen);
        first[until..].iter().for_each(|event| exchange.send(event));
        exchange.finish();
        let mut exchange = self.server.next_request();
        let again = Asked::of(&exchange.request);
        exchange.head(200);
        second.iter().for_each(|event| exchange.send(event));
        exchange.finish();
        self.shim.wait_for_kind("agent_settled");
        (asked, again, self.shim.records().to_vec())
    }
}

/// A request as the vendor sees it.
struct Asked {
    path: String,
    headers: Vec<(String, String)>,
    body: Value,
}

impl Asked {
    fn of(request: &atomic_tests::Request) -> Asked {
        let (path, headers, body) = (request.path.clone(), request.headers.clone(), request.body.clone());
        Asked { path, headers, body }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// The run's answers: what the model said in both turns.
fn answers(records: &[Record]) -> Vec<Value> {
    let end = the_only(records, "agent_end", |record| record["type"] == "agent_end");
    let messages = end["messages"].as_array().expect("a list").clone();
    messages.into_iter().filter(|message| message["role"] == "assistant").collect()
}

/// Both answers are whole, the first with thinking and a call, the second with text; the tokens are those of the second.
fn check_answers(records: &[Record], signature: Option<&str>, tokens: (u64, u64, u64)) {
    let answers = answers(records);
    assert_eq!(answers.len(), 2, "{answers:#?}");
    let content = answers[0]["content"].as_array().expect("a list");
    assert_eq!(
        (content[0]["type"].as_str(), content[0]["thinking"].as_str()),
        (Some("thinking"), Some("Hmm."))
    );
    assert_eq!(content[0]["thinkingSignature"].as_str(), signature);
    let call = content.last().expect("a call");
    assert_eq!((call["type"].as_str(), call["name"].as_str()), (Some("toolCall"), Some("bash")));
    assert_eq!(call["arguments"], json!({"command": "echo here"}));
    assert_eq!(
        (answers[0]["stopReason"].as_str(), answers[1]["stopReason"].as_str()),
        (Some("toolUse"), Some("stop"))
    );
    assert_eq!(answers[1]["content"][0]["text"], "Done.");
    let usage = &answers[1]["usage"];
    let got =
        [&usage["input"], &usage["cacheRead"], &usage["output"]].map(|count| count.as_u64().unwrap_or(0));
    assert_eq!(got, [tokens.0, tokens.1, tokens.2], "{usage}");
    assert!(usage["cost"]["total"].as_f64().is_some_and(|total| total > 0.0), "{usage}");
}

const ARGUMENTS: &str = r#"{"command":"echo here"}"#;

fn responses_first() -> Vec<Vec<u8>> {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "sealed",
        "summary": [{"type": "summary_text", "text": "Hmm."}]});
    let call = |arguments: &str| {
        json!({"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "bash",
        "arguments": arguments, "status": "completed"})
    };
    [
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}),
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": {"id": "rs_1", "type": "reasoning", "summary": []}}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hmm."}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": call("")}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ARGUMENTS}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": call(ARGUMENTS)}),
        json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}}),
    ]
    .iter()
    .map(event)
    .collect()
}

fn responses_second() -> Vec<Vec<u8>> {
    let message =
        json!({"id": "msg_1", "type": "message", "content": [{"type": "output_text", "text": "Done."}]});
    [
        json!({"type": "response.created", "response": {"id": "resp_2", "status": "in_progress"}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": message}),
        json!({"type": "response.completed", "response": {"id": "resp_2", "status": "completed",
            "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 5}}}),
    ]
    .iter()
    .map(event)
    .collect()
}

/// What the second request of a Responses API has to bring back.
fn check_responses(again: &Asked) {
    let input = again.body["input"].as_array().expect("a list");
    let tail = &input[input.len() - 3..];
    assert_eq!(
        tail[0],
        json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "sealed",
        "summary": [{"type": "summary_text", "text": "Hmm."}]})
    );
    assert_eq!(
        tail[1],
        json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "bash", "arguments": ARGUMENTS})
    );
    assert_eq!(tail[2], json!({"type": "function_call_output", "call_id": "call_1", "output": "here\n"}));
}

const REASONING: &str = r#"{"encrypted_content":"sealed","id":"rs_1","summary":[{"text":"Hmm.","type":"summary_text"}],"type":"reasoning"}"#;

/// A signature is kept as it came, in whatever order its keys stood.
fn signature_of(records: &[Record]) -> String {
    answers(records)[0]["content"][0]["thinkingSignature"].as_str().expect("a signature").to_owned()
}

#[test]
fn openai_responses() {
    let mut talk = Talk::new("openai", "gpt-5.1", "/v1", &[("OPENAI_API_KEY", "sk-test")]);
    let (asked, again, records) = talk.run(&responses_first(), "Hmm.", &responses_second());
    assert_eq!(asked.path, "/v1/responses");
    assert_eq!(asked.header("authorization"), Some("Bearer sk-test"));
    assert_eq!(asked.body["reasoning"], json!({"effort": "high", "summary": "auto"}));
    assert_eq!(asked.body["input"][0]["role"], "developer");
    assert_eq!((&asked.body["store"], &asked.body["stream"]), (&json!(false), &json!(true)));
    assert_eq!(asked.header("session-id"), asked.body["prompt_cache_key"].as_str());
    check_responses(&again);
    let signature = signature_of(&records);
    let (signed, want): (Value, Value) =
        (serde_json::from_str(&signature).expect("JSON"), serde_json::from_str(REASONING).expect("JSON"));
    assert_eq!(signed, want);
    check_answers(&records, Some(&signature), (10, 20, 5));
}

#[test]
fn azure_openai_responses() {
    let env = [
        ("AZURE_OPENAI_API_KEY", "azure-key"),
        ("AZURE_OPENAI_BASE_URL", "$URL/openai/v1"),
        ("AZURE_OPENAI_DEPLOYMENT_NAME_MAP", "gpt-5.1=mine"),
    ];
    let mut talk = Talk::new("azure", "gpt-5.1", "/not-here", &env);
    let (asked, again, records) = talk.run(&responses_first(), "Hmm.", &responses_second());
    assert_eq!(asked.path, "/openai/v1/responses?api-version=v1");
    assert_eq!((asked.header("api-key"), asked.header("authorization")), (Some("azure-key"), None));
    assert_eq!(asked.body["model"], "mine");
    check_responses(&again);
    check_answers(&records, Some(&signature_of(&records)), (10, 20, 5));
}

fn google_first() -> Vec<Vec<u8>> {
    let chunk = |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}], "responseId": "r"});
    vec![
        event(&chunk(json!({"thought": true, "text": "Hmm."}))),
        event(&chunk(json!({"functionCall": {"name": "bash", "args": {"command": "echo here"}, "id": "g1"},
            "thoughtSignature": "c2ln"}))),
        event(&json!({"candidates": [{"finishReason": "STOP"}]})),
    ]
}

fn google_second() -> Vec<Vec<u8>> {
    vec![event(&json!({
        "candidates": [{"content": {"parts": [{"text": "Done."}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 30, "cachedContentTokenCount": 20, "candidatesTokenCount": 3,
            "thoughtsTokenCount": 2}}))]
}

fn check_google(asked: &Asked, again: &Asked) {
    let config = &asked.body["generationConfig"]["thinkingConfig"];
    assert_eq!(config, &json!({"includeThoughts": true, "thinkingLevel": "HIGH"}));
    assert!(asked.body["systemInstruction"]["parts"][0]["text"].is_string());
    let contents = again.body["contents"].as_array().expect("a list");
    assert_eq!(
        contents[contents.len() - 2]["parts"][1],
        json!({"functionCall": {"name": "bash", "args": {"command": "echo here"}, "id": "g1"}, "thoughtSignature": "c2ln"})
    );
    assert_eq!(
        contents[contents.len() - 1],
        json!({"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {"output": "here\n"}, "id": "g1"}}]})
    );
}

#[test]
fn google_generative_ai() {
    let mut talk = Talk::new("google", "gemini-3.5-flash", "/v1beta", &[("GEMINI_API_KEY", "g-key")]);
    let (asked, again, records) = talk.run(&google_first(), "Hmm.", &google_second());
    assert_eq!(asked.path, "/v1beta/models/gemini-3.5-flash:streamGenerateContent?alt=sse");
    assert_eq!((asked.header("x-goog-api-key"), asked.header("authorization")), (Some("g-key"), None));
    check_google(&asked, &again);
    check_answers(&records, None, (10, 20, 5));
}

#[test]
fn google_vertex_with_a_key() {
    let mut talk = Talk::new("google-vertex", "gemini-3.5-flash", "", &[("GOOGLE_CLOUD_API_KEY", "v-key")]);
    let (asked, again, records) = talk.run(&google_first(), "Hmm.", &google_second());
    assert_eq!(asked.path, "/v1/publishers/google/models/gemini-3.5-flash:streamGenerateContent?alt=sse");
    assert_eq!(asked.header("x-goog-api-key"), Some("v-key"));
    check_google(&asked, &again);
    check_answers(&records, None, (10, 20, 5));
}

#[test]
fn google_vertex_with_the_machines_own_credentials() {
    let env = [("GOOGLE_CLOUD_PROJECT", "p"), ("GOOGLE_CLOUD_LOCATION", "global")];
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    sandbox.write_models(&json!({"providers": {"google-vertex": {"baseUrl": server.url()}}}));
    let account = json!({"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r",
        "token_uri": format!("{}/token", server.url())});
    let file = sandbox.write("account.json", account.to_string());
    let launch = sandbox.shim().args(["--provider", "google-vertex", "--model", "gemini-3.5-flash"]);
    let launch = env.iter().fold(launch, |launch, (name, value)| launch.env(name, value));
    let mut shim = launch.env("GOOGLE_APPLICATION_CREDENTIALS", file).start();
    for (id, granted) in [("1", true), ("2", false)] {
        shim.prompt(id, "hi");
        let mut exchange = server.next_request();
        if granted {
            assert_eq!(exchange.request.path, "/token");
            exchange.reply(200, r#"{"access_token":"short-lived","expires_in":3599}"#);
            exchange = server.next_request();
        }
        // The second prompt needs no second token.
        assert_eq!(exchange.request.header("authorization"), Some("Bearer short-lived"));
        assert_eq!(exchange.request.header("x-goog-api-key"), None);
        exchange.head(200);
        google_second().iter().for_each(|event| exchange.send(event));
        exchange.finish();
        shim.wait_for_kind("agent_settled");
    }
}

/// Twenty sessions need one token at the same time: it is asked for once, and all get it.
#[test]
fn one_exchange_of_a_token_serves_all_sessions() {
    const SESSIONS: usize = 20;
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    sandbox.write_models(&json!({"providers": {"google-vertex": {"baseUrl": server.url()}}}));
    let account = json!({"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r",
        "token_uri": format!("{}/token", server.url())});
    let file = sandbox.write("account.json", account.to_string());
    let mut shims: Vec<Shim> = (0..SESSIONS)
        .map(|_| {
            let launch = sandbox.shim().args(["--provider", "google-vertex", "--model", "gemini-3.5-flash"]);
            let launch = launch.env("GOOGLE_CLOUD_PROJECT", "p").env("GOOGLE_CLOUD_LOCATION", "global");
            launch.env("GOOGLE_APPLICATION_CREDENTIALS", &file).start()
        })
        .collect();
    for shim in &mut shims {
        shim.prompt("1", "hi");
    }
    // Every run has begun before the token comes.
    shims.iter_mut().for_each(|shim| drop(shim.wait_for_kind("agent_start")));
    let exchange = server.next_request();
    assert_eq!(exchange.request.path, "/token");
    exchange.reply(200, r#"{"access_token":"short-lived","expires_in":3599}"#);
    for _ in 0..SESSIONS {
        let mut exchange = server.next_request();
        assert_eq!(exchange.request.header("authorization"), Some("Bearer short-lived"));
        exchange.head(200);
        google_second().iter().for_each(|event| exchange.send(event));
        exchange.finish();
    }
    shims.iter_mut().for_each(|shim| drop(shim.wait_for_kind("agent_settled")));
    let tokens = server.requests().iter().filter(|request| request.path == "/token").count();
    assert_eq!(tokens, 1);
}

#[test]
fn mistral_conversations() {
    let chunk = |delta: Value, finish: Value| {
        event(&json!({"id": "c", "choices": [{"delta": delta, "finish_reason": finish}]}))
    };
    let first = [
        chunk(
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]}]}),
            Value::Null,
        ),
        chunk(
            json!({"tool_calls": [{"id": "abcdef123", "index": 0, "function": {"name": "bash", "arguments": ARGUMENTS}}]}),
            json!("tool_calls"),
        ),
        b"data: [DONE]\n\n".to_vec(),
    ];
    let second = [
        chunk(json!({"content": "Done."}), json!("stop")),
        event(
            &json!({"choices": [], "usage": {"prompt_tokens": 30, "num_cached_tokens": 20, "completion_tokens": 5}}),
        ),
        b"data: [DONE]\n\n".to_vec(),
    ];
    let mut talk = Talk::new("mistral", "mistral-medium-latest", "", &[("MISTRAL_API_KEY", "m-key")]);
    let (asked, again, records) = talk.run(&first, "Hmm.", &second);
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.header("authorization"), Some("Bearer m-key"));
    assert_eq!(asked.header("x-affinity"), asked.body["prompt_cache_key"].as_str());
    assert_eq!(asked.body["reasoning_effort"], "high");
    let messages = again.body["messages"].as_array().expect("a list");
    assert_eq!(
        messages[messages.len() - 2..],
        [
            json!({"role": "assistant",
                "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]}],
                "tool_calls": [{"id": "abcdef123", "type": "function", "function": {"name": "bash", "arguments": ARGUMENTS}}]}),
            json!({"role": "tool", "tool_call_id": "abcdef123", "name": "bash", "content": [{"type": "text", "text": "here"}]}),
        ]
    );
    check_answers(&records, None, (10, 20, 5));
}

/// A frame of AWS's event stream: lengths, headers and payload, each part with its checksum.
fn frame(name: &str, payload: &Value) -> Vec<u8> {
    let mut headers = Vec::new();
    for (header, value) in [(":message-type", "event"), (":event-type", name)] {
        headers.push(u8::try_from(header.len()).expect("a short name"));
        headers.extend(header.bytes());
        // A string.
        headers.push(7);
        headers.extend(u16::try_from(value.len()).expect("a short value").to_be_bytes());
        headers.extend(value.bytes());
    }
    let payload = payload.to_string();
    let count = |length: usize| u32::try_from(length).expect("a small frame").to_be_bytes();
    let mut out = count(headers.len() + payload.len() + 16).to_vec();
    out.extend(count(headers.len()));
    out.extend(crc32fast::hash(&out).to_be_bytes());
    out.extend(headers);
    out.extend(payload.bytes());
    out.extend(crc32fast::hash(&out).to_be_bytes());
    out
}

#[test]
fn bedrock_converse_stream() {
    let delta = |index: u64, delta: Value| {
        frame("contentBlockDelta", &json!({"contentBlockIndex": index, "delta": delta}))
    };
    let stop = |index: u64| frame("contentBlockStop", &json!({"contentBlockIndex": index}));
    let first = [
        frame("messageStart", &json!({"role": "assistant"})),
        delta(0, json!({"reasoningContent": {"text": "Hmm."}})),
        delta(0, json!({"reasoningContent": {"signature": "signed"}})),
        stop(0),
        frame(
            "contentBlockStart",
            &json!({"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t1", "name": "bash"}}}),
        ),
        delta(1, json!({"toolUse": {"input": ARGUMENTS}})),
        stop(1),
        frame("messageStop", &json!({"stopReason": "tool_use"})),
    ];
    let second = [
        delta(0, json!({"text": "Done."})),
        stop(0),
        frame("messageStop", &json!({"stopReason": "end_turn"})),
        frame(
            "metadata",
            &json!({"usage": {"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 20}}),
        ),
    ];
    let model = "us.anthropic.claude-opus-4-6-v1";
    let keys =
        [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "eu-west-1")];
    let bearer = [("AWS_BEARER_TOKEN_BEDROCK", "b-key")];
    for (env, authorization) in
        [(&keys[..], "AWS4-HMAC-SHA256 Credential=AKID/"), (&bearer[..], "Bearer b-key")]
    {
        let mut talk = Talk::new("amazon-bedrock", model, "", env);
        let (asked, again, records) = talk.run(&first, "Hmm.", &second);
        assert_eq!(asked.path, format!("/model/{model}/converse-stream"));
        let sent = asked.header("authorization").expect("authorization");
        assert!(sent.starts_with(authorization), "{sent}");
        let fields = &asked.body["additionalModelRequestFields"];
        assert_eq!(fields["thinking"], json!({"type": "adaptive", "display": "summarized"}));
        let messages = again.body["messages"].as_array().expect("a list");
        assert_eq!(
            messages[messages.len() - 2..],
            [
                json!({"role": "assistant", "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hmm.", "signature": "signed"}}},
                    {"toolUse": {"toolUseId": "t1", "name": "bash", "input": {"command": "echo here"}}}]}),
                json!({"role": "user", "content": [
                    {"toolResult": {"toolUseId": "t1", "content": [{"text": "here\n"}], "status": "success"}},
                    {"cachePoint": {"type": "default"}}]}),
            ]
        );
        check_answers(&records, Some("signed"), (10, 20, 5));
    }
}
