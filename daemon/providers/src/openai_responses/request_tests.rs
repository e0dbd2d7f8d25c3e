//! Whole bodies, to the byte.

use super::*;
use std::sync::Arc;

use crate::proof::{request, tools};

const PLAIN: &str = r#"{"id":"m","provider":"openai","api":"openai-responses","input":["text","image"],"contextWindow":200000,"maxTokens":32000}"#;

fn written(request: &ModelRequest, cache: CacheRetention) -> String {
    let model = &request.model;
    String::from_utf8(body(request, &Compat::of(model), cache, &model.id, None)).unwrap()
}

const HISTORY: [&str; 6] = [
    r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"text","text":""},{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#,
    r#"{"role":"assistant","provider":"openai","api":"openai-responses","model":"m","stopReason":"toolUse","usage":{"input":10,"output":5},"content":[{"type":"thinking","thinking":"hm","thinkingSignature":"{\"id\":\"rs_1\",\"type\":\"reasoning\",\"encrypted_content\":\"e\"}"},{"type":"thinking","thinking":"unsigned"},{"type":"thinking","thinking":"foreign","thinkingSignature":"sig"},{"type":"text","text":"so","textSignature":"{\"v\":1,\"id\":\"msg_a\",\"phase\":\"commentary\"}"},{"type":"text","text":"old","textSignature":"msg_b"},{"type":"text","text":"bare"},{"type":"text","text":" "},{"type":"toolCall","id":"call_1|fc_1","name":"one","arguments":{"z":1,"a":"\ud800"}},{"type":"toolCall","id":"call_2|rs_9","name":"two","arguments":null},{"type":"toolCall","id":"call_3","name":"two","arguments":{}}]}"#,
    r#"{"role":"toolResult","toolCallId":"call_1|fc_1","content":[{"type":"text","text":"l1"},{"type":"text","text":"l2"}]}"#,
    r#"{"role":"toolResult","toolCallId":"call_2|rs_9","isError":true,"content":[{"type":"text","text":"see"},{"type":"image","data":"aQ==","mimeType":"image/jpeg"}]}"#,
    r#"{"role":"toolResult","toolCallId":"call_3","content":[]}"#,
    r#"{"role":"user","content":"next"}"#,
];

#[test]
fn a_whole_body() {
    let mut request = request(PLAIN, &HISTORY);
    request.system = Arc::from("Be good.");
    request.tools = tools();
    let want = concat!(
        r#"{"model":"m","input":[{"role":"system","content":"Be good."},"#,
        r#"{"role":"user","content":[{"type":"input_text","text":"look"},{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,aGk="}]},"#,
        r#"{"id":"rs_1","type":"reasoning","encrypted_content":"e"},"#,
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"so","annotations":[]}],"status":"completed","id":"msg_a","phase":"commentary"},"#,
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"old","annotations":[]}],"status":"completed","id":"msg_b"},"#,
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"bare","annotations":[]}],"status":"completed","id":"msg_1_5"},"#,
        r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"one","arguments":"{\"z\":1,\"a\":\"\\uFFFD\"}"},"#,
        r#"{"type":"function_call","call_id":"call_2","name":"two","arguments":"{}"},"#,
        r#"{"type":"function_call","call_id":"call_3","name":"two","arguments":"{}"},"#,
        r#"{"type":"function_call_output","call_id":"call_1","output":"l1\nl2"},"#,
        r#"{"type":"function_call_output","call_id":"call_2","output":[{"type":"input_text","text":"see"},{"type":"input_image","detail":"auto","image_url":"data:image/jpeg;base64,aQ=="}]},"#,
        r#"{"type":"function_call_output","call_id":"call_3","output":"(no tool output)"},"#,
        r#"{"role":"user","content":[{"type":"input_text","text":"next"}]}],"#,
        r#""stream":true,"prompt_cache_key":"session","store":false,"max_output_tokens":32000,"#,
        r#""tools":[{"type":"function","name":"one","description":"does one","parameters":{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":{"type":"string"}}}},"#,
        r#"{"type":"function","name":"two","description":"does two","parameters":{"type":"object","properties":{"k":{"const":"v"}}}}]}"#,
    );
    assert_eq!(written(&request, CacheRetention::Short), want);
    serde_json::from_str::<serde_json::Value>(want).unwrap();
}

