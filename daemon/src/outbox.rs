//! What waits to be sent to one client: a queue counted in bytes, and the socket behind it.
//!
//! Whoever has something to say pushes it and, when the socket takes it, has sent it in the same call: no task in
//! between. What the socket does not take waits here; the writer task sends it when the socket is ready. Link records
//! about the client's lines are written together with the records they concern.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, IoSlice};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atomic_protocol::json::Raw;
use atomic_protocol::link::{FromDaemon, KEEP_LINE_BYTES};
use bytes::Bytes;
use tokio::sync::Notify;

use crate::long::Long;
use crate::transport::WriteHalf;

/// Bytes that may wait for one client (shared with other clients' outboxes). When every client of a session is above
/// this, its run waits.
pub const OUTBOX_BYTES: usize = 64 << 20;

/// A client above [`OUTBOX_BYTES`] that takes no byte for this long while others read is let go.
pub const STUCK_READER: Duration = Duration::from_secs(5);

/// A client that reads, but so slowly that this much waits while others keep up, is let go as well.
pub const HOPELESS_BYTES: usize = 2 * OUTBOX_BYTES;

/// How long a connection that ends may take to hand over what waits.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

/// Slices handed to one write call; the kernel takes at most 1024.
const SLICES: usize = 64;

/// The queue and the socket.
#[derive(Debug)]
pub struct Outbox {
    state: Mutex<State>,
    socket: WriteHalf,
    /// Link records are wanted.
    records: bool,
    /// The socket took less than there was: the writer has work.
    blocked: Notify,
    /// Something was taken by the socket, or the outbox closed.
    moved: Notify,
}

/// What waits.
#[derive(Debug)]
enum Waiting {
    /// Complete lines.
    Lines(Bytes),
    /// One line, of which a piece is there.
    Long(Long),
}

