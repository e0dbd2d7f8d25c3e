//! Command lines that the daemon's program answers itself, as a process of its own that ends with its answer:
//! `--list-models`, `sessions`, `export`, `completions`, `man`.
//!
//! They need what the small shim has not (providers, the page, the generators) and hardly anything that only a running
//! daemon knows: models depend on files and the caller's environment, and what a session announced is in its file.
//! `sessions` asks a running daemon what is live in it, and has it do what is the owner's to do.

mod models;
mod sessions;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use atomic_protocol::cli::{self, Invocation};
use atomic_providers::Env;
use atomic_session_store::Store;
use clap_complete::Shell;

use crate::page::{self, Shown};

/// What somebody who calls the program brings along.
#[derive(Debug)]
pub struct Caller {
    /// The arguments of `atomic`, as given.
    pub argv: Vec<OsString>,
    /// The environment, as far as it is UTF-8: keys of providers are.
    pub env: Env,
    /// The working directory.
    pub cwd: PathBuf,
    /// The agent directory.
    pub agent_dir: PathBuf,
    /// Asks whoever sits at the terminal; `None` when nobody can be asked.
    pub confirm: fn(&str) -> Option<bool>,
}

/// What the program says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// For stdout.
    pub text: Vec<u8>,
    /// Lines for stderr.
    pub warnings: Vec<String>,
}

/// Why there is no answer. The text is for a person.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The command line is wrong.
    #[error("{}", .0.text.trim_end().trim_start_matches("Error: "))]
    CommandLine(cli::CliError),
    /// It asks for something that is not answered here.
    #[error("this program does not answer these arguments itself; `atomic` does")]
    Elsewhere,
    /// The page cannot be written.
    #[error("cannot export {}: {reason}", file.display())]
    Export {
        /// The session file.
        file: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// A session cannot be found, shown or changed.
    #[error("{0}")]
    Sessions(String),
    /// A generator failed.
    #[error("cannot write {what}: {source}")]
    Generate {
        /// What was to be written.
        what: &'static str,
        /// What went wrong.
        source: std::io::Error,
    },
}

/// Answers a command line. Blocking: reads files.
///
/// # Errors
/// When it is wrong, not for this program, or cannot be done.
pub fn answer(caller: &Caller) -> Result<Answer, Refusal> {
    match cli::parse(&caller.argv).map_err(Refusal::CommandLine)? {
        Invocation::ListModels { search } => Ok(models::list(caller, search.as_deref())),
        Invocation::Export { file, output } => {
            let output = output.map(|output| caller.cwd.join(output));
            let page = export(&caller.cwd.join(file), output.as_deref(), &caller.cwd)?;
            Ok(Answer { text: format!("{}\n", page.display()).into_bytes(), ..Answer::default() })
        }
        Invocation::Sessions(options) => sessions::answer(caller, options),
        Invocation::Completions(shell) => {
            let shell = match shell.as_str() {
                "bash" => Shell::Bash,
                "zsh" => Shell::Zsh,
                "fish" => Shell::Fish,
                "powershell" => Shell::PowerShell,
                "elvish" => Shell::Elvish,
                _ => return Err(Refusal::Elsewhere),
            };
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut cli::command(), "atomic", &mut text);
            Ok(Answer { text, ..Answer::default() })
        }
        Invocation::Man => {
            let mut text = Vec::new();
            clap_mangen::Man::new(cli::command())
                .render(&mut text)
                .map_err(|source| Refusal::Generate { what: "the manual page", source })?;
            Ok(Answer { text, ..Answer::default() })
        }
        _ => Err(Refusal::Elsewhere),
    }
}

/// Writes the session in `file` as one self-contained page, without changing the file, and gives the page's path: by
/// default in the caller's directory.
fn export(file: &Path, output: Option<&Path>, cwd: &Path) -> Result<PathBuf, Refusal> {
    let failed = |reason: String| Refusal::Export { file: file.to_owned(), reason };
    let (store, _) = Store::open_read_only(file).map_err(|error| failed(error.to_string()))?;
    let path = output.map_or_else(|| cwd.join(page::default_name(file)), Path::to_owned);
    let written = Shown::of(&store).write(&path);
    written.map_err(|error| failed(format!("cannot write {}: {error}", path.display())))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(words: &[&str]) -> Result<Answer, Refusal> {
        answer(&Caller {
            argv: words.iter().map(OsString::from).collect(),
            env: Env::default(),
            cwd: PathBuf::from("/nowhere"),
            agent_dir: PathBuf::from("/nowhere"),
            confirm: |_| None,
        })
    }

    #[test]
    fn completions_and_the_manual_page_know_flags_verbs_and_words() {
        for shell in cli::SHELLS {
            let text = String::from_utf8(ask(&["completions", shell]).unwrap().text).unwrap();
            for word in ["continue", "list-models", "ascii-separators", "status", "completions", "legacy"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
        let page = String::from_utf8(ask(&["man"]).unwrap().text).unwrap();
        for word in ["on\\-disconnect", "Continue the newest session", "atomic\\-status"] {
            assert!(page.contains(word), "{word} in {page}");
        }
    }

    #[test]
    fn what_is_not_for_this_program_is_refused() {
        for words in [&["status"][..], &["--mode", "rpc"], &["--modle"], &["export", "x"], &["man", "x"]] {
            let refusal = ask(words).unwrap_err().to_string();
            assert!(!refusal.is_empty() && !refusal.starts_with("Error"), "{words:?}: {refusal}");
        }
    }
}
