//! The main job, visibly: a prompt through a real shim and a real daemon to the built-in demo model and a real tool.
//!
//! Builds the two programs, gives them a home of their own in a temporary directory, and leaves nothing behind.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use serde_json::{Value, json};

/// What is asked when the command line asks nothing.
const PROMPT: &str = "What do you see here?";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let prompt = if words.is_empty() { PROMPT.to_owned() } else { words.join(" ") };
    let atomic = build()?;
    let home = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    let spoken = speak(&atomic, home.path(), &prompt);
    let stopped = command(&atomic, home.path()).arg("stop").arg("--force").stdout(Stdio::null()).status();
    spoken?;
    match stopped {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("atomic stop: {status}")),
        Err(error) => Err(format!("atomic stop: {error}")),
    }
}

/// Builds shim and daemon with the profile this program was built with; gives the shim's path.
fn build() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let bin = here.parent().ok_or("this program lies in no directory")?.to_owned();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "-p", "atomic-shim", "-p", "atomic-daemon"]);
    cargo.arg("--manifest-path").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    if bin.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    let status = cargo.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err(format!("cargo build: {status}"));
    }
    Ok(bin.join(format!("atomic{}", std::env::consts::EXE_SUFFIX)))
}

fn command(atomic: &Path, home: &Path) -> Command {
    let mut command = Command::new(atomic);
    command.env("HOME", home).env("USERPROFILE", home);
    command.env_remove("ATOMIC_CODING_AGENT_DIR").env_remove("PI_CODING_AGENT_DIR");
    command
}

fn speak(atomic: &Path, home: &Path, prompt: &str) -> Result<(), String> {
    say(&format!("$ atomic --mode rpc --provider demo\n> {prompt}\n"));
    let mut shim = command(atomic, home)
        .args(["--mode", "rpc", "--provider", "demo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", atomic.display()))?;
    let mut stdin = shim.stdin.take().ok_or("the shim has no stdin")?;
    let stdout = shim.stdout.take().ok_or("the shim has no stdout")?;
    writeln!(stdin, "{}", json!({"id": "1", "type": "prompt", "message": prompt}))
        .map_err(|error| format!("cannot write to the shim: {error}"))?;
    let mut settled = false;
    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(|error| format!("cannot read from the shim: {error}"))?;
        let record: Value =
            serde_json::from_str(&line).map_err(|error| format!("no record: {line}: {error}"))?;
        show(&record);
        if record["type"] == "agent_settled" {
            settled = true;
            break;
        }
    }
    drop(stdin);
    let status = shim.wait().map_err(|error| format!("the shim: {error}"))?;
    match settled && status.success() {
        true => Ok(()),
        false => Err(format!("the run did not come to its end ({status})")),
    }
}

/// Shows a record to a person.
fn show(record: &Value) {
    let delta = &record["assistantMessageEvent"];
    match (record["type"].as_str().unwrap_or_default(), delta["type"].as_str().unwrap_or_default()) {
        (_, "thinking_start") => say("\n  (thinking) "),
        (_, "thinking_end") => say("\n"),
        (_, "text_start") => say("\n  "),
        (_, "thinking_delta" | "text_delta") => say(delta["delta"].as_str().unwrap_or_default()),
        (_, "text_end") => say("\n"),
        ("tool_execution_start", _) => {
            say(&format!("\n  [{}] {}\n", record["toolName"].as_str().unwrap_or_default(), record["args"]));
        }
        ("tool_execution_end", _) => {
            for line in record["result"]["content"][0]["text"].as_str().unwrap_or_default().lines() {
                say(&format!("    {line}\n"));
            }
        }
        ("agent_settled", _) => say("\nDone: shim, daemon, model and tool each did their part.\n"),
        _ => {}
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout();
    // A reader that is gone is no reason to fail.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
