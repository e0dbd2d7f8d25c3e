//! `SYSTEM.md` and `APPEND_SYSTEM.md`: a system prompt in a file, for every session of a user or a project.

use std::path::PathBuf;

use super::{Sources, files, places};

/// Stands in place of the standard system prompt.
pub(super) const SYSTEM: &str = "SYSTEM.md";

/// Stands behind the system prompt.
pub(super) const APPEND_SYSTEM: &str = "APPEND_SYSTEM.md";

/// The text of the first `SYSTEM.md`: of the project if it is trusted, else of the agent directories.
///
/// # Errors
/// When it is there and cannot be read; the text names it. Instructions that silently are not there are worse than none.
pub(super) fn system(sources: &Sources<'_>) -> Result<Option<String>, String> {
    first(SYSTEM, sources)
}

/// The text of the first `APPEND_SYSTEM.md`, found as [`system`] finds its file.
///
/// # Errors
/// As [`system`].
pub(super) fn append_system(sources: &Sources<'_>) -> Result<Option<String>, String> {
    first(APPEND_SYSTEM, sources)
}

fn first(name: &str, sources: &Sources<'_>) -> Result<Option<String>, String> {
    let project = places::project_directories(sources.cwd).into_iter().filter(|_| sources.trusted);
    let user = places::user_directories(sources.agent_dir, sources.legacy_agent_dir);
    let mut paths = project.chain(user).map(|directory: PathBuf| directory.join(name));
    paths.find(|path| path.is_file()).map(|path| files::read(&path)).transpose()
}
