//! The user's `models.json`: own providers and models, and changes to shipped ones. Comments and trailing commas are
//! allowed. A file that is wrong anywhere is ignored as a whole, with a warning: half a configuration would send
//! requests to places the user did not mean.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use atomic_protocol::json::{self, Fields, Raw};
use atomic_protocol::model::{CostTier, Model, ModelCost, ModelSpec, ThinkingLevel};
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::catalog::Catalog;
use crate::demo;
use crate::stamp::Stamp;

/// Context window of a custom model that does not say.
const DEFAULT_CONTEXT_WINDOW: u64 = 128_000;
/// Output limit of a custom model that does not say.
const DEFAULT_MAX_TOKENS: u64 = 16_384;

/// Header name → configured value; null takes the header away.
pub(crate) type Headers = BTreeMap<String, Option<String>>;

/// One provider as the user's file makes it.
#[derive(Default)]
pub(crate) struct Provider {
    /// Configured value of the key.
    pub(crate) api_key: Option<String>,
    /// Send the key as `Authorization: Bearer` too.
    pub(crate) auth_header: bool,
    /// For every model. Kept out of [`Model`], which clients see: values may be secrets.
    pub(crate) headers: Headers,
    /// For one model, by id.
    pub(crate) model_headers: HashMap<String, Headers>,
    /// Fields for the body of each request to one model, by id; an object.
    pub(crate) sampling: HashMap<String, Raw>,
    /// Shipped and own models, merged.
    pub(crate) models: Vec<Arc<Model>>,
    /// Where the provider is, if the file says so.
    pub(crate) base_url: Option<String>,
    /// Differences from the dialect, for models that are found later.
    compat: Option<Raw>,
    /// Changes to models that may be found later, by id.
    overrides: IndexMap<String, Override>,
}

impl Provider {
    /// The models of the file, then those that a local server has, with what the file changes about them.
    pub(crate) fn with_found(&self, found: &[ModelSpec]) -> Vec<Arc<Model>> {
        let mut models = self.models.clone();
        for spec in found {
            if self.models.iter().any(|own| own.id == spec.id) {
                continue;
            }
            let mut spec =
                ModelSpec { compat: layered(spec.compat.as_ref(), self.compat.as_ref()), ..spec.clone() };
            if let Some(change) = self.overrides.get(&spec.id) {
                apply(&mut spec, change.clone());
            }
            models.push(Arc::new(Model::from_spec(spec)));
        }
        models
    }
}

/// The user's file, as it was when it was read.
#[derive(Default)]
pub(crate) struct ModelsFile {
    /// How it looked just before.
    pub(crate) stamp: Option<Stamp>,
    /// Its providers; those of an earlier reading when it is wrong now.
    pub(crate) providers: Arc<IndexMap<String, Provider>>,
    /// Why it is ignored, if it is: a warning for the user.
    pub(crate) warning: Option<String>,
}

impl ModelsFile {
    /// Reads it. When it is wrong, `before` goes on to count.
    pub(crate) fn read(file: &Path, before: Option<&ModelsFile>) -> ModelsFile {
        let stamp = Stamp::of(file);
        match load(file, Catalog::shipped()) {
            Ok(providers) => ModelsFile { stamp, providers: Arc::new(providers), warning: None },
            Err(warning) => {
                let providers = before.map(|before| Arc::clone(&before.providers)).unwrap_or_default();
                ModelsFile { stamp, providers, warning: Some(warning) }
            }
        }
    }
}

/// Reads and merges the file. Nothing there: nothing changes.
///
/// # Errors
/// A warning for the user when the file is ignored: it names file, line and column.
pub(crate) fn load(file: &Path, catalog: &Catalog) -> Result<IndexMap<String, Provider>, String> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(IndexMap::new());
        }
        Err(error) => return Err(format!("Cannot read {}: {error}. It is ignored.", file.display())),
    };
    parse(&json::text(&bytes), catalog).map_err(|Wrong { line, column, reason }| {
        format!(
            "Invalid models.json schema: {reason} ({}:{line}:{column}). The file is ignored.",
            file.display()
        )
    })
}

