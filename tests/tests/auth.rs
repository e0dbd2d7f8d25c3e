//! `atomic auth`: keys are kept, forgotten, listed and checked; a running daemon sees it; and no key is where it should not be.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::SystemTime;

use atomic_tests::{
    MODEL, ModelServer, PROVIDER, Running, Sandbox, anthropic, binaries, eventually, kinds, models_json,
};
use serde_json::{Value, json};

/// What must be nowhere.
const SECRET: &str = "sk-very-secret-7f3a";

fn stored(sandbox: &Sandbox) -> Value {
    let text = std::fs::read(sandbox.agent_dir().join("auth.json")).expect("the file");
    serde_json::from_slice(&text).expect("JSON")
}

/// Puts [`SECRET`] into `auth.json` as the key of these, without a login each: every login waits for the disk.
fn keep(sandbox: &Sandbox, providers: &[&str]) {
    let entry = json!({"type": "api_key", "key": SECRET});
    let all: serde_json::Map<String, Value> =
        providers.iter().map(|provider| ((*provider).to_owned(), entry.clone())).collect();
    sandbox.write("home/.atomic/agent/auth.json", Value::from(all).to_string());
}

/// `models.json` of the model server without a key.
fn keyless(server: &ModelServer) -> Value {
    let mut models = models_json(&server.url());
    models["providers"][PROVIDER].as_object_mut().expect("an object").remove("apiKey");
    models
}

#[test]
fn a_refused_session_works_after_a_login_and_needs_no_reload() {
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    sandbox.write_models(&keyless(&server));
    // One that knows its model, and one that could not choose any.
    let mut named = sandbox.shim().args(["--provider", PROVIDER]).start();
    let mut open = sandbox.rpc();
    for shim in [&mut named, &mut open] {
        let refused = shim.ask(json!({"type": "prompt", "message": "hi"}));
        assert!(!refused.succeeded() && refused.error().contains("API key"), "{}", refused.raw);
    }
    let said =
        sandbox.atomic_fed(&["auth", "login", PROVIDER], format!("{SECRET}\n").as_bytes()).expect_code(0);
    assert!(said.stdout.starts_with("The key of mock is kept in "), "{}", said.stdout);
    assert!(!(said.stdout + &said.stderr).contains(SECRET));
    for shim in [&mut named, &mut open] {
        server.prepare(anthropic::text("hello"));
        shim.ask(json!({"type": "prompt", "message": "hi"})).data();
        shim.until_settled();
        assert_eq!(server.last_request().header("x-api-key"), Some(SECRET));
        assert_eq!(shim.get("get_state")["model"]["id"], MODEL);
    }
    // Another key of the same length, at once.
    let other = SECRET.replace("7f3a", "0b9c");
    sandbox.atomic_fed(&["auth", "login", PROVIDER], other.as_bytes()).expect_code(0);
    server.prepare(anthropic::text("hello"));
    named.ask(json!({"type": "prompt", "message": "hi"})).data();
    named.until_settled();
    assert_eq!(server.last_request().header("x-api-key"), Some(&*other));
    // And none.
    sandbox.atomic(&["auth", "logout", PROVIDER]).expect_code(0);
    let mut third = sandbox.shim().args(["--provider", PROVIDER]).start();
    let refused = third.ask(json!({"type": "prompt", "message": "hi"}));
    assert!(refused.error().starts_with("No API key found for mock."), "{}", refused.raw);
    assert!(kinds(&third.rest()).iter().all(|kind| !kind.starts_with("agent_")));
}

