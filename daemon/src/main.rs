//! atomicd: parse, settle, serve.

use std::path::PathBuf;
use std::process::ExitCode;

use atomic_link::LinkError;
use clap::{Parser, Subcommand};

/// Own all agent sessions of a user
///
/// `atomic` starts this program when it is needed and it leaves when it is not; there is seldom a reason to start it by
/// hand. `atomic status`, `atomic stop` and `atomic logs` are the way to look at it.
#[derive(Parser)]
#[command(name = "atomicd", version)]
struct Arguments {
    /// End the children of the process on the other end of stdin when it is gone (used by atomicd itself)
    #[arg(long, hide = true)]
    guard: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve until there is nothing to do
    Run {
        /// The agent directory to serve
        #[arg(long)]
        agent_dir: PathBuf,
        /// Stay in the caller's session and directory, for debugging
        #[arg(long)]
        foreground: bool,
        /// error, warn, info, debug, trace, or a filter such as "info,atomic_agent=trace"
        #[arg(long, env = "ATOMIC_LOG")]
        log_level: Option<String>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.guard {
        atomic_tools::guard_main(std::io::stdin().lock());
        return ExitCode::SUCCESS;
    }
    let Some(Verb::Run { agent_dir, foreground, log_level }) = arguments.verb else {
        eprintln!("Error: nothing to do.\nHint: `atomic --mode rpc` starts atomicd by itself; see `atomicd --help`.");
        return ExitCode::from(2);
    };
    match serve(agent_dir, foreground, log_level) {
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
