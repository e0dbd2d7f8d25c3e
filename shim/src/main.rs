//! `atomic`: what editors start. It finds or starts the daemon and copies bytes between it and stdio.
//!
//! Blocking threads and nothing else: one copies stdin to the socket, one the socket to stdout, the first one waits
//! for signals. It is started once per editor window, so it stays small in memory and quick to start.

#![forbid(unsafe_code)]

mod admin;
mod daemon;
mod down;
mod filter;
mod handover;
mod logs;
mod lost;
mod messages;
mod pending;
mod run;
mod session;
mod stdio;
mod trust;
mod up;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

use std::ffi::OsString;
use std::process::ExitCode;

use atomic_protocol::cli::{self, Invocation};

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().skip(1).collect();
    let code = match cli::parse(&argv) {
        Err(error) => {
            stdio::complain(&error.text);
            error.code
        }
        Ok(Invocation::Help(text)) => stdio::say(text),
        Ok(Invocation::HelpAside(text)) => {
            stdio::complain(text);
            0
        }
        Ok(Invocation::Version(text)) => stdio::say(&text),
        Ok(Invocation::Session(options)) => session::run(&argv, &options),
        // Rare, large, and in need of what only the daemon's program has.
        Ok(
            Invocation::ListModels { .. }
            | Invocation::Export { .. }
            | Invocation::Sessions(_)
            | Invocation::Auth(_)
            | Invocation::Completions(_)
            | Invocation::Man,
        ) => daemon::answer_by_program(&argv),
        Ok(Invocation::Status { json }) => admin::status(json),
        Ok(Invocation::Stop { force, wait }) => admin::stop(force, wait),
        Ok(Invocation::Restart { now }) => handover::restart(now),
        Ok(Invocation::Logs(options)) => logs::run(&options),
        Ok(Invocation::Trust { directory, revoke }) => trust::run(directory.as_deref(), revoke),
    };
    ExitCode::from(code)
}