#[test]
fn a_login_changes_its_entry_only_and_heeds_the_other_programs_lock() {
    let sandbox = Sandbox::new();
    let others = r#"{
    "openai": {"type": "api_key", "key": "old", "env": {"HTTPS_PROXY": "http://p:1"}},
    "xai": {"type": "oauth", "access": "a", "refresh": "r", "expires": 1, "more": [null]}
}
"#;
    let file = sandbox.write("home/.atomic/agent/auth.json", others);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("a mode");
    let lock = sandbox.dir("home/.atomic/agent/auth.json.lock");
    let mut command = sandbox.command(&binaries().atomic);
    command.args(["auth", "login", "OpenAI"]);
    let mut running = Running::spawn(command);
    running.write(b"$new\n");
    running.close_stdin();
    let waits = sandbox.agent_dir().join("auth.lock");
    eventually("it has its own lock and waits for the other", || waits.exists().then_some(()));
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), others);
    std::fs::remove_dir(lock).expect("the lock");
    running.wait().expect("it ends").expect_code(0);
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), others.replace("\"old\"", "\"$$new\""));
    assert_eq!(file.metadata().expect("the file").permissions().mode() & 0o777, 0o600);
    // What a crash left behind is passed.
    let lock = sandbox.dir("home/.atomic/agent/auth.json.lock");
    let old = SystemTime::now() - std::time::Duration::from_secs(60);
    std::fs::File::open(lock).expect("the lock").set_modified(old).expect("a time");
    let said = sandbox.atomic(&["auth", "logout", "xai"]).expect_code(0);
    assert!(said.stdout.starts_with("The key of xai is no longer in "), "{}", said.stdout);
    assert_eq!(stored(&sandbox).as_object().map(serde_json::Map::len), Some(1));
    assert!(!sandbox.agent_dir().join("auth.json.lock").exists());
    // A file that is none is never written over.
    sandbox.write("home/.atomic/agent/auth.json", "{ oops");
    let refused = sandbox.atomic_fed(&["auth", "login", "openai"], SECRET.as_bytes()).expect_code(1);
    assert!(
        refused.stderr.contains("auth.json:1:3") && !refused.stderr.contains(SECRET),
        "{}",
        refused.stderr
    );
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "{ oops");
    assert_eq!(sandbox.processes(), Vec::new(), "no daemon was started");
}

#[test]
fn what_cannot_be_logged_in_to_says_why_and_what_works() {
    let sandbox = Sandbox::new();
    for (arguments, stdin, text) in [
        (
            &["auth", "login", "openai-codex"][..],
            SECRET,
            "What works instead: a key from platform.openai.com",
        ),
        (&["auth", "login", "github-copilot"], SECRET, "does not pass itself off as another"),
        (
            &["auth", "login", "anthropic"],
            "sk-ant-oat01-very-secret-7f3a",
            "a key from console.anthropic.com",
        ),
        (&["auth", "login", "nobody"], SECRET, "Unknown provider \"nobody\""),
        (&["auth", "login", "openai"], "", "there is no key on stdin"),
        (&["auth", "login", "openai"], "two words", "white space"),
        (&["auth", "login"], SECRET, "Usage: atomic auth login PROVIDER"),
        (&["auth", "login", "openai", "sk-very-secret-7f3a"], "", "Usage: atomic auth login PROVIDER"),
        (&["auth"], "", "Valid values: login, logout, list, check"),
        (&["auth", "check"], "", "no provider has a key"),
    ] {
        let refused = sandbox.atomic_fed(arguments, stdin.as_bytes()).expect_code(1);
        assert!(refused.stderr.starts_with("Error: ") && refused.stderr.contains(text), "{}", refused.stderr);
        assert!(!refused.stderr.contains("secret-7f3a") && refused.stdout.is_empty(), "{}", refused.stderr);
    }
    assert!(!sandbox.agent_dir().join("auth.json").exists());
    let help = sandbox.atomic(&["auth", "--help"]).expect_code(0);
    assert!(help.stdout.contains("atomic auth check [PROVIDER]"), "{}", help.stdout);
    let list = sandbox.atomic(&["auth", "list"]).expect_code(0);
    assert_eq!(list.stdout, "No provider has a key. Give one: atomic auth login PROVIDER\n");
}

