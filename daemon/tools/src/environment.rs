//! What a session lends to its tools.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::children::Children;

/// The environment of a session, ordered by name. `Debug` shows names only: values may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SessionEnv(BTreeMap<OsString, OsString>);

impl SessionEnv {
    /// The value of `name`. On Windows names have no case.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        if cfg!(windows) {
            let found = self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            return found.map(|(_, value)| value.as_os_str());
        }
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The value of `name` unless it is absent or empty.
    pub fn get_set(&self, name: &str) -> Option<&OsStr> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Sets `name`; the one that was there goes.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.0.insert(name.into(), value.into());
    }

    /// All variables, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Where this session's temporary files go: `TMPDIR`, on Windows `TEMP` or `TMP`; else the system's usual place.
    pub fn temp_dir(&self) -> PathBuf {
        let names: &[&str] = if cfg!(windows) { &["TEMP", "TMP"] } else { &["TMPDIR"] };
        let named = names.iter().find_map(|name| self.get_set(name)).map(PathBuf::from);
        named.filter(|dir| dir.is_absolute()).unwrap_or_else(crate::process::system_temp_dir)
    }

    /// The user's home directory: `HOME`, on Windows `USERPROFILE`.
    pub fn home(&self) -> Option<&Path> {
        self.get_set(if cfg!(windows) { "USERPROFILE" } else { "HOME" }).map(Path::new)
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for SessionEnv {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        SessionEnv(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for SessionEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// What the tools of one session work with. Cheap enough to clone per call.
#[derive(Clone, Debug)]
pub struct ToolEnvironment {
    /// Relative paths start here; the shell runs here.
    pub cwd: PathBuf,
    /// The session's environment: children get this and nothing of the daemon's own.
    pub env: Arc<SessionEnv>,
    /// Told to children; names the directory for full output.
    pub session_id: String,
    /// Told to children when the session has a file.
    pub session_file: Option<PathBuf>,
    /// The `shellPath` setting.
    pub shell_path: Option<PathBuf>,
    /// The `shellCommandPrefix` setting: put before each command, on a line of its own.
    pub shell_command_prefix: Option<String>,
    /// The `images.autoResize` setting: images larger than models take are made smaller.
    pub resize_images: bool,
    /// The umask of the session's caller: children run with it and new files get it. The daemon's own is strict, so that
    /// what it keeps itself is private; a user's files are not its own. `None`: the process's (Windows has none).
    pub umask: Option<u32>,
    /// Where children are registered so that they end with the daemon.
    pub children: Children,
}

/// What a child is told about the model at work: `ATOMIC_PROVIDER`, `ATOMIC_MODEL`, `ATOMIC_REASONING_LEVEL` and the same
/// with `PI_`. Absent values leave the variables unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolVariables {
    /// Provider id.
    pub provider: Option<String>,
    /// Model id.
    pub model: Option<String>,
    /// Thinking level: `off`, `low` and so on.
    pub thinking: Option<String>,
}

impl ToolEnvironment {
    /// The exact environment of a child: the session's, with the reserved names set last so that nothing overrides them.
    pub(crate) fn child_env(&self, variables: &ToolVariables) -> SessionEnv {
        let mut env = SessionEnv::clone(&self.env);
        env.set("AI_AGENT", "atomic");
        let file = self.session_file.as_ref().map(|path| path.clone().into_os_string());
        let reserved: [(&str, Option<OsString>); 5] = [
            ("SESSION_ID", Some(self.session_id.clone().into())),
            ("SESSION_FILE", file),
            ("PROVIDER", variables.provider.clone().map(OsString::from)),
            ("MODEL", variables.model.clone().map(OsString::from)),
            ("REASONING_LEVEL", variables.thinking.clone().map(OsString::from)),
        ];
        for prefix in ["ATOMIC_", "PI_"] {
            for (name, value) in &reserved {
                let name = OsString::from(format!("{prefix}{name}"));
                match value {
                    Some(value) => env.0.insert(name, value.clone()),
                    // A session started inside another one must not speak of the outer one's file or model.
                    None => env.0.remove(&name),
                };
            }
        }
        env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_names_only() {
        let env: SessionEnv = [("B", "secret"), ("A", "hidden")].into_iter().collect();
        assert_eq!(format!("{env:?}"), r#"["A", "B"]"#);
    }

    #[test]
    fn reserved_names_are_set_last_and_stale_ones_removed() {
        let outer = [("PI_SESSION_FILE", "/outer"), ("AI_AGENT", "x"), ("ATOMIC_MODEL", "y"), ("KEEP", "1")];
        let environment = ToolEnvironment {
            cwd: "/".into(),
            env: Arc::new(outer.into_iter().collect()),
            session_id: "s1".into(),
            session_file: None,
            shell_path: None,
            shell_command_prefix: None,
            resize_images: true,
            umask: None,
            children: Children::without_guard(),
        };
        let variables = ToolVariables { model: Some("m".into()), ..ToolVariables::default() };
        let env = environment.child_env(&variables);
        let expected: SessionEnv = [
            ("AI_AGENT", "atomic"),
            ("ATOMIC_MODEL", "m"),
            ("ATOMIC_SESSION_ID", "s1"),
            ("KEEP", "1"),
            ("PI_MODEL", "m"),
            ("PI_SESSION_ID", "s1"),
        ]
        .into_iter()
        .collect();
        assert!(env == expected, "{env:?}");
    }
}
