//! The way to the daemon: the caller's lines and link records, over one connection after the other.
//!
//! A line goes first to those that wait for an answer and then to the connection that was up at that moment. When there
//! is none, or it is lost in between, the line is part of what whoever makes the next connection sends first. So each
//! line is sent once on each connection, in order, whichever thread is quicker.

use std::io::{self, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockResult};
use std::time::Duration;

use atomic_link::Stream;
use atomic_protocol::link::FromShim;

use crate::filter::LineGuard;
use crate::pending::Pending;

/// Bytes read from stdin at once: commands are short, and each touched page counts in every shim.
const FROM_STDIN_BYTES: usize = 16 * 1024;

/// Bytes taken from stdin while no daemon is there to take them: they are answered should none come. The rest waits in
/// the caller's pipe.
const OFFLINE_BYTES: usize = 1024 * 1024;

/// Gives the next bytes of the caller's lines; none is the end.
pub(crate) type Source = Box<dyn FnMut(&mut [u8]) -> io::Result<usize> + Send>;

/// The caller's lines. Held when a connection begins or ends, never while something is sent.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Those without an answer.
    pub(crate) pending: Pending,
    /// There will be no more.
    pub(crate) ended: bool,
    /// Number of the connection that is up.
    pub(crate) connection: Option<u64>,
}

/// The lines and the connection that takes them.
#[derive(Default)]
pub(crate) struct Up {
    lines: Mutex<Lines>,
    /// A connection is up again.
    connected: Condvar,
    wire: Mutex<Wire>,
}

impl Up {
    /// The lines.
    pub(crate) fn lines(&self) -> MutexGuard<'_, Lines> {
        lock(&self.lines)
    }

    /// The lines, if nobody has them now.
    pub(crate) fn try_lines(&self) -> TryLockResult<MutexGuard<'_, Lines>> {
        self.lines.try_lock()
    }

    /// Takes the caller's lines to their end.
    pub(crate) fn copy(&self, mut source: Source) {
        let mut buffer = vec![0; FROM_STDIN_BYTES];
        let mut bytes = Vec::new();
        let mut guard = LineGuard::default();
        let mut offline = 0;
        loop {
            // A stdin that cannot be read has ended.
            let read = source(&mut buffer).unwrap_or(0);
            bytes.clear();
            if read > 0 {
                guard.pass(&buffer[..read], &mut bytes);
            } else if guard.in_line() {
                bytes.push(b'\n');
            }
            let mut lines = self.lines();
            lines.pending.add(&bytes);
            lines.ended = read == 0;
            if let Some(connection) = lines.connection {
                drop(lines);
                offline = 0;
                if read == 0 {
                    bytes.extend_from_slice(&FromShim::Eof.to_line());
                }
                // A connection that is lost is the other thread's affair: it sees it end.
                let _ = lock(&self.wire).send(connection, &bytes);
            } else {
                offline += bytes.len();
                while offline >= OFFLINE_BYTES && read > 0 && lines.connection.is_none() {
                    lines = self.connected.wait(lines).unwrap_or_else(PoisonError::into_inner);
                }
            }
            if read == 0 {
                return;
            }
        }
    }

    /// Nobody expects answers to the lines.
    pub(crate) fn expect_no_answers(&self) {
        self.lines().pending.unanswered = true;
    }

    /// Sends from now on over `stream`, first what no daemon has admitted. That is done by the next who sends; gives the
    /// bytes of it, which somebody should send if there are any ([`Up::flush`]).
    pub(crate) fn connect(&self, stream: &Arc<Stream>) -> usize {
        let mut lines = self.lines();
        let mut backlog = lines.pending.backlog();
        if lines.ended {
            backlog.extend_from_slice(&FromShim::Eof.to_line());
        }
        let waiting = backlog.len();
        // The lines stay locked: whoever sees the new number finds the new wire.
        let mut wire = lock(&self.wire);
        let connection = wire.connection + 1;
        *wire = Wire { stream: Some(Arc::clone(stream)), connection, backlog, in_line: false };
        lines.connection = Some(connection);
        self.connected.notify_all();
        waiting
    }

    /// Sends what waits for the connection.
    pub(crate) fn flush(&self) {
        let mut wire = lock(&self.wire);
        let connection = wire.connection;
        let _ = wire.send(connection, &[]);
    }

    /// Sends a link record, if the way is free within `patience`. Later sends wait no longer than that.
    pub(crate) fn try_record(&self, connection: u64, record: FromShim, patience: Duration) -> bool {
        match self.wire.try_lock() {
            Ok(mut wire) => {
                let _ = wire.limit(patience).and_then(|()| wire.record(connection, record));
                true
            }
            Err(_) => false,
        }
    }
}

/// A connection as lines and link records share it.
#[derive(Default)]
struct Wire {
    stream: Option<Arc<Stream>>,
    /// Connections count from 1.
    connection: u64,
    /// What goes before everything else.
    backlog: Vec<u8>,
    /// The last line has no LF yet.
    in_line: bool,
}

impl Wire {
    /// Sends `bytes` if they are for this connection.
    fn send(&mut self, connection: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(stream) = self.stream.as_deref().filter(|_| connection == self.connection) else {
            return Ok(());
        };
        let backlog = std::mem::take(&mut self.backlog);
        for part in [&backlog, bytes] {
            if let Some(last) = part.last() {
                self.in_line = *last != b'\n';
                (&mut &*stream).write_all(part)?;
            }
        }
        Ok(())
    }

    /// Sends a link record, ending an open line first.
    fn record(&mut self, connection: u64, record: FromShim) -> io::Result<()> {
        self.send(connection, &[])?;
        let mut bytes = Vec::new();
        if self.in_line {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(&record.to_line());
        self.send(connection, &bytes)
    }

    /// Bounds how long later sends may wait.
    fn limit(&self, time: Duration) -> io::Result<()> {
        use atomic_link::StreamLimits as _;
        self.stream.as_deref().map_or(Ok(()), |stream| stream.set_send_timeout(Some(time)))
    }
}

/// The state behind these locks is whole even if a thread died with one held: each change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
