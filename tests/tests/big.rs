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

/// A size that the system tells of the daemon, in bytes.
fn memory(daemon: u32, field: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// The most memory the daemon has had at any time.
fn peak(daemon: u32) -> usize {
    memory(daemon, "VmHWM:")
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

/// Sessions that nobody uses any more cost their files, and can be opened again.
#[test]
fn unloaded_sessions_take_no_memory() {
    const SESSIONS: usize = 4;
    const SESSION_BYTES: usize = 24 * MIB;
    let sandbox = Sandbox::new();
    sandbox.write_settings(&json!({"daemon": {"unloadAfter": 0.2}}));
    let cwd = sandbox.project();
    let text = "z".repeat(MIB);
    let files: Vec<String> = (0..SESSIONS)
        .map(|number| {
            let header = json!({"type": "session", "version": 3, "id": format!("s{number}"),
                "timestamp": "2026-01-01T00:00:00.000Z", "cwd": cwd});
            let mut lines = format!("{header}\n");
            for entry in 0..SESSION_BYTES / MIB {
                let parent = entry.checked_sub(1).map(|before| format!("e{before}"));
                let line = json!({"type": "message", "id": format!("e{entry}"), "parentId": parent,
                    "timestamp": "2026-01-01T00:00:00.000Z",
                    "message": {"role": "user", "content": text, "timestamp": 1}});
                lines.push_str(&format!("{line}\n"));
            }
            let path = sandbox.write(&format!("project/s{number}.jsonl"), lines);
            path.to_str().expect("UTF-8").to_owned()
        })
        .collect();
    let mut watcher = sandbox.rpc();
    watcher.get("get_state");
    let daemon = sandbox.daemon();
    let count = |shim: &mut atomic_tests::Shim| shim.get("get_state")["messageCount"].clone();
    // Once round, so that what is kept for any session is there.
    for round in 0..2 {
        let mut base = memory(daemon, "VmRSS:");
        let mut windows: Vec<_> =
            files.iter().map(|file| sandbox.shim().args(["--session", file]).start()).collect();
        for window in &mut windows {
            assert_eq!(count(window), json!(SESSION_BYTES / MIB));
        }
        assert!(memory(daemon, "VmRSS:") > base + SESSIONS * SESSION_BYTES / 2, "they are in memory");
        for window in &mut windows {
            window.finish().expect_code(0);
        }
        if round == 0 {
            base += SESSION_BYTES;
        }
        eventually("the memory is given back", || {
            (memory(daemon, "VmRSS:") < base + SESSION_BYTES / 4).then_some(())
        });
    }
    let mut again = sandbox.shim().args(["--session", &files[0]]).start();
    let messages = again.get("get_messages");
    assert_eq!(messages["messages"].as_array().map(Vec::len), Some(SESSION_BYTES / MIB));
}
