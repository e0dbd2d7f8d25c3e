//! `atomic-bench`: what a window, a round trip, a delta and a big session cost, measured on real programs.
//!
//! It starts the release binaries in a HOME of its own, plays the editor on their pipes and the model on a loopback
//! socket, and prints one table. What the columns mean and how to run it stands in the README beside this file.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod arguments;
#[cfg(target_os = "linux")]
mod echo;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod home;
#[cfg(target_os = "linux")]
mod model;
#[cfg(target_os = "linux")]
mod proc;
#[cfg(target_os = "linux")]
mod scenarios;
#[cfg(target_os = "linux")]
mod soak;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod window;
#[cfg(target_os = "linux")]
mod wire;

/// An error that ends the run: what was being done and what went wrong.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::io::Write as _;

    let outcome = arguments::parse(std::env::args().skip(1)).and_then(|asked| match asked {
        arguments::Asked::Table(options) => scenarios::run(&options),
        arguments::Asked::Soak(options) => soak::run(&options),
        arguments::Asked::Faults(options) => faults::run(&options),
        arguments::Asked::Help => {
            std::io::stdout().write_all(arguments::HELP.as_bytes())?;
            Ok(true)
        }
    });
    match outcome {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "atomic-bench: {error}");
            std::process::ExitCode::from(2)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> Result<(), Failure> {
    Err("memory and processor time are read from /proc, which only Linux has".into())
}
