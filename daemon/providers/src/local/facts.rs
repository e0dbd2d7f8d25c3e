//! What servers say about their models, each in its own words.

use atomic_protocol::model::{ModelSpec, ThinkingLevel};
use serde_json::Value;

use super::{MAX_TOKENS, UNKNOWN_CONTEXT};

/// What is known of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// As requests name it.
    pub(super) id: String,
    /// Tokens of a whole conversation.
    pub(super) context: Option<u64>,
    /// It thinks, and can be told how much.
    pub(super) thinking: bool,
    /// It sees images.
    pub(super) images: bool,
}

impl Facts {
    fn of(id: &str) -> Facts {
        Facts { id: id.to_owned(), ..Facts::default() }
    }

    /// As a model of a server that `base` describes.
    pub(super) fn spec(self, base: &ModelSpec) -> ModelSpec {
        let context_window = self.context.filter(|tokens| *tokens > 0).unwrap_or(UNKNOWN_CONTEXT);
        let input = ["text"].into_iter().chain(self.images.then_some("image")).map(str::to_owned);
        ModelSpec {
            name: self.id.clone(),
            id: self.id,
            reasoning: self.thinking,
            // The servers know low, medium and high.
            thinking_level_map: self.thinking.then(|| [(ThinkingLevel::Minimal, None)].into_iter().collect()),
            input: input.collect(),
            context_window,
            max_tokens: MAX_TOKENS.min(context_window / 2),
            ..base.clone()
        }
    }
}

/// The entries of a list under `key`.
fn entries<'a>(list: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    list.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn id(entry: &Value) -> Option<&str> {
    entry.get("id").and_then(Value::as_str).filter(|id| !id.is_empty())
}

/// OpenAI's list; vLLM adds `max_model_len`.
pub(super) fn openai(list: &Value) -> Vec<Facts> {
    let facts = |entry: &Value| {
        let context = entry.get("max_model_len").and_then(Value::as_u64);
        Some(Facts { context, ..Facts::of(id(entry)?) })
    };
    entries(list, "data").filter_map(facts).collect()
}

/// llama.cpp's list, and its `/props`: how long a conversation of one slot may be, and whether it sees. `n_ctx_train` of
/// the list is what the model was made for, not what the server was started with.
pub(super) fn llama_cpp(list: &Value, props: &Value) -> Vec<Facts> {
    let number = |value: Option<&Value>| value.and_then(Value::as_u64).filter(|number| *number > 0);
    let running = number(props.pointer("/default_generation_settings/n_ctx"));
    let images = props.pointer("/modalities/vision") == Some(&Value::Bool(true));
    let facts = |entry: &Value| {
        let context = running
            .or_else(|| number(entry.pointer("/meta/n_ctx")))
            .or_else(|| number(entry.pointer("/meta/n_ctx_train")));
        Some(Facts { context, images, ..Facts::of(id(entry)?) })
    };
    entries(list, "data").filter_map(facts).collect()
}

/// LM Studio's own list. Embedding models are none to talk to.
pub(super) fn lm_studio(list: &Value) -> Vec<Facts> {
    let facts = |entry: &Value| {
        let kind = entry.get("type").and_then(Value::as_str);
        let number = |name: &str| entry.get(name).and_then(Value::as_u64);
        let context = number("loaded_context_length").or_else(|| number("max_context_length"));
        (kind != Some("embeddings")).then_some(Facts {
            context,
            images: kind == Some("vlm"),
            ..Facts::of(id(entry)?)
        })
    };
    entries(list, "data").filter_map(facts).collect()
}

/// The names in Ollama's `/api/tags`.
pub(super) fn ollama_names(list: &Value) -> Vec<String> {
    let name = |entry: &Value| {
        let name = entry.get("model").or_else(|| entry.get("name"))?.as_str()?;
        Some(name.to_owned()).filter(|name| !name.is_empty())
    };
    entries(list, "models").filter_map(name).collect()
}

