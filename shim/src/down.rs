//! The way from the daemon to stdout, and what happens when the daemon is lost.
//!
//! This thread decides how the process ends, because the daemon says when everything is answered; stdin may block for
//! ever.

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use atomic_link::Stream;
use atomic_link::connect::{Attached, HELLO_DEADLINE};
use atomic_link::place::Place;
use atomic_link::start::{START_DEADLINE, connect_or_start_by};
use atomic_protocol::link::{FromDaemon, Hello, Mode, OsText, Reply};

use crate::filter::LinkFilter;
use crate::handover::{self, Replaced};
use crate::session::Shared;
use crate::up::{Lines, Source};
use crate::{daemon, os, stdio};

/// Bytes read from the daemon at once: below this a fast stream costs twice the time.
const FROM_DAEMON_BYTES: usize = 64 * 1024;

/// A fresh connection takes this much before anybody reads; 4 KiB is the least that any platform's does.
const UNREAD_BYTES: usize = 4 * 1024;

/// From the loss of a daemon to the end of the tries to attach again.
const REATTACH_DEADLINE: Duration = Duration::from_secs(10);

/// The same after a daemon that handed over: it has to end first, and waits as long for clients that read slowly.
const HANDOVER_DEADLINE: Duration = Duration::from_secs(30);

/// First pause between two such tries: what is being killed takes a moment to be gone.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Longest pause: a daemon that cannot start is not started a hundred times.
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// This many losses within [`LOSS_WINDOW`] are enough: something here makes daemons die.
const LOSSES: usize = 3;

/// Losses further apart than this have nothing to do with each other.
const LOSS_WINDOW: Duration = Duration::from_secs(60);

/// How a connection to the daemon ended.
enum Ending {
    /// The daemon said so.
    Exit(u8),
    /// Nobody reads stdout any more.
    StdoutClosed,
    /// The daemon is gone without a word.
    Lost,
    /// The daemon leaves in good order and another one takes over.
    Handover,
}

/// A connection that is attached to a session.
struct Link {
    stream: Arc<Stream>,
    /// Bytes that came with the welcome.
    early: Vec<u8>,
    session: String,
    file: Option<String>,
}

/// Where the caller's lines come from.
pub(crate) enum Input {
    Stdin,
    /// The whole of it.
    Messages(Vec<u8>),
}

/// One thread's work: to attach, to copy, to attach again.
pub(crate) struct Down {
    shared: Arc<Shared>,
    place: Place,
    hello: Hello,
    input: Option<Input>,
    /// File of the session the client is in, while that is known.
    file: Option<String>,
    /// The id of that session, while that is known.
    session_id: Option<String>,
    /// When daemons were lost, the newest last; no more than count.
    losses: Vec<Instant>,
}

impl Down {
    /// Nothing is done yet.
    pub(crate) fn new(shared: Arc<Shared>, place: Place, hello: Hello, input: Input) -> Down {
        Down { shared, place, hello, input: Some(input), file: None, session_id: None, losses: Vec::new() }
    }

    /// Attaches and copies until there is an end, and ends the process.
    pub(crate) fn run(mut self) -> ! {
        // First, so that what the caller has written already leaves with the hello.
        if let Err(error) = self.read_input() {
            self.fail(&format!("Error: cannot use stdin: {error}"), 1);
        }
        let mut link = match self.attach_to_fitting() {
            Ok(link) => link,
            Err((text, code)) => self.fail(&text, code),
        };
        // A client that only runs its messages is not attached again: which of them have had their effect is unknown.
        self.file = link.file.take().filter(|_| self.hello.mode == Mode::Rpc);
        self.session_id = Some(link.session);
        loop {
            let mut filter = LinkFilter::default();
            let handed_over = match self.copy(&link.stream, link.early, &mut filter) {
                Ending::Exit(code) => self.shared.exit(code),
                Ending::StdoutClosed => self.shared.exit(1),
                Ending::Lost => false,
                Ending::Handover => true,
            };
            // Whoever still writes to it must come back.
            atomic_link::hang_up(&link.stream);
            link = self.attach_again(&mut filter, handed_over);
            if !handed_over {
                stdio::complain(&format!("Note: atomicd was lost; attached again to {}", link.session));
            }
            self.file = link.file.take().or(self.file);
            self.session_id = Some(link.session);
        }
    }

