//! Whole bodies, to the byte.

use std::sync::Arc;

use super::*;
use crate::proof::{request, tools};

const PLAIN: &str = r#"{"id":"m","provider":"mistral","api":"mistral-conversations","input":["text","image"],"contextWindow":200000,"maxTokens":32000}"#;

fn written(request: &ModelRequest, cache: CacheRetention) -> String {
    String::from_utf8(body(request, cache, None)).unwrap()
}

#[test]
fn a_whole_body() {
    let mut request = request(
        PLAIN,
        &[
            r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#,
            r#"{"role":"assistant","provider":"mistral","api":"mistral-conversations","model":"m","stopReason":"toolUse","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"so"},{"type":"text","text":" "},{"type":"toolCall","id":"abcdef123","name":"one","arguments":{"z":1}},{"type":"toolCall","id":"abcdef124","name":"two","arguments":null}]}"#,
            r#"{"role":"toolResult","toolCallId":"abcdef123","isError":true,"content":[{"type":"text","text":"l1"},{"type":"text","text":"l2"}]}"#,
            r#"{"role":"toolResult","toolCallId":"abcdef124","content":[{"type":"image","data":"aQ==","mimeType":"image/jpeg"}]}"#,
            r#"{"role":"user","content":"next"}"#,
        ],
    );
    request.system = Arc::from("Be good.");
    request.tools = tools();
    let want = concat!(
        r#"{"model":"m","stream":true,"messages":[{"role":"system","content":"Be good."},"#,
        r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":"data:image/png;base64,aGk="}]},"#,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"so"}],"tool_calls":[{"id":"abcdef123","type":"function","function":{"name":"one","arguments":"{\"z\":1}"}},{"id":"abcdef124","type":"function","function":{"name":"two","arguments":"{}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"abcdef123","name":"one","content":[{"type":"text","text":"[tool error] l1\nl2"}]},"#,
        r#"{"role":"tool","tool_call_id":"abcdef124","name":"two","content":[{"type":"text","text":"(see attached image)"},{"type":"image_url","image_url":"data:image/jpeg;base64,aQ=="}]},"#,
        r#"{"role":"assistant","content":"I have the results."},{"role":"user","content":"next"}],"#,
        r#""tools":[{"type":"function","function":{"name":"one","description":"does one","parameters":{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":{"type":"string"}}},"strict":false}},"#,
        r#"{"type":"function","function":{"name":"two","description":"does two","parameters":{"type":"object","properties":{"k":{"const":"v"}}},"strict":false}}],"#,
        r#""max_tokens":32000,"prompt_cache_key":"session"}"#,
    );
    assert_eq!(written(&request, CacheRetention::Short), want);
    assert!(!written(&request, CacheRetention::None).contains("prompt_cache_key"));
}

#[test]
fn ids_of_others_are_nine_letters_and_stay_paired() {
    let request = request(
        PLAIN,
        &[
            r#"{"role":"assistant","provider":"anthropic","api":"anthropic-messages","model":"x","stopReason":"toolUse","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"s"},{"type":"toolCall","id":"toolu_01ABC","name":"one","arguments":{}}]}"#,
            r#"{"role":"toolResult","toolCallId":"toolu_01ABC","content":[]}"#,
        ],
    );
    let body: serde_json::Value = serde_json::from_str(&written(&request, CacheRetention::None)).unwrap();
    let id = body["messages"][0]["tool_calls"][0]["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(body["messages"][1]["tool_call_id"], id);
    assert_eq!(body["messages"][0]["content"][0]["type"], "text");
    assert_eq!(body["messages"][1]["content"][0]["text"], NO_OUTPUT);
}

#[test]
fn thinking_follows_model_and_level() {
    use ThinkingLevel::{High, Medium, Off};
    let mapped = r#""reasoning":true,"thinkingLevelMap":{"off":"none","medium":null,"high":"high"}"#;
    let always = r#""reasoning":true,"thinkingLevelMap":{"off":null,"high":"high"}"#;
    for (extra, level, want) in [
        (r#""reasoning":false"#, Off, "\"max_tokens\":9}"),
        (r#""reasoning":true"#, Off, "\"max_tokens\":9}"),
        (r#""reasoning":true"#, High, r#","prompt_mode":"reasoning"}"#),
        (mapped, Off, r#","reasoning_effort":"none"}"#),
        (mapped, High, r#","reasoning_effort":"high"}"#),
        (mapped, Medium, r#","reasoning_effort":"high"}"#),
        (always, Off, "\"max_tokens\":9}"),
    ] {
        let mut request = request(&format!(r#"{{"id":"m","contextWindow":0,"maxTokens":9,{extra}}}"#), &[]);
        request.thinking = level;
        let body = written(&request, CacheRetention::None);
        assert!(body.ends_with(want), "{extra} {level:?}: {body}");
    }
}
