//! What each vendor refuses with status 400, from its documentation and from what its users report.

use std::collections::HashSet;

use serde_json::Value;

pub(super) type Verdict = Result<(), String>;

/// A request, and the signatures that the model may see again.
pub(super) struct Case<'a> {
    pub(super) body: &'a Value,
    pub(super) own: &'a HashSet<String>,
}

pub(super) type Judge = fn(&Case<'_>) -> Verdict;

pub(super) const JUDGES: [(&str, Judge); 8] = [
    (crate::anthropic::API, messages),
    (crate::openai_completions::API, completions),
    (crate::openai_responses::API, responses),
    (crate::openai_responses::azure::API, responses),
    (crate::google::API, google),
    (crate::google::vertex::API, google),
    (crate::mistral::API, mistral),
    (crate::bedrock::API, bedrock),
];

impl Case<'_> {
    /// A signature must be one that this model gave, byte for byte.
    fn signed(&self, signature: &Value) -> Verdict {
        match signature.as_str() {
            Some(text) if self.own.contains(text) => Ok(()),
            _ => Err(format!("the signature {signature} is not this model's")),
        }
    }
}

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

fn is_object_text(value: &Value) -> Verdict {
    let text = value.as_str().ok_or_else(|| format!("arguments are no string: {value}"))?;
    let parsed: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if parsed.is_object() { Ok(()) } else { Err(format!("arguments are no object: {text}")) }
}

fn needs(condition: bool, why: impl FnOnce() -> String) -> Verdict {
    if condition { Ok(()) } else { Err(why()) }
}

/// Calls that wait for results. An id is used once in a conversation.
struct Calls {
    open: Vec<String>,
    seen: HashSet<String>,
    longest: usize,
}

impl Calls {
    fn new(longest: usize) -> Calls {
        Calls { open: Vec::new(), seen: HashSet::new(), longest }
    }

    fn made(&mut self, id: &Value) -> Verdict {
        let id = id.as_str().ok_or("a call without id")?.to_owned();
        let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        needs(plain && (1..=self.longest).contains(&id.len()), || format!("bad id {id}"))?;
        needs(self.seen.insert(id.clone()), || format!("two calls {id}"))?;
        self.open.push(id);
        Ok(())
    }

    fn answered(&mut self, id: &Value) -> Verdict {
        let at = self.open.iter().position(|call| call == id);
        self.open.remove(at.ok_or_else(|| format!("a result of no open call: {id}"))?);
        Ok(())
    }

    fn none_open(&self) -> Verdict {
        needs(self.open.is_empty(), || format!("calls without result: {:?}", self.open))
    }

    fn any(&self) -> bool {
        !self.seen.is_empty()
    }
}

const CACHE: &str = "cache_control";

/// docs.anthropic.com, "Messages", "Extended thinking", "Prompt caching".
fn messages(case: &Case<'_>) -> Verdict {
    let body = case.body;
    only(
        body,
        &["model", "max_tokens", "stream", "system", "messages", "tools", "thinking", "output_config"],
    )?;
    if let Some(budget) = body["thinking"]["budget_tokens"].as_u64() {
        let most = body["max_tokens"].as_u64().unwrap_or(0);
        needs((1024..most).contains(&budget), || format!("a budget of {budget} of {most}"))?;
    }
    let (mut calls, mut marks) = (Calls::new(64), 0);
    for block in body["system"].as_array().into_iter().flatten() {
        only(block, &["type", "text", CACHE])?;
        filled(&block["text"])?;
        marks += usize::from(block.get(CACHE).is_some());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        only(tool, &["name", "description", "input_schema", "eager_input_streaming", CACHE])?;
        marks += usize::from(tool.get(CACHE).is_some());
    }
    // Several of one role in a row are taken for one.
    let mut last = "";
    for message in list(body, "messages")? {
        only(message, &["role", "content"])?;
        let user = message["role"] == "user";
        needs(user || message["role"] == "assistant", || format!("role of {message}"))?;
        needs(user || !last.is_empty(), || "the conversation does not begin with the user".into())?;
        if !user {
            calls.none_open()?;
        }
        last = if user { "user" } else { "assistant" };
        let mut words = false;
        for block in list(message, "content")? {
            marks += usize::from(block.get(CACHE).is_some());
            match block["type"].as_str() {
                Some("text") => {
                    only(block, &["type", "text", CACHE])?;
                    filled(&block["text"])?;
                    words = true;
                }
                Some("tool_use") if !user => {
                    only(block, &["type", "id", "name", "input", CACHE])?;
                    needs(block["input"].is_object(), || format!("input of {block}"))?;
                    calls.made(&block["id"])?;
                }
                Some("tool_result") if user => {
                    only(block, &["type", "tool_use_id", "content", "is_error", CACHE])?;
                    needs(!words, || format!("a result after words: {message}"))?;
                    calls.answered(&block["tool_use_id"])?;
                    for part in block["content"].as_array().into_iter().flatten() {
                        if part["type"] == "text" {
                            filled(&part["text"])?;
                        }
                    }
                }
                Some("thinking") if !user => {
                    only(block, &["type", "thinking", "signature"])?;
                    case.signed(&block["signature"])?;
                }
                Some("redacted_thinking") if !user => {
                    only(block, &["type", "data"])?;
                    case.signed(&block["data"])?;
                }
                Some("image") if user => {
                    only(block, &["type", "source", CACHE])?;
                    words = true;
                }
                other => return Err(format!("block {other:?} of {}", message["role"])),
            }
        }
        if user {
            calls.none_open()?;
        }
    }
    needs(last == "user", || "the last word is the model's own".into())?;
    needs(marks <= 4, || format!("{marks} cache marks"))
}

