//! The daemon's side: the lock held for life and the socket.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use interprocess::local_socket::Stream;

use crate::error::LinkError;
use crate::place::Place;
use crate::{os, owner};

/// How often a lock that another process holds is tried again.
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// A daemon that begins must outlast a shim that only looks whether the lock is free.
pub const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Proof of being the only daemon of a place, for as long as the value lives.
#[derive(Debug)]
pub struct DaemonLock {
    file: File,
}

impl DaemonLock {
    /// Takes the lock, waiting up to `patience` for its holder to leave ([`LOCK_PATIENCE`] at least; more when an old
    /// daemon is known to be leaving). Makes the directories of `place`.
    ///
    /// # Errors
    /// [`LinkError::AlreadyRunning`] when another daemon keeps it.
    pub fn acquire(place: &Place, patience: Duration) -> Result<DaemonLock, LinkError> {
        owner::prepare(place)?;
        let path = place.daemon_lock();
        let Some(mut file) = lock_file(&path, Instant::now() + patience)? else {
            return Err(LinkError::AlreadyRunning { lock: path });
        };
        // For people who look; nobody trusts or signals this number.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(DaemonLock { file })
    }

    /// Whether the lock's file is still the one at `place`. When somebody has removed it, another daemon can take a new
    /// one; the holder then has to take it anew or to leave.
    pub fn is_in_place(&self, place: &Place) -> bool {
        os::same_file(&self.file, &place.daemon_lock())
    }

    /// Whether a daemon holds the lock of `place` now. It may still be starting or already leaving: only an answered
    /// hello proves that it serves.
    pub fn is_held(place: &Place) -> bool {
        let Ok(file) = os::private_file().read(true).write(true).open(place.daemon_lock()) else {
            return false;
        };
        matches!(file.try_lock(), Err(TryLockError::WouldBlock))
    }
}

/// Opens `path` and locks it before `deadline`. `None`: somebody else keeps it.
pub(crate) fn lock_file(path: &std::path::Path, deadline: Instant) -> Result<Option<File>, LinkError> {
    let file = os::private_file()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(|source| LinkError::Prepare { path: path.to_owned(), source })?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::Error(source)) => {
                return Err(LinkError::Lock { path: path.to_owned(), source });
            }
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Ok(None),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY),
        }
    }
}

/// The daemon's listening socket.
#[derive(Debug)]
pub struct Listener {
    bound: os::Bound,
}

/// Binds the socket of `place`. A socket that a dead daemon left is replaced: the lock proves that it is nobody's.
///
/// # Errors
/// When something else is in the way or the socket cannot be bound.
pub fn bind(place: &Place, _lock: &DaemonLock) -> Result<Listener, LinkError> {
    owner::prepare(place)?;
    Ok(Listener { bound: os::Bound::bind(place.socket())? })
}

/// Removes the socket when the daemon leaves, before the lock is released.
pub fn unbind(place: &Place, _lock: &DaemonLock) {
    // A named pipe goes with its process, and a socket that is gone already is what we want.
    let _ = std::fs::remove_file(place.socket());
}

impl Listener {
    /// Waits for a connection of this user; those of others are closed unread.
    ///
    /// # Errors
    /// When accepting fails; out of descriptors is worth a pause and another try.
    pub fn accept(&self) -> io::Result<Stream> {
        loop {
            let stream = self.bound.accept()?;
            if os::peer_is_owner(&stream).unwrap_or(false) {
                return Ok(stream);
            }
        }
    }

    /// What tells this socket's file from one that replaces it.
    #[cfg(unix)]
    pub fn file(&self) -> SocketFile {
        SocketFile(self.bound.file())
    }

    /// The listening descriptor, for an async runtime, which has to check each peer's user itself.
    #[cfg(unix)]
    pub fn into_owned_fd(self) -> std::os::fd::OwnedFd {
        self.bound.into_fd()
    }
}

/// The file of a bound socket.
#[cfg(unix)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFile((u64, u64));

#[cfg(unix)]
impl SocketFile {
    /// Whether it is still there. If not, somebody cleaned up and the daemon binds again.
    pub fn is_in_place(self, place: &Place) -> bool {
        os::is_file(place.socket(), self.0)
    }
}
