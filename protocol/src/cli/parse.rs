//! From arguments to what they ask for.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::flags::{self, Flag, Given, Takes, WORDS, text};
use super::help::{
    ATTACH_HELP, AUTH_HELP, COMPLETIONS_HELP, EXPORT_HELP, HELP, LOGS_HELP, MAN_HELP, RESTART_HELP,
    SESSIONS_HELP, STATUS_HELP, STOP_HELP, TRUST_HELP,
};
use super::{
    AUTH_ACTIONS, AuthAction, AuthOptions, CliError, DEFAULT_LOG_LINES, Dialect, Invocation, LOG_LEVELS,
    LogsOptions, OnDisconnect, OutputMode, SHELLS, SessionOptions, SessionsAction, SessionsOptions,
};
use crate::link::{OsText, PROGRAM_VERSION};
use crate::model::ThinkingLevel;

/// Reads the arguments that follow the program's name.
///
/// # Errors
/// With the text for stderr and the exit code.
pub fn parse(argv: &[OsString]) -> Result<Invocation, CliError> {
    let rest = argv.get(1..).unwrap_or_default();
    match argv.first().and_then(|first| first.to_str()) {
        Some("status") => {
            let given = read("status", flags::STATUS, false, rest)?;
            Ok(match given.has("help") {
                true => Invocation::Help(STATUS_HELP),
                false => Invocation::Status { json: given.has("json") },
            })
        }
        Some("stop") => {
            let given = read("stop", flags::STOP, false, rest)?;
            Ok(match given.has("help") {
                true => Invocation::Help(STOP_HELP),
                false => Invocation::Stop { force: given.has("force"), wait: given.has("wait") },
            })
        }
        Some("restart") => {
            let given = read("restart", flags::RESTART, false, rest)?;
            Ok(match given.has("help") {
                true => Invocation::Help(RESTART_HELP),
                false => Invocation::Restart { now: given.has("now") },
            })
        }
        Some("logs") => logs(read("logs", flags::LOGS, false, rest)?),
        Some("trust") => {
            let mut given = read("trust", flags::TRUST, true, rest)?;
            if given.has("help") {
                return Ok(Invocation::Help(TRUST_HELP));
            }
            let revoke = given.has("revoke");
            match given.values(WORDS).as_slice() {
                [] => Ok(Invocation::Trust { directory: None, revoke }),
                [directory] => Ok(Invocation::Trust { directory: Some(directory.into()), revoke }),
                [_, more, ..] => {
                    Err(CliError::new(format_args!("Unexpected argument: {}", more.to_string_lossy())))
                }
            }
        }
        Some("sessions") => sessions(read("sessions", flags::SESSIONS, true, rest)?),
        Some("auth") => auth(read("auth", flags::AUTH, true, rest)?),
        Some("attach") => attach(rest),
        Some("export") => words("export", EXPORT_HELP, rest, 1..=2, |words| {
            let mut words = words.into_iter().map(PathBuf::from);
            let file = words.next().unwrap_or_default();
            Ok(Invocation::Export { file, output: words.next() })
        }),
        Some("completions") => words("completions", COMPLETIONS_HELP, rest, 1..=1, |words| {
            let shell = words[0].to_string_lossy();
            match SHELLS.contains(&&*shell) {
                true => Ok(Invocation::Completions(shell.into_owned())),
                false => Err(CliError::new(format_args!(
                    "No completions for \"{shell}\". Valid values: {}",
                    SHELLS.join(", ")
                ))),
            }
        }),
        Some("man") => words("man", MAN_HELP, rest, 0..=0, |_| Ok(Invocation::Man)),
        Some("help") if rest.is_empty() => Ok(Invocation::Help(HELP)),
        _ => session(argv),
    }
}

