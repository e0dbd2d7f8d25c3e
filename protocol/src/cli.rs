//! The one definition of `atomic`'s command line, read by the shim (to route) and by the daemon (to shape the session
//! from `hello.argv`). Pure: it reads no environment, opens no file and prints nothing.
//!
//! Flag names, short forms and error texts are those of the reference implementation's argument parser (reference
//! 3.1); `--mode bogus` and `--thinking bogus` answer in Pi's words.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::link::{OsText, PROGRAM_VERSION};
use crate::model::ThinkingLevel;

mod describe;
mod flags;
mod help;

use flags::{Flags, LogsFlags, StatusFlags, StopFlags, WordFlags};
use help::{COMPLETIONS_HELP, EXPORT_HELP, LOGS_HELP, MAN_HELP, STATUS_HELP, STOP_HELP};

pub use describe::command;
pub use help::{HELP, USAGE};

/// Shells that completions are printed for.
pub const SHELLS: [&str; 5] = ["bash", "zsh", "fish", "powershell", "elvish"];

/// Levels of the daemon's log.
const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Lines that `atomic logs` prints unless told otherwise: about a screen.
pub const DEFAULT_LOG_LINES: usize = 50;

/// Two-letter and three-letter short flags, which no ordinary option parser takes (reference 3.1).
const SHORTS: [(&str, &str); 8] = [
    ("-xt", "--exclude-tools"),
    ("-nt", "--no-tools"),
    ("-nbt", "--no-builtin-tools"),
    ("-nc", "--no-context-files"),
    ("-ne", "--no-extensions"),
    ("-ns", "--no-skills"),
    ("-np", "--no-prompt-templates"),
    ("-na", "--no-approve"),
];

/// Flags whose value is the next argument. That argument is nobody's flag, whatever it looks like.
const WITH_VALUE: [&str; 28] = [
    "--mode",
    "--provider",
    "--model",
    "--models",
    "--fork",
    "--export",
    "--prompt-template",
    "--skill",
    "--rpc-compat",
    "--extension",
    "-e",
    "--theme",
    "--use-theme",
    "--thinking",
    "--api-key",
    "--session",
    "--session-id",
    "--session-dir",
    "--name",
    "-n",
    "--tools",
    "-t",
    "--exclude-tools",
    "-xt",
    "--system-prompt",
    "--append-system-prompt",
    "--on-disconnect",
    "--level",
];

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// Print this on stdout, exit 0; no daemon is asked.
    Help(&'static str),
    /// The same on stderr: the mode's stdout carries records only.
    HelpAside(&'static str),
    /// Print this on stdout, exit 0; no daemon is asked.
    Version(String),
    /// Attach to a session.
    Session(Box<SessionOptions>),
    /// List the models that can be used; `atomicd` does it.
    ListModels {
        /// Only those that match.
        search: Option<String>,
    },
    /// Write a session file as a page; `atomicd` does it.
    Export {
        /// The session file.
        file: PathBuf,
        /// The page; absent: named after the session file.
        output: Option<PathBuf>,
    },
    /// Print a completion script for one of [`SHELLS`]; `atomicd` does it.
    Completions(String),
    /// Print the manual page; `atomicd` does it.
    Man,
    /// `atomic status`.
    Status {
        /// One JSON object instead of lines for people.
        json: bool,
    },
    /// `atomic stop`.
    Stop {
        /// Abort running turns.
        force: bool,
        /// Let running turns end first.
        wait: bool,
    },
    /// `atomic logs`.
    Logs(LogsOptions),
}

/// Options of `atomic logs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogsOptions {
    /// How many lines from the end.
    pub lines: usize,
    /// Go on printing what is added.
    pub follow: bool,
    /// Set the running daemon's level to this one instead of printing.
    pub level: Option<String>,
    /// Print the file's path instead of its end.
    pub path: bool,
}

