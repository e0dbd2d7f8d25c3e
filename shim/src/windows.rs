//! Windows: handles. A console's Ctrl-C ends the process as usual; the daemon sees the pipe close.

use std::fs::File;
use std::io;
use std::os::windows::io::AsHandle as _;
use std::process::Command;

use crate::session::Shared;

pub(crate) fn stdin() -> io::Result<File> {
    Ok(io::stdin().as_handle().try_clone_to_owned()?.into())
}

pub(crate) fn stdout() -> io::Result<File> {
    Ok(io::stdout().as_handle().try_clone_to_owned()?.into())
}

/// Standard handles always block.
pub(crate) fn wait_readable(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// Standard handles always block.
pub(crate) fn wait_writable(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// Runs `command` to its end.
pub(crate) fn run_in_place(command: &mut Command) -> io::Result<u8> {
    let status = command.status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Nothing tells it here: the next write does.
pub(crate) fn wait_unread(_: &File) {
    loop {
        std::thread::park();
    }
}

/// There is no umask.
pub(crate) fn umask() -> Option<u32> {
    None
}

/// The signals that end the process: there are none.
pub(crate) enum Caught {}

/// There are no signals to catch.
pub(crate) fn catch() -> Option<Caught> {
    None
}

/// There are no signals to wait for.
pub(crate) fn watch(caught: Caught, _: &Shared) {
    match caught {}
}
