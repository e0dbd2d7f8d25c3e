//! A client of `--mode json` or `-p`: its messages are run one after the other, then it is let go.
//!
//! The client sends `prompt` lines and says where they end; nothing begins before. Answers do not go to it: a refused
//! message ends everything with its text on stderr, a run that failed does not (reference 6).

use std::sync::Arc;

use atomic_protocol::command::{Command, Request};
use atomic_protocol::frame::LineSplitter;
use atomic_protocol::json::Fields;
use atomic_protocol::link::{FromDaemon, FromShim, MARK, Mode};
use bytes::Bytes;
use tokio::sync::oneshot;

use super::{Client, leave};
use crate::daemon::Daemon;
use crate::session::{Leaving, Outcome, SessionHandle, SessionMessage};
use crate::settings::OnDisconnect;
use crate::ticket::Ticket;
use crate::transport::ReadHalf;

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 16 << 10;

/// Messages of one client. A command line holds fewer.
pub const MAX_MESSAGES: usize = 1024;

/// Why a client's messages are over.
enum End {
    /// All of them were run; how the last one came out, if there was one.
    Run(Option<Outcome>),
    /// One was refused, for this reason.
    Refused(String),
    /// The shim got a signal and listens for a moment yet.
    Signal,
    /// The client is gone.
    Gone,
    /// The session is over.
    Session,
    /// The daemon leaves.
    Shutdown,
}

/// Serves one such client to its end.
pub struct Messages {
    /// The daemon.
    pub daemon: Arc<Daemon>,
    /// The client, attached to the session.
    pub client: Arc<Client>,
    /// Its bytes.
    pub read: ReadHalf,
    /// Those that came with the hello.
    pub lines: LineSplitter,
    /// The session.
    pub session: SessionHandle,
    /// [`Mode::Json`] or [`Mode::Print`].
    pub mode: Mode,
    /// `--on-disconnect`.
    pub on_disconnect: Option<OnDisconnect>,
}

impl Messages {
    /// Runs them and says goodbye.
    pub async fn run(mut self) {
        let (end, begun) = match self.take().await {
            Ok(messages) => (self.run_all(messages).await, true),
            Err(end) => (end, false),
        };
        // A session that failed in the middle of telling something leaves it unsent.
        self.client.outbox.release();
        let on_disconnect = match end {
            // The run that is interrupted was for this client, unless it said otherwise.
            End::Signal | End::Gone if begun => Some(self.on_disconnect.unwrap_or(OnDisconnect::Abort)),
            _ => self.on_disconnect,
        };
        let leaving = if matches!(end, End::Gone) { Leaving::Gone } else { Leaving::Eof };
        let print = self.mode == Mode::Print;
        let (code, text) = match end {
            End::Run(Some(Outcome { failure: Some(why), .. })) => (1, print.then_some(why)),
            End::Run(outcome) => {
                if let Some(outcome) = outcome.filter(|_| print) {
                    self.client.outbox.say(lines_of(&outcome.texts));
                }
                (0, None)
            }
            End::Refused(why) => (1, Some(why)),
            End::Signal | End::Gone => (1, None),
            End::Session => (1, Some(format!("Error: session {} ended", self.session.info().id))),
            End::Shutdown => {
                let settled = self.session.closed();
                let _ = tokio::time::timeout(crate::shutdown::SETTLE_DEADLINE, settled).await;
                (1, Some("Error: atomicd was stopped".to_owned()))
            }
        };
        leave(&self.session, self.client.id, leaving, on_disconnect).await;
        self.client.outbox.link(&FromDaemon::Exit { code, text });
        // A pipe into a pager is read when the person scrolls: that may take long.
        tokio::select! {
            () = self.client.outbox.emptied() => {}
            () = self.daemon.shutdown.cancelled() => self.client.outbox.drained().await,
        }
        self.client.outbox.close();
    }

    /// All messages.
    async fn take(&mut self) -> Result<Vec<Command>, End> {
        let mut messages = Vec::new();
        loop {
            while let Some(line) = self.lines.next_line() {
                if line.first() == Some(&MARK) {
                    match record(&line) {
                        Some(FromShim::Eof) => return Ok(messages),
                        Some(FromShim::Signal(_)) => return Err(End::Signal),
                        None => continue,
                    }
                }
                if messages.len() == MAX_MESSAGES {
                    return Err(End::Refused(format!("Error: these are more than {MAX_MESSAGES} messages")));
                }
                messages.push(prompt(&line).map_err(End::Refused)?);
            }
            self.read_more().await?;
        }
    }

    async fn run_all(&mut self, messages: Vec<Command>) -> End {
        let mut last = None;
        for message in messages {
            let (ticket, answer) = Ticket::on_behalf(self.client.clone(), message.name());
            self.session.send(SessionMessage::Command { ticket, command: message }).await;
            match self.unless_over(answer).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return End::Refused(why),
                Err(end) => return end,
            }
            let (settled, outcome) = oneshot::channel();
            self.session.send(SessionMessage::Settled(settled)).await;
            match self.unless_over(outcome).await {
                Ok(outcome) => last = Some(outcome),
                Err(end) => return end,
            }
        }
        End::Run(last)
    }

    /// What the session says, unless the client, the session or the daemon ends first.
    async fn unless_over<T>(&mut self, said: oneshot::Receiver<T>) -> Result<T, End> {
        tokio::pin!(said);
        loop {
            tokio::select! {
                biased;
                said = &mut said => return said.map_err(|_| End::Session),
                read = self.read_more() => read?,
            }
            while let Some(line) = self.lines.next_line() {
                if line.first() == Some(&MARK) && matches!(record(&line), Some(FromShim::Signal(_))) {
                    return Err(End::Signal);
                }
            }
        }
    }

    /// Waits for more bytes of the client. Nothing is lost when this is dropped.
    async fn read_more(&mut self) -> Result<(), End> {
        self.lines.buffer().reserve(READ_BYTES);
        tokio::select! {
            biased;
            () = self.daemon.shutdown.cancelled() => Err(End::Shutdown),
            () = self.session.closed() => Err(End::Session),
            read = self.read.read(self.lines.buffer()) => match read {
                Ok(1..) => Ok(()),
                Ok(0) | Err(_) => Err(End::Gone),
            },
        }
    }
}

fn record(line: &[u8]) -> Option<FromShim> {
    std::str::from_utf8(&line[1..]).ok().and_then(FromShim::parse)
}

/// The prompt of a line, or the text that refuses it.
fn prompt(line: &Bytes) -> Result<Command, String> {
    match Request::parse(line) {
        Ok(Request { command: command @ Command::Prompt { .. }, .. }) => Ok(command),
        Ok(Request { command, .. }) => {
            Err(format!("Error: only messages are run in this mode, not {}", command.name()))
        }
        Err(answer) => {
            let answer = String::from_utf8_lossy(&answer).into_owned();
            let error = Fields::parse(&answer).ok().and_then(|fields| fields.str("error").map(String::from));
            Err(format!("Error: {}", error.unwrap_or(answer)))
        }
    }
}

/// Each text with its LF.
fn lines_of(texts: &[String]) -> Bytes {
    texts.iter().flat_map(|text| [text.as_str(), "\n"]).collect::<String>().into()
}