/// What becomes of a session when its last client leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    /// The running turn goes on to its end; an idle session is unloaded after a while.
    #[default]
    Finish,
    /// The running turn is aborted.
    Abort,
    /// As [`OnDisconnect::Finish`], and the session is never unloaded.
    Keep,
}

impl OnDisconnect {
    /// All of them, as flag and setting spell them.
    const WORDS: [(&str, OnDisconnect); 3] =
        [("finish", OnDisconnect::Finish), ("abort", OnDisconnect::Abort), ("keep", OnDisconnect::Keep)];

    /// Reads the word of the flag or the setting `daemon.onDisconnect`.
    pub fn parse(word: &str) -> Option<OnDisconnect> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning)
    }
}

/// What a session's client says and hears on its stdin and stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputMode {
    /// `--mode rpc`: commands in, answers and events out.
    #[default]
    Rpc,
    /// `--mode json`: the messages are run, events out.
    Json,
    /// `-p`: the messages are run, the text of the last answer out.
    Print,
    /// No mode is named, or `text`: [`OutputMode::Print`] where stdin or stdout is no terminal, else a person expects a
    /// chat, which this program has not.
    Text,
}

/// Which program's records a client expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Those of PROTOCOL.md.
    #[default]
    Atomic,
    /// Those of Pi.
    Pi,
    /// Cumulative updates, as seed 002 has them.
    Legacy,
}

impl Dialect {
    /// All of them, as the flag and the variable spell them.
    const WORDS: [(&str, Dialect); 3] =
        [("atomic", Dialect::Atomic), ("pi", Dialect::Pi), ("legacy", Dialect::Legacy)];

    /// The variable that counts where `--rpc-compat` is not given.
    pub const VARIABLE: &str = "ATOMIC_RPC_COMPAT";

    /// Reads a word of the flag or the variable.
    pub fn parse(word: &str) -> Option<Dialect> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning)
    }
}

/// Options that shape a session.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// How the caller wants to be served.
    pub mode: OutputMode,
    /// `--provider`.
    pub provider: Option<String>,
    /// `--model`, as given: a pattern, perhaps with `:thinking`.
    pub model: Option<String>,
    /// `--models`: patterns of the models that cycle_model goes through, in order.
    pub models: Vec<String>,
    /// `--thinking`, when it named a level.
    pub thinking: Option<ThinkingLevel>,
    /// `--api-key`; `Debug` hides it.
    pub api_key: Option<String>,
    /// `--no-session`: in memory only; wins over the choice of a stored session.
    pub no_session: bool,
    /// `--session`: a path or an id, as given.
    pub session: Option<OsString>,
    /// `--session-id`.
    pub session_id: Option<String>,
    /// `--fork`: the path or id of the session that is copied, as given.
    pub fork: Option<OsString>,
    /// `--continue`.
    pub continue_newest: bool,
    /// `--session-dir`, as given (perhaps relative to the caller's directory).
    pub session_dir: Option<PathBuf>,
    /// `--name`, trimmed and not empty.
    pub name: Option<String>,
    /// `--tools`: only these.
    pub tools: Option<Vec<String>>,
    /// `--exclude-tools`: not these.
    pub exclude_tools: Vec<String>,
    /// `--no-tools`.
    pub no_tools: bool,
    /// `--no-builtin-tools`.
    pub no_builtin_tools: bool,
    /// `--system-prompt`: a text or the path of a file.
    pub system_prompt: Option<String>,
    /// `--append-system-prompt`, in order: texts or paths.
    pub append_system_prompt: Vec<String>,
    /// `--no-context-files`.
    pub no_context_files: bool,
    /// `--prompt-template`, in order, as given: files or directories.
    pub prompt_templates: Vec<PathBuf>,
    /// `--no-prompt-templates`: only the named ones.
    pub no_prompt_templates: bool,
    /// `--skill`, in order, as given: files or directories.
    pub skills: Vec<PathBuf>,
    /// `--no-skills`: only the named ones.
    pub no_skills: bool,
    /// `--approve` or `--no-approve`: project trust, whatever is recorded.
    pub approve: Option<bool>,
    /// `--rpc-compat`; absent: the variable [`Dialect::VARIABLE`] decides.
    pub rpc_compat: Option<Dialect>,
    /// `--ascii-separators`: U+2028 and U+2029 are written as escapes.
    pub ascii_separators: bool,
    /// `--on-disconnect`; absent: the setting `daemon.onDisconnect` decides.
    pub on_disconnect: Option<OnDisconnect>,
    /// `--drain`: after the end of input the connection stays until the session has settled.
    pub drain: bool,
    /// Messages after the options; rpc mode ignores them, as the reference does.
    pub messages: Vec<String>,
    /// `@file` arguments in order, without the `@`; none in rpc mode.
    pub files: Vec<OsString>,
    /// Lines for the caller's stderr, without LF. The shim prints them; the daemon, which parses the same arguments
    /// again, does not.
    pub warnings: Vec<String>,
}

