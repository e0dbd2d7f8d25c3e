//! Events as records, written once for each dialect that a client of the session speaks.

use std::sync::Arc;

use atomic_protocol::cli::Dialect;
use atomic_protocol::event::Event;
use atomic_protocol::legacy::Cumulative;
use bytes::Bytes;

use crate::connection::Client;
use crate::long::{LONG_BYTES, Long};

/// Records that are not sent yet, in each dialect in use.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Spoken>);

#[derive(Debug)]
struct Spoken {
    dialect: Dialect,
    writer: Writer,
    /// Records before `bytes`.
    before: Vec<Written>,
    bytes: Vec<u8>,
}

/// Records that are complete.
#[derive(Debug)]
enum Written {
    Lines(Bytes),
    /// A long record in parts, most of which every dialect shares.
    Long(Vec<Bytes>),
}

impl Spoken {
    fn new(dialect: Dialect, writer: Writer) -> Spoken {
        Spoken { dialect, writer, before: Vec::new(), bytes: Vec::new() }
    }

    fn write(&mut self, event: &Event) {
        match event {
            // What a compaction came to may be megabytes, and is never copied.
            Event::CompactionEnd(end)
                if end.result.as_ref().is_some_and(|r| r.bytes().len() >= LONG_BYTES) =>
            {
                self.close();
                self.before.push(Written::Long(end.line_in_parts()));
            }
            _ => self.writer.write(event, &mut self.bytes),
        }
    }

    fn close(&mut self) {
        if !self.bytes.is_empty() {
            self.before.push(Written::Lines(std::mem::take(&mut self.bytes).into()));
        }
    }
}

/// Writes events in one dialect.
#[derive(Debug)]
enum Writer {
    Plain(Dialect),
    Cumulative(Box<Cumulative>),
}

impl Writer {
    fn new(dialect: Dialect) -> Writer {
        match dialect {
            Dialect::Legacy => {
                Writer::Cumulative(Box::new(Cumulative::new(atomic_providers::beginning_of_arguments)))
            }
            dialect => Writer::Plain(dialect),
        }
    }

    fn write(&mut self, event: &Event, out: &mut Vec<u8>) {
        match self {
            Writer::Plain(dialect) => event.write_line_in(*dialect, out),
            Writer::Cumulative(cumulative) => cumulative.write_line(event, out),
        }
    }
}

impl Records {
    pub(super) fn write(&mut self, event: &Event) {
        for spoken in &mut self.0 {
            spoken.write(event);
        }
    }

    /// Sends what was written to the clients.
    pub(super) fn send(&mut self, clients: &[Arc<Client>]) {
        for spoken in &mut self.0 {
            spoken.close();
            for written in spoken.before.drain(..) {
                for client in clients.iter().filter(|client| client.dialect() == spoken.dialect) {
                    match &written {
                        Written::Lines(lines) => client.outbox.push(lines.clone()),
                        Written::Long(parts) => client.outbox.push_long(Long::new(parts.clone())),
                    }
                }
            }
        }
    }

    /// `client` joins, and first hears `events`. What was written before is sent.
    pub(super) fn join(&mut self, client: &Client, events: &[Event]) {
        let dialect = client.dialect();
        let (records, writer) = written(dialect, events);
        client.outbox.push(records);
        if !self.0.iter().any(|spoken| spoken.dialect == dialect) {
            // It knows what was told, as the client does.
            self.0.push(Spoken::new(dialect, writer));
        }
    }

    /// Writes no more in dialects that nobody speaks.
    pub(super) fn keep_for(&mut self, clients: &[Arc<Client>]) {
        self.0.retain(|spoken| clients.iter().any(|client| client.dialect() == spoken.dialect));
    }
}

/// Sends `events` to one client only.
pub(super) fn tell(client: &Client, events: &[Event]) {
    client.outbox.push(written(client.dialect(), events).0);
}

fn written(dialect: Dialect, events: &[Event]) -> (Bytes, Writer) {
    let mut writer = Writer::new(dialect);
    let mut records = Vec::new();
    for event in events {
        writer.write(event, &mut records);
    }
    (records.into(), writer)
}
