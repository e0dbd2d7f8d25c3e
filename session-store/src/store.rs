//! One session: its entries in memory and, if it has one, its file. Exactly one owner writes to it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use atomic_protocol::entry::{Entry, EntryId, Header};

use crate::entry::{Parsed, ReadyEntry};
use crate::file::{self, SessionFile, SyncHandle};
use crate::header::StoredHeader;
use crate::index::Index;
use crate::load::{self, Loaded, Problem};
use crate::migrate::migrate;
use crate::{Error, Stats, StoredEntry, check_session_id, platform, session_file_name};

/// A session and its file.
#[derive(Debug)]
pub struct Store {
    header: StoredHeader,
    index: Index,
    place: Place,
    /// How many records, the header being the first, have been written. A count and not a flag: whatever is buffered is
    /// exactly what comes after it, so no record can be written twice.
    written: usize,
    /// Where a migration kept the file as it was.
    backup: Option<PathBuf>,
    /// Entries that other programs have appended and nobody was told of.
    foreign: usize,
    /// Summaries that another program wrote stand for what came before them.
    unmarked: bool,
}

/// Where a session's bytes go.
#[derive(Debug)]
enum Place {
    /// Nowhere.
    Memory,
    /// To this path, once there is something to say.
    Reserved(PathBuf),
    /// Into this file.
    File(SessionFile),
    /// They came from this path and stay as they are.
    ReadOnly(PathBuf),
}

impl Store {
    /// Begins a session: in memory only, or with a path in `dir` that is decided now and written to later. The directory is
    /// made (mode 0700), nothing else is.
    ///
    /// # Errors
    /// [`Error::SessionId`], [`Error::CreateDirectory`], and those of [`Store::create_at`].
    pub fn create(header: Header, dir: Option<&Path>) -> Result<Store, Error> {
        check_session_id(&header.id)?;
        match dir {
            None => Ok(Store::begin(header, Place::Memory)),
            Some(dir) => {
                let path = dir.join(session_file_name(header.timestamp, &header.id));
                Store::create_at(header, path)
            }
        }
    }

    /// Begins a session with a path that does not exist yet, or where an empty file lies; that one is locked at once.
    ///
    /// # Errors
    /// [`Error::Exists`] when there is something in the file, [`Error::NotAFile`], [`Error::Locked`],
    /// [`Error::CreateDirectory`], [`Error::Open`].
    pub fn create_at(header: Header, path: PathBuf) -> Result<Store, Error> {
        match SessionFile::open(&path) {
            Ok(existing) => {
                if !existing.is_empty() {
                    return Err(Error::Exists { path });
                }
                Ok(Store::begin(header, Place::File(existing)))
            }
            Err(Error::NotFound { .. }) => {
                file::make_parent(&path)?;
                Ok(Store::begin(header, Place::Reserved(path)))
            }
            Err(error) => Err(error),
        }
    }

    fn begin(header: Header, place: Place) -> Store {
        let header = StoredHeader::new(header);
        Store {
            header,
            index: Index::default(),
            place,
            written: 0,
            backup: None,
            foreign: 0,
            unmarked: false,
        }
    }

    /// Opens a session's file and locks it. Lines that are no entries are skipped and reported; their bytes stay. Files of
    /// version 1 and 2 are rewritten as version 3, and kept as they were in [`Store::backup`]; a newer version is read as far as it is understood and never rewritten.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAFile`], [`Error::Empty`], [`Error::NotASession`], [`Error::Locked`],
    /// [`Error::Open`], [`Error::Read`], [`Error::Backup`], [`Error::Migrate`]. The file is unchanged after each of them.
    pub fn open(path: &Path) -> Result<(Store, Vec<Problem>), Error> {
        let mut file = SessionFile::open(path)?;
        let mut bytes = file.read()?;
        let mut backup = None;
        if let Some((version, migrated)) = migrate(&bytes) {
            backup = Some(file.back_up(&bytes, version)?);
            file.replace(&migrated)?;
            bytes = migrated;
        }
        let (mut store, problems) = Store::loaded(path, &bytes, Place::File(file))?;
        store.backup = backup;
        Ok((store, problems))
    }

