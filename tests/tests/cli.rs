//! The command line as a person types it: what is printed where, and what is refused in which words.
#![forbid(unsafe_code)]
#![cfg(unix)]

use atomic_tests::{MODEL, ModelServer, PLAIN_MODEL, PROVIDER, Sandbox, anthropic};
use serde_json::json;

#[test]
fn help_goes_to_stderr_where_stdout_is_for_records() {
    let sandbox = Sandbox::new();
    let plain = sandbox.atomic(&["--help"]).expect_code(0);
    assert!(plain.stdout.starts_with("Drive a coding agent") && plain.stderr.is_empty());
    for mode in ["json", "rpc"] {
        let finished = sandbox.atomic(&["--mode", mode, "--help"]).expect_code(0);
        assert_eq!(
            (finished.stdout.as_str(), finished.stderr.as_str()),
            ("", plain.stdout.as_str()),
            "{mode}"
        );
    }
    assert!(sandbox.atomic(&["-v"]).expect_code(0).stdout.starts_with("atomic "));
    assert_eq!(sandbox.processes(), Vec::new());
}

#[test]
fn what_is_wrong_is_said_in_the_reference_words_and_starts_nothing() {
    let sandbox = Sandbox::new();
    for (arguments, text) in [
        (&["--mode", "bogus"][..], "Invalid mode \"bogus\". Valid values: text, json, rpc\n"),
        (&["--mode", "rpc", "@a"], "Error: @file arguments are not supported in RPC mode\n"),
        (&["-p", "-x"], "Error: Unknown option: -x\n"),
        (&["-p", "--sesion", "x"], "Error: Unknown option: --sesion\nDid you mean --session?\n"),
        (&["-p", "--name"], "Error: --name requires a value\n"),
        (&["-p", "--name", " "], "Error: --name requires a non-empty value\n"),
        (&["-p", "--fork", "a", "-c"], "Error: --fork cannot be combined with --continue\n"),
        (&["-p", "--session-id", "a", "-c"], "Error: --session-id cannot be combined with --continue\n"),
        (&["-p", "-r"], "Error: --resume shows a list"),
        (&["completions"], "Error: Wrong number of arguments\nUsage: atomic completions"),
    ] {
        let finished = sandbox.atomic(arguments).expect_code(1);
        assert!(finished.stderr.starts_with(text), "{arguments:?}: {}", finished.stderr);
        assert_eq!(finished.stdout, "", "{arguments:?}");
    }
    assert_eq!(sandbox.processes(), Vec::new());
}

#[test]
fn what_the_daemon_knows_better_is_refused_by_it_in_the_same_words() {
    let sandbox = Sandbox::new();
    for mode in [&["--mode", "rpc"][..], &["--mode", "json", "x"], &["-p", "x"]] {
        for (arguments, text) in [
            (
                &["--model", "nope"][..],
                "Error: Model \"nope\" not found. Use --list-models to see available models.\n",
            ),
            (
                &["--api-key", "k"],
                "Error: --api-key requires a model to be specified via --model, --provider/--model, or --models\n",
            ),
            (&["--session", "nope"], "No session found matching 'nope'\n"),
        ] {
            let finished = sandbox.atomic(&[arguments, mode].concat()).expect_code(1);
            assert_eq!(finished.stderr, text, "{mode:?} {arguments:?}");
            assert_eq!(finished.stdout, "", "{mode:?} {arguments:?}");
        }
    }
}

#[test]
fn warnings_are_told_and_the_run_goes_on() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    for (arguments, text) in [
        (
            &["--thinking", "huge"][..],
            "Warning: Invalid thinking level \"huge\". Valid values: off, minimal, low, medium, high, xhigh, max\n",
        ),
        (&["-e", "x.ts"], "Warning: Extensions are not built in this version; x.ts is not loaded\n"),
        (&["--session-id", "brand-new"], "Note: No session found with id 'brand-new'; it is created\n"),
        (&["--no-themes", "--theme", "t", "--use-theme", "t", "--offline", "--verbose", "-ne", "-na"], ""),
    ] {
        server.prepare(anthropic::text("fine"));
        let finished = sandbox.atomic(&[arguments, &["-p", "x"]].concat()).expect_code(0);
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("fine\n", text), "{arguments:?}");
    }
}

