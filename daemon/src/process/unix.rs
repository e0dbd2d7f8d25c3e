//! Nobody's child: own session, private files, no inherited descriptors, default signals, room for many sockets.

use std::io;

use rustix::process::{Resource, Rlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Descriptors asked for; an editor's soft limit is often 1024 or less.
const DESCRIPTORS: u64 = 65_536;

/// Leaves what the starter lent: its session, its umask, its directory, its descriptors, its soft limit. Called before
/// the runtime and before any file is opened.
pub fn settle() {
    // Fails only for a process that leads a group already, which then is nobody's child in the same way.
    let _ = rustix::process::setsid();
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let _ = std::env::set_current_dir("/");
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let ceiling = limit.maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < ceiling) {
        let _ = rustix::process::setrlimit(
            Resource::Nofile,
            Rlimit { current: Some(ceiling), maximum: limit.maximum },
        );
    }
    inherited::close();
    inherited::default_signals();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    memory::keep_limits();
}

/// Gives memory that is free back to the system. The GNU allocator takes free blocks out of the middle only when told to.
/// Blocks for some milliseconds.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    memory::trim();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
mod memory {
    /// From this size on a block has pages of its own, which go back when it is freed; and as much may be free at the end of
    /// an arena. Left alone, both limits grow with the largest block that was ever freed, up to 32 and 64 MiB, and what a large
    /// session leaves at the end of a thread's arena is kept for good: trimming does not reach it there.
    const LARGE_BYTES: libc::c_int = 1 << 20;

    /// Each thread would get an arena of its own, up to eight for each processor, and what sessions leave in between stays
    /// in all of them: with threads that come and go that is half of a busy daemon's memory. Two do for the two or three
    /// threads that are at work at a time.
    const ARENAS: libc::c_int = 2;

    pub(super) fn keep_limits() {
        // SAFETY: plain numbers for the allocator; called before there are other threads.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
            libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE_BYTES);
            libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        }
    }

    pub(super) fn trim() {
        // SAFETY: the allocator takes its own locks; memory in use is not touched.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Closing descriptors one does not own and setting raw signal dispositions has no safe interface.
#[allow(unsafe_code)]
mod inherited {
    use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

    /// Closes every descriptor above stderr.
    pub(super) fn close() {
        let Ok(entries) = std::fs::read_dir("/proc/self/fd").or_else(|_| std::fs::read_dir("/dev/fd")) else {
            return;
        };
        let open: Vec<RawFd> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|fd| *fd > 2)
            .collect();
        for fd in open {
            // Only what is still open: the listing's own descriptor was closed with it.
            // SAFETY: the process has one thread and has opened nothing yet, so nobody else owns this descriptor.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            if rustix::io::fcntl_getfd(&fd).is_ok() {
                drop(fd);
            } else {
                std::mem::forget(fd);
            }
        }
    }

    /// Signals that a starter may have set to be ignored (nohup does) act again.
    pub(super) fn default_signals() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGCHLD] {
            // SAFETY: sets a disposition to its default; no handler is involved.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// The signals that end the daemon.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Watches for them.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn install() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one's name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