#[test]
fn a_list_names_sources_and_a_logout_what_is_left() {
    let sandbox = Sandbox::new();
    sandbox.write_models(&json!({"providers": {"deepseek": {"apiKey": SECRET}}}));
    keep(&sandbox, &["openai", "groq"]);
    let run = |arguments: &[&str]| {
        let mut command = sandbox.command(&binaries().atomic);
        command.args(arguments).env("OPENAI_API_KEY", SECRET).env("ANTHROPIC_API_KEY", SECRET);
        let mut running = Running::spawn(command);
        running.close_stdin();
        let finished = running.wait().expect("it ends").expect_code(0);
        assert!(!(finished.stdout.clone() + &finished.stderr).contains("secret"), "{finished:?}");
        finished
    };
    let rows: Value = serde_json::from_str(&run(&["auth", "list", "--json"]).stdout).expect("JSON");
    let row = |provider: &str, source: &str| json!({"provider": provider, "source": source, "usable": true});
    let mut anthropic = row("anthropic", "environment");
    anthropic["label"] = json!("ANTHROPIC_API_KEY");
    let mut rows = rows["providers"].as_array().expect("rows").clone();
    rows.sort_by_key(|row| row["provider"].as_str().map(str::to_owned));
    assert_eq!(
        rows,
        [anthropic, row("deepseek", "models_json"), row("groq", "stored"), row("openai", "stored")]
    );
    let text = run(&["auth", "list"]).stdout;
    assert!(text.contains("anthropic  the environment (ANTHROPIC_API_KEY)\n"), "{text}");
    let said = run(&["auth", "logout", "openai"]);
    assert_eq!(said.stderr, "Note: openai still has a key, from the environment (OPENAI_API_KEY)\n");
    assert_eq!(run(&["auth", "logout", "groq"]).stderr, "");
    assert!(run(&["auth", "logout", "groq"]).stdout.starts_with("Nothing was kept for groq in "));
}

