//! A model server's conscience: refuses what the vendors refuse. Conversations made at random must pass, whichever model
//! said what and however it ended.

use proptest::prelude::*;
use serde_json::Value;

use crate::anthropic;
use crate::proof;
use crate::registry::{CacheRetention, RequestOptions};
use atomic_protocol::model::{ModelRequest, ThinkingLevel};

type Verdict = Result<(), String>;

type Judge = fn(&Value) -> Verdict;

/// Only these keys may be there.
fn only(value: &Value, keys: &[&str]) -> Verdict {
    let object = value.as_object().ok_or_else(|| format!("no object: {value}"))?;
    match object.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown field {key} in {value}")),
        None => Ok(()),
    }
}

fn list<'v>(value: &'v Value, key: &str) -> Result<&'v Vec<Value>, String> {
    let list = value[key].as_array().ok_or_else(|| format!("{key} is no list in {value}"))?;
    if list.is_empty() { Err(format!("{key} is empty in {value}")) } else { Ok(list) }
}

fn filled(value: &Value) -> Verdict {
    match value.as_str() {
        Some(text) if !text.trim().is_empty() => Ok(()),
        _ => Err(format!("blank text: {value}")),
    }
}

/// Calls that wait for results.
#[derive(Default)]
struct Calls(Vec<String>);

impl Calls {
    fn made(&mut self, id: &Value) -> Verdict {
        let id = id.as_str().ok_or("a call without id")?.to_owned();
        if self.0.contains(&id) {
            return Err(format!("two calls {id}"));
        }
        self.0.push(id);
        Ok(())
    }

    fn answered(&mut self, id: &Value) -> Verdict {
        let at =
            self.0.iter().position(|call| call == id).ok_or_else(|| format!("a result of no call: {id}"))?;
        self.0.remove(at);
        Ok(())
    }

    fn none_open(&self) -> Verdict {
        if self.0.is_empty() { Ok(()) } else { Err(format!("calls without result: {:?}", self.0)) }
    }
}

/// platform.openai.com, "Create a model response".
fn responses(body: &Value) -> Verdict {
    let keys = [
        "model",
        "input",
        "stream",
        "store",
        "max_output_tokens",
        "prompt_cache_key",
        "reasoning",
        "include",
        "tools",
    ];
    only(body, &keys)?;
    let (mut calls, mut ids) = (Calls::default(), Vec::new());
    for item in list(body, "input")? {
        match item["type"].as_str() {
            Some("function_call") => {
                only(item, &["type", "id", "call_id", "name", "arguments"])?;
                calls.made(&item["call_id"])?;
                let arguments = item["arguments"].as_str().ok_or("arguments are no string")?;
                serde_json::from_str::<Value>(arguments).map_err(|error| error.to_string())?;
                if item.get("id").is_some_and(|id| !id.as_str().unwrap_or_default().starts_with("fc_")) {
                    return Err(format!("bad id: {item}"));
                }
            }
            Some("function_call_output") => {
                only(item, &["type", "call_id", "output"])?;
                calls.answered(&item["call_id"])?;
            }
            Some("reasoning") => only(item, &["type", "id", "summary", "encrypted_content"])?,
            Some("message") => {
                only(item, &["type", "role", "content", "status", "id", "phase"])?;
                filled(&list(item, "content")?[0]["text"])?;
            }
            Some(other) => return Err(format!("unknown item {other}")),
            None => {
                calls.none_open()?;
                only(item, &["role", "content"])?;
                if !item["content"].is_string() {
                    list(item, "content")?;
                }
            }
        }
        if let Some(id) = item["id"].as_str() {
            if id.len() > 64 || ids.contains(&id) {
                return Err(format!("the id {id} is too long or used twice"));
            }
            ids.push(id);
        }
    }
    calls.none_open()
}

/// ai.google.dev, "Generate content": a turn of calls is answered by the next turn, all at once.
fn google(body: &Value) -> Verdict {
    only(body, &["contents", "systemInstruction", "tools", "generationConfig"])?;
    let mut open = 0;
    for content in list(body, "contents")? {
        only(content, &["role", "parts"])?;
        let parts = list(content, "parts")?;
        let with = |key: &str| parts.iter().filter(|part| part.get(key).is_some()).count();
        for part in parts {
            only(
                part,
                &["text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData"],
            )?;
            if let Some(signature) = part["thoughtSignature"].as_str() {
                use base64::Engine as _;
                let decoded = base64::engine::general_purpose::STANDARD.decode(signature);
                decoded.map_err(|error| format!("{signature}: {error}"))?;
            }
        }
        match content["role"].as_str() {
            Some("model") if open == 0 && with("functionResponse") == 0 => open = with("functionCall"),
            Some("user") if with("functionCall") == 0 && with("functionResponse") == open => open = 0,
            _ => return Err(format!("{open} calls open before {content}")),
        }
    }
    if open == 0 { Ok(()) } else { Err(format!("{open} calls without result")) }
}

