//! Named pipes. `atomic-link` owns them and is blocking, so threads stand between a pipe and the runtime: one accepts, and
//! one reads and one writes per client.

use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::BytesMut;
use tokio::sync::mpsc;

use super::Accepted;

/// Connections accepted and not yet served; the accepting thread waits when there are more.
const ACCEPTED: usize = 16;

/// The listening pipe. `atomic-link` owns the pipe and its security descriptor and is blocking, so a thread accepts.
#[derive(Debug)]
pub struct Listener(tokio::sync::Mutex<mpsc::Receiver<io::Result<atomic_link::Stream>>>);

impl Listener {
    /// Starts the thread that accepts.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn new(listener: atomic_link::listen::Listener) -> io::Result<Listener> {
        let (sender, receiver) = mpsc::channel(ACCEPTED);
        std::thread::Builder::new()
            .name("accept".into())
            .spawn(move || while sender.blocking_send(listener.accept()).is_ok() {})?;
        Ok(Listener(tokio::sync::Mutex::new(receiver)))
    }

    /// Waits for a connection of this user.
    ///
    /// # Errors
    /// When accepting fails.
    pub async fn accept(&self) -> io::Result<Accepted> {
        let accepted = self.0.lock().await.recv().await;
        let stream = accepted.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))?;
        let (read, write) = split(stream)?;
        Ok(Accepted { read, write, crowded: None })
    }
}

/// Pieces read and not yet taken; the reading thread waits when there are more.
const PIECES: usize = 4;

/// Bytes read at once.
const PIECE_BYTES: usize = 64 << 10;

fn split(stream: atomic_link::Stream) -> io::Result<(ReadHalf, WriteHalf)> {
    let stream = Arc::new(stream);
    let (sender, pieces) = mpsc::channel(PIECES);
    let reading = stream.clone();
    std::thread::Builder::new().name("read".into()).spawn(move || {
        use std::io::Read as _;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = (&*reading).read(&mut piece);
            let end = !matches!(read, Ok(1..));
            if sender.blocking_send(read.map(|count| piece[..count].to_vec())).is_err() || end {
                return;
            }
        }
    })?;
    let (written, writing) = std::sync::mpsc::sync_channel::<Vec<u8>>(1);
    let idle = Arc::new(tokio::sync::Notify::new());
    let free = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let half = WriteHalf { written, idle: idle.clone(), free: free.clone(), broken: broken.clone() };
    std::thread::Builder::new().name("write".into()).spawn(move || {
        use std::io::Write as _;
        use std::sync::atomic::Ordering::SeqCst;
        while let Ok(bytes) = writing.recv() {
            if (&*stream).write_all(&bytes).is_err() {
                broken.store(true, SeqCst);
            }
            free.store(true, SeqCst);
            idle.notify_one();
        }
    })?;
    Ok((ReadHalf(pieces), half))
}

/// Where a client's bytes come from.
#[derive(Debug)]
pub struct ReadHalf(mpsc::Receiver<io::Result<Vec<u8>>>);

impl ReadHalf {
    /// Waits for bytes and appends them to `buffer`. 0 is the end.
    ///
    /// # Errors
    /// Those of the pipe.
    pub async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self.0.recv().await {
            None => Ok(0),
            Some(piece) => {
                let piece = piece?;
                buffer.extend_from_slice(&piece);
                Ok(piece.len())
            }
        }
    }
}

/// Where a client's bytes go: a thread writes one batch at a time.
#[derive(Debug)]
pub struct WriteHalf {
    written: std::sync::mpsc::SyncSender<Vec<u8>>,
    idle: Arc<tokio::sync::Notify>,
    free: Arc<std::sync::atomic::AtomicBool>,
    broken: Arc<std::sync::atomic::AtomicBool>,
}

impl WriteHalf {
    /// Hands all slices to the writing thread, if it is free.
    ///
    /// # Errors
    /// `WouldBlock` when it still writes, `BrokenPipe` when the client is gone.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        use std::sync::atomic::Ordering::SeqCst;
        if self.broken.load(SeqCst) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !self.free.swap(false, SeqCst) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut batch = Vec::new();
        for slice in slices {
            batch.extend_from_slice(slice);
        }
        let count = batch.len();
        self.written.try_send(batch).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(count)
    }

    /// Waits until the thread may be free.
    ///
    /// # Errors
    /// None.
    pub async fn writable(&self) -> io::Result<()> {
        if !self.free.load(std::sync::atomic::Ordering::SeqCst) {
            self.idle.notified().await;
        }
        Ok(())
    }
}
