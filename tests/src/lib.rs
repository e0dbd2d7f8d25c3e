//! End to end: real `atomic` and `atomicd` processes, real sockets, and a model server that releases each chunk on
//! command, so that "abort between chunk 2 and 3" is an ordinary test.
//!
//! A test is hermetic: its [`Sandbox`] is the only HOME the processes know, its [`ModelServer`] the only host. It waits
//! on facts (a record, a request, a line in a file, an exit), each with [`DEADLINE`], and never on time.
#![forbid(unsafe_code)]

pub mod anthropic;
mod binaries;
mod driver;
mod model_server;
#[cfg(target_os = "linux")]
pub mod mounts;
mod process;
mod processes;
mod record;
mod sandbox;
mod session_file;
mod shim;

use std::time::{Duration, Instant};

pub use binaries::{Binaries, binaries, example};
pub use driver::{Driver, atomic_path, clients_dir, node, node_24, require_clients, require_program};
pub use model_server::{Exchange, ModelServer, Request};
pub use process::{Finished, Running};
pub use processes::{Process, Signal, alive, signal};
pub use record::{Record, golden, keys, kinds, normalised, the_only};
pub use sandbox::{API_KEY, MODEL, PLAIN_MODEL, PROVIDER, Sandbox, models_json};
pub use session_file::SessionFile;
pub use shim::{Launch, Shim};

/// How long any single fact may take to become true before the test fails.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// How often [`eventually`] looks. Files and process tables cannot be waited on, so they are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Waits until `look` sees the fact, and returns it.
///
/// # Panics
/// When [`DEADLINE`] passes first.
#[track_caller]
pub fn eventually<T>(fact: &str, look: impl FnMut() -> Option<T>) -> T {
    within(DEADLINE, look).unwrap_or_else(|| panic!("not within {DEADLINE:?}: {fact}"))
}

/// The same without the panic: `None` when `deadline` passes first.
pub fn within<T>(deadline: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}
