//! A HOME of its own for the processes of one test.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::process::{Finished, Running};
use crate::processes::{self, Process, SEARCH_PATH, Signal};
use crate::shim::Launch;
use crate::{DEADLINE, ModelServer, Shim, binaries, eventually, within};

/// The provider whose requests go to the model server.
pub const PROVIDER: &str = "mock";

/// Its first model: thinks, sees images, costs one dollar per token sent and two per token received.
pub const MODEL: &str = "mock-model";

/// Its second model: does neither and costs nothing.
pub const PLAIN_MODEL: &str = "mock-plain";

/// Its key.
pub const API_KEY: &str = "mock-key";

/// The variable by which processes of a sandbox are known.
const TAG: &str = "ATOMIC_TEST_TAG";

/// Directories of one test, and the processes that were started in them. When dropped it ends them all.
#[derive(Debug)]
pub struct Sandbox {
    path: PathBuf,
    tag: String,
    /// Removes the directory, after [`Drop`] has ended what ran in it.
    _root: tempfile::TempDir,
}

impl Default for Sandbox {
    fn default() -> Self {
        Sandbox::new()
    }
}

impl Sandbox {
    /// An empty HOME, a project directory, a temporary directory.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn new() -> Sandbox {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // A short name: the socket's path has to fit into a hundred bytes.
        let root = tempfile::Builder::new().prefix("at-").tempdir().expect("a temporary directory");
        let path = root.path().canonicalize().expect("the path of a directory just made");
        let tag = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let sandbox = Sandbox { path, tag, _root: root };
        for dir in [sandbox.home(), sandbox.agent_dir(), sandbox.project(), sandbox.path.join("tmp")] {
            std::fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        }
        sandbox
    }

    /// One whose models are those of this server.
    pub fn with_models(server: &ModelServer) -> Sandbox {
        let sandbox = Sandbox::new();
        sandbox.write_models(&models_json(&server.url()));
        sandbox
    }

    /// HOME.
    pub fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    /// The agent directory, at its default place under HOME.
    pub fn agent_dir(&self) -> PathBuf {
        self.home().join(".atomic").join("agent")
    }

    /// The directory that shims start in.
    pub fn project(&self) -> PathBuf {
        self.path.join("project")
    }

    /// TMPDIR.
    pub fn temporary(&self) -> PathBuf {
        self.path.join("tmp")
    }

    /// Another directory, made if it is missing.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.path.join(name);
        std::fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        dir
    }

    /// Writes a file, relative to the sandbox's root.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        std::fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// Writes `models.json` of the agent directory.
    pub fn write_models(&self, models: &Value) {
        self.write("home/.atomic/agent/models.json", models.to_string());
    }

    /// Writes `settings.json` of the agent directory.
    pub fn write_settings(&self, settings: &Value) {
        self.write("home/.atomic/agent/settings.json", settings.to_string());
    }

    /// All session files, wherever they are in the default session directory.
    pub fn session_files(&self) -> Vec<PathBuf> {
        files_below(&self.agent_dir().join("sessions"), &|path| {
            path.extension().is_some_and(|ext| ext == "jsonl")
        })
    }

    /// The whole environment of a process in this sandbox: nothing of ours is passed on.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let programs = binaries();
        let beside = programs.atomic.parent().expect("a program lies in a directory");
        let path = std::env::join_paths(
            std::iter::once(beside.to_owned()).chain(std::env::split_paths(SEARCH_PATH)),
        );
        let mut environment: Vec<(OsString, OsString)> = processes::system_environment()
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let mut set = |name: &str, value: OsString| environment.push((name.into(), value));
        set("PATH", path.expect("no directory here holds the separator"));
        set("HOME", self.home().into());
        set("USERPROFILE", self.home().into());
        set("TMPDIR", self.temporary().into());
        set("LANG", "C.UTF-8".into());
        set(TAG, self.tag.clone().into());
        // Nothing listens there: a server of the developer's own is not to be found.
        for name in ["OLLAMA_HOST", "LLAMA_BASE_URL", "LMSTUDIO_BASE_URL", "VLLM_BASE_URL"] {
            set(name, "http://127.0.0.1:1".into());
        }
        if !programs.side_by_side() {
            set("ATOMIC_DAEMON", programs.atomicd.clone().into());
        }
        environment
    }

    /// A program of the PATH in this sandbox.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = processes::heeding_signals(program.as_ref());
        command.env_clear().envs(self.environment()).current_dir(self.project());
        command
    }

    /// A shim to be started.
    pub fn shim(&self) -> Launch<'_> {
        Launch::new(self)
    }

    /// `atomic --mode rpc` in the project directory.
    pub fn rpc(&self) -> Shim {
        self.shim().start()
    }

    /// `atomic attach SESSION` in the project directory.
    pub fn attach(&self, session: &str) -> Shim {
        Launch::bare(self).args(["attach", session]).start()
    }

    /// `atomic` with these arguments and a stdin that has ended, from which what it says can be read as it comes.
    pub fn client(&self, arguments: &[&str]) -> Shim {
        let mut shim = Launch::bare(self).args(arguments).start();
        shim.close_stdin();
        shim
    }

    /// `atomic` with these arguments and an empty stdin, to its end.
    ///
    /// # Panics
    /// When it does not end within the deadline.
    #[track_caller]
    pub fn atomic(&self, arguments: &[&str]) -> Finished {
        self.atomic_fed(arguments, b"")
    }

    /// `atomic` with these arguments and this stdin, to its end.
    ///
    /// # Panics
    /// When it does not end within the deadline.
    #[track_caller]
    pub fn atomic_fed(&self, arguments: &[&str], stdin: &[u8]) -> Finished {
        let mut command = self.command(&binaries().atomic);
        command.args(arguments);
        let mut running = Running::spawn(command);
        running.write(stdin);
        running.close_stdin();
        running.wait().unwrap_or_else(|| panic!("atomic {arguments:?} does not end\n{}", self.daemon_log()))
    }

    /// All processes of this sandbox that still run.
    pub fn processes(&self) -> Vec<Process> {
        processes::tagged(&format!("{TAG}={}", self.tag))
    }

    /// The ids of its daemons. A daemon's helpers are the same program, so a daemon is one that no daemon started.
    pub fn daemons(&self) -> Vec<u32> {
        let all: Vec<Process> =
            self.processes().into_iter().filter(|process| process.program().starts_with("atomicd")).collect();
        let is_helper = |process: &Process| all.iter().any(|other| other.pid == process.parent);
        all.iter().filter(|process| !is_helper(process)).map(|process| process.pid).collect()
    }

    /// The id of its only daemon.
    ///
    /// # Panics
    /// When there is none or more than one.
    #[track_caller]
    pub fn daemon(&self) -> u32 {
        let daemons = self.daemons();
        assert_eq!(daemons.len(), 1, "daemons {daemons:?} among {:#?}", self.processes());
        daemons[0]
    }

    /// Kills its only daemon as a crash would, and waits until it is gone.
    pub fn kill_daemon(&self) {
        let pid = self.daemon();
        processes::signal(pid, Signal::Kill);
        eventually("the killed daemon is gone", || (!processes::alive(pid)).then_some(()));
    }

    /// The end of every log file in the agent directory, for a failure's text.
    pub fn daemon_log(&self) -> String {
        daemon_log(&self.agent_dir())
    }
}

