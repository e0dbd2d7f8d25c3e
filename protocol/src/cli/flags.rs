//! The grammar of the command line: tables, from which the parser is built. What a flag is for stands in [`super::help`].
//!
//! Tables and not derived structs: the code that clap's derive makes for this many flags was an eighth of the shim.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::CliError;

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// Nothing.
    Nothing,
    /// A value.
    Value,
    /// A value that may begin with a dash.
    AnyValue,
    /// A value; the flag may be repeated.
    Values,
    /// The same, and each may begin with a dash.
    AnyValues,
    /// Perhaps a value.
    Optional,
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    pub(super) long: &'static str,
    /// Without its dash; of more than one letter it is spelled out before the parser sees it; empty: there is none.
    pub(super) short: &'static str,
    pub(super) takes: Takes,
}

const fn flag(long: &'static str, short: &'static str, takes: Takes) -> Flag {
    Flag { long, short, takes }
}

const HELP: Flag = flag("help", "h", Takes::Nothing);

/// Those of `atomic` itself. Names and short forms are the reference implementation's (reference 3.1).
pub(super) const ATOMIC: &[Flag] = &[
    flag("mode", "", Takes::Value),
    flag("print", "p", Takes::Nothing),
    flag("provider", "", Takes::Value),
    flag("model", "", Takes::Value),
    flag("models", "", Takes::Value),
    flag("thinking", "", Takes::AnyValue),
    flag("api-key", "", Takes::AnyValue),
    flag("list-models", "", Takes::Optional),
    flag("continue", "c", Takes::Nothing),
    flag("resume", "r", Takes::Nothing),
    flag("session", "", Takes::Value),
    flag("session-id", "", Takes::Value),
    flag("fork", "", Takes::Value),
    flag("session-dir", "", Takes::Value),
    flag("name", "n", Takes::AnyValue),
    flag("no-session", "", Takes::Nothing),
    flag("on-disconnect", "", Takes::AnyValue),
    flag("drain", "", Takes::Nothing),
    flag("export", "", Takes::Value),
    flag("tools", "t", Takes::Value),
    flag("exclude-tools", "xt", Takes::Value),
    flag("no-tools", "nt", Takes::Nothing),
    flag("no-builtin-tools", "nbt", Takes::Nothing),
    flag("max-turns", "", Takes::Value),
    flag("max-cost", "", Takes::Value),
    flag("system-prompt", "", Takes::AnyValue),
    flag("append-system-prompt", "", Takes::AnyValues),
    flag("no-context-files", "nc", Takes::Nothing),
    flag("prompt-template", "", Takes::Values),
    flag("no-prompt-templates", "np", Takes::Nothing),
    flag("skill", "", Takes::Values),
    flag("no-skills", "ns", Takes::Nothing),
    flag("approve", "a", Takes::Nothing),
    flag("no-approve", "na", Takes::Nothing),
    flag("rpc-compat", "", Takes::Value),
    flag("ascii-separators", "", Takes::Nothing),
    // Real clients pass these; they change nothing in this version.
    flag("extension", "e", Takes::Values),
    flag("no-extensions", "ne", Takes::Nothing),
    flag("theme", "", Takes::Values),
    flag("no-themes", "", Takes::Nothing),
    flag("use-theme", "", Takes::Value),
    flag("offline", "", Takes::Nothing),
    flag("verbose", "", Takes::Nothing),
    HELP,
    flag("version", "v", Takes::Nothing),
];

/// Those of `atomic status`.
pub(super) const STATUS: &[Flag] = &[flag("json", "", Takes::Nothing), HELP];

/// Those of `atomic stop`.
pub(super) const STOP: &[Flag] = &[flag("force", "", Takes::Nothing), flag("wait", "", Takes::Nothing), HELP];

/// Those of `atomic restart`.
pub(super) const RESTART: &[Flag] = &[flag("now", "", Takes::Nothing), HELP];

/// Those of `atomic logs`.
pub(super) const LOGS: &[Flag] = &[
    flag("lines", "n", Takes::Value),
    flag("follow", "f", Takes::Nothing),
    flag("level", "", Takes::Value),
    flag("path", "", Takes::Nothing),
    HELP,
];

/// Those of `atomic trust`.
pub(super) const TRUST: &[Flag] = &[flag("revoke", "", Takes::Nothing), HELP];

/// Those of `atomic sessions`.
pub(super) const SESSIONS: &[Flag] = &[
    flag("all", "a", Takes::Nothing),
    flag("json", "", Takes::Nothing),
    flag("yes", "y", Takes::Nothing),
    flag("session-dir", "", Takes::Value),
    HELP,
];

/// Those of `atomic auth`.
pub(super) const AUTH: &[Flag] = &[flag("json", "", Takes::Nothing), HELP];

/// Those of verbs that take words only.
pub(super) const ONLY_WORDS: &[Flag] = &[HELP];

/// The arguments that are no flags.
pub(super) const WORDS: &str = "words";

/// The parser of a table.
pub(super) fn grammar(name: &'static str, flags: &'static [Flag], words: bool) -> Command {
    let mut command = Command::new(name)
        .disable_help_flag(true)
        .disable_version_flag(true)
        // The last one counts.
        .args_override_self(true);
    for flag in flags {
        let mut arg = Arg::new(flag.long).long(flag.long);
        if let [short] = flag.short.as_bytes() {
            arg = arg.short(char::from(*short));
        }
        let (action, dashes) = match flag.takes {
            Takes::Nothing => (ArgAction::SetTrue, false),
            Takes::Value | Takes::Optional => (ArgAction::Set, false),
            Takes::AnyValue => (ArgAction::Set, true),
            Takes::Values => (ArgAction::Append, false),
            Takes::AnyValues => (ArgAction::Append, true),
        };
        arg = arg.action(action).allow_hyphen_values(dashes);
        if flag.takes != Takes::Nothing {
            arg = arg.value_parser(value_parser!(OsString));
        }
        if flag.takes == Takes::Optional {
            arg = arg.num_args(0..=1).default_missing_value("");
        }
        // Of the two the last one counts, too.
        match flag.long {
            "approve" => arg = arg.overrides_with("no-approve"),
            "no-approve" => arg = arg.overrides_with("approve"),
            _ => {}
        }
        command = command.arg(arg);
    }
    if words {
        let words = Arg::new(WORDS).num_args(1..).action(ArgAction::Append);
        command = command.arg(words.value_parser(value_parser!(OsString)));
    }
    command
}

/// What was given. Asked for a flag that its table does not have, it panics: a test asks for all.
pub(super) struct Given(pub(super) ArgMatches);

impl Given {
    /// The flag is given.
    pub(super) fn has(&self, long: &str) -> bool {
        self.0.get_flag(long)
    }

    /// The flag's value.
    pub(super) fn value(&mut self, long: &str) -> Option<OsString> {
        self.0.remove_one(long)
    }

    /// The flag's value, which must be UTF-8.
    pub(super) fn text(&mut self, long: &str) -> Result<Option<String>, CliError> {
        self.value(long).map(text).transpose()
    }

    /// All values of a flag that may be repeated, or all words.
    pub(super) fn values(&mut self, long: &str) -> Vec<OsString> {
        self.0.remove_many(long).map(Iterator::collect).unwrap_or_default()
    }
}

/// A text of the command line.
pub(super) fn text(value: OsString) -> Result<String, CliError> {
    value.into_string().map_err(|_| CliError::new("An argument is not valid UTF-8"))
}
