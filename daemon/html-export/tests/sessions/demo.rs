//! A session that has something of everything, to be looked at.

use serde_json::{Value, json};

use super::{entry, header};

/// A chart of twelve bars, PNG.
const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAUAAAAB4AgMAAAD+oMNNAAAADFBMVEX///+qqqpGeKq+WlCH2vF1AAAAaElEQVR42u3MwQmAIAAAQD/t16clW7IEIQIrJCTR7ga4EAAOWyQUCoX/DlMlFAr7Dc+VUCgUdhHmlVAoFNYN10gobBemSih8UQmF34d5JSwP7yphk/C5ahuWVMOE5ZXwOpyWauYAY9oBIJ9sPi66/8kAAAAASUVORK5CYII=";

struct Script {
    lines: Vec<String>,
    last: Option<String>,
    count: usize,
}

impl Script {
    fn add(&mut self, id: &str, kind: &str, body: Value) -> &mut Self {
        self.count += 1;
        self.lines.push(entry(id, self.last.as_deref(), self.count * 37, kind, body).to_string());
        self.last = Some(id.to_owned());
        self
    }

    fn message(&mut self, id: &str, message: Value) -> &mut Self {
        self.add(id, "message", json!({ "message": message }))
    }

    fn user(&mut self, id: &str, text: &str) -> &mut Self {
        self.message(id, json!({"role":"user","content":[{"type":"text","text":text}],"timestamp":0}))
    }

    fn assistant(&mut self, id: &str, content: Value, stop: &str) -> &mut Self {
        self.message(
            id,
            json!({"role":"assistant","content":content,"api":"anthropic-messages","provider":"anthropic","model":"claude-example-5",
                "stopReason":stop,"timestamp":0,"usage":{"input":1200,"output":480,"cacheRead":24000,"cacheWrite":3100,"totalTokens":28780,
                "cost":{"input":0.0036,"output":0.0072,"cacheRead":0.0072,"cacheWrite":0.0116,"total":0.0296}}}),
        )
    }

    fn result(&mut self, id: &str, call: &str, tool: &str, text: &str, more: Value) -> &mut Self {
        let mut message = json!({"role":"toolResult","toolCallId":call,"toolName":tool,"content":[{"type":"text","text":text}],"isError":false,"timestamp":0});
        if let (Value::Object(message), Value::Object(more)) = (&mut message, more) {
            message.extend(more);
        }
        self.message(id, message)
    }

    fn back_to(&mut self, id: &str) -> &mut Self {
        self.last = Some(id.to_owned());
        self
    }
}

