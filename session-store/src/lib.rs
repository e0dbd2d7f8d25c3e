//! Session files, version 3: tolerant read, append, tree, context, list, fork, import, migrate, lock. Synchronous.
//!
//! A session is one file of JSON Lines: a header, then entries that form a tree by `parentId`. [`Store`] owns one such
//! file, or a session that only lives in memory; nobody else writes to it while the store lives.
//!
//! * Entries stay the raw lines they were read as: one read of the file, and slices of it. Unknown types and fields
//!   survive because nothing is written twice.
//! * A file is never created for a session in which nothing was said, and never rewritten but by a migration, which
//!   keeps the old bytes beside it and goes through a temporary file and a rename.
//! * Programs that know nothing of the lock may append: their lines stay and are taken in, on a branch of their own.
//! * What [`Store::append`] returned `Ok` for has been handed to the operating system; what it returned an error for is
//!   neither in the file nor in memory.
//!
//! Nothing here reads the process's environment, its directory or a clock.

#![forbid(unsafe_code)]

mod backup;
mod context;
mod delete;
mod entry;
mod error;
#[cfg(test)]
mod faults;
mod file;
mod fork;
mod header;
mod ids;
mod index;
mod list;
mod listing;
mod load;
mod migrate;
mod paths;
mod splice;
mod stats;
mod store;
mod tree;

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod platform;

/// The calls that change what is on the disk, by the one name that everything here uses: the platform's, and in this
/// library's own tests the same with faults before them.
#[cfg(test)]
use faults as disk;
#[cfg(not(test))]
use platform as disk;

pub use backup::{backup, keep_beside};
pub use context::{
    Context, Left, Shortenable, context, context_at, kept, leaves_something, left_behind, shortenable,
};
pub use delete::delete;
pub use entry::{Kind, ReadyEntry, Role, StoredEntry};
pub use error::{Error, Holder};
pub use file::SyncHandle;
pub use fork::{fork_file, import};
pub use header::StoredHeader;
pub use ids::{check_session_id, new_entry_id, new_session_id};
pub use list::{Listed, find_by_id, list, newest, read_header, session_dirs};
pub use listing::{Listing, Summary, listing, search, summary};
pub use load::{Problem, ProblemKind};
pub use paths::{default_session_dir, encode_cwd, session_file_name};
pub use stats::{Stats, Tokens};
pub use store::Store;
pub use tree::{labels, tree};
