//! The models this program ships with. The table is parsed on first use and one provider at a time: a session that
//! talks to one provider never pays for the other forty.

use std::sync::{Arc, LazyLock, OnceLock};

use atomic_protocol::json::{Fields, Raw};
use atomic_protocol::model::{Model, ModelSpec};
use indexmap::IndexMap;

use crate::demo;

/// Model facts; the table names its source in `_about`.
static TABLE: &str = include_str!("../data/models.json");

static SHIPPED: LazyLock<Catalog> = LazyLock::new(|| Catalog::index(TABLE));

/// The shipped models by provider, in the table's order.
#[derive(Debug)]
pub struct Catalog {
    providers: IndexMap<String, Provider>,
    about: String,
}

#[derive(Debug)]
struct Provider {
    text: &'static str,
    models: OnceLock<Vec<Arc<Model>>>,
}

impl Catalog {
    /// The one this program ships with.
    pub fn shipped() -> &'static Catalog {
        &SHIPPED
    }

    fn index(text: &'static str) -> Catalog {
        let table = Fields::parse(text).expect("the shipped table is a JSON object, a test reads it");
        let providers = table.get("providers").and_then(|providers| Fields::parse(providers).ok());
        let providers = providers.expect("the shipped table has providers, a test reads it");
        Catalog {
            providers: providers
                .iter()
                .map(|(name, text)| (name.to_owned(), Provider { text, models: OnceLock::new() }))
                .collect(),
            about: table.str("_about").unwrap_or_default().into_owned(),
        }
    }

    /// Where the facts come from.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// All provider ids, `demo` not among them.
    pub fn providers(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }

    /// The models of one provider; empty when it is not known. `demo` is known here.
    pub fn models(&self, provider: &str) -> &[Arc<Model>] {
        static DEMO: LazyLock<[Arc<Model>; 1]> = LazyLock::new(|| [Arc::new(demo::model())]);
        if provider == demo::PROVIDER {
            return &*DEMO;
        }
        let Some((name, entry)) = self.providers.get_key_value(provider) else { return &[] };
        entry.models.get_or_init(|| {
            let rows: Vec<Raw> = serde_json::from_str(entry.text).unwrap_or_default();
            let specs = rows.iter().filter_map(|row| row.read::<ModelSpec>().ok());
            // Rows do not repeat the provider they stand under.
            let models = specs.map(|spec| Model::from_spec(ModelSpec { provider: name.clone(), ..spec }));
            models.map(Arc::new).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_every_provider_is_a_whole_model() {
        let catalog = Catalog::shipped();
        assert!(catalog.about().contains("MIT"), "the source is named: {}", catalog.about());
        let mut total = 0;
        for provider in catalog.providers() {
            let rows: Vec<Raw> = serde_json::from_str(catalog.providers[provider].text).unwrap();
            let models = catalog.models(provider);
            assert_eq!(models.len(), rows.len(), "{provider}: no row was dropped");
            for model in models {
                assert!(
                    !model.id.is_empty() && !model.api.is_empty() && !model.input.is_empty(),
                    "{model:?}"
                );
                assert_eq!(model.provider, provider);
                assert!(model.base_url.is_empty() || model.base_url.starts_with("https://"), "{model:?}");
                let shown = ModelSpec { input_limits: None, ..model.spec.clone() };
                assert_eq!(model.raw.read::<ModelSpec>().unwrap(), shown);
            }
            total += models.len();
        }
        assert!(total > 1000, "{total}");
    }

    #[test]
    fn a_model_shows_the_fields_clients_know_in_their_order() {
        let model = &Catalog::shipped().models("anthropic")[0];
        let fields = Fields::parse(model.raw.as_str()).unwrap();
        let names: Vec<&str> = fields.iter().map(|(name, _)| name).collect();
        assert_eq!(names[..6], ["id", "name", "api", "provider", "baseUrl", "reasoning"]);
        assert!(!names.contains(&"promptCache") && !names.contains(&"inputLimits"), "{names:?}");
    }

    #[test]
    fn demo_is_known_but_not_listed() {
        let catalog = Catalog::shipped();
        assert_eq!(catalog.models("demo")[0].id, "demo");
        assert!(!catalog.providers().any(|name| name == "demo"));
        assert!(catalog.models("nobody").is_empty());
    }
}
