use std::process::Command;

use super::{Process, Signal};

/// The PATH of a sandbox, after the programs under test.
pub(crate) const SEARCH_PATH: &str = r"C:\Program Files\Git\bin;C:\Windows\System32;C:\Windows";

/// Variables without which programs of this system do not run.
pub(crate) fn system_environment() -> Vec<(String, String)> {
    let names = ["SystemRoot", "SystemDrive", "ComSpec", "PATHEXT", "NUMBER_OF_PROCESSORS"];
    names.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect()
}

/// Ends the process: there is nothing gentler that reaches one without a window.
pub fn signal(pid: u32, _signal: Signal) {
    let _ = Command::new("taskkill").args(["/F", "/PID", &pid.to_string()]).output();
}

/// The process exists.
pub fn alive(pid: u32) -> bool {
    let listing =
        Command::new("tasklist").args(["/FI", &format!("PID eq {pid}"), "/FO", "CSV", "/NH"]).output();
    listing.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(&format!("\"{pid}\"")))
}

/// Nothing: another process's environment cannot be read here, so a sandbox relies on `atomic stop --force`.
pub(crate) fn tagged(_variable: &str) -> Vec<Process> {
    Vec::new()
}

/// Nothing is ignored here.
pub(crate) fn heeding_signals(program: &std::ffi::OsStr) -> std::process::Command {
    std::process::Command::new(program)
}
