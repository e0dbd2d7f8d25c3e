//! Records without a size limit, and clients that do not read.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use atomic_tests::{ModelServer, Sandbox, anthropic, binaries, eventually};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;

/// Deltas of 1 MiB: together more than an outbox holds.
const PIECES: usize = 80;

/// The most memory the daemon has had at any time, in bytes.
fn peak(daemon: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the field");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

#[test]
fn fifty_megabytes_in_and_thirty_out() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut shim = sandbox.rpc();
    let before = {
        shim.get("get_state");
        peak(sandbox.daemon())
    };
    let line = format!(r#"{{"id":"big","pad":"{}","type":"nope"}}{}"#, "x".repeat(50 * MIB), "\n");
    shim.send_raw(line.as_bytes());
    assert_eq!(shim.response("big").error(), "Unknown command: nope");
    drop(line);
    let grown = peak(sandbox.daemon()) - before;
    assert!(grown < 3 * 50 * MIB, "a line of 50 MiB cost {} MiB", grown / MIB);

    let text = "é".repeat(15 * MIB);
    server.prepare(anthropic::text("seen"));
    shim.prompt("1", &text);
    shim.until_settled();
    let messages = shim.get("get_messages");
    let first = messages["messages"][0]["content"][0]["text"].as_str().expect("a text");
    assert!(first == text, "30 MiB of text come back as they were");
    let sent: Value = server.last_request().body.clone();
    assert_eq!(sent["messages"][0]["content"][0]["text"].as_str().map(str::len), Some(text.len()));
}

#[test]
fn a_client_that_stops_reading_is_let_go_while_the_other_hears_everything() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let mut reader = sandbox.rpc();
    server.prepare(anthropic::text("first"));
    reader.prompt("0", "make the file");
    reader.until_settled();
    let file = reader.session_file();
    // The other shim's stdout is a pipe that nobody reads.
    let mut command = sandbox.command(&binaries().atomic);
    command.args(["--mode", "rpc", "--session", file.arg()]);
    let mut stuck =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shim");
    let mut stdin = stuck.stdin.take().expect("a pipe");
    writeln!(stdin, "{}", json!({"id": "here", "type": "get_state"})).expect("it reads");
    eventually("both are attached", || {
        let status: Value = serde_json::from_str(&sandbox.atomic(&["status", "--json"]).stdout).ok()?;
        (status["clients"] == 2).then_some(())
    });
    // More than an outbox and the pipes behind it hold.
    let piece = "y".repeat(MIB);
    let pieces: Vec<&str> = std::iter::repeat_n(piece.as_str(), PIECES).collect();
    server.prepare(anthropic::texts(&pieces));
    reader.prompt("1", "much");
    let mut heard = 0;
    while heard < PIECES * MIB {
        let update = reader.wait_for_kind("message_update");
        heard += update["assistantMessageEvent"]["delta"].as_str().map_or(0, str::len);
    }
    reader.wait_for_kind("agent_settled");
    eventually("the other is let go", || sandbox.daemon_log().contains("let a client go").then_some(()));

    let (mut out, mut err) = (Vec::new(), String::new());
    stuck.stdout.take().expect("a pipe").read_to_end(&mut out).expect("it reads");
    stuck.stderr.take().expect("a pipe").read_to_string(&mut err).expect("it reads");
    assert_eq!(stuck.wait().expect("it ends").code(), Some(1));
    assert!(err.contains("let this client go"), "{err}");
    assert!(out.ends_with(b"\n"), "cut at the end of a record");
    for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        serde_json::from_slice::<Value>(line).expect("whole records only");
    }
}