impl SessionOptions {
    /// The dialect that the flag names, or else the variable's value.
    ///
    /// # Errors
    /// When the variable names none.
    pub fn dialect(&self, variable: Option<&str>) -> Result<Dialect, CliError> {
        match (self.rpc_compat, variable.filter(|word| !word.is_empty())) {
            (Some(dialect), _) => Ok(dialect),
            (None, None) => Ok(Dialect::Atomic),
            (None, Some(word)) => {
                Dialect::parse(word).ok_or_else(|| invalid(word, Dialect::VARIABLE, &Dialect::WORDS))
            }
        }
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("mode", &self.mode)
            .field("provider", &self.provider)
            .field("model", &self.model)
            .field("models", &self.models)
            .field("thinking", &self.thinking)
            .field("api_key", &self.api_key.as_ref().map(|_| "…"))
            .field("no_session", &self.no_session)
            .field("session", &self.session)
            .field("session_id", &self.session_id)
            .field("fork", &self.fork)
            .field("continue_newest", &self.continue_newest)
            .field("session_dir", &self.session_dir)
            .field("name", &self.name)
            .field("tools", &self.tools)
            .field("exclude_tools", &self.exclude_tools)
            .field("no_tools", &self.no_tools)
            .field("no_builtin_tools", &self.no_builtin_tools)
            .field("no_context_files", &self.no_context_files)
            .field("prompt_templates", &self.prompt_templates)
            .field("skills", &self.skills)
            .field("approve", &self.approve)
            .field("rpc_compat", &self.rpc_compat)
            .field("on_disconnect", &self.on_disconnect)
            .field("drain", &self.drain)
            .finish_non_exhaustive()
    }
}

/// Why a command line was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    /// Complete lines for stderr.
    pub text: String,
    /// The exit code.
    pub code: u8,
}

