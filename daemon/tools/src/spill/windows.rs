//! The tree of output files below the user's own temporary directory, which Windows keeps private by its access list.

use std::fs::{DirEntry, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const ROOT: &str = "atomic";

/// Makes `<temp_dir>\atomic\<session>\<name>`.
pub(super) fn create(temp_dir: &Path, session: &str, name: &str) -> io::Result<(File, PathBuf)> {
    let mut dir = temp_dir.to_owned();
    for part in [ROOT, session] {
        dir.push(part);
        match std::fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        if !dir.symlink_metadata()?.file_type().is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is a link", dir.display())));
        }
    }
    let path = dir.join(name);
    Ok((OpenOptions::new().write(true).create_new(true).open(&path)?, path))
}

/// Removes files of ours last written before `before`.
pub(super) fn clean(temp_dir: &Path, before: SystemTime) -> io::Result<usize> {
    let entries = match temp_dir.join(ROOT).read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut removed = 0;
    for dir in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let Ok(files) = dir.path().read_dir() else { continue };
        let here =
            files.flatten().filter(|file| is_old(file, before) && std::fs::remove_file(file.path()).is_ok());
        let here = here.count();
        removed += here;
        if here > 0 {
            // Refused while something is left in it, which is what we want.
            let _ = std::fs::remove_dir(dir.path());
        }
    }
    Ok(removed)
}

fn is_old(file: &DirEntry, before: SystemTime) -> bool {
    let ours = super::is_ours(file.file_name().to_string_lossy().as_bytes());
    ours && file
        .metadata()
        .is_ok_and(|meta| meta.is_file() && meta.modified().is_ok_and(|time| time < before))
}
