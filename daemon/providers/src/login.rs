//! Who can be logged in to with a key of the user's own, and who only with another program's identity.

use crate::config_value::ConfigValue;
use crate::error::Error;
use crate::registry::Registry;

/// Providers that know no key of a user: whose identity they take, and what works instead.
const OTHERS: [(&str, &str, &str); 3] = [
    (
        "openai-codex",
        "it knows only the client id of OpenAI's Codex program",
        "a key from platform.openai.com (atomic auth login openai)",
    ),
    (
        "github-copilot",
        "it knows only the client ids and names of GitHub's own editor extensions",
        "the same models with a key of their vendors (atomic auth login anthropic, openai, google), or of openrouter",
    ),
    (
        "radius",
        "it is a gateway for one other program",
        "the vendors' own APIs, or atomic auth login openrouter",
    ),
];

/// How Anthropic's subscription tokens begin.
const SUBSCRIPTION: &str = "sk-ant-oat";

impl Registry {
    /// The id of the provider that a person named, if it can be given a key.
    ///
    /// # Errors
    /// [`Error::AnothersIdentity`], [`Error::UnknownProvider`].
    pub fn login_to(&self, name: &str) -> Result<String, Error> {
        if let Some((provider, reason, instead)) =
            OTHERS.iter().find(|(provider, ..)| provider.eq_ignore_ascii_case(name))
        {
            return Err(Error::AnothersIdentity { provider: (*provider).to_owned(), reason, instead });
        }
        self.provider_named(name).ok_or_else(|| Error::UnknownProvider { name: name.to_owned() })
    }
}

/// What goes into `auth.json` for a key as a person pasted it: the value that stands for exactly this text.
///
/// # Errors
/// [`Error::AnothersIdentity`] for a token that works only for another program, [`Error::Login`] for what is no key.
pub fn stored_key(provider: &str, key: &str) -> Result<String, Error> {
    let key = key.trim();
    let failed = |reason: &str| Error::Login { provider: provider.to_owned(), reason: reason.to_owned() };
    if key.is_empty() {
        return Err(failed("nothing was typed"));
    }
    if key.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
        return Err(failed("what was given is no key: it has white space or control characters in it"));
    }
    if key.starts_with(SUBSCRIPTION) {
        return Err(Error::AnothersIdentity {
            provider: provider.to_owned(),
            reason: "this is the token of a subscription, which Anthropic takes from its own programs only",
            instead: "a key from console.anthropic.com",
        });
    }
    Ok(ConfigValue::literal(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_another_identity_is_refused_with_a_way_out() {
        let registry = Registry::load(crate::Setup::default());
        for provider in ["openai-codex", "GitHub-Copilot", "radius"] {
            let error = registry.login_to(provider).unwrap_err().to_string();
            assert!(
                error.contains("What works instead") && error.contains("does not pass itself off"),
                "{error}"
            );
        }
        assert!(registry.login_to("nobody").unwrap_err().to_string().contains("Unknown provider \"nobody\""));
        assert!(registry.login_to("demo").is_err());
        for (typed, provider) in [("OpenAI", "openai"), ("kimi-coding", "kimi-coding"), ("ollama", "ollama")]
        {
            assert_eq!(registry.login_to(typed).unwrap(), provider);
        }
    }

    #[test]
    fn a_key_is_kept_as_it_is() {
        assert_eq!(stored_key("p", " sk-1\r\n").unwrap(), "sk-1");
        assert_eq!(stored_key("p", "!rm").unwrap(), "$!rm");
        assert_eq!(stored_key("p", "a$HOME").unwrap(), "a$$HOME");
        for (key, want) in [("", "nothing"), ("two words", "white space"), ("sk-ant-oat01-x", "subscription")]
        {
            assert!(stored_key("anthropic", key).unwrap_err().to_string().contains(want), "{key}");
        }
    }
}
