use super::*;

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
        "--system-prompt",
        "-s",
        "--append-system-prompt",
        "-nt",
        "--append-system-prompt",
        "b",
        "-nc",
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
    assert_eq!(options.system_prompt.as_deref(), Some("-s"));
    assert_eq!(options.append_system_prompt, ["-nt", "b"], "a value is nobody's flag");
    assert_eq!((options.on_disconnect, options.drain), (Some(OnDisconnect::Abort), true));
    assert_eq!(options.messages, ["hello"]);
    assert!(!format!("{options:?}").contains("\"k\""), "the key is not shown");
    assert!(options_of(&["-c"]).continue_newest);
    assert_eq!(options_of(&["--session", "x.jsonl"]).session, Some("x.jsonl".into()));
    assert_eq!(
        options_of(&["--model", "a", "--model", "b"]).model.as_deref(),
        Some("b"),
        "the last one counts"
    );
}

#[test]
fn flags_of_real_clients_are_taken() {
    let options = options_of(&["--no-themes", "--no-extensions", "-ne", "--offline", "--verbose"]);
    assert_eq!(options, SessionOptions::default());
}

#[test]
fn trust_is_a_verb_of_its_own() {
    let trust = |directory: Option<&str>, revoke| {
        Ok(Invocation::Trust { directory: directory.map(PathBuf::from), revoke })
    };
    assert_eq!(parse_words(&["trust"]), trust(None, false));
    assert_eq!(parse_words(&["trust", "a b", "--revoke"]), trust(Some("a b"), true));
    assert_eq!(parse_words(&["trust", "-h"]), Ok(Invocation::Help(TRUST_HELP)));
    assert!(error_of(&["trust", "a", "b"]).contains("Unexpected argument: b"));
}

#[test]
fn resources_are_named_and_turned_off() {
    let options = options_of(&["--skill", "a", "--prompt-template", "-p", "--skill=b", "-ns", "-np"]);
    assert_eq!(options.skills, [PathBuf::from("a"), PathBuf::from("b")]);
    assert_eq!(options.prompt_templates, [PathBuf::from("-p")]);
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
    assert_eq!(options.model, None);
}

#[test]
fn refusals_have_the_reference_texts() {
    for (words, text) in [
        (&["--mode", "bogus"][..], "Invalid mode \"bogus\". Valid values: text, json, rpc\n"),
        (&["--mode", "json", "hi"], "Error: --mode json is not built in this version; use --mode rpc\n"),
        (&["--mode", "text"], "Error: --mode text is not built in this version; use --mode rpc\n"),
        (&["-p", "hi"], "Error: --print is not built in this version; use --mode rpc\n"),
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
        (&["status", "now"], "Error: Unexpected argument: now\n"),
        (&["logs", "-n", "many"], "Error: Invalid value \"many\" for --lines\n"),
        (
            &["logs", "--level", "loud"],
            "Error: Invalid log level \"loud\". Valid values: off, error, warn, info, debug, trace\n",
        ),
    ] {
        assert_eq!(error_of(words), text, "{words:?}");
    }
    assert!(error_of(&[]).contains("--mode rpc") && error_of(&["hello"]).contains("--help"));
}

#[test]
fn verbs_are_read() {
    assert_eq!(parse_words(&["status", "--json"]), Ok(Invocation::Status { json: true }));
    assert_eq!(parse_words(&["stop", "--wait"]), Ok(Invocation::Stop { force: false, wait: true }));
    let logs = |lines, follow, level: Option<&str>, path| {
        Ok(Invocation::Logs(LogsOptions { lines, follow, level: level.map(str::to_owned), path }))
    };
    assert_eq!(parse_words(&["logs"]), logs(DEFAULT_LOG_LINES, false, None, false));
    assert_eq!(parse_words(&["logs", "-n", "5", "-f", "--path"]), logs(5, true, None, true));
    assert_eq!(
        parse_words(&["logs", "--level", "debug"]),
        logs(DEFAULT_LOG_LINES, false, Some("debug"), false)
    );
    for verb in ["status", "stop", "logs"] {
        assert!(matches!(parse_words(&[verb, "--help"]), Ok(Invocation::Help(text)) if text.contains(verb)));
    }
}

#[test]
fn help_and_version_need_no_mode() {
    for words in [&["--help"][..], &["-h"], &["--mode", "json", "--help"], &["help"]] {
        assert_eq!(parse_words(words), Ok(Invocation::Help(HELP)), "{words:?}");
    }
    assert_eq!(parse_words(&["-v"]), Ok(Invocation::Version(format!("atomic {PROGRAM_VERSION}\n"))));
}

#[test]
fn the_help_is_one_screen_and_names_every_flag() {
    assert!(HELP.lines().count() <= 56 && HELP.lines().all(|line| line.len() <= 110));
    let command = <Flags as clap::CommandFactory>::command();
    command.clone().debug_assert();
    for argument in command.get_arguments() {
        let Some(long) = argument.get_long().filter(|long| *long != "print") else { continue };
        assert!(HELP.contains(&format!("--{long}")), "--{long}");
    }
    for (short, _) in SHORTS {
        assert!(HELP.contains(short), "{short}");
    }
    // A flag that takes a value must be known to the normaliser, or its value could be read as a flag.
    for argument in command.get_arguments().filter(|argument| argument.get_action().takes_values()) {
        if let Some(long) = argument.get_long() {
            assert!(WITH_VALUE.contains(&format!("--{long}").as_str()), "--{long}");
        }
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