/// The session: header first.
pub fn demo() -> Vec<String> {
    let mut script =
        Script { lines: vec![header("/home/mira/code/tally").to_string()], last: None, count: 0 };
    script
        .add("a0000001", "model_change", json!({"provider":"anthropic","modelId":"claude-example-5"}))
        .add("a0000002", "thinking_level_change", json!({"thinkingLevel":"medium"}))
        .add("a0000003", "session_info", json!({"name":"Fix the rounding of totals"}))
        .user("a0000004", "The invoice totals are off by a cent when there are many lines.\nFind out why and fix it, with a test. The report is in `reports/2026-07.csv`.")
        .assistant(
            "a0000005",
            json!([
                {"type":"thinking","thinking":"**Finding the sum**\n\nThe user says totals are off by a cent. Likely each line is rounded before summing, or floats are used for money. I should look at the code that sums, find where the rounding is, and compare with the report that was given, line by line if need be."},
                {"type":"text","text":"I'll look at how totals are added up."},
                {"type":"toolCall","id":"c1","name":"grep","arguments":{"pattern":"fn total|round\\(","path":"src","context":2}},
                {"type":"toolCall","id":"c2","name":"read","arguments":{"path":"src/invoice.rs","offset":1,"limit":40}}
            ]),
            "toolUse",
        )
        .result("a0000006", "c1", "grep", "src/invoice.rs:18:    pub fn total(&self) -> f64 {\nsrc/invoice.rs:19:        self.lines.iter().map(|line| round(line.amount)).sum()\nsrc/money.rs:4:pub fn round(value: f64) -> f64 {", json!({}))
        .result(
            "a0000007",
            "c2",
            "read",
            "use crate::money::round;\n\n/// One line of an invoice.\n#[derive(Clone, Debug)]\npub struct Line<'a> {\n    pub text: &'a str,\n    pub amount: f64, // in euros\n}\n\nimpl Invoice<'_> {\n    /// What is to be paid.\n    pub fn total(&self) -> f64 {\n        let rate = 1.19e0;\n        self.lines.iter().map(|line| round(line.amount * rate)).sum()\n    }\n}\n",
            json!({}),
        )
        .assistant(
            "a0000008",
            json!([
                {"type":"text","text":"Found it. Each line is rounded **before** the sum, and the sum itself is binary floating point:\n\n| lines | shown | exact | off by |\n|:------|------:|------:|-------:|\n| 3 | 10.00 | 10.00 | 0.00 |\n| 120 | 418.37 | 418.36 | 0.01 |\n| 4 000 | 13 941.20 | 13 941.02 | 0.18 |\n\nThe fix:\n\n1. keep amounts as whole cents (`i64`),\n2. add the tax once, on the sum,\n3. round half to even there.\n\n> Rounding once is what [EN 16931](https://example.org/en16931) asks for as well.\n\n```rust\npub fn total(&self) -> Cents {\n    let net: i64 = self.lines.iter().map(|line| line.amount.0).sum();\n    Cents(net + round_half_even(net * RATE, 100)) // one rounding\n}\n```"},
                {"type":"toolCall","id":"c3","name":"edit","arguments":{"path":"src/invoice.rs","edits":[{"oldText":"x","newText":"y"}]}},
                {"type":"toolCall","id":"c4","name":"write","arguments":{"path":"tests/rounding.py","content":"import pytest\n\n@pytest.mark.parametrize(\"n\", [3, 120, 4000])\ndef test_total(n):\n    \"\"\"One rounding, on the sum.\"\"\"\n    assert total([0.1] * n) == round(n * 0.1, 2)  # not n roundings\n"}}
            ]),
            "toolUse",
        )
        .result(
            "a0000009",
            "c3",
            "edit",
            "Successfully replaced 1 block(s) in src/invoice.rs.",
            json!({"details":{"diff":"    ...\n  9 }\n 10 \n 11 impl Invoice<'_> {\n-12     pub fn total(&self) -> f64 {\n-13         let rate = 1.19e0;\n-14         self.lines.iter().map(|line| round(line.amount * rate)).sum()\n+12     pub fn total(&self) -> Cents {\n+13         let net: i64 = self.lines.iter().map(|line| line.amount.0).sum();\n+14         Cents(net + round_half_even(net * RATE, 100))\n 15     }\n 16 }","firstChangedLine":12}}),
        )
        .result("a000000a", "c4", "write", "Successfully wrote 241 bytes to tests/rounding.py", json!({}))
        .assistant(
            "a000000b",
            json!([{"type":"toolCall","id":"c5","name":"bash","arguments":{"command":"cargo test -p tally 2>&1 | tail -n 20","timeout":120}}]),
            "toolUse",
        )
        .result(
            "a000000c",
            "c5",
            "bash",
            "\u{1b}[1m\u{1b}[32m   Compiling\u{1b}[0m tally v0.3.0 (/home/mira/code/tally)\n\u{1b}[1m\u{1b}[33mwarning\u{1b}[0m\u{1b}[1m: unused import: `round`\u{1b}[0m\n \u{1b}[1m\u{1b}[34m-->\u{1b}[0m src/invoice.rs:1:5\n\nrunning 3 tests\ntest totals::three ... \u{1b}[32mok\u{1b}[0m\ntest totals::many ... \u{1b}[32mok\u{1b}[0m\ntest totals::huge ... \u{1b}[31mFAILED\u{1b}[0m\n\n\u{1b}[38;5;208morange\u{1b}[0m \u{1b}[38;2;120;80;220mviolet\u{1b}[0m \u{1b}[7minverse\u{1b}[0m \u{1b}[41;97m on red \u{1b}[0m \u{1b}[48;5;28m on green \u{1b}[0m\n\nCommand exited with code 101",
            json!({"isError":true}),
        )
        .assistant("a000000d", json!([{"type":"text","text":"The large case overflows `i32` in `round_half_even`. Shall I widen it to `i128`, or saturate?"}]), "stop")
        .user("a000000e", "Saturate.")
        .assistant(
            "a000000f",
            json!([{"type":"text","text":"Saturating would hide a wrong invoice; I would rather not, but here is how it looks:\n\n```ts\nexport const saturate = (value: bigint): number => {\n  const LIMIT = 2n ** 53n; // beyond this a number lies\n  return Number(value > LIMIT ? LIMIT : value);\n};\n```"}]),
            "stop",
        )
        .back_to("a000000d")
        .user("a0000010", "Widen it. And show me the chart of the differences.")
        .assistant(
            "a0000011",
            json!([
                {"type":"text","text":"Widened to `i128`; the chart is below."},
                {"type":"toolCall","id":"c6","name":"read","arguments":{"path":"out/differences.png"}}
            ]),
            "toolUse",
        )
        .message(
            "a0000012",
            json!({"role":"toolResult","toolCallId":"c6","toolName":"read","isError":false,"timestamp":0,"content":[
                {"type":"text","text":"Read image file [image/png]"},{"type":"image","data":PICTURE,"mimeType":"image/png"}]}),
        )
        .assistant("a0000013", json!([{"type":"text","text":"All three tests pass now. What changed:\n\n- `Cents` is a type of its own\n- tax is added **once**\n- [x] test for 3, 120 and 4 000 lines\n- [ ] the old reports are not corrected"}]), "stop")
        .add("a0000014", "label", json!({"targetId":"a0000013","label":"rounding fixed"}))
        .message(
            "a0000015",
            json!({"role":"bashExecution","command":"git diff --stat","output":" src/invoice.rs    | 9 +++++----\n tests/rounding.py | 7 +++++++\n 2 files changed, 12 insertions(+), 4 deletions(-)\n","exitCode":0,"cancelled":false,"truncated":false,"timestamp":0}),
        )
        .add("a0000016", "custom", json!({"customType":"todo","data":{"items":[{"text":"correct old reports","done":false}]}}))
        .add("a0000017", "custom_message", json!({"customType":"reviewer","content":"Two reviewers have seen this change.","display":true}))
        .add(
            "a0000018",
            "compaction",
            json!({"summary":"User: The invoice totals are off by a cent\n(filtered 212 lines)\nAssistant: All three tests pass now.","firstKeptEntryId":"a0000013","tokensBefore":128400,"details":{"strategy":"verbatim-lines"}}),
        )
        .add("a0000019", "branch_summary", json!({"fromId":"a000000d","summary":"On the other branch **saturating** was tried and given up."}))
        .add("a000001a", "from_the_future", json!({"payload":{"anything":[1,2,3]}}))
        .user("a000001b", "Now correct the old reports.")
        .message(
            "a000001c",
            json!({"role":"assistant","content":[],"api":"anthropic-messages","provider":"anthropic","model":"claude-example-5","stopReason":"error",
                "errorMessage":"529 overloaded_error: the service is busy","timestamp":0,"usage":{}}),
        )
        .add("a000001d", "model_change", json!({"provider":"openai","modelId":"gpt-example"}))
        .message(
            "a000001e",
            json!({"role":"assistant","content":[{"type":"text","text":"I'll begin with July. Each report is read, summed again, and written beside the old one; nothing is overw"}],
                "api":"openai-responses","provider":"openai","model":"gpt-example","stopReason":"aborted","errorMessage":"Request was aborted","timestamp":0,
                "usage":{"input":900,"output":40,"cacheRead":0,"cacheWrite":0,"totalTokens":940,"cost":{"total":0.004}}}),
        );
    script.lines
}
