//! The caller as the link sees it: where its daemon is and what its hello says. The one place of the shim that reads
//! the process's environment and directory.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use atomic_link::LinkError;
use atomic_link::place::{self, Place};
use atomic_link::start::daemon_program;
use atomic_protocol::link::{Hello, Mode, OsText, build_id};

use crate::{os, stdio};

/// Where the caller's daemon is.
pub(crate) fn place() -> Result<Place, LinkError> {
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    Place::find(|name| std::env::var_os(name), place::home().as_deref(), &cwd)
}

/// The daemon's program.
pub(crate) fn program() -> Result<PathBuf, LinkError> {
    let executable = std::env::current_exe().unwrap_or_default();
    daemon_program(&executable, std::env::var_os("ATOMIC_DAEMON").as_deref())
}

/// Has the daemon's program answer the command line itself, as a process that ends with its answer; gives the exit
/// code. A running daemon is not asked: it knows nothing about this that the files do not say.
pub(crate) fn answer_by_program(argv: &[OsString]) -> u8 {
    let answered = program().map_err(|error| error.to_string()).and_then(|program| {
        let mut command = Command::new(&program);
        command.arg("answer").arg("--").args(argv);
        os::run_in_place(&mut command).map_err(|error| format!("cannot run {}: {error}", program.display()))
    });
    answered.unwrap_or_else(|error| {
        stdio::complain(&format!("Error: {error}"));
        1
    })
}

/// A hello of the caller for a session. To be called while the process has one thread.
pub(crate) fn session_hello(mode: Mode, argv: &[OsString]) -> std::io::Result<Hello> {
    let env = std::env::vars_os().map(|(name, value)| (OsText::from_os(&name), OsText::from_os(&value)));
    Ok(Hello {
        cwd: OsText::from_os(std::env::current_dir()?.as_os_str()),
        argv: argv.iter().map(|argument| OsText::from_os(argument)).collect(),
        env: env.collect(),
        umask: os::umask(),
        records: true,
        ..hello(mode)
    })
}

/// A hello without a session: nothing of the caller's goes with it.
pub(crate) fn hello(mode: Mode) -> Hello {
    Hello { build: build_id().to_owned(), mode, ..Hello::default() }
}
