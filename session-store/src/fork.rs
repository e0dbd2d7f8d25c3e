//! New sessions out of old ones: a branch of a session, a whole file, a file from elsewhere.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use atomic_protocol::entry::{EntryId, Header};
use atomic_protocol::json::{Fields, ObjectWriter};

use crate::entry::Kind;
use crate::splice::{quoted, with_fields};
use crate::{Error, Store, disk, file, list, new_entry_id, platform, tree};

impl Store {
    /// A new session with the branch that ends in `leaf` (empty for `None`): ids and times stay, labels come at its end. This
    /// session is not touched. The new file is written at once if something was said on the branch.
    ///
    /// # Errors
    /// [`Error::EntryNotFound`] for an unknown leaf, and those of [`Store::create`] and [`Store::append`].
    pub fn fork(&self, leaf: Option<&EntryId>, header: Header, dir: Option<&Path>) -> Result<Store, Error> {
        if let Some(leaf) = leaf
            && self.find(leaf.as_str()).is_none()
        {
            return Err(Error::EntryNotFound { id: leaf.to_string() });
        }
        let mut new = Store::create(header, dir)?;
        new.append_lines(self.branch_lines(leaf))?;
        Ok(new)
    }

    fn branch_lines(&self, leaf: Option<&EntryId>) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let mut on_path: HashSet<&str> = HashSet::new();
        let mut last: Option<&EntryId> = None;
        for at in self.branch(leaf) {
            let entry = &self.entries()[at];
            if entry.kind == Kind::Label {
                continue;
            }
            // A label may have been the parent: its child goes to what came before it, else it would become a root.
            lines.push(if entry.parent_id.as_ref() == last {
                entry.line.bytes().to_vec()
            } else {
                let parent = last.map_or(Cow::Borrowed(b"null".as_slice()), |last| quoted(last.as_str()));
                let fields = Fields::parse(entry.line.as_str()).expect("the line of an entry is an object");
                with_fields(&fields, &[("parentId", Some(parent))]).bytes().to_vec()
            });
            on_path.insert(entry.id.as_str());
            last = Some(&entry.id);
        }
        let labels = tree::labels(self);
        let mut wanted: Vec<_> =
            labels.iter().filter(|(target, _)| on_path.contains(target.as_str())).collect();
        wanted.sort_by_key(|(target, _)| self.find(target));
        let mut parent = last.cloned();
        let mut drawn: HashSet<String> = HashSet::new();
        for (target, (label, time)) in wanted {
            let id = new_entry_id(|id| self.find(id).is_some() || drawn.contains(id));
            drawn.insert(id.to_string());
            let mut line = Vec::new();
            let mut object = ObjectWriter::begin(&mut line);
            object.str("type", "label").str("id", id.as_str());
            object.value("parentId", &parent.as_ref().map(EntryId::as_str)).str("timestamp", time);
            object.str("targetId", target).str("label", label);
            object.end();
            lines.push(line);
            parent = Some(id);
        }
        lines
    }
}

/// A new session with all entries of the file `source`, to the byte. The file is only read.
///
/// # Errors
/// Those of [`Store::open_read_only`], [`Store::create`] and [`Store::append`].
pub fn fork_file(source: &Path, header: Header, dir: Option<&Path>) -> Result<Store, Error> {
    let (source, _) = Store::open_read_only(source)?;
    let mut new = Store::create(header, dir)?;
    new.append_lines(source.entries().iter().map(|entry| entry.line.bytes().to_vec()).collect())?;
    Ok(new)
}

/// Copies a session file into `dir` under its own name, for the owner only, and gives the copy's path. A file that lies there
/// already is `source` itself or an error: nothing is overwritten.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NotAFile`], [`Error::NotASession`] for the source; [`Error::Exists`] for the copy;
/// [`Error::CreateDirectory`]; [`Error::Import`].
pub fn import(source: &Path, dir: &Path) -> Result<PathBuf, Error> {
    let mut input = file::open_regular(source, platform::open_for_reading)?;
    if list::read_header(source).is_none() {
        return Err(Error::NotASession { path: source.into() });
    }
    platform::make_dir(dir).map_err(|source| Error::CreateDirectory { path: dir.into(), source })?;
    let name = source.file_name().expect("a regular file has a name");
    let to = dir.join(name);
    let failed = |error| Error::Import { from: source.into(), to: to.clone(), source: error };
    if is_same_file(source, &to) {
        return Ok(to);
    }
    let mut copy =
        tempfile::Builder::new().prefix(".").suffix(".tmp").make_in(dir, disk::create_new).map_err(failed)?;
    io::copy(&mut input, copy.as_file_mut()).map_err(failed)?;
    copy.as_file().sync_all().map_err(failed)?;
    // The handle goes first: Windows renames no open file.
    match copy.into_temp_path().persist_noclobber(&to) {
        Ok(()) => platform::sync_dir(dir).map_err(failed)?,
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::Exists { path: to });
        }
        Err(error) => return Err(failed(error.error)),
    }
    Ok(to)
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