/// Nothing is stored at the provider: an item that is only an id would be refused, and a call that names its item would
/// ask for the reasoning before it.
#[test]
fn reasoning_goes_back_only_if_it_says_all_by_itself() {
    for (item, goes, call) in [
        (r#"{"id":"rs_1","type":"reasoning","encrypted_content":"e"}"#, true, true),
        (r#"{"id":"rs_1","type":"reasoning","content":[{"type":"reasoning_text","text":"hm"}]}"#, true, true),
        (r#"{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}"#, false, false),
        (
            r#"{"id":"rs_1","type":"reasoning","summary":[],"content":[],"encrypted_content":null}"#,
            false,
            false,
        ),
        (r#"{"id":"rs_1","type":"reasoning","encrypted_content":""}"#, false, false),
        (r#"{"id":"rs_1","type":"message","encrypted_content":"e"}"#, false, true),
        ("sig", false, true),
    ] {
        let signature = serde_json::to_string(item).unwrap();
        let answer = format!(
            r#"{{"role":"assistant","provider":"openai","api":"openai-responses","model":"m","stopReason":"toolUse","content":[{{"type":"thinking","thinking":"hm","thinkingSignature":{signature}}},{{"type":"toolCall","id":"call_1|fc_1","name":"one","arguments":{{}}}}]}}"#
        );
        let result = r#"{"role":"toolResult","toolCallId":"call_1|fc_1","content":[]}"#;
        let body = written(&request(PLAIN, &[&answer, result]), CacheRetention::Short);
        assert_eq!((body.contains("rs_1"), body.contains(r#""id":"fc_1""#)), (goes, call), "{item}: {body}");
        assert_eq!(body.matches(r#""call_id":"call_1""#).count(), 2, "{body}");
    }
}

#[test]
fn another_model_gets_words_and_no_items() {
    let mut request = request(&PLAIN.replace(r#""id":"m""#, r#""id":"other""#), &HISTORY[1..2]);
    request.messages.push(crate::proof::request(PLAIN, &HISTORY[2..3]).messages.remove(0));
    let body = written(&request, CacheRetention::None);
    assert!(!body.contains("rs_1") && !body.contains("fc_1") && !body.contains("msg_a"), "{body}");
    assert!(!body.contains("phase") && body.contains(r#""text":"hm""#), "{body}");
    assert_eq!(body.matches(r#""call_id":"call_1""#).count(), 2, "{body}");
}

#[test]
fn endpoints_differ() {
    let body = |compat: &str, cache| {
        let spec =
            PLAIN.replace(r#""id":"m","#, &format!(r#""id":"m","reasoning":true,"compat":{{{compat}}},"#));
        let mut request = request(&spec, &[r#"{"role":"user","content":"hi"}"#]);
        request.system = Arc::from("s");
        request.tools = tools();
        written(&request, cache)
    };
    let (none, short, long) = (CacheRetention::None, CacheRetention::Short, CacheRetention::Long);
    let key = r#""prompt_cache_key":"session""#;
    for (compat, cache, has, lacks) in [
        (
            "",
            short,
            vec![r#""role":"developer""#, key, r#""max_output_tokens":"#],
            vec!["strict", "retention", "options"],
        ),
        (r#""supportsDeveloperRole":false"#, short, vec![r#""role":"system""#], vec!["developer"]),
        (r#""supportsStrictMode":true"#, short, vec![r#""strict":false}"#], vec![]),
        (r#""promptCacheKeyMode":"disabled""#, short, vec![], vec!["prompt_cache_key"]),
        (r#""supportsMaxOutputTokens":false"#, short, vec![], vec!["max_output_tokens"]),
        (r#""supportsReasoningEffort":false"#, short, vec![], vec!["reasoning"]),
        ("", none, vec![], vec!["prompt_cache"]),
        ("", long, vec![key, r#""prompt_cache_retention":"24h""#], vec!["options"]),
        (r#""supportsLongCacheRetention":false"#, long, vec![key], vec!["retention"]),
        (
            r#""supportsExplicitPromptCacheMode":true"#,
            long,
            vec![r#""prompt_cache_options":{"ttl":"30m"}"#],
            vec!["retention"],
        ),
        (
            r#""supportsExplicitPromptCacheMode":true"#,
            none,
            vec![r#""prompt_cache_options":{"mode":"explicit"}"#],
            vec!["key"],
        ),
        (r#""supportsExplicitPromptCacheMode":true"#, short, vec![key], vec!["options"]),
    ] {
        let body = body(compat, cache);
        for text in has {
            assert!(body.contains(text), "{compat} {cache:?} {text}: {body}");
        }
        for text in lacks {
            assert!(!body.contains(text), "{compat} {cache:?} {text}: {body}");
        }
    }
}

#[test]
fn thinking_follows_model_and_level() {
    use ThinkingLevel::{High, Off, Xhigh};
    let include = r#","include":["reasoning.encrypted_content"]}"#;
    let effort = |word: &str| format!(r#","reasoning":{{"effort":"{word}","summary":"auto"}}{include}"#);
    for (extra, level, want) in [
        (r#""provider":"p","reasoning":false"#, Off, r#":16"#.to_owned() + "}"),
        (r#""provider":"p","reasoning":true"#, Off, r#","reasoning":{"effort":"none"}}"#.to_owned()),
        (r#""provider":"p","reasoning":true,"thinkingLevelMap":{"off":null}"#, Off, ":16}".to_owned()),
        (
            r#""provider":"p","reasoning":true,"thinkingLevelMap":{"off":"minimal"}"#,
            Off,
            r#","reasoning":{"effort":"minimal"}}"#.to_owned(),
        ),
        (
            r#""provider":"xai","reasoning":true,"thinkingLevelMap":{"off":null}"#,
            Off,
            format!(":16{include}"),
        ),
        (r#""provider":"p","reasoning":true"#, High, effort("high")),
        (r#""provider":"p","reasoning":true,"thinkingLevelMap":{"xhigh":"most"}"#, Xhigh, effort("most")),
        (
            r#""provider":"p","reasoning":true,"compat":{"supportsReasoningEffort":false}"#,
            High,
            format!(r#","reasoning":{{"summary":"auto"}}{include}"#),
        ),
    ] {
        let mut request = request(&format!(r#"{{"id":"m","contextWindow":0,"maxTokens":3,{extra}}}"#), &[]);
        request.thinking = level;
        let body = written(&request, CacheRetention::None);
        assert!(body.ends_with(&want), "{extra} {level:?}: {body}");
    }
}

#[test]
fn own_parameters_win() {
    let request = request(PLAIN, &[]);
    let sampling = Raw::parse(r#"{"max_output_tokens":9,"temperature":0.5}"#).unwrap();
    let body = body(&request, &Compat::of(&request.model), CacheRetention::None, "m", Some(&sampling));
    let body = String::from_utf8(body).unwrap();
    assert_eq!(
        body,
        r#"{"model":"m","input":[],"stream":true,"store":false,"max_output_tokens":9,"temperature":0.5}"#
    );
}
