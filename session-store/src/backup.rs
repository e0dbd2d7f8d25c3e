//! Copies of a session's file, made before its conversation is shortened.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use atomic_protocol::time::Millis;

use crate::{Error, disk, file, platform};

/// Copies made within one millisecond under one label get a number; more than this many is no accident.
const NAMES: u32 = 16;

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
    let stamp = now.iso().replace([':', '.'], "-");
    let mut number = 1;
    let (to, mut copy) = loop {
        let mut name = path.as_os_str().to_owned();
        name.push(match number {
            1 => format!(".{stamp}.{label}.bak"),
            _ => format!(".{stamp}.{label}-{number}.bak"),
        });
        let to = PathBuf::from(name);
        match disk::create_new(&to) {
            Ok(copy) => break (to, copy),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < NAMES => number += 1,
            Err(source) => return Err(Error::Copy { path: to, source }),
        }
    };
    // Lines are appended whole, so the length at any moment is the end of one.
    let copied = from.metadata().and_then(|data| io::copy(&mut (&from).take(data.len()), &mut copy));
    if let Err(source) = copied {
        let _ = std::fs::remove_file(&to);
        return Err(Error::Copy { path: to, source });
    }
    Ok(Some(to))
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
}
