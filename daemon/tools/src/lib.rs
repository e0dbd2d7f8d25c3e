//! What the model can do: read, bash, edit, write, grep, find, ls; and the shell runner that the client's `bash`
//! command shares with the bash tool.
//!
//! * **Owns**: argument checks, result texts and limits of the built-in tools, child processes with their groups,
//!   the files that keep full output, the guard that ends children with the daemon.
//! * **Does not know**: sessions, connections, events. What belongs to a session (cwd, environment, ids) is passed in
//!   as [`ToolEnvironment`]; nothing here reads the process's own environment or working directory.
//! * **Tasks and threads**: file tools run on tokio's blocking threads; a shell runs in the caller's task. The guard is
//!   one process, started with the first child.
//! * **Failure**: a tool never panics through [`run`] and never returns `Err`: what went wrong is a [`ToolOutput`] with
//!   `is_error`, whose text is for the model.
//!
//! Result texts and schemas are Pi's (a wire fact: clients and models know them); descriptions are our own.

#![forbid(unsafe_code)]

mod arguments;
mod bash;
mod children;
mod diff;
mod edit;
mod environment;
mod error;
mod find;
mod grep;
mod guard;
mod ls;
mod mutation;
mod paths;
mod process;
mod read;
mod run;
mod shell;
mod specs;
mod spill;
mod truncate;
mod updates;
mod write;

#[cfg(test)]
mod testing;

pub use arguments::validate;
pub use children::Children;
pub use environment::{SessionEnv, ToolEnvironment, ToolVariables};
pub use error::ToolError;
pub use guard::guard_main;
pub use run::run;
pub use shell::{
    Channel, DELTA_CHANNEL, Delta, Exit, KILL_GRACE, OutputText, ShellCommand, ShellOutcome, run_shell,
};
pub use specs::{DEFAULT_TOOLS, builtin_specs};
pub use spill::{OUTPUT_RETENTION, SPILL_CAP, clean_old_output};
pub use truncate::{MAX_BYTES, MAX_LINE_CHARS, MAX_LINES, TruncatedBy, Truncation};
pub use updates::{UpdateSink, UpdateSource};

#[doc(no_inline)]
pub use atomic_protocol::tool::{ToolOutput, ToolSpec};

use atomic_protocol::message::Block;
