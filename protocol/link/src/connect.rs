//! Connect, prove the owner, say hello.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atomic_protocol::link::{Hello, Reply};
use interprocess::local_socket::Stream;

use crate::error::LinkError;
use crate::place::Place;
use crate::{os, owner};

/// Limit for connecting and for the answer to the hello.
pub const HELLO_DEADLINE: Duration = Duration::from_secs(10);

/// The reply and what follows it in the first read: a reply is below 1 KiB, a report a few KiB.
const READ_BYTES: usize = 4 * 1024;

/// Pause before a stream that does not block is asked again.
const RETRY: Duration = Duration::from_millis(1);

/// A connection whose hello was answered.
#[derive(Debug)]
pub struct Attached {
    /// The connection; reads and writes have no deadline.
    pub stream: Arc<Stream>,
    /// The daemon's first line.
    pub reply: Reply,
    /// Bytes that arrived after the first line.
    pub early: Vec<u8>,
}

/// Connects to the daemon of `place` and says `hello`. `within` bounds both together ([`HELLO_DEADLINE`]).
///
/// # Errors
/// [`LinkError::NotRunning`] when nobody listens. A refusal is no error but a [`Reply::Refused`].
pub fn connect(place: &Place, hello: &Hello, within: Duration) -> Result<Attached, LinkError> {
    say(place, &line(hello), within, &mut |_| {})
}

/// The hello as its line.
pub(crate) fn line(hello: &Hello) -> Vec<u8> {
    let mut line = serde_json::to_vec(hello).expect("a hello has string keys and serialises");
    line.push(b'\n');
    line
}

/// As [`connect`], with the hello's line. `said` gets the connection as soon as the hello is sent.
pub(crate) fn say(
    place: &Place,
    hello: &[u8],
    within: Duration,
    said: &mut dyn FnMut(&Arc<Stream>),
) -> Result<Attached, LinkError> {
    let socket = place.socket();
    let deadline = Instant::now() + within;
    owner::check(place)?;
    let stream = os::connect(socket, deadline).map_err(|source| not_connected(socket, source, within))?;
    let stream = Arc::new(stream);
    // The hello carries the caller's environment: nothing is sent before the other end has proved its owner.
    match os::peer_is_owner(&stream) {
        Ok(true) => {}
        Ok(false) => return Err(LinkError::Stranger { socket: socket.to_owned() }),
        Err(source) => return Err(LinkError::Connect { socket: socket.to_owned(), source }),
    }
    let exchange = Exchange { stream: &stream, socket, deadline, within };
    exchange.arm()?;
    // A daemon that refuses at once may close before it has read all of the hello; its reply still counts.
    let sent = exchange.send(hello);
    if sent.is_ok() {
        said(&stream);
    }
    let (reply, early) = match (exchange.first_line(), sent) {
        (Ok(both), _) => both,
        (Err(LinkError::Closed { .. }), Err(error)) | (Err(error), _) => return Err(error),
    };
    os::set_deadline(&stream, None).map_err(|source| exchange.failed(source))?;
    let reply = serde_json::from_slice(&reply)
        .map_err(|error| LinkError::BadReply { socket: socket.to_owned(), reason: error.to_string() })?;
    Ok(Attached { stream, reply, early })
}

/// Hello and reply, under one deadline.
struct Exchange<'a> {
    stream: &'a Stream,
    socket: &'a Path,
    deadline: Instant,
    within: Duration,
}

impl Exchange<'_> {
    fn send(&self, mut bytes: &[u8]) -> Result<(), LinkError> {
        let mut stream = self.stream;
        while !bytes.is_empty() {
            match stream.write(bytes) {
                // A full pipe that does not block takes nothing.
                Ok(0) => self.again()?,
                Ok(written) => bytes = &bytes[written..],
                Err(error) => self.retry(error)?,
            }
        }
        Ok(())
    }

    /// The first line without its LF and what came after it.
    fn first_line(&self) -> Result<(Vec<u8>, Vec<u8>), LinkError> {
        let mut stream = self.stream;
        let mut bytes = Vec::new();
        loop {
            let old = bytes.len();
            bytes.resize(old + READ_BYTES, 0);
            let read = stream.read(&mut bytes[old..]);
            bytes.truncate(old + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(LinkError::Closed { socket: self.socket.to_owned() }),
                Ok(_) => {}
                Err(error) => self.retry(error)?,
            }
            if let Some(at) = bytes[old..].iter().position(|byte| *byte == b'\n') {
                let early = bytes.split_off(old + at + 1);
                bytes.pop();
                return Ok((bytes, early));
            }
            // Single bytes that keep coming must not outlast the deadline.
            if Instant::now() >= self.deadline {
                return Err(self.silent());
            }
        }
    }

    fn retry(&self, error: io::Error) -> Result<(), LinkError> {
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            _ if is_timeout(&error) => self.again(),
            _ => Err(self.failed(error)),
        }
    }

    /// Goes on unless the deadline has passed: a stream that does not block is asked again after a pause, one whose
    /// timeout was a little early once more.
    fn again(&self) -> Result<(), LinkError> {
        if Instant::now() >= self.deadline {
            return Err(self.silent());
        }
        std::thread::sleep(RETRY);
        self.arm()
    }

    fn arm(&self) -> Result<(), LinkError> {
        os::set_deadline(self.stream, Some(self.deadline)).map_err(|source| self.failed(source))
    }

    fn silent(&self) -> LinkError {
        LinkError::Silent { socket: self.socket.to_owned(), seconds: self.within.as_secs() }
    }

    fn failed(&self, source: io::Error) -> LinkError {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        match source.kind() {
            BrokenPipe | ConnectionReset | UnexpectedEof => {
                LinkError::Closed { socket: self.socket.to_owned() }
            }
            _ => LinkError::Connect { socket: self.socket.to_owned(), source },
        }
    }
}

fn not_connected(socket: &Path, source: io::Error, within: Duration) -> LinkError {
    let socket = socket.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => LinkError::NotRunning { socket },
        _ if is_timeout(&source) => LinkError::Silent { socket, seconds: within.as_secs() },
        _ => LinkError::Connect { socket, source },
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