#[test]
fn a_check_asks_each_provider_in_its_words_and_gives_its_answer() {
    let server = ModelServer::start();
    let right = |request: &atomic_tests::Request| {
        let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let given = bearer.or(request.header("x-api-key")).or(request.header("x-goog-api-key"));
        given == Some(SECRET)
    };
    server.serve_records(move |request| {
        let list = r#"{"object":"list","data":[{"id":"a"},{"id":"b"}]}"#.to_owned();
        Some(match request.path.as_str() {
            "/openai/models" | "/anthropic/v1/models?limit=1" | "/google/models?pageSize=1"
                if right(request) =>
            {
                (200, list)
            }
            "/openrouter/api/v1/key" if right(request) => (200, r#"{"data":{"label":"sk-or"}}"#.to_owned()),
            // Everybody may see it.
            "/groq/models" => (200, list),
            "/deepseek/models" => (404, "no such page".to_owned()),
            _ => (401, format!(r#"{{"error":{{"message":"Incorrect API key provided: {SECRET}"}}}}"#)),
        })
    });
    let sandbox = Sandbox::new();
    let at = |path: &str| json!({"baseUrl": format!("{}/{path}", server.url())});
    sandbox.write_models(&json!({"providers": {"openai": at("openai"), "anthropic": at("anthropic"),
        "google": at("google"), "groq": at("groq"), "deepseek": at("deepseek"), "mistral": at("mistral"),
        "openrouter": at("openrouter/api/v1")}}));
    let good = ["openai", "anthropic", "google", "groq", "deepseek", "openrouter"];
    keep(&sandbox, &good);
    let all = sandbox.atomic(&["auth", "check", "--json"]).expect_code(0);
    let checks: Value = serde_json::from_str(&all.stdout).expect("JSON");
    let outcome = |provider: &str| -> String {
        let rows = checks["checks"].as_array().expect("rows").iter();
        let row = rows.clone().find(|row| row["provider"] == provider).expect("a row");
        format!(
            "{}: {}",
            row["outcome"].as_str().unwrap_or_default(),
            row["text"].as_str().unwrap_or_default()
        )
    };
    assert_eq!(outcome("openai"), "works: it has 2 models");
    assert_eq!(outcome("anthropic"), "works: it has 2 models");
    assert_eq!(outcome("google"), "works: it has 2 models");
    assert_eq!(outcome("openrouter"), "works: it takes the key");
    assert!(outcome("groq").starts_with("not_checkable: ") && outcome("groq").ends_with("to everybody"));
    assert!(outcome("deepseek").starts_with("not_checkable: "), "{checks}");
    assert!(!all.stdout.contains(SECRET));
    let works = sandbox.atomic(&["auth", "check", "openai"]).expect_code(0);
    assert_eq!(works.stdout, "openai  works  it has 2 models\n");

    keep(&sandbox, &[&good[..], &["mistral"]].concat());
    let refused = sandbox.atomic(&["auth", "check", "mistral"]).expect_code(1);
    assert_eq!(
        refused.stdout,
        "mistral  failed  401 {\"error\":{\"message\":\"Incorrect API key provided: [hidden]\"}}\n"
    );
    sandbox.atomic(&["auth", "check"]).expect_code(1);
    let none = sandbox.atomic(&["auth", "check", "cerebras"]).expect_code(1);
    assert!(none.stdout.contains("No API key found for cerebras"), "{}", none.stdout);
    assert_eq!(sandbox.processes(), Vec::new());
}

/// Goes to an address as a browser does.
fn visit(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn decoded(text: &str) -> String {
    text.replace("%3A", ":").replace("%2F", "/")
}

#[test]
fn openrouter_makes_a_key_on_its_page() {
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    sandbox
        .write_models(&json!({"providers": {"openrouter": {"baseUrl": format!("{}/api/v1", server.url())}}}));
    for (query, code) in [("code=c0de", 0), ("error=access_denied", 1), ("code=old", 1)] {
        let mut command = sandbox.command(&binaries().atomic);
        command.args(["auth", "login", "openrouter"]);
        let mut running = Running::spawn(command);
        running.close_stdin();
        let page = eventually("the page is named", || {
            let stderr = running.stderr();
            let page = stderr.lines().find(|line| line.trim().starts_with("http"))?;
            Some(page.trim().to_owned())
        });
        let (site, pairs) = page.split_once('?').expect("parameters");
        assert_eq!(site, format!("{}/auth", server.url()));
        let pair = |name: &str| {
            let found = pairs.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            decoded(found.unwrap_or_else(|| panic!("{name} in {page}")))
        };
        assert_eq!(pair("code_challenge_method"), "S256");
        let callback = pair("callback_url");
        let (address, path) =
            callback.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a path");
        assert!(address.starts_with("127.0.0.1:"), "{callback}");
        // Whoever has not seen the page gets nowhere.
        assert!(visit(address, "/callback/guess?code=evil").starts_with("HTTP/1.1 404 "));
        let seen = visit(address, &format!("/{path}?{query}"));
        assert!(seen.starts_with("HTTP/1.1 200 ") && seen.contains("referrer-policy: no-referrer"), "{seen}");
        if query.starts_with("code") {
            let exchange = server.next_request();
            let asked = &exchange.request;
            assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/api/v1/auth/keys"));
            let verifier = asked.body["code_verifier"].as_str().expect("a verifier").to_owned();
            assert!(verifier.len() >= 43 && !page.contains(&verifier), "{verifier}");
            assert_eq!(asked.body["code_challenge_method"], "S256");
            match query {
                "code=c0de" => exchange.reply(200, &json!({"key": SECRET, "user_id": "u"}).to_string()),
                _ => exchange.reply(403, r#"{"error":{"message":"Invalid code"}}"#),
            }
        }
        let finished = running.wait().expect("it ends").expect_code(code);
        assert!(!(finished.stdout.clone() + &finished.stderr).contains(SECRET));
        match query {
            "code=c0de" => {
                assert_eq!(stored(&sandbox), json!({"openrouter": {"type": "api_key", "key": SECRET}}));
            }
            "code=old" => {
                assert!(finished.stderr.contains("answered 403 {\"error\":{\"message\":\"Invalid code\"}}"))
            }
            _ => assert!(finished.stderr.contains("its page said access_denied"), "{}", finished.stderr),
        }
    }
    // A key that is there already is piped in as for any other.
    sandbox.atomic_fed(&["auth", "login", "openrouter"], b"sk-or-piped").expect_code(0);
    assert_eq!(stored(&sandbox)["openrouter"]["key"], "sk-or-piped");
}

/// Keys of `auth.json` and `--api-key` reach the vendor and nothing else: no log, no child, no command line of ours.
#[test]
fn keys_are_in_no_log_no_child_and_no_command_line() {
    let server = ModelServer::start();
    let sandbox = Sandbox::new();
    sandbox.write_models(&keyless(&server));
    sandbox.write_settings(&json!({"daemon": {"logLevel": "trace"}}));
    sandbox.atomic_fed(&["auth", "login", PROVIDER], SECRET.as_bytes()).expect_code(0);
    let given = "given-secret-51d0";
    for (arguments, key) in [(&[][..], SECRET), (&["--provider", PROVIDER, "--api-key", given], given)] {
        let mut shim = sandbox.shim().args(arguments).start();
        let echo = "env; cat /proc/$PPID/cmdline | tr '\\0' ' '; ps -eo args; cat /proc/$PPID/environ | tr '\\0' '\\n'";
        server.prepare(anthropic::tool_call("t1", "bash", json!({"command": echo})));
        server.prepare(anthropic::text("done"));
        shim.ask(json!({"type": "prompt", "message": "look"})).data();
        let records = shim.until_settled();
        assert_eq!(server.last_request().header("x-api-key"), Some(key));
        let seen: Vec<&str> =
            records.iter().map(|record| record.raw.as_str()).filter(|raw| raw.contains(key)).collect();
        // The shim's own command line is what its user typed; nothing that we start has it.
        let typed = |raw: &str| raw.matches(key).count() == raw.matches(&format!("--api-key {key}")).count();
        assert!(seen.iter().all(|raw| typed(raw)) && (key == given || seen.is_empty()), "{seen:#?}");
        let bash = shim.ask(json!({"type": "bash", "command": "env"}));
        assert!(
            bash.data()["output"].as_str().is_some_and(|out| out.contains("PATH=") && !out.contains(key))
        );
        let daemon = format!("/proc/{}", sandbox.daemon());
        for file in ["cmdline", "environ"] {
            let bytes = std::fs::read(format!("{daemon}/{file}")).expect("it runs");
            assert!(!String::from_utf8_lossy(&bytes).contains(key), "{file}");
        }
        // A failure in the vendor's words that repeats the key.
        let mut exchange_of = |status| {
            shim.send(json!({"type": "prompt", "message": "again"}));
            let exchange = server.next_request();
            exchange.reply(status, &format!(r#"{{"error":{{"message":"bad key {key}"}}}}"#));
            shim.until_settled()
        };
        let failed = exchange_of(401);
        assert!(failed.iter().all(|record| !record.raw.contains(key)));
        shim.finish();
        for file in std::fs::read_dir(sandbox.agent_dir().join("logs")).expect("logs").flatten() {
            let text = std::fs::read(file.path()).expect("a log");
            assert!(!String::from_utf8_lossy(&text).contains(key), "{}", file.path().display());
        }
        for file in sandbox.session_files() {
            let text = std::fs::read_to_string(file).expect("a session");
            assert!(key == given || !text.contains(key));
        }
    }
}
