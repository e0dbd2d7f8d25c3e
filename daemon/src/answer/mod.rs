//! Command lines that the daemon's program answers itself, as a process of its own that ends with its answer:
//! `--list-models`, `sessions`, `auth`, `export`, `completions`, `man`.
//!
//! They need what the small shim has not (providers, the page, the generators) and hardly anything that only a running
//! daemon knows: models depend on files and the caller's environment, and what a session announced is in its file.
//! `sessions` asks a running daemon what is live in it, and has it do what is the owner's to do.

mod auth;
mod models;
mod page_login;
mod sessions;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use atomic_protocol::cli::{self, Invocation};
use atomic_providers::{Env, Registry, Setup};
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
    /// Whoever called.
    pub person: &'static dyn Person,
}

/// Who called: a person at a terminal, or a script.
pub trait Person: std::fmt::Debug + Sync {
    /// Asks whether to do something; `None` when nobody can be asked.
    fn confirm(&self, question: &str) -> Option<bool>;

    /// What is on stdin, its first line; `None` when that is a terminal.
    ///
    /// # Errors
    /// When it cannot be read.
    fn piped(&self) -> std::io::Result<Option<String>>;

    /// Asks for a text that is not shown while it is typed.
    ///
    /// # Errors
    /// When there is no terminal, or it ends.
    fn secret(&self, question: &str) -> std::io::Result<String>;

    /// The next line that is typed.
    ///
    /// # Errors
    /// When there is none.
    fn line(&self) -> std::io::Result<String>;

    /// Says something at once.
    fn tell(&self, text: &str);

    /// Opens a page in a browser, if there seems to be one.
    fn browse(&self, page: &str);
}

/// What the program says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// For stdout.
    pub text: Vec<u8>,
    /// Lines for stderr.
    pub warnings: Vec<String>,
    /// The exit code.
    pub code: u8,
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
    /// A key cannot be kept, forgotten or checked.
    #[error("{0}")]
    Auth(String),
    /// The program cannot reach the network at all.
    #[error("cannot begin to ask servers: {0}")]
    Runtime(std::io::Error),
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
        Invocation::ListModels { search } => models::list(caller, search.as_deref()),
        Invocation::Export { file, output } => {
            let output = output.map(|output| caller.cwd.join(output));
            let page = export(&caller.cwd.join(file), output.as_deref(), &caller.cwd)?;
            Ok(Answer { text: format!("{}\n", page.display()).into_bytes(), ..Answer::default() })
        }
        Invocation::Auth(options) => auth::answer(caller, options),
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

/// What this process knows of providers: a caller's view, as a session of theirs would have it.
fn registry(caller: &Caller) -> Registry {
    let setup = Setup { agent_dir: caller.agent_dir.clone(), env: caller.env.clone(), ..Setup::default() };
    Registry::load(setup)
}

/// Lets a question to servers run to its end.
fn wait_for<T>(question: impl Future<Output = T>) -> Result<T, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(Refusal::Runtime)?.block_on(question))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl Person for Nobody {
        fn confirm(&self, _: &str) -> Option<bool> {
            None
        }
        fn piped(&self) -> std::io::Result<Option<String>> {
            Ok(Some(String::new()))
        }
        fn secret(&self, _: &str) -> std::io::Result<String> {
            Err(std::io::ErrorKind::NotFound.into())
        }
        fn line(&self) -> std::io::Result<String> {
            Err(std::io::ErrorKind::NotFound.into())
        }
        fn tell(&self, _: &str) {}
        fn browse(&self, _: &str) {}
    }

    fn ask(words: &[&str]) -> Result<Answer, Refusal> {
        answer(&Caller {
            argv: words.iter().map(OsString::from).collect(),
            env: Env::default(),
            cwd: PathBuf::from("/nowhere"),
            agent_dir: PathBuf::from("/nowhere"),
            person: &Nobody,
        })
    }

    #[test]
    fn completions_and_the_manual_page_know_flags_verbs_and_words() {
        for shell in cli::SHELLS {
            let text = String::from_utf8(ask(&["completions", shell]).unwrap().text).unwrap();
            for word in
                ["continue", "list-models", "ascii-separators", "status", "completions", "legacy", "auth"]
            {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
        let page = String::from_utf8(ask(&["man"]).unwrap().text).unwrap();
        for word in ["on\\-disconnect", "Continue the newest session", "atomic\\-status", "atomic\\-auth"] {
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
