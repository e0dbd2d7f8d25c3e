//! A small client for programs and tests that use no shim.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use atomic_protocol::frame::LineSplitter;
use atomic_protocol::link::{Hello, Reply};
use bytes::Bytes;
use interprocess::local_socket::Stream;

use crate::connect::{Attached, connect};
use crate::error::LinkError;
use crate::place::Place;

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;

/// A connection to a daemon, line by line.
#[derive(Debug)]
pub struct Client {
    stream: Arc<Stream>,
    reply: Reply,
    lines: LineSplitter,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects to a running daemon and says `hello`; look at [`Client::reply`] before anything else.
    ///
    /// # Errors
    /// As [`connect`].
    pub fn connect(place: &Place, hello: &Hello, within: Duration) -> Result<Client, LinkError> {
        connect(place, hello, within).map(Client::new)
    }

    /// Goes on with an attached connection.
    pub fn new(attached: Attached) -> Client {
        let mut lines = LineSplitter::new();
        lines.push(&attached.early);
        Client { stream: attached.stream, reply: attached.reply, lines, buffer: vec![0; READ_BYTES] }
    }

    /// The daemon's first line.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Sends one record; the LF is added.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn send_line(&mut self, record: &[u8]) -> Result<(), LinkError> {
        let mut line = Vec::with_capacity(record.len() + 1);
        line.extend_from_slice(record);
        line.push(b'\n');
        (&mut &*self.stream).write_all(&line).map_err(LinkError::Lost)
    }

    /// Waits for the next record and gives it without its LF; `None` when the daemon closed the connection. Link
    /// records, if the hello asked for them, come too: they begin with [`atomic_protocol::link::MARK`].
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn next_record(&mut self) -> Result<Option<Bytes>, LinkError> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return Ok(Some(line));
            }
            match (&mut &*self.stream).read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(read) => self.lines.push(&self.buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(LinkError::Lost(error)),
            }
        }
    }
}
