//! A disk that fails when a test says so: the calls of [`crate::platform`] that change a file, with faults put before
//! them. Per thread, so that tests do not meet each other's.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::{NamedTempFile, TempPath};

use crate::platform;

thread_local! {
    static APPENDS: RefCell<Vec<(usize, io::ErrorKind)>> = const { RefCell::new(Vec::new()) };
    static CUTS: Cell<Option<io::ErrorKind>> = const { Cell::new(None) };
    static OPENS: Cell<Option<io::ErrorKind>> = const { Cell::new(None) };
    static CREATES: Cell<Option<io::ErrorKind>> = const { Cell::new(None) };
    static REPLACES: Cell<Option<io::ErrorKind>> = const { Cell::new(None) };
}

/// The next append writes this many bytes and fails.
pub(crate) fn fail_append(after: usize, kind: io::ErrorKind) {
    APPENDS.with_borrow_mut(|faults| faults.push((after, kind)));
}

/// Cutting a file off fails, until told otherwise.
pub(crate) fn fail_cuts(kind: Option<io::ErrorKind>) {
    CUTS.set(kind);
}

/// Opening a file for appending fails, until told otherwise.
pub(crate) fn fail_opens(kind: Option<io::ErrorKind>) {
    OPENS.set(kind);
}

/// Creating a file fails, until told otherwise.
pub(crate) fn fail_creates(kind: Option<io::ErrorKind>) {
    CREATES.set(kind);
}

/// Putting a finished file in the place of another fails, until told otherwise.
pub(crate) fn fail_replaces(kind: Option<io::ErrorKind>) {
    REPLACES.set(kind);
}

pub(crate) fn append(file: &File, bytes: &[u8], end: u64) -> io::Result<()> {
    let Some((after, kind)) = APPENDS.with_borrow_mut(Vec::pop) else {
        return platform::append(file, bytes, end);
    };
    platform::append(file, &bytes[..after.min(bytes.len())], end)?;
    Err(kind.into())
}

pub(crate) fn set_len(file: &File, length: u64) -> io::Result<()> {
    CUTS.get().map_or_else(|| file.set_len(length), |kind| Err(kind.into()))
}

pub(crate) fn open_for_appending(path: &Path) -> io::Result<File> {
    OPENS.get().map_or_else(|| platform::open_for_appending(path), |kind| Err(kind.into()))
}

pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    CREATES.get().map_or_else(|| platform::create_new(path), |kind| Err(kind.into()))
}

pub(crate) fn replace(old: &mut Option<File>, new: NamedTempFile<File>, path: &Path) -> io::Result<File> {
    match REPLACES.get() {
        None => platform::replace(old, new, path),
        Some(kind) => Err(kind.into()),
    }
}