impl Waiting {
    /// What can be sent now.
    fn slice(&self) -> &Bytes {
        match self {
            Waiting::Lines(lines) => lines,
            Waiting::Long(long) => long.piece(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Waiting::Lines(lines) => lines.len(),
            Waiting::Long(long) => long.piece().len() + long.left(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Waiting>,
    /// Bytes of `queue`, less those of the first slice that are sent.
    bytes: usize,
    /// Bytes of the first slice that are sent.
    sent: usize,
    /// The writer task is waiting for the socket.
    waiting: bool,
    /// The session's records are not for this client.
    muted: bool,
    /// U+2028 and U+2029 are written as escapes.
    escaped: bool,
    /// More is coming at once: nothing is sent before it is complete.
    held: bool,
    /// Nothing can be sent any more.
    closed: bool,
    /// What waits is still sent, then the outbox closes.
    ending: bool,
    /// Since when the client has been above the bound without taking a byte, and how much it had taken then.
    stuck: Option<(Instant, u64)>,
    admitted: u64,
    told_admitted: u64,
    answered: Vec<u64>,
    ids: BTreeMap<u64, Raw>,
    /// Bytes the socket has taken since the beginning.
    total: u64,
}

impl State {
    fn append(&mut self, record: Record) {
        let waiting = match (record, self.escaped) {
            (Record::Lines(lines), true) => Waiting::Lines(separators_escaped(lines)),
            (Record::Lines(lines), false) => Waiting::Lines(lines),
            (Record::Long(mut long), escaped) => {
                if escaped {
                    long.map_piece(separators_escaped);
                }
                Waiting::Long(long)
            }
        };
        self.bytes += waiting.bytes();
        self.queue.push_back(waiting);
    }

    /// The socket took this many bytes of what waits.
    fn took(&mut self, mut taken: usize) {
        self.total += taken as u64;
        self.bytes -= taken;
        while let Some(first) = self.queue.front_mut() {
            let left = first.slice().len() - self.sent;
            if taken < left {
                self.sent += taken;
                return;
            }
            taken -= left;
            self.sent = 0;
            if let Waiting::Long(long) = first
                && long.advance()
            {
                if self.escaped {
                    let plain = long.piece().len();
                    long.map_piece(separators_escaped);
                    self.bytes += long.piece().len() - plain;
                }
            } else {
                self.queue.pop_front();
            }
        }
    }

    /// Drops what waits, from the next record boundary on.
    fn cut(&mut self) {
        let first = self.queue.pop_front();
        self.queue.clear();
        self.bytes = 0;
        let sent = std::mem::take(&mut self.sent);
        match first {
            Some(Waiting::Lines(lines)) if sent > 0 && lines[sent - 1] != b'\n' => {
                let end = memchr::memchr(b'\n', &lines[sent..]).map_or(lines.len(), |at| sent + at + 1);
                self.queue.push_back(Waiting::Lines(lines.slice(sent..end)));
            }
            Some(Waiting::Long(mut long)) if sent > 0 || long.has_begun() => {
                long.map_piece(|piece| piece.slice(sent..));
                self.queue.push_back(Waiting::Long(long));
            }
            _ => {}
        }
        self.bytes = self.queue.iter().map(Waiting::bytes).sum();
    }
}

/// What an outbox is given to answer with.
#[derive(Debug)]
pub enum Record {
    /// Complete lines.
    Lines(Bytes),
    /// One line, made while it is sent.
    Long(Long),
}

/// The record with U+2028 and U+2029, which can stand in strings only, as their escapes.
fn separators_escaped(record: Bytes) -> Bytes {
    const SEPARATOR: &[u8] = b"\xe2\x80";
    let mut found = memchr::memmem::find_iter(&record, SEPARATOR)
        .filter(|at| matches!(record.get(at + 2), Some(0xa8 | 0xa9)))
        .peekable();
    if found.peek().is_none() {
        return record;
    }
    let mut escaped = Vec::with_capacity(record.len() + 16);
    let mut from = 0;
    for at in found {
        escaped.extend_from_slice(&record[from..at]);
        escaped.extend_from_slice(if record[at + 2] == 0xa8 { b"\\u2028" } else { b"\\u2029" });
        from = at + 3;
    }
    escaped.extend_from_slice(&record[from..]);
    escaped.into()
}

impl Outbox {
    /// An empty outbox.
    pub fn new(socket: WriteHalf, records: bool) -> Outbox {
        Outbox { state: Mutex::default(), socket, records, blocked: Notify::new(), moved: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a session tells ([`Outbox::push`]) does not go to this client.
    pub fn mute(&self) {
        self.state().muted = true;
    }

    /// From now on U+2028 and U+2029 are written as escapes, for a client that takes them for line ends.
    pub fn escape_separators(&self) {
        self.state().escaped = true;
    }

    /// Sends a record (complete lines) of the session.
    pub fn push(&self, record: Bytes) {
        let state = self.state();
        if !state.muted {
            self.enqueue(state, record);
        }
    }

    /// Sends a long record of the session.
    pub fn push_long(&self, record: Long) {
        let mut state = self.state();
        if !state.muted && !state.closed && !state.ending {
            state.append(Record::Long(record));
            self.send(&mut state);
        }
    }

    /// Sends what the connection itself has to say (complete lines).
    pub fn say(&self, lines: Bytes) {
        self.enqueue(self.state(), lines);
    }

    fn enqueue(&self, mut state: MutexGuard<'_, State>, record: Bytes) {
        // An empty write would look like a closed socket.
        if !state.closed && !state.ending && !record.is_empty() {
            state.append(Record::Lines(record));
            self.send(&mut state);
        }
    }

    /// Sends the record that answers line `line`, or only notes that the line needs none.
    pub fn answer(&self, line: u64, record: Option<Record>) {
        let mut state = self.state();
        if state.closed || state.ending {
            return;
        }
        if self.records {
            state.answered.push(line);
            state.ids.remove(&line);
        }
        if let Some(record) = record {
            state.append(record);
        }
        self.send(&mut state);
    }

    /// What is pushed from now on is sent together by [`Outbox::release`]: one write instead of several.
    pub fn hold(&self) {
        self.state().held = true;
    }

    /// Sends what was held.
    pub fn release(&self) {
        let mut state = self.state();
        state.held = false;
        if !state.closed {
            self.send(&mut state);
        }
    }

    /// Notes that every line up to `line` is admitted. Told with the next record, or at once when `now`: before a line
    /// with an effect is acted on, so that after a crash nobody takes it for one that was not.
    pub fn admit(&self, line: u64, bytes: usize, id: Option<&Raw>, now: bool) {
        if !self.records {
            return;
        }
        let mut state = self.state();
        state.admitted = line;
        if bytes > KEEP_LINE_BYTES
            && let Some(id) = id
        {
            state.ids.insert(line, id.clone());
        }
        if now && !state.closed {
            self.send(&mut state);
        }
    }

    /// Sends a link record, if the client wants them.
    pub fn link(&self, record: &FromDaemon) {
        if self.records {
            let mut line = Vec::new();
            record.write_line(&mut line);
            self.say(line.into());
        }
    }

    /// More waits than should.
    pub fn is_full(&self) -> bool {
        let state = self.state();
        !state.closed && !state.ending && state.bytes >= OUTBOX_BYTES
    }

    /// Why a client should be let go, if it should: others read and it does not.
    pub fn is_hopeless(&self, now: Instant) -> Option<&'static str> {
        let mut state = self.state();
        if state.closed || state.ending || state.bytes < OUTBOX_BYTES {
            state.stuck = None;
            return None;
        }
        if state.bytes >= HOPELESS_BYTES {
            return Some("it reads too slowly");
        }
        match state.stuck {
            Some((since, total)) if total == state.total => {
                (now.duration_since(since) >= STUCK_READER).then_some("it stopped reading")
            }
            _ => {
                state.stuck = Some((now, state.total));
                None
            }
        }
    }

    /// Lets the client go: what waits is dropped from the next record boundary on, `text` is said in a link record, and
    /// then the outbox closes.
    pub fn cut(&self, text: &str) {
        let mut state = self.state();
        state.cut();
        if self.records {
            let mut line = Vec::new();
            FromDaemon::Exit { code: 1, text: Some(text.to_owned()) }.write_line(&mut line);
            state.append(Record::Lines(line.into()));
        }
        state.answered.clear();
        state.ending = true;
        self.moved.notify_waiters();
        self.send(&mut state);
    }

    /// The client cannot be reached any more.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Bytes the client has taken since the beginning.
    pub fn taken(&self) -> u64 {
        self.state().total
    }

    /// Drops what waits and takes nothing more.
    pub fn close(&self) {
        let mut state = self.state();
        self.close_locked(&mut state);
    }

    fn close_locked(&self, state: &mut State) {
        state.closed = true;
        state.queue.clear();
        state.bytes = 0;
        self.blocked.notify_one();
        self.moved.notify_waiters();
    }

    /// The socket took less than there was: what was told last may not have left.
    pub fn is_blocked(&self) -> bool {
        let state = self.state();
        state.waiting && !state.closed
    }

    /// Waits until the socket has taken everything, or the outbox closes.
    pub async fn unblocked(&self) {
        loop {
            let moved = self.moved.notified();
            if !self.is_blocked() {
                return;
            }
            moved.await;
        }
    }

    /// Waits until no more waits than should, or the outbox closes. Listens before it looks, so that a socket that takes
    /// everything in between is not missed.
    pub async fn has_room(&self) {
        loop {
            let moved = self.moved.notified();
            if !self.is_full() {
                return;
            }
            moved.await;
        }
    }

    /// Waits until nothing waits, at most [`DRAIN_DEADLINE`].
    pub async fn drained(&self) {
        let _ = tokio::time::timeout(DRAIN_DEADLINE, self.emptied()).await;
    }

    /// Waits until nothing waits, however long the client takes.
    pub async fn emptied(&self) {
        loop {
            let moved = self.moved.notified();
            if self.state().bytes == 0 {
                return;
            }
            moved.await;
        }
    }

    /// Gives the socket what it takes now.
    fn send(&self, state: &mut State) {
        if state.held {
            return;
        }
        if self.records && (!state.answered.is_empty() || state.admitted > state.told_admitted) {
            let admitted = (state.admitted > state.told_admitted).then_some(state.admitted);
            state.told_admitted = state.admitted;
            let answered = std::mem::take(&mut state.answered);
            let mut line = Vec::new();
            let ids = std::mem::take(&mut state.ids);
            FromDaemon::Progress { admitted, answered, ids }.write_line(&mut line);
            state.append(Record::Lines(line.into()));
        }
        if !state.waiting && self.flush(state) && state.ending {
            return self.close_locked(state);
        }
        if !state.waiting && !state.queue.is_empty() {
            state.waiting = true;
            self.blocked.notify_one();
        }
    }

    /// Writes until nothing waits (true) or the socket is full (false). Closes on an error.
    fn flush(&self, state: &mut State) -> bool {
        while !state.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, waiting) in slices.iter_mut().zip(&state.queue) {
                let bytes = waiting.slice();
                *slice = IoSlice::new(if count == 0 { &bytes[state.sent..] } else { bytes });
                count += 1;
                // What comes behind a long record comes behind all of it.
                if matches!(waiting, Waiting::Long(long) if long.left() > 0) {
                    break;
                }
            }
            match self.socket.try_write_vectored(&slices[..count]) {
                Ok(0) => {
                    self.close_locked(state);
                    return true;
                }
                Ok(taken) => {
                    state.took(taken);
                    self.moved.notify_waiters();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.close_locked(state);
                    return true;
                }
            }
        }
        true
    }

    /// Sends what the socket did not take at once. Runs until the outbox closes.
    pub async fn write(&self) {
        loop {
            self.blocked.notified().await;
            loop {
                if self.state().closed {
                    return;
                }
                if self.socket.writable().await.is_err() {
                    self.close();
                    return;
                }
                let mut state = self.state();
                if self.flush(&mut state) {
                    state.waiting = false;
                    self.moved.notify_waiters();
                    if state.ending {
                        self.close_locked(&mut state);
                    }
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_become_escapes_and_nothing_else_changes() {
        let escaped = |text: &str| {
            String::from_utf8(separators_escaped(Bytes::from(text.to_owned())).to_vec()).unwrap()
        };
        assert_eq!(escaped("a\u{2028}b\u{2029}\u{2028}\n"), "a\\u2028b\\u2029\\u2028\n");
        assert_eq!(escaped("\u{2027}\u{202a}\u{85}\u{20a8}"), "\u{2027}\u{202a}\u{85}\u{20a8}");
        assert_eq!(escaped("\u{2028}"), "\\u2028");
    }
}
