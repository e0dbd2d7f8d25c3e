//! Where each provider's key comes from, for people who ask. Never the key.

use std::collections::BTreeSet;

use super::Registry;
use crate::auth::{self, Stored, StoredCredential};
use crate::config_value::ConfigValue;
use crate::error::Error;
use crate::{demo, local};

/// Where a provider's key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// Provider id.
    pub provider: String,
    /// `runtime` (`--api-key`), `stored` (`auth.json`), `models_json`, `environment`, `adc` (Google's Application Default
    /// Credentials), `aws`.
    pub source: &'static str,
    /// What names it: a variable, a file of another program, what a vendor's tools left.
    pub label: Option<String>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

impl Registry {
    /// Where the provider's key comes from, and what names it (a variable); `None` without one that can be used. Any text
    /// may be asked for. Blocking as [`Registry::available`].
    pub fn auth_status(&self, provider: &str) -> Option<(&'static str, Option<String>)> {
        let stored = Stored::read(&self.shared.auth_files).unwrap_or_default();
        let status = self.status(provider, &stored).filter(|status| status.problem.is_none())?;
        let source = match status.source {
            "adc" | "aws" => "environment",
            source => source,
        };
        // The protocol's label names a variable; the file of another program is none.
        Some((source, status.label.filter(|_| source != "stored")))
    }

    /// Where the keys of all providers come from that have one, in the order of [`Registry::available`], then stored ones of
    /// providers nobody knows. Blocking as that.
    ///
    /// # Errors
    /// [`Error::AuthFile`].
    pub fn key_statuses(&self) -> Result<Vec<KeyStatus>, Error> {
        let stored = Stored::read(&self.shared.auth_files)?;
        let known: BTreeSet<&str> = self.providers().collect();
        let unknown = stored.providers().filter(|provider| !known.contains(provider));
        let all = self.providers().filter(|provider| *provider != demo::PROVIDER).chain(unknown);
        Ok(all.filter_map(|provider| self.status(provider, &stored)).collect())
    }

    fn status(&self, provider: &str, stored: &Stored) -> Option<KeyStatus> {
        let status = |source, label: Option<String>, problem: Option<String>| {
            Some(KeyStatus { provider: provider.to_owned(), source, label, problem })
        };
        if self.api_key.as_ref().is_some_and(|given| given.0 == provider) {
            return status("runtime", Some("--api-key".to_owned()), None);
        }
        let unset = |value: &str, env: &crate::Env| {
            let parsed = ConfigValue::parse(value);
            parsed.unset(env).map(|variable| format!("it names the variable {variable}, which is not set"))
        };
        let env = self.env();
        match stored.get(provider) {
            Some((entry, file)) => {
                let foreign = (*file != self.auth_file()).then(|| file.display().to_string());
                match entry {
                    StoredCredential::Login => status(
                        "stored",
                        foreign,
                        Some("a login made by another program, which this one does not use".to_owned()),
                    ),
                    StoredCredential::ApiKey { key: Some(key), env: own } => {
                        status("stored", foreign, unset(key, &env.overlay(own)))
                    }
                    StoredCredential::ApiKey { key: None, env: own } => {
                        let (source, label) = found(provider, &env.overlay(own))?;
                        status(source, Some(label), None)
                    }
                }
            }
            None => match self.own(provider).and_then(|own| own.api_key.as_ref()) {
                Some(key) => status("models_json", None, unset(key, env)),
                None => {
                    let (source, label) = found(provider, env)?;
                    status(source, Some(label), None)
                }
            },
        }
    }

    /// A known provider's id as it is spelled, for what a person typed.
    pub fn provider_named(&self, name: &str) -> Option<String> {
        let mut known = self.providers().filter(|known| *known != demo::PROVIDER);
        known.find(|known| known.eq_ignore_ascii_case(name)).map(str::to_owned)
    }

    /// Whether the provider works without a key.
    pub fn needs_no_key(&self, provider: &str) -> bool {
        local::is_local(provider)
    }
}

/// What the environment has for a provider, and its name.
fn found(provider: &str, env: &crate::Env) -> Option<(&'static str, String)> {
    if let Some((_, _, variable)) = auth::from_environment(provider, env) {
        return Some(("environment", variable.to_owned()));
    }
    let what = auth::ambient(provider, env)?;
    Some((if provider == "google-vertex" { "adc" } else { "aws" }, what.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setup;

    #[test]
    fn every_source_is_named_and_no_key_is() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        let agent_dir = home.join(".atomic").join("agent");
        let other = home.join(".pi").join("agent");
        for dir in [&agent_dir, &other, &home.join(".aws")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(home.join(".aws/credentials"), "[default]").unwrap();
        std::fs::write(
            agent_dir.join("auth.json"),
            r#"{"anthropic":{"type":"api_key","key":"s3cret-a"},"xai":{"type":"oauth","access":"s3cret-b"},
                "groq":{"type":"api_key","key":"$GONE"},"mistral":{"type":"api_key","env":{"MISTRAL_API_KEY":"s3cret-c"}},
                "strange":{"type":"api_key","key":"s3cret-d"}}"#,
        )
        .unwrap();
        std::fs::write(other.join("auth.json"), r#"{"zai":{"type":"api_key","key":"s3cret-e"}}"#).unwrap();
        std::fs::write(
            agent_dir.join("models.json"),
            r#"{"providers":{"deepseek":{"apiKey":"s3cret-f"},"ollama":{"baseUrl":"http://h"}}}"#,
        )
        .unwrap();
        let home = home.to_str().unwrap();
        let env =
            [("HOME", home), ("USERPROFILE", home), ("OPENAI_API_KEY", "s3cret-g")].into_iter().collect();
        let registry = Registry::load(Setup { agent_dir, env, ..Setup::default() });
        let registry = registry.with_api_key("cerebras", "s3cret-h");
        let statuses = registry.key_statuses().unwrap();
        let shown = format!("{statuses:?} {registry:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        let rows: Vec<_> = statuses
            .iter()
            .map(|s| (s.provider.as_str(), s.source, s.label.is_some(), s.problem.is_some()))
            .collect();
        for row in [
            ("anthropic", "stored", false, false),
            ("xai", "stored", false, true),
            ("groq", "stored", false, true),
            ("mistral", "environment", true, false),
            ("strange", "stored", false, false),
            ("zai", "stored", true, false),
            ("deepseek", "models_json", false, false),
            ("openai", "environment", true, false),
            ("amazon-bedrock", "aws", true, false),
            ("cerebras", "runtime", true, false),
        ] {
            assert!(rows.contains(&row), "{row:?} in {rows:?}");
        }
        assert_eq!(rows.len(), 10, "{rows:?}");
        assert_eq!(registry.auth_status("openai"), Some(("environment", Some("OPENAI_API_KEY".into()))));
        assert_eq!(registry.auth_status("zai"), Some(("stored", None)));
        for provider in ["groq", "xai", "ollama", "nobody"] {
            assert_eq!(registry.auth_status(provider), None, "{provider}");
        }
    }
}
