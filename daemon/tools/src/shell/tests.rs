//! Real shells. A FIFO tells facts without sleeping: its reader sees the end when every process that held it is gone.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::Command as StdCommand;

use super::*;
use crate::testing::{Place, details, text};
use crate::{Children, UpdateSink};
use serde_json::json;

/// No test may hang.
const DEADLINE: Duration = Duration::from_secs(60);

fn command(line: &str, text: OutputText) -> ShellCommand {
    ShellCommand { command: line.to_owned(), timeout: None, text, variables: ToolVariables::default() }
}

async fn plain(place: &Place, line: &str) -> ShellOutcome {
    let environment = place.environment();
    let run = run_shell(command(line, OutputText::Plain), &environment, CancellationToken::new(), None);
    tokio::time::timeout(DEADLINE, run).await.expect("in time").unwrap()
}

fn fifo(place: &Place, name: &str) -> PathBuf {
    let path = place.path(name);
    assert!(StdCommand::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Opens the FIFO and reads its first line: the command has come that far.
async fn first_line(path: PathBuf) -> BufReader<std::fs::File> {
    let opened = tokio::task::spawn_blocking(move || {
        let mut reader = BufReader::new(std::fs::File::open(path).unwrap());
        reader.read_line(&mut String::new()).unwrap();
        reader
    });
    tokio::time::timeout(DEADLINE, opened).await.expect("in time").unwrap()
}

/// Waits until nobody holds the FIFO any more.
async fn all_gone(mut reader: BufReader<std::fs::File>) {
    let read = tokio::task::spawn_blocking(move || reader.read_to_end(&mut Vec::new()).unwrap());
    tokio::time::timeout(DEADLINE, read).await.expect("in time").unwrap();
}

/// A command that ignores TERM, as does its child, and tells when both do.
const STUBBORN: &str =
    "exec 9>fifo; trap '' TERM; sh -c 'trap \"\" TERM; echo ready >&9; while :; do sleep 1; done'";

#[tokio::test]
async fn a_background_child_that_holds_the_pipe_delays_shortly() {
    let place = Place::new();
    let environment = place.environment();
    for (line, printed) in
        [("sleep 600 & echo hi", "hi\n"), ("(while :; do echo tick; sleep .03; done) & echo hi", "hi\n")]
    {
        let run = run_shell(command(line, OutputText::Plain), &environment, CancellationToken::new(), None);
        let outcome = tokio::time::timeout(DEADLINE, run).await.expect("in time").unwrap();
        assert_eq!(outcome.exit, Exit::Exited(0));
        assert!(outcome.output.content.replace("tick\n", "") == printed, "{:?}", outcome.output.content);
        assert!(outcome.wall < DRAIN_CAP + Duration::from_secs(3), "{:?}", outcome.wall);
    }
    assert_eq!(environment.children.len(), 2, "what was left behind ends with the daemon");
    environment.children.end_all().await;
    plain_with(&environment, "true").await;
    assert!(environment.children.is_empty(), "groups that ended are forgotten");
}

async fn plain_with(environment: &ToolEnvironment, line: &str) -> ShellOutcome {
    run_shell(command(line, OutputText::Plain), environment, CancellationToken::new(), None).await.unwrap()
}

#[tokio::test]
async fn cancelling_ends_the_whole_group_even_when_it_ignores_term() {
    let place = Place::new();
    let path = fifo(&place, "fifo");
    let cancel = CancellationToken::new();
    let environment = place.environment();
    let run = run_shell(command(STUBBORN, OutputText::Plain), &environment, cancel.clone(), None);
    let (outcome, reader) = tokio::join!(run, async {
        let reader = first_line(path).await;
        cancel.cancel();
        reader
    });
    let outcome = outcome.unwrap();
    assert_eq!(outcome.exit, Exit::Cancelled);
    assert!(outcome.wall >= KILL_GRACE && outcome.wall < Duration::from_secs(10), "{:?}", outcome.wall);
    all_gone(reader).await;
    assert!(environment.children.is_empty());
}

#[tokio::test]
async fn a_cancelled_command_that_exits_with_0_is_still_cancelled() {
    let place = Place::new();
    let path = fifo(&place, "fifo");
    let cancel = CancellationToken::new();
    let environment = place.environment();
    let line = "trap 'echo bye; exit 0' TERM; exec 9>fifo; echo ready >&9; while :; do sleep 0.05; done";
    let run = run_shell(command(line, OutputText::Plain), &environment, cancel.clone(), None);
    let (outcome, reader) = tokio::join!(run, async {
        let reader = first_line(path).await;
        cancel.cancel();
        reader
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.exit, outcome.exit.code()), (Exit::Cancelled, None));
    // On the other channel the shell may add that its own child was terminated.
    assert!(outcome.output.content.lines().any(|line| line == "bye"), "{:?}", outcome.output.content);
    assert!(outcome.wall < KILL_GRACE, "nobody waits for a grace that is not needed: {:?}", outcome.wall);
    all_gone(reader).await;
}

#[tokio::test]
async fn a_dropped_run_takes_its_group_along() {
    let place = Place::new();
    let path = fifo(&place, "fifo");
    let environment = place.environment();
    let run = run_shell(command(STUBBORN, OutputText::Plain), &environment, CancellationToken::new(), None);
    let reader = tokio::select! {
        _ = run => panic!("it never ends"),
        reader = first_line(path) => reader,
    };
    all_gone(reader).await;
    assert!(environment.children.is_empty());
}

#[tokio::test]
async fn a_cancelled_token_starts_nothing() {
    let place = Place::new();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = run_shell(command("touch made", OutputText::Plain), &place.environment(), cancel, None)
        .await
        .unwrap();
    assert_eq!(outcome.exit, Exit::Cancelled);
    assert!(!place.path("made").exists());
}

#[tokio::test]
async fn stdin_is_at_its_end() {
    let place = Place::new();
    for (line, exit) in [("cat", Exit::Exited(0)), ("read x", Exit::Exited(1)), ("grep foo", Exit::Exited(1))]
    {
        let outcome = plain(&place, line).await;
        assert_eq!((outcome.exit, outcome.output.content.as_str()), (exit, ""), "{line}");
    }
}

#[tokio::test]
async fn every_end_is_reported_as_it_was() {
    let place = Place::new();
    for _ in 0..50 {
        for (line, exit, code) in [
            ("exit 1", Exit::Exited(1), 1),
            ("kill -9 $$", Exit::Signalled(9), 137),
            ("exit 300", Exit::Exited(44), 44),
            ("exit 0", Exit::Exited(0), 0),
        ] {
            let outcome = plain(&place, line).await;
            assert_eq!((outcome.exit, outcome.exit.code()), (exit, Some(code)), "{line}");
        }
    }
}

#[tokio::test]
async fn closed_pipes_do_not_hide_the_end() {
    let place = Place::new();
    let outcome = plain(&place, "exec >&- 2>&-; sleep 0.1; exit 3").await;
    assert_eq!(outcome.exit, Exit::Exited(3));
}

/// Deltas per channel and the outcome.
async fn followed(place: &Place, line: &str, capacity: usize) -> (Vec<Delta>, ShellOutcome) {
    let (sender, mut receiver) = mpsc::channel(capacity);
    let environment = place.environment();
    let run =
        run_shell(command(line, OutputText::Plain), &environment, CancellationToken::new(), Some(sender));
    let both = async {
        tokio::join!(
            async {
                let mut deltas = Vec::new();
                while let Some(delta) = receiver.recv().await {
                    deltas.push(delta);
                }
                deltas
            },
            run
        )
    };
    let (deltas, outcome) = tokio::time::timeout(DEADLINE, both).await.expect("in time");
    (deltas, outcome.unwrap())
}

fn joined(deltas: &[Delta]) -> String {
    deltas.iter().map(|delta| delta.text.as_str()).collect()
}

#[tokio::test]
async fn deltas_are_clean_text_and_join_to_the_output() {
    let place = Place::new();
    for (line, expected) in [
        ("printf '\\360'; sleep .05; printf '\\237\\230'; sleep .05; printf '\\200\\n'", "😀\n"),
        ("printf 'a\\377\\376b\\n'", "a\u{fffd}\u{fffd}b\n"),
        ("printf 'a\\360\\237'", "a\u{fffd}"),
        ("printf 'a\\0b\\n'", "ab\n"),
        ("printf '10%%\\r20%%\\r\\n'", "10%20%\n"),
        ("printf '\\033[1;31mred\\033[0m \\033]0;t\\007x\\n'", "red x\n"),
        ("printf '\\033[3'; sleep .05; printf '1mred\\n'", "red\n"),
    ] {
        let (deltas, outcome) = followed(&place, line, DELTA_CHANNEL).await;
        assert_eq!(
            (joined(&deltas).as_str(), outcome.output.content.as_str()),
            (expected, expected),
            "{line}"
        );
    }
}

#[tokio::test]
async fn channels_are_told_apart_and_do_not_mix_their_characters() {
    let place = Place::new();
    let gate = fifo(&place, "gate");
    let line = "printf '\\303'; printf '\\303\\274' >&2; read x < gate; printf '\\251'";
    let (sender, mut receiver) = mpsc::channel(DELTA_CHANNEL);
    let environment = place.environment();
    let run =
        run_shell(command(line, OutputText::Plain), &environment, CancellationToken::new(), Some(sender));
    let (outcome, deltas) = tokio::join!(run, async {
        let first = receiver.recv().await;
        tokio::task::spawn_blocking(move || std::fs::write(gate, "go\n").unwrap()).await.unwrap();
        [first, receiver.recv().await, receiver.recv().await]
    });
    let outcome = outcome.unwrap();
    let expected = [
        Some(Delta { channel: Channel::Stderr, text: "ü".into() }),
        Some(Delta { channel: Channel::Stdout, text: "é".into() }),
        None,
    ];
    assert_eq!(deltas, expected);
    assert_eq!(outcome.output.content, "üé");
}

#[tokio::test]
async fn long_output_is_cut_and_kept_in_a_file() {
    let place = Place::new();
    let (deltas, outcome) = followed(&place, "seq 1 200000", 1).await;
    let whole: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    assert!(joined(&deltas) == whole, "all deltas are all output");
    assert!(outcome.output.content.starts_with("198001\n") && outcome.output.content.ends_with("\n200000"));
    assert_eq!((outcome.output.truncated, outcome.output.total_lines), (true, 200_000));
    let path = outcome.full_output_path.unwrap().unwrap();
    assert!(path.starts_with(place.tmp()) && path.parent().unwrap().ends_with("session-1"), "{path:?}");
    assert!(std::fs::read_to_string(path).unwrap() == whole);
}

#[tokio::test]
async fn the_file_begins_at_the_limits_and_not_before() {
    let place = Place::new();
    for (line, kept) in [
        ("seq 1 2000", false),
        ("seq 1 2001", true),
        ("head -c 51200 /dev/zero | tr '\\0' x", false),
        ("head -c 51201 /dev/zero | tr '\\0' x", true),
    ] {
        let outcome = plain(&place, line).await;
        assert_eq!((outcome.full_output_path.is_some(), outcome.output.truncated), (kept, kept), "{line}");
    }
}

#[tokio::test]
async fn one_endless_line_is_bounded() {
    let place = Place::new();
    let outcome = plain(&place, "head -c 8000000 /dev/zero | tr '\\0' x").await;
    assert!(outcome.output.last_line_partial && outcome.output.content.len() == MAX_BYTES);
    assert_eq!((outcome.last_line_bytes, outcome.output.total_bytes), (8_000_000, 8_000_000));
    assert_eq!(outcome.full_output_path.unwrap().unwrap().metadata().unwrap().len(), 8_000_000);
}

#[tokio::test]
async fn a_link_in_place_of_the_output_directory_is_refused() {
    let place = Place::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let name = format!("atomic-{}", rustix::process::geteuid().as_raw());
    std::os::unix::fs::symlink(elsewhere.path(), place.tmp().join(name)).unwrap();
    let outcome = plain(&place, "seq 1 5000").await;
    assert_eq!((outcome.exit, outcome.full_output_path), (Exit::Exited(0), Some(None)));
    let output = place.call("bash", json!({"command":"seq 1 5000"})).await;
    assert!(text(&output).ends_with("\n\n[Showing lines 3001-5000 of 5000]"));
    assert_eq!(details(&output)["fullOutputPath"], serde_json::Value::Null);
    assert_eq!(elsewhere.path().read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn a_follower_that_takes_nothing_stops_neither_cancelling_nor_the_outcome() {
    let place = Place::new();
    let (sender, receiver) = mpsc::channel(1);
    let cancel = CancellationToken::new();
    let environment = place.environment();
    let run =
        run_shell(command("yes", OutputText::Plain), &environment, cancel.clone(), Some(sender.clone()));
    let (outcome, ()) = tokio::join!(run, async {
        // The channel is full, so the command is not read any more.
        while sender.capacity() > 0 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    });
    assert_eq!(outcome.unwrap().exit, Exit::Cancelled);
    drop(receiver);
}

#[tokio::test]
async fn the_environment_is_the_sessions_and_nothing_else() {
    let place = Place::new();
    let mut environment = place.environment();
    environment.session_file = Some("/sessions/s.jsonl".into());
    let variables =
        ToolVariables { provider: Some("p".into()), model: Some("m".into()), thinking: Some("high".into()) };
    let command = ShellCommand { variables, ..command("/usr/bin/env", OutputText::Plain) };
    let outcome = run_shell(command, &environment, CancellationToken::new(), None).await.unwrap();
    let mut lines: Vec<&str> = outcome.output.content.lines().collect();
    // Bash itself exports these three.
    lines.retain(|line| !["PWD=", "SHLVL=", "_="].iter().any(|own| line.starts_with(own)));
    lines.sort_unstable();
    let tmp = format!("TMPDIR={}", place.tmp().display());
    let mut expected = vec!["AI_AGENT=atomic", "LC_ALL=C", "PATH=/usr/bin:/bin", &tmp];
    let reserved: Vec<String> = ["ATOMIC", "PI"]
        .iter()
        .flat_map(|prefix| {
            [
                "SESSION_ID=session-1",
                "SESSION_FILE=/sessions/s.jsonl",
                "PROVIDER=p",
                "MODEL=m",
                "REASONING_LEVEL=high",
            ]
            .map(|rest| format!("{prefix}_{rest}"))
        })
        .collect();
    expected.extend(reserved.iter().map(String::as_str));
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn directory_shell_and_prefix_are_the_sessions() {
    let place = Place::new();
    let mut environment = place.environment();
    environment.shell_command_prefix = Some("x=from-prefix".into());
    let outcome = plain_with(&environment, "echo $x; pwd").await;
    let cwd = environment.cwd.canonicalize().unwrap();
    assert_eq!(outcome.output.content, format!("from-prefix\n{}\n", cwd.display()));

    environment.shell_path = Some("/no/such/shell".into());
    let run = |environment: &ToolEnvironment| {
        let environment = environment.clone();
        async move {
            let line = command("true", OutputText::Plain);
            run_shell(line, &environment, CancellationToken::new(), None).await.unwrap_err().to_string()
        }
    };
    assert_eq!(run(&environment).await, "Custom shell path not found: /no/such/shell");
    environment.shell_path = None;
    environment.cwd = place.path("gone");
    let gone = place.path("gone").display().to_string();
    let expected = format!("Working directory does not exist: {gone}\nCannot execute bash commands.");
    assert_eq!(run(&environment).await, expected);
    place.write("gone", "");
    assert_eq!(run(&environment).await, format!("Working directory is not a directory: {gone}"));
}

#[tokio::test]
async fn the_tool_words_ends_of_all_kinds() {
    let place = Place::new();
    for (arguments, expected, code) in [
        (json!({"command":"echo a; echo b >&2"}), "a\nb\n", json!(0)),
        (json!({"command":"true"}), "(no output)", json!(0)),
        (json!({"command":"echo a; exit 3"}), "a\n\n\nCommand exited with code 3", json!(3)),
        (json!({"command":"kill -9 $$"}), "(no output)\n\nCommand exited with code 137", json!(137)),
        (
            json!({"command":"echo a; sleep 600","timeout":0.2}),
            "a\n\n\nCommand timed out after 0.2 seconds",
            serde_json::Value::Null,
        ),
    ] {
        let output = place.call("bash", arguments.clone()).await;
        assert_eq!(text(&output), expected, "{arguments}");
        assert_eq!(output.is_error, code != json!(0));
        assert_eq!(details(&output).get("exitCode").cloned().unwrap_or_default(), code);
    }
}

#[tokio::test]
async fn updates_are_snapshots_and_begin_with_an_empty_one() {
    let place = Place::new();
    let path = fifo(&place, "fifo");
    let (sink, mut updates) = UpdateSink::channel();
    let cancel = CancellationToken::new();
    let arguments = json!({"command":"echo one; read x < fifo; echo $x"});
    let call = place.call_with("bash", arguments, cancel, sink);
    let (output, ()) = tokio::join!(call, async {
        assert_eq!(updates.next().await.unwrap(), crate::ToolOutput::default());
        let update = updates.next().await.unwrap();
        assert_eq!((text(&update), update.is_error), ("one\n", false));
        assert_eq!(details(&update), json!({"truncation":null,"fullOutputPath":null}));
        tokio::task::spawn_blocking(move || std::fs::write(path, "two\n").unwrap()).await.unwrap();
    });
    assert_eq!(text(&output), "one\ntwo\n");
}

#[tokio::test]
async fn an_aborted_tool_says_so_after_its_output() {
    let place = Place::new();
    let path = fifo(&place, "fifo");
    let cancel = CancellationToken::new();
    let arguments = json!({"command":"echo one; exec 9>fifo; echo ready >&9; sleep 600"});
    let call = place.call_with("bash", arguments, cancel.clone(), UpdateSink::discard());
    let (output, reader) = tokio::join!(call, async {
        let reader = first_line(path).await;
        cancel.cancel();
        reader
    });
    assert_eq!((text(&output), output.is_error), ("one\n\n\nCommand aborted", true));
    all_gone(reader).await;
}

#[tokio::test]
async fn a_guard_that_cannot_start_is_no_reason_to_stop() {
    let place = Place::new();
    let mut environment = place.environment();
    environment.children = Children::new("/no/such/guard".into());
    assert_eq!(plain_with(&environment, "echo x").await.output.content, "x\n");
}
