//! The one definition of `atomic`'s command line, read by the shim (to route) and by the daemon (to shape the session
//! from `hello.argv`). Pure: it reads no environment, opens no file and prints nothing.
//!
//! Flag names, short forms and error texts are those of the reference implementation's argument parser (reference
//! 3.1); `--mode bogus` and `--thinking bogus` answer in Pi's words.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Parser};

use crate::link::PROGRAM_VERSION;
use crate::model::ThinkingLevel;

/// What `atomic --help` prints: one screen.
pub const HELP: &str = "\
Drive a coding agent from an editor or a script, over JSON Lines on stdin and stdout.

Usage: atomic --mode rpc [OPTIONS]
       atomic status [--json]
       atomic stop [--force] [--wait]
       atomic logs [-n N] [-f] [--level LEVEL] [--path]
       atomic trust [DIR] [--revoke]

The first client starts atomicd, which owns all sessions of the user; a run goes on when its client leaves.

Model
  --provider NAME              Use this provider
  --model PATTERN[:THINKING]   Use this model
  --thinking LEVEL             off, minimal, low, medium, high, xhigh or max
  --api-key KEY                Use this key for the provider; kept in memory only

Session
  -c, --continue               Continue the newest session of this directory
      --session PATH|ID        Open this session, or join it if it is live
      --session-id ID          Open the session with this id, or create it
      --session-dir DIR        Keep session files here
  -n, --name NAME              Name the session
      --no-session             Keep the session in memory only
      --on-disconnect WHAT     When the last client leaves a running turn: finish it (default), abort it,
                               or keep the session in memory for good
      --drain                  After the end of input stay until the session has settled

Tools and prompts
  -t, --tools A,B              Offer only these tools
  -xt, --exclude-tools A,B     Offer all but these tools
  -nt, --no-tools              Offer no tools
  -nbt, --no-builtin-tools     Offer no built-in tools
  --system-prompt TEXT|FILE    Replace the system prompt
  --append-system-prompt TEXT|FILE   Add to it; may be repeated
  -nc, --no-context-files      Do not load AGENTS.md and its like
  --prompt-template PATH       Add a prompt template or a directory of them; may be repeated
  -np, --no-prompt-templates   Load no prompt templates but those
  --skill PATH                 Add a skill or a directory of them; may be repeated
  -ns, --no-skills             Load no skills but those
  -a, --approve                Trust this project: load its settings, prompts, skills and context files
  -na, --no-approve            Do not, whatever was decided before

  -h, --help      Print this and exit
  -v, --version   Print the version and exit
  --              End of options

Accepted without effect in this version: --no-themes, -ne/--no-extensions, --offline, --verbose.

Examples
  atomic --mode rpc --provider demo
  printf '{\"id\":1,\"type\":\"get_state\"}\\n' | atomic --mode rpc --no-session
  atomic --mode rpc --continue --model sonnet:high
  atomic logs -f
";

/// What a bare `atomic` answers on stderr.
const USAGE: &str = "\
Usage: atomic --mode rpc [OPTIONS]
       atomic status | stop | logs | trust

Try 'atomic --help' for all options.
";

const STATUS_HELP: &str = "\
Show the running daemon and its sessions; never starts one.

Usage: atomic status [--json]

  --json   Print one JSON object
  Exit code: 0 running, 3 not running

Example
  atomic status --json
";

const STOP_HELP: &str = "\
Stop the running daemon; refused while a turn runs.

Usage: atomic stop [--force] [--wait]

  --force   Abort running turns
  --wait    Let running turns end first

Example
  atomic stop --wait
";

const LOGS_HELP: &str = "\
Print the end of the daemon's newest log file.

Usage: atomic logs [-n N] [-f] [--level LEVEL] [--path]

  -n, --lines N   Print the last N lines (default 50)
  -f, --follow    Go on printing what is added
  --level LEVEL   Set the running daemon's log level: off, error, warn, info, debug or trace
  --path          Print the file's path only

