//! Writing into a JSON file that people and other programs write, too: only the changed bytes, under a lock, never over a
//! file that does not parse. The settings are one such file, the credentials another.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use atomic_protocol::json::{self, Fields, NotAnObject};
use serde_json::Value;

use super::{FILE, reason, without_bom};

/// Extension of the lock among our own writers, beside the file (`settings.lock`).
const LOCK: &str = "lock";

/// What follows the file's name in that of the directory that other programs of this family make while they write the
/// file, and heed when it is there (`settings.json.lock`).
pub(super) const FOREIGN_LOCK: &str = ".lock";

/// How long a foreign writer is waited for. They hold the lock for one small write; a second is long.
pub(super) const FOREIGN_WAIT: Duration = Duration::from_secs(1);

/// How often it is looked at meanwhile.
const FOREIGN_POLL: Duration = Duration::from_millis(20);

/// A foreign lock this old was left behind by a crash (the same age as its makers use).
pub(super) const FOREIGN_STALE: Duration = Duration::from_secs(10);

/// Why a file could not be changed. It is then as it was.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file could not be read, locked or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried: `read`, `lock`, `write`, `make`.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is there is not JSON, so it cannot be changed without losing some of it.
    #[error(
        "{}:{line}:{column}: not JSON ({reason}); it was not changed. Correct the file and try again.",
        path.display()
    )]
    NotJson {
        /// The file.
        path: PathBuf,
        /// Line of the mistake, from 1.
        line: usize,
        /// Column of the mistake, from 1.
        column: usize,
        /// What is wrong there.
        reason: String,
    },
    /// What is there is JSON but no object, or not text.
    #[error("{} holds no JSON object; it was not changed. Correct the file and try again.", path.display())]
    NotAnObject {
        /// The file.
        path: PathBuf,
    },
    /// Another program has been writing the file all the while.
    #[error(
        "another program is writing the file: {} is there. If none is, remove that directory and try again.",
        path.display()
    )]
    Busy {
        /// The other program's lock.
        path: PathBuf,
    },
}

