//! From the agent directory to the daemon's socket, locks and logs.
//!
//! Identity is (user, host, canonical agent directory) and nothing else: no session variable, no `TMPDIR`, no
//! `XDG_RUNTIME_DIR`, so that a login shell, ssh, cron, an editor and a service manager all find the same daemon.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::error::LinkError;
use crate::os;

/// Longest socket path that is used. `sun_path` has 104 bytes on macOS, 108 on Linux, a NUL included.
pub const SOCKET_PATH_BYTES: usize = 100;

/// Variables that name the agent directory, the first one set wins.
pub const AGENT_DIR_VARIABLES: [&str; 2] = ["ATOMIC_CODING_AGENT_DIR", "PI_CODING_AGENT_DIR"];

/// The caller's home directory: `HOME` if it is set, else what the user database says; on Windows the known folder of
/// the profile. `None` when there is neither.
pub fn home() -> Option<PathBuf> {
    directories::BaseDirs::new().map(|dirs| dirs.home_dir().to_owned())
}

/// Who the daemon serves and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Uid on Unix, SID on Windows.
    pub user: String,
    /// Tells hosts (and containers) apart that share a directory.
    pub host: String,
    /// The canonical agent directory.
    pub agent_dir: PathBuf,
}

impl Identity {
    /// Hex of the hash of the host.
    pub(crate) fn host_hash(&self) -> String {
        hash(&[self.host.as_bytes()])
    }

    /// Hex of the hash of everything.
    pub(crate) fn hash(&self) -> String {
        let dir = self.agent_dir.as_os_str().as_encoded_bytes();
        hash(&[self.user.as_bytes(), self.host.as_bytes(), dir])
    }
}

/// First 64 bits of the hash of the parts, as hex; the parts are told apart by their lengths.
fn hash(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Where the daemon of one identity is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    identity: Identity,
    socket: PathBuf,
    /// The directories that must be ours alone, outer first; the last one holds socket and locks.
    private: [PathBuf; 2],
}

impl Place {
    /// The place for a caller with this environment. `home` is the caller's home directory ([`home`]), `cwd` resolves a
    /// relative agent directory. Makes nothing.
    ///
    /// # Errors
    /// When no directory is named and `home` is unknown, or the path cannot be resolved.
    pub fn find(
        env: impl Fn(&str) -> Option<OsString>,
        home: Option<&Path>,
        cwd: &Path,
    ) -> Result<Place, LinkError> {
        let named = AGENT_DIR_VARIABLES.iter().find_map(|name| env(name).filter(|value| !value.is_empty()));
        let dir = match named.map(PathBuf::from) {
            None => home.ok_or(LinkError::NoHome)?.join(".atomic").join("agent"),
            // Editors pass variables on without a shell in between, so nobody else expands the tilde.
            Some(dir) => match dir.strip_prefix("~") {
                Ok(below) => home.ok_or(LinkError::NoHome)?.join(below),
                Err(_) => cwd.join(dir),
            },
        };
        Place::of(&dir)
    }

    /// The place for an agent directory given as an absolute path. Makes nothing.
    ///
    /// # Errors
    /// When the path cannot be resolved.
    pub fn of(agent_dir: &Path) -> Result<Place, LinkError> {
        let resolve = |source| LinkError::Resolve { path: agent_dir.to_owned(), source };
        let agent_dir = canonical(agent_dir).map_err(resolve)?;
        let user = os::user().map_err(resolve)?;
        Ok(Place::lay_out(Identity { user, host: os::host(), agent_dir }))
    }

    fn lay_out(identity: Identity) -> Place {
        let run = identity.agent_dir.join("run");
        let own = [run.clone(), run.join(identity.host_hash())];
        let fits = os::socket_of(&own[1], &identity).as_os_str().len() <= SOCKET_PATH_BYTES;
        let private =
            if fits && os::is_local(existing(&own[1])) { own } else { os::short_dirs(&identity, own) };
        Place { socket: os::socket_of(&private[1], &identity), identity, private }
    }

    /// Who is served.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The canonical agent directory.
    pub fn agent_dir(&self) -> &Path {
        &self.identity.agent_dir
    }

    /// The socket (Unix) or the pipe's name (Windows).
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The lock that the daemon holds for life.
    pub fn daemon_lock(&self) -> PathBuf {
        self.private[1].join("daemon.lock")
    }