Example
  atomic logs -n 200 -f
";

const TRUST_HELP: &str = "\
Remember that a project is trusted: sessions there load its own settings, prompts,
skills, system prompt and context files. Holds for what lies below the directory.

Usage: atomic trust [DIR] [--revoke]

  DIR        The project (default: the current directory)
  --revoke   Forget it

Example
  atomic trust ~/src/mine
";

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
const WITH_VALUE: [&str; 20] = [
    "--mode",
    "--provider",
    "--model",
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
    "--prompt-template",
    "--skill",
    "--on-disconnect",
    "--level",
];

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// Print this on stdout, exit 0; no daemon is asked.
    Help(&'static str),
    /// Print this on stdout, exit 0; no daemon is asked.
    Version(String),
    /// Attach to a session in rpc mode.
    Session(Box<SessionOptions>),
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
    /// `atomic trust`.
    Trust {
        /// The project, as given; absent: the caller's directory.
        directory: Option<PathBuf>,
        /// Forget the decision.
        revoke: bool,
    },
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

/// Options that shape a session.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// `--provider`.
    pub provider: Option<String>,
    /// `--model`, as given: a pattern, perhaps with `:thinking`.
    pub model: Option<String>,
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
    /// `--prompt-template`, as given: files or directories, perhaps relative to the caller's directory.
    pub prompt_templates: Vec<PathBuf>,
    /// `--no-prompt-templates`: only those named.
    pub no_prompt_templates: bool,
    /// `--skill`, as `--prompt-template`.
    pub skills: Vec<PathBuf>,
    /// `--no-skills`: only those named.
    pub no_skills: bool,
    /// `--approve` or `--no-approve`, whichever came last: the project's own inputs are loaded, or not.
    pub approve: Option<bool>,
    /// `--on-disconnect`; absent: the setting `daemon.onDisconnect` decides.
    pub on_disconnect: Option<OnDisconnect>,
    /// `--drain`: after the end of input the connection stays until the session has settled.
    pub drain: bool,
    /// Messages after the options; rpc mode ignores them, as the reference does.
    pub messages: Vec<String>,
    /// Lines for the caller's stderr, without LF. The shim prints them; the daemon, which parses the same arguments
    /// again, does not.
    pub warnings: Vec<String>,
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("provider", &self.provider)
            .field("model", &self.model)
            .field("thinking", &self.thinking)
            .field("api_key", &self.api_key.as_ref().map(|_| "…"))
            .field("no_session", &self.no_session)
            .field("session", &self.session)
            .field("session_id", &self.session_id)
            .field("continue_newest", &self.continue_newest)
            .field("session_dir", &self.session_dir)
            .field("name", &self.name)
            .field("tools", &self.tools)
            .field("exclude_tools", &self.exclude_tools)
            .field("no_tools", &self.no_tools)
            .field("no_builtin_tools", &self.no_builtin_tools)
            .field("no_context_files", &self.no_context_files)
            .field("prompt_templates", &self.prompt_templates)
            .field("no_prompt_templates", &self.no_prompt_templates)
            .field("skills", &self.skills)
            .field("no_skills", &self.no_skills)
            .field("approve", &self.approve)
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

#[derive(Parser)]
#[command(name = "atomic", disable_help_flag = true, disable_version_flag = true, args_override_self = true)]
struct Flags {
    #[arg(long)]
    mode: Option<String>,
    #[arg(long)]
    provider: Option<String>,
    #[arg(long)]
    model: Option<String>,
    #[arg(long, allow_hyphen_values = true)]
    thinking: Option<String>,
    #[arg(long, allow_hyphen_values = true)]
    api_key: Option<String>,
    #[arg(long)]
    no_session: bool,
    #[arg(long)]
    session: Option<OsString>,
    #[arg(long)]
    session_id: Option<String>,
    #[arg(long = "continue", short = 'c')]
    continue_newest: bool,
    #[arg(long)]
    session_dir: Option<PathBuf>,
    #[arg(long, short = 'n', allow_hyphen_values = true)]
    name: Option<String>,
    #[arg(long, short = 't')]
    tools: Option<String>,
    #[arg(long)]
    exclude_tools: Option<String>,
    #[arg(long)]
    no_tools: bool,
    #[arg(long)]
    no_builtin_tools: bool,
    #[arg(long, allow_hyphen_values = true)]
    system_prompt: Option<String>,
    #[arg(long, allow_hyphen_values = true, action = ArgAction::Append)]
    append_system_prompt: Vec<String>,
    #[arg(long)]
    no_context_files: bool,
    #[arg(long, allow_hyphen_values = true, action = ArgAction::Append)]
    prompt_template: Vec<PathBuf>,
    #[arg(long)]
    no_prompt_templates: bool,
    #[arg(long, allow_hyphen_values = true, action = ArgAction::Append)]
    skill: Vec<PathBuf>,
    #[arg(long)]
    no_skills: bool,
    #[arg(long, short = 'a', overrides_with = "no_approve")]
    approve: bool,
    #[arg(long, overrides_with = "approve")]
    no_approve: bool,
    #[arg(long, allow_hyphen_values = true)]
    on_disconnect: Option<String>,
    #[arg(long)]
    drain: bool,
    /// Says which flags of real clients have no effect yet.
    #[command(flatten)]
    _inert: Inert,
    #[arg(long, short = 'p')]
    print: bool,
    #[arg(long, short = 'h')]
    help: bool,
    #[arg(long, short = 'v')]
    version: bool,
    messages: Vec<OsString>,
}

#[derive(clap::Args)]
struct Inert {
    #[arg(long)]
    no_themes: bool,
    #[arg(long)]
    no_extensions: bool,
    #[arg(long)]
    offline: bool,
    #[arg(long)]
    verbose: bool,
}

#[derive(Parser)]
#[command(name = "status", disable_help_flag = true, args_override_self = true)]
struct StatusFlags {
    #[arg(long)]
    json: bool,
    #[arg(long, short = 'h')]
    help: bool,
}

#[derive(Parser)]
#[command(name = "stop", disable_help_flag = true, args_override_self = true)]
struct StopFlags {
    #[arg(long)]
    force: bool,
    #[arg(long)]
    wait: bool,
    #[arg(long, short = 'h')]
    help: bool,
}

#[derive(Parser)]
#[command(name = "logs", disable_help_flag = true, args_override_self = true)]
struct LogsFlags {
    #[arg(long, short = 'n', default_value_t = DEFAULT_LOG_LINES)]
    lines: usize,
    #[arg(long, short = 'f')]
    follow: bool,
    #[arg(long)]
    level: Option<String>,
    #[arg(long)]
    path: bool,
    #[arg(long, short = 'h')]
    help: bool,
}

#[derive(Parser)]
#[command(name = "trust", disable_help_flag = true, args_override_self = true)]
struct TrustFlags {
    directory: Option<PathBuf>,
    #[arg(long)]
    revoke: bool,
    #[arg(long, short = 'h')]
    help: bool,
}

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
        Some("trust") => {
            let flags: TrustFlags = read("trust", rest)?;
            Ok(match flags {
                TrustFlags { help: true, .. } => Invocation::Help(TRUST_HELP),
                TrustFlags { directory, revoke, .. } => Invocation::Trust { directory, revoke },
            })
        }
        Some("help") if rest.is_empty() => Ok(Invocation::Help(HELP)),
        _ => session(argv),
    }
}