/// The end of every log file below the agent directory.
pub(crate) fn daemon_log(agent_dir: &Path) -> String {
    /// Lines shown of each.
    const SHOWN: usize = 60;
    let is_log = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("log"));
    let mut out = String::new();
    for path in files_below(agent_dir, &is_log) {
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        out.push_str(&format!("--- {}\n", path.display()));
        out.push_str(&lines[lines.len().saturating_sub(SHOWN)..].join("\n"));
        out.push('\n');
    }
    out
}

fn files_below(dir: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&path, wanted)),
            Ok(kind) if kind.is_file() && wanted(&path) => found.push(path),
            _ => {}
        }
    }
    found.sort();
    found
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if !self.daemons().is_empty() || cfg!(windows) {
            let mut command = self.command(&binaries().atomic);
            command.args(["stop", "--force"]);
            let mut running = Running::spawn(command);
            running.close_stdin();
            // Whatever it says: what is left after it is killed below.
            let _ = running.wait();
        }
        // Daemons of other agent directories, and one that did not listen: they still tidy up after themselves.
        let daemons = self.daemons();
        daemons.iter().for_each(|pid| processes::signal(*pid, Signal::Terminate));
        let gone = || (!daemons.iter().any(|pid| processes::alive(*pid))).then_some(());
        let _ = within(DEADLINE, gone);
        // Twice, because a process may start another between the look and the kill.
        for _ in 0..2 {
            for process in self.processes() {
                processes::signal(process.pid, Signal::Kill);
            }
        }
        // A failing test has its own text; a second panic would end the whole test process.
        if !std::thread::panicking() {
            eventually("no process of the sandbox is left", || self.processes().is_empty().then_some(()));
        }
    }
}

/// A `models.json` whose one provider is the model server.
pub fn models_json(url: &str) -> Value {
    let free = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0});
    let dear = json!({"input": 1_000_000, "output": 2_000_000, "cacheRead": 0, "cacheWrite": 0});
    json!({"providers": {PROVIDER: {
    "baseUrl": url, "api": "anthropic-messages", "apiKey": API_KEY,
    "models": [
        {"id": MODEL, "name": "Mock Model", "reasoning": true, "input": ["text", "image"],
         "contextWindow": 200_000, "maxTokens": 8_192, "cost": dear},
        {"id": PLAIN_MODEL, "name": "Mock Plain", "reasoning": false, "input": ["text"],
         "contextWindow": 100_000, "maxTokens": 4_096, "cost": free},
    ]}}})
}