fn auth(mut given: Given) -> Result<Invocation, CliError> {
    if given.has("help") {
        return Ok(Invocation::Help(AUTH_HELP));
    }
    let json = given.has("json");
    let mut words = given.values(WORDS).into_iter().map(text);
    let verb = words.next().transpose()?.unwrap_or_default();
    if !AUTH_ACTIONS.contains(&&*verb) {
        let (word, known) = (if verb.is_empty() { "nothing" } else { &*verb }, AUTH_ACTIONS.join(", "));
        return Err(CliError::new(format_args!(
            "'auth' is to do {word}. Valid values: {known}\nTry 'atomic auth --help'."
        )));
    }
    if json && matches!(&*verb, "login" | "logout") {
        return Err(CliError::new(format_args!("'auth {verb}' takes no --json")));
    }
    let provider = words.next().transpose()?.filter(|provider| !provider.trim().is_empty());
    let usage = AUTH_HELP.lines().find(|line| line.contains(&format!("auth {verb}"))).unwrap_or_default();
    let usage = usage.trim_start_matches("Usage:").trim();
    let usage = usage.split_once("  ").map_or(usage, |(usage, _)| usage);
    // What follows may be a key: it is not repeated.
    let wrong = || CliError::new(format_args!("Wrong number of arguments\nUsage: {usage}"));
    let action = match (&*verb, provider) {
        ("login", Some(provider)) => AuthAction::Login { provider },
        ("logout", Some(provider)) => AuthAction::Logout { provider },
        ("list", None) => AuthAction::List,
        ("check", provider) => AuthAction::Check { provider },
        _ => return Err(wrong()),
    };
    match words.next() {
        None => Ok(Invocation::Auth(AuthOptions { action, json })),
        Some(_) => Err(wrong()),
    }
}

/// `atomic attach`: the arguments of rpc mode behind a session.
fn attach(argv: &[OsString]) -> Result<Invocation, CliError> {
    let wrong = || {
        let usage = ATTACH_HELP.lines().find(|line| line.starts_with("Usage:")).unwrap_or_default();
        CliError::new(format_args!("Which session?\n{usage}"))
    };
    let (session_named, rest) = argv.split_first().ok_or_else(wrong)?;
    match session_named.to_str() {
        Some("--help" | "-h") => return Ok(Invocation::Help(ATTACH_HELP)),
        _ if session_named.as_encoded_bytes().starts_with(b"-") => return Err(wrong()),
        _ => {}
    }
    let mut full: Vec<OsString> = ["--mode", "rpc", "--session"].map(OsString::from).to_vec();
    full.push(session_named.clone());
    full.extend_from_slice(rest);
    let mut invocation = session(&full)?;
    if let Invocation::Session(options) = &mut invocation {
        let others = [
            ("--session-id", options.session_id.is_some()),
            ("--continue", options.continue_newest),
            ("--fork", options.fork.is_some()),
            ("--no-session", options.no_session),
            ("--session", options.session.as_ref() != Some(session_named)),
        ];
        alone("attach", &others)?;
        options.attach = true;
    }
    Ok(invocation)
}

fn sessions(mut given: Given) -> Result<Invocation, CliError> {
    if given.has("help") {
        return Ok(Invocation::Help(SESSIONS_HELP));
    }
    let (all, json, yes) = (given.has("all"), given.has("json"), given.has("yes"));
    let session_dir = given.value("session-dir").map(PathBuf::from);
    let mut words = given.values(WORDS).into_iter().peekable();
    let verb = words.next_if(|word| {
        word.to_str().is_some_and(|word| ["list", "show", "rename", "export", "delete"].contains(&word))
    });
    let verb = verb.and_then(|verb| verb.into_string().ok()).unwrap_or_else(|| "list".to_owned());
    for (flag, given, verbs) in
        [("--all", all, &["list"][..]), ("--json", json, &["list", "show"]), ("--yes", yes, &["delete"])]
    {
        if given && !verbs.contains(&&*verb) {
            return Err(CliError::new(format_args!("'sessions {verb}' takes no {flag}")));
        }
    }
    let wrong = || {
        let line = SESSIONS_HELP.lines().find(|line| line.contains(&format!("sessions {verb} ")));
        let usage = line.unwrap_or_default().trim_start_matches("Usage:").trim();
        CliError::new(format_args!("Wrong number of arguments\nUsage: {usage}"))
    };
    let action = if verb == "list" {
        let query = words.by_ref().map(text).collect::<Result<Vec<_>, _>>()?.join(" ");
        SessionsAction::List { all, query: Some(query).filter(|query| !query.trim().is_empty()) }
    } else {
        let session = words.next().filter(|session| !session.is_empty()).ok_or_else(wrong)?;
        match &*verb {
            "show" => SessionsAction::Show { session },
            "rename" => {
                let name =
                    words.by_ref().map(text).collect::<Result<Vec<_>, _>>()?.join(" ").trim().to_owned();
                if name.is_empty() {
                    return Err(wrong());
                }
                SessionsAction::Rename { session, name }
            }
            "export" => SessionsAction::Export { session, output: words.next().map(PathBuf::from) },
            _ => SessionsAction::Delete { session, yes },
        }
    };
    match words.next() {
        None => Ok(Invocation::Sessions(SessionsOptions { action, session_dir, json })),
        Some(_) => Err(wrong()),
    }
}

