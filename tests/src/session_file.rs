//! A session file as tests look at it.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A session file, read anew at each look.
#[derive(Clone, Debug)]
pub struct SessionFile {
    path: PathBuf,
}

impl SessionFile {
    /// The file at this path, which need not exist yet.
    pub fn at(path: impl Into<PathBuf>) -> SessionFile {
        SessionFile { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path as an argument.
    ///
    /// # Panics
    /// When it is not UTF-8.
    pub fn arg(&self) -> &str {
        self.path.to_str().expect("a sandbox's paths are UTF-8")
    }

    /// It exists.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Its bytes.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    /// Its whole lines, the header first. A last line without LF is half written and not counted.
    ///
    /// # Panics
    /// When a whole line is no JSON.
    pub fn lines(&self) -> Vec<Value> {
        let bytes = self.bytes();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| {
                serde_json::from_slice(line).unwrap_or_else(|error| {
                    panic!("{}: {error}: {}", self.path.display(), String::from_utf8_lossy(line))
                })
            })
            .collect()
    }

    /// Its entries, without the header.
    pub fn entries(&self) -> Vec<Value> {
        let mut lines = self.lines();
        assert!(!lines.is_empty(), "{} is empty", self.path.display());
        lines.remove(0);
        lines
    }

    /// The messages of its `message` entries.
    pub fn messages(&self) -> Vec<Value> {
        let entries = self.entries().into_iter().filter(|entry| entry["type"] == "message");
        entries.map(|mut entry| entry["message"].take()).collect()
    }
}
