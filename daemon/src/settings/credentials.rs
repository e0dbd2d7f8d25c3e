//! `auth.json`: keys of providers, which this program and others of its family write.
//!
//! It is changed as the settings are (see [`super::edit`]), and is the owner's only afterwards, whatever it was before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use atomic_protocol::json::Fields;
use serde_json::json;

use super::save::{FOREIGN_WAIT, Modes, SettingsError, rewrite, set, without};

/// Name of the file in the agent directory.
const FILE: &str = "auth.json";

/// How long somebody who waits in a session waits for another program to finish writing.
pub const SHORT_WAIT: Duration = FOREIGN_WAIT;

/// How long a person at a terminal does: the other programs hold their lock while they renew a login, which may take 15
/// seconds, and what a crash left of one is stale after 10.
pub const LONG_WAIT: Duration = Duration::from_secs(16);

/// The file.
pub fn file(agent_dir: &Path) -> PathBuf {
    agent_dir.join(FILE)
}

/// Keeps a key. `value` is what goes into the file: a text in which `$` and a first `!` mean something. What else the
/// provider's entry holds beside a key (`env`) stays; a login of another kind is replaced.
///
/// # Errors
/// Those of [`super::edit`].
pub fn save_key(agent_dir: &Path, provider: &str, value: &str, wait: Duration) -> Result<(), SettingsError> {
    rewrite(&file(agent_dir), Modes::Private, wait, |object| {
        let fields = Fields::parse(object)?;
        let entry = fields.get(provider).and_then(|entry| Fields::parse(entry).ok());
        match entry.and_then(|entry| entry.str("type").map(|kind| kind == "api_key")) {
            Some(true) => set(object, &[provider, "key"], &json!(value), 0),
            _ => set(object, &[provider], &json!({"type": "api_key", "key": value}), 0),
        }
    })
}

/// Forgets what is kept for a provider, whatever it is; `false` when nothing was.
///
/// # Errors
/// Those of [`super::edit`].
pub fn forget(agent_dir: &Path, provider: &str, wait: Duration) -> Result<bool, SettingsError> {
    let file = file(agent_dir);
    if !file.exists() {
        return Ok(false);
    }
    let mut had_one = false;
    rewrite(&file, Modes::Private, wait, |object| {
        had_one = Fields::parse(object)?.get(provider).is_some();
        without(object, provider)
    })?;
    Ok(had_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn kept(dir: &Path) -> Value {
        serde_json::from_slice(&std::fs::read(file(dir)).unwrap()).unwrap()
    }

    #[test]
    fn a_key_is_kept_and_forgotten_and_what_is_beside_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let agent_dir = dir.path().join("a").join("agent");
        assert!(!forget(&agent_dir, "x", SHORT_WAIT).unwrap());
        save_key(&agent_dir, "x", "one", SHORT_WAIT).unwrap();
        assert_eq!(kept(&agent_dir), json!({"x": {"type": "api_key", "key": "one"}}));
        let others = json!({"x": {"type": "api_key", "key": "one", "env": {"A": "b"}, "later": [1]},
            "o": {"type": "oauth", "access": "a", "refresh": "r", "expires": 1, "more": null}, "n": 7});
        std::fs::write(file(&agent_dir), others.to_string()).unwrap();
        save_key(&agent_dir, "x", "two", SHORT_WAIT).unwrap();
        let mut want = others.clone();
        want["x"]["key"] = json!("two");
        assert_eq!(kept(&agent_dir), want);
        save_key(&agent_dir, "o", "three", SHORT_WAIT).unwrap();
        want["o"] = json!({"type": "api_key", "key": "three"});
        assert_eq!(kept(&agent_dir), want, "no token of the old login is left");
        assert!(
            forget(&agent_dir, "x", SHORT_WAIT).unwrap() && !forget(&agent_dir, "x", SHORT_WAIT).unwrap()
        );
        want.as_object_mut().unwrap().remove("x");
        assert_eq!(kept(&agent_dir), want);
        assert!(!agent_dir.join("auth.json.lock").exists());
    }

    #[cfg(unix)]
    #[test]
    fn file_and_directory_are_the_owners_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let agent_dir = dir.path().join("agent");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        save_key(&agent_dir, "x", "k", SHORT_WAIT).unwrap();
        assert_eq!((mode(&file(&agent_dir)), mode(&agent_dir)), (0o600, 0o700));
        // The same key again: the file is made private all the same.
        std::fs::set_permissions(file(&agent_dir), std::fs::Permissions::from_mode(0o644)).unwrap();
        save_key(&agent_dir, "x", "k", SHORT_WAIT).unwrap();
        assert_eq!(mode(&file(&agent_dir)), 0o600);
    }

    #[test]
    fn another_writer_is_waited_for_and_named_and_a_dead_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("auth.json.lock");
        std::fs::create_dir(&lock).unwrap();
        let error = save_key(dir.path(), "x", "s3cret", Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("auth.json.lock") && !error.contains("s3cret"), "{error}");
        assert!(!file(dir.path()).exists());
        let old = std::time::SystemTime::now() - super::super::save::FOREIGN_STALE - Duration::from_secs(1);
        std::fs::File::open(&lock).unwrap().set_modified(old).unwrap();
        save_key(dir.path(), "x", "k", Duration::ZERO).unwrap();
        std::fs::create_dir(&lock).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| save_key(dir.path(), "y", "k", LONG_WAIT));
            std::fs::remove_dir(&lock).unwrap();
            waits.join().unwrap().unwrap();
        });
        assert_eq!(kept(dir.path()).as_object().unwrap().len(), 2);
    }
}