#[test]
fn models_are_listed_by_a_program_that_leaves_again() {
    let server = ModelServer::start();
    let sandbox = Sandbox::with_models(&server);
    let all = sandbox.atomic(&["--list-models"]).expect_code(0);
    let rows: Vec<Vec<&str>> = all.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            ["provider", "model", "context", "max-out", "thinking", "images"],
            [PROVIDER, MODEL, "200K", "8.2K", "yes", "yes"],
            [PROVIDER, PLAIN_MODEL, "100K", "4.1K", "no", "no"],
        ]
    );
    let some = sandbox.atomic(&["--list-models", "mckpln"]).expect_code(0).stdout;
    assert!(some.contains(PLAIN_MODEL) && !some.contains(MODEL), "{some}");
    let none = sandbox.atomic(&["--list-models", "zzz"]).expect_code(0).stdout;
    assert_eq!(none, "No models matching \"zzz\"\n");
    assert_eq!(sandbox.processes(), Vec::new(), "no daemon is left");
    // The caller's environment counts, and its agent directory.
    let empty = Sandbox::new();
    assert!(empty.atomic(&["--list-models"]).expect_code(0).stdout.starts_with("No models available."));
    let mut command = empty.command(&atomic_tests::binaries().atomic);
    command.args(["--list-models", "opus-5"]).env("ANTHROPIC_API_KEY", "k");
    let output = command.output().expect("atomic runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("claude-opus-5"), "{output:?}");
    sandbox.write_models(&json!("no models"));
    let broken = sandbox.atomic(&["--list-models"]).expect_code(0);
    assert!(broken.stderr.starts_with("Warning: "), "{}", broken.stderr);
}

#[test]
fn completions_and_the_manual_page_are_printed() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = sandbox.atomic(&["completions", shell]).expect_code(0).stdout;
        assert!(script.contains("append-system-prompt"), "{shell}");
    }
    let page = sandbox.atomic(&["man"]).expect_code(0).stdout;
    assert!(page.contains(".TH atomic 1"), "{page}");
    let script = sandbox.atomic(&["completions", "bash"]).expect_code(0).stdout;
    let path = sandbox.write("atomic.bash", script);
    let mut bash = sandbox.command("bash");
    bash.arg("-n").arg(path);
    assert!(bash.status().is_ok_and(|status| status.success()), "bash understands its script");
    assert_eq!(sandbox.processes(), Vec::new());
}

#[test]
fn a_file_is_exported_without_a_daemon() {
    let sandbox = Sandbox::new();
    let header = json!({"type": "session", "version": 3, "id": "old", "timestamp": "2026-01-01T00:00:00.000Z",
        "cwd": sandbox.project()});
    let message = json!({"type": "message", "id": "aaaaaaaa", "parentId": null,
        "timestamp": "2026-01-01T00:00:01.000Z",
        "message": {"role": "user", "content": [{"type": "text", "text": "old times"}], "timestamp": 1}});
    sandbox.write("project/s.jsonl", format!("{header}\n{message}\n"));
    for (arguments, name) in [
        (&["export", "s.jsonl", "o.html"][..], "o.html"),
        (&["--export", "s.jsonl"], "atomic-session-s.html"),
    ] {
        let page = sandbox.project().join(name);
        let finished = sandbox.atomic(arguments).expect_code(0);
        assert_eq!((finished.stdout, finished.stderr.as_str()), (format!("{}\n", page.display()), ""));
        assert!(std::fs::read_to_string(page).expect("the page").contains("old times"));
    }
    let empty = sandbox.write("project/empty.jsonl", "").display().to_string();
    let missing = sandbox.project().join("missing.jsonl").display().to_string();
    for (file, why) in [
        (&empty, format!("the session file {empty} is empty")),
        (&missing, format!("there is no session file {missing}")),
    ] {
        let finished = sandbox.atomic(&["export", file]).expect_code(1);
        assert_eq!(
            (finished.stdout.as_str(), finished.stderr),
            ("", format!("Error: cannot export {file}: {why}\n"))
        );
    }
    assert_eq!(sandbox.processes(), Vec::new());
}
