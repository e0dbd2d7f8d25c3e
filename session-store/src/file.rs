//! The file of one session, open and locked: whole lines go in, or nothing.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::{Error, disk, platform};

/// Copies of one old file that are kept apart; somebody who puts the old bytes back again and again has more.
const MAX_BACKUPS: usize = 100;

/// How often a file is opened again because it was replaced between opening and locking. Replacing is what a migration
/// does, once; more than that is somebody playing.
const REPLACED_RETRIES: usize = 4;

/// An open session file. The writer's lock is held until this is dropped.
#[derive(Debug)]
pub(crate) struct SessionFile {
    path: PathBuf,
    /// `None` only inside [`SessionFile::replace`] and [`SessionFile::delete`].
    file: Option<File>,
    /// Where our last line ended.
    size: u64,
    /// The last line has no LF: the next append begins with one.
    open_line: bool,
    /// A failed write could not be taken back: these bytes are the beginning of a line of ours.
    unfinished: Option<Range<u64>>,
    /// The file's name is new in its directory and not yet synced.
    new_name: Arc<AtomicBool>,
}

impl SessionFile {
    /// Creates the file, or takes an empty one. The flag says whether it was created.
    pub(crate) fn create(path: &Path) -> Result<(SessionFile, bool), Error> {
        let file = match disk::create_new(path) {
            // The directory was there when the path was reserved. Nothing is lost yet, so make it again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_parent(path)?;
                disk::create_new(path)
            }
            other => other,
        };
        match file {
            Ok(file) => {
                let created =
                    SessionFile::locked(path, file, 0)?.ok_or_else(|| Error::Gone { path: path.into() })?;
                created.new_name.store(true, Ordering::Relaxed);
                Ok((created, true))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let existing = SessionFile::open(path)?;
                if !existing.is_empty() {
                    return Err(Error::Exists { path: path.into() });
                }
                Ok((existing, false))
            }
            Err(source) => Err(Error::Append { path: path.into(), source }),
        }
    }

    /// Opens and locks a file that exists.
    pub(crate) fn open(path: &Path) -> Result<SessionFile, Error> {
        for _ in 0..REPLACED_RETRIES {
            let file = open_regular(path, disk::open_for_appending)?;
            let size = file.metadata().map_err(|source| Error::Open { path: path.into(), source })?.len();
            if let Some(file) = SessionFile::locked(path, file, size)? {
                return Ok(file);
            }
        }
        Err(Error::Gone { path: path.into() })
    }

    /// `None` when the path leads to another file by now: whoever replaced it held the lock on the one we have.
    fn locked(path: &Path, file: File, size: u64) -> Result<Option<SessionFile>, Error> {
        let failed = |source| Error::Open { path: path.into(), source };
        if !platform::lock(&file).map_err(failed)? {
            return Err(Error::Locked { path: path.into(), holder: platform::holder(&file) });
        }
        if !platform::is_at(&file, path).map_err(failed)? {
            return Ok(None);
        }
        Ok(Some(SessionFile {
            path: path.into(),
            file: Some(file),
            size,
            open_line: false,
            unfinished: None,
            new_name: Arc::default(),
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("the file is open but inside replace, which fails the whole opening")
    }

    /// Reads all of it, once. Notes whether its last line is open.
    pub(crate) fn read(&mut self) -> Result<Bytes, Error> {
        let bytes = read_all(self.file(), &self.path)?;
        self.size = bytes.len() as u64;
        self.open_line = bytes.last().is_some_and(|last| *last != b'\n');
        Ok(bytes)
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Appends whole lines in one write. On an error the file is as it was. What a program that knows nothing of the lock
    /// has appended and [`SessionFile::grown`] has not yet given stays before them.
    pub(crate) fn append(&mut self, lines: &[u8]) -> Result<(), Error> {
        debug_assert!(lines.last() == Some(&b'\n'), "whole lines");
        self.take_back()?;
        if !platform::is_at(self.file(), &self.path).map_err(|source| self.failed(source))? {
            return Err(Error::Gone { path: self.path.clone() });
        }
        let end = self.length()?;
        if end < self.size {
            return Err(Error::Shrunk { path: self.path.clone() });
        }
        let unseen = end > self.size;
        let open_line = match unseen {
            true => self.last_byte(end).map_err(|source| self.failed(source))? != b'\n',
            false => self.open_line,
        };
        let lines = match open_line {
            true => Cow::Owned([b"\n", lines].concat()),
            false => Cow::Borrowed(lines),
        };
        match disk::append(self.file(), &lines, end) {
            Ok(()) => {
                let whole = end + lines.len() as u64;
                // With bytes that nobody has seen, ours are looked at again with them.
                if !unseen && self.length()? == whole {
                    self.size = whole;
                    self.open_line = false;
                }
                Ok(())
            }
            Err(source) => match disk::set_len(self.file(), end) {
                Ok(()) => Err(self.failed(source)),
                Err(undo) => {
                    self.unfinished = self.length().ok().map(|length| end..length);
                    Err(Error::RollBack { path: self.path.clone(), source, undo })
                }
            },
        }
    }

    /// Cuts off what a failed write has left, unless somebody has written behind it: then it stays, as any torn line.
    fn take_back(&mut self) -> Result<(), Error> {
        if let Some(rest) = self.unfinished.clone() {
            if self.length()? == rest.end {
                disk::set_len(self.file(), rest.start).map_err(|source| self.failed(source))?;
            }
            self.unfinished = None;
        }
        Ok(())
    }

    fn last_byte(&self, end: u64) -> io::Result<u8> {
        let mut file = self.file();
        file.seek(SeekFrom::Start(end - 1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        Ok(last[0])
    }

    /// What was appended to the file and not by us; whole lines only, unless `all`. It counts as seen.
    pub(crate) fn grown(&mut self, all: bool) -> Result<Bytes, Error> {
        self.take_back()?;
        let end = self.length()?;
        if end < self.size {
            return Err(Error::Shrunk { path: self.path.clone() });
        }
        if end == self.size {
            return Ok(Bytes::new());
        }
        let mut file = self.file();
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.size))
            .and_then(|_| file.take(end - self.size).read_to_end(&mut bytes))
            .map_err(|source| Error::Read { path: self.path.clone(), source })?;
        if !all {
            bytes.truncate(memchr::memrchr(b'\n', &bytes).map_or(0, |last| last + 1));
        }
        self.size += bytes.len() as u64;
        if let Some(last) = bytes.last() {
            self.open_line = *last != b'\n';
        }
        Ok(bytes.into())
    }

    fn length(&self) -> Result<u64, Error> {
        Ok(self.file().metadata().map_err(|source| self.failed(source))?.len())
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Append { path: self.path.clone(), source }
    }

    /// Keeps these bytes, which are the file's, beside it as `<name>.v<version>.bak`, and gives the copy's path. A copy that
    /// is there already and says something else keeps its name; this one gets a number.
    pub(crate) fn back_up(&self, bytes: &[u8], version: u32) -> Result<PathBuf, Error> {
        let failed = |source| Error::Backup { path: self.path.clone(), source };
        let target = fs::canonicalize(&self.path).map_err(failed)?;
        let directory = target.parent().expect("a file has a directory");
        let mut new = tempfile::Builder::new()
            .prefix(".")
            .suffix(".tmp")
            .make_in(directory, disk::create_new)
            .map_err(failed)?;
        new.as_file_mut().write_all(bytes).map_err(failed)?;
        let permissions = self.file().metadata().map_err(failed)?.permissions();
        new.as_file().set_permissions(permissions).map_err(failed)?;
        new.as_file().sync_all().map_err(failed)?;
        let mut new = new.into_temp_path();
        for number in 1..=MAX_BACKUPS {
            let mut name = target.file_name().expect("a file has a name").to_owned();
            name.push(format!(".v{version}"));
            if number > 1 {
                name.push(format!(".{number}"));
            }
            name.push(".bak");
            let backup = directory.join(name);
            match new.persist_noclobber(&backup) {
                Ok(()) => {
                    platform::sync_dir(directory).map_err(failed)?;
                    return Ok(backup);
                }
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                    if fs::read(&backup).is_ok_and(|kept| kept == bytes) {
                        return Ok(backup);
                    }
                    new = error.path;
                }
                Err(error) => return Err(failed(error.error)),
            }
        }
        Err(failed(io::Error::other(format!("there are {MAX_BACKUPS} copies already"))))
    }

    /// Puts other content in the file's place: a temporary file beside it, synced, renamed over it, its name synced.
    /// Mode bits are kept, and so is the lock (on Windows but for an instant).
    pub(crate) fn replace(&mut self, content: &[u8]) -> Result<(), Error> {
        let path = self.path.clone();
        let failed = |source| Error::Migrate { path: path.clone(), source };
        // A link to a session stays a link.
        let target = fs::canonicalize(&self.path).map_err(failed)?;
        let directory = target.parent().expect("a file has a directory");
        let permissions = self.file().metadata().map_err(failed)?.permissions();
        let mut new = tempfile::Builder::new()
            .prefix(".")
            .suffix(".tmp")
            .make_in(directory, disk::create_new)
            .map_err(failed)?;
        // Locked before it has the name, so nobody comes between.
        if !platform::lock(new.as_file()).map_err(failed)? {
            return Err(Error::Locked { path, holder: None });
        }
        new.as_file_mut().write_all(content).map_err(failed)?;
        new.as_file().set_permissions(permissions).map_err(failed)?;
        new.as_file().sync_all().map_err(failed)?;
        let file = disk::replace(&mut self.file, new, &target).map_err(|source| {
            if platform::is_in_use(&source) {
                Error::Locked { path: path.clone(), holder: None }
            } else {
                failed(source)
            }
        })?;
        platform::sync_dir(directory).map_err(failed)?;
        self.file = Some(file);
        self.size = content.len() as u64;
        self.open_line = content.last().is_some_and(|last| *last != b'\n');
        Ok(())
    }

    /// Takes a file away that [`SessionFile::create`] has created and nothing was written to.
    pub(crate) fn discard(self) {
        // If it stays, it is an empty file, which the next attempt takes as its own.
        let _ = fs::remove_file(&self.path);
    }

    /// Removes the file, locked as it is.
    pub(crate) fn delete(mut self) -> Result<(), Error> {
        let path = self.path.clone();
        let failed = |source| Error::Delete { path: path.clone(), source };
        if !platform::is_at(self.file(), &path).map_err(failed)? {
            return Err(Error::Gone { path: path.clone() });
        }
        platform::remove(&mut self.file, &path).map_err(failed)
    }

    pub(crate) fn sync_handle(&self) -> Result<SyncHandle, Error> {
        let file =
            self.file().try_clone().map_err(|source| Error::Sync { path: self.path.clone(), source })?;
        Ok(SyncHandle { file, path: self.path.clone(), new_name: Arc::clone(&self.new_name) })
    }
}

impl Drop for SessionFile {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            platform::unlock(file);
        }
    }
}

