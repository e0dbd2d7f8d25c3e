//! Credentials: where keys come from and what a request carries.
//!
//! Order for one provider: `--api-key`; the stored credential in `auth.json`, which owns its provider even when it
//! cannot be used; `apiKey` of the user's `models.json`; the session's environment.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use atomic_protocol::json::{self, Fields};
use serde::Deserialize;

use crate::bedrock::profile;
use crate::env::Env;
use crate::error::Error;
use crate::google::vertex;
use crate::google_adc;

/// A text that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// How a key travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the header the vendor's API names for keys.
    ApiKey,
    /// `Authorization: Bearer`.
    Bearer,
}

/// Where a key came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `--api-key`.
    CommandLine,
    /// `auth.json`.
    Stored,
    /// `apiKey` in `models.json`.
    ModelsJson,
    /// This variable of the session's environment.
    Environment(String),
    /// No key: what the vendor's own tools left on this machine, named in a few words.
    Ambient(&'static str),
    /// The provider needs none.
    NotNeeded,
}

/// What one request authenticates with. `Debug` shows where the key came from, never the key.
#[derive(Clone)]
pub struct Credential {
    pub(crate) key: Option<Secret>,
    pub(crate) scheme: Scheme,
    pub(crate) source: Source,
    /// Headers the user configured, looked up; `None` takes a header away.
    pub(crate) headers: Vec<(String, Option<Secret>)>,
    /// The session's environment with the credential's own laid over it: proxies, variables of the address.
    pub(crate) env: Env,
}

impl Credential {
    /// Where the key came from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// `text` without the key and the configured headers, in case a provider sent one back.
    pub(crate) fn redact(&self, text: String) -> String {
        let headers = self.headers.iter().filter_map(|(_, value)| value.as_ref());
        // Shorter values are words, not secrets, and hiding them would garble the text.
        let secrets = self.key.iter().chain(headers).filter(|secret| secret.0.len() >= 8);
        secrets.fold(
            text,
            |text, secret| {
                if text.contains(&secret.0) { text.replace(&secret.0, "[hidden]") } else { text }
            },
        )
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Credential")
            .field("source", &self.source)
            .field("scheme", &self.scheme)
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

/// The variables that hold a provider's key, best first, as the vendors' own documents name them.
pub fn key_variables(provider: &str) -> &'static [&'static str] {
    match provider {
        // The last one holds a subscription token. It comes after the ordinary key, because without the client it was
        // made for it is only a key that fails.
        "anthropic" => &["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN"],
        "openai" => &["OPENAI_API_KEY"],
        "azure" | "azure-openai-responses" => &["AZURE_OPENAI_API_KEY"],
        "google" => &["GEMINI_API_KEY"],
        "google-vertex" => &["GOOGLE_CLOUD_API_KEY"],
        "amazon-bedrock" => &["AWS_BEARER_TOKEN_BEDROCK"],
        "mistral" => &["MISTRAL_API_KEY"],
        "groq" => &["GROQ_API_KEY"],
        "cerebras" => &["CEREBRAS_API_KEY"],
        "xai" => &["XAI_API_KEY"],
        "openrouter" => &["OPENROUTER_API_KEY"],
        "vercel-ai-gateway" => &["AI_GATEWAY_API_KEY"],
        "deepseek" => &["DEEPSEEK_API_KEY"],
        "zai" => &["ZAI_API_KEY"],
        "zai-coding-cn" => &["ZAI_CODING_CN_API_KEY"],
        "minimax" => &["MINIMAX_API_KEY"],
        "minimax-cn" => &["MINIMAX_CN_API_KEY"],
        "moonshotai" | "moonshotai-cn" => &["MOONSHOT_API_KEY"],
        "kimi-coding" => &["KIMI_API_KEY"],
        "huggingface" => &["HF_TOKEN"],
        "fireworks" => &["FIREWORKS_API_KEY"],
        "together" => &["TOGETHER_API_KEY"],
        "baseten" => &["BASETEN_API_KEY"],
        "nvidia" => &["NVIDIA_API_KEY"],
        "opencode" | "opencode-go" => &["OPENCODE_API_KEY"],
        "cloudflare-ai-gateway" | "cloudflare-workers-ai" => &["CLOUDFLARE_API_KEY"],
        "meta" => &["META_API_KEY"],
        // The plan's own variable, then the one that both plans of a region used to share.
        "qwen-token-plan" => &["QWEN_TOKEN_PLAN_TEAM_API_KEY", "QWEN_TOKEN_PLAN_API_KEY"],
        "qwen-token-plan-cn" => &["QWEN_TOKEN_PLAN_TEAM_CN_API_KEY", "QWEN_TOKEN_PLAN_CN_API_KEY"],
        "qwen-token-plan-individual" => &["QWEN_TOKEN_PLAN_INDIVIDUAL_API_KEY", "QWEN_TOKEN_PLAN_API_KEY"],
        "qwen-token-plan-individual-cn" => {
            &["QWEN_TOKEN_PLAN_INDIVIDUAL_CN_API_KEY", "QWEN_TOKEN_PLAN_CN_API_KEY"]
        }
        "xiaomi" => &["XIAOMI_API_KEY"],
        "xiaomi-token-plan-cn" => &["XIAOMI_TOKEN_PLAN_CN_API_KEY"],
        "xiaomi-token-plan-ams" => &["XIAOMI_TOKEN_PLAN_AMS_API_KEY"],
        "xiaomi-token-plan-sgp" => &["XIAOMI_TOKEN_PLAN_SGP_API_KEY"],
        "ant-ling" => &["ANT_LING_API_KEY"],
        "radius" => &["RADIUS_API_KEY"],
        "github-copilot" => &["COPILOT_GITHUB_TOKEN"],
        // Servers of the user's own, where one asks for a key.
        "ollama" => &["OLLAMA_API_KEY"],
        "llama.cpp" => &["LLAMA_API_KEY"],
        "lmstudio" => &["LM_API_TOKEN"],
        "vllm" => &["VLLM_API_KEY"],
        _ => &[],
    }
}

/// The first of the provider's variables that is set.
pub(crate) fn from_environment(provider: &str, env: &Env) -> Option<(Secret, Scheme, &'static str)> {
    key_variables(provider).iter().find_map(|name| {
        let scheme = if *name == "ANTHROPIC_AUTH_TOKEN" { Scheme::Bearer } else { Scheme::ApiKey };
        env.get(name).map(|value| (Secret(value.to_owned()), scheme, *name))
    })
}

/// What else than a key the session has for a provider, in a few words. Looks whether files are there (blocking), not
/// into them.
pub(crate) fn ambient(provider: &str, env: &Env) -> Option<&'static str> {
    match provider {
        "google-vertex" => {
            let placed = vertex::project(env).is_some() && env.get("GOOGLE_CLOUD_LOCATION").is_some();
            let there = placed && google_adc::file(env).is_some_and(|file| file.is_file());
            there.then_some("Google's Application Default Credentials")
        }
        "amazon-bedrock" => profile::is_there(env).then_some("AWS's own credentials"),
        _ => None,
    }
}

