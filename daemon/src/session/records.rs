//! Events as records, written once for each dialect that a client of the session speaks.

use std::sync::Arc;

use atomic_protocol::cli::Dialect;
use atomic_protocol::event::Event;
use atomic_protocol::legacy::Cumulative;
use bytes::Bytes;

use crate::connection::Client;

/// Records that are not sent yet, in each dialect in use.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Spoken>);

#[derive(Debug)]
struct Spoken {
    dialect: Dialect,
    writer: Writer,
    bytes: Vec<u8>,
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
        for Spoken { writer, bytes, .. } in &mut self.0 {
            writer.write(event, bytes);
        }
    }

    /// Sends what was written to the clients.
    pub(super) fn send(&mut self, clients: &[Arc<Client>]) {
        for Spoken { dialect, bytes, .. } in &mut self.0 {
            if bytes.is_empty() {
                continue;
            }
            let records = Bytes::from(std::mem::take(bytes));
            for client in clients.iter().filter(|client| client.dialect() == *dialect) {
                client.outbox.push(records.clone());
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
            self.0.push(Spoken { dialect, writer, bytes: Vec::new() });
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
