//! The command line with everything that a person reads about it: for completions and the manual page.
//!
//! The grammar is [`super::flags`], the descriptions are the lines of [`super::help`]: nothing is said twice. The shim
//! never calls this, so none of it is in the shim.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};

use super::flags::{self, Flag, WORDS, grammar};
use super::{AUTH_ACTIONS, Dialect, HELP, LOG_LEVELS, OnDisconnect, SHELLS, help};
use crate::model::ThinkingLevel;

/// What has the value of a file's path.
const FILES: [&str; 9] = [
    "session",
    "fork",
    "export",
    "system-prompt",
    "append-system-prompt",
    "extension",
    "skill",
    "prompt-template",
    "theme",
];

/// `atomic` with its verbs, each flag described.
pub fn command() -> Command {
    let verb = |name: &'static str, flags: &'static [Flag], help: &'static str| {
        let about = help.lines().next().unwrap_or_default().trim_end_matches('.').to_owned();
        described(grammar(name, flags, false), help).about(about)
    };
    let file = |name: &'static str| Arg::new(name).value_hint(ValueHint::FilePath);
    let shells = Arg::new("SHELL").required(true).value_parser(PossibleValuesParser::new(SHELLS));
    described(grammar("atomic", flags::ATOMIC, true), HELP)
        .about("Drive a coding agent from an editor or a script")
        .mut_arg(WORDS, |arg| {
            arg.value_name("MESSAGE|@FILE")
                .help("A message, or @ and the path of a text or image that goes before the first one")
                .value_hint(ValueHint::AnyPath)
        })
        .subcommand(verb("status", flags::STATUS, help::STATUS_HELP))
        .subcommand(verb("stop", flags::STOP, help::STOP_HELP))
        .subcommand(verb("restart", flags::RESTART, help::RESTART_HELP))
        .subcommand(verb("logs", flags::LOGS, help::LOGS_HELP))
        .subcommand(
            verb("trust", flags::TRUST, help::TRUST_HELP).arg(Arg::new("DIR").value_hint(ValueHint::DirPath)),
        )
        .subcommand(verb("sessions", flags::SESSIONS, help::SESSIONS_HELP).args([
            Arg::new("ACTION").help("list, show, rename, export or delete"),
            Arg::new("ARGUMENTS").num_args(0..),
        ]))
        .subcommand(verb("auth", flags::AUTH, help::AUTH_HELP).args([
            Arg::new("ACTION").required(true).value_parser(PossibleValuesParser::new(AUTH_ACTIONS)),
            Arg::new("PROVIDER"),
        ]))
        .subcommand(
            verb("attach", flags::ONLY_WORDS, help::ATTACH_HELP).args([Arg::new("SESSION").required(true)]),
        )
        .subcommand(
            verb("export", flags::ONLY_WORDS, help::EXPORT_HELP)
                .args([file("FILE").required(true), file("OUT")]),
        )
        .subcommand(verb("completions", flags::ONLY_WORDS, help::COMPLETIONS_HELP).arg(shells))
        .subcommand(verb("man", flags::ONLY_WORDS, help::MAN_HELP))
        .disable_help_subcommand(true)
        .after_help(HELP.split_once("Examples\n").map_or("", |(_, examples)| examples))
}

/// Gives each flag its line of the help, its value's name, and what its value can be.
fn described(command: Command, help: &'static str) -> Command {
    command.mut_args(|arg| {
        let Some(long) = arg.get_long().map(str::to_owned) else { return arg };
        let Some((value, text)) = describe(help, &long) else { return arg.help("Print help and exit") };
        let arg = arg.help(text);
        if !matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) {
            return arg;
        }
        let arg = arg.value_name(value.trim_matches(['[', ']']));
        match long.as_str() {
            "mode" => arg.value_parser(PossibleValuesParser::new(["text", "json", "rpc"])),
            "thinking" => {
                arg.value_parser(PossibleValuesParser::new(ThinkingLevel::ALL.map(ThinkingLevel::as_str)))
            }
            "on-disconnect" => {
                arg.value_parser(PossibleValuesParser::new(OnDisconnect::WORDS.map(|word| word.0)))
            }
            "rpc-compat" => arg.value_parser(PossibleValuesParser::new(Dialect::WORDS.map(|word| word.0))),
            "level" => arg.value_parser(PossibleValuesParser::new(LOG_LEVELS)),
            "session-dir" => arg.value_hint(ValueHint::DirPath),
            path if FILES.contains(&path) => arg.value_hint(ValueHint::FilePath),
            _ => arg.value_hint(ValueHint::Other),
        }
    })
}

/// What the help says of a flag: its value's name (empty without one) and what it does.
fn describe(help: &'static str, long: &str) -> Option<(&'static str, String)> {
    let mut lines = help.lines();
    while let Some(line) = lines.next() {
        let Some(flags) = line.strip_prefix("  ").filter(|flags| flags.starts_with('-')) else { continue };
        let (spelling, text) = flags.split_once("  ").unwrap_or((flags, ""));
        let mut words = spelling.split(' ').map(|word| word.trim_end_matches(','));
        if !words.any(|word| word.strip_prefix("--") == Some(long)) {
            continue;
        }
        let value = words.next().unwrap_or_default();
        let mut text = text.trim().to_owned();
        // A line without a spelling goes on with the description before it.
        for more in lines.take_while(|more| more.starts_with("      ")) {
            text.push(' ');
            text.push_str(more.trim());
        }
        return Some((value, text));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_description() {
        let root = command();
        root.clone().debug_assert();
        for command in std::iter::once(&root).chain(root.get_subcommands()) {
            for arg in command.get_arguments().filter(|arg| arg.get_long().is_some_and(|long| long != "help"))
            {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty() && help != "Print help and exit", "{command} {arg}");
            }
        }
    }

    #[test]
    fn descriptions_come_from_the_help() {
        assert_eq!(describe(HELP, "provider"), Some(("NAME", "Use this provider".to_owned())));
        assert_eq!(describe(HELP, "exclude-tools").map(|(value, _)| value), Some("A,B"));
        let (_, text) = describe(HELP, "on-disconnect").expect("it is there");
        assert!(text.contains("or keep the session in memory"), "{text}");
        assert_eq!(describe(HELP, "nope"), None);
    }
}
