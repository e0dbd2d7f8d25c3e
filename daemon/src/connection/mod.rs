//! One client: bytes to lines, lines to commands, commands to the session it is attached to.
//!
//! A connection owns its lanes and knows its session by a handle; it changes nothing itself. Bad lines are answered
//! here. `new_session` moves the connection from one session to another, so it is done here too, in a task of its own,
//! while other lines go on.

mod holding;
mod lanes;
pub mod messages;
mod moving;

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use atomic_protocol::cli::Dialect;
use atomic_protocol::command::{Command, Lane, Request};
use atomic_protocol::frame::LineSplitter;
use atomic_protocol::json::Raw;
use atomic_protocol::link::{FromDaemon, FromShim, MARK};
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::connection::holding::{Held, Pass};
use crate::connection::lanes::Lanes;
use crate::connection::moving::{Arrival, Destination};
use crate::daemon::Daemon;
use crate::handover::Phase;
use crate::listing::{self, Wanted};
use crate::outbox::{Outbox, STUCK_READER};
use crate::session::branches::BranchAt;
use crate::session::{Leaving, Opening, SessionHandle, SessionMessage};
use crate::settings::OnDisconnect;
use crate::ticket::Ticket;
use crate::transport::ReadHalf;

/// After end of input, lines that wait for `compact`, for the network or for a shell command are cancelled after this.
pub const EOF_GRACE: Duration = Duration::from_secs(2);

/// After a signal to the shim, what is not answered within this is not waited for.
pub const SIGNAL_GRACE: Duration = Duration::from_millis(150);

/// Bytes asked of the socket at once. A longer line makes the buffer grow with it.
const READ_BYTES: usize = 16 << 10;

/// Reading a line of this many bytes takes some milliseconds; from here on another thread takes over whatever else
/// this one would have done meanwhile.
const LONG_LINE: usize = 1 << 20;

/// A client as its session knows it.
#[derive(Debug)]
pub struct Client {
    /// Unique in the daemon's life.
    pub id: u64,
    /// What waits to be sent to it.
    pub outbox: Outbox,
    /// Which program's records it expects; known when its arguments are read.
    dialect: OnceLock<Dialect>,
    /// Lines that are not answered yet.
    open: AtomicUsize,
    /// A line was answered; looked at by the connection.
    answered: Notify,
    /// The line that held the ordinary lane was answered.
    lane_free: Notify,
    /// Shell commands this client runs.
    bash: Mutex<Vec<BashSlot>>,
    standing: AtomicU8,
}

/// What a hand-over needs to know of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// Its lines are admitted as they come.
    Free,
    /// New work is held; some that was admitted before is not done.
    Busy,
    /// New work is held and none is open.
    Quiet,
}

#[derive(Debug)]
struct BashSlot {
    line: u64,
    id: Option<Raw>,
    cancel: CancellationToken,
}

impl Client {
    /// A client that has just connected.
    pub fn new(outbox: Outbox) -> Client {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Client {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            outbox,
            dialect: OnceLock::new(),
            open: AtomicUsize::new(0),
            answered: Notify::new(),
            lane_free: Notify::new(),
            bash: Mutex::default(),
            standing: AtomicU8::new(Standing::Free as u8),
        }
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        match self.standing.load(Ordering::Acquire) {
            0 => Standing::Free,
            1 => Standing::Busy,
            _ => Standing::Quiet,
        }
    }

    /// It has to say anew how it stands.
    pub(crate) fn stand_free(&self) {
        self.standing.store(Standing::Free as u8, Ordering::Release);
    }

    /// Lines of it are not answered yet.
    pub fn has_open_lines(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Which program's records it expects.
    pub fn dialect(&self) -> Dialect {
        self.dialect.get().copied().unwrap_or_default()
    }

    /// Settles how records are written for it, before the first.
    pub fn speak(&self, dialect: Dialect, ascii_separators: bool) {
        // Said once, at the handshake.
        let _ = self.dialect.set(dialect);
        if ascii_separators {
            self.outbox.escape_separators();
        }
    }

    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn closed(&self, lane: bool) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.answered.notify_one();
        if lane {
            self.lane_free.notify_one();
        }
    }

    fn bash(&self) -> std::sync::MutexGuard<'_, Vec<BashSlot>> {
        self.bash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a shell command's id for as long as it runs. `None`: the id is taken.
    fn begin_bash(&self, line: u64, id: Option<&Raw>) -> Option<CancellationToken> {
        let mut slots = self.bash();
        if id.is_some() && slots.iter().any(|slot| slot.id.as_ref() == id) {
            return None;
        }
        let cancel = CancellationToken::new();
        slots.push(BashSlot { line, id: id.cloned(), cancel: cancel.clone() });
        Some(cancel)
    }

