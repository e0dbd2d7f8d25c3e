//! Every provider of the catalog can be reached with a key, by an adapter that is built, or is refused with a text.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use atomic_protocol::Raw;
use atomic_protocol::message::Message;
use atomic_protocol::model::{ModelEvent, ModelRequest, ThinkingLevel};
use atomic_providers::{
    Catalog, Env, Http, Registry, SINK_CAPACITY, SPOKEN_APIS, Setup, Source, key_variables, stream,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Variables beside the key that an address needs.
fn places(provider: &str) -> &'static [(&'static str, &'static str)] {
    match provider {
        "azure" => &[("AZURE_OPENAI_BASE_URL", "http://127.0.0.1:1/openai/v1")],
        "cloudflare-ai-gateway" => &[("CLOUDFLARE_ACCOUNT_ID", "a"), ("CLOUDFLARE_GATEWAY_ID", "g")],
        "cloudflare-workers-ai" => &[("CLOUDFLARE_ACCOUNT_ID", "a")],
        _ => &[],
    }
}

fn registry(dir: &std::path::Path, env: &[(&str, &str)]) -> Registry {
    Registry::load(Setup {
        agent_dir: dir.to_owned(),
        env: env.iter().copied().collect::<Env>(),
        ..Setup::default()
    })
}

/// The table's rows as they should be.
fn rows() -> Vec<String> {
    let catalog = Catalog::shipped();
    let row = |provider: &str| {
        let mut apis: BTreeMap<&str, usize> = BTreeMap::new();
        for model in catalog.models(provider) {
            *apis.entry(&model.api).or_default() += 1;
        }
        let apis: Vec<String> = apis.iter().map(|(api, count)| format!("{api} ({count})")).collect();
        let keys: Vec<String> = key_variables(provider).iter().map(|name| format!("`{name}`")).collect();
        let places: Vec<String> = places(provider).iter().map(|(name, _)| format!(" and `{name}`")).collect();
        format!("| {provider} | {} | {}{} |", apis.join(", "), keys.join(" or "), places.concat())
    };
    catalog.providers().map(row).collect()
}

#[test]
fn the_table_is_right() {
    let table = include_str!("../PROVIDERS.md");
    let written: Vec<&str> =
        table.lines().filter(|line| line.starts_with("| ") && line.contains('(')).collect();
    let rows = rows();
    assert!(written == rows, "PROVIDERS.md should have these rows:\n{}", rows.join("\n"));
}

/// A request gets as far as the network: the proxy that is not there.
#[tokio::test]
async fn every_provider_is_asked_once_its_variables_are_set() {
    let dir = tempfile::tempdir().unwrap();
    let closed = "http://127.0.0.1:1";
    let mut count = 0;
    for provider in Catalog::shipped().providers() {
        let models = Catalog::shipped().models(provider);
        let key =
            key_variables(provider).first().unwrap_or_else(|| panic!("{provider} has no variable for a key"));
        let mut env = vec![(*key, "very-secret"), ("HTTPS_PROXY", closed), ("NO_PROXY", "127.0.0.1")];
        env.extend(places(provider));
        let registry = registry(dir.path(), &env);
        assert_eq!(
            registry.available().iter().filter(|model| model.provider == provider).count(),
            models.len(),
            "{provider}"
        );
        let mut asked: Vec<(&str, &str)> = Vec::new();
        for model in models {
            assert!(
                SPOKEN_APIS.contains(&model.api.as_str()),
                "{provider}/{} speaks {}",
                model.id,
                model.api
            );
            if asked.contains(&(model.api.as_str(), model.base_url.as_str())) {
                continue;
            }
            asked.push((&model.api, &model.base_url));
            let credential = registry.credential(model).await.unwrap();
            assert_eq!(credential.source(), &Source::Environment((*key).to_owned()));
            let message = Raw::parse(r#"{"role":"user","content":"hello"}"#).unwrap();
            let request = ModelRequest {
                model: model.clone(),
                thinking: ThinkingLevel::Off,
                system: Arc::from(""),
                messages: vec![Message::parse(&message).unwrap()],
                tools: Arc::from([]),
                session_id: "s".into(),
            };
            let (sink, mut batches) = mpsc::channel(SINK_CAPACITY);
            stream(&Http::new(), &registry, request, sink, CancellationToken::new()).await;
            let events = batches.recv().await.unwrap();
            let Some(ModelEvent::Failed(failure)) = events.last() else { panic!("{events:?}") };
            assert!(
                failure.message.starts_with("Connection error: "),
                "{provider}/{}: {failure:?}",
                model.id
            );
            count += 1;
        }
    }
    assert!(count > 45, "{count}");
}

#[tokio::test]
async fn without_a_key_the_variable_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path(), &[]);
    assert!(registry.available().is_empty());
    for provider in Catalog::shipped().providers() {
        let error =
            registry.credential(&Catalog::shipped().models(provider)[0]).await.unwrap_err().to_string();
        assert!(key_variables(provider).iter().any(|name| error.contains(name)), "{error}");
    }
}
