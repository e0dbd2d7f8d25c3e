//! What tells a file from a changed one, without reading it.

use std::path::Path;
use std::time::SystemTime;

/// How a file looked. A file that was replaced has another identity, even within one tick of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    identity: u64,
}

impl Stamp {
    /// `None`: there is no such file. One look at a local file's status, which is not worth a thread.
    pub(crate) fn of(file: &Path) -> Option<Stamp> {
        let status = file.metadata().ok()?;
        Some(Stamp { modified: status.modified().ok(), bytes: status.len(), identity: identity(&status) })
    }
}

#[cfg(unix)]
fn identity(status: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(status)
}

/// The number of a file takes an open handle here; creation is as good, since who replaces a file creates one.
#[cfg(not(unix))]
fn identity(status: &std::fs::Metadata) -> u64 {
    let created = status.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    created.map_or(0, |age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_another_one_though_it_is_as_long_and_as_old() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("a"), dir.path().join("b"));
        assert_eq!(Stamp::of(&file), None);
        std::fs::write(&file, "one").unwrap();
        let before = Stamp::of(&file).unwrap();
        assert_eq!(Stamp::of(&file), Some(before));
        std::fs::write(&other, "two").unwrap();
        let time = std::fs::metadata(&file).unwrap().modified().unwrap();
        std::fs::File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
        std::fs::rename(&other, &file).unwrap();
        assert_ne!(Stamp::of(&file), Some(before));
    }
}
