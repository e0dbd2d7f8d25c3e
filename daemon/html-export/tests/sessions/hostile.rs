//! A session in which every string is an attempt to run script, leave an element or load something.

use serde_json::{Map, Value, json};

use super::entry;

/// What a hostile model, tool or file may say. All of it calls `alert` or loads from `evil.example` if it works.
pub const PAYLOADS: &[&str] = &[
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "</style><script>alert(3)</script><style>",
    "\"><img src=x onerror=alert(4)>",
    "'><svg onload=alert(5)>",
    "\" onmouseover=\"alert(6)\" autofocus onfocus=\"alert(6)\" x=\"",
    "<iframe srcdoc=\"<script>alert(7)</script>\"></iframe>",
    "<details open ontoggle=alert(8)>",
    "</pre></div></details></article></main><script>alert(9)</script>",
    "<!--><script>alert(10)</script>-->",
    "<![CDATA[<script>alert(11)</script>]]>",
    "</title><script>alert(12)</script>",
    "javascript:alert(13)",
    "[a](javascript:alert(14))",
    "[a](java\nscript:alert(15)) [b](\u{1}javascript:alert(15)) [c](JaVaScRiPt:alert(15)) <javascript:alert(15)>",
    "[a](data:text/html;base64,PHNjcmlwdD5hbGVydCgxNik8L3NjcmlwdD4=) [b](vbscript:x) [c](file:///etc/passwd)",
    "![a](https://evil.example/x.png) ![b](javascript:alert(17)) ![c](data:image/svg+xml;base64,PHN2Zy8+)",
    "![x](data:image/png;base64,AAAA\"onerror=alert(18))",
    "[a](https://evil.example/\"onclick=\"alert(19)) [b](<https://evil.example/'><script>alert(19)</script>>)",
    "```\"><script>alert(20)</script>\n</code></pre><script>alert(20)</script>\n```",
    "```html\n<script>alert(21)</script><a onclick=\"alert(21)\" href='javascript:alert(21)'>\n```",
    "\u{1b}]8;;javascript:alert(22)\u{1b}\\click\u{1b}]8;;\u{1b}\\ \u{1b}[31\"onclick=alert(22)m<b>x</b>\u{1b}[0m",
    "\u{1b}[38;5;196m<script>alert(23)</script>\u{1b}[0m\u{1b}]0;<script>alert(23)</script>\u{7}",
    "<link rel=stylesheet href=//evil.example/x.css><style>@import '//evil.example/y.css'</style>",
    "<meta http-equiv=refresh content=\"0;url=//evil.example\"><base href=//evil.example>",
    "<form action=//evil.example><button>x</button></form><input name=search id=found>",
    "<a id=search><a id=said name=help><img name=getElementById>",
    "| a | b |\n|---|---|\n| <script>alert(28)</script> | [x](javascript:alert(28)) |",
    "<math><mtext><table><mglyph><style><img src onerror=alert(29)>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(30)>\">",
    "<x-y><template><script>alert(31)</script></template><object data=//evil.example><embed src=//evil.example>",
    "&lt;script&gt;alert(32)&lt;/script&gt; &#x3C;script&#x3E;alert(32)&#x3C;/script&#x3E;",
    "\u{0}<\u{0}script>alert(33)</script>\u{202e}gnp.exe\u{2066}\u{fffe}\u{ffff}\u{85}\r\n\u{2028}<script>alert(33)</script>",
    "+ADw-script+AD4-alert(34)+ADw-/script+AD4-",
    "{{constructor.constructor('alert(35)')()}} ${alert(35)} <%= alert(35) %> $& $' $`",
    "@@ -1 +1 @@\n-<script>alert(36)</script>\n+<img src=x onerror=alert(36)>",
];

