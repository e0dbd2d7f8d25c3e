use rustix::process::{Pid, Signal as Number, kill_process, test_kill_process};

use super::{Process, Signal};

/// The PATH of a sandbox, after the programs under test.
pub(crate) const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Variables without which programs of this system do not run.
pub(crate) fn system_environment() -> Vec<(String, String)> {
    Vec::new()
}

fn id(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Sends the signal. A process that has gone is no error.
pub fn signal(pid: u32, signal: Signal) {
    let number = match signal {
        Signal::Terminate => Number::TERM,
        Signal::Hangup => Number::HUP,
        Signal::Interrupt => Number::INT,
        Signal::Kill => Number::KILL,
        Signal::Stop => Number::STOP,
        Signal::Continue => Number::CONT,
    };
    if let Some(pid) = id(pid) {
        let _ = kill_process(pid, number);
    }
}

/// The process exists (a zombie does not count where that can be told).
pub fn alive(pid: u32) -> bool {
    if let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        return !matches!(state(&status), Some("Z" | "X"));
    }
    !cfg!(target_os = "linux") && id(pid).is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// The state letter of a `/proc/<pid>/stat` line. The command before it may hold spaces and parentheses.
fn state(stat: &str) -> Option<&str> {
    after_command(stat)?.split(' ').next()
}

fn after_command(stat: &str) -> Option<&str> {
    stat.rsplit_once(") ").map(|(_, rest)| rest)
}

/// All processes that were started with `variable` (`NAME=value`) in their environment.
#[cfg(target_os = "linux")]
pub(crate) fn tagged(variable: &str) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        environment.split(|byte| *byte == 0).find(|entry| *entry == variable.as_bytes())?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = after_command(&stat)?.split(' ').nth(1)?.parse().ok()?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<_> = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        alive(pid).then(|| Process { pid, parent, command: words.join(" ").trim_end().to_owned() })
    })
    .collect()
}

/// All processes that were started with `variable` (`NAME=value`) in their environment.
#[cfg(not(target_os = "linux"))]
pub(crate) fn tagged(variable: &str) -> Vec<Process> {
    let listing =
        std::process::Command::new("ps").args(["-A", "-E", "-ww", "-o", "pid=,ppid=,command="]).output();
    let text = listing.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mine = text.lines().filter(|line| line.split(' ').any(|word| word == variable));
    mine.filter_map(|line| {
        let (pid, rest) = line.trim_start().split_once(' ')?;
        let (parent, command) = rest.trim_start().split_once(' ')?;
        Some(Process { pid: pid.parse().ok()?, parent: parent.parse().ok()?, command: command.to_owned() })
    })
    .collect()
}

/// A command whose process heeds signals even where this one's are ignored, as a shell does for what it starts in the
/// background. `exec` keeps the process id.
pub(crate) fn heeding_signals(program: &std::ffi::OsStr) -> std::process::Command {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0").trim();
    // SIGHUP 1, SIGINT 2, SIGTERM 15.
    if u64::from_str_radix(ignored, 16).unwrap_or(0) & (1 | 1 << 1 | 1 << 14) == 0 {
        return std::process::Command::new(program);
    }
    let mut command = std::process::Command::new("/usr/bin/env");
    command.arg("--default-signal").arg(program);
    command
}
