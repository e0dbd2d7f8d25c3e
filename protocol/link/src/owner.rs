//! Directories that are ours alone.

use std::path::Path;

use crate::error::LinkError;
use crate::os;
use crate::place::Place;

/// Makes the agent directory, the private directories and the log directory, each new one for its owner only, and
/// tightens private ones that are ours and too open.
///
/// # Errors
/// When a private directory is a link, a file or somebody else's, or cannot be made.
pub(crate) fn prepare(place: &Place) -> Result<(), LinkError> {
    make(place.agent_dir())?;
    let logs = place.logs();
    for dir in place.private_dirs().iter().map(|dir| dir.as_path()).chain([logs.as_path()]) {
        make(dir)?;
        os::own(dir, true)?;
    }
    Ok(())
}

/// Checks the private directories without changing anything.
///
/// # Errors
/// [`LinkError::NotRunning`] when they are not there; else as [`prepare`].
pub(crate) fn check(place: &Place) -> Result<(), LinkError> {
    for dir in place.private_dirs() {
        match os::own(dir, false) {
            Err(LinkError::Prepare { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(LinkError::NotRunning { socket: place.socket().to_owned() });
            }
            other => other?,
        }
    }
    Ok(())
}

fn make(dir: &Path) -> Result<(), LinkError> {
    if std::fs::symlink_metadata(dir).is_ok() {
        return Ok(());
    }
    os::make_dir(dir).map_err(|source| LinkError::Prepare { path: dir.to_owned(), source })
}
