//! `atomic auth`: keep keys of providers, forget them, say where each comes from, check them.
//!
//! It writes the file that sessions look at before each request, so a running daemon needs no word of it. A key is read
//! from stdin or a terminal, is never an argument, and is never printed.

use std::fmt::Write as _;

use atomic_protocol::cli::{AuthAction, AuthOptions};
use atomic_protocol::json::ObjectWriter;
use atomic_providers::{Checked, Http, KeyStatus, Registry, openrouter, stored_key};
use futures_util::StreamExt as _;

use super::{Answer, Caller, Refusal, page_login, registry, wait_for};
use crate::settings::credentials::{self, LONG_WAIT};

/// Providers that are asked at the same time.
const AT_ONCE: usize = 8;

pub(super) fn answer(caller: &Caller, options: AuthOptions) -> Result<Answer, Refusal> {
    let registry = registry(caller);
    let mut answer = match options.action {
        AuthAction::Login { provider } => login(caller, &registry, &provider),
        AuthAction::Logout { provider } => logout(caller, &registry, &provider),
        AuthAction::List => list(&registry, options.json),
        AuthAction::Check { provider } => check(&registry, provider.as_deref(), options.json),
    }?;
    answer.warnings.extend(registry.warnings().iter().map(|warning| format!("Warning: {warning}")));
    Ok(answer)
}

fn refused(error: impl std::fmt::Display) -> Refusal {
    Refusal::Auth(error.to_string())
}

fn said(text: String) -> Answer {
    Answer { text: text.into_bytes(), ..Answer::default() }
}

fn login(caller: &Caller, registry: &Registry, name: &str) -> Result<Answer, Refusal> {
    let provider = registry.login_to(name).map_err(refused)?;
    let person = caller.person;
    let piped = person.piped().map_err(|error| refused(format!("cannot read stdin: {error}")))?;
    let key = match piped {
        Some(key) if !key.trim().is_empty() => key,
        piped if provider == openrouter::PROVIDER => page_login::key(person, registry, piped.is_none())?,
        Some(_) => {
            return Err(refused(format!(
                "there is no key on stdin, and no terminal to ask on. Pipe one in: echo \"$KEY\" | atomic auth login {provider}"
            )));
        }
        None => person
            .secret(&format!("API key for {provider} (not shown): "))
            .map_err(|error| refused(format!("cannot ask for the key: {error}")))?,
    };
    let value = stored_key(&provider, &key).map_err(refused)?;
    credentials::save_key(&caller.agent_dir, &provider, &value, LONG_WAIT).map_err(refused)?;
    let file = credentials::file(&caller.agent_dir);
    Ok(said(format!("The key of {provider} is kept in {}\n", file.display())))
}

fn logout(caller: &Caller, registry: &Registry, name: &str) -> Result<Answer, Refusal> {
    let stored = registry.key_statuses().map_err(refused)?;
    let kept_as = |name: &str| stored.iter().any(|status| status.provider == name);
    let provider = match registry.provider_named(name) {
        Some(known) if !kept_as(name) => known,
        _ => name.to_owned(),
    };
    let file = credentials::file(&caller.agent_dir);
    let text = match credentials::forget(&caller.agent_dir, &provider, LONG_WAIT).map_err(refused)? {
        true => format!("The key of {provider} is no longer in {}\n", file.display()),
        false => format!("Nothing was kept for {provider} in {}\n", file.display()),
    };
    let left = registry.key_statuses().map_err(refused)?.into_iter().find(|left| left.provider == provider);
    let left = left.map(|left| format!("Note: {provider} still has a key, from {}", origin(&left)));
    Ok(Answer { warnings: left.into_iter().collect(), ..said(text) })
}

/// Where a key comes from, in words.
fn origin(status: &KeyStatus) -> String {
    let source = match status.source {
        "stored" => "auth.json",
        "models_json" => "models.json",
        "environment" => "the environment",
        "adc" => "Google",
        "aws" => "AWS",
        _ => "the command line",
    };
    match &status.label {
        Some(label) => format!("{source} ({label})"),
        None => source.to_owned(),
    }
}

