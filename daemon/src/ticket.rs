//! The right, and the duty, to answer one line once.

use std::sync::Arc;

use atomic_protocol::json::Raw;
use atomic_protocol::response;
use bytes::Bytes;

use crate::connection::Client;

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
}

impl Ticket {
    /// A ticket for line `line` of `client`.
    pub fn new(client: Arc<Client>, line: u64, id: Option<Raw>, command: &'static str, lane: bool) -> Ticket {
        client.opened();
        Ticket { client, line, id, command, lane, answered: false }
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
    pub fn succeed(self, data: Option<&[u8]>) {
        let record = response::success(self.id.as_ref(), self.command, data);
        self.finish(record);
    }

    /// Answers with an error.
    pub fn fail(self, error: &str) {
        let record = response::failure(self.id.as_ref(), self.command, error);
        self.finish(record);
    }

    /// Answers with what an agent said.
    pub fn answer(self, result: Result<Option<Raw>, String>) {
        match result {
            Ok(data) => self.succeed(data.as_ref().map(|data| &data.bytes()[..])),
            Err(error) => self.fail(&error),
        }
    }

    fn finish(mut self, record: Vec<u8>) {
        self.answered = true;
        self.client.outbox.answer(self.line, Some(Bytes::from(record)));
        self.client.closed(self.lane);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered {
            let record = response::failure(
                self.id.as_ref(),
                self.command,
                "The session ended before this command was answered",
            );
            self.client.outbox.answer(self.line, Some(Bytes::from(record)));
            self.client.closed(self.lane);
        }
    }
}
