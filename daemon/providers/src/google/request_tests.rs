//! Whole bodies, to the byte.

use std::sync::Arc;

use super::*;
use crate::proof::{request, tools};

fn spec(id: &str) -> String {
    format!(
        r#"{{"id":"{id}","provider":"google","api":"google-generative-ai","input":["text","image"],"contextWindow":1000000,"maxTokens":65536}}"#
    )
}

fn written(request: &ModelRequest) -> String {
    String::from_utf8(body(request, &[None; 4], None)).unwrap()
}

fn history(id: &str) -> Vec<String> {
    let answer = r#"{"role":"assistant","provider":"google","api":"google-generative-ai","model":"$ID","stopReason":"toolUse","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"c2ln"},{"type":"thinking","thinking":"bare"},{"type":"text","text":"so","textSignature":"dGV4dA=="},{"type":"text","text":"","textSignature":"dGV4dA=="},{"type":"text","text":"x","textSignature":"not base64"},{"type":"text","text":" "},{"type":"toolCall","id":"a|b","name":"one","arguments":{"z":1},"thoughtSignature":"Y2FsbA=="},{"type":"toolCall","id":"c2","name":"two","arguments":null,"thoughtSignature":"bad"}]}"#;
    [
        r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#,
        answer,
        r#"{"role":"toolResult","toolCallId":"a|b","isError":true,"content":[{"type":"text","text":"l1"},{"type":"text","text":"l2"},{"type":"image","data":"aQ==","mimeType":"image/jpeg"}]}"#,
        r#"{"role":"toolResult","toolCallId":"c2","content":[{"type":"image","data":"ag==","mimeType":"image/jpeg"}]}"#,
        r#"{"role":"user","content":"next"}"#,
    ]
    .map(|text| text.replace("$ID", id))
    .to_vec()
}

fn whole(id: &str) -> String {
    let history = history(id);
    let history: Vec<&str> = history.iter().map(String::as_str).collect();
    let mut request = request(&spec(id), &history);
    request.system = Arc::from("Be good.");
    request.tools = tools();
    written(&request)
}

const TAIL: &str = concat!(
    r#""systemInstruction":{"role":"user","parts":[{"text":"Be good."}]},"#,
    r#""tools":[{"functionDeclarations":[{"name":"one","description":"does one","parametersJsonSchema":{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":{"type":"string"}}}},"#,
    r#"{"name":"two","description":"does two","parametersJsonSchema":{"type":"object","properties":{"k":{"enum":["v"]}}}}]}],"#,
    r#""generationConfig":{"maxOutputTokens":65536}}"#
);

#[test]
fn a_whole_body_for_a_newer_model() {
    let want = concat!(
        r#"{"contents":[{"role":"user","parts":[{"text":"look"},{"inlineData":{"mimeType":"image/png","data":"aGk="}}]},"#,
        r#"{"role":"model","parts":[{"thought":true,"text":"hm","thoughtSignature":"c2ln"},{"thought":true,"text":"bare"},{"text":"so","thoughtSignature":"dGV4dA=="},{"text":"","thoughtSignature":"dGV4dA=="},{"text":"x"},"#,
        r#"{"functionCall":{"name":"one","args":{"z":1},"id":"a_b"},"thoughtSignature":"Y2FsbA=="},{"functionCall":{"name":"two","args":{},"id":"c2"}}]},"#,
        r#"{"role":"user","parts":[{"functionResponse":{"name":"one","response":{"error":"l1\nl2"},"parts":[{"inlineData":{"mimeType":"image/jpeg","data":"aQ=="}}],"id":"a_b"}},"#,
        r#"{"functionResponse":{"name":"two","response":{"output":"(see attached image)"},"parts":[{"inlineData":{"mimeType":"image/jpeg","data":"ag=="}}],"id":"c2"}}]},"#,
        r#"{"role":"user","parts":[{"text":"next"}]}],"#
    );
    assert_eq!(whole("gemini-3-flash"), format!("{want}{TAIL}"));
}