    /// The shell command of `line` has ended.
    pub fn end_bash(&self, line: u64) {
        self.bash().retain(|slot| slot.line != line);
    }

    /// Cancels the shell command with this id, or all of them.
    pub(crate) fn cancel_bash(&self, id: Option<&Raw>) {
        for slot in self.bash().iter() {
            if id.is_none() || slot.id.as_ref() == id {
                slot.cancel.cancel();
            }
        }
    }
}

/// A line that may have to wait for its lane.
enum Line {
    Request {
        number: u64,
        request: Request,
    },
    /// Not understood: its answer is known and only waits for its place in the order.
    Refused {
        number: u64,
        answer: Bytes,
    },
}

/// Why a connection ends.
enum End {
    /// The client has no more to say.
    Eof,
    /// The shim got a signal and will not wait.
    Signal,
    /// The session is over.
    Session,
    /// The daemon leaves.
    Shutdown,
}

/// Serves one attached client to its end.
pub struct Connection {
    daemon: Arc<Daemon>,
    client: Arc<Client>,
    read: ReadHalf,
    lines: LineSplitter,
    session: SessionHandle,
    lanes: Lanes<Line>,
    number: u64,
    moving: Option<oneshot::Receiver<Moved>>,
    /// What the client brought along: sessions that it goes on to are made from that, whoever made the one where it is.
    opening: Arc<Opening>,
    /// Lines that are read and not admitted.
    held: Held,
    /// The client has no more to say, but some of it is held.
    ended: Option<End>,
}

/// A replacement that has come to its end.
struct Moved {
    ticket: Ticket,
    result: Result<Arrival, String>,
}

impl Connection {
    /// A connection attached to `session`. `lines` may hold bytes that came with the hello.
    pub fn new(
        daemon: Arc<Daemon>,
        client: Arc<Client>,
        read: ReadHalf,
        lines: LineSplitter,
        session: SessionHandle,
        opening: Arc<Opening>,
    ) -> Connection {
        Connection {
            opening,
            daemon,
            client,
            read,
            lines,
            session,
            lanes: Lanes::default(),
            number: 0,
            moving: None,
            held: Held::default(),
            ended: None,
        }
    }

    /// Runs until the client leaves, its session ends or the daemon does.
    pub async fn run(mut self) {
        let end = self.serve().await;
        // A session that failed in the middle of telling something leaves it unsent.
        self.client.outbox.release();
        let (code, text) = match end {
            End::Eof | End::Signal => {
                self.finish(matches!(end, End::Signal)).await;
                (0, None)
            }
            End::Session if self.session.has_failed() && self.session.info().file.is_some() => {
                return self.break_off().await;
            }
            End::Session => (1, Some(format!("Error: session {} ended", self.session.info().id))),
            End::Shutdown => return self.say_goodbye().await,
        };
        self.client.outbox.link(&FromDaemon::Exit { code, text });
        self.client.outbox.drained().await;
        self.client.outbox.close();
    }

    /// The session failed inside the daemon. For the client that is no more than a daemon that was lost: the connection
    /// ends without a goodbye, so its shim closes the run that is open and attaches again, to what the file holds.
    async fn break_off(self) {
        self.client.cancel_bash(None);
        let id = &self.session.info().id;
        let notice = format!(
            "Warning: session {id} failed inside atomicd (`atomic logs` says how); it is opened again from its file"
        );
        self.client.outbox.link(&FromDaemon::Notice(notice));
        self.client.outbox.drained().await;
        self.client.outbox.close();
    }