/// What is wrong with the file, and where: counted from 1, columns in bytes.
#[derive(Debug)]
struct Wrong {
    line: usize,
    column: usize,
    reason: String,
}

/// The text of the file without its comments, which left white space in their place; and with them, for positions.
struct Text<'a> {
    stripped: &'a str,
    written: &'a str,
}

impl Text<'_> {
    /// Something is wrong with `part`, a piece of the stripped text.
    fn wrong(&self, part: &str, reason: impl Into<String>) -> Wrong {
        self.wrong_at(self.begin(part), reason.into())
    }

    fn wrong_at(&self, at: usize, reason: String) -> Wrong {
        let (line, column) = position(self.written, at);
        Wrong { line, column, reason }
    }

    /// The parser's own words about `part`.
    fn syntax(&self, part: &str, error: &serde_json::Error, place: &str) -> Wrong {
        let text = error.to_string();
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
        self.wrong_at(
            self.begin(part) + offset(part, error.line(), error.column()),
            format!("{place}{reason}"),
        )
    }

    fn begin(&self, part: &str) -> usize {
        part.as_ptr() as usize - self.stripped.as_ptr() as usize
    }

    /// Reads `part`, a piece of the stripped text that stands at `place`.
    fn read<T: DeserializeOwned>(&self, part: &str, place: &str) -> Result<T, Wrong> {
        json::from_str(part).map_err(|error| self.syntax(part, &error, &format!("{place}: ")))
    }
}

/// Line and column of a byte, from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line_begin = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
    (memchr::memchr_iter(b'\n', before).count() + 1, before.len() - line_begin + 1)
}

/// The byte at a line and column as the parser counts them, from 1; 0 where it does not know.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let breaks = memchr::memchr_iter(b'\n', text.as_bytes());
    let begin = match line {
        0 | 1 => 0,
        line => breaks.take(line - 1).last().map_or(0, |at| at + 1),
    };
    begin + column.saturating_sub(1)
}

fn parse(written: &str, catalog: &Catalog) -> Result<IndexMap<String, Provider>, Wrong> {
    let written = written.trim_start_matches('\u{feff}');
    let mut text = written.to_owned();
    json_strip_comments::strip(&mut text).map_err(|error| {
        let (line, column) = position(written, written.len());
        Wrong { line, column, reason: format!("comments cannot be removed: {error}") }
    })?;
    let whole = Text { stripped: &text, written };
    let Ok(file) = Fields::parse(&text) else { return Err(syntax(&whole)) };
    let Some(providers) = file.get("providers") else {
        return Err(whole.wrong(text.trim_start(), "\"providers\" is missing"));
    };
    let fields =
        Fields::parse(providers).map_err(|_| whole.wrong(providers, "\"providers\" must be an object"))?;
    let mut merged = IndexMap::new();
    for (name, part) in fields.iter() {
        let config: ProviderConfig = whole.read(part, &format!("providers.{name}"))?;
        merged.insert(name.to_owned(), merge(&whole, name, part, config, catalog)?);
    }
    Ok(merged)
}

fn syntax(text: &Text<'_>) -> Wrong {
    match serde_json::from_str::<serde::de::IgnoredAny>(text.stripped) {
        Ok(_) => text.wrong(text.stripped.trim_start(), "the file must hold an object"),
        Err(error) => text.syntax(text.stripped, &error, ""),
    }
}