/// What is needed to bring a session's file to the disk while its owner goes on appending. Short-lived: on Windows the
/// session stays locked while one exists.
#[derive(Debug)]
pub struct SyncHandle {
    file: File,
    path: PathBuf,
    new_name: Arc<AtomicBool>,
}

impl SyncHandle {
    /// fdatasync: everything appended before is on the disk when this returns. The first time it also syncs the
    /// directory, else a new file's name could be lost. Blocks; made for another thread.
    ///
    /// # Errors
    /// [`Error::Sync`].
    pub fn sync(self) -> Result<(), Error> {
        let failed = |source| Error::Sync { path: self.path.clone(), source };
        self.file.sync_data().map_err(failed)?;
        if self.new_name.load(Ordering::Relaxed) {
            let directory = self.path.parent().filter(|directory| !directory.as_os_str().is_empty());
            platform::sync_dir(directory.unwrap_or(Path::new("."))).map_err(failed)?;
            self.new_name.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Opens `path` if it is a regular file. Looks before it opens, since opening a device can have effects, and again
/// afterwards, since somebody may have been quicker.
pub(crate) fn open_regular(path: &Path, open: fn(&Path) -> io::Result<File>) -> Result<File, Error> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path: path.into() },
        _ if platform::is_in_use(&source) => Error::Locked { path: path.into(), holder: None },
        _ => Error::Open { path: path.into(), source },
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::NotAFile { path: path.into() });
    }
    let file = open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Error::NotAFile { path: path.into() });
    }
    Ok(file)
}

/// Reads an open file from its beginning.
pub(crate) fn read_all(mut file: &File, path: &Path) -> Result<Bytes, Error> {
    let failed = |source| Error::Read { path: path.into(), source };
    file.rewind().map_err(failed)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(Bytes::from(bytes))
}

/// Makes the directory that `path` lies in.
pub(crate) fn make_parent(path: &Path) -> Result<(), Error> {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => platform::make_dir(directory)
            .map_err(|source| Error::CreateDirectory { path: directory.into(), source }),
        _ => Ok(()),
    }
}