/// One of Ollama's, from `/api/show` and `/api/ps`; `None` for one that does not talk.
///
/// The window is the one it runs with now, else the one its parameters set, else the one the model was made for. Ollama
/// takes less by itself when nothing sets it, and does not say how much before it runs.
pub(super) fn ollama(name: String, shown: &Value, running: &Value) -> Option<Facts> {
    let capabilities: Option<Vec<&str>> = shown
        .get("capabilities")
        .and_then(Value::as_array)
        .map(|words| words.iter().filter_map(Value::as_str).collect());
    let can = |word: &str| capabilities.as_ref().is_some_and(|words| words.contains(&word));
    if capabilities.is_some() && !can("completion") {
        return None;
    }
    let now = entries(running, "models")
        .find(|entry| [entry.get("model"), entry.get("name")].contains(&Some(&Value::from(name.as_str()))))
        .and_then(|entry| entry.get("context_length")?.as_u64())
        .filter(|tokens| *tokens > 0);
    let set = shown.get("parameters").and_then(Value::as_str).and_then(|text| {
        let mut lines = text.lines().map(str::split_whitespace);
        lines.find_map(|mut words| (words.next() == Some("num_ctx")).then(|| words.next()?.parse().ok())?)
    });
    let architecture = shown.pointer("/model_info/general.architecture").and_then(Value::as_str);
    let made = architecture
        .and_then(|name| shown.get("model_info")?.get(format!("{name}.context_length"))?.as_u64());
    Some(Facts { id: name, context: now.or(set).or(made), thinking: can("thinking"), images: can("vision") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(id: &str, context: Option<u64>, thinking: bool, images: bool) -> Facts {
        Facts { id: id.to_owned(), context, thinking, images }
    }

    #[test]
    fn each_server_is_understood() {
        let vllm = json!({"object": "list", "data": [{"id": "org/m", "object": "model", "owned_by": "vllm",
            "root": "org/m", "parent": null, "max_model_len": 40960}, {"id": ""}, {"object": "model"}]});
        assert_eq!(openai(&vllm), [facts("org/m", Some(40960), false, false)]);

        let list = json!({"object": "list", "data": [{"id": "m.gguf", "object": "model", "owned_by": "llamacpp",
            "meta": {"vocab_type": 2, "n_ctx_train": 131072}}]});
        let props = json!({"default_generation_settings": {"id": 0, "n_ctx": 8192}, "total_slots": 1,
            "modalities": {"vision": true, "audio": false}});
        assert_eq!(llama_cpp(&list, &props), [facts("m.gguf", Some(8192), false, true)]);
        assert_eq!(llama_cpp(&list, &Value::Null), [facts("m.gguf", Some(131_072), false, false)]);

        let list = json!({"object": "list", "data": [
            {"id": "see", "type": "vlm", "state": "not-loaded", "max_context_length": 32768},
            {"id": "talk", "type": "llm", "state": "loaded", "max_context_length": 131072, "loaded_context_length": 4096},
            {"id": "embed", "type": "embeddings", "max_context_length": 2048}]});
        assert_eq!(
            lm_studio(&list),
            [facts("see", Some(32768), false, true), facts("talk", Some(4096), false, false)]
        );

        let tags =
            json!({"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "size": 1}, {"name": "old"}, {}]});
        assert_eq!(ollama_names(&tags), ["qwen3:8b", "old"]);
        let shown = json!({"capabilities": ["completion", "tools", "thinking", "vision"],
            "parameters": "stop \"x\"\nnum_ctx    16384", "details": {},
            "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960}});
        let running = json!({"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "context_length": 4096}]});
        let name = || "qwen3:8b".to_owned();
        assert_eq!(ollama(name(), &shown, &running), Some(facts("qwen3:8b", Some(4096), true, true)));
        assert_eq!(ollama(name(), &shown, &Value::Null), Some(facts("qwen3:8b", Some(16384), true, true)));
        let plain = json!({"model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960}});
        let context =
            |running: &Value| ollama("qwen3:8b".to_owned(), &plain, running).and_then(|facts| facts.context);
        assert_eq!(context(&running), Some(4096));
        assert_eq!(context(&Value::Null), Some(40960));
        assert_eq!(ollama(name(), &Value::Null, &Value::Null), Some(facts("qwen3:8b", None, false, false)));
        assert_eq!(ollama(name(), &json!({"capabilities": ["embedding"]}), &Value::Null), None);
    }

    #[test]
    fn what_is_not_a_list_holds_nothing() {
        for value in
            [json!(null), json!([]), json!({"data": 7}), json!({"models": "x"}), json!({"data": [null, 1]})]
        {
            assert!(openai(&value).is_empty() && llama_cpp(&value, &value).is_empty());
            assert!(lm_studio(&value).is_empty() && ollama_names(&value).is_empty());
        }
    }

    #[test]
    fn limits_are_safe_guesses_where_nothing_is_said() {
        let base = ModelSpec { provider: "p".into(), ..ModelSpec::default() };
        let spec = facts("m", None, true, true).spec(&base);
        assert_eq!((spec.context_window, spec.max_tokens, spec.provider.as_str()), (32_768, 16_384, "p"));
        assert_eq!(spec.input, ["text", "image"]);
        assert!(spec.thinking_level_map.is_some_and(|map| map.get(&ThinkingLevel::Minimal) == Some(&None)));
        assert_eq!(facts("m", Some(4096), false, false).spec(&base).max_tokens, 2048);
    }
}
