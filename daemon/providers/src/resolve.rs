//! From what a person typed to a model: `--provider`, `--model PATTERN[:level]`, and the choice when nothing was typed.
//!
//! Model ids contain `/` and `:`. A provider is split off at the first slash, a thinking level at the last colon and
//! only when it is one.

use std::sync::Arc;

use atomic_protocol::model::{Model, ModelSpec, ThinkingLevel};

use crate::demo;
use crate::error::Error;
use crate::local;
use crate::registry::{Registry, speaks};

/// What a provider's own table order would choose badly: the model of a provider to start with when only the provider
/// is known. Ids age; one that is gone from the catalog is passed over.
const PREFERRED: &[(&str, &str)] = &[("anthropic", "claude-sonnet-5-5")];

/// A model and what was typed with it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The model.
    pub model: Arc<Model>,
    /// The level after the last colon.
    pub thinking: Option<ThinkingLevel>,
    /// For a person; the choice stands.
    pub warnings: Vec<String>,
}

impl Resolved {
    fn exact(model: Arc<Model>) -> Resolved {
        Resolved { model, thinking: None, warnings: Vec::new() }
    }
}

impl Registry {
    /// The model that `--provider` and `--model` name. A provider alone means its preferred model; nothing at all means
    /// [`Registry::initial`] without settings. Blocking as [`Registry::available`].
    ///
    /// A pattern is, in this order: an exact id; `provider/pattern`; part of an id or name, where models that can be used
    /// now go before the others, undated ids before dated ones, and then the highest id. Under a known provider an id
    /// that matches nothing is taken as it stands, with a warning, so that a model newer than the catalog can be used.
    ///
    /// # Errors
    /// [`Error::UnknownProvider`], [`Error::ModelNotFound`], [`Error::AmbiguousModel`], [`Error::NoModel`].
    pub fn resolve(&self, provider: Option<&str>, pattern: Option<&str>) -> Result<Resolved, Error> {
        let named = match provider {
            Some(name) => {
                Some(self.provider(name).ok_or_else(|| Error::UnknownProvider { name: name.to_owned() })?)
            }
            None => None,
        };
        match (named, pattern) {
            (None, None) => {
                let model = self.initial(None, None);
                model.map(Resolved::exact).ok_or_else(|| Error::NoModel { auth_file: self.auth_file() })
            }
            (Some(provider), None) => {
                let model = self.preferred(provider).map(Resolved::exact);
                model.ok_or_else(|| Error::ModelNotFound { name: provider.to_owned() })
            }
            (Some(provider), Some(pattern)) => {
                let prefixed =
                    pattern.split_once('/').filter(|(head, _)| head.eq_ignore_ascii_case(provider));
                let models = self.models(provider);
                let found = exact(models.iter(), pattern)
                    .map(Resolved::exact)
                    .or_else(|| prefixed.and_then(|(_, rest)| self.matching(models, rest)))
                    .or_else(|| self.matching(models, pattern));
                let rest = prefixed.map_or(pattern, |(_, rest)| rest);
                found.map_or_else(|| self.custom(provider, rest), Ok)
            }
            (None, Some(pattern)) => self.resolve_anywhere(pattern),
        }
    }

    fn resolve_anywhere(&self, pattern: &str) -> Result<Resolved, Error> {
        // The demo is chosen only by its provider's name.
        let all: Vec<Arc<Model>> = self
            .providers()
            .filter(|provider| *provider != demo::PROVIDER)
            .flat_map(|provider| self.models(provider))
            .cloned()
            .collect();
        // A level suffix never hides a model whose id ends like one.
        if pattern.contains(':')
            && let Some(model) = self.exact_anywhere(&all, pattern)?
        {
            return Ok(Resolved::exact(model));
        }
        let scoped = pattern.split_once('/').and_then(|(head, rest)| Some((self.provider(head)?, rest)));
        if let Some((provider, rest)) = scoped
            && let Some(found) = self.matching(self.models(provider), rest)
        {
            return Ok(found);
        }
        if let Some(model) = self.exact_anywhere(&all, pattern)? {
            return Ok(Resolved::exact(model));
        }
        if let Some((id, level)) = with_level(pattern)
            && let Some(model) = self.exact_anywhere(&all, id)?
        {
            return Ok(Resolved { thinking: Some(level), ..Resolved::exact(model) });
        }
        if let Some(found) =
            self.matching(&self.available(), pattern).or_else(|| self.matching(&all, pattern))
        {
            return Ok(found);
        }
        match scoped {
            Some((provider, rest)) => self.custom(provider, rest),
            None => Err(Error::ModelNotFound { name: pattern.to_owned() }),
        }
    }