/// docs.mistral.ai, "Chat Completion".
fn mistral(body: &Value) -> Verdict {
    only(
        body,
        &["model", "stream", "messages", "tools", "max_tokens", "reasoning_effort", "prompt_cache_key"],
    )?;
    let mut calls = Calls::default();
    for message in list(body, "messages")? {
        match message["role"].as_str() {
            Some("assistant") => {
                calls.none_open()?;
                only(message, &["role", "content", "tool_calls"])?;
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    calls.made(&call["id"])?;
                    if !call["id"]
                        .as_str()
                        .is_some_and(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()))
                    {
                        return Err(format!("bad id: {call}"));
                    }
                }
                if message.get("content").is_none() && message.get("tool_calls").is_none() {
                    return Err(format!("neither content nor calls: {message}"));
                }
            }
            Some("tool") => {
                only(message, &["role", "content", "tool_call_id", "name"])?;
                list(message, "content")?;
                calls.answered(&message["tool_call_id"])?;
            }
            Some("user" | "system") => calls.none_open()?,
            other => return Err(format!("role {other:?}")),
        }
    }
    calls.none_open()
}

/// docs.aws.amazon.com, "Converse": roles alternate, text is not blank, results stand at once and first.
fn bedrock(body: &Value) -> Verdict {
    let keys = ["messages", "system", "inferenceConfig", "toolConfig", "additionalModelRequestFields"];
    only(body, &keys)?;
    let (mut calls, mut last) = (Calls::default(), "assistant".to_owned());
    for message in list(body, "messages")? {
        only(message, &["role", "content"])?;
        let role = message["role"].as_str().unwrap_or_default();
        if role == last {
            return Err(format!("two messages of {role} in a row"));
        }
        last = role.to_owned();
        let mut words = false;
        for block in list(message, "content")? {
            only(block, &["text", "image", "toolUse", "toolResult", "reasoningContent", "cachePoint"])?;
            if let Some(text) = block.get("text") {
                filled(text)?;
                words = true;
            }
            if let Some(call) = block.get("toolUse") {
                calls.made(&call["toolUseId"])?;
            }
            if let Some(result) = block.get("toolResult") {
                if words {
                    return Err(format!("a result after words: {message}"));
                }
                list(result, "content")?;
                calls.answered(&result["toolUseId"])?;
            }
        }
        if role == "user" {
            calls.none_open()?;
        }
    }
    calls.none_open()
}

/// docs.anthropic.com, "Messages": results stand in the message after their calls.
fn messages(body: &Value) -> Verdict {
    let mut calls = Calls::default();
    for message in list(body, "messages")? {
        for block in list(message, "content")? {
            match block["type"].as_str() {
                Some("text") => filled(&block["text"])?,
                Some("tool_use") => calls.made(&block["id"])?,
                Some("tool_result") => calls.answered(&block["tool_use_id"])?,
                Some("thinking") => drop(block["signature"].as_str().ok_or("unsigned thinking")?),
                Some("redacted_thinking" | "image") => {}
                other => return Err(format!("block {other:?}")),
            }
        }
        if message["role"] == "user" {
            calls.none_open()?;
        }
    }
    calls.none_open()
}

/// Block by block what a model may have said; `0` is the number of the answer.
const SAID: [&str; 9] = [
    r#"{"type":"text","text":"words"}"#,
    r#"{"type":"text","text":" "}"#,
    r#"{"type":"text","text":"","textSignature":"c2ln"}"#,
    r#"{"type":"text","text":"signed","textSignature":"{\"v\":1,\"id\":\"msg_$0\",\"phase\":\"final_answer\"}"}"#,
    r#"{"type":"thinking","thinking":"hm","thinkingSignature":"{\"type\":\"reasoning\",\"id\":\"rs_$0\",\"summary\":[]}"}"#,
    r#"{"type":"thinking","thinking":"","thinkingSignature":"c2ln"}"#,
    r#"{"type":"thinking","thinking":"[x]","thinkingSignature":"ZGF0YQ==","redacted":true}"#,
    r#"{"type":"toolCall","id":"call_a$0|fc_a$0","name":"one","arguments":{"a":1}}"#,
    r#"{"type":"toolCall","id":"call b$0","name":"two","arguments":null,"thoughtSignature":"c2ln"}"#,
];