    /// The lock that whoever starts the daemon holds until it has welcomed somebody.
    pub fn start_lock(&self) -> PathBuf {
        self.private[1].join("start.lock")
    }

    /// The directory of the log files.
    pub fn logs(&self) -> PathBuf {
        self.identity.agent_dir.join("logs")
    }

    /// What the daemon says before its log is open.
    pub fn stderr_log(&self) -> PathBuf {
        self.logs().join("stderr.log")
    }

    /// The directories that must be ours alone, outer first.
    pub(crate) fn private_dirs(&self) -> &[PathBuf; 2] {
        &self.private
    }
}

/// Resolves links in the part of an absolute path that exists, so that the answer is the same before and after the
/// rest is made.
fn canonical(path: &Path) -> io::Result<PathBuf> {
    let base = existing(path);
    let mut out = std::fs::canonicalize(base)?;
    for component in path.strip_prefix(base).unwrap_or(Path::new("")).components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            _ => {}
        }
    }
    Ok(out)
}

/// The longest beginning of `path` that exists.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|part| part.exists()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_wins_and_the_default_is_below_home() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().canonicalize().unwrap();
        let find = |set: &[(&str, &str)]| {
            let env =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
            Place::find(env, Some(&home), &home.join("cwd")).unwrap().agent_dir().to_owned()
        };
        assert_eq!(find(&[]), home.join(".atomic/agent"));
        assert_eq!(find(&[("ATOMIC_CODING_AGENT_DIR", "")]), home.join(".atomic/agent"));
        assert_eq!(find(&[("PI_CODING_AGENT_DIR", "~/pi")]), home.join("pi"));
        assert_eq!(
            find(&[("ATOMIC_CODING_AGENT_DIR", "a/../b"), ("PI_CODING_AGENT_DIR", "c")]),
            home.join("cwd/b")
        );
        // Variables that differ between a login shell, cron and an editor are not asked for.
        let env = |name: &str| {
            assert!(AGENT_DIR_VARIABLES.contains(&name), "{name} is read");
            None
        };
        Place::find(env, Some(&home), &home).unwrap();
        assert!(matches!(Place::find(|_| None, None, &home), Err(LinkError::NoHome)));
    }

    #[cfg(unix)]
    #[test]
    fn the_place_is_the_same_before_and_after_the_directory_is_made_and_through_a_link() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("agent");
        let before = Place::of(&dir).unwrap();
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(Place::of(&dir).unwrap(), before);
        std::os::unix::fs::symlink(&dir, root.path().join("link")).unwrap();
        assert_eq!(Place::of(&root.path().join("link")).unwrap(), before);
        assert!(before.socket().starts_with(dir.canonicalize().unwrap().join("run")));
        assert!(before.daemon_lock().parent() == before.socket().parent());
    }

    #[cfg(unix)]
    #[test]
    fn a_path_too_long_for_a_socket_moves_below_tmp_and_stays_distinct() {
        let identity = |end: &str| Identity {
            user: "1000".into(),
            host: "h".into(),
            agent_dir: PathBuf::from(format!("/{}/{end}", "x".repeat(200))),
        };
        let (a, b) = (Place::lay_out(identity("a")), Place::lay_out(identity("b")));
        assert!(a.socket().starts_with("/tmp/atomic-1000/"), "{:?}", a.socket());
        assert!(a.socket().as_os_str().len() <= SOCKET_PATH_BYTES);
        assert_ne!(a.socket(), b.socket());
        let other = Place::lay_out(Identity { user: "1001".into(), ..identity("a") });
        assert!(other.socket().starts_with("/tmp/atomic-1001/"));
        assert_ne!(other.socket().parent().unwrap().file_name(), a.socket().parent().unwrap().file_name());
        assert!(a.logs().starts_with("/xx") || a.logs().to_string_lossy().contains("/logs"));
    }

    #[cfg(unix)]
    #[test]
    fn hosts_that_share_a_directory_have_their_own_sockets() {
        let root = tempfile::tempdir().unwrap();
        let on = |host: &str| {
            let agent_dir = root.path().canonicalize().unwrap();
            Place::lay_out(Identity { user: "1".into(), host: host.into(), agent_dir })
        };
        assert_ne!(on("a").socket(), on("b").socket());
        assert_ne!(on("a").daemon_lock(), on("b").daemon_lock());
    }
}