    /// The model of exactly this name: `provider/id` or an id, with or without `:level`; one that this build can speak to.
    ///
    /// # Errors
    /// [`Error::ModelNotFound`], [`Error::AmbiguousModel`].
    pub fn exact(&self, name: &str) -> Result<Resolved, Error> {
        let providers = self.providers().filter(|provider| *provider != demo::PROVIDER);
        let models = providers.flat_map(|provider| self.models(provider));
        let spoken: Vec<Arc<Model>> = models.filter(|model| speaks(&model.api)).cloned().collect();
        if let Some(model) = self.exact_anywhere(&spoken, name)? {
            return Ok(Resolved::exact(model));
        }
        if let Some((id, level)) = with_level(name)
            && let Some(model) = self.exact_anywhere(&spoken, id)?
        {
            return Ok(Resolved { thinking: Some(level), ..Resolved::exact(model) });
        }
        Err(Error::ModelNotFound { name: name.to_owned() })
    }

    /// The one model with this id or `provider/id`; among several, the one that can be used.
    fn exact_anywhere(&self, all: &[Arc<Model>], name: &str) -> Result<Option<Arc<Model>>, Error> {
        let hits: Vec<&Arc<Model>> = all.iter().filter(|model| is_named(model, name)).collect();
        if let [] | [_] = hits[..] {
            return Ok(hits.first().map(|model| Arc::clone(model)));
        }
        let usable: Vec<&Arc<Model>> =
            hits.iter().copied().filter(|model| speaks(&model.api) && self.has_auth(model)).collect();
        if let [model] = usable[..] {
            return Ok(Some(Arc::clone(model)));
        }
        let choice = if usable.is_empty() { hits } else { usable };
        let candidates = choice.iter().map(|model| format!("{}/{}", model.provider, model.id)).collect();
        Err(Error::AmbiguousModel { name: name.to_owned(), candidates })
    }

    /// Pattern, then pattern without its level, among `models`.
    fn matching(&self, models: &[Arc<Model>], pattern: &str) -> Option<Resolved> {
        let whole = best(models, pattern).map(Resolved::exact);
        whole.or_else(|| {
            let (pattern, level) = with_level(pattern)?;
            Some(Resolved { thinking: Some(level), ..Resolved::exact(best(models, pattern)?) })
        })
    }

    /// A model of a known provider whose id the catalog does not know.
    fn custom(&self, provider: &str, pattern: &str) -> Result<Resolved, Error> {
        let (id, thinking) = with_level(pattern).map_or((pattern, None), |(id, level)| (id, Some(level)));
        let like = self.preferred(provider).filter(|_| provider != demo::PROVIDER && !id.is_empty());
        let Some(like) = like else {
            return Err(Error::ModelNotFound { name: format!("{provider}/{pattern}") });
        };
        let spec = ModelSpec { id: id.to_owned(), name: id.to_owned(), ..like.spec.clone() };
        let warning = format!("Model \"{id}\" not found for provider \"{provider}\". Using custom model id.");
        Ok(Resolved { model: Arc::new(Model::from_spec(spec)), thinking, warnings: vec![warning] })
    }

