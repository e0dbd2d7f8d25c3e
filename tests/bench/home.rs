//! A HOME of its own for one daemon, and the programs that are measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::Failure;
use crate::window::Window;
use crate::wire::APIS;

/// How long a daemon may take to leave before it is killed.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// The programs under measurement.
#[derive(Clone)]
pub(crate) struct Programs {
    pub(crate) atomic: PathBuf,
    atomicd: PathBuf,
}

impl Programs {
    /// Those that ATOMIC_BIN and ATOMICD_BIN name, else the workspace's release build.
    pub(crate) fn find() -> Result<Programs, Failure> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from).map(std::path::absolute);
        let release = |name: &str| workspace.join("target").join("release").join(name);
        let atomic = named("ATOMIC_BIN").transpose()?.unwrap_or_else(|| release("atomic"));
        let beside = atomic.with_file_name("atomicd");
        let atomicd = named("ATOMICD_BIN").transpose()?.unwrap_or(beside);
        for program in [&atomic, &atomicd] {
            if !program.is_file() {
                return Err(format!(
                    "no program at {}; build it with `cargo build --release -p atomic-shim -p atomic-daemon`",
                    program.display()
                )
                .into());
            }
        }
        Ok(Programs { atomic, atomicd })
    }
}

/// A HOME with a project directory. Its daemon is stopped when this is dropped.
pub(crate) struct Home {
    programs: Programs,
    root: tempfile::TempDir,
}

impl Home {
    /// An empty one.
    pub(crate) fn new(programs: &Programs) -> Result<Home, Failure> {
        // A short name: the socket's path has to fit into a hundred bytes.
        let root = tempfile::Builder::new().prefix("ab-").tempdir()?;
        let home = Home { programs: programs.clone(), root };
        for dir in [home.agent_dir(), home.project()] {
            std::fs::create_dir_all(dir)?;
        }
        Ok(home)
    }

    /// One whose models are the server at `url`: by the provider `bench`, and by one for each API that has its name.
    pub(crate) fn with_model(programs: &Programs, url: &str) -> Result<Home, Failure> {
        let home = Home::new(programs)?;
        let model = serde_json::json!({"id": "bench-model", "name": "Bench", "reasoning": false, "input": ["text"],
            "contextWindow": 10_000_000, "maxTokens": 8192,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}});
        let provider = |url: String, api: &str| serde_json::json!({"baseUrl": url, "api": api, "apiKey": "bench-key", "models": [model]});
        let mut providers: serde_json::Map<_, _> = APIS
            .into_iter()
            // Two APIs have the same paths; the address tells them apart.
            .map(|(api, ..)| {
                (api.to_owned(), provider(format!("{url}/{}", api.split('-').next().unwrap_or(api)), api))
            })
            .collect();
        providers.insert("bench".to_owned(), provider(url.to_owned(), "anthropic-messages"));
        let models = serde_json::json!({"providers": providers});
        std::fs::write(home.agent_dir().join("models.json"), models.to_string())?;
        Ok(home)
    }

    /// Where `settings.json`, `models.json` and sessions lie.
    pub(crate) fn agent_dir(&self) -> PathBuf {
        self.root.path().join(".atomic").join("agent")
    }

    /// Where windows are opened.
    pub(crate) fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    /// `atomic` with these arguments; it knows this HOME and nothing else.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.programs.atomic);
        command.args(arguments).env_clear().current_dir(self.project());
        command
            .env("HOME", self.root.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8");
        command.env("TMPDIR", self.root.path()).env("ATOMIC_DAEMON", &self.programs.atomicd);
        command
    }

    /// Opens a window on a new session of the demo model, which needs no network.
    pub(crate) fn demo(&self) -> Result<Window, Failure> {
        Window::open(self.command(&["--mode", "rpc", "--provider", "demo"]))
    }

    /// Opens a window on a session of the model server.
    pub(crate) fn window(&self, arguments: &[&str]) -> Result<Window, Failure> {
        let common = ["--mode", "rpc", "--provider", "bench", "--model", "bench-model"];
        Window::open(self.command(&[&common, arguments].concat()))
    }

    /// Opens a window on a new session of the model server, asked by this API.
    pub(crate) fn window_by(&self, api: &str) -> Result<Window, Failure> {
        Window::open(self.command(&["--mode", "rpc", "--provider", api, "--model", "bench-model"]))
    }

    /// Opens a window on the session of a file, as it is.
    pub(crate) fn join(&self, file: &str) -> Result<Window, Failure> {
        Window::open(self.command(&["--mode", "rpc", "--session", file]))
    }

    /// What the running daemon says of itself.
    pub(crate) fn report(&self) -> Result<serde_json::Value, Failure> {
        let output = self.command(&["status", "--json"]).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(format!("atomic status: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The daemon's process id.
    pub(crate) fn daemon(&self) -> Result<u32, Failure> {
        let report = self.report()?;
        report["pid"]
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok())
            .ok_or_else(|| "no pid in status".into())
    }

    /// The end of the daemon's log, for a failure's text.
    pub(crate) fn log(&self) -> String {
        let logs = std::fs::read_dir(self.agent_dir().join("logs")).into_iter().flatten().flatten();
        logs.filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
            .map(|text| text.lines().rev().take(10).collect::<Vec<_>>().join("\n"))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let Ok(pid) = self.daemon() else { return };
        let mut command = self.command(&["stop", "--force"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut stop) = command.spawn() else { return };
        atomic_tests::within(STOP_DEADLINE, || {
            let _ = stop.try_wait();
            (!alive(pid)).then_some(())
        });
        if let Some(pid) = pid_of(pid).filter(|_| alive(pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = stop.kill();
        let _ = stop.wait();
    }
}

fn pid_of(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

fn alive(pid: u32) -> bool {
    pid_of(pid).is_some_and(|pid| test_kill_process(pid).is_ok())
}
