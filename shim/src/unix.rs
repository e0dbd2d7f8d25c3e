//! Unix: descriptors and signals.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::session::Shared;

/// A second SIGINT within this time is meant.
const SECOND_SIGINT: Duration = Duration::from_secs(2);

pub(crate) fn stdin() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

pub(crate) fn stdout() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

pub(crate) fn wait_readable(file: &File) -> io::Result<()> {
    wait(file, PollFlags::IN)
}

pub(crate) fn wait_writable(file: &File) -> io::Result<()> {
    wait(file, PollFlags::OUT)
}

fn wait(file: &File, flags: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(file, flags)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits for signals for the rest of the process's life.
pub(crate) fn watch(shared: &Shared) {
    let Ok(mut signals) = Signals::new([SIGTERM, SIGHUP, SIGINT]) else { return };
    let piped = !io::stdin().is_terminal();
    let mut interrupted: Option<Instant> = None;
    for signal in signals.forever() {
        // A Ctrl-C reaches the whole foreground group; a client that owns our stdin then sends `abort` itself.
        if signal == SIGINT && piped && interrupted.is_none_or(|first| first.elapsed() > SECOND_SIGINT) {
            interrupted = Some(Instant::now());
            continue;
        }
        shared.leave(signal);
    }
}