/// One entry of every type, each with every field that the format knows. Strings in them are there to be replaced.
pub fn templates() -> Vec<Value> {
    let usage = json!({"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"totalTokens":10,"cost":{"input":0.1,"output":0.1,"cacheRead":0.0,"cacheWrite":0.0,"total":0.2}});
    let message = |message: Value| json!({"type":"message","message":message});
    let call = |name: &str, arguments: Value| json!({"type":"toolCall","id":"x","name":name,"arguments":arguments,"thoughtSignature":"x"});
    vec![
        message(json!({"role":"user","content":"x","timestamp":1})),
        message(
            json!({"role":"user","content":[{"type":"text","text":"x","textSignature":"x"},{"type":"image","data":"x","mimeType":"x"},{"type":"image","data":"AAAA","mimeType":"x"},{"type":"image","data":"x","mimeType":"image/png"},{"type":"video","url":"x"},"x",7,null],"timestamp":1}),
        ),
        message(json!({"role":"assistant","content":[
            {"type":"thinking","thinking":"x","thinkingSignature":"x"},{"type":"thinking","thinking":"x","redacted":true},{"type":"text","text":"x"},
            call("bash", json!({"command":"x","timeout":"x"})),call("read", json!({"path":"x","offset":1,"limit":2})),
            call("write", json!({"path":"x","content":"x\nx"})),call("edit", json!({"path":"x","edits":[{"oldText":"x","newText":"x"}]})),
            call("grep", json!({"pattern":"x","path":"x"})),call("x", json!({"a":"x","b":{"c":["x","x","x","x","x","x","x","x"]},"d":"x\nx"})),call("x", json!("x")),call("x", json!(["x"]))],
            "api":"x","provider":"x","model":"x","usage":usage,"stopReason":"x","timestamp":1,"responseId":"x","responseModel":"x","rawStopReason":"x","errorMessage":"x"})),
        message(
            json!({"role":"assistant","content":"x","model":"x","stopReason":"error","errorMessage":"x","usage":"x","timestamp":"x"}),
        ),
        message(
            json!({"role":"toolResult","toolCallId":"x","toolName":"x","content":[{"type":"text","text":"x"},{"type":"image","data":"x","mimeType":"x"}],"details":{"diff":"x","patch":"x"},"isError":true,"timestamp":1}),
        ),
        message(
            json!({"role":"toolResult","toolCallId":"x","toolName":"x","content":"x","details":"x","isError":"x"}),
        ),
        message(
            json!({"role":"bashExecution","command":"x","output":"x","exitCode":"x","cancelled":false,"truncated":true,"fullOutputPath":"x","timestamp":1,"excludeFromContext":true}),
        ),
        message(
            json!({"role":"custom","customType":"x","content":"x","display":true,"details":{"x":"x"},"timestamp":1}),
        ),
        message(json!({"role":"branchSummary","summary":"x","fromId":"x","timestamp":1})),
        message(json!({"role":"system","content":"x","sections":["x"]})),
        message(json!("x")),
        json!({"type":"thinking_level_change","thinkingLevel":"x"}),
        json!({"type":"model_change","provider":"x","modelId":"x"}),
        json!({"type":"compaction","summary":"x","firstKeptEntryId":"x","tokensBefore":1,"details":{"strategy":"verbatim-lines","x":"x"}}),
        json!({"type":"compaction","summary":"x","firstKeptEntryId":"x","tokensBefore":"x","details":"x"}),
        json!({"type":"context_compaction","promptVersion":1,"deletedTargets":["x"],"backupPath":"x"}),
        json!({"type":"branch_summary","fromId":"x","summary":"x","details":"x","usage":usage}),
        json!({"type":"custom","customType":"x","data":{"x":["x"]}}),
        json!({"type":"custom_message","customType":"x","content":[{"type":"text","text":"x"}],"display":true,"details":"x"}),
        json!({"type":"custom_message","customType":"x","content":"x","display":false}),
        json!({"type":"label","targetId":"x","label":"x"}),
        json!({"type":"session_info","name":"x"}),
        json!({"type":"session_summary","summary":"x","summarizedThroughId":"x","usage":usage}),
        json!({"type":"unheard_of","x":"x","y":{"x":["x"]}}),
    ]
}

/// The session in which every string of every template is each payload in turn: header first. Ids and parents are
/// payloads too in every second round, and so are types, roles and keys.
pub fn hostile(payloads: &[&str]) -> Vec<String> {
    let everything = payloads.join(" ");
    let mut lines = vec![
        json!({"type":"session","version":everything,"id":everything,"timestamp":everything,"cwd":everything,"parentSession":everything}).to_string(),
    ];
    let mut parent: Option<String> = None;
    for payload in payloads {
        for (at, template) in templates().into_iter().enumerate() {
            for round in 0..4 {
                let id = if round % 2 == 1 {
                    format!("{payload}{at}{round}")
                } else {
                    format!("{:08x}", lines.len())
                };
                let mut filled = replaced(
                    &template,
                    payload,
                    if round == 3 { &[] } else { &["type", "role", "stopReason"] },
                    round == 2,
                );
                if let Value::Object(fields) = &mut filled {
                    let kind = fields.remove("type").unwrap_or(json!("x"));
                    let mut made = entry(
                        &id,
                        parent.as_deref(),
                        lines.len(),
                        kind.as_str().unwrap_or("x"),
                        Value::Object(fields.clone()),
                    );
                    if round == 1 {
                        made["timestamp"] = json!(payload);
                    }
                    // Each label names the entry before it, so that what is shown of labels is hostile as well.
                    if made.get("targetId").is_some() && round != 3 {
                        made["targetId"] = json!(parent);
                    }
                    lines.push(made.to_string());
                }
                // Every seventh entry is left as a branch of its own.
                if lines.len() % 7 != 0 {
                    parent = Some(id);
                }
            }
        }
        lines.push((*payload).to_owned());
        lines.push(json!(payload).to_string());
        lines.push(json!([payload, { *payload: payload }]).to_string());
    }
    lines
}

/// `template` with every string replaced by `payload`, but for the values of these keys and of known image data.
fn replaced(template: &Value, payload: &str, kept: &[&str], keys: bool) -> Value {
    match template {
        Value::String(text) if text == "AAAA" || text == "image/png" || text == "verbatim-lines" => {
            template.clone()
        }
        Value::String(text) if text.contains('\n') => json!(format!("{payload}\n{payload}")),
        Value::String(_) => json!(payload),
        Value::Array(values) => values.iter().map(|value| replaced(value, payload, kept, keys)).collect(),
        Value::Object(fields) => {
            let mut filled: Map<String, Value> = Map::new();
            for (key, value) in fields {
                let stays = kept.contains(&key.as_str()) || (key == "name" && value != "x");
                let value = if stays { value.clone() } else { replaced(value, payload, kept, keys) };
                filled.insert(key.clone(), value);
            }
            if keys {
                filled.insert(payload.to_owned(), json!(payload));
            }
            Value::Object(filled)
        }
        other => other.clone(),
    }
}
