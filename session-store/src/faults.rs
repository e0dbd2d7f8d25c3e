//! A disk that fails when a test says so: the calls of [`crate::platform`] that change a file, with faults put before
//! them. Per thread, so that tests do not meet each other's.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::path::Path;

use crate::platform;

thread_local! {
    static APPENDS: RefCell<Vec<(usize, io::ErrorKind)>> = const { RefCell::new(Vec::new()) };
    static CUTS: Cell<Option<io::ErrorKind>> = const { Cell::new(None) };
    static OPENS: Cell<Option<io::ErrorKind>> = const { Cell::new(None) };
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
}