/// A verb that takes this many words and nothing else.
fn words(
    verb: &'static str,
    help: &'static str,
    argv: &[OsString],
    count: RangeInclusive<usize>,
    then: impl FnOnce(Vec<OsString>) -> Result<Invocation, CliError>,
) -> Result<Invocation, CliError> {
    let mut given = read(verb, flags::ONLY_WORDS, true, argv)?;
    if given.has("help") {
        return Ok(Invocation::Help(help));
    }
    let words = given.values(WORDS);
    if !count.contains(&words.len()) {
        let usage = help.lines().find(|line| line.starts_with("Usage:")).unwrap_or_default();
        return Err(CliError::new(format_args!("Wrong number of arguments\n{usage}")));
    }
    then(words)
}

fn logs(mut given: Given) -> Result<Invocation, CliError> {
    if given.has("help") {
        return Ok(Invocation::Help(LOGS_HELP));
    }
    let level = given.text("level")?;
    if let Some(level) = level.as_deref().filter(|level| !LOG_LEVELS.contains(level)) {
        let known = LOG_LEVELS.join(", ");
        return Err(CliError::new(format_args!("Invalid log level \"{level}\". Valid values: {known}")));
    }
    let lines = match given.text("lines")? {
        None => DEFAULT_LOG_LINES,
        Some(text) => {
            text.parse().map_err(|_| CliError::new(format_args!("Invalid value \"{text}\" for --lines")))?
        }
    };
    let (follow, path) = (given.has("follow"), given.has("path"));
    Ok(Invocation::Logs(LogsOptions { lines, follow, level, path }))
}

fn session(argv: &[OsString]) -> Result<Invocation, CliError> {
    let (normal, files) = normalise(argv);
    let mut given = read("atomic", flags::ATOMIC, true, &normal)?;
    let mode = match given.text("mode")?.as_deref() {
        Some("rpc") => OutputMode::Rpc,
        Some("json") => OutputMode::Json,
        Some("text") | None if given.has("print") => OutputMode::Print,
        Some("text") | None => OutputMode::Text,
        Some(mode) => {
            let text = format!("Invalid mode \"{mode}\". Valid values: text, json, rpc\n");
            return Err(CliError { text, code: 1 });
        }
    };
    if given.has("help") {
        return Ok(match mode {
            OutputMode::Rpc | OutputMode::Json => Invocation::HelpAside(HELP),
            OutputMode::Print | OutputMode::Text => Invocation::Help(HELP),
        });
    }
    if given.has("version") {
        return Ok(Invocation::Version(format!("atomic {PROGRAM_VERSION}\n")));
    }
    if let Some(search) = given.text("list-models")? {
        return Ok(Invocation::ListModels { search: Some(search).filter(|search| !search.is_empty()) });
    }
    if let Some(file) = given.value("export") {
        let output = given.values(WORDS).into_iter().next().map(PathBuf::from);
        return Ok(Invocation::Export { file: file.into(), output });
    }
    if mode == OutputMode::Rpc && !files.is_empty() {
        return Err(CliError::new("@file arguments are not supported in RPC mode"));
    }
    options(given, mode, files).map(|options| Invocation::Session(Box::new(options)))
}

