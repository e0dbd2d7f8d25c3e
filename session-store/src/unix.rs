//! Opening, locking and replacing session files on Unix.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use tempfile::{NamedTempFile, TempPath};

use crate::Holder;

/// Transcripts hold what the user's files hold: for the owner only.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Creates a file that did not exist, for reading and appending.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Opens a file for reading and appending. Does not wait for a pipe's other end, nor adopt a terminal.
pub(crate) fn open_for_appending(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).custom_flags(harmless()).open(path)
}

/// Opens a file for reading, as harmlessly.
pub(crate) fn open_for_reading(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(harmless()).open(path)
}

fn harmless() -> i32 {
    (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed()
}

/// Whether an error of opening says that another process has the file as its own; here locks are asked for afterwards.
pub(crate) fn is_in_use(_: &io::Error) -> bool {
    false
}

/// Takes the writer's lock; `false` when somebody has it. A file system without locks counts as granted: refusing every
/// session there would protect nobody.
pub(crate) fn lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Gives the lock back now, even while a [`crate::SyncHandle`] still shares the open file.
pub(crate) fn unlock(file: &File) {
    // Nothing to do about a failure: the lock goes with the last descriptor.
    let _ = file.unlock();
}

/// Whether `path` leads to the open `file`.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok(ours.dev() == there.dev() && ours.ino() == there.ino()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Writes at the end of the file, which [`open_for_appending`] made the only place to write.
pub(crate) fn append(mut file: &File, bytes: &[u8], _end: u64) -> io::Result<()> {
    file.write_all(bytes)
}

/// Cuts the file off at `length`.
#[cfg_attr(test, expect(dead_code, reason = "tests of the library cut through its faults"))]
pub(crate) fn set_len(file: &File, length: u64) -> io::Result<()> {
    file.set_len(length)
}

/// Who holds the lock that [`lock`] did not get. The kernel lists locks by device and inode; a file system that is put
/// together from others may show other numbers there than here, and then nobody is named.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn holder(file: &File) -> Option<Holder> {
    let metadata = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // `1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF`; who waits for it has an arrow after the number.
        match fields[..] {
            [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok(),
            _ => None,
        }
    });
    let pid = pid.filter(|pid| *pid > 0)?;
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    Some(Holder { pid, program: program.map(|name| name.trim_end().to_owned()) })
}

/// Who holds the lock is not told here.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn holder(_: &File) -> Option<Holder> {
    None
}

/// Removes the file at `path`, which is the open `file`. The lock goes last: nobody opens what is about to vanish.
pub(crate) fn remove(file: &mut Option<File>, path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    *file = None;
    Ok(())
}

/// Creates a directory and what is missing above it.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Brings the names in a directory to the disk.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Puts `new`, which is locked already, in the place of `old`; gives the file to go on with.
pub(crate) fn replace(old: &mut Option<File>, new: NamedTempFile<File>, path: &Path) -> io::Result<File> {
    let file = new.persist(path).map_err(|error| error.error)?;
    // Only now: nobody may lock the old file and believe it is the session.
    *old = None;
    Ok(file)
}

/// Puts a finished file in the place of another.
pub(crate) fn put(new: TempPath, path: &Path) -> io::Result<()> {
    new.persist(path).map_err(|error| error.error)
}