fn list(registry: &Registry, json: bool) -> Result<Answer, Refusal> {
    let statuses = registry.key_statuses().map_err(refused)?;
    if json {
        let rows = statuses.iter().map(|status| {
            object(|row| {
                row.str("provider", &status.provider).str("source", status.source);
                if let Some(label) = &status.label {
                    row.str("label", label);
                }
                row.bool("usable", status.problem.is_none());
                if let Some(problem) = &status.problem {
                    row.str("problem", problem);
                }
            })
        });
        return Ok(said(listed("providers", rows)));
    }
    if statuses.is_empty() {
        return Ok(said("No provider has a key. Give one: atomic auth login PROVIDER\n".to_owned()));
    }
    let rows = statuses.iter().map(|status| {
        let problem = status.problem.as_ref().map(|problem| format!("not usable: {problem}"));
        [status.provider.clone(), origin(status), problem.unwrap_or_default()]
    });
    Ok(said(table(&rows.collect::<Vec<_>>())))
}

fn check(registry: &Registry, named: Option<&str>, json: bool) -> Result<Answer, Refusal> {
    let providers: Vec<String> = match named {
        Some(name) => {
            let known = registry.provider_named(name);
            vec![known.ok_or_else(|| {
                refused(registry.login_to(name).err().map_or_else(String::new, |e| e.to_string()))
            })?]
        }
        None => {
            let keys = registry.key_statuses().map_err(refused)?.into_iter().map(|status| status.provider);
            let mut all: Vec<String> = keys.collect();
            let local = registry.configured_local().into_iter().map(str::to_owned);
            all.extend(local.filter(|local| !all.contains(local)).collect::<Vec<_>>());
            all
        }
    };
    if providers.is_empty() {
        return Err(refused("no provider has a key. Give one: atomic auth login PROVIDER"));
    }
    let http = Http::new();
    let checks = futures_util::stream::iter(&providers).map(|provider| registry.check(&http, provider));
    let checks: Vec<Checked> = wait_for(checks.buffered(AT_ONCE).collect())?;
    let code = u8::from(checks.iter().any(|checked| matches!(checked, Checked::Failed(_))));
    let rows = providers.iter().zip(&checks).map(|(provider, checked)| match checked {
        Checked::Works(text) => (provider, "works", text),
        Checked::NotCheckable(text) => (provider, "not_checkable", text),
        Checked::Failed(text) => (provider, "failed", text),
    });
    let text = if json {
        let rows = rows.map(|(provider, outcome, text)| {
            object(|row| {
                row.str("provider", provider).str("outcome", outcome).str("text", text);
            })
        });
        listed("checks", rows)
    } else {
        let rows = rows.map(|(provider, outcome, text)| {
            let outcome = match outcome {
                "not_checkable" => "not checkable without spending",
                outcome => outcome,
            };
            [provider.clone(), outcome.to_owned(), text.clone()]
        });
        table(&rows.collect::<Vec<_>>())
    };
    Ok(Answer { code, ..said(text) })
}

fn object(fill: impl FnOnce(&mut ObjectWriter<'_>)) -> String {
    let mut data = Vec::new();
    let mut row = ObjectWriter::begin(&mut data);
    fill(&mut row);
    row.end();
    String::from_utf8(data).expect("made from strings")
}

fn listed(name: &str, rows: impl Iterator<Item = String>) -> String {
    format!("{{\"{name}\":[{}]}}\n", rows.collect::<Vec<_>>().join(","))
}

/// Two columns that align, and what is to be said in the third.
fn table(rows: &[[String; 3]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    let mut out = String::new();
    for [provider, what, text] in rows {
        // What a provider said may have lines of its own.
        let text = text.trim_end().replace('\n', "\n    ");
        let line = format!("{provider:first$}  {what:second$}  {text}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}