    /// The model to start with: the settings' default if it can be used, else the preferred or first available one.
    /// Never the demo. `None` when nothing can be used, and when settings name a provider nobody knows: then the user
    /// has to choose, silently taking another would spend money elsewhere. Blocking as [`Registry::available`].
    pub fn initial(&self, provider: Option<&str>, model: Option<&str>) -> Option<Arc<Model>> {
        let mut available = self.available();
        available.retain(|model| model.provider != demo::PROVIDER);
        if let Some(name) = provider {
            let provider = self.provider(name)?;
            let mine = || available.iter().filter(|model| model.provider == provider);
            let wanted = match model {
                Some(id) => mine().find(|model| model.id == id).cloned(),
                None => self.preferred(provider).filter(|model| available.contains(model)),
            };
            // Who chose a server of their own did not choose another's.
            if wanted.is_some() || local::is_local(provider) {
                return wanted;
            }
        } else if let Some(id) = model
            && let Some(wanted) = available.iter().find(|model| is_named(model, id))
        {
            return Some(Arc::clone(wanted));
        }
        let first = available.first()?;
        self.preferred(&first.provider)
            .filter(|model| available.contains(model))
            .or_else(|| available.first().cloned())
    }

    /// The provider's model to start with: a preferred one, else the first that this build can speak to, else the first.
    fn preferred(&self, provider: &str) -> Option<Arc<Model>> {
        let models = self.models(provider);
        let preferred = PREFERRED.iter().find(|(name, _)| *name == provider);
        preferred
            .and_then(|(_, id)| models.iter().find(|model| model.id == *id))
            .or_else(|| models.iter().find(|model| speaks(&model.api)))
            .or_else(|| models.first())
            .cloned()
    }

    /// The models that `patterns` name, in their order, each once: each pattern is a glob over `provider/id` and `id` among
    /// the models that can be used now, or what [`Registry::resolve`] takes. And a warning for each that names none.
    /// Blocking as [`Registry::available`].
    pub fn scope(&self, patterns: &[String]) -> (Vec<Arc<Model>>, Vec<String>) {
        let mut scope: Vec<Arc<Model>> = Vec::new();
        let mut warnings = Vec::new();
        let available = self.available();
        for pattern in patterns {
            let found: Vec<Arc<Model>> = if pattern.contains(['*', '?', '[']) {
                let glob = globset::GlobBuilder::new(pattern).case_insensitive(true).build();
                let matcher = glob.map(|glob| glob.compile_matcher());
                let named = |model: &&Arc<Model>| {
                    let full = format!("{}/{}", model.provider, model.id);
                    matcher
                        .as_ref()
                        .is_ok_and(|matcher| matcher.is_match(&full) || matcher.is_match(&model.id))
                };
                available.iter().filter(named).cloned().collect()
            } else {
                self.resolve(None, Some(pattern)).map(|resolved| resolved.model).into_iter().collect()
            };
            if found.is_empty() {
                warnings.push(format!("No models match pattern \"{pattern}\""));
            }
            for model in found {
                if !scope.iter().any(|known| known.provider == model.provider && known.id == model.id) {
                    scope.push(model);
                }
            }
        }
        (scope, warnings)
    }

    /// Whether a provider of this name is known, to the catalog or to the user's file.
    pub fn knows_provider(&self, name: &str) -> bool {
        self.provider(name).is_some()
    }

    /// A known provider's id as we spell it.
    fn provider(&self, name: &str) -> Option<&str> {
        self.providers().find(|known| known.eq_ignore_ascii_case(name))
    }
}

fn is_named(model: &Model, name: &str) -> bool {
    model.id.eq_ignore_ascii_case(name)
        || name.split_once('/').is_some_and(|(provider, id)| {
            model.provider.eq_ignore_ascii_case(provider) && model.id.eq_ignore_ascii_case(id)
        })
}

fn exact<'a>(mut models: impl Iterator<Item = &'a Arc<Model>>, name: &str) -> Option<Arc<Model>> {
    models.find(|model| model.id.eq_ignore_ascii_case(name)).cloned()
}

