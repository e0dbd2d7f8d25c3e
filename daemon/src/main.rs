//! atomicd: parse, settle, serve.

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use atomic_daemon::answer::{Caller, Person};
use atomic_link::LinkError;
use atomic_link::place::Place;
use clap::{Parser, Subcommand};

// Written here and not by clap: built without its help the parser is half as large, and the shim carries it too.
const HELP: &str = "\
Own all agent sessions of a user

Usage: atomicd run --agent-dir DIR [--foreground] [--log-level LEVEL]
       atomicd answer -- ARGUMENTS OF ATOMIC

`atomic` starts this program when it is needed, and it leaves when it is not; there
is seldom a reason to start it by hand. `atomic status`, `atomic stop` and `atomic
logs` are the way to look at it.

Options of run:
  --agent-dir DIR     The agent directory to serve
  --foreground        Stay in the caller's session and directory, for debugging
  --log-level LEVEL   error, warn, info, debug, trace, or a filter such as
                      \"info,atomic_agent=trace\" (also from ATOMIC_LOG)

`answer` is how `atomic` has --list-models, sessions, auth, export, completions and man done.

  -h, --help          Print this
  -v, --version       Print the version
";

#[derive(Parser)]
#[command(name = "atomicd", disable_help_flag = true, disable_version_flag = true)]
struct Arguments {
    #[arg(short, long, global = true)]
    help: bool,
    #[arg(short, long, short_alias = 'V')]
    version: bool,
    /// Ends the children of the process on the other end of stdin when it is gone; used by atomicd itself.
    #[arg(long)]
    guard: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    Run {
        #[arg(long)]
        agent_dir: PathBuf,
        #[arg(long)]
        foreground: bool,
        #[arg(long)]
        log_level: Option<String>,
    },
    /// Answers a command line of `atomic` that needs no running daemon.
    Answer {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        argv: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.help || arguments.version {
        let text = if arguments.help {
            HELP.to_owned()
        } else {
            format!("atomicd {}\n", atomic_protocol::link::build_id())
        };
        return match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    if arguments.guard {
        atomic_tools::guard_main(std::io::stdin().lock());
        return ExitCode::SUCCESS;
    }
    let (agent_dir, foreground, log_level) = match arguments.verb {
        Some(Verb::Run { agent_dir, foreground, log_level }) => (agent_dir, foreground, log_level),
        Some(Verb::Answer { argv }) => {
            return answer(argv).unwrap_or_else(|error| {
                eprintln!("Error: {error:#}");
                ExitCode::FAILURE
            });
        }
        None => {
            eprintln!(
                "Error: nothing to do.\nHint: `atomic --mode rpc` starts atomicd by itself; see `atomicd --help`."
            );
            return ExitCode::from(2);
        }
    };
    match serve(agent_dir, foreground, log_level.or_else(|| std::env::var("ATOMIC_LOG").ok())) {
        Ok(()) => ExitCode::SUCCESS,
        // The loser of a race is no failure: the winner serves.
        Err(error) if matches!(error.downcast_ref(), Some(LinkError::AlreadyRunning { .. })) => {
            eprintln!("Note: {error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The one place that reads this process's own environment and directory: they are the caller's.
fn answer(argv: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let cwd = std::env::current_dir()?;
    let home = atomic_link::place::home();
    let place = Place::find(|name| std::env::var_os(name), home.as_deref(), &cwd)?;
    let env = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let agent_dir = place.agent_dir().to_owned();
    let caller = Caller { argv, env: env.collect(), cwd, agent_dir, person: &Terminal };
    let said = atomic_daemon::answer::answer(&caller)?;
    for warning in said.warnings {
        eprintln!("{warning}");
    }
    match std::io::stdout().write_all(&said.text) {
        Ok(()) => Ok(ExitCode::from(said.code)),
        // Whoever read it has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::FAILURE),
        Err(error) => Err(error.into()),
    }
}

/// Most bytes of a line that are read from somebody who sends no end of one.
const MAX_LINE: u64 = 64 << 10;

/// The standard streams of this process.
#[derive(Debug)]
struct Terminal;

impl Person for Terminal {
    /// What is not clearly a yes is a no.
    fn confirm(&self, question: &str) -> Option<bool> {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return None;
        }
        eprint!("{question}");
        // An error is the terminal's end.
        let answer = self.line().unwrap_or_default();
        Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }

    fn piped(&self) -> std::io::Result<Option<String>> {
        if std::io::stdin().is_terminal() {
            return Ok(None);
        }
        let mut line = String::new();
        std::io::stdin().lock().take(MAX_LINE).read_line(&mut line)?;
        Ok(Some(line))
    }

    fn secret(&self, question: &str) -> std::io::Result<String> {
        rpassword::prompt_password(question)
    }

    fn line(&self) -> std::io::Result<String> {
        let mut line = String::new();
        match std::io::stdin().lock().take(MAX_LINE).read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    fn tell(&self, text: &str) {
        eprintln!("{text}");
    }

    fn browse(&self, page: &str) {
        // Without a desktop, what opens pages would draw them into this terminal.
        let desktop = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
        let elsewhere = std::env::var_os("SSH_CONNECTION").is_some();
        if (desktop || cfg!(any(windows, target_os = "macos"))) && !elsewhere {
            // The page was told: who sees no browser opens it by hand.
            let _ = open::that_detached(page);
        }
    }
}

fn serve(agent_dir: PathBuf, foreground: bool, log_level: Option<String>) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let agent_dir = std::path::absolute(agent_dir)?;
    if !foreground {
        atomic_daemon::process::settle();
    }
    let (place, lock) = atomic_daemon::claim(&agent_dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(atomic_daemon::run(place, lock, program, log_level));
    // Blocking work that does not end (a hanging file system) must not keep the daemon.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}
