//! Removing a session for good.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::file::SessionFile;
use crate::{Error, load};

/// Removes a session's file and the copies that were kept of it (`<name>.….bak`) and of its planners (`<name>.….json`), and gives the paths that are gone. The
/// session must be nobody's at the moment, and the file a session: anything else is left alone.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NotAFile`], [`Error::NotASession`], [`Error::Locked`], [`Error::Gone`], [`Error::Open`],
/// [`Error::Read`]: nothing was removed. [`Error::Delete`]: the named file stays, perhaps one of several.
pub fn delete(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut file = SessionFile::open(path)?;
    if load::header(&file.read()?).is_none() {
        return Err(Error::NotASession { path: path.into() });
    }
    // The copies first: as long as the session is there, they are found again.
    let mut gone = Vec::new();
    for copy in copies(path) {
        fs::remove_file(&copy).map_err(|source| Error::Delete { path: copy.clone(), source })?;
        gone.push(copy);
    }
    file.delete()?;
    gone.insert(0, path.into());
    Ok(gone)
}

fn copies(path: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let is_copy = |other: &OsStr| {
        let rest = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let ends = |rest: &[u8]| rest.ends_with(b".bak") || rest.ends_with(b".json");
        rest.is_some_and(|rest| rest.starts_with(b".") && ends(rest))
    };
    let mut found: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()) && is_copy(&entry.file_name()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
