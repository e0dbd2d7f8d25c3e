//! A session's environment. Nothing in this crate reads the process's own: the daemon serves many sessions, each with
//! the variables of the client that made it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Variables of one session. Cloning shares them; `Debug` shows names only, because values are secrets.
#[derive(Clone, Default)]
pub struct Env(Arc<BTreeMap<String, String>>);

impl Env {
    /// The value of `name`. An empty value counts as unset, as for every variable this crate reads.
    pub fn get(&self, name: &str) -> Option<&str> {
        let exact = self.0.get(name);
        // Windows: `Path` and `PATH` are one variable, and clients send them as they found them.
        let found = if cfg!(windows) && exact.is_none() {
            self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        } else {
            exact
        };
        found.map(String::as_str).filter(|value| !value.is_empty())
    }

    /// These variables with `more` laid over them.
    pub fn overlay<'a>(&self, more: impl IntoIterator<Item = (&'a String, &'a String)>) -> Env {
        let mut more = more.into_iter().peekable();
        if more.peek().is_none() {
            return self.clone();
        }
        let mut all = BTreeMap::clone(&self.0);
        all.extend(more.map(|(name, value)| (name.clone(), value.clone())));
        Env(Arc::new(all))
    }

    /// All variables, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The user's home directory.
    pub(crate) fn home(&self) -> Option<&str> {
        self.get(if cfg!(windows) { "USERPROFILE" } else { "HOME" })
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Env {
        Env(Arc::new(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()))
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_names_only_and_empty_is_unset() {
        let env: Env = [("KEY", "s3cret"), ("EMPTY", "")].into_iter().collect();
        let shown = format!("{env:?}");
        assert!(shown.contains("KEY") && !shown.contains("s3cret"), "{shown}");
        assert_eq!(env.get("EMPTY"), None);
        let over = env.overlay([(&"KEY".to_owned(), &"other".to_owned())]);
        assert_eq!((over.get("KEY"), env.get("KEY")), (Some("other"), Some("s3cret")));
    }
}