#[test]
fn an_older_model_sees_images_after_all_results_and_no_ids() {
    let body = whole("gemini-2.5-flash");
    assert!(!body.contains(r#""id""#), "{body}");
    let want = concat!(
        r#"{"role":"user","parts":[{"functionResponse":{"name":"one","response":{"error":"l1\nl2"}}},{"functionResponse":{"name":"two","response":{"output":"(see attached image)"}}}]},"#,
        r#"{"role":"user","parts":[{"text":"Tool result image:"},{"inlineData":{"mimeType":"image/jpeg","data":"aQ=="}},{"inlineData":{"mimeType":"image/jpeg","data":"ag=="}}]},"#,
    );
    assert!(body.contains(want), "{body}");
}

#[test]
fn another_model_gets_words() {
    let history = history("gemini-3-pro");
    let history: Vec<&str> = history[1..2].iter().map(String::as_str).collect();
    let body = written(&request(&spec("gemini-3-flash"), &history));
    assert!(
        !body.contains("thought") && body.contains(r#"{"text":"hm"},{"text":"bare"},{"text":"so"}"#),
        "{body}"
    );
}

#[test]
fn thinking_follows_model_and_level() {
    use ThinkingLevel::{High, Low, Minimal, Off, Xhigh};
    let three = r#""thinkingLevelMap":{"off":null,"minimal":"minimal","xhigh":"xhigh"}"#;
    let config = |text: &str| format!(r#","thinkingConfig":{{{text}}}}}}}"#);
    for (id, extra, level, want) in [
        ("gemini-3-flash", three, High, config(r#""includeThoughts":true,"thinkingLevel":"HIGH""#)),
        ("gemini-3-flash", three, Xhigh, config(r#""includeThoughts":true,"thinkingLevel":"XHIGH""#)),
        ("gemini-3-flash", three, Off, config(r#""thinkingLevel":"MINIMAL""#)),
        (
            "gemini-3-pro",
            r#""thinkingLevelMap":{"off":null,"minimal":null}"#,
            Off,
            config(r#""thinkingLevel":"LOW""#),
        ),
        ("gemini-3-x", r#""thinkingLevelMap":{}"#, Off, config(r#""thinkingBudget":0"#)),
        ("gemini-2.5-flash", three, Off, config(r#""thinkingBudget":0"#)),
        ("gemini-2.5-pro", three, Off, config(r#""thinkingBudget":128"#)),
        ("gemini-2.5-pro", three, High, config(r#""includeThoughts":true,"thinkingBudget":32768"#)),
        ("gemini-2.5-flash-lite", three, Minimal, config(r#""includeThoughts":true,"thinkingBudget":512"#)),
        ("other", three, Low, config(r#""includeThoughts":true,"thinkingBudget":-1"#)),
    ] {
        let spec = spec(id).replacen('{', &format!(r#"{{"reasoning":true,{extra},"#), 1);
        let mut request = request(&spec, &[]);
        request.thinking = level;
        let body = written(&request);
        assert!(body.ends_with(&want), "{id} {level:?}: {body}");
    }
    let mut own = request(&spec("gemini-2.5-pro").replacen('{', r#"{"reasoning":true,"#, 1), &[]);
    own.thinking = High;
    let sampling = Raw::parse(r#"{"temperature":0.5}"#).unwrap();
    let body = String::from_utf8(body(&own, &[None, None, None, Some(3000)], Some(&sampling))).unwrap();
    assert!(body.ends_with(r#""thinkingBudget":3000},"temperature":0.5}}"#), "{body}");
}

#[test]
fn a_constant_is_an_enumeration_of_one() {
    for (schema, want) in [
        (
            r#"{"properties":{"const":{"const":1},"a":{"anyOf":[{"const":"x"},{"const":true}]}}}"#,
            r#"{"properties":{"const":{"enum":[1]},"a":{"anyOf":[{"enum":["x"]},{"const":true}]}}}"#,
        ),
        (r#"{"const":"a","enum":["b"]}"#, r#"{"const":"a","enum":["b"]}"#),
        (
            r#"{"default":{"const":"x"},"items":{"const":"y"}}"#,
            r#"{"default":{"const":"x"},"items":{"enum":["y"]}}"#,
        ),
    ] {
        assert_eq!(enumerated(schema), want);
    }
}
