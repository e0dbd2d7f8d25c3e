//! Unix: descriptors and signals.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::session::Shared;

/// Becomes `command`. Returns only when that fails.
pub(crate) fn run_in_place(command: &mut Command) -> io::Result<u8> {
    Err(command.exec())
}

/// Waits until nobody reads `file` any more. Of what is no pipe, socket or terminal that is never.
pub(crate) fn wait_unread(file: &File) {
    loop {
        // Without wishes a poll tells of errors and hang-ups only.
        let mut polled = [PollFd::new(file, PollFlags::empty())];
        let result = poll(&mut polled, None);
        if polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return;
        }
        if result != Err(rustix::io::Errno::INTR) {
            // This system cannot tell it of such a file; the next write does.
            std::thread::park();
        }
    }
}

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

/// The caller's umask. The call that tells it also sets it: no other thread may make a file meanwhile.
pub(crate) fn umask() -> Option<u32> {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    Some(mask.bits() as u32)
}

/// The signals that end the process, caught.
pub(crate) struct Caught(Signals);

/// Catches the signals that end the process, except those that the caller had it ignore: `nohup` and shells that start
/// something in the background mean it. `None` when none can be caught.
pub(crate) fn catch() -> Option<Caught> {
    let ignored = ignored();
    let wanted = [SIGTERM, SIGHUP, SIGINT].into_iter().filter(|signal| ignored & 1 << (signal - 1) == 0);
    Signals::new(wanted).ok().map(Caught)
}

/// The signals that are ignored, as a mask whose lowest bit is signal 1. Systems without this file tell it only
/// through calls that no safe crate wraps: there nothing counts as ignored.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Waits for signals for the rest of the process's life.
pub(crate) fn watch(caught: Caught, shared: &Shared) {
    let Caught(mut signals) = caught;
    let patient = shared.obeys_stdin && !io::stdin().is_terminal();
    let mut interrupted: Option<Instant> = None;
    for signal in signals.forever() {
        // A Ctrl-C reaches the whole foreground group; a client that owns our stdin then sends `abort` itself.
        if signal == SIGINT && patient && interrupted.is_none_or(|first| first.elapsed() > SECOND_SIGINT) {
            interrupted = Some(Instant::now());
            continue;
        }
        shared.leave(signal);
    }
}
