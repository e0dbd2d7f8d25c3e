use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use crate::env::Env;

/// POSIX says where the shell is; the user's login shell may not be one.
const SHELL: &str = "/bin/sh";

pub(super) fn shell(command: &str, _env: &Env) -> Command {
    let mut shell = Command::new(SHELL);
    // A group of its own, so that what the command starts can be ended with it.
    shell.arg("-c").arg(command).process_group(0);
    shell
}

/// Ends the whole group when dropped.
pub(super) struct Group(Option<Pid>);

impl Group {
    pub(super) fn of(child: &Child) -> Group {
        Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// The command was waited for: its id may belong to somebody else now.
    pub(super) fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // ESRCH: nobody is left, which is what we want.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}
