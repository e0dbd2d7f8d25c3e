//! The one definition of `atomic`'s command line, read by the shim (to route) and by the daemon (to shape the session
//! from `hello.argv`). Pure: it reads no environment, opens no file and prints nothing.
//!
//! Flag names, short forms and error texts are those of the reference implementation's argument parser (reference
//! 3.1); `--mode bogus` and `--thinking bogus` answer in Pi's words.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use crate::model::ThinkingLevel;

mod describe;
mod flags;
mod help;
mod parse;

pub use describe::command;
pub use help::{HELP, USAGE};
pub use parse::parse;

/// Shells that completions are printed for.
pub const SHELLS: [&str; 5] = ["bash", "zsh", "fish", "powershell", "elvish"];

/// What `atomic auth` does.
const AUTH_ACTIONS: [&str; 4] = ["login", "logout", "list", "check"];

/// Levels of the daemon's log.
const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Lines that `atomic logs` prints unless told otherwise: about a screen.
pub const DEFAULT_LOG_LINES: usize = 50;

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
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
    /// `atomic sessions`; `atomicd` does it.
    Sessions(SessionsOptions),
    /// `atomic auth`; `atomicd` does it.
    Auth(AuthOptions),
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
    /// `atomic restart`.
    Restart {
        /// Abort running turns instead of letting them end.
        now: bool,
    },
    /// `atomic logs`.
    Logs(LogsOptions),
    /// `atomic trust`.
    Trust {
        /// The project; absent: the current directory.
        directory: Option<PathBuf>,
        /// Forget it.
        revoke: bool,
    },
}

/// Options of `atomic sessions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionsOptions {
    /// What is to be done.
    pub action: SessionsAction,
    /// `--session-dir`, as given.
    pub session_dir: Option<PathBuf>,
    /// JSON instead of lines for people.
    pub json: bool,
}

/// What `atomic sessions` does. A session is named by its path, its id or the beginning of its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionsAction {
    /// List them.
    List {
        /// Those of all directories.
        all: bool,
        /// Only those in which these words occur.
        query: Option<String>,
    },
    /// Show one.
    Show {
        /// Which.
        session: OsString,
    },
    /// Give one a name.
    Rename {
        /// Which.
        session: OsString,
        /// Trimmed and not empty.
        name: String,
    },
    /// Write one as a page.
    Export {
        /// Which.
        session: OsString,
        /// The page; absent: named after the session file.
        output: Option<PathBuf>,
    },
    /// Remove one for good.
    Delete {
        /// Which.
        session: OsString,
        /// Without asking.
        yes: bool,
    },
}

/// Options of `atomic auth`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthOptions {
    /// What is to be done.
    pub action: AuthAction,
    /// JSON instead of lines for people.
    pub json: bool,
}

/// What `atomic auth` does. Providers as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthAction {
    /// Keep a key.
    Login {
        /// Whose.
        provider: String,
    },
    /// Forget what is kept.
    Logout {
        /// Whose.
        provider: String,
    },
    /// List where keys come from.
    List,
    /// Ask providers whether they take their keys.
    Check {
        /// Only this one.
        provider: Option<String>,
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
#[derive(Clone, Default, PartialEq)]
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
    /// `atomic attach`: the session that [`SessionOptions::session`] names exists already.
    pub attach: bool,
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
    /// `--max-turns`: most turns of a run, above 0; absent: the setting `limits.maxTurns` decides.
    pub max_turns: Option<u64>,
    /// `--max-cost`: most US dollars of a run, above 0; absent: the setting `limits.maxCost` decides.
    pub max_cost: Option<f64>,
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
                Dialect::parse(word).ok_or_else(|| parse::invalid(word, Dialect::VARIABLE, &Dialect::WORDS))
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
            .field("attach", &self.attach)
            .field("session_id", &self.session_id)
            .field("fork", &self.fork)
            .field("continue_newest", &self.continue_newest)
            .field("session_dir", &self.session_dir)
            .field("name", &self.name)
            .field("tools", &self.tools)
            .field("exclude_tools", &self.exclude_tools)
            .field("no_tools", &self.no_tools)
            .field("no_builtin_tools", &self.no_builtin_tools)
            .field("max_turns", &self.max_turns)
            .field("max_cost", &self.max_cost)
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

#[cfg(test)]
mod tests;