/// platform.openai.com, "Create chat completion".
fn completions(case: &Case<'_>) -> Verdict {
    let body = case.body;
    let keys = [
        "model",
        "messages",
        "stream",
        "stream_options",
        "store",
        "max_completion_tokens",
        "tools",
        "reasoning_effort",
        "prompt_cache_key",
        "prompt_cache_retention",
    ];
    only(body, &keys)?;
    let mut calls = Calls::new(40);
    for message in list(body, "messages")? {
        match message["role"].as_str() {
            Some("system" | "developer" | "user") => {
                calls.none_open()?;
                only(message, &["role", "content"])?;
                match &message["content"] {
                    Value::String(_) => filled(&message["content"])?,
                    _ => {
                        for part in list(message, "content")? {
                            if part["type"] == "text" {
                                filled(&part["text"])?;
                            }
                        }
                    }
                }
            }
            Some("assistant") => {
                calls.none_open()?;
                only(message, &["role", "content", "tool_calls", "reasoning_content"])?;
                if let Some(thought) = message["reasoning_content"].as_str() {
                    let own =
                        thought.split('\n').all(|line| line.is_empty() || line.starts_with("thought m_"));
                    needs(own, || format!("another model's thinking: {thought}"))?;
                }
                let said = message["content"].is_string() && filled(&message["content"]).is_ok();
                needs(said || message["content"].is_null(), || format!("blank content: {message}"))?;
                if message.get("tool_calls").is_none() {
                    needs(said || message.get("reasoning_content").is_some(), || {
                        format!("says nothing: {message}")
                    })?;
                    continue;
                }
                for call in list(message, "tool_calls")? {
                    only(call, &["id", "type", "function"])?;
                    only(&call["function"], &["name", "arguments"])?;
                    calls.made(&call["id"])?;
                    is_object_text(&call["function"]["arguments"])?;
                }
            }
            Some("tool") => {
                only(message, &["role", "tool_call_id", "content"])?;
                filled(&message["content"])?;
                calls.answered(&message["tool_call_id"])?;
            }
            other => return Err(format!("role {other:?}")),
        }
    }
    if let Some(tools) = body.get("tools") {
        needs(calls.any() || tools.as_array().is_some_and(|tools| !tools.is_empty()), || "no tools".into())?;
    }
    calls.none_open()
}