    async fn serve(&mut self) -> End {
        let shutdown = self.daemon.shutdown.clone();
        let mut phase = self.daemon.phase.subscribe();
        loop {
            let holding = *phase.borrow_and_update() != Phase::Serving;
            if !holding {
                self.stand(false);
                self.release().await;
            }
            if let Some(end) = self.take_lines(holding).await {
                return end;
            }
            self.stand(holding);
            // Whoever takes no answers gets to ask no more.
            let full = self.client.outbox.is_full();
            let reading = !full && !self.lanes.is_full() && !self.held.is_full() && self.ended.is_none();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return End::Shutdown,
                _ = phase.changed() => {}
                () = self.client.answered.notified(), if holding => {}
                () = self.client.outbox.unblocked(), if !holding && !self.held.is_empty() => {}
                () = self.session.closed(), if self.moving.is_none() => return End::Session,
                () = self.client.lane_free.notified() => {
                    for line in self.lanes.free() {
                        self.start(line).await;
                    }
                }
                moved = moved(&mut self.moving) => self.arrive(moved),
                () = self.client.outbox.has_room(), if full => {}
                read = async {
                    self.lines.buffer().reserve(READ_BYTES);
                    self.read.read(self.lines.buffer()).await
                }, if reading => match read {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => {
                        if let Some(rest) = self.lines.take_rest() {
                            self.line(rest, holding).await;
                        }
                        self.ended = Some(End::Eof);
                    }
                },
            }
        }
    }

    /// Admits the complete lines that have been read.
    async fn take_lines(&mut self, holding: bool) -> Option<End> {
        while self.ended.is_none() && !self.lanes.is_full() && !self.held.is_full() {
            let Some(line) = self.lines.next_line() else { break };
            if line.first() == Some(&MARK) {
                match std::str::from_utf8(&line[1..]).ok().and_then(FromShim::parse) {
                    Some(FromShim::Eof) => self.ended = Some(End::Eof),
                    Some(FromShim::Signal(_)) => return Some(End::Signal),
                    None => {}
                }
                continue;
            }
            self.line(line, holding).await;
        }
        // What is held is the client's last word, and it counts.
        if self.held.is_empty() { self.ended.take() } else { None }
    }

    async fn line(&mut self, line: Bytes, holding: bool) {
        self.number += 1;
        let number = self.number;
        let bytes = line.len();
        let parsed = match bytes {
            ..LONG_LINE => Request::parse(&line),
            _ => tokio::task::block_in_place(|| Request::parse(&line)),
        };
        let (lane, id, line) = match parsed {
            Ok(request) => (request.command.lane(), request.id.clone(), Line::Request { number, request }),
            Err(answer) => (Lane::Read, None, Line::Refused { number, answer: answer.into() }),
        };
        if self.held.aborts_held(&line) {
            if let Line::Request {
                request: Request { command: Command::AbortBash { request_id }, .. }, ..
            } = &line
            {
                self.client.cancel_bash(request_id.as_ref());
            }
            return self.held.push(lane, id, bytes, line);
        }
        let holding = holding || self.client.outbox.is_blocked();
        match self.held.pass(lane, holding, self.lanes.replaces()) {
            Pass::Admit => self.admit(lane, id, bytes, line).await,
            // Its answer tells that it had its turn; before that it does no harm to hear it twice.
            Pass::Ahead => self.start(line).await,
            Pass::Hold => self.held.push(lane, id, bytes, line),
        }
    }

    async fn admit(&mut self, lane: Lane, id: Option<Raw>, bytes: usize, line: Line) {
        let number = match &line {
            Line::Request { number, .. } => *number,
            Line::Refused { number, .. } => {
                self.client.opened();
                *number
            }
        };
        self.client.outbox.admit(number, bytes, id.as_ref(), lane != Lane::Read);
        if let Some(line) = self.lanes.admit(lane, line) {
            self.start(line).await;
        }
    }

    /// Starts a line whose turn has come.
    async fn start(&mut self, line: Line) {
        let (number, request) = match line {
            Line::Request { number, request } => (number, request),
            Line::Refused { number, answer } => {
                let message = SessionMessage::Refused { client: self.client.clone(), line: number, answer };
                return self.session.send(message).await;
            }
        };
        if let Command::ExtensionUiResponse(_) = request.command {
            // Nothing asks yet; an answer to nothing is ignored, and gets none itself.
            self.client.outbox.answer(number, None);
            return;
        }
        let (name, lane) = (request.command.name(), request.command.lane());
        let ticket = Ticket::new(
            self.client.clone(),
            number,
            request.id.clone(),
            name,
            matches!(lane, Lane::Ordinary | Lane::Replacing),
        );
        match request.command {
            Command::AbortBash { request_id } => {
                self.client.cancel_bash(request_id.as_ref());
                ticket.succeed(None);
            }
            Command::Bash { command, exclude_from_context }
            | Command::UserBash { command, exclude_from_context } => {
                match self.client.begin_bash(number, request.id.as_ref()) {
                    None => {
                        let id = request.id.as_ref().map_or("", Raw::as_str);
                        let shown =
                            atomic_protocol::json::string(id).map_or(id.to_owned(), |text| text.into_owned());
                        ticket.fail(&format!("Bash request id already active: {shown}"));
                    }
                    Some(cancel) => {
                        let message = SessionMessage::Bash { ticket, command, exclude_from_context, cancel };
                        self.session.send(message).await;
                    }
                }
            }
            Command::NewSession { parent_session } => {
                self.move_to(ticket, Destination::Fresh { parent_session });
            }
            Command::Fork { entry_id } => {
                self.move_to(ticket, Destination::Branch(BranchAt::Before(entry_id)));
            }
            Command::Clone => self.move_to(ticket, Destination::Branch(BranchAt::Leaf)),
            Command::SwitchSession { session_path } => {
                self.move_to(ticket, Destination::Stored { path: session_path });
            }
            Command::AttachSession { session_id } => {
                self.move_to(ticket, Destination::Named { id: session_id });
            }
            Command::ListSessions { all, query } => {
                let info = self.session.info();
                let (opening, cwd) = (info.opening.clone(), info.cwd.clone());
                let live = self.daemon.sessions.all().iter().map(|session| session.report()).collect();
                let agent_dir = self.daemon.agent_dir.clone();
                tokio::task::spawn_blocking(move || {
                    let named = opening.options.session_dir.as_deref();
                    let wanted = Wanted::of_caller(&agent_dir, named, &opening.env, &cwd, all, query);
                    match listing::listed(&wanted, live) {
                        Ok(listed) => ticket.succeed(Some(&listed.data())),
                        Err(error) => ticket.fail(&error.to_string()),
                    }
                });
            }
            Command::ImportSession { input_path, cwd_override } => {
                self.move_to(ticket, Destination::Import { path: input_path, cwd: cwd_override });
            }
            command => self.session.send(SessionMessage::Command { ticket, command }).await,
        }
    }

    /// Replaces the session, beside everything else this connection does.
    fn move_to(&mut self, ticket: Ticket, destination: Destination) {
        let (done, moving) = oneshot::channel();
        self.moving = Some(moving);
        let (daemon, client, old) = (self.daemon.clone(), self.client.clone(), self.session.clone());
        let opening = self.opening.clone();
        tokio::spawn(async move {
            let result = moving::go(&daemon, &client, &opening, &old, destination).await;
            // The connection may be gone; then dropping the ticket answers nobody and the new session is left again.
            if let Err(Moved { result: Ok(arrival), .. }) = done.send(Moved { ticket, result }) {
                leave(&arrival.session, client.id, Leaving::Gone, None).await;
            }
        });
    }

    fn arrive(&mut self, moved: Option<Moved>) {
        self.moving = None;
        let Some(Moved { ticket, result }) = moved else { return };
        match result {
            Ok(Arrival { session, notices, data }) => {
                for notice in notices {
                    self.client.outbox.link(&FromDaemon::Notice(notice));
                }
                let file = session.info().file.as_ref().map(|file| file.to_string_lossy().into_owned());
                self.client.outbox.link(&FromDaemon::Session(file));
                self.session = session;
                ticket.succeed(Some(&data));
            }
            Err(error) => ticket.fail(&error),
        }
    }

    /// No more input: everything admitted is executed and answered, within the grace; then the client leaves its session.
    async fn finish(&mut self, signal: bool) {
        if signal {
            self.client.cancel_bash(None);
            self.session.send(SessionMessage::Late(self.client.id)).await;
        }
        let deadline = tokio::time::sleep(if signal { SIGNAL_GRACE } else { EOF_GRACE });
        tokio::pin!(deadline);
        let mut late = false;
        while self.client.open.load(Ordering::Acquire) > 0 || self.lanes.is_busy() {
            if self.client.outbox.is_closed() {
                self.client.cancel_bash(None);
                break;
            }
            tokio::select! {
                () = self.client.answered.notified() => {}
                () = self.client.lane_free.notified() => {
                    for line in self.lanes.free() {
                        self.start(line).await;
                    }
                }
                moved = moved(&mut self.moving) => self.arrive(moved),
                () = &mut deadline, if !late => {
                    late = true;
                    self.client.cancel_bash(None);
                    self.session.send(SessionMessage::Late(self.client.id)).await;
                    if signal {
                        break;
                    }
                }
            }
        }
        let leaving = match signal || self.client.outbox.is_closed() {
            true => Leaving::Gone,
            false if self.opening.options.drain => Leaving::Drain,
            false => Leaving::Eof,
        };
        leave(&self.session, self.client.id, leaving, self.opening.options.on_disconnect).await;
    }
}

/// Leaves a session in good order: returns when it has let the client go.
async fn leave(session: &SessionHandle, client: u64, leaving: Leaving, on_disconnect: Option<OnDisconnect>) {
    let (left, has_left) = oneshot::channel();
    session.send(SessionMessage::Leave { client, leaving, on_disconnect, left }).await;
    let _ = has_left.await;
}

/// The end of the replacement under way, if there is one; else it waits for ever.
async fn moved(moving: &mut Option<oneshot::Receiver<Moved>>) -> Option<Moved> {
    match moving {
        Some(moving) => moving.await.ok(),
        None => std::future::pending().await,
    }
}
