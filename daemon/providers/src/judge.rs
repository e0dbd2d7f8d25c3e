//! Conversations made at random are put before judges that refuse what the vendors refuse: whoever said what, however it
//! ended, with tools, images, thinking and changes of model in between. All must pass.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::proof;
use crate::registry::{CacheRetention, RequestOptions};
use atomic_protocol::model::{ModelRequest, ThinkingLevel};
use vendors::{Case, JUDGES};

#[path = "judge_vendors.rs"]
mod vendors;

/// What a block of an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    Words,
    Blank,
    SignedNothing,
    SignedWords,
    Thought,
    UnsignedThought,
    ThoughtOfNothing,
    Redacted,
    Call,
    OddCall,
    SignedCall,
}

const SAID: [Said; 11] = [
    Said::Words,
    Said::Blank,
    Said::SignedNothing,
    Said::SignedWords,
    Said::Thought,
    Said::UnsignedThought,
    Said::ThoughtOfNothing,
    Said::Redacted,
    Said::Call,
    Said::OddCall,
    Said::SignedCall,
];

/// Who gave an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The model that is asked.
    Same,
    /// Another model of the provider.
    Sibling,
    /// A model of another provider and API.
    Stranger,
}

/// What happens in a conversation.
#[derive(Clone, Debug)]
enum Step {
    /// With an image or without.
    User(bool),
    Answer {
        blocks: Vec<Said>,
        who: Who,
        stop: &'static str,
        /// How many of its calls have results.
        results: usize,
        /// Results show something.
        image: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let who = prop_oneof![3 => Just(Who::Same), 1 => Just(Who::Sibling), 1 => Just(Who::Stranger)];
    let stop = prop_oneof![
        3 => Just("toolUse"),
        2 => Just("stop"),
        1 => Just("length"),
        1 => Just("error"),
        1 => Just("aborted")
    ];
    let blocks = proptest::sample::subsequence(SAID.to_vec(), 0..6).prop_shuffle();
    prop_oneof![
        1 => any::<bool>().prop_map(Step::User),
        3 => (blocks, who, stop, 0..4_usize, any::<bool>())
            .prop_map(|(blocks, who, stop, results, image)| Step::Answer { blocks, who, stop, results, image }),
    ]
}

/// One white pixel.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// A conversation, and the signatures in it that belong to the model that is asked.
struct Told {
    messages: Vec<String>,
    own: HashSet<String>,
}

fn tell(steps: &[Step], api: &str) -> Told {
    let image = json!({"type": "image", "data": PIXEL, "mimeType": "image/png"});
    let mut messages = vec![json!({"role": "user", "content": "begin"})];
    let mut own = HashSet::new();
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::User(true) => {
                messages.push(json!({"role": "user", "content": [{"type": "text", "text": ""}, image]}));
            }
            Step::User(false) => messages.push(json!({"role": "user", "content": "more"})),
            Step::Answer { blocks, who, stop, results, image: shown } => {
                let (provider, api, model) = match who {
                    Who::Same => ("p", api, "m"),
                    Who::Sibling => ("p", api, "sibling"),
                    Who::Stranger => ("q", "new-api", "stranger"),
                };
                let mut calls = Vec::new();
                let content: Vec<Value> = blocks
                    .iter()
                    .enumerate()
                    .map(|(at, said)| {
                        let block = said_block(*said, api, &format!("{model}_{number}_{at}"));
                        calls.extend(block["id"].as_str().map(str::to_owned));
                        block
                    })
                    .collect();
                if *who == Who::Same && !matches!(*stop, "error" | "aborted") {
                    let names = ["textSignature", "thinkingSignature", "thoughtSignature"];
                    let signed = content.iter().flat_map(|block| names.map(|name| block[name].as_str()));
                    own.extend(signed.flatten().map(str::to_owned));
                }
                messages.push(json!({"role": "assistant", "provider": provider, "api": api, "model": model, "stopReason": stop, "content": content}));
                for (at, id) in calls.iter().take(*results).enumerate() {
                    let mut content =
                        if at == 0 { vec![json!({"type": "text", "text": "r"})] } else { Vec::new() };
                    content.extend(shown.then(|| image.clone()));
                    messages.push(json!({"role": "toolResult", "toolCallId": id, "isError": at > 0, "content": content}));
                }
            }
        }
    }
    messages.push(json!({"role": "user", "content": "end"}));
    Told { messages: messages.iter().map(Value::to_string).collect(), own }
}

