//! Programs that connect to the daemon themselves, as PROTOCOL.md says.
#![forbid(unsafe_code)]
#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use atomic_tests::{ModelServer, PROVIDER, Running, Sandbox, anthropic, binaries, example, require_program};
use serde_json::{Value, json};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Both examples, against a daemon that runs and, before it, against none.
fn talks(program: &str, arguments: &[&str]) {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    for (round, answer) in ["Hello, \u{e4}", "again"].into_iter().enumerate() {
        server.prepare(anthropic::text(answer));
        let mut command = sandbox.command(program);
        command.args(arguments).args(["are you there?", "--provider", PROVIDER]);
        command.env("ATOMIC_DAEMON", &binaries().atomicd);
        if round > 0 {
            command.arg("--continue");
        }
        let mut running = Running::spawn(command);
        running.close_stdin();
        let finished = running.wait().expect("the program ends").expect_code(0);
        assert_eq!(finished.stdout, format!("{answer}\n"));
        assert!(finished.stderr.starts_with("session "), "{}", finished.stderr);
    }
    let messages = server.last_request().conversation();
    assert_eq!(messages, ["user: are you there?", "assistant: Hello, \u{e4}", "user: are you there?"]);
    assert_eq!(sandbox.daemons().len(), 1);
    // What is refused is said.
    let mut command = sandbox.command(program);
    command.args(arguments).args(["hi", "--session", "no-such-session"]);
    command.env("ATOMIC_DAEMON", &binaries().atomicd);
    let mut running = Running::spawn(command);
    running.close_stdin();
    let finished = running.wait().expect("the program ends").expect_code(1);
    assert!(finished.stderr.contains("No session found matching 'no-such-session'"), "{}", finished.stderr);
}

#[test]
fn the_python_example_talks() {
    require_program("python3");
    let script = workspace().join("protocol/link/examples/direct_client.py");
    let lines = std::fs::read_to_string(&script).expect("the example").lines().count();
    assert!(lines <= 60, "{lines} lines are no small example");
    talks("python3", &[script.to_str().expect("a path")]);
}

#[test]
fn the_rust_example_talks() {
    let program = example("atomic-link", "direct_client");
    talks(program.to_str().expect("a path"), &[]);
}

/// The lines of PROTOCOL.md's section about such programs that begin so.
fn documented(begin: &str) -> String {
    let page = std::fs::read_to_string(workspace().join("PROTOCOL.md")).expect("PROTOCOL.md");
    let (_, section) = page.split_once("## A program that connects itself").expect("the section");
    let line = section.lines().map(str::trim_start).find(|line| line.starts_with(begin));
    line.unwrap_or_else(|| panic!("a line that begins with {begin}")).to_owned()
}

/// The hello to the byte as it is documented, with another directory and environment; and what is answered to it.
#[test]
fn the_documented_hello_is_welcome() {
    let sandbox = Sandbox::new();
    sandbox.atomic(&["--mode", "rpc", "--no-session"]).expect_code(0);
    let status = sandbox.atomic(&["status", "--json"]).expect_code(0).stdout;
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let hello = documented("{\"type\":\"hello\"");
    let project = sandbox.project().display().to_string();
    let home = sandbox.home().display().to_string();
    assert!(hello.contains("/home/u/project") && hello.contains("\"/home/u\""), "{hello}");
    let hello = hello.replace("/home/u/project", &project).replace("\"/home/u\"", &format!("\"{home}\""));

    let mut socket = UnixStream::connect(status["socket"].as_str().expect("a path")).expect("it listens");
    let mut lines = BufReader::new(socket.try_clone().expect("a second handle")).lines();
    let mut next = || -> Value {
        serde_json::from_str(&lines.next().expect("a line").expect("no error")).expect("JSON")
    };
    socket.write_all(format!("{hello}\n").as_bytes()).expect("it takes the hello");
    let welcome = next();
    let shape: Value = serde_json::from_str(&documented("{\"type\":\"welcome\"")).expect("JSON");
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&welcome), keys(&shape));
    assert_eq!(
        (&welcome["type"], &welcome["link"], &welcome["pid"]),
        (&json!("welcome"), &json!(1), &status["pid"])
    );
    socket
        .write_all(b"{\"id\":7,\"type\":\"list_sessions\"}\n{\"id\":8,\"type\":\"get_state\"}\n")
        .expect("it listens");
    let mut answers = [next(), next()];
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[1]["data"]["sessionId"], welcome["sessionId"]);
    let row = &answers[0]["data"]["sessions"][0];
    assert_eq!((&row["id"], &row["live"]["clients"]), (&welcome["sessionId"], &json!(1)));
    let refused = |line: &[u8]| -> Value {
        let mut socket = UnixStream::connect(status["socket"].as_str().expect("a path")).expect("it listens");
        socket.write_all(line).expect("it takes the line");
        let mut answer = String::new();
        BufReader::new(socket).read_line(&mut answer).expect("an answer");
        serde_json::from_str(&answer).expect("JSON")
    };
    let shape: Value = serde_json::from_str(&documented("{\"type\":\"refused\"")).expect("JSON");
    for line in [
        &b"{\"type\":\"hello\",\"link\":99}\n"[..],
        b"hello\n",
        b"{\"type\":\"hello\",\"link\":1,\"cwd\":\"/nowhere\",\"argv\":[\"--mode\",\"rpc\"]}\n",
    ] {
        let answer = refused(line);
        assert_eq!((keys(&answer), &answer["type"]), (keys(&shape), &json!("refused")));
        assert!(answer["text"].as_str().expect("a text").starts_with("Error: "), "{answer}");
    }
}
