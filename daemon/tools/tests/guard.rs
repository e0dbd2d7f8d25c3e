//! Children end with the daemon, however it ends. This program plays all parts: the test; the daemon, which runs a
//! command (`--daemon <dir> <command>`); and the guard that the daemon starts (`--guard`).

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("--guard") => atomic_tools::guard_main(std::io::stdin().lock()),
        Some("--daemon") => unix::daemon(&arguments[1], &arguments[2]),
        // Asked by test runners that list tests.
        Some("--list") => {}
        _ => {
            unix::a_killed_daemon_takes_its_children_along();
            unix::what_a_command_left_behind_ends_as_well();
        }
    }
}

#[cfg(unix)]
mod unix {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use atomic_tools::{
        Children, OutputText, SessionEnv, ShellCommand, ToolEnvironment, ToolVariables, run_shell,
    };
    use tokio_util::sync::CancellationToken;

    /// Far beyond the guard's two seconds of grace.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// Runs one command and then stays until it is killed.
    pub(super) fn daemon(dir: &str, command: &str) {
        let env: SessionEnv = [("PATH", "/usr/bin:/bin"), ("TMPDIR", dir)].into_iter().collect();
        let environment = ToolEnvironment {
            cwd: dir.into(),
            env: Arc::new(env),
            session_id: "s".into(),
            session_file: None,
            shell_path: None,
            shell_command_prefix: None,
            resize_images: true,
            umask: None,
            children: Children::new(std::env::current_exe().expect("the test's own program")),
        };
        let command = ShellCommand {
            command: command.to_owned(),
            timeout: None,
            text: OutputText::Plain,
            variables: ToolVariables::default(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let tell = |name: &str| std::fs::write(Path::new(dir).join(name), "").expect("a file");
        runtime.block_on(async {
            let run = run_shell(command, &environment, CancellationToken::new(), None);
            let registered = async {
                while environment.children.is_empty() {
                    tokio::task::yield_now().await;
                }
                tell("registered");
            };
            tokio::join!(async { run.await.expect("the shell starts") }, registered);
            tell("over");
            std::future::pending::<()>().await;
        });
    }

    struct Stage {
        dir: tempfile::TempDir,
        daemon: Child,
    }

    fn stage(command: &str) -> Stage {
        let dir = tempfile::tempdir().expect("a directory");
        let made = Command::new("mkfifo").arg(dir.path().join("fifo")).status().expect("mkfifo");
        assert!(made.success());
        let mut daemon = Command::new(std::env::current_exe().expect("the test's own program"));
        daemon.args(["--daemon", dir.path().to_str().expect("UTF-8"), command]).stdin(Stdio::null());
        Stage { daemon: daemon.spawn().expect("the daemon starts"), dir }
    }

    impl Drop for Stage {
        fn drop(&mut self) {
            // Already dead unless the test failed.
            let _ = self.daemon.kill();
            let _ = self.daemon.wait();
        }
    }

    impl Stage {
        /// Waits for the command's line and for the daemon's word, kills the daemon, waits until nobody holds the FIFO.
        fn kill_after(mut self, word: &str) {
            let (sender, receiver) = mpsc::channel();
            let fifo = self.dir.path().join("fifo");
            std::thread::spawn(move || {
                let mut reader = BufReader::new(std::fs::File::open(fifo).expect("the FIFO opens"));
                reader.read_line(&mut String::new()).expect("a line");
                sender.send(()).expect("the test waits");
                reader.read_to_end(&mut Vec::new()).expect("the end");
                sender.send(()).expect("the test waits");
            });
            receiver.recv_timeout(DEADLINE).expect("the command runs");
            let deadline = Instant::now() + DEADLINE;
            while !self.dir.path().join(word).exists() {
                assert!(Instant::now() < deadline, "the daemon says {word}");
                std::thread::yield_now();
            }
            self.daemon.kill().expect("the daemon runs");
            self.daemon.wait().expect("it was ours");
            receiver.recv_timeout(DEADLINE).expect("the guard ended the children");
        }
    }

    pub(super) fn a_killed_daemon_takes_its_children_along() {
        let stubborn =
            "exec 9>fifo; trap '' TERM; sh -c 'trap \"\" TERM; echo ready >&9; while :; do sleep 1; done'";
        stage(stubborn).kill_after("registered");
    }

    pub(super) fn what_a_command_left_behind_ends_as_well() {
        let line = "(exec 9>fifo; trap '' TERM; echo ready >&9; while :; do sleep 1; done) >/dev/null 2>&1 &";
        stage(line).kill_after("over");
    }
}
