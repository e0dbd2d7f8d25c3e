use super::*;
use crate::link::PROGRAM_VERSION;

fn parse_words(words: &[&str]) -> Result<Invocation, CliError> {
    let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
    parse(&argv)
}

fn options_of(words: &[&str]) -> SessionOptions {
    let mut all = vec!["--mode", "rpc"];
    all.extend(words);
    match parse_words(&all) {
        Ok(Invocation::Session(options)) => *options,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn error_of(words: &[&str]) -> String {
    let error = parse_words(words).expect_err("refused");
    assert_eq!(error.code, 1, "{words:?}");
    assert!(error.text.ends_with('\n'), "{words:?}");
    error.text
}

#[test]
fn every_flag_reaches_its_field() {
    let options = options_of(&[
        "--provider",
        "p",
        "--model",
        "m:high",
        "--thinking",
        "high",
        "--api-key",
        "k",
        "--no-session",
        "--session-dir",
        "d",
        "-n",
        " a name ",
        "-t",
        "read, bash,",
        "-xt",
        "edit",
        "-nt",
        "-nbt",
        "--max-turns",
        "5",
        "--max-cost",
        "0.5",
        "--system-prompt",
        "-s",
        "--append-system-prompt",
        "-nt",
        "--append-system-prompt",
        "b",
        "-nc",
        "--models",
        "a, b:high,",
        "--prompt-template",
        "t1",
        "--prompt-template",
        "t2",
        "-np",
        "--skill",
        "s1",
        "-ns",
        "-na",
        "-a",
        "--rpc-compat",
        "pi",
        "--ascii-separators",
        "--on-disconnect",
        "abort",
        "--drain",
        "hello",
    ]);
    assert_eq!(options.provider.as_deref(), Some("p"));
    assert_eq!(options.model.as_deref(), Some("m:high"));
    assert_eq!(options.thinking, ThinkingLevel::parse("high"));
    assert_eq!(options.api_key.as_deref(), Some("k"));
    assert!(options.no_session && options.no_tools && options.no_builtin_tools && options.no_context_files);
    assert_eq!(options.session_dir, Some(PathBuf::from("d")));
    assert_eq!(options.name.as_deref(), Some("a name"));
    assert_eq!(options.tools, Some(vec!["read".to_owned(), "bash".to_owned()]));
    assert_eq!(options.exclude_tools, ["edit"]);
    assert_eq!((options.max_turns, options.max_cost), (Some(5), Some(0.5)));
    assert_eq!(options.system_prompt.as_deref(), Some("-s"));
    assert_eq!(options.append_system_prompt, ["-nt", "b"], "a value is nobody's flag");
    assert_eq!(options.models, ["a", "b:high"]);
    assert_eq!(options.prompt_templates, [PathBuf::from("t1"), PathBuf::from("t2")]);
    assert_eq!(options.skills, [PathBuf::from("s1")]);
    assert!(options.no_prompt_templates && options.no_skills && options.ascii_separators);
    assert_eq!((options.approve, options.rpc_compat), (Some(true), Some(Dialect::Pi)));
    assert_eq!((options.on_disconnect, options.drain), (Some(OnDisconnect::Abort), true));
    assert_eq!(options.messages, ["hello"]);
    assert!(!format!("{options:?}").contains("\"k\""), "the key is not shown");
    assert!(options_of(&["-c"]).continue_newest);
    assert_eq!(options_of(&["-a", "-na"]).approve, Some(false), "the last one counts");
    assert_eq!(options_of(&["--fork", "x", "--session-id", "i"]).fork, Some("x".into()));
    assert_eq!(options_of(&["--session", "x.jsonl"]).session, Some("x.jsonl".into()));
    assert_eq!(
        options_of(&["--model", "a", "--model", "b"]).model.as_deref(),
        Some("b"),
        "the last one counts"
    );
}

#[test]
fn flags_of_real_clients_are_taken() {
    let options = options_of(&[
        "--no-themes",
        "--no-extensions",
        "-ne",
        "--no-skills",
        "-ns",
        "-np",
        "--offline",
        "--verbose",
        "--theme",
        "dark.json",
        "--use-theme",
        "dark",
        "-e",
        "x.ts",
        "--extension=y.ts",
        "-p",
    ]);
    let warning = |name| format!("Warning: Extensions are not built in this version; {name} is not loaded");
    assert_eq!(options.warnings, [warning("x.ts"), warning("y.ts")]);
    let rest = SessionOptions { warnings: Vec::new(), ..options };
    let only = SessionOptions { no_skills: true, no_prompt_templates: true, ..SessionOptions::default() };
    assert_eq!(rest, only);
}

#[test]
fn an_unknown_thinking_level_is_a_warning() {
    let options = options_of(&["--thinking", "huge"]);
    assert_eq!(options.thinking, None);
    assert_eq!(
        options.warnings,
        [
            "Warning: Invalid thinking level \"huge\". Valid values: off, minimal, low, medium, high, xhigh, max"
        ]
    );
}

#[test]
fn two_dashes_end_the_options() {
    let options = options_of(&["--", "--model", "@file", "-nt"]);
    assert_eq!(options.messages, ["--model", "@file", "-nt"]);
    assert_eq!((options.model, options.files), (None, Vec::new()));
}

#[test]
fn the_mode_is_told_by_flags_and_left_open_without_one() {
    for (words, want) in [
        (&["--mode", "json", "hi"][..], OutputMode::Json),
        (&["--mode", "rpc", "-p"], OutputMode::Rpc),
        (&["-p", "hi"], OutputMode::Print),
        (&["--mode", "text", "--print"], OutputMode::Print),
        (&["--mode", "text", "hi"], OutputMode::Text),
        (&["hi"], OutputMode::Text),
        (&[], OutputMode::Text),
    ] {
        match parse_words(words) {
            Ok(Invocation::Session(options)) => assert_eq!(options.mode, want, "{words:?}"),
            other => panic!("{words:?}: {other:?}"),
        }
    }
}

#[test]
fn files_stand_anywhere_among_messages_and_are_no_values() {
    let words = ["-p", "one", "@a.txt", "--model", "@m", "@", "two", "@b c.png", "--", "@three"];
    let Ok(Invocation::Session(options)) = parse_words(&words) else { panic!("no session") };
    assert_eq!(options.files, ["a.txt", "b c.png"]);
    assert_eq!(options.messages, ["one", "@", "two", "@three"]);
    assert_eq!(options.model.as_deref(), Some("@m"));
}

#[test]
fn what_the_daemons_program_answers() {
    let search = |search: Option<&str>| Ok(Invocation::ListModels { search: search.map(str::to_owned) });
    assert_eq!(parse_words(&["--list-models"]), search(None));
    assert_eq!(parse_words(&["--list-models", "son"]), search(Some("son")));
    assert_eq!(parse_words(&["--list-models", "--offline"]), search(None));
    assert_eq!(parse_words(&["--list-models", "@x"]), search(None));
    let export =
        |output: Option<&str>| Ok(Invocation::Export { file: "f".into(), output: output.map(PathBuf::from) });
    assert_eq!(parse_words(&["--export", "f"]), export(None));
    assert_eq!(parse_words(&["--export", "f", "o"]), export(Some("o")));
    assert_eq!(parse_words(&["export", "f"]), export(None));
    assert_eq!(parse_words(&["export", "f", "o"]), export(Some("o")));
    for shell in SHELLS {
        assert_eq!(parse_words(&["completions", shell]), Ok(Invocation::Completions(shell.to_owned())));
    }
    assert_eq!(parse_words(&["man"]), Ok(Invocation::Man));
}

#[test]
fn the_dialect_is_the_flags_else_the_variables() {
    let (flag, none) = (options_of(&["--rpc-compat", "legacy"]), options_of(&[]));
    assert_eq!(flag.dialect(Some("pi")), Ok(Dialect::Legacy));
    assert_eq!(none.dialect(Some("pi")), Ok(Dialect::Pi));
    assert_eq!(none.dialect(Some("")), Ok(Dialect::Atomic));
    assert_eq!(
        none.dialect(Some("x")).unwrap_err().text,
        "Error: Invalid value \"x\" for ATOMIC_RPC_COMPAT. Valid values: atomic, pi, legacy\n"
    );
}

#[test]
fn refusals_have_the_reference_texts() {
    for (words, text) in [
        (&["--mode", "bogus"][..], "Invalid mode \"bogus\". Valid values: text, json, rpc\n"),
        (
            &["--rpc-compat", "zed"],
            "Error: Invalid value \"zed\" for --rpc-compat. Valid values: atomic, pi, legacy\n",
        ),
        (
            &["--fork", "f", "--session", "s", "-c", "-r", "--no-session"],
            "Error: --fork cannot be combined with --session, --continue, --resume, --no-session\n",
        ),
        (
            &["-r"],
            "Error: --resume shows a list to choose from, which this program has not. Use --continue for the newest \
             session of this directory, or --session PATH|ID.\n",
        ),
        (&["--model"], "Error: --model requires a value\n"),
        (&["--fork"], "Error: --fork requires a value\n"),
        (&["export"], "Error: Wrong number of arguments\nUsage: atomic export FILE [OUT]\n"),
        (
            &["completions", "tcsh"],
            "Error: No completions for \"tcsh\". Valid values: bash, zsh, fish, powershell, elvish\n",
        ),
        (&["man", "x"], "Error: Wrong number of arguments\nUsage: atomic man\n"),
        (&["-p", "--no-sesion"], "Error: Unknown option: --no-sesion\nDid you mean --no-session?\n"),
        (&["--zzz=1"], "Error: Unknown option: --zzz\nTry 'atomic --help' for all options.\n"),
        (&["--mode", "rpc", "@a.txt"], "Error: @file arguments are not supported in RPC mode\n"),
        (&["--mode", "rpc", "--name", "  "], "Error: --name requires a non-empty value\n"),
        (&["--mode", "rpc", "--name"], "Error: --name requires a value\n"),
        (&["--mode"], "Error: --mode requires a value\n"),
        (
            &["--mode", "rpc", "--on-disconnect", "leave"],
            "Error: Invalid value \"leave\" for --on-disconnect. Valid values: finish, abort, keep\n",
        ),
        (&["--mode", "rpc", "--no-tools=1"], "Error: --no-tools takes no value\n"),
        (
            &["--mode", "rpc", "--session-id", "i", "--session", "s", "-c"],
            "Error: --session-id cannot be combined with --session, --continue\n",
        ),
        (&["--mode", "rpc", "--modle", "x"], "Error: Unknown option: --modle\nDid you mean --model?\n"),
        (&["--mode", "rpc", "-x"], "Error: Unknown option: -x\nTry 'atomic --help' for all options.\n"),
        (
            &["--mode", "rpc", "--max-turns", "0"],
            "Error: Invalid value \"0\" for --max-turns. It takes a number above 0\n",
        ),
        (
            &["--mode", "rpc", "--max-cost", "inf"],
            "Error: Invalid value \"inf\" for --max-cost. It takes a number above 0\n",
        ),
        (&["status", "now"], "Error: Unexpected argument: now\n"),
        (&["logs", "-n", "many"], "Error: Invalid value \"many\" for --lines\n"),
        (
            &["logs", "--level", "loud"],
            "Error: Invalid log level \"loud\". Valid values: off, error, warn, info, debug, trace\n",
        ),
    ] {
        assert_eq!(error_of(words), text, "{words:?}");
    }
}

#[test]
fn verbs_are_read() {
    assert_eq!(parse_words(&["status", "--json"]), Ok(Invocation::Status { json: true }));
    assert_eq!(parse_words(&["stop", "--wait"]), Ok(Invocation::Stop { force: false, wait: true }));
    assert_eq!(parse_words(&["restart"]), Ok(Invocation::Restart { now: false }));
    assert_eq!(parse_words(&["restart", "--now"]), Ok(Invocation::Restart { now: true }));
    let logs = |lines, follow, level: Option<&str>, path| {
        Ok(Invocation::Logs(LogsOptions { lines, follow, level: level.map(str::to_owned), path }))
    };
    assert_eq!(parse_words(&["logs"]), logs(DEFAULT_LOG_LINES, false, None, false));
    assert_eq!(parse_words(&["logs", "-n", "5", "-f", "--path"]), logs(5, true, None, true));
    assert_eq!(
        parse_words(&["logs", "--level", "debug"]),
        logs(DEFAULT_LOG_LINES, false, Some("debug"), false)
    );
    for verb in ["status", "stop", "restart", "logs", "export", "completions", "man"] {
        assert!(matches!(parse_words(&[verb, "--help"]), Ok(Invocation::Help(text)) if text.contains(verb)));
    }
}

#[test]
fn help_and_version_need_no_mode() {
    for words in [&["--help"][..], &["-h"], &["-p", "--help"], &["help"]] {
        assert_eq!(parse_words(words), Ok(Invocation::Help(HELP)), "{words:?}");
    }
    for mode in ["json", "rpc"] {
        let aside = parse_words(&["--mode", mode, "--help"]);
        assert_eq!(aside, Ok(Invocation::HelpAside(HELP)), "stdout carries records only");
    }
    assert_eq!(parse_words(&["-v"]), Ok(Invocation::Version(format!("atomic {PROGRAM_VERSION}\n"))));
}

#[test]
fn the_help_is_short_and_names_every_flag() {
    assert!(HELP.lines().count() <= 82, "{}", HELP.lines().count());
    assert!(HELP.lines().all(|line| line.len() <= 118));
    for flag in flags::ATOMIC {
        assert!(HELP.contains(&format!("--{}", flag.long)), "--{}", flag.long);
        assert!(flag.short.is_empty() || HELP.contains(&format!("-{},", flag.short)), "-{}", flag.short);
    }
    // Reading asks each table for flags that it has: it panics otherwise.
    for table in [flags::ATOMIC, flags::STATUS, flags::STOP, flags::RESTART, flags::LOGS, flags::ONLY_WORDS] {
        flags::grammar("x", table, true).debug_assert();
    }
}

#[cfg(unix)]
#[test]
fn a_path_need_not_be_utf8() {
    use std::os::unix::ffi::OsStringExt as _;
    let path = OsString::from_vec(b"/tmp/\xff.jsonl".to_vec());
    let argv = ["--mode".into(), "rpc".into(), "--session".into(), path.clone()];
    assert!(matches!(parse(&argv), Ok(Invocation::Session(options)) if options.session == Some(path)));
    let argv = ["--mode".into(), "rpc".into(), "--model".into(), OsString::from_vec(vec![0xff])];
    assert_eq!(parse(&argv).unwrap_err().text, "Error: An argument is not valid UTF-8\n");
}

#[test]
fn trust_is_a_verb_of_its_own() {
    let trust = |directory: Option<&str>, revoke| {
        Ok(Invocation::Trust { directory: directory.map(PathBuf::from), revoke })
    };
    assert_eq!(parse_words(&["trust"]), trust(None, false));
    assert_eq!(parse_words(&["trust", "a b", "--revoke"]), trust(Some("a b"), true));
    assert_eq!(parse_words(&["trust", "-h"]), Ok(Invocation::Help(help::TRUST_HELP)));
    assert!(error_of(&["trust", "a", "b"]).contains("Unexpected argument: b"));
}

#[test]
fn resources_are_named_and_turned_off() {
    let options = options_of(&["--skill", "a", "--prompt-template", "p", "--skill=b", "-ns", "-np"]);
    assert_eq!(options.skills, [PathBuf::from("a"), PathBuf::from("b")]);
    assert_eq!(options.prompt_templates, [PathBuf::from("p")]);
    assert!(options.no_skills && options.no_prompt_templates);
}

#[test]
fn the_last_word_about_trust_counts() {
    for (arguments, approve) in [
        (&[][..], None),
        (&["-a"], Some(true)),
        (&["--approve"], Some(true)),
        (&["-na"], Some(false)),
        (&["--no-approve"], Some(false)),
        (&["-a", "-na"], Some(false)),
        (&["-na", "-a", "-a"], Some(true)),
    ] {
        assert_eq!(options_of(arguments).approve, approve, "{arguments:?}");
    }
}

#[test]
fn sessions_are_managed_by_verbs() {
    let sessions = |words: &[&str]| match parse_words(&[&["sessions"], words].concat()) {
        Ok(Invocation::Sessions(options)) => options,
        other => panic!("{words:?}: {other:?}"),
    };
    let list = |all, query: Option<&str>| SessionsAction::List { all, query: query.map(str::to_owned) };
    assert_eq!(sessions(&[]).action, list(false, None));
    assert_eq!(sessions(&["list", "-a", "red", "beans"]).action, list(true, Some("red beans")));
    assert_eq!(sessions(&["beans"]).action, list(false, Some("beans")));
    assert_eq!(sessions(&["list", "show"]).action, list(false, Some("show")));
    let json = sessions(&["--json", "--session-dir", "d"]);
    assert_eq!((json.json, json.session_dir), (true, Some(PathBuf::from("d"))));
    assert_eq!(sessions(&["show", "x"]).action, SessionsAction::Show { session: "x".into() });
    assert_eq!(
        sessions(&["rename", "x", " a", "name "]).action,
        SessionsAction::Rename { session: "x".into(), name: "a name".into() }
    );
    assert_eq!(
        sessions(&["export", "x", "o.html"]).action,
        SessionsAction::Export { session: "x".into(), output: Some("o.html".into()) }
    );
    assert_eq!(
        sessions(&["delete", "x", "-y"]).action,
        SessionsAction::Delete { session: "x".into(), yes: true }
    );
    for (words, error) in [
        (&["show"][..], "Error: Wrong number of arguments\nUsage: atomic sessions show SESSION\n"),
        (
            &["rename", "x", " "],
            "Error: Wrong number of arguments\nUsage: atomic sessions rename SESSION NAME\n",
        ),
        (
            &["delete", "x", "y"],
            "Error: Wrong number of arguments\nUsage: atomic sessions delete SESSION         with the copies that were kept \
             of it\n",
        ),
        (&["show", "x", "--yes"], "Error: 'sessions show' takes no --yes\n"),
        (&["delete", "x", "--all"], "Error: 'sessions delete' takes no --all\n"),
    ] {
        assert_eq!(error_of(&[&["sessions"], words].concat()), error);
    }
    assert!(matches!(parse_words(&["sessions", "delete", "--help"]), Ok(Invocation::Help(_))));
}

#[test]
fn attach_is_rpc_mode_of_a_session_that_exists() {
    let Ok(Invocation::Session(options)) = parse_words(&["attach", "0198", "--drain"]) else {
        panic!("it starts a session");
    };
    assert_eq!((options.mode, options.session.clone()), (OutputMode::Rpc, Some("0198".into())));
    assert!(options.attach && options.drain && !options_of(&["--session", "0198"]).attach);
    assert!(matches!(parse_words(&["attach", "-h"]), Ok(Invocation::Help(_))));
    for words in [&["attach"][..], &["attach", "--drain"]] {
        assert!(error_of(words).starts_with("Error: Which session?\nUsage: atomic attach"), "{words:?}");
    }
    for other in ["-c", "--no-session", "--session=y"] {
        let error = error_of(&["attach", "x", other]);
        assert!(error.starts_with("Error: attach cannot be combined with --"), "{error}");
    }
}

#[test]
fn auth_takes_a_provider_and_never_a_key() {
    let auth = |words: &[&str]| {
        let argv: Vec<OsString> = ["auth"].iter().chain(words).map(OsString::from).collect();
        parse(&argv)
    };
    let action = |action, json| Ok(Invocation::Auth(AuthOptions { action, json }));
    let p = || "p".to_owned();
    assert_eq!(auth(&["login", "p"]), action(AuthAction::Login { provider: p() }, false));
    assert_eq!(auth(&["logout", "p"]), action(AuthAction::Logout { provider: p() }, false));
    assert_eq!(auth(&["list", "--json"]), action(AuthAction::List, true));
    assert_eq!(auth(&["check", "p", "--json"]), action(AuthAction::Check { provider: Some(p()) }, true));
    assert_eq!(auth(&["check"]), action(AuthAction::Check { provider: None }, false));
    assert!(matches!(auth(&["login", "--help"]), Ok(Invocation::Help(text)) if text.contains("auth login")));
    for (words, want) in [
        (&[][..], "'auth' is to do nothing. Valid values: login, logout, list, check"),
        (&["forget"], "'auth' is to do forget"),
        (&["login"], "Usage: atomic auth login PROVIDER\n"),
        (&["login", "p", "sk-secret"], "Wrong number of arguments"),
        (&["list", "p"], "Usage: atomic auth list\n"),
        (&["logout", "p", "--json"], "takes no --json"),
    ] {
        let error = auth(words).unwrap_err().text;
        assert!(error.contains(want) && !error.contains("sk-secret"), "{words:?}: {error}");
    }
}