    /// Attaches; an idle daemon of another build is replaced first. Should that not succeed, the old one serves.
    fn attach_to_fitting(&mut self) -> Result<Link, (String, u8)> {
        let deadline = || Instant::now() + HELLO_DEADLINE + START_DEADLINE;
        if let Some(link) = self.attach(deadline())? {
            return Ok(link);
        }
        self.shared.up.lines().connection = None;
        self.hello.any_build = true;
        match handover::replace(&self.place, vec![OsText::from("--if-idle")], |_| {}) {
            Ok(Replaced::By(_) | Replaced::NotRunning | Replaced::Refused(..)) => {}
            Err(text) => stdio::complain(&format!("Note: atomicd is another build and stays: {text}")),
        }
        self.attach(deadline())?.ok_or_else(|| (UNANSWERED.to_owned(), 1))
    }

    /// Attaches to the session that the hello asks for, starting a daemon when there is none; else a text for stderr and
    /// an exit code. None: the daemon is another build and would be replaced. The caller's lines follow the hello at once.
    /// Called often and large.
    #[inline(never)]
    fn attach(&self, deadline: Instant) -> Result<Option<Link>, (String, u8)> {
        let said = |stream: &Arc<Stream>| match self.shared.up.connect(stream) {
            0 => {}
            1..=UNREAD_BYTES => self.shared.up.flush(),
            _ => self.flush(),
        };
        match connect_or_start_by(&self.place, &self.hello, daemon::program, deadline, said) {
            Ok(attached) => {
                let link = welcome(attached);
                if matches!(link, Ok(Some(_))) {
                    self.shared.up.lines().pending.welcomed();
                }
                link
            }
            Err(error) => Err((format!("Error: {error}"), 1)),
        }
    }

    fn fail(&self, text: &str, code: u8) -> ! {
        stdio::complain(text);
        self.shared.exit(code)
    }

    fn read_input(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let input = self.input.take().unwrap_or(Input::Stdin);
        let source: Source = match input {
            Input::Stdin => {
                let stdin = os::stdin()?;
                Box::new(move |buffer| stdio::read(&stdin, buffer))
            }
            Input::Messages(lines) => {
                let mut lines = io::Cursor::new(lines);
                Box::new(move |buffer| lines.read(buffer))
            }
        };
        std::thread::Builder::new().name("stdin".into()).spawn(move || shared.up.copy(source)).map(drop)
    }

    /// Sends what waits, beside the copying: a daemon that answers much while it takes little must find a reader.
    fn flush(&self) {
        let shared = Arc::clone(&self.shared);
        let sending = std::thread::Builder::new().name("backlog".into()).spawn(move || shared.up.flush());
        if sending.is_err() {
            self.shared.up.flush();
        }
    }

    /// Copies records to stdout and obeys link records until the connection ends.
    fn copy(&mut self, mut stream: &Stream, early: Vec<u8>, filter: &mut LinkFilter) -> Ending {
        let mut buffer = early;
        let mut filled = buffer.len();
        let mut records = Vec::new();
        loop {
            let kept = filter.strip(&mut buffer[..filled], &mut records);
            if stdio::write_all(&self.shared.stdout, &buffer[..kept]).is_err() {
                return Ending::StdoutClosed;
            }
            // Only now: what a record calls answered must be on stdout first.
            for record in records.drain(..) {
                if let Some(ending) = self.obey(&record) {
                    return ending;
                }
            }
            buffer.resize(FROM_DAEMON_BYTES, 0);
            filled = match stream.read(&mut buffer) {
                Ok(0) => return Ending::Lost,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(_) => return Ending::Lost,
            };
        }
    }

