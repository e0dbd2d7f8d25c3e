//! `atomic trust`: remembers that a project is trusted, or forgets it. The one writer of that file here; no session, and
//! no answer to a question, ever changes it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use atomic_protocol::trust::{Decisions, FILE, LOCK};

use crate::{daemon, stdio};

/// How long another writer is waited for. It holds the lock for one small write.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// How often it is looked at meanwhile.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// A lock this old was left behind by a crash (the same age as its other makers use).
const LOCK_STALE: Duration = Duration::from_secs(10);

/// `atomic trust`.
pub(crate) fn run(directory: Option<&Path>, revoke: bool) -> u8 {
    match change(directory, revoke) {
        Ok(text) => stdio::say(&text),
        Err(error) => {
            stdio::complain(&format!("Error: {error}"));
            1
        }
    }
}

/// Changes the file and says what holds now.
fn change(directory: Option<&Path>, revoke: bool) -> Result<String, String> {
    let place = daemon::place().map_err(|error| error.to_string())?;
    let given = directory.unwrap_or(Path::new("."));
    let failed = |doing: &str, path: &Path| {
        let (doing, path) = (doing.to_owned(), path.display().to_string());
        move |error: io::Error| format!("cannot {doing} {path}: {error}")
    };
    let project = given.canonicalize().map_err(failed("resolve", given))?;
    if !project.is_dir() {
        return Err(format!("{} is no directory", project.display()));
    }
    let agent_dir = place.agent_dir();
    fs::create_dir_all(agent_dir).map_err(failed("make", agent_dir))?;
    let _lock = Lock::take(agent_dir.join(LOCK))?;
    let path = agent_dir.join(FILE);
    let mut decisions = match fs::read_to_string(&path) {
        Ok(text) => Decisions::parse(&text)
            .map_err(|error| format!("{}: {error}; correct the file and try again", path.display()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Decisions::default(),
        Err(error) => return Err(failed("read", &path)(error)),
    };
    let before = decisions.clone();
    if !decisions.set(&project, (!revoke).then_some(true)) {
        return Err(format!("the name of {} is not Unicode; it cannot be remembered", project.display()));
    }
    if decisions != before {
        replace(&path, &decisions.to_text()).map_err(failed("write", &path))?;
    }
    let shown = project.display();
    Ok(match decisions.about(&project) {
        Some((_, true)) if !revoke => {
            format!(
                "{shown} is trusted; sessions there load its own settings, prompts, skills and context files\n"
            )
        }
        Some((around, true)) => format!("{shown} is still trusted, because {} is\n", around.display()),
        _ => format!("{shown} is not trusted\n"),
    })
}

/// Writes a new file, the user's alone, and puts it in the place of the old one: who reads meanwhile sees one or the
/// other.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    written.inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// The right to write the file, until it is dropped: a directory, as other programs of this family make it.
struct Lock(PathBuf);

impl Lock {
    fn take(path: PathBuf) -> Result<Lock, String> {
        let until = Instant::now() + LOCK_WAIT;
        loop {
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Lock(path)),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(format!("cannot lock {}: {error}", path.display()));
                }
                Err(_) if is_stale(&path) && fs::remove_dir(&path).is_ok() => {}
                Err(_) if Instant::now() >= until => {
                    return Err(format!(
                        "another program is writing the file: {} is there. If none is, remove that directory and try again",
                        path.display()
                    ));
                }
                Err(_) => std::thread::sleep(LOCK_POLL),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Should this fail, the directory is stale after a while.
        let _ = fs::remove_dir(&self.0);
    }
}

fn is_stale(lock: &Path) -> bool {
    let changed = fs::metadata(lock).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age > LOCK_STALE))
}