/// The elements of the list that `part`, an object, has under `key`, as pieces of the text.
fn elements<'a>(part: &'a str, key: &str) -> Vec<&'a str> {
    let list = Fields::parse(part).ok().and_then(|fields| fields.get(key));
    let values: Option<Vec<&'a serde_json::value::RawValue>> =
        list.and_then(|list| serde_json::from_str(list).ok());
    values.unwrap_or_default().into_iter().map(serde_json::value::RawValue::get).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProviderConfig {
    base_url: Option<String>,
    api_key: Option<String>,
    api: Option<String>,
    headers: Option<Headers>,
    compat: Option<Raw>,
    #[serde(default)]
    auth_header: bool,
    /// Only that it is a list; its elements are read where they stand.
    #[serde(default, rename = "models")]
    _models: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    model_overrides: IndexMap<String, serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnModel {
    id: String,
    name: Option<String>,
    api: Option<String>,
    base_url: Option<String>,
    #[serde(default)]
    reasoning: bool,
    thinking_level_map: Option<BTreeMap<ThinkingLevel, Option<String>>>,
    input: Option<Vec<String>>,
    cost: Option<WholeCost>,
    context_window: Option<u64>,
    max_tokens: Option<u64>,
    headers: Option<Headers>,
    compat: Option<Raw>,
    sampling_params: Option<Raw>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WholeCost {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
    #[serde(default)]
    tiers: Vec<CostTier>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Override {
    name: Option<String>,
    reasoning: Option<bool>,
    thinking_level_map: Option<BTreeMap<ThinkingLevel, Option<String>>>,
    input: Option<Vec<String>>,
    cost: Option<PartCost>,
    context_window: Option<u64>,
    max_tokens: Option<u64>,
    headers: Option<Headers>,
    compat: Option<Raw>,
    sampling_params: Option<Raw>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartCost {
    input: Option<f64>,
    output: Option<f64>,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    tiers: Option<Vec<CostTier>>,
}

fn merge(
    text: &Text<'_>,
    name: &str,
    part: &str,
    config: ProviderConfig,
    catalog: &Catalog,
) -> Result<Provider, Wrong> {
    if name.is_empty() || name == demo::PROVIDER {
        return Err(text.wrong(part, format!("providers.{name}: this name is taken")));
    }
    let shipped = catalog.models(name);
    let mut specs: IndexMap<String, ModelSpec> = shipped
        .iter()
        .map(|model| {
            let mut spec = model.spec.clone();
            if let Some(base_url) = &config.base_url {
                spec.base_url.clone_from(base_url);
            }
            (
                spec.id.clone(),
                ModelSpec { compat: layered(spec.compat.as_ref(), config.compat.as_ref()), ..spec },
            )
        })
        .collect();
    let mut model_headers = HashMap::new();
    let mut sampling = HashMap::new();
    for (index, part) in elements(part, "models").into_iter().enumerate() {
        let place = format!("providers.{name}.models[{index}]");
        let own: OwnModel = text.read(part, &place)?;
        if own.id.is_empty() {
            return Err(text.wrong(part, format!("{place}: \"id\" is empty")));
        }
        let fallback =
            |pick: fn(&ModelSpec) -> &String| shipped.first().map(|model| pick(&model.spec).clone());
        let api = own.api.or_else(|| config.api.clone()).or_else(|| fallback(|spec| &spec.api));
        let base_url =
            own.base_url.or_else(|| config.base_url.clone()).or_else(|| fallback(|spec| &spec.base_url));
        let missing =
            |key: &str| text.wrong(part, format!("{place}: \"{key}\" is missing here and in the provider"));
        let api = api.ok_or_else(|| missing("api"))?;
        let base_url = base_url.ok_or_else(|| missing("baseUrl"))?;
        if let Some(headers) = own.headers {
            model_headers.insert(own.id.clone(), headers);
        }
        if let Some(fields) = own.sampling_params {
            sampling.insert(own.id.clone(), fields);
        }
        let spec = ModelSpec {
            name: own.name.unwrap_or_else(|| own.id.clone()),
            api,
            provider: name.to_owned(),
            base_url,
            reasoning: own.reasoning,
            thinking_level_map: own.thinking_level_map,
            input: own.input.unwrap_or_else(|| vec!["text".to_owned()]),
            cost: own.cost.map_or_else(ModelCost::default, |cost| ModelCost {
                input: cost.input,
                output: cost.output,
                cache_read: cost.cache_read,
                cache_write: cost.cache_write,
                tiers: cost.tiers,
            }),
            context_window: own.context_window.unwrap_or(DEFAULT_CONTEXT_WINDOW),
            max_tokens: own.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
            headers: None,
            compat: layered(config.compat.as_ref(), own.compat.as_ref()),
            input_limits: None,
            id: own.id,
        };
        specs.insert(spec.id.clone(), spec);
    }
    let changes = Fields::parse(part).ok().and_then(|fields| fields.get("modelOverrides"));
    let changes = changes.and_then(|changes| Fields::parse(changes).ok()).unwrap_or_default();
    let mut overrides = IndexMap::new();
    for id in config.model_overrides.keys() {
        let Some(part) = changes.get(id) else { continue };
        let change: Override = text.read(part, &format!("providers.{name}.modelOverrides.{id}"))?;
        if let Some(headers) = change.headers.clone() {
            model_headers.entry(id.clone()).or_insert_with(Headers::new).extend(headers);
        }
        if let Some(fields) = layered(sampling.get(id), change.sampling_params.as_ref()) {
            sampling.insert(id.clone(), fields);
        }
        if let Some(spec) = specs.get_mut(id) {
            apply(spec, change.clone());
        }
        overrides.insert(id.clone(), change);
    }
    Ok(Provider {
        api_key: config.api_key.filter(|key| !key.trim().is_empty()),
        auth_header: config.auth_header,
        headers: config.headers.unwrap_or_default(),
        model_headers,
        sampling,
        models: specs.into_values().map(Model::from_spec).map(Arc::new).collect(),
        base_url: config.base_url,
        compat: config.compat,
        overrides,
    })
}

fn apply(spec: &mut ModelSpec, change: Override) {
    fn set<T>(field: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *field = value;
        }
    }
    set(&mut spec.name, change.name);
    set(&mut spec.reasoning, change.reasoning);
    set(&mut spec.input, change.input);
    set(&mut spec.context_window, change.context_window);
    set(&mut spec.max_tokens, change.max_tokens);
    if let Some(levels) = change.thinking_level_map {
        spec.thinking_level_map.get_or_insert_with(BTreeMap::new).extend(levels);
    }
    if let Some(cost) = change.cost {
        set(&mut spec.cost.input, cost.input);
        set(&mut spec.cost.output, cost.output);
        set(&mut spec.cost.cache_read, cost.cache_read);
        set(&mut spec.cost.cache_write, cost.cache_write);
        set(&mut spec.cost.tiers, cost.tiers);
    }
    spec.compat = layered(spec.compat.as_ref(), change.compat.as_ref());
}

/// Two objects, key by key, the second on top.
fn layered(below: Option<&Raw>, above: Option<&Raw>) -> Option<Raw> {
    let (below, above) = match (below, above) {
        (below, None) => return below.cloned(),
        (None, above) => return above.cloned(),
        (Some(below), Some(above)) => (below, above),
    };
    let (Ok(below_fields), Ok(above_fields)) = (Fields::parse(below.as_str()), Fields::parse(above.as_str()))
    else {
        return Some(above.clone());
    };
    let mut all: IndexMap<&str, &serde_json::value::RawValue> = IndexMap::new();
    for (name, text) in below_fields.iter().chain(above_fields.iter()) {
        if let Ok(value) = serde_json::from_str(text) {
            all.insert(name, value);
        }
    }
    Some(Raw::from_serialize(&all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<IndexMap<String, Provider>, String> {
        parse(text, Catalog::shipped()).map_err(|wrong| wrong.reason)
    }

    #[test]
    fn own_providers_get_the_defaults() {
        let file = parsed(
            r#"{ // mine
              "providers": { "local": { "baseUrl": "http://localhost:1/", "api": "anthropic-messages", "apiKey": "x",
                "compat": {"a":1,"b":1}, /* two */
                "models": [ {"id":"m:7b/x", "compat":{"b":2}, "headers":{"X-A":"$SECRET"}}, {"id":"n","name":"N","reasoning":true,"contextWindow":5,"maxTokens":6,"input":["text","image"],"cost":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4}}, ] } } }"#,
        )
        .unwrap();
        let local = &file["local"];
        let model = &local.models[0];
        assert_eq!(
            (model.name.as_str(), model.context_window, model.max_tokens, model.reasoning),
            ("m:7b/x", 128_000, 16_384, false)
        );
        assert_eq!((model.input.as_slice(), &model.cost), (&["text".to_owned()][..], &ModelCost::default()));
        assert_eq!(model.compat.as_ref().unwrap().as_str(), r#"{"a":1,"b":2}"#);
        assert!(!model.raw.as_str().contains("SECRET"), "clients do not see headers: {:?}", model.raw);
        assert_eq!(local.model_headers["m:7b/x"]["X-A"].as_deref(), Some("$SECRET"));
        assert_eq!((local.models[1].context_window, local.models[1].cost.cache_write), (5, 4.0));
    }

    #[test]
    fn shipped_providers_are_changed_replaced_and_appended_to() {
        let id = &Catalog::shipped().models("anthropic")[3].id;
        let file = parsed(&format!(
            r#"{{"providers":{{"anthropic":{{"baseUrl":"https://proxy.example","headers":{{"X-P":"v"}},
                "models":[{{"id":"{id}","name":"mine"}},{{"id":"new"}}],
                "modelOverrides":{{"claude-opus-4-8":{{"contextWindow":200000,"cost":{{"input":9}},"thinkingLevelMap":{{"max":null}}}},"gone":{{}}}}}}}}}}"#
        ))
        .unwrap();
        let anthropic = &file["anthropic"];
        let shipped = Catalog::shipped().models("anthropic");
        assert_eq!(anthropic.models.len(), shipped.len() + 1);
        assert_eq!(
            (anthropic.models[3].id.as_str(), anthropic.models[3].name.as_str()),
            (id.as_str(), "mine")
        );
        assert!(anthropic.models.iter().all(|model| model.base_url == "https://proxy.example"));
        assert_eq!(anthropic.models.last().unwrap().api, "anthropic-messages");
        let find = |models: &[Arc<Model>]| models.iter().find(|m| m.id == "claude-opus-4-8").unwrap().clone();
        let (before, after) = (find(shipped), find(&anthropic.models));
        assert_eq!(
            (after.context_window, after.cost.input, after.cost.output),
            (200_000, 9.0, before.cost.output)
        );
        assert!(before.thinking_levels().contains(&ThinkingLevel::Max));
        assert!(!after.thinking_levels().contains(&ThinkingLevel::Max));
        assert!(after.thinking_levels().contains(&ThinkingLevel::Xhigh), "other levels stay");
    }

    #[test]
    fn sampling_is_kept_apart_and_merged() {
        let file = parsed(
            r#"{"providers":{"p":{"baseUrl":"u","api":"a","models":[{"id":"m","samplingParams":{"temperature":0.50,"top_k":1}},{"id":"n"}],
                "modelOverrides":{"m":{"samplingParams":{"top_k":2}},"n":{"samplingParams":{"seed":3}},"gone":{"samplingParams":{}}}}}}"#,
        )
        .unwrap();
        let p = &file["p"];
        assert_eq!(p.sampling["m"].as_str(), r#"{"temperature":0.50,"top_k":2}"#);
        assert_eq!((p.sampling["n"].as_str(), p.sampling.len()), (r#"{"seed":3}"#, 3));
        assert!(!p.models[0].raw.as_str().contains("temperature"));
    }

    #[test]
    fn a_wrong_file_says_where() {
        for (text, want) in [
            ("{", "EOF"),
            ("[]", "must hold an object"),
            ("{}", "\"providers\" is missing"),
            (r#"{"providers":[]}"#, "must be an object"),
            (r#"{"providers":{"p":{"models":[{"name":"x"}]}}}"#, "providers.p.models[0]: missing field `id`"),
            (
                r#"{"providers":{"p":{"models":[{"id":"x","api":"a"}]}}}"#,
                "providers.p.models[0]: \"baseUrl\"",
            ),
            (
                r#"{"providers":{"p":{"models":[{"id":"x","baseUrl":"u"}]}}}"#,
                "providers.p.models[0]: \"api\"",
            ),
            (
                r#"{"providers":{"p":{"baseUrl":"u","api":"a","models":[{"id":"x","cost":{"input":1}}]}}}"#,
                "missing field `output`",
            ),
            (r#"{"providers":{"p":{"modelOverrides":{"m":{"contextWindow":"big"}}}}}"#, "modelOverrides.m"),
            (r#"{"providers":{"demo":{}}}"#, "taken"),
        ] {
            let error = parsed(text).err().unwrap_or_else(|| panic!("{text} is wrong"));
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn a_wrong_file_says_in_which_line() {
        for (text, line, column) in [
            ("{\n  \"providers\": {\n    oops\n", 3, 5),
            ("\n  []", 2, 3),
            ("{\"a\":1}", 1, 1),
            ("{\n\"providers\":\n  []}", 3, 3),
            ("{\"providers\":{\n \"p\": {\n  \"apiKey\": 7}}}", 3, 13),
            (
                "{\"providers\":{ // why\n /* \n */ \"p\": {\"baseUrl\":\"u\",\"api\":\"a\",\"models\":[{\"id\":\"a\"},\n\n  {\"id\":\"\"}]}}}",
                5,
                3,
            ),
            (
                "{\"providers\":{\"p\":{\"baseUrl\":\"u\",\"api\":\"a\",\"models\":[\n{\"id\":\"a\"},\n  {\"id\":7}]}}}",
                3,
                9,
            ),
            (
                "{\"providers\":{\"p\":{\"modelOverrides\":{\n  \"m\":\n {\"contextWindow\":\"big\"}}}}}",
                3,
                23,
            ),
        ] {
            let wrong = parse(text, Catalog::shipped()).err().unwrap_or_else(|| panic!("{text} is wrong"));
            assert_eq!((wrong.line, wrong.column), (line, column), "{text}: {}", wrong.reason);
        }
    }

    #[test]
    fn what_a_server_has_comes_after_the_files_own_and_is_changed_by_it() {
        let file = parsed(
            r#"{"providers":{"ollama":{"baseUrl":"http://gpu:1/v1","api":"openai-completions","compat":{"a":1},
                "models":[{"id":"own","contextWindow":5}],
                "modelOverrides":{"found":{"contextWindow":7,"samplingParams":{"seed":3}}}}}}"#,
        )
        .unwrap();
        let ollama = &file["ollama"];
        let found = ["found", "own", "other"].map(|id| ModelSpec {
            id: id.into(),
            context_window: 9,
            ..ModelSpec::default()
        });
        let models = ollama.with_found(&found);
        let shown: Vec<_> = models.iter().map(|model| (model.id.as_str(), model.context_window)).collect();
        assert_eq!(shown, [("own", 5), ("found", 7), ("other", 9)]);
        assert_eq!(models[1].compat.as_ref().map(Raw::as_str), Some(r#"{"a":1}"#));
        assert_eq!(ollama.sampling["found"].as_str(), r#"{"seed":3}"#);
        assert_eq!(ollama.base_url.as_deref(), Some("http://gpu:1/v1"));
    }

    #[test]
    fn a_file_that_becomes_wrong_changes_nothing_and_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("models.json");
        std::fs::write(&path, r#"{"providers":{"p":{"apiKey":"k"}}}"#).unwrap();
        let good = ModelsFile::read(&path, None);
        assert!(good.warning.is_none() && good.providers.contains_key("p"));
        std::fs::write(&path, "{").unwrap();
        let bad = ModelsFile::read(&path, Some(&good));
        assert!(bad.warning.is_some() && bad.providers.contains_key("p") && bad.stamp != good.stamp);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{");
    }

    #[test]
    fn no_file_is_no_warning() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            load(&dir.path().join("models.json"), Catalog::shipped()).is_ok_and(|found| found.is_empty())
        );
        std::fs::write(dir.path().join("models.json"), "nonsense").unwrap();
        let warning = load(&dir.path().join("models.json"), Catalog::shipped()).err().unwrap();
        assert!(warning.starts_with("Invalid models.json schema:"), "{warning}");
    }
}
