//! What can go wrong with a session file, each naming the object it went wrong on.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The process that holds a session's lock, as far as the system tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its id.
    pub pid: u32,
    /// Its name; none when it cannot be asked.
    pub program: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.program {
            Some(program) => write!(f, "{program} (process {})", self.pid),
            None => write!(f, "process {}", self.pid),
        }
    }
}

fn who(holder: Option<&Holder>) -> String {
    holder.map_or("another process".to_owned(), Holder::to_string)
}

/// An error of this crate. The text is for a person; it names the file or id and what to try.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no file at the path.
    #[error("there is no session file {}", path.display())]
    NotFound {
        /// The path asked for.
        path: PathBuf,
    },
    /// The path is a directory, pipe, device or socket.
    #[error("{} is not a regular file, so it cannot be a session file", path.display())]
    NotAFile {
        /// The path asked for.
        path: PathBuf,
    },
    /// The file has no bytes; [`crate::Store::create_at`] begins a session in it.
    #[error("the session file {} is empty", path.display())]
    Empty {
        /// The path asked for.
        path: PathBuf,
    },
    /// The file's first record is not a session header. It was left as it is.
    #[error("Session file is not a valid atomic session: {}", path.display())]
    NotASession {
        /// The path asked for.
        path: PathBuf,
    },
    /// A new session would overwrite a file.
    #[error("{} exists already and is not overwritten; choose another path", path.display())]
    Exists {
        /// The path asked for.
        path: PathBuf,
    },
    /// Somebody else holds the session's lock.
    #[error(
        "the session file {} is open in {}; join that session or close it there first (reading it is possible meanwhile)",
        path.display(), who(holder.as_ref())
    )]
    Locked {
        /// The path asked for.
        path: PathBuf,
        /// Who holds it, where the system tells (Linux).
        holder: Option<Holder>,
    },
    /// The file could not be opened.
    #[error("cannot open the session file {}: {source}", path.display())]
    Open {
        /// The path asked for.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The directory for session files could not be made.
    #[error("cannot create the session directory {}: {source}; check its permissions or choose another one", path.display())]
    CreateDirectory {
        /// The directory.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Bytes could not be written; the file was cut back to what it was.
    #[error("cannot write to the session file {}: {source}", path.display())]
    Append {
        /// The session file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Bytes could not be written, and cutting the file back failed too; the next append tries that again first.
    #[error("cannot write to the session file {}: {source}; taking back the unfinished line failed as well: {undo}", path.display())]
    RollBack {
        /// The session file.
        path: PathBuf,
        /// Why writing failed.
        source: io::Error,
        /// Why taking it back failed.
        undo: io::Error,
    },
    /// The path no longer leads to the file that the store has open.
    #[error(
        "the session file {} was removed, moved or replaced while the session was open; put it back, or fork the session into a new file",
        path.display()
    )]
    Gone {
        /// The session file.
        path: PathBuf,
    },
    /// Somebody cut bytes off the file that the store has open.
    #[error("the session file {} was shortened by another program while the session was open; open it again", path.display())]
    Shrunk {
        /// The session file.
        path: PathBuf,
    },
    /// An old file could not be rewritten in the current version. It was left as it is.
    #[error("cannot bring the session file {} to version 3: {source}; the file is unchanged", path.display())]
    Migrate {
        /// The session file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The bytes of an old file could not be kept beside it, so it was not rewritten.
    #[error("cannot keep a copy of the session file {} before it is brought to version 3: {source}; the file is unchanged", path.display())]
    Backup {
        /// The session file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file could not be removed.
    #[error("cannot delete {}: {source}", path.display())]
    Delete {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The cache of a listing could not be written. The listing itself is not the worse for it.
    #[error("cannot write the index of sessions {}: {source}; the next listing reads all files again", path.display())]
    Cache {
        /// The index.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Data could not be brought to the disk.
    #[error("cannot sync {} to disk: {source}", path.display())]
    Sync {
        /// The session file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file could not be copied into the session directory.
    #[error("cannot import {} as {}: {source}", from.display(), to.display())]
    Import {
        /// The file to import.
        from: PathBuf,
        /// Where it should go.
        to: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A session file could not be copied.
    #[error("cannot copy the session file to {}: {source}", path.display())]
    Copy {
        /// Where the copy should go.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The store was opened for reading only.
    #[error("the session file {} was opened for reading only", path.display())]
    ReadOnly {
        /// The session file.
        path: PathBuf,
    },
    /// An entry's id is in use. A bug of the caller, refused before anything is written.
    #[error("entry {id} exists already in this session")]
    EntryExists {
        /// The id.
        id: String,
    },
    /// No entry has this id (text: reference "appendCompaction").
    #[error("Entry {id} not found")]
    EntryNotFound {
        /// The id.
        id: String,
    },
    /// The line to append is not an entry. A bug of the caller, refused before anything is written.
    #[error("not an entry of a session file: {reason}")]
    NotAnEntry {
        /// What it is instead.
        reason: &'static str,
    },
    /// A session id that no file name may carry (text: seeds' implementation).
    #[error(
        "Session id must be non-empty, contain only alphanumeric characters, '-', '_', and '.', and start and end with an alphanumeric character"
    )]
    SessionId {
        /// The id that was asked for.
        id: String,
    },
}
