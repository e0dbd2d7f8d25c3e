//! Model servers on one's own machine: no key and no `models.json`, only their name.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atomic_tests::{ModelServer, Request, Running, Sandbox, binaries, eventually};
use serde_json::{Value, json};

/// What a server of this kind says, byte for byte as its makers document it.
fn record(kind: &str, request: &Request) -> Option<(u16, String)> {
    let text = match (kind, request.method.as_str(), request.path.as_str()) {
        ("ollama", "GET", "/api/tags") => {
            r#"{"models":[{"name":"qwen3:8b","model":"qwen3:8b","modified_at":"2025-10-03T23:34:03.409490317-07:00","size":5225388164,"digest":"500a1f067a9f782620b40bee6f7b0c89e17ae61f686b92c24933e4ca4b2b8b41","details":{"parent_model":"","format":"gguf","family":"qwen3","families":["qwen3"],"parameter_size":"8.2B","quantization_level":"Q4_K_M"}},{"name":"nomic-embed-text:latest","model":"nomic-embed-text:latest","modified_at":"2025-10-03T23:34:03.409490317-07:00","size":274302450,"digest":"0a109f422b47e3a30ba2b10eca18548e944e8a23073ee3f3e947efcf3c45e59f","details":{"family":"nomic-bert"}}]}"#
        }
        ("ollama", "POST", "/api/show") if request.body["model"] == "qwen3:8b" => {
            r#"{"parameters":"num_ctx                        16384\nstop                           \"<|im_end|>\"","details":{"family":"qwen3"},"model_info":{"general.architecture":"qwen3","qwen3.context_length":40960},"capabilities":["completion","tools","thinking"]}"#
        }
        ("ollama", "POST", "/api/show") => {
            r#"{"details":{},"model_info":{"general.architecture":"nomic-bert"},"capabilities":["embedding"]}"#
        }
        ("ollama", "GET", "/api/ps") => r#"{"models":[]}"#,
        ("llama.cpp", "GET", "/v1/models") => {
            r#"{"models":[{"name":"qwen3:8b","model":"qwen3:8b","capabilities":["completion"]}],"object":"list","data":[{"id":"qwen3:8b","object":"model","created":1735142223,"owned_by":"llamacpp","meta":{"vocab_type":2,"n_vocab":128256,"n_ctx_train":131072,"n_embd":4096,"n_params":8030261312,"size":4912898304}}]}"#
        }
        ("llama.cpp", "GET", "/props") => {
            r#"{"default_generation_settings":{"id":0,"id_task":-1,"n_ctx":16384,"speculative":false,"is_processing":false,"params":{"n_predict":-1}},"total_slots":1,"model_path":"../models/qwen3.gguf","chat_template":"...","modalities":{"vision":false},"build_info":"b1-abc"}"#
        }
        ("lmstudio", "GET", "/api/v0/models") => {
            r#"{"object":"list","data":[{"id":"qwen3:8b","object":"model","type":"llm","publisher":"q","arch":"qwen3","compatibility_type":"gguf","quantization":"Q4_K_M","state":"loaded","max_context_length":131072,"loaded_context_length":16384},{"id":"text-embedding-nomic","object":"model","type":"embeddings","state":"not-loaded","max_context_length":2048}]}"#
        }
        ("vllm", "GET", "/v1/models") => {
            r#"{"object":"list","data":[{"id":"qwen3:8b","object":"model","created":1735142223,"owned_by":"vllm","root":"qwen3:8b","parent":null,"max_model_len":16384,"permission":[{"id":"modelperm-1","object":"model_permission","allow_sampling":true}]}]}"#
        }
        (_, "POST", "/v1/chat/completions") => return None,
        _ => return Some((404, r#"{"error":"not found"}"#.to_owned())),
    };
    Some((200, text.to_owned()))
}

const KINDS: [(&str, &str); 4] = [
    ("ollama", "OLLAMA_HOST"),
    ("llama.cpp", "LLAMA_BASE_URL"),
    ("lmstudio", "LMSTUDIO_BASE_URL"),
    ("vllm", "VLLM_BASE_URL"),
];

fn started(kind: &'static str) -> ModelServer {
    let server = ModelServer::start();
    server.serve_records(move |request| record(kind, request));
    server
}

/// `atomic` with these variables and arguments, and a stdin that has ended.
fn started_with(sandbox: &Sandbox, env: &[(&str, &str)], arguments: &[&str]) -> Running {
    let mut command = sandbox.command(&binaries().atomic);
    command.args(arguments).envs(env.iter().copied());
    let mut running = Running::spawn(command);
    running.close_stdin();
    running
}

/// Answers a prompt in OpenAI's words.
fn answer(server: &ModelServer, text: &str) -> Request {
    let mut exchange = server.next_request();
    let request = exchange.request.clone();
    exchange.head(200);
    for chunk in [
        json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ] {
        exchange.send(format!("data: {chunk}\n\n").as_bytes());
    }
    exchange.send(b"data: [DONE]\n\n");
    exchange.finish();
    request
}

fn paths(server: &ModelServer) -> Vec<String> {
    server.requests().iter().map(|request| request.path.clone()).collect()
}

#[test]
fn each_kind_works_by_its_name_alone() {
    for (kind, variable) in KINDS {
        let server = started(kind);
        let sandbox = Sandbox::new();
        // A proxy is never asked for this machine: nothing listens at this one.
        let proxy = "http://127.0.0.1:1";
        let env = [(variable, &*server.url()), ("HTTP_PROXY", proxy), ("ALL_PROXY", proxy)];
        let running = started_with(&sandbox, &env, &["-p", "--provider", kind, "hi"]);
        let request = answer(&server, "hello from here");
        let finished = running.wait().expect("it ends").expect_code(0);
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("hello from here\n", ""), "{kind}");
        assert_eq!(request.body["model"], "qwen3:8b", "{kind}");
        assert_eq!(request.header("authorization"), None, "{kind}: no key is made up");

        let listed = started_with(&sandbox, &env, &["--list-models"]).wait().expect("it ends").expect_code(0);
        let rows: Vec<Vec<&str>> =
            listed.stdout.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
        let thinks = if kind == "ollama" { "yes" } else { "no" };
        assert_eq!(rows, [[kind, "qwen3:8b", "16.4K", "8.2K", thinks, "no"]], "{}", listed.stderr);
        assert!(!listed.stderr.contains("Warning"), "{kind}: {}", listed.stderr);
    }
}

#[test]
fn a_server_is_contacted_only_when_it_is_asked_for() {
    let server = started("ollama");
    let sandbox = Sandbox::new();
    let other = started_model(&sandbox);
    let mut shim = sandbox.shim().env("OLLAMA_HOST", server.url()).start();
    shim.get("get_state");
    let listed = shim.get("get_available_models");
    assert_eq!(listed["models"].as_array().map(Vec::len), Some(2));
    other.prepare(atomic_tests::anthropic::text("fine"));
    shim.prompt("1", "hi");
    shim.until_settled();
    assert_eq!(paths(&server), Vec::<String>::new());
    let refused = shim.ask(json!({"type": "refresh_models", "allowNetwork": false})).data().clone();
    assert_eq!((refused["models"].as_array().map(Vec::len), paths(&server).len()), (Some(2), 0));
    let data = shim.get("refresh_models");
    assert_eq!(data["errors"], json!([]), "nobody said that there are others");
    let local = |data: &Value| -> Vec<Value> {
        let models = data["models"].as_array().expect("models").iter();
        models.filter(|model| model["provider"] == "ollama").cloned().collect()
    };
    let found = local(&data);
    assert_eq!(found.len(), 1, "an embedding model is none to talk to: {found:?}");
    assert_eq!((&found[0]["contextWindow"], &found[0]["reasoning"]), (&json!(16384), &json!(true)));
    assert_eq!(found, local(&shim.get("get_available_models")), "they are kept");
    shim.ask(json!({"type": "set_model", "provider": "ollama", "modelId": "qwen3:8b"})).data();
    shim.prompt("2", "and you?");
    answer(&server, "me too");
    shim.until_settled();
}

fn started_model(sandbox: &Sandbox) -> ModelServer {
    let server = ModelServer::start();
    sandbox.write_models(&atomic_tests::models_json(&server.url()));
    server
}

#[test]
fn one_that_is_not_there_is_named_with_a_way_out() {
    let sandbox = Sandbox::new();
    let finished = sandbox.atomic(&["-p", "--provider", "ollama", "hi"]).expect_code(1);
    assert!(
        finished.stderr.starts_with("Error: Ollama at 127.0.0.1:1 does not say which models it has: ")
            && finished.stderr.contains("Connection refused")
            && finished.stderr.contains("ollama serve")
            && finished.stderr.contains("OLLAMA_HOST"),
        "{}",
        finished.stderr
    );
    assert_eq!(finished.stdout, "");
    // One that hangs is not waited for.
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = format!("http://{}", silent.local_addr().expect("an address"));
    let running = started_with(&sandbox, &[("VLLM_BASE_URL", &address)], &["-p", "--model", "vllm/x", "hi"]);
    let finished = running.wait().expect("it ends").expect_code(1);
    assert!(finished.stderr.contains("no answer for 1 s"), "{}", finished.stderr);
    // One that has nothing says so.
    let empty = ModelServer::start();
    empty.serve_records(|_| Some((200, r#"{"object":"list","data":[]}"#.to_owned())));
    let running =
        started_with(&sandbox, &[("VLLM_BASE_URL", &empty.url())], &["-p", "--provider", "vllm", "x"]);
    let finished = running.wait().expect("it ends").expect_code(1);
    assert!(
        finished.stderr.contains("has no model to talk to. Give it one: vllm serve"),
        "{}",
        finished.stderr
    );
}

#[test]
fn an_entry_in_the_users_file_is_enough_and_nobody_waits_for_it() {
    let sandbox = Sandbox::new();
    let server = ModelServer::start();
    let open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&open);
    server.serve_records(move |request| {
        // Silent until the test has what must not wait for it.
        let known = record("vllm", request)?;
        while !gate.load(Ordering::Acquire) {
            std::thread::park_timeout(std::time::Duration::from_millis(2));
        }
        Some(known)
    });
    sandbox.write_models(&json!({"providers": {"vllm": {"baseUrl": format!("{}/v1", server.url()),
        "modelOverrides": {"qwen3:8b": {"contextWindow": 5000}}}}}));
    let mut shim = sandbox.rpc();
    assert_eq!(shim.get("get_state")["model"], Value::Null);
    assert_eq!(shim.get("get_available_models")["models"], json!([]));
    open.store(true, Ordering::Release);
    let found = eventually("the server's model is known", || {
        let models = shim.get("get_available_models")["models"].clone();
        models.as_array().is_some_and(|models| !models.is_empty()).then_some(models)
    });
    assert_eq!((&found[0]["provider"], &found[0]["contextWindow"]), (&json!("vllm"), &json!(5000)));
    // Nothing else can be used, so the first prompt takes it.
    shim.prompt("1", "hi");
    answer(&server, "hello");
    shim.until_settled();
    assert_eq!(shim.get("get_state")["model"]["id"], "qwen3:8b");
}

#[test]
fn a_default_on_this_machine_is_not_replaced_by_another_provider() {
    let sandbox = Sandbox::new();
    let dear = started_model(&sandbox);
    sandbox.write_settings(&json!({"defaultProvider": "ollama", "defaultModel": "qwen3:8b"}));
    let server = started("ollama");
    let mut gone = sandbox.rpc();
    assert_eq!(gone.get("get_state")["model"], Value::Null);
    eventually("a warning names the server", || {
        gone.stderr().contains("Warning: Ollama at 127.0.0.1:1 does not").then_some(())
    });
    let refused = gone.ask(json!({"type": "prompt", "message": "hi"}));
    assert!(refused.error().starts_with("No model selected."), "{}", refused.raw);
    let mut shim = sandbox.shim().env("OLLAMA_HOST", server.url()).start();
    assert_eq!(shim.get("get_state")["model"]["id"], "qwen3:8b");
    shim.prompt("1", "hi");
    answer(&server, "hello");
    shim.until_settled();
    assert_eq!(dear.requests().len(), 0);
}

/// What was said to a server of one's own is not sent elsewhere because it is down, and goes on when it is back.
#[test]
fn a_stored_session_of_a_server_that_is_down_waits_for_it() {
    let sandbox = Sandbox::new();
    let dear = started_model(&sandbox);
    let server = started("llama.cpp");
    let running = started_with(
        &sandbox,
        &[("LLAMA_BASE_URL", &server.url())],
        &["-p", "--provider", "llama.cpp", "hi"],
    );
    answer(&server, "hello");
    running.wait().expect("it ends").expect_code(0);
    sandbox.atomic(&["stop", "--force"]).expect_code(0);
    // The port of a server that comes later.
    let held = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = held.local_addr().expect("an address");
    drop(held);
    let mut shim =
        sandbox.shim().env("LLAMA_BASE_URL", format!("http://{address}")).args(["--continue"]).start();
    assert_eq!(shim.get("get_state")["model"], Value::Null);
    eventually("both are told", || {
        let told = shim.stderr();
        (told.contains("Could not restore model llama.cpp/qwen3:8b") && told.contains("No other is used"))
            .then_some(())
    });
    let refused = shim.ask(json!({"type": "prompt", "message": "again"}));
    assert!(refused.error().starts_with("No model selected."), "{}", refused.raw);
    let back = ModelServer::start_at(address);
    back.serve_records(|request| record("llama.cpp", request));
    shim.prompt("1", "again");
    answer(&back, "hello again");
    shim.until_settled();
    assert_eq!(shim.get("get_state")["model"]["id"], "qwen3:8b");
    assert_eq!(dear.requests().len(), 0);
}