fn logs(flags: LogsFlags) -> Result<Invocation, CliError> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    if flags.help {
        return Ok(Invocation::Help(LOGS_HELP));
    }
    if let Some(level) = &flags.level
        && !LEVELS.contains(&level.as_str())
    {
        return Err(CliError::new(format_args!(
            "Invalid log level \"{level}\". Valid values: {}",
            LEVELS.join(", ")
        )));
    }
    let LogsFlags { lines, follow, level, path, .. } = flags;
    Ok(Invocation::Logs(LogsOptions { lines, follow, level, path }))
}

fn session(argv: &[OsString]) -> Result<Invocation, CliError> {
    if argv.is_empty() {
        return Err(CliError { text: USAGE.to_owned(), code: 1 });
    }
    let (normal, file) = normalise(argv);
    let flags: Flags = read("atomic", &normal)?;
    if flags.help {
        return Ok(Invocation::Help(HELP));
    }
    if flags.version {
        return Ok(Invocation::Version(format!("atomic {PROGRAM_VERSION}\n")));
    }
    let not_built =
        |what: &str| Err(CliError::new(format_args!("{what} is not built in this version; use --mode rpc")));
    match flags.mode.as_deref() {
        Some("rpc") => {}
        Some(mode @ ("text" | "json")) => return not_built(&format!("--mode {mode}")),
        Some(mode) => {
            let text = format!("Invalid mode \"{mode}\". Valid values: text, json, rpc\n");
            return Err(CliError { text, code: 1 });
        }
        None if flags.print => return not_built("--print"),
        None => return Err(CliError { text: USAGE.to_owned(), code: 1 }),
    }
    if file {
        return Err(CliError::new("@file arguments are not supported in RPC mode"));
    }
    options(flags).map(|options| Invocation::Session(Box::new(options)))
}

