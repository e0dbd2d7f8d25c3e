//! Whole bodies, to the byte.

use std::sync::Arc;

use super::*;
use crate::proof::{request, tools};

fn spec(id: &str) -> String {
    format!(
        r#"{{"id":"{id}","name":"x","provider":"amazon-bedrock","api":"bedrock-converse-stream","input":["text","image"],"contextWindow":200000,"maxTokens":32000}}"#
    )
}

fn written(request: &ModelRequest, cache: CacheRetention) -> String {
    String::from_utf8(body(request, cache, &[None; 4], &Env::default())).unwrap()
}

fn whole(id: &str) -> ModelRequest {
    let history = [
        r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"text","text":" "},{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"image","data":"aGk=","mimeType":"image/tiff"}]}"#,
        r#"{"role":"assistant","provider":"amazon-bedrock","api":"bedrock-converse-stream","model":"$ID","stopReason":"toolUse","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"sig"},{"type":"thinking","thinking":"[x]","thinkingSignature":"ZGF0YQ==","redacted":true},{"type":"thinking","thinking":"[x]","thinkingSignature":"not base64!","redacted":true},{"type":"thinking","thinking":"bare"},{"type":"text","text":""},{"type":"toolCall","id":"a|b","name":"one","arguments":{"z":1}},{"type":"toolCall","id":"c2","name":"two","arguments":null}]}"#,
        r#"{"role":"toolResult","toolCallId":"a|b","isError":true,"content":[{"type":"text","text":"l1"},{"type":"image","data":"aQ==","mimeType":"image/jpeg"}]}"#,
        r#"{"role":"toolResult","toolCallId":"c2","content":[]}"#,
    ]
    .map(|text| text.replace("$ID", id));
    let history: Vec<&str> = history.iter().map(String::as_str).collect();
    let mut request = request(&spec(id), &history);
    request.system = Arc::from("Be good.");
    request.tools = tools();
    request
}

