//! Opening, locking and replacing session files on Windows.
//!
//! The lock is the share mode: our handle lets others read, and neither write nor delete. A byte-range lock would keep
//! readers out as well (listing, an editor that shows the file).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::Path;

use tempfile::{NamedTempFile, TempPath};

use crate::Holder;

/// `FILE_SHARE_READ`.
const SHARE_READ: u32 = 1;
/// `ERROR_SHARING_VIOLATION`: another handle excludes what we ask for.
const SHARING_VIOLATION: i32 = 32;

/// Creates a file that did not exist, for reading and writing. It inherits the directory's access list: a user's
/// profile is closed to other users.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).share_mode(SHARE_READ).open(path)
}

/// Opens a file for reading and writing. Not with append access: that could not cut off an unfinished line.
pub(crate) fn open_for_appending(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).share_mode(SHARE_READ).open(path)
}

/// Opens a file for reading; everybody may do what they like with it meanwhile.
pub(crate) fn open_for_reading(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Whether an error of opening says that another process has the file as its own.
pub(crate) fn is_in_use(error: &io::Error) -> bool {
    error.raw_os_error() == Some(SHARING_VIOLATION)
}

/// The open handle is the lock.
pub(crate) fn lock(_: &File) -> io::Result<bool> {
    Ok(true)
}

/// The lock goes with the last handle.
pub(crate) fn unlock(_: &File) {}

/// Whether `path` leads to the open `file`. Nobody can remove or replace it while the handle is open, short of taking
/// the volume away.
pub(crate) fn is_at(_: &File, path: &Path) -> io::Result<bool> {
    fs::exists(path)
}

/// Writes at `end`.
pub(crate) fn append(mut file: &File, bytes: &[u8], end: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(end))?;
    file.write_all(bytes)
}

/// Cuts the file off at `length`.
#[cfg_attr(test, expect(dead_code, reason = "tests of the library cut through its faults"))]
pub(crate) fn set_len(file: &File, length: u64) -> io::Result<()> {
    file.set_len(length)
}

/// Who holds the lock is not told here.
pub(crate) fn holder(_: &File) -> Option<Holder> {
    None
}

/// Removes the file at `path`, which is the open `file`: our handle lets nobody delete, so it goes first.
pub(crate) fn remove(file: &mut Option<File>, path: &Path) -> io::Result<()> {
    *file = None;
    fs::remove_file(path)
}

/// Creates a directory and what is missing above it.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// A directory cannot be opened for syncing here; NTFS journals its names.
pub(crate) fn sync_dir(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Puts `new` in the place of `old`; gives the file to go on with. Both handles have to go first, as neither lets
/// anybody rename: whoever opens the file in that moment has it, and the caller sees that as "in use".
pub(crate) fn replace(old: &mut Option<File>, new: NamedTempFile<File>, path: &Path) -> io::Result<File> {
    *old = None;
    new.into_temp_path().persist(path).map_err(|error| error.error)?;
    open_for_appending(path)
}

/// Puts a finished file in the place of another.
pub(crate) fn put(new: TempPath, path: &Path) -> io::Result<()> {
    new.persist(path).map_err(|error| error.error)
}