    /// [`Store::open`], or [`Store::create_at`] with the header that `header` makes when there is no file or an empty one.
    ///
    /// # Errors
    /// Those of the two.
    pub fn open_or_create(
        path: &Path,
        header: impl FnOnce() -> Header,
    ) -> Result<(Store, Vec<Problem>), Error> {
        match Store::open(path) {
            Err(Error::NotFound { .. } | Error::Empty { .. }) => {
                Store::create_at(header(), path.to_path_buf()).map(|store| (store, Vec::new()))
            }
            other => other,
        }
    }

    /// Reads a session without locking it and without changing the file, even when somebody has it open. Appending fails.
    ///
    /// # Errors
    /// Those of [`Store::open`] but `Locked`, `Backup` and `Migrate`.
    pub fn open_read_only(path: &Path) -> Result<(Store, Vec<Problem>), Error> {
        let file = file::open_regular(path, platform::open_for_reading)?;
        let bytes = file::read_all(&file, path)?;
        let bytes = migrate(&bytes).map_or(bytes, |(_, migrated)| migrated);
        Store::loaded(path, &bytes, Place::ReadOnly(path.into()))
    }

    fn loaded(path: &Path, bytes: &bytes::Bytes, place: Place) -> Result<(Store, Vec<Problem>), Error> {
        if bytes.is_empty() {
            return Err(Error::Empty { path: path.into() });
        }
        let Loaded { header, index, problems } =
            load::load(bytes).ok_or_else(|| Error::NotASession { path: path.into() })?;
        let written = 1 + index.entries().len();
        Ok((Store { header, index, place, written, backup: None, foreign: 0, unmarked: false }, problems))
    }

    /// The session's header.
    pub fn header(&self) -> &Header {
        &self.header.header
    }

    /// The header with its line, which may have fields that [`Header`] does not.
    pub fn stored_header(&self) -> &StoredHeader {
        &self.header
    }

