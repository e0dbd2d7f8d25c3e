//! The index file: JSON Lines, a line that names the format and then one line a file.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::scan::Facts;
use crate::{Error, disk, platform};

/// The first line. Another one is another format, and the file is made anew.
const FORMAT: &str = r#"{"type":"atomic-session-index","version":1}"#;

/// An index above this is not ours to read into memory; ours is about a kilobyte a session.
const MAX_BYTES: u64 = 256 << 20;

/// What tells whether a file is the one that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    /// Bytes.
    pub(super) size: u64,
    /// Nanoseconds since 1970 of the last write.
    written: u64,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Stamp {
        let written = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let nanos = written.map_or(0, |since| since.as_nanos());
        Stamp { size: metadata.len(), written: u64::try_from(nanos).unwrap_or(u64::MAX) }
    }

    pub(super) fn millis(self) -> u64 {
        self.written / 1_000_000
    }

    pub(super) fn is_older_than(self, now: SystemTime, age: Duration) -> bool {
        let written = UNIX_EPOCH + Duration::from_nanos(self.written);
        now.duration_since(written).is_ok_and(|since| since >= age)
    }
}

#[derive(Serialize, Deserialize)]
struct Line<'a, F> {
    path: std::borrow::Cow<'a, str>,
    #[serde(flatten)]
    stamp: Stamp,
    /// Absent: no session.
    session: Option<F>,
}

/// What the index says, by path.
#[derive(Default)]
pub(super) struct Cache(HashMap<PathBuf, (Stamp, Option<Facts>)>);

impl Cache {
    /// Reads the index. One that is missing, too large or not as we write it knows nothing.
    pub(super) fn load(path: &Path) -> Cache {
        let small =
            fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_BYTES);
        let text = small.then(|| fs::read_to_string(path).ok()).flatten().unwrap_or_default();
        let mut lines = text.lines();
        if lines.next() != Some(FORMAT) {
            return Cache::default();
        }
        let known = lines.map(|line| {
            let line: Line<'_, Facts> = serde_json::from_str(line).ok()?;
            Some((PathBuf::from(&*line.path), (line.stamp, line.session)))
        });
        // One line that is not ours, and none is to be believed.
        Cache(known.collect::<Option<_>>().unwrap_or_default())
    }

    /// How many of the files lie in these directories.
    pub(super) fn len_below(&self, dirs: &[PathBuf]) -> usize {
        self.0.keys().filter(|path| lies_in(path, dirs)).count()
    }

    /// What is known of the file as it is now.
    pub(super) fn take(&mut self, path: &Path, stamp: Stamp) -> Option<Option<Facts>> {
        let (known, facts) = self.0.remove(path)?;
        (known == stamp).then_some(facts)
    }

    /// Writes the index: what is left of files in other directories that still exist, and `found`. In one step: a reader
    /// sees the old one or the new one.
    pub(super) fn save<'a>(
        self,
        path: &Path,
        dirs: &[PathBuf],
        found: impl Iterator<Item = &'a (PathBuf, Stamp, Option<Facts>)>,
    ) -> Result<(), Error> {
        let failed = |source| Error::Cache { path: path.into(), source };
        let directory = path.parent().unwrap_or(Path::new("."));
        platform::make_dir(directory).map_err(failed)?;
        // It holds the beginnings of conversations: for the owner only, as they are.
        let mut file = tempfile::Builder::new()
            .prefix(".")
            .suffix(".tmp")
            .make_in(directory, disk::create_new)
            .map_err(failed)?;
        let mut out = BufWriter::new(file.as_file_mut());
        writeln!(out, "{FORMAT}").map_err(failed)?;
        let mut put = |path: &Path, stamp, session: Option<&Facts>| {
            // A path that is no text is read each time.
            let Some(path) = path.to_str() else { return Ok(()) };
            serde_json::to_writer(&mut out, &Line { path: path.into(), stamp, session })?;
            out.write_all(b"\n")
        };
        let mut there: HashMap<&Path, bool> = HashMap::new();
        for (path, (stamp, facts)) in &self.0 {
            let Some(parent) = path.parent().filter(|_| !lies_in(path, dirs)) else { continue };
            if *there.entry(parent).or_insert_with(|| parent.is_dir()) {
                put(path, *stamp, facts.as_ref()).map_err(failed)?;
            }
        }
        for (path, stamp, facts) in found {
            put(path, *stamp, facts.as_ref()).map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        drop(out);
        // The handle goes first: Windows renames no open file.
        disk::put(file.into_temp_path(), path).map_err(failed)
    }
}

fn lies_in(path: &Path, dirs: &[PathBuf]) -> bool {
    path.parent().is_some_and(|parent| dirs.iter().any(|dir| dir == parent))
}
