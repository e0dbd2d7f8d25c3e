//! Processes of Windows. A group is the tree below the shell, ended with `taskkill /T`.
//!
//! A job object would also end grandchildren whose parent is gone, but it needs unsafe calls that this crate forbids. So
//! on Windows a process that a command left behind outlives the daemon; the shell itself and what it still waits for do
//! not.

use std::fs::OpenOptions;
use std::os::windows::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use super::Ending;
use crate::environment::SessionEnv;
use crate::shell::Exit;

/// `CREATE_NEW_PROCESS_GROUP | CREATE_NO_WINDOW` (process creation flags of the Windows API): no Ctrl-C of ours reaches
/// the child, and no console window flashes up.
const CREATION_FLAGS: u32 = 0x0000_0200 | 0x0800_0000;

/// The tree below one process that we started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) id: u32,
    pub(crate) start: Option<u64>,
}

impl Group {
    /// The tree below the child `id`.
    pub(crate) fn of_child(id: u32) -> Group {
        Group { id, start: None }
    }

    /// Unknown here: a tree counts as gone once its root has ended, and only then is this asked.
    pub(crate) fn is_alive(self) -> bool {
        false
    }

    /// Ends the tree. Windows has no gentle way for console programs in another group, so asking is forcing.
    pub(crate) fn end(self, _how: Ending) {
        let mut command = Command::new("taskkill");
        command.args(["/T", "/F", "/PID", &self.id.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.creation_flags(CREATION_FLAGS);
        if let Err(error) = command.status() {
            tracing::warn!(process = self.id, %error, "cannot run taskkill to end a command");
        }
    }
}

/// Nothing here: there are no sessions of this kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedSession;

impl LedSession {
    /// None.
    pub(crate) fn of(_leader: u32) -> Option<LedSession> {
        None
    }

    /// None.
    pub(crate) fn orphans(self) -> Vec<Group> {
        Vec::new()
    }
}

/// Keeps the child out of our console's reach.
pub(crate) fn own_group(command: &mut tokio::process::Command) {
    command.creation_flags(CREATION_FLAGS);
}

/// [`own_group`] for a child that outlives the runtime.
pub(crate) fn own_std_group(command: &mut Command) {
    command.creation_flags(CREATION_FLAGS);
}

/// How the child ended.
pub(crate) fn exit_of(status: ExitStatus) -> Exit {
    Exit::Exited(status.code().unwrap_or(-1))
}

/// Where temporary files go when the session does not say.
pub(crate) fn system_temp_dir() -> PathBuf {
    std::env::temp_dir()
}

/// Files that block when opened do not occur by path on Windows.
pub(crate) fn refuse_to_block(_options: &mut OpenOptions) {}

/// There is no umask here.
pub(crate) fn apply_umask(_path: &Path, _mode: u32, _umask: Option<u32>) {}

/// A regular file.
pub(crate) fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// Shells to try in order: Git's bash where it usually is, then bash on the session's PATH but not the one of WSL in the
/// system directory, which sees another file system.
pub(crate) fn shells(env: &SessionEnv) -> Vec<PathBuf> {
    let mut shells = Vec::new();
    for name in ["ProgramFiles", "ProgramFiles(x86)", "LocalAppData"] {
        if let Some(dir) = env.get_set(name).map(PathBuf::from) {
            shells.push(dir.join("Git").join("bin").join("bash.exe"));
            shells.push(dir.join("Programs").join("Git").join("bin").join("bash.exe"));
        }
    }
    let path = env.get_set("PATH").unwrap_or_default().to_owned();
    let dirs = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
    let of_system = |dir: &PathBuf| dir.to_string_lossy().to_ascii_lowercase().contains("system32");
    shells.extend(dirs.filter(|dir| !of_system(dir)).map(|dir| dir.join("bash.exe")));
    shells
}