fn options(mut given: Given, mode: OutputMode, files: Vec<OsString>) -> Result<SessionOptions, CliError> {
    let (session, session_id) = (given.value("session"), given.text("session-id")?);
    let fork = given.value("fork");
    let continue_newest = given.has("continue");
    let no_session = given.has("no-session");
    let resume = given.has("resume");
    let chosen = [
        ("--session", session.is_some()),
        ("--continue", continue_newest),
        ("--resume", resume),
        ("--no-session", no_session),
    ];
    if fork.is_some() {
        alone("--fork", &chosen)?;
    }
    if session_id.is_some() {
        alone("--session-id", &chosen[..3])?;
    }
    if resume {
        return Err(CliError::new(
            "--resume shows a list to choose from, which this program has not. Use --continue for the newest session of \
             this directory, or --session PATH|ID.",
        ));
    }
    let mut warnings = Vec::new();
    let thinking = given.text("thinking")?.and_then(|level| {
        let known = ThinkingLevel::parse(&level);
        if known.is_none() {
            warnings.push(format!(
                "Warning: Invalid thinking level \"{level}\". Valid values: off, minimal, low, medium, high, xhigh, max"
            ));
        }
        known
    });
    for extension in given.values("extension") {
        warnings.push(format!(
            "Warning: Extensions are not built in this version; {} is not loaded",
            extension.to_string_lossy()
        ));
    }
    let name = given.text("name")?.map(|name| name.trim().to_owned());
    if name.as_deref() == Some("") {
        return Err(CliError::new("--name requires a non-empty value"));
    }
    let on_disconnect = given.text("on-disconnect")?.map(|word| {
        OnDisconnect::parse(&word).ok_or_else(|| invalid(&word, "--on-disconnect", &OnDisconnect::WORDS))
    });
    let rpc_compat = given
        .text("rpc-compat")?
        .map(|word| Dialect::parse(&word).ok_or_else(|| invalid(&word, "--rpc-compat", &Dialect::WORDS)));
    let max_turns =
        given.text("max-turns")?.map(|word| above_zero(&word, "--max-turns", |turns: &u64| *turns > 0));
    let max_cost = given
        .text("max-cost")?
        .map(|word| above_zero(&word, "--max-cost", |cost: &f64| *cost > 0.0 && cost.is_finite()));
    let paths = |values: Vec<OsString>| values.into_iter().map(PathBuf::from).collect();
    Ok(SessionOptions {
        mode,
        provider: given.text("provider")?,
        model: given.text("model")?,
        models: given.text("models")?.as_deref().map(names).unwrap_or_default(),
        thinking,
        api_key: given.text("api-key")?,
        no_session,
        session,
        attach: false,
        session_id,
        fork,
        continue_newest,
        session_dir: given.value("session-dir").map(PathBuf::from),
        name,
        tools: given.text("tools")?.as_deref().map(names),
        exclude_tools: given.text("exclude-tools")?.as_deref().map(names).unwrap_or_default(),
        no_tools: given.has("no-tools"),
        no_builtin_tools: given.has("no-builtin-tools"),
        max_turns: max_turns.transpose()?,
        max_cost: max_cost.transpose()?,
        system_prompt: given.text("system-prompt")?,
        append_system_prompt: given
            .values("append-system-prompt")
            .into_iter()
            .map(text)
            .collect::<Result<_, _>>()?,
        no_context_files: given.has("no-context-files"),
        prompt_templates: paths(given.values("prompt-template")),
        no_prompt_templates: given.has("no-prompt-templates"),
        skills: paths(given.values("skill")),
        no_skills: given.has("no-skills"),
        // Of the two the last one counts; the grammar clears the other.
        approve: (given.has("approve") || given.has("no-approve")).then_some(given.has("approve")),
        rpc_compat: rpc_compat.transpose()?,
        ascii_separators: given.has("ascii-separators"),
        on_disconnect: on_disconnect.transpose()?,
        drain: given.has("drain"),
        messages: given.values(WORDS).iter().map(|text| text.to_string_lossy().into_owned()).collect(),
        files,
        warnings,
    })
}

/// A number that `fits`, which those above 0 do.
fn above_zero<T: FromStr>(word: &str, flag: &str, fits: impl Fn(&T) -> bool) -> Result<T, CliError> {
    word.trim().parse().ok().filter(fits).ok_or_else(|| {
        CliError::new(format_args!("Invalid value \"{word}\" for {flag}. It takes a number above 0"))
    })
}

