//! A session as a page: from its file, or from what a live session has in memory.

use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use atomic_html_export::{Leaf, Options, Session, write_page};
use atomic_protocol::Raw;
use atomic_protocol::link::PROGRAM_VERSION;
use atomic_session_store::Store;

use crate::clock;

/// A session to be shown.
#[derive(Debug)]
pub struct Shown {
    header: Raw,
    entries: Vec<Raw>,
    /// `None` before the first entry.
    leaf: Option<String>,
}

impl Shown {
    /// What a store holds now; its bytes are shared.
    pub fn of(store: &Store) -> Shown {
        Shown {
            header: store.stored_header().line.clone(),
            entries: store.entries().iter().map(|entry| entry.line.clone()).collect(),
            leaf: store.leaf().map(|id| id.as_str().to_owned()),
        }
    }

    /// Writes the page to `path`, in one step: nobody sees half of it. A page that is there is replaced, and nothing else
    /// is. Blocking.
    ///
    /// # Errors
    /// When the file or its directory cannot be written, and when there is something else than a page.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if !may_be_replaced(path)? {
            let text = "something else than a page is there, and it is not overwritten; choose another path";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let entries: Vec<&str> = self.entries.iter().map(Raw::as_str).collect();
        let leaf = self.leaf.as_deref().map_or(Leaf::BeforeFirst, Leaf::Entry);
        let session = Session { header: self.header.as_str(), entries: &entries, leaf };
        let program = format!("atomic {PROGRAM_VERSION}");
        let options = Options { program: Some(&program), exported: Some(clock::now()) };
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)?;
        // Made for its owner only: it says what the session says.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        let mut out = BufWriter::new(file.as_file_mut());
        write_page(&session, &options, &mut out)?;
        out.flush()?;
        drop(out);
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// How each page begins, in small letters.
const BEGINNING: &[u8] = b"<!doctype html";

/// Nothing is there, or nothing is in it, or a page is: the path comes from a client, and what it leads to by mistake may
/// be a session or somebody's notes.
fn may_be_replaced(path: &Path) -> io::Result<bool> {
    if let Err(error) = std::fs::symlink_metadata(path) {
        // What is wrong with the way there is said when the page is written.
        return Ok(error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::NotADirectory);
    }
    if !std::fs::metadata(path)?.is_file() {
        return Ok(false);
    }
    let mut beginning = Vec::with_capacity(BEGINNING.len());
    std::fs::File::open(path)?.take(BEGINNING.len() as u64).read_to_end(&mut beginning)?;
    Ok(beginning.is_empty() || beginning.eq_ignore_ascii_case(BEGINNING))
}

/// The name of the page of a session file, unless somebody gives it one.
pub fn default_name(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    PathBuf::from(format!("atomic-session-{stem}.html"))
}
