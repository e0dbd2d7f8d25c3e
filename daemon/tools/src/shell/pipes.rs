//! The two pipes of a child, read in turns.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{ChildStderr, ChildStdout};

use super::Channel;

/// Bytes taken from a pipe at once: what a Linux pipe holds.
const READ_SIZE: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Pipes {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    buffer: Box<[u8]>,
    /// Which one is asked first: the one that was not served last, so that neither starves.
    first: Channel,
}

/// What came out of a pipe.
#[derive(Debug)]
pub(super) enum Piece {
    /// So many bytes of [`Pipes::bytes`].
    Bytes(Channel, usize),
    /// The pipe has ended.
    End(Channel),
}

impl Pipes {
    pub(super) fn new(stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) -> Pipes {
        Pipes { stdout, stderr, buffer: vec![0; READ_SIZE].into_boxed_slice(), first: Channel::Stdout }
    }

    pub(super) fn is_open(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some()
    }

    /// The bytes of the last piece.
    pub(super) fn bytes(&self, length: usize) -> &[u8] {
        &self.buffer[..length]
    }

    /// The next piece of an open pipe. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Piece {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Piece> {
        let order = match self.first {
            Channel::Stdout => [Channel::Stdout, Channel::Stderr],
            Channel::Stderr => [Channel::Stderr, Channel::Stdout],
        };
        for channel in order {
            let mut buffer = ReadBuf::new(&mut self.buffer);
            let polled = match channel {
                Channel::Stdout => poll_pipe(self.stdout.as_mut(), context, &mut buffer),
                Channel::Stderr => poll_pipe(self.stderr.as_mut(), context, &mut buffer),
            };
            let Poll::Ready(result) = polled else { continue };
            let length = buffer.filled().len();
            self.first = match channel {
                Channel::Stdout => Channel::Stderr,
                Channel::Stderr => Channel::Stdout,
            };
            if result.is_ok() && length > 0 {
                return Poll::Ready(Piece::Bytes(channel, length));
            }
            // A pipe that cannot be read has ended for us; its writer learns it by SIGPIPE.
            match channel {
                Channel::Stdout => self.stdout = None,
                Channel::Stderr => self.stderr = None,
            }
            return Poll::Ready(Piece::End(channel));
        }
        Poll::Pending
    }
}

fn poll_pipe<P: AsyncRead + Unpin>(
    pipe: Option<&mut P>,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    match pipe {
        Some(pipe) => Pin::new(pipe).poll_read(context, buffer),
        None => Poll::Pending,
    }
}
