//! The grammar of the command line, as the parser takes it. What a flag is for stands in [`super::help`].

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser};

use super::DEFAULT_LOG_LINES;

#[derive(Parser)]
#[command(name = "atomic", disable_help_flag = true, disable_version_flag = true, args_override_self = true)]
pub(super) struct Flags {
    #[arg(long)]
    pub(super) mode: Option<String>,
    #[arg(long, short = 'p')]
    pub(super) print: bool,
    #[arg(long)]
    pub(super) provider: Option<String>,
    #[arg(long)]
    pub(super) model: Option<String>,
    #[arg(long)]
    pub(super) models: Option<String>,
    #[arg(long, allow_hyphen_values = true)]
    pub(super) thinking: Option<String>,
    #[arg(long, allow_hyphen_values = true)]
    pub(super) api_key: Option<String>,
    #[arg(long, num_args = 0..=1, default_missing_value = "")]
    pub(super) list_models: Option<String>,
    #[arg(long = "continue", short = 'c')]
    pub(super) continue_newest: bool,
    #[arg(long, short = 'r')]
    pub(super) resume: bool,
    #[arg(long)]
    pub(super) session: Option<OsString>,
    #[arg(long)]
    pub(super) session_id: Option<String>,
    #[arg(long)]
    pub(super) fork: Option<OsString>,
    #[arg(long)]
    pub(super) session_dir: Option<PathBuf>,
    #[arg(long, short = 'n', allow_hyphen_values = true)]
    pub(super) name: Option<String>,
    #[arg(long)]
    pub(super) no_session: bool,
    #[arg(long, allow_hyphen_values = true)]
    pub(super) on_disconnect: Option<String>,
    #[arg(long)]
    pub(super) drain: bool,
    #[arg(long)]
    pub(super) export: Option<PathBuf>,
    #[arg(long, short = 't')]
    pub(super) tools: Option<String>,
    #[arg(long)]
    pub(super) exclude_tools: Option<String>,
    #[arg(long)]
    pub(super) no_tools: bool,
    #[arg(long)]
    pub(super) no_builtin_tools: bool,
    #[arg(long, allow_hyphen_values = true)]
    pub(super) system_prompt: Option<String>,
    #[arg(long, allow_hyphen_values = true, action = ArgAction::Append)]
    pub(super) append_system_prompt: Vec<String>,
    #[arg(long)]
    pub(super) no_context_files: bool,
    #[arg(long, action = ArgAction::Append)]
    pub(super) prompt_template: Vec<PathBuf>,
    #[arg(long)]
    pub(super) no_prompt_templates: bool,
    #[arg(long, action = ArgAction::Append)]
    pub(super) skill: Vec<PathBuf>,
    #[arg(long)]
    pub(super) no_skills: bool,
    #[arg(long, short = 'a', overrides_with = "no_approve")]
    pub(super) approve: bool,
    #[arg(long, overrides_with = "approve")]
    pub(super) no_approve: bool,
    #[arg(long)]
    pub(super) rpc_compat: Option<String>,
    #[arg(long)]
    pub(super) ascii_separators: bool,
    #[command(flatten)]
    pub(super) inert: Inert,
    #[arg(long, short = 'h')]
    pub(super) help: bool,
    #[arg(long, short = 'v')]
    pub(super) version: bool,
    pub(super) messages: Vec<OsString>,
}

/// Flags that are taken because real clients pass them, and change nothing in this version.
#[derive(Args)]
pub(super) struct Inert {
    #[arg(long, short = 'e', action = ArgAction::Append)]
    pub(super) extension: Vec<PathBuf>,
    #[arg(long)]
    no_extensions: bool,
    #[arg(long, action = ArgAction::Append)]
    theme: Vec<PathBuf>,
    #[arg(long)]
    no_themes: bool,
    #[arg(long)]
    use_theme: Option<String>,
    #[arg(long)]
    offline: bool,
    #[arg(long)]
    verbose: bool,
}

#[derive(Parser)]
#[command(name = "status", disable_help_flag = true, args_override_self = true)]
pub(super) struct StatusFlags {
    #[arg(long)]
    pub(super) json: bool,
    #[arg(long, short = 'h')]
    pub(super) help: bool,
}

#[derive(Parser)]
#[command(name = "stop", disable_help_flag = true, args_override_self = true)]
pub(super) struct StopFlags {
    #[arg(long)]
    pub(super) force: bool,
    #[arg(long)]
    pub(super) wait: bool,
    #[arg(long, short = 'h')]
    pub(super) help: bool,
}

#[derive(Parser)]
#[command(name = "logs", disable_help_flag = true, args_override_self = true)]
pub(super) struct LogsFlags {
    #[arg(long, short = 'n', default_value_t = DEFAULT_LOG_LINES)]
    pub(super) lines: usize,
    #[arg(long, short = 'f')]
    pub(super) follow: bool,
    #[arg(long)]
    pub(super) level: Option<String>,
    #[arg(long)]
    pub(super) path: bool,
    #[arg(long, short = 'h')]
    pub(super) help: bool,
}

/// Verbs that take words only: `export FILE [OUT]`, `completions SHELL`, `man`. One grammar for the three keeps the
/// parser small; how many words each wants is checked where they are read.
#[derive(Parser)]
#[command(name = "words", disable_help_flag = true, args_override_self = true)]
pub(super) struct WordFlags {
    #[arg(long, short = 'h')]
    pub(super) help: bool,
    pub(super) words: Vec<OsString>,
}
