use tokio::process::{Child, Command};

use crate::env::Env;

pub(super) fn shell(command: &str, env: &Env) -> Command {
    let mut shell = Command::new(env.get("ComSpec").unwrap_or("cmd.exe"));
    // cmd.exe strips exactly the outer quotes with /S and takes the rest as typed.
    shell.args(["/D", "/S", "/C"]).raw_arg(format!("\"{command}\""));
    shell
}

/// Only the command itself ends with its future here (`kill_on_drop`).
pub(super) struct Group;

impl Group {
    pub(super) fn of(_child: &Child) -> Group {
        Group
    }

    pub(super) fn release(self) {}
}
