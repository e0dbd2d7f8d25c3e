//! Files with the full output of commands whose result had to be cut:
//! `<session's TMPDIR>/atomic-<uid>/<session id>/atomic-bash-<16 hex>.log`.
//!
//! The path is predictable and the directory above it is shared by all users, so every step is made without following
//! links and checked for its owner; what fails the check is refused, and the command runs without a file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::io::AsyncWriteExt as _;

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as platform;
#[cfg(windows)]
use windows as platform;

/// Most bytes of one file, its closing line included: 64 MiB. What comes after is read and dropped.
pub const SPILL_CAP: usize = 64 * 1024 * 1024;

/// How long files are kept.
pub const OUTPUT_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The last line of a file that was cut.
fn cap_line() -> String {
    format!("\n[Output truncated: persisted-output cap of {SPILL_CAP} bytes reached]\n")
}

const FILE_PREFIX: &str = "atomic-bash-";
const FILE_SUFFIX: &str = ".log";

/// A file being written.
#[derive(Debug)]
pub(crate) struct Spill {
    file: tokio::fs::File,
    path: PathBuf,
    written: usize,
    full: bool,
}

impl Spill {
    /// Makes a new file below `temp_dir` for the session.
    pub(crate) async fn create(temp_dir: PathBuf, session_id: &str) -> io::Result<Spill> {
        let session = sanitised(session_id);
        let name = format!("{FILE_PREFIX}{:016x}{FILE_SUFFIX}", uuid::Uuid::new_v4().as_u128() as u64);
        let made = tokio::task::spawn_blocking(move || platform::create(&temp_dir, &session, &name)).await;
        let (file, path): (File, PathBuf) = made.map_err(io::Error::other)??;
        Ok(Spill { file: tokio::fs::File::from_std(file), path, written: 0, full: false })
    }

    /// Appends; beyond the cap everything is dropped.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.full {
            return Ok(());
        }
        let closing = cap_line();
        let room = SPILL_CAP - closing.len() - self.written;
        if bytes.len() <= room {
            self.file.write_all(bytes).await?;
            self.written += bytes.len();
            return Ok(());
        }
        self.full = true;
        self.file.write_all(&bytes[..character_end(bytes, room)]).await?;
        self.file.write_all(closing.as_bytes()).await
    }

    /// Waits until everything is written.
    pub(crate) async fn finish(mut self) -> io::Result<PathBuf> {
        self.file.flush().await?;
        Ok(self.path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The largest cut of at most `max` bytes that does not split a UTF-8 character.
fn character_end(bytes: &[u8], max: usize) -> usize {
    let continues = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000);
    (0..4).map(|back| max.saturating_sub(back)).find(|end| !continues(*end)).unwrap_or(max)
}

/// A session id as the name of a directory.
fn sanitised(session_id: &str) -> String {
    let mut out = String::with_capacity(session_id.len());
    for character in session_id.chars() {
        match character {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '_' | '-' => out.push(character),
            _ if out.ends_with('\0') => {}
            _ => out.push('\0'),
        }
    }
    let out = out.replace('\0', "_");
    let trimmed = out.trim_matches(['.', '_']);
    let short = &trimmed[..trimmed.len().min(64)];
    if short.is_empty() { "session".to_owned() } else { short.to_owned() }
}

/// Removes files of full output below `temp_dir` that are older than [`OUTPUT_RETENTION`], and directories that became
/// empty by it. Links are never followed; other files are never touched. Blocking. Returns how many files were removed.
///
/// # Errors
/// When the tree exists but cannot be read, or is not ours.
pub fn clean_old_output(temp_dir: &Path) -> io::Result<usize> {
    platform::clean(temp_dir, SystemTime::now() - OUTPUT_RETENTION)
}

fn is_ours(name: &[u8]) -> bool {
    name.starts_with(FILE_PREFIX.as_bytes()) && name.ends_with(FILE_SUFFIX.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_become_safe_names() {
        for (id, name) in [
            ("019fdf86-cf98", "019fdf86-cf98"),
            ("../../etc", "etc"),
            ("a//b c", "a_b_c"),
            ("", "session"),
            ("...", "session"),
            ("é", "session"),
        ] {
            assert_eq!(sanitised(id), name);
        }
        assert_eq!(sanitised(&"x".repeat(100)).len(), 64);
    }

    #[test]
    fn cuts_fall_between_characters() {
        let text = "aé😀".as_bytes();
        assert_eq!((0..=7).map(|max| character_end(text, max)).collect::<Vec<_>>(), [0, 1, 1, 3, 3, 3, 3, 7]);
    }

    #[tokio::test]
    async fn a_file_stops_at_the_cap_with_a_line_that_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut spill = Spill::create(dir.path().to_owned(), "s").await.unwrap();
        let chunk = vec![b'x'; 5 * 1024 * 1024];
        for _ in 0..14 {
            spill.write(&chunk).await.unwrap();
        }
        let path = spill.finish().await.unwrap();
        let content = std::fs::read(path).unwrap();
        assert_eq!(content.len(), SPILL_CAP);
        assert!(content.ends_with(b"\n[Output truncated: persisted-output cap of 67108864 bytes reached]\n"));
    }
}
