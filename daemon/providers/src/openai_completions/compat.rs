//! How an endpoint differs from OpenAI's own. First guesses from provider id and address, then the keys of the model's
//! `compat`, each for itself.

use std::net::IpAddr;

use atomic_protocol::json::{Fields, Raw};
use atomic_protocol::model::Model;

/// The keys of a model's `compat` that this dialect reads. Keys that are not here, and values of another type, are
/// ignored.
#[derive(Debug)]
pub(super) struct Compat {
    /// `supportsStore`: takes `store`; we say that nothing is to be stored.
    pub(super) store: bool,
    /// `supportsDeveloperRole`: the system prompt of models that think has the role `developer`.
    pub(super) developer_role: bool,
    /// `supportsReasoningEffort`: takes `reasoning_effort`.
    pub(super) effort: bool,
    /// `supportsUsageInStreaming`: takes `stream_options`.
    pub(super) usage: bool,
    /// `supportsFinishReason`: says why an answer ends.
    pub(super) finish_reason: bool,
    /// `maxTokensField`.
    pub(super) max_tokens: &'static str,
    /// `requiresToolResultName`.
    pub(super) result_name: bool,
    /// `requiresAssistantAfterToolResult`: no user message may follow a tool result.
    pub(super) assistant_after_result: bool,
    /// `requiresThinkingAsText`: thinking goes back as text.
    pub(super) thinking_as_text: bool,
    /// `requiresReasoningContentOnAssistantMessages`: each answer goes back with `reasoning_content`, if an empty one.
    pub(super) reasoning_content: bool,
    /// `thinkingFormat`.
    pub(super) thinking: ThinkingFormat,
    /// `chatTemplateKwargs`.
    pub(super) template_kwargs: Option<Raw>,
    /// `chatTemplateArgs`.
    pub(super) template_args: Option<Raw>,
    /// `thinkingTokenBudgetField`, or `supportsThinkingTokenBudget`, its older form.
    pub(super) budget_field: Option<&'static str>,
    /// `supportsStrictMode`: tools may say that their schema is no strict one.
    pub(super) strict: bool,
    /// `zaiToolStream`: asks for tool arguments as they are written.
    pub(super) tool_stream: bool,
    /// `cacheControlFormat`: takes Anthropic's cache marks.
    pub(super) cache_marks: bool,
    /// `supportsLongCacheRetention`: caches may be asked to live longer.
    pub(super) long_cache: bool,
    /// `sendSessionAffinityHeaders` and `sessionAffinityFormat`: names of the headers that carry the session's id.
    pub(super) affinity: &'static [&'static str],
    /// `openRouterRouting`.
    pub(super) router: Option<Raw>,
    /// `vercelGatewayRouting`: its `only` and `order`.
    pub(super) gateway: Option<Raw>,
    /// `vllmPriority`.
    pub(super) priority: Option<i64>,
    /// OpenAI's own endpoint: requests of a session name their cache.
    pub(super) cache_key: bool,
    /// Wants an empty list of tools when the conversation has calls and there are no tools any more. OpenAI and local
    /// servers refuse an empty list.
    pub(super) empty_tools: bool,
}

/// How an endpoint is told how much to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThinkingFormat {
    /// `reasoning_effort`.
    OpenAi,
    /// `reasoning: {effort}`.
    OpenRouter,
    /// `thinking: {type}` and `reasoning_effort`.
    DeepSeek,
    /// `reasoning: {enabled}` and `reasoning_effort`.
    Together,
    /// As DeepSeek, and thinking of earlier turns is kept.
    Zai,
    /// `enable_thinking` and `reasoning_effort`.
    Qwen,
    /// `chat_template_kwargs: {enable_thinking}`.
    QwenChatTemplate,
    /// `chat_template_kwargs` as configured.
    ChatTemplate,
    /// `chat_template_args` as configured, and `reasoning_effort`.
    Baseten,
    /// `thinking: "<level>"`.
    StringThinking,
    /// `reasoning: {effort}` for mapped levels.
    AntLing,
}

impl ThinkingFormat {
    fn parse(word: &str) -> Option<ThinkingFormat> {
        Some(match word {
            "openai" => ThinkingFormat::OpenAi,
            "openrouter" => ThinkingFormat::OpenRouter,
            "deepseek" => ThinkingFormat::DeepSeek,
            "together" => ThinkingFormat::Together,
            "zai" => ThinkingFormat::Zai,
            "qwen" => ThinkingFormat::Qwen,
            "qwen-chat-template" => ThinkingFormat::QwenChatTemplate,
            "chat-template" => ThinkingFormat::ChatTemplate,
            "baseten" => ThinkingFormat::Baseten,
            "string-thinking" => ThinkingFormat::StringThinking,
            "ant-ling" => ThinkingFormat::AntLing,
            _ => return None,
        })
    }
}