/// What happens in a conversation.
#[derive(Clone, Debug)]
enum Step {
    User(bool),
    /// Blocks, whether the same model said them, how it ended, how many results there are.
    Answer(Vec<usize>, bool, usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(Step::User),
        (proptest::collection::btree_set(0..SAID.len(), 0..6), any::<bool>(), 0..4usize, 0..3usize).prop_map(
            |(blocks, same, stop, results)| Step::Answer(blocks.into_iter().collect(), same, stop, results)
        ),
    ]
}

fn conversation(steps: &[Step], api: &str) -> ModelRequest {
    let mut texts: Vec<String> = vec![r#"{"role":"user","content":"begin"}"#.to_owned()];
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::User(image) => texts.push(if *image {
                r#"{"role":"user","content":[{"type":"text","text":""},{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#.to_owned()
            } else {
                r#"{"role":"user","content":"more"}"#.to_owned()
            }),
            Step::Answer(blocks, same, stop, results) => {
                let number = number.to_string();
                let said: Vec<String> = blocks.iter().map(|at| SAID[*at].replace("$0", &number)).collect();
                let model = if *same { "m" } else { "other" };
                let stop = ["stop", "toolUse", "error", "aborted"][*stop];
                texts.push(format!(
                    r#"{{"role":"assistant","provider":"p","api":"{api}","model":"{model}","stopReason":"{stop}","content":[{}]}}"#,
                    said.join(",")
                ));
                let ids = [format!("call_a{number}|fc_a{number}"), format!("call b{number}")];
                for id in ids.iter().take(*results) {
                    let content = if *results == 1 { r#"{"type":"text","text":"r"}"# } else { "" };
                    texts.push(format!(r#"{{"role":"toolResult","toolCallId":"{id}","isError":true,"content":[{content}]}}"#));
                }
            }
        }
    }
    texts.push(r#"{"role":"user","content":"end"}"#.to_owned());
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let spec = format!(
        r#"{{"id":"m","provider":"p","api":"{api}","reasoning":true,"input":["text","image"],"contextWindow":200000,"maxTokens":32000,"thinkingLevelMap":{{"high":"high"}}}}"#
    );
    let mut request = proof::request(&spec, &texts);
    request.system = "Be good.".into();
    request.tools = proof::tools();
    request.thinking = ThinkingLevel::High;
    request
}

proptest! {
    #[test]
    fn every_conversation_passes(steps in proptest::collection::vec(step(), 0..8)) {
        let judges: [(&str, Judge); 5] = [
            (crate::openai_responses::API, responses),
            (crate::google::API, google),
            (crate::mistral::API, mistral),
            (crate::bedrock::API, bedrock),
            (anthropic::API, messages),
        ];
        for (api, judge) in judges {
            let request = conversation(&steps, api);
            let body = crate::body_of(&request, CacheRetention::Short, &RequestOptions::default());
            let text = String::from_utf8(body).unwrap();
            let body: Value = serde_json::from_str(&text).unwrap();
            if let Err(why) = judge(&body) {
                prop_assert!(false, "{api}: {why}\n{text}");
            }
        }
    }
}

#[test]
fn the_judge_is_strict() {
    for (judge, text) in [
        (responses as Judge, r#"{"input":[{"type":"function_call","call_id":"c","arguments":"{}"}]}"#),
        (responses, r#"{"input":[{"role":"user","content":[]}]}"#),
        (responses, r#"{"input":[{"role":"user","content":"x"}],"new":1}"#),
        (
            google,
            r#"{"contents":[{"role":"model","parts":[{"functionCall":{}}]},{"role":"user","parts":[{"text":"x"}]}]}"#,
        ),
        (google, r#"{"contents":[{"role":"user","parts":[{"text":"","thoughtSignature":"!"}]}]}"#),
        (mistral, r#"{"messages":[{"role":"assistant"}]}"#),
        (
            mistral,
            r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"short"}]},{"role":"tool","tool_call_id":"short","content":[1]}]}"#,
        ),
        (
            bedrock,
            r#"{"messages":[{"role":"user","content":[{"text":"a"}]},{"role":"user","content":[{"text":"b"}]}]}"#,
        ),
        (bedrock, r#"{"messages":[{"role":"user","content":[{"text":" "}]}]}"#),
        (messages, r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}]}"#),
    ] {
        assert!(judge(&serde_json::from_str(text).unwrap()).is_err(), "{text}");
    }
}
