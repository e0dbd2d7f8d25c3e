//! Sessions that tests and the browser check look at: one to read, one that attacks, one that is long.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "each of those who include this module uses a part of it"
)]

mod demo;
mod hostile;

pub use demo::demo;
pub use hostile::{PAYLOADS, hostile, templates};

use serde_json::{Value, json};

/// A session of `count` entries as an agent at work makes them: questions, answers with thinking, calls and results.
pub fn many(count: usize) -> Vec<String> {
    let mut lines = vec![header("/home/user/project").to_string()];
    // Twenty-four lines, some of them coloured, as test runners print them.
    let line = |line: usize| match line % 4 {
        0 => format!("test module::case_{line} ... \u{1b}[32mok\u{1b}[0m\n"),
        _ => format!("    at module::case_{line} (src/module.rs:{line})\n"),
    };
    let output: String = (0..24).map(line).collect();
    let text = "I looked at `src/parser.rs` and the **second** branch is never taken:\n\n- `peek` returns a *copy*\n- the \
                position moves twice\n\n```rust\nfn peek(&self) -> Option<char> {\n    self.text[self.at..].chars().next()\n}\n```\n\nSo the \
                fix is one line.";
    for at in 0..count {
        let message = match at % 5 {
            0 => {
                json!({"role":"user","content":[{"type":"text","text":format!("Question {at}: why does the parser fail on line {at}?")}],"timestamp":0})
            }
            1 | 3 => json!({"role":"assistant","content":[
                {"type":"thinking","thinking":format!("Let me think about step {at}. The parser keeps a position; I should read the file first and then run the tests. {}", if at % 5 == 1 { "" } else { "The failing case has two tokens without a blank between them, so peek must have moved the position. If it did, every call of next after it skips one, which is what the report says. I will check that first."})},
                {"type":"text","text":if at % 5 == 1 { "I'll look at the parser first, then run its tests." } else { text }},
                {"type":"toolCall","id":format!("call-{at}"),"name":if at % 2 == 0 {"read"} else {"bash"},
                 "arguments":{"command":format!("cargo test -p parser -- case_{at}"),"timeout":30}}],
                "api":"x","provider":"anthropic","model":"claude-example","stopReason":"toolUse","timestamp":0,
                "usage":{"input":120,"output":340,"cacheRead":20000,"cacheWrite":900,"totalTokens":21360,"cost":{"input":0.0,"output":0.01,"cacheRead":0.0,"cacheWrite":0.0,"total":0.0123}}}),
            _ => {
                json!({"role":"toolResult","toolCallId":format!("call-{}", at - 1),"toolName":"bash","isError":false,"timestamp":0,
                "content":[{"type":"text","text":output}]})
            }
        };
        let parent = at.checked_sub(1).map(|before| format!("{before:08x}"));
        lines.push(
            entry(&format!("{at:08x}"), parent.as_deref(), at, "message", json!({"message":message}))
                .to_string(),
        );
    }
    lines
}

/// The first line of a session.
pub fn header(cwd: &str) -> Value {
    json!({"type":"session","version":3,"id":"019a1b2c-3d4e-7f50-8a9b-0c1d2e3f4a5b","timestamp":"2026-08-22T10:11:12.345Z","cwd":cwd})
}

/// An entry; `at` counts the seconds from the session's beginning.
pub fn entry(id: &str, parent: Option<&str>, at: usize, kind: &str, body: Value) -> Value {
    let (hours, minutes, seconds) = (10 + at / 3600, at / 60 % 60, at % 60);
    let (day, hours) = (22 + hours / 24, hours % 24);
    let mut entry = json!({"type":kind,"id":id,"parentId":parent,
        "timestamp":format!("2026-08-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.000Z")});
    if let (Value::Object(entry), Value::Object(body)) = (&mut entry, body) {
        entry.extend(body);
    }
    entry
}