const AFFINITY_OPENROUTER: &[&str] = &["x-session-id"];
const AFFINITY_OPENAI: &[&str] = &["session_id", "x-client-request-id", "x-session-affinity"];
const AFFINITY_NO_SESSION: &[&str] = &["x-client-request-id", "x-session-affinity"];

/// Endpoints whose differences are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    OpenAi,
    OpenRouter,
    DeepSeek,
    Zai,
    Together,
    Moonshot,
    CloudflareWorkers,
    CloudflareGateway,
    Nvidia,
    AntLing,
    Cerebras,
    Xai,
    Chutes,
    OpenCode,
    /// A server on this machine or in this network.
    Local,
    Other,
}

/// Provider ids and parts of an address by which an endpoint is known; the first row that fits counts.
const KNOWN: &[(Endpoint, &[&str], &[&str])] = &[
    (Endpoint::OpenAi, &["openai"], &["api.openai.com"]),
    (Endpoint::OpenRouter, &["openrouter"], &["openrouter.ai"]),
    (Endpoint::DeepSeek, &["deepseek"], &["deepseek.com"]),
    (Endpoint::Zai, &["zai", "zai-coding-cn"], &["api.z.ai", "open.bigmodel.cn"]),
    (Endpoint::Together, &["together"], &["api.together.ai", "api.together.xyz"]),
    (Endpoint::Moonshot, &["moonshotai", "moonshotai-cn"], &["api.moonshot."]),
    (Endpoint::CloudflareWorkers, &["cloudflare-workers-ai"], &["api.cloudflare.com"]),
    (Endpoint::CloudflareGateway, &["cloudflare-ai-gateway"], &["gateway.ai.cloudflare.com"]),
    (Endpoint::Nvidia, &["nvidia"], &["integrate.api.nvidia.com"]),
    (Endpoint::AntLing, &["ant-ling"], &["api.ant-ling.com"]),
    (Endpoint::Cerebras, &["cerebras"], &["cerebras.ai"]),
    (Endpoint::Xai, &["xai"], &["api.x.ai"]),
    (Endpoint::Chutes, &["chutes"], &["chutes.ai"]),
    (Endpoint::OpenCode, &["opencode", "opencode-go"], &["opencode.ai"]),
    (Endpoint::Local, &["ollama", "llama.cpp", "llamacpp", "lmstudio", "lm-studio", "vllm"], &[]),
];

impl Endpoint {
    fn of(model: &Model) -> Endpoint {
        let address = model.base_url.to_ascii_lowercase();
        // An address says more than a name; a known name at another address is a proxy for that provider.
        let by_address =
            || KNOWN.iter().find(|(_, _, parts)| parts.iter().any(|part| address.contains(part)));
        let by_name = || KNOWN.iter().find(|(_, names, _)| names.contains(&model.provider.as_str()));
        match by_address().or_else(by_name) {
            Some((endpoint, ..)) => *endpoint,
            None if is_local(&address) => Endpoint::Local,
            None => Endpoint::Other,
        }
    }
}

/// Whether an address leads to this machine or a private network.
fn is_local(address: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(address) else { return false };
    let host = url.host_str().unwrap_or_default();
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(IpAddr::V4(ip)) => {
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified()
        }
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local() || ip.is_unspecified(),
        // A name without a dot is found only by this machine or its network.
        Err(_) => {
            !host.contains('.')
                || host.ends_with(".localhost")
                || host.ends_with(".local")
                || host.ends_with(".internal")
        }
    }
}

/// Mistral's models refuse a user who speaks right after a tool result, wherever they run.
fn is_mistral(id: &str) -> bool {
    let id = id.to_ascii_lowercase();
    ["mistral", "mixtral", "magistral", "codestral", "devstral"].iter().any(|name| id.contains(name))
}