/// One provider's entry in `auth.json`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum StoredCredential {
    /// A key and variables of its own. Without a key the variables say how to find one.
    ApiKey { key: Option<String>, env: BTreeMap<String, String> },
    /// A login of a kind this program does not use. It still owns its provider.
    Login,
}

/// What `auth.json` holds, per provider, each with the file it stands in.
#[derive(Default)]
pub(crate) struct Stored(BTreeMap<String, (StoredCredential, PathBuf)>);

impl Stored {
    /// Reads `files`; an entry of an earlier file wins. Files that are not there hold nothing.
    ///
    /// # Errors
    /// [`Error::AuthFile`] when the first file, ours, cannot be read or is no JSON object. A broken file of another
    /// program holds nothing.
    pub(crate) fn read(files: &[PathBuf]) -> Result<Stored, Error> {
        let mut stored = Stored::default();
        for (index, file) in files.iter().enumerate() {
            match stored.add_file(file) {
                Err(error) if index == 0 => return Err(error),
                Err(error) => tracing::warn!(%error, "credentials of another program are skipped"),
                Ok(()) => {}
            }
        }
        Ok(stored)
    }

    fn add_file(&mut self, file: &Path) -> Result<(), Error> {
        match std::fs::read(file) {
            Ok(bytes) => self.add(file, &json::text(&bytes)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            Err(error) => Err(Error::AuthFile { file: file.to_owned(), reason: error.to_string() }),
        }
    }

    fn add(&mut self, file: &Path, text: &str) -> Result<(), Error> {
        let text = text.trim_start_matches('\u{feff}');
        if text.trim().is_empty() {
            return Ok(());
        }
        let fields = Fields::parse(text).map_err(|_| Error::AuthFile {
            file: file.to_owned(),
            reason: "it is not a JSON object".to_owned(),
        })?;
        // The map drops equal keys: the last one wins, as everywhere.
        let entries: BTreeMap<&str, &str> = fields.iter().collect();
        for (provider, entry) in entries {
            if entry != "null" {
                self.0.entry(provider.to_owned()).or_insert_with(|| (read_entry(entry), file.to_owned()));
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, provider: &str) -> Option<&(StoredCredential, PathBuf)> {
        self.0.get(provider)
    }

    /// The providers that have an entry.
    pub(crate) fn providers(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

fn read_entry(text: &str) -> StoredCredential {
    #[derive(Deserialize)]
    struct Entry {
        #[serde(rename = "type")]
        kind: String,
        key: Option<String>,
        env: Option<BTreeMap<String, Option<String>>>,
    }
    match json::from_str::<Entry>(text) {
        Ok(Entry { kind, key, env }) if kind == "api_key" => StoredCredential::ApiKey {
            key: key.filter(|key| !key.trim().is_empty()),
            env: env
                .unwrap_or_default()
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?)))
                .collect(),
        },
        _ => StoredCredential::Login,
    }
}

/// The files that hold credentials, best first: the agent directory's own and, when that directory is the default one,
/// the one of the program whose users we take over.
pub(crate) fn files(agent_dir: &Path, env: &Env) -> Vec<PathBuf> {
    let mut files = vec![agent_dir.join("auth.json")];
    if let Some(home) = env.home().map(Path::new)
        && agent_dir == home.join(".atomic").join("agent")
    {
        files.push(home.join(".pi").join("agent").join("auth.json"));
    }
    files
}

/// The ways to give `provider` a key.
pub(crate) fn advice(provider: &str, agent_dir: &Path) -> String {
    let file = agent_dir.join("auth.json");
    let file = file.display();
    match key_variables(provider) {
        _ if provider == "google-vertex" => format!(
            "Set GOOGLE_CLOUD_API_KEY, or GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION after gcloud auth application-default login, or put an API key for it into {file} (atomic auth login {provider})."
        ),
        _ if provider == "amazon-bedrock" => format!(
            "Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or put an API key for it into {file} (atomic auth login {provider})."
        ),
        [] => format!(
            "Put an API key for it into {file} (atomic auth login {provider}) or {}.",
            agent_dir.join("models.json").display()
        ),
        variables => {
            let name = variables.iter().find(|name| name.ends_with("_API_KEY")).unwrap_or(&variables[0]);
            format!("Set {name}, or put an API key for it into {file} (atomic auth login {provider}).")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_file_wins_per_provider_and_strange_entries_own_their_provider() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a.json"), dir.path().join("b.json"));
        std::fs::write(
            &first,
            "\u{feff}{\"anthropic\":{\"type\":\"api_key\",\"key\":\"one\",\"env\":{\"HTTPS_PROXY\":\"p\",\"X\":null}},\"xai\":{\"type\":\"new\"}}",
        )
        .unwrap();
        std::fs::write(
            &second,
            r#"{"anthropic":{"type":"api_key","key":"two"},"openai":{"type":"oauth","access":"a","refresh":"r","expires":1},"groq":{"type":"api_key","key":" "}}"#,
        )
        .unwrap();
        let stored = Stored::read(&[first.clone(), second, dir.path().join("missing.json")]).unwrap();
        let api_key = |key: Option<&str>, env: &[(&str, &str)]| StoredCredential::ApiKey {
            key: key.map(str::to_owned),
            env: env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        };
        let entry = |provider| stored.get(provider).map(|(entry, _)| entry);
        assert!(entry("anthropic") == Some(&api_key(Some("one"), &[("HTTPS_PROXY", "p")])));
        assert!(entry("xai") == Some(&StoredCredential::Login));
        assert!(entry("openai") == Some(&StoredCredential::Login));
        assert!(entry("groq") == Some(&api_key(None, &[])));
        assert!(entry("mistral").is_none());
        std::fs::write(&first, "[]").unwrap();
        assert!(matches!(Stored::read(&[first]), Err(Error::AuthFile { .. })));
    }

    #[test]
    fn the_other_programs_file_is_read_beside_the_default_directory_only() {
        let home = if cfg!(windows) { "C:\\Users\\u" } else { "/home/u" };
        let env: Env = [("HOME", home), ("USERPROFILE", home)].into_iter().collect();
        let default = Path::new(home).join(".atomic").join("agent");
        assert_eq!(files(&default, &env).len(), 2);
        assert_eq!(files(Path::new("elsewhere"), &env).len(), 1);
    }

    #[test]
    fn no_debug_output_shows_a_key() {
        let credential = Credential {
            key: Some(Secret("sk-secret-1".into())),
            scheme: Scheme::ApiKey,
            source: Source::Stored,
            headers: vec![("x-extra".into(), Some(Secret("sk-secret-2".into())))],
            env: [("K", "sk-secret-3")].into_iter().collect(),
        };
        let shown = format!("{credential:?} {:?}", credential.key);
        assert!(!shown.contains("sk-secret"), "{shown}");
        assert_eq!(
            credential.redact("bad key sk-secret-1, sk-secret-2".into()),
            "bad key [hidden], [hidden]"
        );
    }
}
