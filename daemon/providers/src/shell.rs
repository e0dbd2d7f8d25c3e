//! Runs the `!command` values of the user's own files and takes what they print.

#[cfg(unix)]
#[path = "shell/unix.rs"]
mod platform;
#[cfg(windows)]
#[path = "shell/windows.rs"]
mod platform;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use crate::env::Env;

/// How long a command may take. A password manager that asks a person needs longer and should be unlocked before.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes taken from a command: a key, not a file.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;

/// What `command` prints, without surrounding white space. It runs in `dir` with `env` and nothing else; it and the
/// processes it started end with this future.
///
/// # Errors
/// A clause that says what happened, without anything the command printed.
pub(crate) async fn output(
    command: &str,
    env: &Env,
    dir: &Path,
    timeout: Duration,
) -> Result<String, String> {
    let mut shell = platform::shell(command, env);
    shell.env_clear().envs(env.iter()).current_dir(dir);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = shell.spawn().map_err(|error| format!("the shell did not start ({error})"))?;
    let group = platform::Group::of(&child);
    let mut stdout = child.stdout.take().expect("stdout is a pipe").take(MAX_OUTPUT_BYTES);
    let run = async {
        let mut printed = Vec::new();
        stdout.read_to_end(&mut printed).await.map_err(|error| format!("its output broke off ({error})"))?;
        let status = child.wait().await.map_err(|error| format!("it got lost ({error})"))?;
        if !status.success() {
            return Err(format!("it ended with {status}"));
        }
        let text =
            String::from_utf8(printed).map_err(|_| "it printed bytes that are not UTF-8".to_owned())?;
        match text.trim() {
            "" => Err("it printed nothing".to_owned()),
            value => Ok(value.to_owned()),
        }
    };
    let outcome = tokio::time::timeout(timeout, run).await;
    if outcome.is_ok() {
        group.release();
    }
    outcome.unwrap_or_else(|_| Err(format!("it took longer than {} s", timeout.as_secs_f32())))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    async fn run(command: &str, timeout: Duration) -> Result<String, String> {
        let env: Env = [("WORD", "magic"), ("PATH", "/usr/bin:/bin")].into_iter().collect();
        let dir = tempfile::tempdir().unwrap();
        output(command, &env, dir.path(), timeout).await
    }

    #[tokio::test]
    async fn commands_print_values() {
        assert_eq!(run("echo \"  $WORD \"", COMMAND_TIMEOUT).await.as_deref(), Ok("magic"));
        assert_eq!(run("echo \"[$HOME]\"", COMMAND_TIMEOUT).await.as_deref(), Ok("[]"));
        assert!(run("echo secret; exit 3", COMMAND_TIMEOUT).await.unwrap_err().contains('3'));
        assert_eq!(run("true", COMMAND_TIMEOUT).await.unwrap_err(), "it printed nothing");
    }

    #[tokio::test]
    async fn a_stuck_command_ends_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let env: Env = [("PATH", "/usr/bin:/bin")].into_iter().collect();
        // The grandchild holds the pipe: without the group's end, read_to_end would not end either.
        let command = "sleep 600 & echo $! > child; wait";
        let error = output(command, &env, dir.path(), Duration::from_secs(2)).await.unwrap_err();
        assert!(error.contains("longer"), "{error}");
        let pid: i32 = std::fs::read_to_string(dir.path().join("child")).unwrap().trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let gone = async {
            // A killed orphan may linger as a zombie of whoever adopts it; its command line is empty then.
            while rustix::process::test_kill_process(pid).is_ok()
                && std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))
                    .is_ok_and(|line| !line.is_empty())
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the grandchild was killed");
    }
}