impl Compat {
    pub(super) fn of(model: &Model) -> Compat {
        use Endpoint::{
            AntLing, Cerebras, Chutes, CloudflareGateway, CloudflareWorkers, DeepSeek, Local, Moonshot,
            Nvidia, OpenAi, OpenCode, OpenRouter, Together, Xai, Zai,
        };
        let endpoint = Endpoint::of(model);
        let is = |list: &[Endpoint]| list.contains(&endpoint);
        let plain = is(&[
            Nvidia,
            Cerebras,
            Xai,
            Together,
            Chutes,
            DeepSeek,
            Zai,
            Moonshot,
            OpenCode,
            CloudflareWorkers,
            CloudflareGateway,
            AntLing,
            Local,
        ]);
        let routed = |vendor: &str| endpoint == OpenRouter && model.id.starts_with(vendor);

        let fields =
            model.compat.as_ref().and_then(|compat| Fields::parse(compat.as_str()).ok()).unwrap_or_default();
        let flag = |name: &str, otherwise: bool| match fields.get(name) {
            Some("true") => true,
            Some("false") => false,
            _ => otherwise,
        };
        let object = |name: &str| {
            fields.get(name).filter(|text| text.starts_with('{')).and_then(|text| Raw::parse(text).ok())
        };
        let affinity = match fields.str("sessionAffinityFormat").as_deref() {
            Some("openrouter") => AFFINITY_OPENROUTER,
            Some("openai") => AFFINITY_OPENAI,
            Some("openai-nosession") => AFFINITY_NO_SESSION,
            _ if endpoint == OpenRouter => AFFINITY_OPENROUTER,
            _ => AFFINITY_OPENAI,
        };
        Compat {
            store: flag("supportsStore", !plain),
            developer_role: flag(
                "supportsDeveloperRole",
                routed("anthropic/") || routed("openai/") || (!plain && endpoint != OpenRouter),
            ),
            effort: flag(
                "supportsReasoningEffort",
                !is(&[Xai, Zai, Moonshot, Together, CloudflareGateway, Nvidia, AntLing]),
            ),
            usage: flag("supportsUsageInStreaming", true),
            finish_reason: flag("supportsFinishReason", true),
            max_tokens: match fields.str("maxTokensField").as_deref() {
                Some("max_tokens") => "max_tokens",
                Some("max_completion_tokens") => "max_completion_tokens",
                _ if is(&[
                    Chutes,
                    DeepSeek,
                    Moonshot,
                    CloudflareGateway,
                    Together,
                    Nvidia,
                    AntLing,
                    Zai,
                    Local,
                ]) =>
                {
                    "max_tokens"
                }
                _ => "max_completion_tokens",
            },
            result_name: flag("requiresToolResultName", false),
            assistant_after_result: flag("requiresAssistantAfterToolResult", is_mistral(&model.id)),
            thinking_as_text: flag("requiresThinkingAsText", false),
            reasoning_content: flag("requiresReasoningContentOnAssistantMessages", endpoint == DeepSeek),
            thinking: fields.str("thinkingFormat").and_then(|word| ThinkingFormat::parse(&word)).unwrap_or(
                match endpoint {
                    DeepSeek => ThinkingFormat::DeepSeek,
                    Zai => ThinkingFormat::Zai,
                    Together => ThinkingFormat::Together,
                    AntLing => ThinkingFormat::AntLing,
                    OpenRouter => ThinkingFormat::OpenRouter,
                    _ => ThinkingFormat::OpenAi,
                },
            ),
            template_kwargs: object("chatTemplateKwargs"),
            template_args: object("chatTemplateArgs"),
            budget_field: match fields.str("thinkingTokenBudgetField").as_deref() {
                Some("thinking_token_budget") => Some("thinking_token_budget"),
                Some("thinking_budget") => Some("thinking_budget"),
                Some("thinking_budget_tokens") => Some("thinking_budget_tokens"),
                _ => flag("supportsThinkingTokenBudget", false).then_some("thinking_token_budget"),
            },
            strict: flag("supportsStrictMode", !is(&[Moonshot, Together, CloudflareGateway, Nvidia, Local])),
            tool_stream: flag("zaiToolStream", false),
            cache_marks: match fields.str("cacheControlFormat") {
                Some(format) => format == "anthropic",
                None => routed("anthropic/"),
            },
            long_cache: flag(
                "supportsLongCacheRetention",
                !is(&[Together, CloudflareWorkers, CloudflareGateway, Nvidia, AntLing, Local]),
            ),
            affinity: if flag("sendSessionAffinityHeaders", endpoint == OpenRouter) { affinity } else { &[] },
            router: object("openRouterRouting"),
            gateway: object("vercelGatewayRouting"),
            priority: fields.get("vllmPriority").and_then(|text| text.parse().ok()),
            cache_key: endpoint == OpenAi,
            empty_tools: !is(&[OpenAi, Local]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(provider: &str, base_url: &str, id: &str, compat: &str) -> Compat {
        let spec = format!(
            r#"{{"id":"{id}","provider":"{provider}","baseUrl":"{base_url}","reasoning":true,"compat":{compat}}}"#
        );
        Compat::of(&Model::from_spec(serde_json::from_str(&spec).unwrap()))
    }

    /// The differences in one line.
    fn line(compat: &Compat) -> String {
        let mut words: Vec<String> = Vec::new();
        for (name, is) in [
            ("store", compat.store),
            ("developer", compat.developer_role),
            ("effort", compat.effort),
            ("strict", compat.strict),
            ("long", compat.long_cache),
            ("content", compat.reasoning_content),
            ("marks", compat.cache_marks),
            ("key", compat.cache_key),
            ("empty", compat.empty_tools),
        ] {
            if is {
                words.push(name.to_owned());
            }
        }
        words.push(compat.max_tokens.replace("max_", ""));
        words.push(format!("{:?}", compat.thinking));
        words.extend(compat.affinity.first().map(|name| (*name).to_owned()));
        words.join(" ")
    }

    #[test]
    fn endpoints_are_known_by_id_or_address() {
        let openai = "store developer effort strict long key completion_tokens OpenAi";
        let other = "store developer effort strict long empty completion_tokens OpenAi";
        let local = "effort tokens OpenAi";
        for (provider, base_url, id, want) in [
            ("openai", "https://api.openai.com/v1", "m", openai),
            ("mine", "https://API.openai.com/v1", "m", openai),
            ("mine", "https://llm.example.com/v1", "m", other),
            (
                "openrouter",
                "",
                "m/x",
                "store effort strict long empty completion_tokens OpenRouter x-session-id",
            ),
            (
                "openrouter",
                "",
                "openai/x",
                "store developer effort strict long empty completion_tokens OpenRouter x-session-id",
            ),
            (
                "mine",
                "https://openrouter.ai/api/v1",
                "anthropic/x",
                "store developer effort strict long marks empty completion_tokens OpenRouter x-session-id",
            ),
            ("deepseek", "https://api.deepseek.com", "m", "effort strict long content empty tokens DeepSeek"),
            ("mine", "https://open.bigmodel.cn/api", "m", "strict long empty tokens Zai"),
            ("mine", "https://api.together.xyz/v1", "m", "empty tokens Together"),
            ("moonshotai-cn", "", "m", "long empty tokens OpenAi"),
            ("cloudflare-workers-ai", "", "m", "effort strict empty completion_tokens OpenAi"),
            ("cloudflare-ai-gateway", "", "m", "empty tokens OpenAi"),
            ("nvidia", "", "m", "empty tokens OpenAi"),
            ("ant-ling", "", "m", "strict empty tokens AntLing"),
            ("cerebras", "", "m", "effort strict long empty completion_tokens OpenAi"),
            ("xai", "", "m", "strict long empty completion_tokens OpenAi"),
            ("mine", "https://llm.chutes.ai/v1", "m", "effort strict long empty tokens OpenAi"),
            ("opencode", "", "m", "effort strict long empty completion_tokens OpenAi"),
            ("ollama", "https://gpu.example.com/v1", "m", local),
            ("mine", "http://localhost:11434/v1", "m", local),
            ("mine", "http://127.0.0.1:8080/v1", "m", local),
            ("mine", "http://[::1]:8080/v1", "m", local),
            ("mine", "http://192.168.1.9:1234/v1", "m", local),
            ("mine", "http://gpu-box:8000/v1", "m", local),
            ("openai", "http://localhost:4000/v1", "m", openai),
        ] {
            assert_eq!(line(&of(provider, base_url, id, "{}")), want, "{provider} {base_url} {id}");
        }
    }

    #[test]
    fn keys_override_one_by_one() {
        let own = r#"{"supportsStore":true,"supportsDeveloperRole":true,"supportsReasoningEffort":false,"supportsStrictMode":true,
            "supportsLongCacheRetention":true,"requiresReasoningContentOnAssistantMessages":true,"cacheControlFormat":"anthropic",
            "maxTokensField":"max_completion_tokens","thinkingFormat":"qwen","sendSessionAffinityHeaders":true,"sessionAffinityFormat":"openai-nosession"}"#;
        assert_eq!(
            line(&of("ollama", "", "m", own)),
            "store developer strict long content marks completion_tokens Qwen x-client-request-id"
        );
        // What is null, of another type or unknown says nothing.
        let nothing = r#"{"supportsStore":null,"supportsStrictMode":"yes","maxTokensField":7,"thinkingFormat":"new","openRouterRouting":[],"x":1}"#;
        let compat = of("ollama", "", "m", nothing);
        assert_eq!(line(&compat), "effort tokens OpenAi");
        assert!(compat.router.is_none() && compat.budget_field.is_none());
        for (text, want) in [
            (r#"{"supportsThinkingTokenBudget":true}"#, Some("thinking_token_budget")),
            (r#"{"thinkingTokenBudgetField":"thinking_budget"}"#, Some("thinking_budget")),
            (r#"{"thinkingTokenBudgetField":"thinking_budget_tokens"}"#, Some("thinking_budget_tokens")),
        ] {
            assert_eq!(of("p", "", "m", text).budget_field, want);
        }
        assert!(of("openrouter", "", "m", r#"{"sendSessionAffinityHeaders":false}"#).affinity.is_empty());
    }
}