/// A block as the API's own mapper would have made it.
fn said_block(said: Said, api: &str, name: &str) -> Value {
    let sealed = STANDARD.encode(format!("sig {name}"));
    let thought = match api {
        crate::openai_responses::API | crate::openai_responses::azure::API => {
            json!({"type": "reasoning", "id": format!("rs_{name}"), "summary": [], "encrypted_content": sealed}).to_string()
        }
        crate::openai_completions::API => "reasoning_content".to_owned(),
        _ => sealed.clone(),
    };
    let words = match api {
        crate::openai_responses::API | crate::openai_responses::azure::API => {
            json!({"v": 1, "id": format!("msg_{name}"), "phase": "final_answer"}).to_string()
        }
        _ => sealed.clone(),
    };
    match said {
        Said::Words => json!({"type": "text", "text": "words"}),
        Said::Blank => json!({"type": "text", "text": " \n"}),
        Said::SignedNothing => json!({"type": "text", "text": "", "textSignature": words}),
        Said::SignedWords => json!({"type": "text", "text": "signed", "textSignature": words}),
        Said::Thought => {
            json!({"type": "thinking", "thinking": format!("thought {name}"), "thinkingSignature": thought})
        }
        Said::UnsignedThought => json!({"type": "thinking", "thinking": format!("thought {name} unsigned")}),
        Said::ThoughtOfNothing => json!({"type": "thinking", "thinking": "", "thinkingSignature": thought}),
        Said::Redacted => {
            json!({"type": "thinking", "thinking": "[x]", "thinkingSignature": sealed, "redacted": true})
        }
        Said::Call => {
            json!({"type": "toolCall", "id": format!("call_{name}|fc_{name}"), "name": "one", "arguments": {"a": 1}})
        }
        Said::OddCall => {
            json!({"type": "toolCall", "id": format!("call {}:{name}", "x".repeat(70)), "name": "two", "arguments": null})
        }
        Said::SignedCall => {
            json!({"type": "toolCall", "id": format!("t-{name}"), "name": "one", "arguments": {}, "thoughtSignature": sealed})
        }
    }
}

fn asked(told: &Told, api: &str, thinking: bool, tools: bool) -> ModelRequest {
    let texts: Vec<&str> = told.messages.iter().map(String::as_str).collect();
    // A model whose name tells the adapters nothing, but for Bedrock: most of its rules are Claude's.
    let id = if api == crate::bedrock::API { "anthropic.claude-sonnet-4-6" } else { "m" };
    let spec = json!({"id": id, "provider": "p", "api": api, "reasoning": true, "input": ["text", "image"], "contextWindow": 200_000, "maxTokens": 32_000, "thinkingLevelMap": {"high": "high"}});
    let mut request = proof::request(&spec.to_string(), &texts);
    if id != "m" {
        for message in &mut request.messages {
            if let atomic_protocol::message::Message::Assistant(answer) = message
                && answer.model == "m"
            {
                answer.model = id.to_owned();
            }
        }
    }
    request.system = "Be good.".into();
    if tools {
        request.tools = proof::tools();
    }
    request.thinking = if thinking { ThinkingLevel::High } else { ThinkingLevel::Off };
    request
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_conversation_passes(
        steps in proptest::collection::vec(step(), 0..8),
        thinking: bool,
        tools: bool,
        long: bool,
    ) {
        let cache = if long { CacheRetention::Long } else { CacheRetention::Short };
        for (api, judge) in JUDGES {
            let told = tell(&steps, api);
            let request = asked(&told, api, thinking, tools);
            let text = String::from_utf8(crate::body_of(&request, cache, &RequestOptions::default())).unwrap();
            let body: Value = serde_json::from_str(&text).unwrap();
            if let Err(why) = judge(&Case { body: &body, own: &told.own }) {
                prop_assert!(false, "{api}: {why}\n{}\n{text}", told.messages.join("\n"));
            }
        }
    }
}
