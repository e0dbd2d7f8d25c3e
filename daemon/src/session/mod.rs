//! Sessions: one task owns one session, everybody else holds a handle.
//!
//! * [`open`] finds or makes a session for a caller: `find` says which one is meant, `prepare` makes it, `inputs` reads files
//!   for it, `shape` decides its model, tools and system prompt;
//! * `actor` is the task; `effects` performs what the agent decides; `reads` answers what changes nothing; `work` runs
//!   models, tools and shell commands as child tasks, `compaction` what shortens a conversation, `changes` says when a call
//!   that changes a file begins; `expansion` puts prompt templates and skills in place.

pub(crate) mod actor;
pub(crate) mod branches;
mod changes;
pub(crate) mod commands;
pub(crate) mod compaction;
mod effects;
mod expansion;
mod fallback;
pub(crate) mod find;
mod inputs;
mod models;
pub mod open;
pub(crate) mod prepare;
mod reads;
mod records;
mod servers;
mod shape;
pub(crate) mod work;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atomic_protocol::cli::SessionOptions;
use atomic_protocol::command::Command;
use atomic_protocol::entry::Header;
use atomic_protocol::link::{OsText, SessionReport};
use atomic_tools::SessionEnv;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::branches::{Branch, BranchAt};
use crate::connection::Client;
use crate::settings::OnDisconnect;
use crate::ticket::Ticket;

/// Messages that wait for a session's task. Connections wait when there are more, each for itself.
const INBOX: usize = 64;

/// What a caller brought along: a fresh session for it is made from the same.
#[derive(Debug)]
pub struct Opening {
    /// Where the session works.
    pub cwd: PathBuf,
    /// The caller's environment.
    pub env: Arc<SessionEnv>,
    /// The caller's umask.
    pub umask: Option<u32>,
    /// The caller's options.
    pub options: SessionOptions,
    /// The arguments that these come from.
    pub argv: Vec<OsText>,
}

/// What is known of a session without asking its task.
#[derive(Debug)]
pub struct SessionInfo {
    /// Session id.
    pub id: String,
    /// Its file, which may not exist yet; none for `--no-session`.
    pub file: Option<PathBuf>,
    /// Where it works.
    pub cwd: PathBuf,
    /// The first line of its file.
    pub header: Header,
    /// What a fresh session for its clients is made from.
    pub opening: Arc<Opening>,
    /// When it was loaded, it had no model, because the settings' default is of a provider that nobody knows.
    pub unsupported_default: bool,
}

/// How a session is just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub name: Option<String>,
    /// Attached clients.
    pub clients: u32,
    /// A run is active or a shell command runs.
    pub running: bool,
    /// Its last client asked to keep it loaded.
    pub kept: bool,
}

/// A session, for those who do not own it.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    inbox: mpsc::Sender<SessionMessage>,
    info: Arc<SessionInfo>,
    status: watch::Receiver<Status>,
    /// Cancelled when the session is over: its file is closed, its place free.
    over: CancellationToken,
    /// Its task panicked.
    failed: Arc<AtomicBool>,
}

impl SessionHandle {
    /// Sends a message. To a session that is over it is dropped, which answers the ticket in it.
    pub async fn send(&self, message: SessionMessage) {
        let _ = self.inbox.send(message).await;
    }

    /// What does not change.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// Waits until the session is over.
    pub async fn closed(&self) {
        self.over.cancelled().await;
    }

    /// The session is over.
    pub fn is_closed(&self) -> bool {
        self.over.is_cancelled()
    }

    /// It is over because its task panicked. What it had announced is in its file.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// How it is just now.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// For `atomic status`.
    pub fn report(&self) -> SessionReport {
        let status = self.status();
        SessionReport {
            id: self.info.id.clone(),
            name: status.name,
            file: self.info.file.as_ref().map(|path| path.to_string_lossy().into_owned()),
            cwd: self.info.cwd.to_string_lossy().into_owned(),
            created: self.info.header.timestamp.iso(),
            clients: status.clients,
            running: status.running,
        }
    }
}

/// What a session can be told.
#[derive(Debug)]
pub enum SessionMessage {
    /// A client asks something.
    Command {
        /// Its right to an answer.
        ticket: Ticket,
        /// What it asks.
        command: Command,
    },
    /// A line that was not understood; it is answered in its place among the others.
    Refused {
        /// Who sent it.
        client: Arc<Client>,
        /// Its number.
        line: u64,
        /// The answer.
        answer: Bytes,
    },
    /// A client runs a shell command.
    Bash {
        /// Its right to an answer.
        ticket: Ticket,
        /// The command line.
        command: String,
        /// Keep the result from the model.
        exclude_from_context: bool,
        /// Ends the command.
        cancel: CancellationToken,
    },
    /// A shell command has ended.
    BashDone(work::BashDone),
    /// A step of a compaction is done.
    Compaction(compaction::CompactionDone),
    /// The models were looked for again.
    Models(servers::Found),
    /// This client has no more to ask, and what it still waits for took too long: its `compact` is cancelled.
    Late(u64),
    /// A client wants to hear and ask.
    Attach(Attachment),
    /// A client wants to leave in good order; `left` is told when the session has let it go.
    Leave {
        /// Who.
        client: u64,
        /// How.
        leaving: Leaving,
        /// What it wants for a run that is active; none: as the settings say.
        on_disconnect: Option<OnDisconnect>,
        /// Told when it has left.
        left: oneshot::Sender<()>,
    },
    /// Somebody wants to know how it came out, once no run is active.
    Settled(oneshot::Sender<Outcome>),
    /// A new session shall branch off.
    Branch {
        /// Where.
        at: BranchAt,
        /// Gets what it begins with, or why it cannot.
        branch: oneshot::Sender<Result<Branch, String>>,
    },
    /// Somebody wants its file: it ends if no client is attached and nothing runs, and says whether it does.
    Release(oneshot::Sender<bool>),
    /// Abort what runs and drop what waits in the queues.
    Abort,
    /// The daemon leaves: abort, settle, end.
    Shutdown {
        /// Another daemon takes over: what clients were told must be in the file.
        handover: bool,
    },
}

/// How the newest run came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The text blocks of the last answer.
    pub texts: Vec<String>,
    /// Why it is no answer: it failed or was aborted.
    pub failure: Option<String>,
}

/// A client that joins.
#[derive(Debug)]
pub struct Attachment {
    /// Who.
    pub client: Arc<Client>,
    /// Sent to it first.
    pub greeting: Bytes,
    /// Variables of its environment that replace the session's.
    pub environment: Vec<(OsString, OsString)>,
    /// Told when it is attached.
    pub attached: oneshot::Sender<()>,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It has no more to ask and still listens.
    Eof,
    /// The same, and it wants to hear how the run ends.
    Drain,
    /// It does not listen any more.
    Gone,
    /// It goes on in another session.
    Replaced,
}
