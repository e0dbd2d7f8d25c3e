//! Why a tool call failed. The text of each variant is what the model reads.

use std::io;
use std::path::{Path, PathBuf};

/// Why a tool call failed.
///
/// Texts that clients and models know from Pi are spelled as Pi spells them; that is why some begin with a capital.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The arguments do not fit the tool's schema.
    #[error("Invalid arguments for tool \"{tool}\": {problem}")]
    Arguments {
        /// Name of the tool.
        tool: String,
        /// Which field, and what is wrong with it.
        problem: String,
    },
    /// No tool has that name.
    #[error("Tool {0} not found")]
    UnknownTool(String),
    /// The run was aborted while the tool worked.
    #[error("Operation aborted")]
    Aborted,
    /// The operating system refused something, told as Node tells it because models know that form.
    #[error("{}", os_text(.source, .action, .path))]
    Os {
        /// What was attempted: `open`, `stat`, `mkdir`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path is something else than the tool can work on, or the tool's own rule refuses it.
    #[error("{0}")]
    Refused(String),
    /// The shell's working directory is gone.
    #[error("Working directory does not exist: {}\nCannot execute bash commands.", .0.display())]
    NoWorkingDirectory(PathBuf),
    /// The `shellPath` setting names no file.
    #[error("Custom shell path not found: {}", .0.display())]
    NoCustomShell(PathBuf),
    /// The shell did not start.
    #[error("cannot start the shell {}: {source}; check the shellPath setting", .shell.display())]
    Spawn {
        /// The program.
        shell: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A bug: the tool panicked or its thread was lost. The call fails, the session goes on.
    #[error("Tool {tool} failed unexpectedly: {what}")]
    Internal {
        /// Name of the tool.
        tool: String,
        /// The panic's text, if it had one.
        what: String,
    },
}

impl ToolError {
    /// Wraps what the system said about `path`.
    pub(crate) fn os(action: &'static str, path: &Path, source: io::Error) -> Self {
        ToolError::Os { action, path: path.to_owned(), source }
    }

    /// A refusal with its own text.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        ToolError::Refused(text.into())
    }
}

/// `ENOENT` and the like. `None` for errors without a name a model would know.
pub(crate) fn code(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        io::ErrorKind::NotFound => "ENOENT",
        io::ErrorKind::PermissionDenied => "EACCES",
        io::ErrorKind::AlreadyExists => "EEXIST",
        io::ErrorKind::NotADirectory => "ENOTDIR",
        io::ErrorKind::IsADirectory => "EISDIR",
        io::ErrorKind::StorageFull => "ENOSPC",
        io::ErrorKind::ReadOnlyFilesystem => "EROFS",
        io::ErrorKind::QuotaExceeded => "EDQUOT",
        io::ErrorKind::FileTooLarge => "EFBIG",
        _ => return None,
    })
}

fn os_text(error: &io::Error, action: &str, path: &Path) -> String {
    let meaning = match code(error) {
        Some("ENOENT") => "no such file or directory",
        Some("EACCES") => "permission denied",
        Some("EEXIST") => "file already exists",
        Some("ENOTDIR") => "not a directory",
        Some("EISDIR") => "illegal operation on a directory",
        Some("ENOSPC") => "no space left on device",
        Some("EROFS") => "read-only file system",
        Some("EDQUOT") => "disk quota exceeded",
        Some("EFBIG") => "file too large",
        _ => return format!("cannot {action} '{}': {error}", path.display()),
    };
    format!("{}: {meaning}, {action} '{}'", code(error).unwrap_or_default(), path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_read_as_node_prints_them() {
        let text = |kind: io::ErrorKind| ToolError::os("open", Path::new("/a"), kind.into()).to_string();
        assert_eq!(text(io::ErrorKind::NotFound), "ENOENT: no such file or directory, open '/a'");
        assert_eq!(text(io::ErrorKind::PermissionDenied), "EACCES: permission denied, open '/a'");
        assert_eq!(text(io::ErrorKind::TimedOut), "cannot open '/a': timed out");
    }
}
