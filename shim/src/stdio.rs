//! Standard input, output and error as plain files.
//!
//! Not `std::io::copy`: with a pipe on stdout it splices, and a blocked splice holds the pipe's lock, so the reader
//! sees a record only when the next one arrives. Not `std::io::stdout`: its line buffer looks at every byte.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use crate::os;

/// Reads once, waiting for bytes even if somebody made the shared descriptor non-blocking. 0 is the end.
pub(crate) fn read(mut file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => os::wait_readable(file)?,
            // On Windows the end of a pipe is an error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
            other => return other,
        }
    }
}

/// Writes everything, waiting for room even if somebody made the shared descriptor non-blocking.
pub(crate) fn write_all(mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => os::wait_writable(file)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Prints on stdout and gives the exit code: 1 if nobody reads.
pub(crate) fn say(text: &str) -> u8 {
    match os::stdout().and_then(|out| write_all(&out, text.as_bytes())) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

/// Prints on stderr, ending the last line. Nobody may be reading: that is no reason to fail.
pub(crate) fn complain(text: &str) {
    let mut whole = text.trim_end_matches('\n').to_owned();
    whole.push('\n');
    let _ = io::stderr().write_all(whole.as_bytes());
}