    /// Where the session's file is, or will be. `None` for a session in memory.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Memory => None,
            Place::Reserved(path) | Place::ReadOnly(path) => Some(path),
            Place::File(file) => Some(file.path()),
        }
    }

    /// Where the bytes of a file of an old version were kept when opening it brought it to version 3.
    pub fn backup(&self) -> Option<&Path> {
        self.backup.as_deref()
    }

    /// Whether the session stands in its file: something was said in it.
    pub fn is_written(&self) -> bool {
        self.written > 0
    }

    /// Appends an entry, which becomes the leaf. Entries are kept back until the first of type message, custom_message or
    /// session_info; it goes out together with the header and all of them in one write, later ones in one write each.
    ///
    /// # Errors
    /// Then the entry is neither in the file nor in memory. [`Error::EntryExists`] and [`Error::EntryNotFound`] (an unknown
    /// parent); [`Error::Append`] or [`Error::RollBack`] when writing failed; [`Error::Gone`] and [`Error::Shrunk`] when
    /// the file is not what it was; [`Error::Locked`] or [`Error::Exists`] when the reserved path was taken meanwhile;
    /// [`Error::ReadOnly`].
    pub fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        self.append_line(entry.to_line())
    }

    /// Appends an entry given as its line, without LF: for types that [`Entry`] does not have.
    ///
    /// # Errors
    /// Those of [`Store::append`], and [`Error::NotAnEntry`].
    pub fn append_line(&mut self, line: Vec<u8>) -> Result<(), Error> {
        self.append_ready(ReadyEntry::read(line)?)
    }

    /// Appends an entry that was made ready before: nothing is left to do but to write it, however long it is.
    ///
    /// # Errors
    /// Those of [`Store::append`].
    pub fn append_ready(&mut self, entry: ReadyEntry) -> Result<(), Error> {
        self.check(&entry)?;
        self.write(std::slice::from_ref(&entry))?;
        self.publish([entry.parsed]);
        Ok(())
    }

    /// Appends several entries in one write: all or none.
    pub(crate) fn append_lines(&mut self, lines: Vec<Vec<u8>>) -> Result<(), Error> {
        let mut checked: Vec<ReadyEntry> = Vec::with_capacity(lines.len());
        for line in lines {
            // Copied entries keep what their file had, dangling parents included.
            checked.push(ReadyEntry::read(line)?);
        }
        self.write(&checked)?;
        self.publish(checked.into_iter().map(|entry| entry.parsed));
        Ok(())
    }

    fn publish(&mut self, entries: impl IntoIterator<Item = Parsed>) {
        for parsed in entries {
            self.index.publish(parsed);
        }
        if self.written > 0 {
            self.written = 1 + self.index.entries().len();
        }
    }

    /// Looks whether another program has appended to the file; see [`Store::take_foreign`]. Appending looks too.
    ///
    /// # Errors
    /// [`Error::Shrunk`], [`Error::Read`], [`Error::Append`] when the file cannot be looked at.
    pub fn look(&mut self) -> Result<(), Error> {
        if let Place::File(file) = &mut self.place
            && self.written > 0
        {
            let grown = file.grown(false)?;
            self.absorb(&grown);
        }
        Ok(())
    }

    /// How many entries another program has appended since this was last asked. They are part of [`Store::entries`] and
    /// stay in the file; the leaf is not theirs: what is appended next follows what this store's owner saw.
    pub fn take_foreign(&mut self) -> usize {
        std::mem::take(&mut self.foreign)
    }

    /// Takes what another program wrote into the session.
    fn absorb(&mut self, bytes: &bytes::Bytes) {
        for (_, range) in load::lines(bytes) {
            let Some(Ok(parsed)) = load::record(bytes, range).map(Parsed::read) else { continue };
            let known = self.find(parsed.entry.id.as_str());
            if known.is_some_and(|at| self.entries()[at].line == parsed.entry.line) {
                continue;
            }
            self.index.publish_aside(parsed);
            self.foreign += 1;
        }
        self.written = 1 + self.index.entries().len();
    }

    /// Writes what is kept back, header included, although nothing was said yet: for a session that another process goes
    /// on with. Nothing happens when there is nothing to write or no file to write to.
    ///
    /// # Errors
    /// Those of [`Store::append`] that are about the file.
    pub fn write_out(&mut self) -> Result<(), Error> {
        match self.written {
            0 if !self.index.entries().is_empty() => self.write_now(&[]),
            _ => Ok(()),
        }
    }

    fn check(&self, ready: &ReadyEntry) -> Result<(), Error> {
        if let Place::ReadOnly(path) = &self.place {
            return Err(Error::ReadOnly { path: path.clone() });
        }
        let StoredEntry { id, parent_id, .. } = &ready.parsed.entry;
        if self.find(id.as_str()).is_some() {
            return Err(Error::EntryExists { id: id.to_string() });
        }
        match parent_id {
            Some(parent) if self.find(parent.as_str()).is_none() => {
                Err(Error::EntryNotFound { id: parent.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Writes what is not written yet and then `new`, if it is time to.
    fn write(&mut self, new: &[ReadyEntry]) -> Result<(), Error> {
        let due = self.written > 0 || new.iter().any(|ready| ready.parsed.entry.kind.makes_file());
        if due { self.write_now(new) } else { Ok(()) }
    }

    fn write_now(&mut self, new: &[ReadyEntry]) -> Result<(), Error> {
        if matches!(self.place, Place::Memory) {
            return Ok(());
        }
        let header = (self.written == 0).then_some(&self.header.line);
        let buffered = self.index.entries()[self.written.saturating_sub(1)..].iter().map(|entry| &entry.line);
        let mut payload = Vec::new();
        for line in header.into_iter().chain(buffered) {
            payload.extend_from_slice(line.bytes());
            payload.push(b'\n');
        }
        // As a rule there is one entry and nothing before it: it is written from where it lies.
        let payload = match new {
            [only] if payload.is_empty() => Cow::Borrowed(&only.text[..]),
            _ => {
                new.iter().for_each(|ready| payload.extend_from_slice(&ready.text));
                Cow::Owned(payload)
            }
        };
        match &mut self.place {
            Place::File(file) => {
                let grown = file.grown(true)?;
                if self.written == 0 && !file.is_empty() {
                    // The empty file that was to become the session: whoever has written to it has it.
                    return Err(Error::Exists { path: file.path().into() });
                }
                let appended = file.append(&payload);
                if !grown.is_empty() {
                    self.absorb(&grown);
                }
                appended?;
            }
            Place::Reserved(path) => {
                let (mut file, created) = SessionFile::create(path)?;
                if let Err(error) = file.append(&payload) {
                    if created {
                        file.discard();
                    }
                    return Err(error);
                }
                self.place = Place::File(file);
            }
            Place::ReadOnly(path) => return Err(Error::ReadOnly { path: path.clone() }),
            Place::Memory => {}
        }
        // The new ones are counted when they are published.
        self.written = 1 + self.index.entries().len();
        Ok(())
    }

    /// All entries in the order of the file, on all branches.
    pub fn entries(&self) -> &[StoredEntry] {
        self.index.entries()
    }

    /// Where in [`Store::entries`] the entry is; of several with one id the last.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.index.find(id)
    }

    /// The entry that the next one follows: the last of the file, unless [`Store::set_leaf`] moved it. `None` in a new
    /// session and before its first entry.
    pub fn leaf(&self) -> Option<&EntryId> {
        self.index.leaf().map(|at| &self.index.entries()[at].id)
    }

    /// Goes to another entry, or before the first. In memory only: the parent of the next entry will tell.
    ///
    /// # Errors
    /// [`Error::EntryNotFound`].
    pub fn set_leaf(&mut self, leaf: Option<&EntryId>) -> Result<(), Error> {
        let at = match leaf {
            None => None,
            Some(id) => {
                Some(self.find(id.as_str()).ok_or_else(|| Error::EntryNotFound { id: id.to_string() })?)
            }
        };
        self.index.set_leaf(at);
        Ok(())
    }

    /// The entries from the root to `leaf`, as places in [`Store::entries`]. Empty for `None` and for an unknown id. Ends
    /// where a parent is missing or a circle closes.
    pub fn branch(&self, leaf: Option<&EntryId>) -> Vec<usize> {
        self.index.branch(leaf)
    }

    /// Whether a compaction without a strategy, as Pi writes its summaries, stands for what came before it. By default it
    /// does not, and all of the conversation counts.
    pub fn take_unmarked_summaries(&mut self, take: bool) {
        self.unmarked = take;
    }

    pub(crate) fn takes_unmarked_summaries(&self) -> bool {
        self.unmarked
    }

    /// The session's name: what the last session_info of the file says. `None` when it never had one or it was cleared.
    pub fn name(&self) -> Option<&str> {
        self.index.name.as_deref()
    }

    /// What brings the file to the disk, for use on another thread. `None` while there is no file.
    ///
    /// # Errors
    /// [`Error::Sync`] when the process is out of file descriptors.
    pub fn sync(&self) -> Result<Option<SyncHandle>, Error> {
        match &self.place {
            Place::File(file) if self.written > 0 => file.sync_handle().map(Some),
            _ => Ok(None),
        }
    }

    /// Counts over all entries, kept as they arrive.
    pub fn stats(&self) -> Stats {
        self.index.stats
    }
}
