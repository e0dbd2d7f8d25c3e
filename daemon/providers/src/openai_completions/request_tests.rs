//! Whole bodies, and what each difference of an endpoint changes.

use super::*;
use atomic_protocol::message::Message;
use atomic_protocol::model::ModelSpec;
use std::sync::Arc;

/// A request to a model like `spec` about `messages`.
pub(in crate::openai_completions) fn request(spec: &str, messages: &[&str]) -> ModelRequest {
    let spec: ModelSpec = serde_json::from_str(spec).unwrap();
    ModelRequest {
        model: Arc::new(Model::from_spec(spec)),
        thinking: ThinkingLevel::Off,
        system: Arc::from(""),
        messages: messages.iter().map(|text| Message::parse(&Raw::parse(text).unwrap()).unwrap()).collect(),
        tools: Arc::from([]),
        session_id: "session".into(),
    }
}

fn tools() -> Arc<[ToolSpec]> {
    let tool = |name: &str, schema: &str| ToolSpec {
        name: name.into(),
        description: format!("does {name}"),
        parameters: Raw::parse(schema).unwrap(),
        snippet: None,
        guidelines: Vec::new(),
        sequential: false,
    };
    Arc::from([
        tool("one", r#"{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}"#),
        tool("two", r#"{"type":"object"}"#),
    ])
}

fn written(request: &ModelRequest, cache: CacheRetention, sampling: Option<&str>) -> String {
    let sampling = sampling.map(|text| Raw::parse(text).unwrap());
    let compat = Compat::of(&request.model);
    let name = &request.model.id;
    let body = body(request, &compat, cache, name, &RequestOptions::default(), sampling.as_ref());
    let text = String::from_utf8(body).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    text
}

/// The conversation of a body.
fn conversation(spec: &str, messages: &[&str]) -> String {
    let body = written(&request(spec, messages), CacheRetention::Short, None);
    let fields = Fields::parse(&body).unwrap();
    fields.get("messages").unwrap().to_owned()
}

/// An unknown remote endpoint, like OpenAI's own as far as anybody knows.
const PLAIN: &str = r#"{"id":"m","provider":"p","api":"openai-completions","baseUrl":"https://llm.example/v1","input":["text","image"],"contextWindow":200000,"maxTokens":32000}"#;

/// `PLAIN` with these keys as well.
fn with(extra: &str) -> String {
    PLAIN.replacen('{', &format!("{{{extra},"), 1)
}

const USER: &str = r#"{"role":"user","content":"hi"}"#;

fn answer(content: &str) -> String {
    format!(
        r#"{{"role":"assistant","provider":"p","api":"openai-completions","model":"m","stopReason":"toolUse","content":[{content}]}}"#
    )
}

fn call(id: &str) -> String {
    format!(r#"{{"type":"toolCall","id":"{id}","name":"one","arguments":{{"z":1.0,"a":"\ud800"}}}}"#)
}

#[test]
fn a_plain_body() {
    let mut request = request(PLAIN, &[USER]);
    let bare = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true},"store":false,"max_completion_tokens":32000}"#;
    assert_eq!(written(&request, CacheRetention::Short, None), bare);
    request.system = Arc::from("Be good.");
    let local = PLAIN.replace("https://llm.example", "http://localhost:11434");
    request.model = Arc::new(Model::from_spec(serde_json::from_str(&local).unwrap()));
    assert_eq!(
        written(&request, CacheRetention::Long, None),
        r#"{"model":"m","messages":[{"role":"system","content":"Be good."},{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":32000}"#
    );
}

#[test]
fn a_whole_body() {
    let mut request = request(
        PLAIN,
        &[
            r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"text","text":""},{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#,
            &answer(&format!(
                r#"{{"type":"thinking","thinking":"hm","thinkingSignature":"reasoning"}},{{"type":"thinking","thinking":"so","thinkingSignature":"reasoning"}},{{"type":"text","text":"I will"}},{{"type":"text","text":" "}},{},{},{}"#,
                call("c|1"),
                call("functions.one:0"),
                call("c3")
            )),
            r#"{"role":"toolResult","toolCallId":"c|1","content":[{"type":"text","text":"l1"},{"type":"text","text":"l2"},{"type":"image","data":"aQ==","mimeType":"image/jpeg"}]}"#,
            r#"{"role":"toolResult","toolCallId":"functions.one:0","isError":true,"content":[{"type":"image","data":"ag==","mimeType":"image/gif"}]}"#,
            r#"{"role":"toolResult","toolCallId":"c3","content":[]}"#,
            &answer(r#"{"type":"text","text":"done"}"#),
            &answer(r#"{"type":"thinking","thinking":"only this"}"#),
            r#"{"role":"user","content":"next"}"#,
        ],
    );
    request.system = Arc::from("Be good.");
    request.tools = tools();
    let calls = |id: &str| {
        format!(
            r#"{{"id":"{id}","type":"function","function":{{"name":"one","arguments":"{{\"z\":1.0,\"a\":\"\\uFFFD\"}}"}}}}"#
        )
    };
    let want = [
        r#"{"model":"m","messages":[{"role":"system","content":"Be good."},"#,
        r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]},"#,
        r#"{"role":"assistant","content":"I will","reasoning":"hm\nso","tool_calls":["#,
        &calls("c_1"),
        ",",
        &calls("functions.one:0"),
        ",",
        &calls("c3"),
        "]},",
        r#"{"role":"tool","tool_call_id":"c_1","content":"l1\nl2"},"#,
        r#"{"role":"tool","tool_call_id":"functions.one:0","content":"(see attached image)"},"#,
        r#"{"role":"tool","tool_call_id":"c3","content":"(no tool output)"},"#,
        r#"{"role":"user","content":[{"type":"text","text":"Attached image(s) from tool result:"},{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,aQ=="}},{"type":"image_url","image_url":{"url":"data:image/gif;base64,ag=="}}]},"#,
        r#"{"role":"assistant","content":"done"},{"role":"user","content":"next"}],"#,
        r#""stream":true,"stream_options":{"include_usage":true},"store":false,"max_completion_tokens":32000,"#,
        r#""tools":[{"type":"function","function":{"name":"one","description":"does one","parameters":{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}},"strict":false}},"#,
        r#"{"type":"function","function":{"name":"two","description":"does two","parameters":{"type":"object"},"strict":false}}]}"#,
    ];
    assert_eq!(written(&request, CacheRetention::Short, None), want.concat());
    // What stands before the newest message does not depend on it.
    let head = written(&request, CacheRetention::Short, None);
    request.messages.pop();
    let shorter = written(&request, CacheRetention::Short, None);
    let messages = |body: &str| Fields::parse(body).unwrap().get("messages").unwrap().to_owned();
    assert!(messages(&head).starts_with(messages(&shorter).trim_end_matches(']')));
}

#[test]
fn thinking_goes_back_as_it_came() {
    let details = r#"[{\"type\":\"reasoning.text\",\"text\":\"hm\",\"signature\":\"s\"}]"#;
    let thought = |signature: &str| {
        format!(
            r#"{{"type":"thinking","thinking":"hm","thinkingSignature":"{signature}"}},{{"type":"text","text":"t"}}"#
        )
    };
    let empty = r#""compat":{"requiresReasoningContentOnAssistantMessages":true},"reasoning":true"#;
    for (extra, content, want) in [
        (
            r#""x":1"#,
            thought("reasoning_content"),
            r#"{"role":"assistant","content":"t","reasoning_content":"hm"}"#,
        ),
        (
            r#""x":1"#,
            thought("reasoning_text"),
            r#"{"role":"assistant","content":"t","reasoning_text":"hm"}"#,
        ),
        (
            r#""x":1"#,
            thought(details),
            r#"{"role":"assistant","content":"t","reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"s"}]}"#,
        ),
        // Signed without text, and calls without text.
        (
            r#""x":1"#,
            format!(r#"{{"type":"thinking","thinking":"","thinkingSignature":"{details}"}},{}"#, call("c")),
            r#"{"role":"assistant","content":null,"reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"s"}],"tool_calls":[{"id":"c","#,
        ),
        // From the text, from nowhere, from elsewhere: it stays away.
        (r#""x":1"#, thought(""), r#"{"role":"assistant","content":"t"}"#),
        (r#""x":1"#, thought("EqQBCgIY"), r#"{"role":"assistant","content":"t"}"#),
        (r#""x":1"#, thought("[broken"), r#"{"role":"assistant","content":"t"}"#),
        (r#""x":1"#, thought("[]"), r#"{"role":"assistant","content":"t"}"#),
        (
            r#""compat":{"requiresThinkingAsText":true}"#,
            thought("reasoning"),
            r#"{"role":"assistant","content":"hm\n\nt"}"#,
        ),
        (
            empty,
            thought("reasoning_content"),
            r#"{"role":"assistant","content":"t","reasoning_content":"hm"}"#,
        ),
        (empty, thought(""), r#"{"role":"assistant","content":"t","reasoning_content":""}"#),
        (
            &empty.replace("\"reasoning\":true", "\"reasoning\":false"),
            thought(""),
            r#"{"role":"assistant","content":"t"}"#,
        ),
    ] {
        let body = conversation(&with(extra), &[USER, &answer(&content)]);
        let start = body.find(r#"{"role":"assistant""#).unwrap();
        assert!(body[start..].starts_with(want), "{extra} {content}: {body}");
    }
    // Another model's is text, and its ids fit.
    let long = "x".repeat(300);
    let foreign = answer(&format!("{},{}", thought("reasoning"), call(&format!("call_1|fc_{long}"))));
    let foreign = foreign.replace(r#""model":"m""#, r#""model":"other""#);
    let body = conversation(PLAIN, &[USER, &foreign]);
    let id = format!("call_1_fc_{}", &long[..30]);
    assert!(body.contains(r#""content":"hm\n\nt","tool_calls":[{"id":""#), "{body}");
    assert_eq!(body.matches(&format!(r#"id":"{id}""#)).count(), 2, "call and result: {body}");
}

#[test]
fn endpoints_differ() {
    let history = [
        USER,
        &answer(&call("c1")),
        r#"{"role":"toolResult","toolCallId":"c1","toolName":"one","content":[{"type":"text","text":"r"},{"type":"image","data":"aQ==","mimeType":"image/png"}]}"#,
        r#"{"role":"user","content":"next"}"#,
    ];
    for (extra, cache, with_tools, has, has_not) in [
        (
            r#""reasoning":true"#,
            CacheRetention::Short,
            true,
            &[r#""role":"developer""#][..],
            &["prompt_cache"][..],
        ),
        (
            r#""reasoning":false"#,
            CacheRetention::Short,
            false,
            &[r#""role":"system""#, r#""tools":[]"#],
            &["strict"],
        ),
        (
            r#""reasoning":true,"compat":{"supportsDeveloperRole":false,"supportsStore":false,"supportsUsageInStreaming":false,"supportsStrictMode":false,"maxTokensField":"max_tokens","requiresToolResultName":true,"zaiToolStream":true,"vllmPriority":3}"#,
            CacheRetention::Short,
            true,
            &[
                r#""role":"system""#,
                r#""max_tokens":"#,
                r#""tool_call_id":"c1","name":"one","content":"r""#,
                r#"}],"tool_stream":true"#,
                r#""priority":3"#,
            ],
            &["store", "stream_options", "strict", "max_completion"],
        ),
        (
            r#""compat":{"requiresAssistantAfterToolResult":true}"#,
            CacheRetention::Short,
            true,
            &[
                r#""content":"r"},{"role":"assistant","content":"Tool results received."},{"role":"user","content":[{"type":"text","text":"Attached"#,
                r#"{"role":"assistant","content":"","tool_calls""#,
            ],
            &[],
        ),
        (
            r#""x":1"#,
            CacheRetention::Long,
            true,
            &[r#""prompt_cache_key":"session","prompt_cache_retention":"24h""#],
            &["cache_control"],
        ),
        (
            r#""compat":{"supportsLongCacheRetention":false}"#,
            CacheRetention::Long,
            true,
            &[],
            &["prompt_cache"],
        ),
        (
            r#""compat":{"openRouterRouting":{"only":["a"],"order":["b"]},"vercelGatewayRouting":{"order":["c"],"x":1}}"#,
            CacheRetention::Short,
            true,
            &[r#""provider":{"only":["a"],"order":["b"]},"providerOptions":{"gateway":{"order":["c"]}}}"#],
            &[],
        ),
        (
            r#""compat":{"cacheControlFormat":"anthropic"}"#,
            CacheRetention::Short,
            true,
            &[
                r#"{"role":"system","content":[{"type":"text","text":"Be good.","cache_control":{"type":"ephemeral"}}]}"#,
                r#"{"role":"user","content":[{"type":"text","text":"next","cache_control":{"type":"ephemeral"}}]}],"stream""#,
                r#""strict":false},"cache_control":{"type":"ephemeral"}}]"#,
            ],
            &["ttl", "prompt_cache"],
        ),
        (
            r#""compat":{"cacheControlFormat":"anthropic"}"#,
            CacheRetention::Long,
            true,
            &[r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#],
            &[],
        ),
        (
            r#""compat":{"cacheControlFormat":"anthropic"}"#,
            CacheRetention::None,
            true,
            &[],
            &["cache_control"],
        ),
    ] {
        let mut request = request(&with(extra), &history);
        request.system = Arc::from("Be good.");
        if with_tools {
            request.tools = tools();
        }
        let body = written(&request, cache, None);
        for part in has {
            assert!(body.contains(part), "{extra}: {part} in {body}");
        }
        for part in has_not {
            assert!(!body.contains(part), "{extra}: no {part} in {body}");
        }
        if extra.contains("cacheControl") && cache != CacheRetention::None {
            assert_eq!(body.matches("cache_control").count(), 3, "{body}");
        }
    }
    // The newest text may be a tool's, or stand before an image.
    let marked = with(r#""compat":{"cacheControlFormat":"anthropic"}"#);
    let body = conversation(&marked, &history[..3]);
    assert!(body.contains(r#"{"type":"text","text":"Attached image(s) from tool result:","cache_control":{"type":"ephemeral"}},{"type":"image_url""#), "{body}");
    // OpenAI itself: a cache by name, no empty list of tools, short ids.
    let openai = with(r#""x":1"#).replace(r#""provider":"p""#, r#""provider":"openai""#);
    let mut request = request(&openai, &history);
    request.session_id = "ä".repeat(70);
    let body = written(&request, CacheRetention::Short, None);
    assert!(body.contains(&format!(r#""prompt_cache_key":"{}"}}"#, "ä".repeat(64))), "{body}");
    assert!(!body.contains("tools\":[]"), "{body}");
    assert!(!written(&request, CacheRetention::None, None).contains("prompt_cache_key"));
}

#[test]
fn thinking_follows_format_and_level() {
    use ThinkingLevel::{High, Low, Minimal, Off};
    let map = r#","thinkingLevelMap":{"off":"none","low":"light","minimal":null}"#;
    let always = r#","thinkingLevelMap":{"off":null}"#;
    let kwargs = r#","chatTemplateKwargs":{"a":1,"think":{"$var":"thinking.enabled"},"effort":{"$var":"thinking.effort","omitWhenOff":true},"budget":{"$var":"thinking.budget"}}"#;
    let args = r#","chatTemplateArgs":{"enable_thinking":{"$var":"thinking.enabled"}}"#;
    for (format, level_map, more, level, want) in [
        ("openai", "", "", High, r#","reasoning_effort":"high""#),
        ("openai", "", "", Off, ""),
        ("openai", map, "", Off, r#","reasoning_effort":"none""#),
        ("openai", map, "", Low, r#","reasoning_effort":"light""#),
        ("openai", "", r#","supportsReasoningEffort":false"#, High, ""),
        ("openai", map, r#","supportsReasoningEffort":false"#, Off, ""),
        ("openrouter", "", "", High, r#","reasoning":{"effort":"high"}"#),
        ("openrouter", "", "", Off, r#","reasoning":{"effort":"none"}"#),
        ("openrouter", always, "", Off, ""),
        ("openrouter", map, "", Low, r#","reasoning":{"effort":"light"}"#),
        ("deepseek", "", "", High, r#","thinking":{"type":"enabled"},"reasoning_effort":"high""#),
        ("deepseek", "", r#","supportsReasoningEffort":false"#, High, r#","thinking":{"type":"enabled"}"#),
        ("deepseek", map, "", Off, r#","thinking":{"type":"disabled"}"#),
        ("deepseek", always, "", Off, ""),
        (
            "zai",
            "",
            "",
            High,
            r#","thinking":{"type":"enabled","clear_thinking":false},"reasoning_effort":"high""#,
        ),
        ("zai", map, "", Minimal, r#","thinking":{"type":"enabled","clear_thinking":false}"#),
        ("zai", map, "", Off, r#","thinking":{"type":"disabled"}"#),
        ("qwen", "", "", High, r#","enable_thinking":true,"reasoning_effort":"high""#),
        ("qwen", "", r#","supportsReasoningEffort":false"#, High, r#","enable_thinking":true"#),
        ("qwen", "", "", Off, r#","enable_thinking":false"#),
        (
            "qwen-chat-template",
            "",
            "",
            High,
            r#","chat_template_kwargs":{"enable_thinking":true,"preserve_thinking":true}"#,
        ),
        (
            "qwen-chat-template",
            "",
            "",
            Off,
            r#","chat_template_kwargs":{"enable_thinking":false,"preserve_thinking":true}"#,
        ),
        (
            "chat-template",
            "",
            kwargs,
            Low,
            r#","chat_template_kwargs":{"a":1,"think":true,"effort":"low","budget":2048}"#,
        ),
        ("chat-template", map, kwargs, Off, r#","chat_template_kwargs":{"a":1,"think":false}"#),
        ("chat-template", "", "", High, ""),
        (
            "baseten",
            map,
            args,
            Off,
            r#","chat_template_args":{"enable_thinking":false},"reasoning_effort":"none""#,
        ),
        (
            "baseten",
            "",
            args,
            High,
            r#","chat_template_args":{"enable_thinking":true},"reasoning_effort":"high""#,
        ),
        ("together", "", "", High, r#","reasoning":{"enabled":true},"reasoning_effort":"high""#),
        ("together", "", "", Off, r#","reasoning":{"enabled":false}"#),
        ("ant-ling", map, "", Low, r#","reasoning":{"effort":"light"}"#),
        ("ant-ling", map, "", High, ""),
        ("ant-ling", map, "", Off, ""),
        ("string-thinking", "", "", High, r#","thinking":"high""#),
        ("string-thinking", map, "", Off, r#","thinking":"none""#),
        ("string-thinking", always, "", Off, ""),
        (
            "openai",
            "",
            r#","thinkingTokenBudgetField":"thinking_budget""#,
            High,
            r#","reasoning_effort":"high","thinking_budget":16384"#,
        ),
        ("openai", "", r#","thinkingTokenBudgetField":"thinking_budget""#, Off, ""),
    ] {
        let spec =
            with(&format!(r#""reasoning":true,"compat":{{"thinkingFormat":"{format}"{more}}}{level_map}"#));
        let mut asked = request(&spec, &[USER]);
        asked.thinking = level;
        let body = written(&asked, CacheRetention::None, None);
        let tail = body.split_once(r#""max_completion_tokens":32000"#).unwrap().1;
        assert_eq!(tail, format!("{want}}}"), "{format} {level_map} {more} {level:?}");
        // A model that does not think is not told how.
        let plain = spec.replace(r#""reasoning":true"#, r#""reasoning":false"#);
        let body = written(&request(&plain, &[USER]), CacheRetention::None, None);
        assert!(body.ends_with(r#""max_completion_tokens":32000}"#), "{body}");
    }
}

#[test]
fn the_users_own_fields_win() {
    let own = r#"{"temperature": 0.60, "store":true, "top_k":20, "temperature":1, "we\"ird":1}"#;
    let body = written(&request(PLAIN, &[USER]), CacheRetention::Short, Some(own));
    assert!(
        body.ends_with(r#""stream_options":{"include_usage":true},"max_completion_tokens":32000,"store":true,"top_k":20,"temperature":1}"#),
        "{body}"
    );
}

#[test]
fn data_that_needs_escapes_is_escaped() {
    let mut out = Vec::new();
    data_uri(&mut out, "image/\"png", "a\nb");
    assert_eq!(String::from_utf8(out).unwrap(), r#""data:image/\"png;base64,a\nb""#);
}