/// A flag that says which session is meant stands alone.
fn alone(flag: &str, others: &[(&str, bool)]) -> Result<(), CliError> {
    let given: Vec<&str> = others.iter().filter(|(_, given)| *given).map(|(other, _)| *other).collect();
    match given.is_empty() {
        true => Ok(()),
        false => Err(CliError::new(format_args!("{flag} cannot be combined with {}", given.join(", ")))),
    }
}

/// A word that is none of those that `place` takes.
pub(super) fn invalid<T>(word: &str, place: &str, words: &[(&str, T)]) -> CliError {
    let known: Vec<&str> = words.iter().map(|(known, _)| *known).collect();
    CliError::new(format_args!("Invalid value \"{word}\" for {place}. Valid values: {}", known.join(", ")))
}

/// `a, b,` → `["a", "b"]`.
fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Spells the long short flags out, and takes the `@file` arguments before `--` out.
fn normalise(argv: &[OsString]) -> (Vec<OsString>, Vec<OsString>) {
    let mut out = Vec::with_capacity(argv.len());
    let mut files = Vec::new();
    let mut arguments = argv.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            out.push(argument.clone());
            out.extend(arguments.cloned());
            break;
        }
        // A path need not be UTF-8.
        if let Some(path @ [_, ..]) = argument.as_encoded_bytes().strip_prefix(b"@") {
            files.push(OsText(path.to_vec()).to_os());
            continue;
        }
        let known = argument.to_str().and_then(known);
        match known {
            Some(flag) if flag.short.len() > 1 => out.push(format!("--{}", flag.long).into()),
            _ => out.push(argument.clone()),
        }
        // A flag's value is nobody's flag and no file, whatever it looks like.
        if known.is_some_and(|flag| !matches!(flag.takes, Takes::Nothing | Takes::Optional)) {
            out.extend(arguments.next().cloned());
        }
    }
    (out, files)
}

/// The flag that an argument is, if it is exactly that.
fn known(argument: &str) -> Option<&'static Flag> {
    let spelled = argument.strip_prefix('-')?;
    let by_long = spelled.strip_prefix('-');
    flags::ATOMIC.iter().find(|flag| match by_long {
        Some(long) => flag.long == long,
        None => !spelled.is_empty() && flag.short == spelled,
    })
}

/// Lets clap read and says its errors in the reference's words.
fn read(
    name: &'static str,
    flags: &'static [Flag],
    words: bool,
    argv: &[OsString],
) -> Result<Given, CliError> {
    let full = std::iter::once(OsStr::new(name)).chain(argv.iter().map(OsString::as_os_str));
    let matches = flags::grammar(name, flags, words).try_get_matches_from(full);
    matches.map(Given).map_err(|error| {
        let string = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.clone()),
            Some(ContextValue::Strings(texts)) => texts.first().cloned(),
            _ => None,
        };
        // clap names an option as its usage does: `--name <NAME>`.
        let argument = string(ContextKind::InvalidArg).unwrap_or_default();
        let flag = argument.split(' ').next().unwrap_or_default();
        match error.kind() {
            ErrorKind::UnknownArgument if !flag.starts_with('-') => {
                CliError::new(format_args!("Unexpected argument: {argument}"))
            }
            ErrorKind::UnknownArgument => {
                let mut text = format!("Error: Unknown option: {argument}\n");
                match string(ContextKind::SuggestedArg) {
                    Some(near) => text.push_str(&format!("Did you mean {near}?\n")),
                    None => text.push_str("Try 'atomic --help' for all options.\n"),
                }
                CliError { text, code: 1 }
            }
            ErrorKind::InvalidValue | ErrorKind::NoEquals | ErrorKind::WrongNumberOfValues => {
                CliError::new(format_args!("{flag} requires a value"))
            }
            ErrorKind::TooManyValues => CliError::new(format_args!("{flag} takes no value")),
            _ => CliError::new(error.render().to_string().trim_start_matches("error: ").trim_end()),
        }
    })
}