/// platform.openai.com, "Create a model response".
fn responses(case: &Case<'_>) -> Verdict {
    let body = case.body;
    let keys = [
        "model",
        "input",
        "stream",
        "store",
        "max_output_tokens",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "include",
        "tools",
    ];
    only(body, &keys)?;
    let (mut calls, mut ids) = (Calls::new(64), HashSet::new());
    // A reasoning item is nothing without what it led to.
    let mut reasoned = false;
    for item in list(body, "input")? {
        let kind = item["type"].as_str();
        let said = matches!(kind, Some("function_call" | "message" | "reasoning"));
        needs(!reasoned || said, || format!("reasoning that leads to nothing, before {item}"))?;
        reasoned = kind == Some("reasoning");
        match kind {
            Some("function_call") => {
                only(item, &["type", "id", "call_id", "name", "arguments"])?;
                calls.made(&item["call_id"])?;
                is_object_text(&item["arguments"])?;
                let id = item["id"].as_str();
                needs(id.is_none_or(|id| id.starts_with("fc_")), || format!("bad id: {item}"))?;
            }
            Some("function_call_output") => {
                only(item, &["type", "call_id", "output"])?;
                if item["output"].is_string() {
                    filled(&item["output"])?;
                } else {
                    list(item, "output")?;
                }
                calls.answered(&item["call_id"])?;
            }
            Some("reasoning") => {
                only(item, &["type", "id", "summary", "encrypted_content"])?;
                // Nothing is stored there: without its sealed part it would be looked up and not found.
                filled(&item["encrypted_content"])?;
                case.signed(&Value::String(item.to_string()))?;
            }
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
            needs(id.len() <= 64 && ids.insert(id), || format!("the id {id} is too long or used twice"))?;
        }
    }
    needs(!reasoned, || "reasoning at the end".into())?;
    calls.none_open()
}

/// ai.google.dev, "Generate content": a turn of calls is answered by the next turn, all at once.
fn google(case: &Case<'_>) -> Verdict {
    let body = case.body;
    only(body, &["contents", "systemInstruction", "tools", "generationConfig"])?;
    let mut open: Vec<&Value> = Vec::new();
    let mut first = true;
    for content in list(body, "contents")? {
        only(content, &["role", "parts"])?;
        let parts = list(content, "parts")?;
        let all = |key: &str| parts.iter().filter_map(|part| part.get(key)).collect::<Vec<_>>();
        for part in parts {
            let keys =
                ["text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData"];
            only(part, &keys)?;
            needs(
                part.as_object().is_some_and(|part| part.len() > usize::from(part.contains_key("thought"))),
                || format!("an empty part: {content}"),
            )?;
            if part["text"] == "" {
                needs(part.get("thoughtSignature").is_some(), || format!("an empty text: {content}"))?;
            }
            if let Some(signature) = part.get("thoughtSignature") {
                case.signed(signature)?;
            }
        }
        let (calls, results) = (all("functionCall"), all("functionResponse"));
        match content["role"].as_str() {
            Some("model") if open.is_empty() && results.is_empty() && !first => open = calls,
            Some("user") if calls.is_empty() && results.len() == open.len() => {
                for (call, result) in open.drain(..).zip(results) {
                    needs(call["name"] == result["name"], || format!("{result} answers {call}"))?;
                }
            }
            _ => return Err(format!("calls {open:?} open before {content}")),
        }
        first = false;
    }
    needs(open.is_empty(), || format!("calls without result: {open:?}"))
}

/// docs.mistral.ai, "Chat Completion", and its errors of kind `invalid_request_message_order`.
fn mistral(case: &Case<'_>) -> Verdict {
    let body = case.body;
    only(
        body,
        &["model", "stream", "messages", "tools", "max_tokens", "reasoning_effort", "prompt_cache_key"],
    )?;
    let (mut calls, mut last) = (Calls::new(9), "");
    for message in list(body, "messages")? {
        let role = message["role"].as_str().unwrap_or_default();
        match role {
            "assistant" => {
                calls.none_open()?;
                only(message, &["role", "content", "tool_calls"])?;
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    calls.made(&call["id"])?;
                    let id = call["id"].as_str().unwrap_or_default();
                    let nine = id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
                    needs(nine, || format!("bad id: {call}"))?;
                }
                let says = message.get("content").is_some() || message.get("tool_calls").is_some();
                needs(says, || format!("neither content nor calls: {message}"))?;
            }
            "tool" => {
                only(message, &["role", "content", "tool_call_id", "name"])?;
                list(message, "content")?;
                calls.answered(&message["tool_call_id"])?;
            }
            "user" | "system" => {
                calls.none_open()?;
                needs(last != "tool", || format!("role {role} after role tool"))?;
            }
            other => return Err(format!("role {other}")),
        }
        last = role;
    }
    needs(last == "user" || last == "tool", || format!("the last role is {last}"))?;
    calls.none_open()
}