fn options(flags: Flags) -> Result<SessionOptions, CliError> {
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
    let name = flags.name.map(|name| name.trim().to_owned());
    if name.as_deref() == Some("") {
        return Err(CliError::new("--name requires a non-empty value"));
    }
    let on_disconnect = match &flags.on_disconnect {
        None => None,
        Some(word) => match OnDisconnect::parse(word) {
            None => {
                return Err(CliError::new(format_args!(
                    "Invalid value \"{word}\" for --on-disconnect. Valid values: finish, abort, keep"
                )));
            }
            known => known,
        },
    };
    if flags.session_id.is_some() {
        let others = [("--session", flags.session.is_some()), ("--continue", flags.continue_newest)];
        let given: Vec<&str> = others.iter().filter(|(_, given)| *given).map(|(flag, _)| *flag).collect();
        if !given.is_empty() {
            return Err(CliError::new(format_args!(
                "--session-id cannot be combined with {}",
                given.join(", ")
            )));
        }
    }
    Ok(SessionOptions {
        provider: flags.provider,
        model: flags.model,
        thinking,
        api_key: flags.api_key,
        no_session: flags.no_session,
        session: flags.session,
        session_id: flags.session_id,
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
        approve: match (flags.approve, flags.no_approve) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
        on_disconnect,
        drain: flags.drain,
        messages: flags.messages.iter().map(|text| text.to_string_lossy().into_owned()).collect(),
        warnings,
    })
}

/// `a, b,` → `["a", "b"]`.
fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Spells the long short flags out and tells whether an `@file` argument stands before `--`.
fn normalise(argv: &[OsString]) -> (Vec<OsString>, bool) {
    let mut out = Vec::with_capacity(argv.len());
    let mut file = false;
    let mut arguments = argv.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or_default();
        if text == "--" {
            out.push(argument.clone());
            out.extend(arguments.cloned());
            break;
        }
        let long = SHORTS.iter().find(|(short, _)| *short == text).map(|(_, long)| OsString::from(long));
        file |= text.len() > 1 && text.starts_with('@');
        out.push(long.unwrap_or_else(|| argument.clone()));
        if WITH_VALUE.contains(&text) {
            out.extend(arguments.next().cloned());
        }
    }
    (out, file)
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
