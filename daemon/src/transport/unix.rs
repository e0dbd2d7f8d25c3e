//! Unix sockets.

use std::io::{self, IoSlice};
use std::os::fd::AsRawFd as _;

use bytes::BytesMut;
use rustix::process::{Resource, getrlimit};
use tokio::net::{UnixListener, UnixStream, unix};

use super::Accepted;

/// Descriptors that no new window may take: the sessions that are there need them for their files, their models'
/// connections and the pipes of their tools. Of a small limit it is a quarter.
const RESERVED: u64 = 64;

/// The listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    /// How many descriptors this process may have; none: any number.
    limit: Option<u64>,
}

impl Listener {
    /// Hands the bound socket to the runtime.
    ///
    /// # Errors
    /// When the descriptor cannot be registered.
    pub fn new(listener: atomic_link::listen::Listener) -> io::Result<Listener> {
        let listener = std::os::unix::net::UnixListener::from(listener.into_owned_fd());
        listener.set_nonblocking(true)?;
        let limit = getrlimit(Resource::Nofile).current;
        UnixListener::from_std(listener).map(|socket| Listener { socket, limit })
    }

    /// Waits for a connection of this user; those of others are closed unread.
    ///
    /// # Errors
    /// When accepting fails, for example for want of descriptors.
    pub async fn accept(&self) -> io::Result<Accepted> {
        loop {
            let (stream, _) = self.socket.accept().await?;
            let peer = stream.peer_cred()?.uid();
            if peer == rustix::process::geteuid().as_raw() {
                let crowded = self.crowded(&stream);
                let (read, write) = split(stream);
                return Ok(Accepted { read, write, crowded });
            }
            tracing::warn!(peer, "closed a connection of another user");
        }
    }

    /// The limit, if this connection took one of the descriptors that are reserved. The lowest free number is what the
    /// system gives, so the number tells how many are in use.
    fn crowded(&self, stream: &UnixStream) -> Option<u64> {
        let limit = self.limit?;
        let number = u64::try_from(stream.as_raw_fd()).unwrap_or(u64::MAX);
        (number >= limit - RESERVED.min(limit / 4)).then_some(limit)
    }
}

fn split(stream: UnixStream) -> (ReadHalf, WriteHalf) {
    let (read, write) = stream.into_split();
    (ReadHalf(read), WriteHalf(write))
}

/// Where a client's bytes come from.
#[derive(Debug)]
pub struct ReadHalf(unix::OwnedReadHalf);

impl ReadHalf {
    /// Waits for bytes and appends them to `buffer`. 0 is the end. Cancel safe: nothing is lost.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        loop {
            self.0.readable().await?;
            match self.0.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }
}

/// Where a client's bytes go.
#[derive(Debug)]
pub struct WriteHalf(unix::OwnedWriteHalf);

impl WriteHalf {
    /// Writes what the socket takes now.
    ///
    /// # Errors
    /// `WouldBlock` when it takes nothing.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    /// Waits until the socket may take something.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn writable(&self) -> io::Result<()> {
        self.0.writable().await
    }
}
