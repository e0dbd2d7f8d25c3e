//! A session's view of local servers: those it asked for, and what they have.

use std::sync::Arc;
use std::time::Duration;

use atomic_protocol::model::{Model, ModelSpec};
use futures_util::future::join_all;
use indexmap::IndexMap;

use super::Registry;
use crate::error::Error;
use crate::http::Http;
use crate::local;

/// A local server's models.
#[derive(Clone)]
pub(super) struct Local {
    /// Where they were found.
    pub(super) base: String,
    pub(super) found: Arc<[ModelSpec]>,
    /// With the user's file over them.
    pub(super) models: Vec<Arc<Model>>,
}

impl Registry {
    /// This view with the models of these local servers, all asked at the same time, and for each that has none the
    /// reason. A list that any session got within `age` is not asked for again. Other providers are passed over. It takes
    /// two seconds at most, and as long as a connection is refused where nothing listens.
    ///
    /// Nothing else in this crate contacts a local server before a request to one of its models.
    pub async fn with_local(
        &self,
        http: &Http,
        providers: &[&str],
        age: Duration,
    ) -> (Registry, Vec<(&'static str, Error)>) {
        let servers: Vec<_> = local::SERVERS.iter().filter(|s| providers.contains(&s.provider)).collect();
        let answers = join_all(
            servers
                .into_iter()
                .map(|server| async move { (server.provider, self.list_of(http, server, age).await) }),
        );
        let mut local = IndexMap::clone(&self.local);
        let mut failures = Vec::new();
        for (provider, answer) in answers.await {
            match answer {
                Ok((base, found)) => {
                    let models = self.over_found(provider, &found);
                    local.insert(provider, Local { base, found, models });
                }
                Err(error) => {
                    local.shift_remove(provider);
                    failures.push((provider, error));
                }
            }
        }
        (Registry { local: Arc::new(local), ..self.clone() }, failures)
    }

    async fn list_of(
        &self,
        http: &Http,
        server: &'static local::Server,
        age: Duration,
    ) -> Result<(String, Arc<[ModelSpec]>), Error> {
        let base = self.base_of(server.provider)?;
        let lists = self.shared.setup.pool.lists();
        if let Some(found) = lists.get(server.provider, &base, age) {
            return Ok((base, found));
        }
        let asked =
            Model::from_spec(ModelSpec { provider: server.provider.to_owned(), ..ModelSpec::default() });
        let credential = self.credential(&asked).await?;
        let found: Arc<[ModelSpec]> = server.models(http, &credential, &base).await?.into();
        lists.put(server.provider, &base, Arc::clone(&found));
        Ok((base, found))
    }

    /// Where a local server is, without `/v1`.
    pub(super) fn base_of(&self, provider: &str) -> Result<String, Error> {
        let server =
            local::server(provider).ok_or_else(|| Error::NoAddress { provider: provider.to_owned() })?;
        let own = self.own(provider).and_then(|own| own.base_url.as_deref());
        server.base(own, self.env())
    }

    pub(super) fn over_found(&self, provider: &str, found: &[ModelSpec]) -> Vec<Arc<Model>> {
        match self.own(provider) {
            Some(own) => own.with_found(found),
            None => found.iter().cloned().map(Model::from_spec).map(Arc::new).collect(),
        }
    }

    /// The local servers that the user's file has an entry for.
    pub fn configured_local(&self) -> Vec<&'static str> {
        local::local_providers().filter(|provider| self.own(provider).is_some()).collect()
    }

    /// Whether any model of the provider is known.
    pub fn has_models(&self, provider: &str) -> bool {
        !self.models(provider).is_empty()
    }

    /// Whether this session asked the server, and it answered.
    pub fn knows_local(&self, provider: &str) -> bool {
        self.local.contains_key(provider)
    }
}
