//! What a person looks through: each session with its name, its first message, when it was last spoken in.
//!
//! That takes all of a file. So what was found is kept in an index file, and a file is read again only when its size or
//! its time of writing is another. The index is a cache and nothing else: it decides nothing that the file's metadata
//! does not confirm, may be deleted at any time, and one that cannot be read is made anew.

mod cache;
mod scan;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use atomic_protocol::time::Millis;

use crate::listing::cache::{Cache, Stamp};
use crate::{Error, list};

/// Threads that read files. More wait for one disk.
const MAX_READERS: usize = 8;

/// A file written to this shortly ago is not kept in the index: with a clock of coarse ticks it could be written to once
/// more, to the same size, and look the same.
const SETTLED: Duration = Duration::from_secs(1);

/// A session as a listing shows it (reference 10, SessionInfo).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its file.
    pub path: PathBuf,
    /// Bytes in the file.
    pub size: u64,
    /// Session id.
    pub id: String,
    /// Where it works.
    pub cwd: String,
    /// Its name; none when it never had one or it was cleared.
    pub name: Option<String>,
    /// It was named at some time.
    pub has_name: bool,
    /// The file it was forked from.
    pub parent_session: Option<String>,
    /// When it was begun.
    pub created: Millis,
    /// When a user or a model last spoke in it; else when it was begun; else when the file was written to.
    pub modified: Millis,
    /// Entries of type message, on all branches.
    pub message_count: u64,
    /// The beginning of the first text of a user, at most [`Summary::FIRST_MESSAGE_CHARS`] characters; empty without one.
    pub first_message: String,
    /// A summary that covers all that was said.
    pub summary: Option<String>,
}

impl Summary {
    /// Characters of the first message that a listing keeps.
    pub const FIRST_MESSAGE_CHARS: usize = 1_000;
}

/// A listing.
#[derive(Debug, Default)]
pub struct Listing {
    /// The sessions, the last spoken in first; internal ones are left out.
    pub sessions: Vec<Summary>,
    /// How many files had to be read; the index knew the others.
    pub read: usize,
    /// Files that look like sessions by their names and cannot be read.
    pub unreadable: Vec<Error>,
    /// The index could not be written.
    pub not_kept: Option<Error>,
}

/// Lists the sessions in `dirs`; with `cwd` only those of that working directory. `index` is the cache's file, of which only
/// what belongs to `dirs` is replaced; without one every file is read. `now` is the time.
///
/// Files that are no sessions are left out.
///
/// # Errors
/// [`Error::Read`] when a directory cannot be read. A missing directory is an empty one.
pub fn listing(
    dirs: &[PathBuf],
    cwd: Option<&str>,
    index: Option<&Path>,
    now: SystemTime,
) -> Result<Listing, Error> {
    let mut known = index.map(Cache::load).unwrap_or_default();
    let mut files: Vec<(PathBuf, Stamp)> = Vec::new();
    for dir in dirs {
        for path in list::names(dir)? {
            if path.extension().is_some_and(|extension| extension == "jsonl")
                && let Ok(metadata) = fs::metadata(&path)
                && metadata.is_file()
            {
                files.push((path, Stamp::of(&metadata)));
            }
        }
    }
    let mut out = Listing::default();
    let mut found: Vec<(PathBuf, Stamp, Option<scan::Facts>)> = Vec::with_capacity(files.len());
    let mut unknown = Vec::new();
    let before = known.len_below(dirs);
    for (path, stamp) in files {
        match known.take(&path, stamp) {
            Some(facts) => found.push((path, stamp, facts)),
            None => unknown.push((path, stamp)),
        }
    }
    let unchanged = unknown.is_empty() && found.len() == before;
    out.read = unknown.len();
    let scanned = in_parallel(unknown, |(path, stamp)| {
        let facts = scan::facts(&path);
        (path, stamp, facts)
    });
    for (path, stamp, facts) in scanned {
        match facts {
            Ok(facts) => found.push((path, stamp, facts)),
            // It was there a moment ago and nobody's loss.
            Err(Error::NotFound { .. }) => {}
            Err(error) => out.unreadable.push(error),
        }
    }
    if let Some(index) = index
        && !unchanged
    {
        let kept = found.iter().filter(|(_, stamp, _)| stamp.is_older_than(now, SETTLED));
        out.not_kept = known.save(index, dirs, kept).err();
    }
    out.sessions = found
        .into_iter()
        .filter_map(|(path, stamp, facts)| Some(facts?.summary(path, stamp)))
        .filter_map(|(internal, summary)| (!internal).then_some(summary))
        .filter(|summary| cwd.is_none_or(|cwd| cwd == summary.cwd))
        .collect();
    out.sessions.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| b.path.cmp(&a.path)));
    Ok(out)
}

/// What a listing would show of the session in this file, an internal one too.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NotAFile`], [`Error::NotASession`], [`Error::Open`], [`Error::Read`].
pub fn summary(path: &Path) -> Result<Summary, Error> {
    let facts = scan::facts(path)?.ok_or_else(|| Error::NotASession { path: path.into() })?;
    let metadata = fs::metadata(path).map_err(|source| Error::Read { path: path.into(), source })?;
    Ok(facts.summary(path.into(), Stamp::of(&metadata)).1)
}

/// Those of `sessions` in which every word of `query` occurs: in the name, the id, the directory, the summary or in what
/// users and models said. Case does not count. Reads the files whose summaries do not say enough; one that cannot be read
/// is left out.
pub fn search(sessions: Vec<Summary>, query: &str) -> Vec<Summary> {
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    if words.is_empty() {
        return sessions;
    }
    let matched = in_parallel(sessions, |session| {
        let mut wanted: Vec<&str> = words.iter().map(String::as_str).collect();
        let shown = [
            Some(session.id.as_str()),
            Some(&session.cwd),
            session.name.as_deref(),
            session.summary.as_deref(),
            Some(&session.first_message),
        ];
        for text in shown.into_iter().flatten() {
            strike(&mut wanted, text);
        }
        let matches =
            wanted.is_empty() || scan::texts(&session.path, &mut wanted).is_ok_and(|()| wanted.is_empty());
        matches.then_some(session)
    });
    matched.into_iter().flatten().collect()
}

/// Takes those words out of `wanted` that `text` has.
fn strike(wanted: &mut Vec<&str>, text: &str) {
    let text = text.to_lowercase();
    wanted.retain(|word| !text.contains(word));
}

/// `work` on each of `items`, on several threads; results in the order of `items`.
fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let readers =
        std::thread::available_parallelism().map_or(1, usize::from).min(MAX_READERS).min(items.len());
    if readers <= 1 {
        return items.into_iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let items: Vec<std::sync::Mutex<Option<T>>> =
        items.into_iter().map(|item| std::sync::Mutex::new(Some(item))).collect();
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let run = || {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else { return done };
                let item = item.lock().expect("each is locked once").take().expect("each is taken once");
                done.push((at, work(item)));
            }
        };
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(run)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
