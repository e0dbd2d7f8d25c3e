//! The keys that requests are signed with: the session's, or those of a profile in AWS's own files
//! (docs.aws.amazon.com, "Configuration and credential file settings").

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::auth::Secret;
use crate::env::Env;
use crate::error::Error;

/// The profile if nobody names one.
const USUAL: &str = "default";

/// Settings of a profile that have to be exchanged for keys first.
const EXCHANGED: [&str; 5] =
    ["sso_session", "sso_start_url", "role_arn", "credential_process", "web_identity_token_file"];

/// What a request is signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: Secret,
    pub(super) token: Option<Secret>,
}

/// Keys and where they are to be used, if their profile says so.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) keys: Keys,
    pub(super) region: Option<String>,
}

/// The session's keys. `own_profile`: a profile was named for this provider, which goes before keys in the environment.
///
/// # Errors
/// The text says what is missing and names the ways out.
pub(super) async fn find(env: &Env, own_profile: bool, provider: &str) -> Result<Found, Error> {
    if !own_profile && let Some(keys) = from_environment(env) {
        return Ok(Found { keys, region: None });
    }
    let name = env.get("AWS_PROFILE").unwrap_or(USUAL).to_owned();
    let files = files(env);
    let mut settings = Settings::new();
    for (file, prefixed) in &files {
        match tokio::fs::read_to_string(file).await {
            Ok(text) => settings.extend(section(&text, &name, *prefixed)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Error::Profile {
                    provider: provider.to_owned(),
                    profile: name,
                    reason: format!("{} cannot be read: {error}", file.display()),
                });
            }
        }
    }
    from_settings(&settings).map_err(|reason| Error::Profile {
        provider: provider.to_owned(),
        profile: name,
        reason,
    })
}

/// Whether the session seems to have keys. Looks whether files are there (blocking), not into them.
pub(crate) fn is_there(env: &Env) -> bool {
    from_environment(env).is_some()
        || env.get("AWS_BEDROCK_SKIP_AUTH") == Some("1")
        || files(env).iter().any(|(file, _)| file.is_file())
}

fn from_environment(env: &Env) -> Option<Keys> {
    Some(Keys {
        id: env.get("AWS_ACCESS_KEY_ID")?.to_owned(),
        secret: Secret(env.get("AWS_SECRET_ACCESS_KEY")?.to_owned()),
        token: env.get("AWS_SESSION_TOKEN").map(|token| Secret(token.to_owned())),
    })
}

/// The files, each with whether its sections begin with the word `profile`; what stands in the later one counts.
fn files(env: &Env) -> Vec<(PathBuf, bool)> {
    let dir = env.home().map(|home| Path::new(home).join(".aws"));
    let named = |variable: &str, name: &str| {
        env.get(variable).map(PathBuf::from).or_else(|| Some(dir.as_ref()?.join(name)))
    };
    let config = named("AWS_CONFIG_FILE", "config").map(|file| (file, true));
    let credentials = named("AWS_SHARED_CREDENTIALS_FILE", "credentials").map(|file| (file, false));
    config.into_iter().chain(credentials).collect()
}

type Settings = BTreeMap<String, String>;

/// The settings of one profile. Nested ones, which are indented, are none of ours.
fn section(text: &str, name: &str, prefixed: bool) -> Settings {
    let mut settings = Settings::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(head) = line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let head = head.trim();
            inside = match head.strip_prefix("profile").filter(|rest| rest.starts_with([' ', '\t'])) {
                Some(rest) => prefixed && rest.trim() == name,
                None => head == name && (!prefixed || name == USUAL),
            };
        } else if inside
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            settings.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    settings
}

/// The error is a reason for a person.
fn from_settings(settings: &Settings) -> Result<Found, String> {
    let get = |name: &str| settings.get(name).filter(|value| !value.is_empty());
    let region = get("region").cloned();
    match (get("aws_access_key_id"), get("aws_secret_access_key")) {
        (Some(id), Some(secret)) => Ok(Found {
            keys: Keys {
                id: id.clone(),
                secret: Secret(secret.clone()),
                token: get("aws_session_token").map(|token| Secret(token.clone())),
            },
            region,
        }),
        _ => Err(match EXCHANGED.into_iter().find(|name| get(name).is_some()) {
            Some(name) => format!(
                "it is made by {name}, which this program does not do; run aws configure export-credentials --format env and set what it prints"
            ),
            None => "no file has keys for it".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "[default]\nregion = eu-west-1\n\n[profile work]\nregion=us-west-2\ns3 =\n  region = nested\n[profile sso]\nsso_session = corp\n[work]\nregion = wrong\n";
    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key = B=\n[work]\nAWS_ACCESS_KEY_ID=C\naws_secret_access_key=D\naws_session_token = T\n";

    async fn found(
        pairs: &[(&str, &str)],
        own: bool,
    ) -> Result<(String, Option<String>, Option<String>), String> {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("AWS_CONFIG_FILE", "config", CONFIG),
            ("AWS_SHARED_CREDENTIALS_FILE", "credentials", CREDENTIALS),
        ];
        let mut env: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        for (variable, name, text) in files {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            env.push((variable.to_owned(), file.display().to_string()));
        }
        let env: Env = env.into_iter().collect();
        assert!(is_there(&env));
        let found = find(&env, own, "p").await.map_err(|error| error.to_string())?;
        Ok((found.keys.secret.0, found.keys.token.map(|token| token.0), found.region))
    }

    #[tokio::test]
    async fn keys_come_from_the_environment_or_a_profile() {
        let some = |text: &str| Some(text.to_owned());
        let keys = [("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "F"), ("AWS_PROFILE", "work")];
        for (env, own, want) in [
            (&[][..], false, Ok(("B=".to_owned(), None, some("eu-west-1")))),
            (&[("AWS_PROFILE", "work")], false, Ok(("D".to_owned(), some("T"), some("us-west-2")))),
            (&keys, false, Ok(("F".to_owned(), None, None))),
            (&keys, true, Ok(("D".to_owned(), some("T"), some("us-west-2")))),
            (&[("AWS_PROFILE", "sso")], false, Err("sso_session")),
            (&[("AWS_PROFILE", "nobody")], false, Err("no file has keys")),
        ] {
            match (found(env, own).await, want) {
                (Ok(found), Ok(want)) => assert_eq!(found, want, "{env:?}"),
                (Err(text), Err(want)) => assert!(text.contains(want), "{text}"),
                (got, want) => panic!("{env:?}: {got:?}, not {want:?}"),
            }
        }
        assert!(!is_there(&Env::default()));
    }
}
