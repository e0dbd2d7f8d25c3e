//! The right, and the duty, to answer one line once.

use std::sync::Arc;

use atomic_protocol::json::Raw;
use atomic_protocol::response;
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::connection::Client;
use crate::long::{LONG_BYTES, Long};
use crate::outbox::Record;

/// One line that waits for its answer. Answering consumes it; dropping it unanswered (a session that failed) answers
/// with an error, so that no client waits for ever.
#[derive(Debug)]
pub struct Ticket {
    client: Arc<Client>,
    line: u64,
    id: Option<Raw>,
    command: &'static str,
    /// It holds the connection's ordinary lane.
    lane: bool,
    answered: bool,
    /// Where the answer goes when it is not for the client: a connection asks on its behalf.
    reply: Option<oneshot::Sender<Reply>>,
}

/// An answer that does not go to the client: success, or what went wrong.
pub type Reply = Result<(), String>;

impl Ticket {
    /// A ticket for line `line` of `client`.
    pub fn new(client: Arc<Client>, line: u64, id: Option<Raw>, command: &'static str, lane: bool) -> Ticket {
        client.opened();
        Ticket { client, line, id, command, lane, answered: false, reply: None }
    }

    /// A ticket for a command that a connection gives on behalf of `client`, and where the answer will be.
    pub fn on_behalf(client: Arc<Client>, command: &'static str) -> (Ticket, oneshot::Receiver<Reply>) {
        let (reply, answer) = oneshot::channel();
        let reply = Some(reply);
        (Ticket { client, line: 0, id: None, command, lane: false, answered: false, reply }, answer)
    }

    /// Who asked.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The raw id of the line.
    pub fn id(&self) -> Option<&Raw> {
        self.id.as_ref()
    }

    /// The number of the line on its connection.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Answers with success and data.
    pub fn succeed(mut self, data: Option<&[u8]>) {
        self.finish(Ok(data));
    }

    /// Answers with data that lies in memory in parts. Long data is put together while the client takes it.
    pub fn succeed_with(mut self, data: Vec<Bytes>) {
        if data.iter().map(Bytes::len).sum::<usize>() < LONG_BYTES || self.reply.is_some() {
            return self.finish(Ok(Some(&data.concat())));
        }
        self.answered = true;
        let (before, after) = response::around(self.id.as_ref(), self.command);
        let parts = std::iter::once(before.into()).chain(data).chain([after.into()]).collect();
        self.client.outbox.answer(self.line, Some(Record::Long(Long::new(parts))));
        self.client.closed(self.lane);
    }

    /// Answers with an error.
    pub fn fail(mut self, error: &str) {
        self.finish(Err(error));
    }

    /// Answers with what an agent said.
    pub fn answer(self, result: Result<Option<Raw>, String>) {
        match result {
            Ok(Some(data)) => self.succeed_with(vec![data.bytes().clone()]),
            Ok(None) => self.succeed(None),
            Err(error) => self.fail(&error),
        }
    }

    fn finish(&mut self, result: Result<Option<&[u8]>, &str>) {
        self.answered = true;
        if let Some(reply) = self.reply.take() {
            // Who asked may not care any more.
            let _ = reply.send(result.map(drop).map_err(str::to_owned));
            return;
        }
        let record = match result {
            Ok(data) => response::success(self.id.as_ref(), self.command, data),
            Err(error) => response::failure(self.id.as_ref(), self.command, error),
        };
        self.client.outbox.answer(self.line, Some(Record::Lines(record.into())));
        self.client.closed(self.lane);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered {
            self.finish(Err("The session ended before this command was answered"));
        }
    }
}