impl CliError {
    fn new(text: impl fmt::Display) -> CliError {
        CliError { text: format!("Error: {text}\n"), code: 1 }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

impl std::error::Error for CliError {}

/// Reads the arguments that follow the program's name.
///
/// # Errors
/// With the text for stderr and the exit code.
pub fn parse(argv: &[OsString]) -> Result<Invocation, CliError> {
    let rest = argv.get(1..).unwrap_or_default();
    match argv.first().and_then(|first| first.to_str()) {
        Some("status") => {
            let flags: StatusFlags = read("status", rest)?;
            Ok(if flags.help {
                Invocation::Help(STATUS_HELP)
            } else {
                Invocation::Status { json: flags.json }
            })
        }
        Some("stop") => {
            let flags: StopFlags = read("stop", rest)?;
            Ok(match flags {
                StopFlags { help: true, .. } => Invocation::Help(STOP_HELP),
                StopFlags { force, wait, .. } => Invocation::Stop { force, wait },
            })
        }
        Some("logs") => logs(read("logs", rest)?),
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
/// A verb that takes this many words and nothing else.
fn words(
    verb: &str,
    help: &'static str,
    argv: &[OsString],
    count: RangeInclusive<usize>,
    then: impl FnOnce(Vec<OsString>) -> Result<Invocation, CliError>,
) -> Result<Invocation, CliError> {
    let flags: WordFlags = read(verb, argv)?;
    if flags.help {
        return Ok(Invocation::Help(help));
    }
    if !count.contains(&flags.words.len()) {
        let usage = help.lines().find(|line| line.starts_with("Usage:")).unwrap_or_default();
        return Err(CliError::new(format_args!("Wrong number of arguments\n{usage}")));
    }
    then(flags.words)
}

fn logs(flags: LogsFlags) -> Result<Invocation, CliError> {
    if flags.help {
        return Ok(Invocation::Help(LOGS_HELP));
    }
    if let Some(level) = &flags.level
        && !LOG_LEVELS.contains(&level.as_str())
    {
        return Err(CliError::new(format_args!(
            "Invalid log level \"{level}\". Valid values: {}",
            LOG_LEVELS.join(", ")
        )));
    }
    let LogsFlags { lines, follow, level, path, .. } = flags;
    Ok(Invocation::Logs(LogsOptions { lines, follow, level, path }))
}

fn session(argv: &[OsString]) -> Result<Invocation, CliError> {
    let (normal, files) = normalise(argv);
    let flags: Flags = read("atomic", &normal)?;
    let mode = match flags.mode.as_deref() {
        Some("rpc") => OutputMode::Rpc,
        Some("json") => OutputMode::Json,
        Some("text") | None if flags.print => OutputMode::Print,
        Some("text") | None => OutputMode::Text,
        Some(mode) => {
            let text = format!("Invalid mode \"{mode}\". Valid values: text, json, rpc\n");
            return Err(CliError { text, code: 1 });
        }
    };
    if flags.help {
        return Ok(match mode {
            OutputMode::Rpc | OutputMode::Json => Invocation::HelpAside(HELP),
            OutputMode::Print | OutputMode::Text => Invocation::Help(HELP),
        });
    }
    if flags.version {
        return Ok(Invocation::Version(format!("atomic {PROGRAM_VERSION}\n")));
    }
    if let Some(search) = flags.list_models {
        return Ok(Invocation::ListModels { search: Some(search).filter(|search| !search.is_empty()) });
    }
    if let Some(file) = flags.export {
        return Ok(Invocation::Export { file, output: flags.messages.into_iter().next().map(PathBuf::from) });
    }
    if mode == OutputMode::Rpc && !files.is_empty() {
        return Err(CliError::new("@file arguments are not supported in RPC mode"));
    }
    options(flags, mode, files).map(|options| Invocation::Session(Box::new(options)))
}

fn options(flags: Flags, mode: OutputMode, files: Vec<OsString>) -> Result<SessionOptions, CliError> {
    check_choice(&flags)?;
    let mut warnings = Vec::new();
    let thinking = flags.thinking.and_then(|level| {
        let known = ThinkingLevel::parse(&level);
        if known.is_none() {
            warnings.push(format!(
                "Warning: Invalid thinking level \"{level}\". Valid values: off, minimal, low, medium, high, xhigh, max"
            ));
        }
        known
    });
    for extension in &flags.inert.extension {
        warnings.push(format!(
            "Warning: Extensions are not built in this version; {} is not loaded",
            extension.display()
        ));
    }
    let name = flags.name.map(|name| name.trim().to_owned());
    if name.as_deref() == Some("") {
        return Err(CliError::new("--name requires a non-empty value"));
    }
    let on_disconnect = flags.on_disconnect.as_deref().map(|word| {
        OnDisconnect::parse(word).ok_or_else(|| invalid(word, "--on-disconnect", &OnDisconnect::WORDS))
    });
    let rpc_compat = flags
        .rpc_compat
        .as_deref()
        .map(|word| Dialect::parse(word).ok_or_else(|| invalid(word, "--rpc-compat", &Dialect::WORDS)));
    Ok(SessionOptions {
        mode,
        provider: flags.provider,
        model: flags.model,
        models: flags.models.as_deref().map(names).unwrap_or_default(),
        thinking,
        api_key: flags.api_key,
        no_session: flags.no_session,
        session: flags.session,
        session_id: flags.session_id,
        fork: flags.fork,
        continue_newest: flags.continue_newest,
        session_dir: flags.session_dir,
        name,
        tools: flags.tools.as_deref().map(names),
        exclude_tools: flags.exclude_tools.as_deref().map(names).unwrap_or_default(),
        no_tools: flags.no_tools,
        no_builtin_tools: flags.no_builtin_tools,
        system_prompt: flags.system_prompt,
        append_system_prompt: flags.append_system_prompt,
        no_context_files: flags.no_context_files,
        prompt_templates: flags.prompt_template,
        no_prompt_templates: flags.no_prompt_templates,
        skills: flags.skill,
        no_skills: flags.no_skills,
        // Of the two the last one counts; the grammar clears the other.
        approve: (flags.approve || flags.no_approve).then_some(flags.approve),
        rpc_compat: rpc_compat.transpose()?,
        ascii_separators: flags.ascii_separators,
        on_disconnect: on_disconnect.transpose()?,
        drain: flags.drain,
        messages: flags.messages.iter().map(|text| text.to_string_lossy().into_owned()).collect(),
        files,
        warnings,
    })
}

/// Which session is asked for must be clear.
fn check_choice(flags: &Flags) -> Result<(), CliError> {
    let together = |flag: &str, others: &[(&str, bool)]| {
        let given: Vec<&str> = others.iter().filter(|(_, given)| *given).map(|(other, _)| *other).collect();
        match given.is_empty() {
            true => Ok(()),
            false => Err(CliError::new(format_args!("{flag} cannot be combined with {}", given.join(", ")))),
        }
    };
    let (session, newest, resume) = (flags.session.is_some(), flags.continue_newest, flags.resume);
    if flags.fork.is_some() {
        let others = [
            ("--session", session),
            ("--continue", newest),
            ("--resume", resume),
            ("--no-session", flags.no_session),
        ];
        together("--fork", &others)?;
    }
    if flags.session_id.is_some() {
        together("--session-id", &[("--session", session), ("--continue", newest), ("--resume", resume)])?;
    }
    if resume {
        return Err(CliError::new(
            "--resume shows a list to choose from, which this program has not. Use --continue for the newest session of \
             this directory, or --session PATH|ID.",
        ));
    }
    Ok(())
}

/// A word that is none of those that `place` takes.
fn invalid<T>(word: &str, place: &str, words: &[(&str, T)]) -> CliError {
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
        let text = argument.to_str().unwrap_or_default();
        if text == "--" {
            out.push(argument.clone());
            out.extend(arguments.cloned());
            break;
        }
        // A path need not be UTF-8.
        if let Some(path @ [_, ..]) = argument.as_encoded_bytes().strip_prefix(b"@") {
            files.push(OsText(path.to_vec()).to_os());
            continue;
        }
        let long = SHORTS.iter().find(|(short, _)| *short == text).map(|(_, long)| OsString::from(long));
        out.push(long.unwrap_or_else(|| argument.clone()));
        if WITH_VALUE.contains(&text) {
            out.extend(arguments.next().cloned());
        }
    }
    (out, files)
}

/// Lets clap read and says its errors in the reference's words.
fn read<T: Parser>(name: &str, argv: &[OsString]) -> Result<T, CliError> {
    let full = std::iter::once(OsStr::new(name)).chain(argv.iter().map(OsString::as_os_str));
    T::try_parse_from(full).map_err(|error| {
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
            ErrorKind::ValueValidation => {
                let value = string(ContextKind::InvalidValue).unwrap_or_default();
                CliError::new(format_args!("Invalid value \"{value}\" for {flag}"))
            }
            ErrorKind::InvalidUtf8 => CliError::new("An argument is not valid UTF-8"),
            _ => CliError::new(error.render().to_string().trim_start_matches("error: ").trim_end()),
        }
    })
}

#[cfg(test)]
mod tests;
