//! Which session a caller means: a file by its path, an id or the beginning of one, the newest, or none yet.
//!
//! Everything here looks at the disk and blocks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use atomic_session_store as store;
use atomic_tools::SessionEnv;

use super::Opening;
use super::prepare::Work;
use crate::daemon::Daemon;
use crate::settings::Settings;

/// Which session a caller asks for.
#[derive(Debug)]
pub(super) enum Choice {
    /// A fresh one, with a file in this directory or in memory only.
    Fresh { dir: Option<PathBuf>, id: Option<String> },
    /// The one in this file, which need not exist.
    File(PathBuf),
    /// A fresh one that begins with what this file holds.
    Fork { source: PathBuf, dir: PathBuf, id: Option<String> },
}

pub(super) fn choose(work: &Work, reattach: Option<&str>) -> Result<Choice, String> {
    let (agent_dir, opening) = (&work.daemon.agent_dir, &work.opening);
    let options = &opening.options;
    if let Some(file) = reattach {
        return canonical(Path::new(file)).map(Choice::File);
    }
    if !opening.cwd.is_dir() {
        return Err(format!("Error: working directory does not exist: {}", opening.cwd.display()));
    }
    if options.no_session {
        return Ok(Choice::Fresh { dir: None, id: options.session_id.clone() });
    }
    let dir = session_dir(agent_dir, opening);
    let fresh = |id| Choice::Fresh { dir: Some(dir.clone()), id };
    let cwd = opening.cwd.to_string_lossy();
    // Only a directory that is not the directory's own can hold sessions of several.
    let own = dir == store::default_session_dir(agent_dir, &cwd);
    let filter = (!own).then_some(&*cwd);
    if let Some(wish) = &options.session {
        let file = named(work, &dir, wish)?;
        // An empty file would become one, too.
        let is_there =
            || std::fs::metadata(&file).is_ok_and(|metadata| !metadata.is_file() || metadata.len() > 0);
        if options.attach && !is_there() && work.daemon.sessions.with_file(&file).is_none() {
            return Err(not_found(&wish.to_string_lossy()));
        }
        return Ok(Choice::File(file));
    }
    if let Some(wish) = &options.fork {
        let source = named(work, &dir, wish)?;
        if !source.exists() {
            return Err(not_found(&wish.to_string_lossy()));
        }
        if let Some(id) = &options.session_id
            && find_exactly(&dir, id)?.is_some()
        {
            return Err(format!("Session already exists with id '{id}'"));
        }
        return Ok(Choice::Fork { source, dir, id: options.session_id.clone() });
    }
    if options.continue_newest {
        let newest = store::newest(&dir, filter).map_err(|error| format!("Error: {error}"))?;
        return match newest {
            Some(found) => canonical(&found.path).map(Choice::File),
            None => Ok(fresh(None)),
        };
    }
    if let Some(id) = &options.session_id {
        return match find_exactly(&dir, id)? {
            Some(path) => canonical(&path).map(Choice::File),
            None => Ok(fresh(Some(id.clone()))),
        };
    }
    Ok(fresh(None))
}

/// What a caller is told whose `--session-id` was new.
pub(super) fn created(id: &str) -> String {
    format!("Note: No session found with id '{id}'; it is created")
}

/// The file of a session that is named by its path, which need not exist, or by its id.
fn named(work: &Work, dir: &Path, wish: &std::ffi::OsStr) -> Result<PathBuf, String> {
    let opening = &work.opening;
    let text = wish.to_string_lossy();
    if text.contains(['/', '\\']) || text.ends_with(".jsonl") {
        return canonical(&opening.cwd.join(expand_home(wish, &opening.env)));
    }
    by_id(&work.daemon, dir, &text)
}

/// The file of the session with this id, or of one whose id begins so: live or stored, and perhaps not written yet.
pub(super) fn by_id(daemon: &Daemon, dir: &Path, id: &str) -> Result<PathBuf, String> {
    if let Some(file) = daemon.sessions.file_by_id(id, false) {
        return Ok(file);
    }
    match find_session(&daemon.agent_dir, dir, id)? {
        Some(path) => canonical(&path),
        None => daemon.sessions.file_by_id(id, true).ok_or_else(|| not_found(id)),
    }
}

fn not_found(wish: &str) -> String {
    format!("No session found matching '{wish}'")
}

/// The session in `dir` with exactly this id, which is a well-formed one.
fn find_exactly(dir: &Path, id: &str) -> Result<Option<PathBuf>, String> {
    store::check_session_id(id).map_err(|error| format!("Error: {error}"))?;
    let found = store::find_by_id(dir, id).map_err(|error| format!("Error: {error}"))?;
    Ok(found.filter(|found| found.header.header.id == *id).map(|found| found.path))
}

/// A session by id or the beginning of one: first among those of this directory, then everywhere.
fn find_session(agent_dir: &Path, dir: &Path, id: &str) -> Result<Option<PathBuf>, String> {
    let failed = |error: store::Error| format!("Error: {error}");
    if let Some(found) = store::find_by_id(dir, id).map_err(failed)? {
        return Ok(Some(found.path));
    }
    for other in store::session_dirs(&agent_dir.join("sessions")).map_err(failed)? {
        if let Some(found) = store::find_by_id(&other, id).map_err(failed)? {
            return Ok(Some(found.path));
        }
    }
    Ok(None)
}

/// `--session-dir`, else the variable, else the setting, else the usual place.
pub(crate) fn session_dir(agent_dir: &Path, opening: &Opening) -> PathBuf {
    session_dir_of(agent_dir, opening.options.session_dir.as_deref(), &opening.env, &opening.cwd)
}

/// The same, of a caller who starts no session.
pub(crate) fn session_dir_of(
    agent_dir: &Path,
    named: Option<&Path>,
    env: &SessionEnv,
    cwd: &Path,
) -> PathBuf {
    let (settings, _) = Settings::load(agent_dir, None, None);
    let variable = ["ATOMIC_CODING_AGENT_SESSION_DIR", "PI_CODING_AGENT_SESSION_DIR"]
        .iter()
        .find_map(|name| env.get_set(name).map(OsString::from));
    let named = named.map(|dir| dir.as_os_str().to_owned()).or(variable);
    let named = named.or_else(|| settings.session_dir.map(OsString::from));
    match named {
        Some(dir) => cwd.join(expand_home(&dir, env)),
        None => store::default_session_dir(agent_dir, &cwd.to_string_lossy()),
    }
}

pub(crate) fn expand_home(path: &std::ffi::OsStr, env: &SessionEnv) -> PathBuf {
    let path = Path::new(path);
    match (path.strip_prefix("~"), env.home()) {
        (Ok(below), Some(home)) => home.join(below),
        _ => path.to_owned(),
    }
}

/// One name for a file however it is reached. The file need not exist, its directory may be missing too.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf, String> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let name = path.file_name().ok_or_else(|| format!("Error: not a session file: {}", path.display()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
    Ok(parent.join(name))
}