pub(crate) fn put(new: TempPath, path: &Path) -> io::Result<()> {
    match REPLACES.get() {
        None => platform::put(new, path),
        Some(kind) => Err(kind.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind::{Other, PermissionDenied, ReadOnlyFilesystem, StorageFull};
    use std::io::Write as _;

    use atomic_protocol::Raw;
    use atomic_protocol::entry::{Entry, EntryBody, EntryId, Header};
    use atomic_protocol::time::Millis;

    use super::*;
    use crate::{Error, Store};

    fn user(id: &str, parent: Option<&str>) -> Entry {
        let message = Raw::parse(r#"{"role":"user","content":"hello"}"#).unwrap();
        let body = EntryBody::Message(message);
        Entry { id: id.into(), parent_id: parent.map(EntryId::from), timestamp: Millis(0), body }
    }

    fn begun(dir: &Path) -> (Store, std::path::PathBuf) {
        let header = Header { id: "s".into(), timestamp: Millis(0), cwd: "/w".into(), parent_session: None };
        let mut store = Store::create(header, Some(dir)).unwrap();
        store.append(&user("a", None)).unwrap();
        let path = store.path().unwrap().to_owned();
        (store, path)
    }

    /// Wherever the disk fills up: nothing of the line is left, and the next one is written as if nothing had been.
    #[test]
    fn a_full_or_broken_disk_takes_a_line_whole_or_not_at_all() {
        for kind in [StorageFull, Other] {
            for after in [0, 1, 20, usize::MAX] {
                let dir = tempfile::tempdir().unwrap();
                let (mut store, path) = begun(dir.path());
                let before = fs::read(&path).unwrap();
                fail_append(after, kind);
                let error = store.append(&user("b", Some("a"))).unwrap_err();
                assert!(matches!(error, Error::Append { .. }), "{error}");
                assert!(error.to_string().contains(path.to_str().unwrap()));
                assert_eq!(fs::read(&path).unwrap(), before, "after {after}");
                assert!(store.find("b").is_none());
                store.append(&user("b", Some("a"))).unwrap();
                drop(store);
                let (store, problems) = Store::open(&path).unwrap();
                assert_eq!((store.entries().len(), problems), (2, vec![]), "after {after}");
            }
        }
    }

    #[test]
    fn a_file_that_could_not_even_be_cut_is_cut_before_the_next_line() {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, path) = begun(dir.path());
        let before = fs::read(&path).unwrap();
        fail_append(9, StorageFull);
        fail_cuts(Some(Other));
        assert!(matches!(store.append(&user("b", Some("a"))), Err(Error::RollBack { .. })));
        assert_eq!(fs::read(&path).unwrap().len(), before.len() + 9);
        assert!(store.append(&user("b", Some("a"))).is_err(), "it still cannot");
        fail_cuts(None);
        store.append(&user("b", Some("a"))).unwrap();
        drop(store);
        let (store, problems) = Store::open(&path).unwrap();
        assert_eq!((store.entries().len(), problems), (2, vec![]));
    }

    /// Another program may have written behind our half line meanwhile: nothing of it is cut off.
    #[cfg(unix)]
    #[test]
    fn nothing_is_cut_that_another_program_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, path) = begun(dir.path());
        fail_append(9, StorageFull);
        fail_cuts(Some(Other));
        assert!(store.append(&user("b", Some("a"))).is_err());
        fail_cuts(None);
        let line = String::from_utf8(user("x", Some("a")).to_line()).unwrap();
        let mut other = fs::OpenOptions::new().append(true).open(&path).unwrap();
        write!(other, "\n{line}\n").unwrap();
        store.append(&user("b", Some("a"))).unwrap();
        assert_eq!(store.take_foreign(), 1);
        drop(store);
        let (store, problems) = Store::open(&path).unwrap();
        let ids: Vec<&str> = store.entries().iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!((ids, problems.len()), (vec!["a", "x", "b"], 1));
    }

    #[test]
    fn a_new_file_on_a_full_disk_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let header = Header { id: "s".into(), timestamp: Millis(0), cwd: "/w".into(), parent_session: None };
        let mut store = Store::create(header, Some(dir.path())).unwrap();
        fail_append(30, StorageFull);
        assert!(store.append(&user("a", None)).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        store.append(&user("a", None)).unwrap();
        assert!(store.is_written());
    }

    #[test]
    fn a_file_that_may_not_be_written_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let (store, path) = begun(dir.path());
        drop(store);
        let before = fs::read(&path).unwrap();
        for kind in [PermissionDenied, ReadOnlyFilesystem] {
            fail_opens(Some(kind));
            let error = Store::open(&path).unwrap_err();
            assert!(
                matches!(error, Error::Open { .. }) && error.to_string().contains(path.to_str().unwrap())
            );
            assert!(matches!(crate::delete(&path), Err(Error::Open { .. })));
            assert_eq!(Store::open_read_only(&path).unwrap().0.entries().len(), 1);
            fail_opens(None);
        }
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    fn names(dir: &Path) -> Vec<std::ffi::OsString> {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    /// An old file is rewritten whole or not at all, wherever on the way the disk gives up.
    #[test]
    fn a_migration_that_fails_changes_nothing() {
        const OLD: &str = "{\"type\":\"session\",\"id\":\"old\",\"timestamp\":\"2024-01-01T00:00:00.000Z\",\"cwd\":\"/w\"}\n\
            {\"type\":\"message\",\"timestamp\":\"2024-01-01T00:00:00.000Z\",\"message\":{\"role\":\"user\",\"content\":\"hi\"}}\n";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.jsonl");
        fs::write(&path, OLD).unwrap();
        fail_creates(Some(Other));
        assert!(matches!(Store::open(&path), Err(Error::Backup { .. })));
        fail_creates(None);
        assert_eq!(names(dir.path()), ["old.jsonl"]);
        fail_replaces(Some(Other));
        let error = Store::open(&path).unwrap_err();
        assert!(matches!(error, Error::Migrate { .. }) && error.to_string().contains("old.jsonl"), "{error}");
        fail_replaces(None);
        // The copy was made before; it is what the file still is, and serves the next attempt.
        assert_eq!(names(dir.path()), ["old.jsonl", "old.jsonl.v1.bak"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), OLD);
        let (store, _) = Store::open(&path).unwrap();
        assert_eq!(store.entries().len(), 1);
        assert_eq!(names(dir.path()), ["old.jsonl", "old.jsonl.v1.bak"]);
        assert_eq!(fs::read_to_string(store.backup().unwrap()).unwrap(), OLD);
    }

    #[test]
    fn a_copy_and_a_fork_that_cannot_be_made_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (store, path) = begun(dir.path());
        let before = names(dir.path());
        fail_creates(Some(Other));
        let error = crate::backup(&path, Millis(0), "compact").unwrap_err();
        assert!(matches!(error, Error::Copy { .. }) && error.to_string().contains("compact.bak"), "{error}");
        let header = Header { id: "f".into(), timestamp: Millis(0), cwd: "/w".into(), parent_session: None };
        assert!(crate::fork_file(&path, header, Some(dir.path())).is_err());
        let other = tempfile::tempdir().unwrap();
        assert!(matches!(crate::import(&path, other.path()), Err(Error::Import { .. })));
        fail_creates(None);
        assert_eq!(names(dir.path()), before);
        assert_eq!(names(other.path()), Vec::<std::ffi::OsString>::new());
        drop(store);
    }

    /// The index is written beside its place and moved there; the sessions are listed whatever becomes of it.
    #[test]
    fn an_index_that_cannot_be_put_in_place_stays_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (sessions, cache) = (dir.path().join("sessions"), dir.path().join("cache"));
        fs::create_dir(&sessions).unwrap();
        drop(begun(&sessions));
        let index = cache.join("index.jsonl");
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
        let list = || crate::listing(std::slice::from_ref(&sessions), None, Some(&index), later).unwrap();
        assert!(list().not_kept.is_none());
        let kept = fs::read(&index).unwrap();
        let header = Header { id: "t".into(), timestamp: Millis(1), cwd: "/w".into(), parent_session: None };
        let mut second = Store::create(header, Some(&sessions)).unwrap();
        second.append(&user("a", None)).unwrap();
        for fail in [fail_creates as fn(_), fail_replaces] {
            fail(Some(Other));
            let listed = list();
            assert_eq!(listed.sessions.len(), 2);
            assert!(listed.not_kept.unwrap().to_string().contains("index.jsonl"));
            fail(None);
            assert_eq!(fs::read(&index).unwrap(), kept);
            assert_eq!(names(&cache), ["index.jsonl"], "nothing half made is left");
        }
        assert!(list().not_kept.is_none());
        assert_ne!(fs::read(&index).unwrap(), kept);
    }
}