/// Exact id, else part of an id or name: undated ids first, then the highest id.
fn best(models: &[Arc<Model>], pattern: &str) -> Option<Arc<Model>> {
    if pattern.is_empty() {
        return None;
    }
    if let Some(model) = exact(models.iter(), pattern) {
        return Some(model);
    }
    let pattern = pattern.to_lowercase();
    let hits = models.iter().filter(|model| {
        model.id.to_lowercase().contains(&pattern) || model.name.to_lowercase().contains(&pattern)
    });
    hits.max_by_key(|model| (!is_dated(&model.id), model.id.to_lowercase())).cloned()
}

/// The id ends in `-YYYYMMDD`.
fn is_dated(id: &str) -> bool {
    id.rsplit_once('-').is_some_and(|(_, date)| date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()))
}

fn with_level(pattern: &str) -> Option<(&str, ThinkingLevel)> {
    let (head, level) = pattern.rsplit_once(':')?;
    Some((head, ThinkingLevel::parse(level)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Setup;

    const MODELS: &str = r#"{"providers":{
        "one":{"baseUrl":"http://1","api":"anthropic-messages","apiKey":"$ONE","models":[
            {"id":"twin"},{"id":"fox-20250101"},{"id":"fox-2","name":"Quick Fox"},{"id":"fox-1"},{"id":"odd:high"},{"id":"a/b"},{"id":"one/raw"}]},
        "two":{"baseUrl":"http://2","api":"anthropic-messages","apiKey":"$TWO","models":[{"id":"twin"},{"id":"fox-9","api":"other"}]}}}"#;

    fn registry(dir: &std::path::Path, names: &[&str]) -> Registry {
        std::fs::write(dir.join("models.json"), MODELS).unwrap();
        let env = names.iter().map(|name| (*name, "k")).collect();
        Registry::load(Setup { agent_dir: dir.to_owned(), env, ..Setup::default() })
    }

    #[test]
    fn what_was_typed_becomes_a_model() {
        use ThinkingLevel::{High, Low};
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path(), &["ONE"]);
        type Row = (Option<&'static str>, Option<&'static str>, &'static str, Option<ThinkingLevel>);
        let rows: [Row; 21] = [
            (Some("one"), Some("fox-1"), "one/fox-1", None),
            (Some("ONE"), Some("FOX-1:low"), "one/fox-1", Some(Low)),
            (Some("one"), Some("one/fox-1"), "one/fox-1", None),
            (Some("one"), Some("one/raw"), "one/one/raw", None),
            (Some("one"), Some("fox"), "one/fox-2", None),
            (Some("one"), Some("quick"), "one/fox-2", None),
            (Some("one"), Some("2025"), "one/fox-20250101", None),
            (Some("one"), Some("odd:high"), "one/odd:high", None),
            (Some("one"), Some("odd:high:low"), "one/odd:high", Some(Low)),
            (Some("one"), Some("a/b:high"), "one/a/b", Some(High)),
            (Some("one"), None, "one/twin", None),
            (Some("anthropic"), None, "anthropic/claude-sonnet-5-5", None),
            (Some("demo"), None, "demo/demo", None),
            (Some("demo"), Some("demo"), "demo/demo", None),
            (None, Some("demo/demo:low"), "demo/demo", Some(Low)),
            (None, Some("one/fox"), "one/fox-2", None),
            (None, Some("odd:high"), "one/odd:high", None),
            (None, Some("twin"), "one/twin", None),
            (None, Some("twin:high"), "one/twin", Some(High)),
            (None, Some("fox"), "one/fox-2", None),
            (None, Some("a/b"), "one/a/b", None),
        ];
        for (provider, pattern, want, thinking) in rows {
            let found = registry.resolve(provider, pattern).unwrap();
            let name = format!("{}/{}", found.model.provider, found.model.id);
            assert_eq!((name.as_str(), found.thinking), (want, thinking), "{provider:?} {pattern:?}");
            assert!(found.warnings.is_empty());
        }
    }

    #[test]
    fn an_exact_name_is_no_pattern() {
        use ThinkingLevel::High;
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path(), &["ONE"]);
        for (name, want) in [
            ("one/fox-1", Ok(("one/fox-1", None))),
            ("ONE/fox-1:high", Ok(("one/fox-1", Some(High)))),
            ("one/odd:high", Ok(("one/odd:high", None))),
            ("one/a/b:high", Ok(("one/a/b", Some(High)))),
            ("fox-1", Ok(("one/fox-1", None))),
            ("one/fox", Err("Model \"one/fox\" not found.")),
            ("anthropic/claude-next-9", Err("not found")),
            ("two/fox-9", Err("not found")),
            ("demo/demo", Err("not found")),
            ("", Err("not found")),
        ] {
            let found = registry
                .exact(name)
                .map(|found| (format!("{}/{}", found.model.provider, found.model.id), found.thinking));
            match want {
                Ok((model, level)) => assert_eq!(found.unwrap(), (model.to_owned(), level), "{name}"),
                Err(text) => assert!(found.unwrap_err().to_string().contains(text), "{name}"),
            }
        }
    }

    #[test]
    fn an_unknown_id_of_a_known_provider_is_taken_with_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path(), &[]);
        for (provider, pattern) in
            [(Some("anthropic"), "claude-next-9:high"), (None, "Anthropic/claude-next-9:high")]
        {
            let found = registry.resolve(provider, Some(pattern)).unwrap();
            assert_eq!(
                (found.model.id.as_str(), found.thinking),
                ("claude-next-9", Some(ThinkingLevel::High))
            );
            assert_eq!(found.model.base_url, "https://api.anthropic.com");
            assert_eq!(
                found.warnings,
                ["Model \"claude-next-9\" not found for provider \"anthropic\". Using custom model id."]
            );
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        for (keys, provider, pattern, want) in [
            (
                &[][..],
                Some("nope"),
                None,
                "Unknown provider \"nope\". Use --list-models to see available providers/models.",
            ),
            (
                &[],
                None,
                Some("zzz-none"),
                "Model \"zzz-none\" not found. Use --list-models to see available models.",
            ),
            (&[], Some("demo"), Some("x"), "Model \"demo/x\" not found. Use --list-models"),
            (&[], None, Some("demo"), "Model \"demo\" not found."),
            (
                &[],
                None,
                Some("twin"),
                "Model \"twin\" is ambiguous: one/twin, two/twin. Name one of them, for example --model one/twin.",
            ),
            (&["ONE", "TWO"], None, Some("twin"), "ambiguous: one/twin, two/twin"),
            (&[], None, None, "No models available."),
        ] {
            let error = registry(dir.path(), keys).resolve(provider, pattern).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn the_first_model_is_one_that_works() {
        let dir = tempfile::tempdir().unwrap();
        let name = |model: Option<Arc<Model>>| model.map(|model| format!("{}/{}", model.provider, model.id));
        let some = |text: &str| Some(text.to_owned());
        let both = registry(dir.path(), &["ONE", "TWO"]);
        assert_eq!(name(both.initial(None, None)), some("one/twin"));
        assert_eq!(name(both.initial(Some("two"), Some("twin"))), some("two/twin"));
        assert_eq!(name(both.initial(Some("two"), Some("gone"))), some("one/twin"));
        assert_eq!(name(both.initial(None, Some("fox-1"))), some("one/fox-1"));
        assert_eq!(name(both.initial(Some("nobody"), Some("x"))), None);
        assert_eq!(name(both.clone().with_demo().initial(Some("demo"), Some("demo"))), some("one/twin"));
        assert_eq!(name(registry(dir.path(), &["ONE"]).initial(Some("two"), Some("twin"))), some("one/twin"));
        let anthropic = registry(dir.path(), &["TWO", "ANTHROPIC_API_KEY"]);
        assert_eq!(name(anthropic.initial(None, None)), some("anthropic/claude-sonnet-5-5"));
        assert_eq!(name(registry(dir.path(), &[]).with_demo().initial(None, None)), None);
    }
}