    fn obey(&mut self, record: &[u8]) -> Option<Ending> {
        match FromDaemon::parse(std::str::from_utf8(record).ok()?)? {
            FromDaemon::Progress { admitted, answered, ids } => {
                self.shared.up.lines().pending.progress(admitted, &answered, ids);
                None
            }
            FromDaemon::Session(file) => {
                self.file = file;
                self.session_id = None;
                None
            }
            FromDaemon::Handover { session_id, shaped_by } => {
                self.session_id = Some(session_id);
                self.hello.shaped_by = Some(shaped_by);
                Some(Ending::Handover)
            }
            FromDaemon::Notice(text) => {
                stdio::complain(&text);
                None
            }
            FromDaemon::Exit { code, text } => {
                if let Some(text) = text {
                    stdio::complain(&text);
                }
                Some(Ending::Exit(code))
            }
        }
    }

    /// Says what the daemon that is gone owes and attaches to the session again; ends the process when that is no use.
    /// One that handed over owes nothing, unless it ran out of patience with a session.
    fn attach_again(&mut self, filter: &mut LinkFilter, handed_over: bool) -> Link {
        let deadline = Instant::now() + if handed_over { HANDOVER_DEADLINE } else { REATTACH_DEADLINE };
        let shared = Arc::clone(&self.shared);
        let mut lines = shared.up.lines();
        lines.connection = None;
        let mut out = Vec::new();
        if filter.in_record() {
            out.push(b'\n');
        }
        filter.run().close(&mut out);
        lines.pending.answer_admitted(&mut out);
        if stdio::write_all(&shared.stdout, &out).is_err() {
            shared.exit(1);
        }
        let over = lines.ended && lines.pending.is_empty();
        let Some(file) = self
            .file
            .clone()
            .filter(|_| !over && (handed_over || !self.loses_too_often()) && shared.signal() == 0)
        else {
            if over && handed_over {
                shared.exit(0);
            }
            self.give_up(lines, None)
        };
        drop(lines);
        self.hello.session = Some(file);
        self.hello.session_id = self.session_id.clone();
        let mut pause = FIRST_PAUSE;
        loop {
            match self.attach(deadline) {
                Ok(Some(link)) => return link,
                Ok(None) => self.give_up(shared.up.lines(), Some(UNANSWERED)),
                Err((text, _)) if Instant::now() >= deadline => self.give_up(shared.up.lines(), Some(&text)),
                Err(_) => {}
            }
            std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Notes a loss.
    fn loses_too_often(&mut self) -> bool {
        let now = Instant::now();
        self.losses.retain(|loss| now.duration_since(*loss) < LOSS_WINDOW);
        self.losses.push(now);
        self.losses.len() >= LOSSES
    }

    /// Answers what is left and ends the process. The lines are held to the end, so that none slips in that would get no
    /// answer.
    fn give_up(&self, mut lines: MutexGuard<'_, Lines>, why: Option<&str>) -> ! {
        let mut out = Vec::new();
        lines.pending.answer_rest(&mut out);
        let _ = stdio::write_all(&self.shared.stdout, &out);
        if self.shared.signal() == 0 {
            let again = why.map(|_| " and attaching again failed").unwrap_or_default();
            let log: PathBuf = self.place.logs();
            let mut text = format!(
                "Error: the connection to atomicd was lost{again}; what it was doing is in {} ('atomic logs')",
                log.display()
            );
            if let Some(why) = why {
                text.push('\n');
                text.push_str(why);
            }
            stdio::complain(&text);
        }
        self.shared.exit(1)
    }
}

/// What is said of a daemon whose reply makes no sense.
const UNANSWERED: &str = "Error: atomicd answered another question than the one asked";

/// The connection after a welcome, none after a clash of builds; else a text for stderr and an exit code.
fn welcome(attached: Attached) -> Result<Option<Link>, (String, u8)> {
    let Attached { stream, reply, early } = attached;
    match reply {
        Reply::Welcome { session_id, session_file, .. } => {
            Ok(Some(Link { stream, early, session: session_id, file: session_file }))
        }
        Reply::Clash { .. } => Ok(None),
        Reply::Refused { text, code } => Err((text, code)),
        Reply::Report(_) => Err((UNANSWERED.to_owned(), 1)),
    }
}