/// docs.aws.amazon.com, "Converse": roles alternate, text is not blank, results stand at once and first, and whoever
/// speaks of tools says which there are.
fn bedrock(case: &Case<'_>) -> Verdict {
    let body = case.body;
    only(body, &["messages", "system", "inferenceConfig", "toolConfig", "additionalModelRequestFields"])?;
    let (mut calls, mut last) = (Calls::new(64), "assistant".to_owned());
    for message in list(body, "messages")? {
        only(message, &["role", "content"])?;
        let role = message["role"].as_str().unwrap_or_default();
        needs(role != last, || format!("two messages of {role} in a row"))?;
        last = role.to_owned();
        let mut words = false;
        for block in list(message, "content")? {
            only(block, &["text", "image", "toolUse", "toolResult", "reasoningContent", "cachePoint"])?;
            if let Some(text) = block.get("text") {
                filled(text)?;
                words = true;
            }
            if let Some(thought) = block.get("reasoningContent") {
                needs(role == "assistant", || "the user thinks".into())?;
                match thought.get("redactedContent") {
                    Some(data) => case.signed(data)?,
                    None => case.signed(&thought["reasoningText"]["signature"])?,
                }
            }
            if let Some(call) = block.get("toolUse") {
                needs(role == "assistant" && call["input"].is_object(), || format!("bad call: {call}"))?;
                calls.made(&call["toolUseId"])?;
            }
            if let Some(result) = block.get("toolResult") {
                needs(!words, || format!("a result after words: {message}"))?;
                for part in list(result, "content")? {
                    if let Some(text) = part.get("text") {
                        filled(text)?;
                    }
                }
                calls.answered(&result["toolUseId"])?;
            }
        }
        if role == "user" {
            calls.none_open()?;
        }
    }
    needs(last == "user", || "the last word is the model's own".into())?;
    match body.get("toolConfig") {
        Some(config) => drop(list(config, "tools")?),
        None => needs(!calls.any(), || "calls without toolConfig".into())?,
    }
    calls.none_open()
}

#[test]
fn the_judges_are_strict() {
    let own = HashSet::from(["c2ln".to_owned()]);
    for (judge, text) in [
        (responses as Judge, r#"{"input":[{"type":"function_call","call_id":"c","arguments":"{}"}]}"#),
        (responses, r#"{"input":[{"role":"user","content":[]}]}"#),
        (responses, r#"{"input":[{"role":"user","content":"x"}],"new":1}"#),
        (
            responses,
            r#"{"input":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},{"role":"user","content":"x"}]}"#,
        ),
        (
            google,
            r#"{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"functionCall":{}}]},{"role":"user","parts":[{"text":"x"}]}]}"#,
        ),
        (google, r#"{"contents":[{"role":"user","parts":[{"text":"","thoughtSignature":"b3RoZXI="}]}]}"#),
        (google, r#"{"contents":[{"role":"user","parts":[{"text":""}]}]}"#),
        (mistral, r#"{"messages":[{"role":"assistant"}]}"#),
        (
            mistral,
            r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"short"}]},{"role":"tool","tool_call_id":"short","content":[1]}]}"#,
        ),
        (
            mistral,
            r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"123456789"}]},{"role":"tool","tool_call_id":"123456789","content":[1]},{"role":"user","content":"x"}]}"#,
        ),
        (
            bedrock,
            r#"{"messages":[{"role":"user","content":[{"text":"a"}]},{"role":"user","content":[{"text":"b"}]}]}"#,
        ),
        (bedrock, r#"{"messages":[{"role":"user","content":[{"text":" "}]}]}"#),
        (
            bedrock,
            r#"{"messages":[{"role":"user","content":[{"text":"q"}]},{"role":"assistant","content":[{"toolUse":{"toolUseId":"t","input":{}}}]},{"role":"user","content":[{"toolResult":{"toolUseId":"t","content":[{"text":"r"}]}}]}]}"#,
        ),
        (messages, r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}]}"#),
        (
            messages,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"b3RoZXI="}]},{"role":"user","content":[{"type":"text","text":"q"}]}]}"#,
        ),
        (messages, r#"{"messages":[{"role":"assistant","content":[{"type":"text","text":"q"}]}]}"#),
        (completions, r#"{"messages":[{"role":"assistant","content":""}]}"#),
        (completions, r#"{"messages":[{"role":"user","content":" "}]}"#),
        (
            completions,
            r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"arguments":"{}"}},{"id":"a","function":{"arguments":"{}"}}]}]}"#,
        ),
    ] {
        assert!(judge(&Case { body: &serde_json::from_str(text).unwrap(), own: &own }).is_err(), "{text}");
    }
}
