//! What can go wrong between two programs of one user.

use std::io;
use std::path::PathBuf;

/// Why the daemon was not found, reached, started or bound. Each text is for a person and names its object.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Neither an agent directory nor a home directory is known.
    #[error("no home directory is known; set HOME or ATOMIC_CODING_AGENT_DIR")]
    NoHome,
    /// The agent directory's path cannot be resolved.
    #[error("cannot resolve {}: {source}", path.display())]
    Resolve {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory or file of ours cannot be made, opened or changed.
    #[error("cannot prepare {}: {source}", path.display())]
    Prepare {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A path that must be a plain directory is a link or a file.
    #[error("{} is not a plain directory, so it is not used; remove it and try again", path.display())]
    NotDirectory {
        /// The path.
        path: PathBuf,
    },
    /// A directory belongs to somebody else.
    #[error(
        "{} belongs to user {owner}, not to you, so it is not used; remove it, or choose another agent directory with \
         ATOMIC_CODING_AGENT_DIR", path.display()
    )]
    Foreign {
        /// The path.
        path: PathBuf,
        /// The owner's user id.
        owner: u32,
    },
    /// Nobody listens.
    #[error("atomicd is not running (nobody listens on {})", socket.display())]
    NotRunning {
        /// The socket's path.
        socket: PathBuf,
    },
    /// The socket is there and connecting fails.
    #[error("cannot connect to {}: {source}", socket.display())]
    Connect {
        /// The socket's path.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The process at the other end runs as another user.
    #[error("the process at {} belongs to another user; nothing was sent to it", socket.display())]
    Stranger {
        /// The socket's path.
        socket: PathBuf,
    },
    /// No answer in time.
    #[error(
        "atomicd did not answer on {} within {seconds} s; see 'atomic logs', or end the process and try again",
        socket.display()
    )]
    Silent {
        /// The socket's path.
        socket: PathBuf,
        /// The limit, in seconds.
        seconds: u64,
    },
    /// The connection ended before an answer.
    #[error("atomicd closed the connection on {} before it answered; see 'atomic logs'", socket.display())]
    Closed {
        /// The socket's path.
        socket: PathBuf,
    },
    /// The first line was no reply.
    #[error("the process at {} does not speak atomic's link protocol: {reason}", socket.display())]
    BadReply {
        /// The socket's path.
        socket: PathBuf,
        /// What was wrong.
        reason: String,
    },
    /// Another daemon holds the lock.
    #[error("atomicd is already running (it holds {}); use 'atomic stop' to end it", lock.display())]
    AlreadyRunning {
        /// The lock file.
        lock: PathBuf,
    },
    /// The lock file cannot be locked.
    #[error("cannot lock {}: {source}; the directory must be on a file system with locks", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The daemon's program is missing.
    #[error("cannot find atomicd at {}; install it beside atomic, or set ATOMIC_DAEMON to its path", beside.display())]
    NoDaemonProgram {
        /// Where it was expected.
        beside: PathBuf,
    },
    /// The daemon's program cannot be run.
    #[error("cannot run {}: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The daemon ended while it was being waited for.
    #[error("atomicd ended while starting ({status}); its log is {}{tail}", log.display())]
    DiedAtStart {
        /// How it ended.
        status: String,
        /// Its log.
        log: PathBuf,
        /// The log's last lines, each after an LF, or nothing.
        tail: String,
    },
    /// The daemon does not come up, and does not end either.
    #[error("atomicd did not come up within {seconds} s; its log is {}{tail}", log.display())]
    StartTimeout {
        /// The limit, in seconds.
        seconds: u64,
        /// Its log.
        log: PathBuf,
        /// The log's last lines, each after an LF, or nothing.
        tail: String,
    },
    /// The socket cannot be bound.
    #[error("cannot listen on {}: {source}", socket.display())]
    Bind {
        /// The socket's path.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something that is not a socket stands where the socket belongs.
    #[error("{} is in the way of the socket and is not a socket; remove it", socket.display())]
    InTheWay {
        /// The path.
        socket: PathBuf,
    },
    /// An established connection failed.
    #[error("the connection to atomicd failed: {0}")]
    Lost(#[source] io::Error),
}
