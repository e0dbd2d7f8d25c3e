//! Processes by id: signals, and which ones belong to a sandbox.

#[cfg(unix)]
#[path = "unix.rs"]
mod platform;
#[cfg(windows)]
#[path = "windows.rs"]
mod platform;

pub(crate) use platform::heeding_signals;
pub(crate) use platform::{SEARCH_PATH, system_environment, tagged};
pub use platform::{alive, signal};

/// What can be sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
    Hangup,
    /// SIGINT.
    Interrupt,
    /// SIGKILL.
    Kill,
    /// SIGSTOP: it does nothing until [`Signal::Continue`].
    #[cfg(unix)]
    Stop,
    /// SIGCONT.
    #[cfg(unix)]
    Continue,
}

/// A process of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's id.
    pub parent: u32,
    /// Its command line, words joined by spaces.
    pub command: String,
}

impl Process {
    /// The file name of the program.
    pub fn program(&self) -> &str {
        let path = self.command.split(' ').next().unwrap_or_default();
        path.rsplit(['/', '\\']).next().unwrap_or(path)
    }
}
