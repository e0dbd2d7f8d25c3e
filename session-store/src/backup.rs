//! What is kept beside a session's file: copies, made before its conversation is shortened, and what went wrong then.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use atomic_protocol::time::Millis;

use crate::{Error, disk, file, platform};

/// Copies made within one millisecond under one label get a number; more than this many is no accident.
const NAMES: u32 = 16;

/// The same for what is kept of a planner (reference compaction 6).
const SIDECAR_RETRIES: u32 = 4;

/// Copies the session file `path` to `<path>.<time>.<label>.bak` beside it, readable by its owner only. `None`: there is
/// no such file yet. What is appended meanwhile may be missing; the lines in the copy are whole. Blocks.
///
/// # Errors
/// [`Error::Copy`]; there is no copy then.
pub fn backup(path: &Path, now: Millis, label: &str) -> Result<Option<PathBuf>, Error> {
    let from = match file::open_regular(path, platform::open_for_reading) {
        Ok(from) => from,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (to, mut copy) = create_beside(path, now, label, "bak", NAMES)?;
    // Lines are appended whole, so the length at any moment is the end of one.
    let copied = from.metadata().and_then(|data| io::copy(&mut (&from).take(data.len()), &mut copy));
    if let Err(source) = copied {
        let _ = std::fs::remove_file(&to);
        return Err(Error::Copy { path: to, source });
    }
    Ok(Some(to))
}

/// Writes `content` and a LF to a new file `<path>.<time>.<label>.json` beside the session file `path`, readable by its owner
/// only. `None`: there is no such session file. Blocks.
///
/// # Errors
/// [`Error::Copy`]; there is no such file then.
pub fn keep_beside(path: &Path, now: Millis, label: &str, content: &[u8]) -> Result<Option<PathBuf>, Error> {
    if !path.is_file() {
        return Ok(None);
    }
    let (to, mut file) = create_beside(path, now, label, "json", 1 + SIDECAR_RETRIES)?;
    if let Err(source) = file.write_all(content).and_then(|()| file.write_all(b"\n")) {
        let _ = std::fs::remove_file(&to);
        return Err(Error::Copy { path: to, source });
    }
    Ok(Some(to))
}

/// A new file beside `path`; a name that is taken gets a number, up to `names`.
fn create_beside(
    path: &Path,
    now: Millis,
    label: &str,
    ending: &str,
    names: u32,
) -> Result<(PathBuf, File), Error> {
    let stamp = now.iso().replace([':', '.'], "-");
    let mut number = 1;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(match number {
            1 => format!(".{stamp}.{label}.{ending}"),
            _ => format!(".{stamp}.{label}-{number}.{ending}"),
        });
        let to = PathBuf::from(name);
        match disk::create_new(&to) {
            Ok(file) => return Ok((to, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < names => number += 1,
            Err(source) => return Err(Error::Copy { path: to, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_stand_beside_the_file_and_never_replace_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        assert!(backup(&path, Millis(0), "compact").unwrap().is_none());
        std::fs::write(&path, "{}\n{}\n").unwrap();
        let first = backup(&path, Millis(0), "compact").unwrap().unwrap();
        assert_eq!(first, dir.path().join("s.jsonl.1970-01-01T00-00-00-000Z.compact.bak"));
        assert_eq!(std::fs::read(&first).unwrap(), b"{}\n{}\n");
        let second = backup(&path, Millis(0), "compact").unwrap().unwrap();
        assert_eq!(second, dir.path().join("s.jsonl.1970-01-01T00-00-00-000Z.compact-2.bak"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn what_is_kept_of_a_planner_never_replaces_anything_and_gives_up_soon() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        assert!(
            keep_beside(&path, Millis(0), "x", b"{}").unwrap().is_none(),
            "no session, nothing beside it"
        );
        std::fs::write(&path, "{}\n").unwrap();
        for number in 0..5 {
            let kept = keep_beside(&path, Millis(0), "x", b"{}").unwrap().unwrap();
            let number = if number == 0 { String::new() } else { format!("-{}", number + 1) };
            assert_eq!(kept, dir.path().join(format!("s.jsonl.1970-01-01T00-00-00-000Z.x{number}.json")));
            assert_eq!(std::fs::read(&kept).unwrap(), b"{}\n");
        }
        assert!(matches!(keep_beside(&path, Millis(0), "x", b"{}"), Err(Error::Copy { .. })));
    }
}
