//! Finding sessions in a directory. Reads the first line of a file and nothing more.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;

use crate::header::StoredHeader;
use crate::{Error, file, load, platform};

/// Bytes read at once while looking for the end of a header.
const CHUNK: u64 = 64 * 1024;

/// A first line longer than this is no header of ours: do not read a large foreign file to its end.
const MAX_HEADER: u64 = 1024 * 1024;

/// A session file as a listing sees it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its path.
    pub path: PathBuf,
    /// When the file was last written to.
    pub modified: SystemTime,
    /// Its header.
    pub header: StoredHeader,
}

/// All sessions of a directory, the last written first; internal ones and files that are no sessions are left out. With
/// `cwd`, only those of that working directory: folders of several directories can have one name.
///
/// # Errors
/// [`Error::Read`] when the directory cannot be read. A missing directory is an empty one.
pub fn list(dir: &Path, cwd: Option<&str>) -> Result<Vec<Listed>, Error> {
    Ok(sessions(dir, cwd)?.collect())
}

/// The session of a directory that was last written to, for `--continue`.
///
/// # Errors
/// Those of [`list`].
pub fn newest(dir: &Path, cwd: Option<&str>) -> Result<Option<Listed>, Error> {
    Ok(sessions(dir, cwd)?.next())
}

/// The session with this id; else the last written whose id begins so. `None` for an empty id.
///
/// # Errors
/// Those of [`list`].
pub fn find_by_id(dir: &Path, id: &str) -> Result<Option<Listed>, Error> {
    let mut first = None;
    if id.is_empty() {
        return Ok(None);
    }
    for session in sessions(dir, None)? {
        if session.header.header.id == id {
            return Ok(Some(session));
        }
        if first.is_none() && session.header.header.id.starts_with(id) {
            first = Some(session);
        }
    }
    Ok(first)
}

/// The directories of all working directories under `<agent_dir>/sessions`, for a search across them.
///
/// # Errors
/// [`Error::Read`] when the directory cannot be read. A missing directory is an empty one.
pub fn session_dirs(sessions: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found: Vec<PathBuf> = names(sessions)?.into_iter().filter(|path| path.is_dir()).collect();
    found.sort();
    Ok(found)
}

/// Files by time first, then headers one by one as they are asked for: the newest costs one header.
fn sessions(dir: &Path, cwd: Option<&str>) -> Result<impl Iterator<Item = Listed>, Error> {
    let mut files: Vec<(SystemTime, PathBuf)> = names(dir)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .filter_map(|path| {
            let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, path))
        })
        .collect();
    // Equal times: the later name, which begins with the time of creation.
    files.sort_unstable_by(|a, b| b.cmp(a));
    let cwd = cwd.map(str::to_owned);
    Ok(files.into_iter().filter_map(move |(modified, path)| {
        let header = read_header(&path)?;
        let wanted = !header.internal && cwd.as_ref().is_none_or(|cwd| *cwd == header.header.cwd);
        wanted.then_some(Listed { path, modified, header })
    }))
}

pub(crate) fn names(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Read { path: dir.into(), source };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed(source)),
    };
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
}

/// The header of a file. Whatever goes wrong makes the file none of ours.
pub fn read_header(path: &Path) -> Option<StoredHeader> {
    let mut file = file::open_regular(path, platform::open_for_reading).ok()?;
    let mut bytes = Vec::new();
    let end = loop {
        let start = bytes.len();
        let read = (&mut file).take(CHUNK).read_to_end(&mut bytes).ok()?;
        if let Some(end) = memchr::memchr(b'\n', &bytes[start..]) {
            break start + end;
        }
        if read == 0 {
            break bytes.len();
        }
        if bytes.len() as u64 > MAX_HEADER {
            return None;
        }
    };
    let line = load::record(&Bytes::from(bytes), 0..end)?;
    StoredHeader::read(&line)
}
