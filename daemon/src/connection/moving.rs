//! A connection goes on in another session: a fresh one, a branch, a stored or an imported one.

use std::path::PathBuf;
use std::sync::Arc;

use atomic_protocol::cli::SessionOptions;
use atomic_protocol::json::ObjectWriter;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::{Client, leave};
use crate::daemon::Daemon;
use crate::session::branches::BranchAt;
use crate::session::open::{self, Opened};
use crate::session::{Attachment, Leaving, Opening, SessionHandle, SessionMessage};

/// How often a session that ends while it is being joined is opened anew.
const ROUNDS: usize = 3;

/// Where a connection goes.
#[derive(Clone, Debug)]
pub(super) enum Destination {
    /// To a session without a past.
    Fresh {
        /// Recorded in its header.
        parent_session: Option<String>,
    },
    /// To a new session that begins with a branch of the current one.
    Branch(BranchAt),
    /// To the session in this file, which need not exist.
    Stored {
        /// As given, perhaps relative to the session's directory.
        path: String,
    },
    /// To the session with this id, or with one that begins so, which exists.
    Named {
        /// The id.
        id: String,
    },
    /// To a copy of this file.
    Import {
        /// As given.
        path: String,
        /// Where it shall work.
        cwd: Option<String>,
    },
}

/// A connection that has arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) session: SessionHandle,
    /// Lines for the caller's stderr.
    pub(super) notices: Vec<String>,
    /// `data` of the answer.
    pub(super) data: Vec<u8>,
}

/// Enters the other session, then leaves the old one; with an error the client is where it was.
pub(super) async fn go(
    daemon: &Arc<Daemon>,
    client: &Arc<Client>,
    own: &Opening,
    old: &SessionHandle,
    destination: Destination,
) -> Result<Arrival, String> {
    let info = old.info();
    // A name from the command line is that of the session it started.
    let options = SessionOptions { name: None, ..own.options.clone() };
    let opening = Arc::new(Opening {
        // It stays where it is, with what is its own.
        cwd: info.cwd.clone(),
        env: own.env.clone(),
        umask: own.umask,
        options,
        argv: own.argv.clone(),
    });
    let mut text = None;
    for _ in 0..ROUNDS {
        let opened = match &destination {
            Destination::Fresh { parent_session } => {
                open::fresh(daemon, opening.clone(), parent_session.clone()).await
            }
            Destination::Branch(at) => {
                let (branch, answer) = oneshot::channel();
                old.send(SessionMessage::Branch { at: at.clone(), branch }).await;
                let mut branch = answer.await.map_err(|_| "The session ended".to_owned())??;
                text = branch.text.take();
                open::branched(daemon, opening.clone(), old.info(), branch).await
            }
            Destination::Stored { path } => open::stored(daemon, opening.clone(), path, None).await,
            Destination::Named { id } => open::attached(daemon, opening.clone(), id).await,
            Destination::Import { path, cwd } => {
                let cwd = cwd.as_ref().map(PathBuf::from);
                open::imported(daemon, opening.clone(), old.info(), path, cwd).await
            }
        };
        let Opened { session, notices, joined } = opened.map_err(|error| plain(&error).to_owned())?;
        let data = data(&destination, text.as_deref(), &session);
        if session.info().id == old.info().id {
            return Ok(Arrival { session, notices, data });
        }
        leave(old, client.id, Leaving::Replaced, None).await;
        let (attached, is_attached) = oneshot::channel();
        let environment = if joined { open::joiner_variables(&opening.env) } else { Vec::new() };
        let attachment = Attachment { client: client.clone(), greeting: Bytes::new(), environment, attached };
        session.send(SessionMessage::Attach(attachment)).await;
        if is_attached.await.is_ok() {
            return Ok(Arrival { session, notices, data });
        }
        session.closed().await;
    }
    Err("The session failed to start; the log says why".to_owned())
}

/// A line for stderr as the text of an answer.
fn plain(line: &str) -> &str {
    line.strip_prefix("Error: ").unwrap_or(line)
}

fn data(destination: &Destination, text: Option<&str>, session: &SessionHandle) -> Vec<u8> {
    let mut data = Vec::new();
    let mut object = ObjectWriter::begin(&mut data);
    if let (Destination::Branch(BranchAt::Before(_)), Some(text)) = (destination, text) {
        object.str("text", text);
    }
    object.bool("cancelled", false);
    if let Destination::Named { .. } = destination {
        // Asked for by the beginning of an id: this is what it led to.
        let info = session.info();
        object.str("sessionId", &info.id);
        if let Some(file) = &info.file {
            object.str("sessionFile", &file.to_string_lossy());
        }
    }
    object.end();
    data
}
