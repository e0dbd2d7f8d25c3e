//! The tree of output files, walked by descriptor so that nobody can swap a directory for a link under our feet.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn root_name() -> String {
    format!("atomic-{}", rustix::process::geteuid().as_raw())
}

/// Makes `<temp_dir>/atomic-<uid>/<session>/<name>`.
pub(super) fn create(temp_dir: &Path, session: &str, name: &str) -> io::Result<(File, PathBuf)> {
    // The user chose the temporary directory, so links on the way to it are the user's.
    let above =
        rustix::fs::open(temp_dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let root = root_name();
    let path = temp_dir.join(&root).join(session).join(name);
    let top = private_dir(&above, &root)?;
    // The cleaner may remove an empty session directory between our two steps; once is bad luck, twice is not.
    for last_try in [false, true] {
        let dir = private_dir(&top, session)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&dir, name, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::NOENT) if !last_try => {}
            Ok(file) => {
                rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
                return Ok((File::from(file), path));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::NOENT.into())
}

/// Opens the directory `name`, making it first if need be. It must be a directory, ours, and closed to others.
fn private_dir(above: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(&above, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    // A link fails here with ELOOP or ENOTDIR.
    let dir = rustix::fs::openat(&above, name, DIRECTORY, Mode::empty())?;
    let stat = rustix::fs::fstat(&dir)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{name} belongs to another user"),
        ));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
        rustix::fs::fchmod(&dir, Mode::RWXU)?;
    }
    Ok(dir)
}

/// Removes files of ours last written before `before`.
pub(super) fn clean(temp_dir: &Path, before: SystemTime) -> io::Result<usize> {
    let root = temp_dir.join(root_name());
    let top = match rustix::fs::openat(CWD, &root, DIRECTORY, Mode::empty()) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    if rustix::fs::fstat(&top)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is not ours", root.display()),
        ));
    }
    let before = before.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    let mut removed = 0;
    for entry in Dir::read_from(&top)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        let Ok(dir) = rustix::fs::openat(&top, name, DIRECTORY, Mode::empty()) else { continue };
        let here = clean_dir(&dir, before)?;
        removed += here;
        if here > 0 {
            // Refused while something is left in it, which is what we want.
            let _ = rustix::fs::unlinkat(&top, name, AtFlags::REMOVEDIR);
        }
    }
    Ok(removed)
}

fn clean_dir(dir: &OwnedFd, before: i64) -> io::Result<usize> {
    let mut removed = 0;
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if !super::is_ours(name.to_bytes()) {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if regular && stat.st_mtime < before && rustix::fs::unlinkat(dir, name, AtFlags::empty()).is_ok() {
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::{OUTPUT_RETENTION, clean_old_output};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    #[test]
    fn directories_and_files_are_private_whatever_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join(root_name());
        std::fs::create_dir(&root).unwrap();
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
        let (_, path) = create(dir.path(), "s", "atomic-bash-1.log").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
        assert_eq!((mode(&root), mode(&root.join("s")), mode(&path)), (0o700, 0o700, 0o600));
        assert!(
            create(dir.path(), "s", "atomic-bash-1.log").is_err(),
            "an existing file is never written to"
        );
    }

    #[test]
    fn links_are_refused_at_every_step() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let root = dir.path().join(root_name());
        symlink(elsewhere.path(), &root).unwrap();
        assert!(create(dir.path(), "s", "n").is_err());
        std::fs::remove_file(&root).unwrap();
        std::fs::create_dir(&root).unwrap();
        symlink(elsewhere.path(), root.join("s")).unwrap();
        assert!(create(dir.path(), "s", "n").is_err());
        std::fs::remove_file(root.join("s")).unwrap();
        std::fs::create_dir(root.join("s")).unwrap();
        symlink(elsewhere.path().join("target"), root.join("s/n")).unwrap();
        assert!(create(dir.path(), "s", "n").is_err());
        assert_eq!(elsewhere.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn the_cleaner_removes_old_files_of_ours_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - OUTPUT_RETENTION * 2;
        let age = |path: &Path| File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        let (_, stale) = create(dir.path(), "gone", "atomic-bash-1.log").unwrap();
        let (_, kept) = create(dir.path(), "live", "atomic-bash-2.log").unwrap();
        let foreign = kept.with_file_name("notes.jsonl");
        let target = elsewhere.path().join("atomic-bash-3.log");
        for path in [&foreign, &target] {
            std::fs::write(path, "").unwrap();
        }
        for path in [&stale, &foreign, &target] {
            age(path);
        }
        symlink(elsewhere.path(), dir.path().join(root_name()).join("link")).unwrap();
        assert_eq!(clean_old_output(dir.path()).unwrap(), 1);
        assert!(!stale.parent().unwrap().exists());
        assert!(kept.exists() && foreign.exists() && target.exists());
        assert_eq!(clean_old_output(elsewhere.path()).unwrap(), 0, "no tree, nothing to do");
    }
}