/// Where a value stands: the keys on the way to it. `None` for the value: it is taken away.
pub type Change<'a> = (&'a [&'a str], Option<Value>);

/// Changes the global settings, see [`edit`]: each key, a path with dots such as `compaction.enabled`, gets its value; null
/// stands for "not set".
///
/// # Errors
/// Those of [`edit`].
pub fn update(agent_dir: &Path, changes: &[(&str, Value)]) -> Result<(), SettingsError> {
    let paths: Vec<Vec<&str>> = changes.iter().map(|(key, _)| key.split('.').collect()).collect();
    let changes: Vec<Change<'_>> =
        paths.iter().zip(changes).map(|(path, (_, value))| (&path[..], Some(value.clone()))).collect();
    edit(&agent_dir.join(FILE), &changes)
}

/// Changes values in a file that holds a JSON object; a file that is not there holds an empty one.
///
/// Only these values change in the file's text. Everything else stays as the user wrote it, to the byte, keys we do not
/// know included; on the way to a key, what is no object becomes one. A new file is the owner's only, an old one keeps its
/// mode, and where it is a symbolic link, what the link names is changed. It is replaced in one step: who reads meanwhile
/// sees the old or the new one. Writers take turns, those of other programs included.
///
/// # Errors
/// When the file is there and is not a JSON object, or cannot be read, locked or written. It is then as it was.
pub fn edit(link: &Path, changes: &[Change<'_>]) -> Result<(), SettingsError> {
    rewrite(link, Modes::Kept, FOREIGN_WAIT, |object| {
        let mut after = object.to_owned();
        for (key, value) in changes {
            after = match (value, key) {
                (Some(value), key) => set(&after, key, value, 0),
                (None, [name]) => without(&after, name),
                (None, _) => unreachable!("only keys of the outermost object are taken away"),
            }?;
        }
        Ok(after)
    })
}

/// Who may read the file afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modes {
    /// As before; a new file is the owner's only.
    Kept,
    /// The owner only, whatever it was.
    Private,
}

/// Gives the file the text that `change` makes of the object in it, as [`edit`] says. A foreign writer is waited for as long
/// as `wait`.
pub(super) fn rewrite(
    link: &Path,
    modes: Modes,
    wait: Duration,
    change: impl FnOnce(&str) -> Result<String, NotAnObject>,
) -> Result<(), SettingsError> {
    let directory = link.parent().unwrap_or(Path::new("."));
    make_directory(directory).map_err(io_error("make", directory))?;
    let _turn = Turn::take(link, wait)?;
    // A link to nothing yet is replaced by a file.
    let path = link.canonicalize().unwrap_or_else(|_| link.to_owned());
    let before = match fs::read(&path) {
        Ok(bytes) => {
            Some(String::from_utf8(bytes).map_err(|_| SettingsError::NotAnObject { path: path.clone() })?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error("read", &path)(error)),
    };
    let before = before.as_deref().unwrap_or("{}\n");
    let object = without_bom(before);
    let after = change(object).map_err(|error| match error {
        NotAnObject::OtherValue => SettingsError::NotAnObject { path: path.clone() },
        NotAnObject::Syntax(error) => SettingsError::NotJson {
            path: path.clone(),
            line: error.line(),
            column: error.column(),
            reason: reason(&error),
        },
    })?;
    if after == object && (modes == Modes::Kept || is_private(&path)) {
        return Ok(());
    }
    let bom = &before[..before.len() - object.len()];
    replace(&path, modes, &[bom.as_bytes(), after.as_bytes()]).map_err(io_error("write", &path))
}

/// The text of `object` without the key `name`: the other fields keep their text, each on a line of its own.
pub(super) fn without(object: &str, name: &str) -> Result<String, NotAnObject> {
    let fields = Fields::parse(object)?;
    if fields.get(name).is_none() {
        return Ok(object.to_owned());
    }
    let mut text = Vec::new();
    for (key, value) in fields.iter().filter(|(key, _)| *key != name) {
        text.extend_from_slice(if text.is_empty() { b"{\n" } else { b",\n" });
        text.extend_from_slice(INDENT.as_bytes());
        json::write_string(&mut text, key);
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
    }
    text.extend_from_slice(if text.is_empty() { b"{}\n" } else { b"\n}\n" });
    Ok(String::from_utf8(text).expect("made from strings"))
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SettingsError {
    let path = path.to_owned();
    move |source| SettingsError::Io { doing, path, source }
}

/// The text of `object` with `value` at `key`. `depth` is how deep the object lies, for the indentation of new lines.
pub(super) fn set(object: &str, key: &[&str], value: &Value, depth: usize) -> Result<String, NotAnObject> {
    let fields = Fields::parse(object)?;
    let (name, rest) = key.split_first().expect("a key has a name");
    let new = |old: &str| match rest {
        [] => Ok(indented(value, depth + 1)),
        // What stands there is one value of a text that was read: it is an object, or else it is replaced by one.
        rest => set(old, rest, value, depth + 1).or_else(|_| set("{}", rest, value, depth + 1)),
    };
    if let Some(old) = fields.get(name) {
        let start = offset(object, old);
        return Ok([&object[..start], &new(old)?, &object[start + old.len()..]].concat());
    }
    let mut field = Vec::new();
    json::write_string(&mut field, name);
    field.extend_from_slice(b": ");
    field.extend_from_slice(new("{}")?.as_bytes());
    let field = String::from_utf8(field).expect("made from strings");
    let open = object.find('{').expect("an object was read") + 1;
    Ok(match fields.iter().last() {
        // As the user sets fields apart, so do we.
        Some((_, last)) => {
            let space = object[open..].find('"').expect("an object with a field has a key");
            let end = offset(object, last) + last.len();
            [&object[..end], ",", &object[open..open + space], &field, &object[end..]].concat()
        }
        None => {
            let close = open + object[open..].find('}').expect("an object was read");
            let [inner, outer] = [depth + 1, depth].map(|depth| format!("\n{}", INDENT.repeat(depth)));
            [&object[..open], &inner, &field, &outer, &object[close..]].concat()
        }
    })
}

/// Indentation of a level, as other programs of this family write the file.
const INDENT: &str = "  ";

/// Where `part`, a slice of `text`, begins in it.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// A value as text in lines, at home at `depth`.
fn indented(value: &Value, depth: usize) -> String {
    // A line feed inside a string is escaped, so each one here begins a line.
    format!("{value:#}").replace('\n', &format!("\n{}", INDENT.repeat(depth)))
}

/// Writes a new file beside `path` and puts it in its place.
fn replace(path: &Path, modes: Modes, parts: &[&[u8]]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    let temporary = PathBuf::from(temporary);
    // Writers take turns, so what has this name is left from a crash.
    let _ = fs::remove_file(&temporary);
    let written = || {
        let mut file = new_private_file(&temporary)?;
        for part in parts {
            file.write_all(part)?;
        }
        match fs::metadata(path) {
            Ok(old) if modes == Modes::Kept => file.set_permissions(old.permissions())?,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, path)
    };
    written().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// The right to write the file, until it is dropped.
///
/// Two locks, because two families of writers meet here. Ours is held by the system and ends with its holder. The other
/// programs' is a directory that exists while they write; we make it too, so that they wait for us.
struct Turn {
    foreign: PathBuf,
    _ours: File,
}

impl Turn {
    fn take(file: &Path, wait: Duration) -> Result<Turn, SettingsError> {
        let path = file.with_extension(LOCK);
        let ours = open_private_file(&path).map_err(io_error("lock", &path))?;
        ours.lock().map_err(io_error("lock", &path))?;
        let mut foreign = file.as_os_str().to_owned();
        foreign.push(FOREIGN_LOCK);
        let foreign = PathBuf::from(foreign);
        let until = Instant::now() + wait;
        loop {
            match fs::create_dir(&foreign) {
                Ok(()) => return Ok(Turn { foreign, _ours: ours }),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(io_error("lock", &foreign)(error));
                }
                Err(_) if is_stale(&foreign) && fs::remove_dir(&foreign).is_ok() => {}
                Err(_) if Instant::now() >= until => return Err(SettingsError::Busy { path: foreign }),
                Err(_) => std::thread::sleep(FOREIGN_POLL),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Should this fail, the directory is stale after a while.
        let _ = fs::remove_dir(&self.foreign);
    }
}

fn is_stale(lock: &Path) -> bool {
    let changed = fs::metadata(lock).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age > FOREIGN_STALE))
}

fn new_private_file(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().write(true).create_new(true)).open(path)
}

fn open_private_file(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().write(true).create(true).truncate(false)).open(path)
}

#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

#[cfg(unix)]
fn is_private(path: &Path) -> bool {
    let mode = fs::metadata(path).map(|status| std::os::unix::fs::MetadataExt::mode(&status));
    mode.is_ok_and(|mode| mode & 0o077 == 0)
}

#[cfg(not(unix))]
fn is_private(_path: &Path) -> bool {
    true
}

/// A user's own directories are private on Windows by inheritance.
#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(unix)]
fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

#[cfg(not(unix))]
fn make_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}
