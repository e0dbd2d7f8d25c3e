//! Unix sockets.

use std::io::{self, IoSlice};

use bytes::BytesMut;
use tokio::net::{UnixListener, UnixStream, unix};

/// The listening socket.
#[derive(Debug)]
pub struct Listener(UnixListener);

impl Listener {
    /// Hands the bound socket to the runtime.
    ///
    /// # Errors
    /// When the descriptor cannot be registered.
    pub fn new(listener: atomic_link::listen::Listener) -> io::Result<Listener> {
        let listener = std::os::unix::net::UnixListener::from(listener.into_owned_fd());
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(Listener)
    }

    /// Waits for a connection of this user; those of others are closed unread.
    ///
    /// # Errors
    /// When accepting fails, for example for want of descriptors.
    pub async fn accept(&self) -> io::Result<(ReadHalf, WriteHalf)> {
        loop {
            let (stream, _) = self.0.accept().await?;
            if atomic_link::same_user(&stream).unwrap_or(false) {
                return Ok(split(stream));
            }
            tracing::warn!("closed a connection of another user");
        }
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