#[test]
fn a_whole_body() {
    let request = whole("us.anthropic.claude-opus-4-5-20251101-v1:0");
    let want = concat!(
        r#"{"messages":[{"role":"user","content":[{"text":"look"},{"image":{"format":"png","source":{"bytes":"aGk="}}},{"text":"(image omitted: the provider does not take image/tiff)"}]},"#,
        r#"{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"hm","signature":"sig"}}},{"reasoningContent":{"redactedContent":"ZGF0YQ=="}},{"text":"bare"},"#,
        r#"{"toolUse":{"toolUseId":"a_b","name":"one","input":{"z":1}}},{"toolUse":{"toolUseId":"c2","name":"two","input":{}}}]},"#,
        r#"{"role":"user","content":[{"toolResult":{"toolUseId":"a_b","content":[{"text":"l1"}],"status":"error"}},{"toolResult":{"toolUseId":"c2","content":[{"text":"<empty>"}],"status":"success"}},"#,
        r#"{"text":"Images of the failed tool calls:"},{"image":{"format":"jpeg","source":{"bytes":"aQ=="}}},{"cachePoint":{"type":"default"}}]}],"#,
        r#""system":[{"text":"Be good."},{"cachePoint":{"type":"default"}}],"inferenceConfig":{"maxTokens":32000},"#,
        r#""toolConfig":{"tools":[{"toolSpec":{"name":"one","description":"does one","inputSchema":{"json":{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":{"type":"string"}}}}}},"#,
        r#"{"toolSpec":{"name":"two","description":"does two","inputSchema":{"json":{"type":"object","properties":{"k":{"const":"v"}}}}}}]}}"#,
    );
    assert_eq!(written(&request, CacheRetention::Short), want);
    assert!(!written(&request, CacheRetention::None).contains("cachePoint"));
    assert_eq!(written(&request, CacheRetention::Long).matches(r#""ttl":"1h""#).count(), 2);
}

#[test]
fn another_vendors_model_gets_no_signatures_and_images_in_place() {
    let body = written(&whole("qwen.qwen3-vl"), CacheRetention::Short);
    assert!(!body.contains("cachePoint") && !body.contains("signature"), "{body}");
    assert!(body.contains(r#"{"reasoningContent":{"reasoningText":{"text":"bare"}}}"#), "{body}");
    let result = r#"{"toolUseId":"a_b","content":[{"text":"l1"},{"image":{"format":"jpeg","source":{"bytes":"aQ=="}}}],"status":"error"}"#;
    assert!(body.contains(result), "{body}");
}

#[test]
fn roles_alternate() {
    let call = r#"{"role":"assistant","stopReason":"toolUse","content":[{"type":"toolCall","id":"c","name":"n","arguments":{}}]}"#;
    let body = written(
        &request(
            &spec("m"),
            &[
                r#"{"role":"user","content":"a"}"#,
                r#"{"role":"assistant","stopReason":"aborted","content":[{"type":"text","text":"gone"}]}"#,
                r#"{"role":"user","content":"b"}"#,
                call,
                r#"{"role":"user","content":"c"}"#,
            ],
        ),
        CacheRetention::None,
    );
    let want = concat!(
        r#"{"messages":[{"role":"user","content":[{"text":"a"},{"text":"b"}]},"#,
        r#"{"role":"assistant","content":[{"toolUse":{"toolUseId":"c","name":"n","input":{}}}]},"#,
        r#"{"role":"user","content":[{"toolResult":{"toolUseId":"c","content":[{"text":"No result provided"}],"status":"error"}},{"text":"c"}]}],"#
    );
    assert!(body.starts_with(want), "{body}");
}

#[test]
fn an_empty_prompt_has_a_placeholder() {
    let body = written(&request(&spec("m"), &[r#"{"role":"user","content":" "}"#]), CacheRetention::None);
    assert!(body.contains(r#"{"role":"user","content":[{"text":"<empty>"}]}"#), "{body}");
}

#[test]
fn thinking_follows_model_and_level() {
    use ThinkingLevel::{High, Max, Medium, Minimal, Off, Xhigh};
    let fields = |text: &str| format!(r#""additionalModelRequestFields":{{{text}}}}}"#);
    let budget = |tokens: u64| {
        fields(&format!(
            r#""thinking":{{"type":"enabled","budget_tokens":{tokens},"display":"summarized"}},"anthropic_beta":["interleaved-thinking-2025-05-14"]"#
        ))
    };
    let adaptive = |word: &str| {
        fields(&format!(
            r#""thinking":{{"type":"adaptive","display":"summarized"}},"output_config":{{"effort":"{word}"}}"#
        ))
    };
    let nothing = r#""inferenceConfig":{"maxTokens":32000}}"#.to_owned();
    for (id, extra, level, want) in [
        ("anthropic.claude-opus-4-5", "", High, budget(16_384)),
        ("anthropic.claude-opus-4-5", "", Off, nothing.clone()),
        ("anthropic.claude-opus-4-5", r#""maxTokens":2000,"#, High, r#""maxTokens":2000}}"#.into()),
        ("anthropic.claude-opus-4-7", r#""thinkingLevelMap":{"xhigh":"xhigh"},"#, Xhigh, adaptive("xhigh")),
        ("anthropic.claude-sonnet-5", "", Minimal, adaptive("low")),
        ("anthropic.claude-sonnet-5", "", Max, adaptive("high")),
        ("openai.gpt-oss-120b-1:0", "", Max, fields(r#""reasoning_effort":"high""#)),
        ("openai.gpt-5.6", "", Minimal, fields(r#""reasoning":{"effort":"low"}"#)),
        ("openai.gpt-5.6", "", Xhigh, fields(r#""reasoning":{"effort":"xhigh"}"#)),
        ("amazon.nova-pro-v1:0", "", Medium, nothing.clone()),
        (
            "us-gov.anthropic.claude-sonnet-5",
            "",
            High,
            fields(r#""thinking":{"type":"adaptive"},"output_config":{"effort":"high"}"#),
        ),
    ] {
        let base = if extra.contains("maxTokens") {
            spec(id).replace(r#","maxTokens":32000"#, "")
        } else {
            spec(id)
        };
        let spec = base.replacen('{', &format!(r#"{{"reasoning":true,{extra}"#), 1);
        let mut request = request(&spec, &[]);
        request.thinking = level;
        let body = written(&request, CacheRetention::None);
        assert!(body.ends_with(&want), "{id} {level:?}: {body}");
    }
}

#[test]
fn an_inference_profile_is_known_by_its_name_or_told() {
    let arn = "arn:aws:bedrock:eu-west-1:1:application-inference-profile/p";
    let of = |name: &str, env: &[(&str, &str)]| {
        let model = crate::proof::model(&spec(arn).replace(r#""name":"x""#, &format!(r#""name":"{name}""#)));
        let Traits { claude, adaptive, cache, .. } = Traits::of(&model, &env.iter().copied().collect());
        (claude, adaptive, cache)
    };
    assert_eq!(of("Mine", &[]), (false, false, false));
    assert_eq!(of("Claude Opus 4.7", &[]), (true, true, true));
    assert_eq!(of("Mine", &[("AWS_BEDROCK_FORCE_CACHE", "1")]), (false, false, true));
}
