//! A built-in model that answers from a script: no key, no network, the same answer every time. It is there to try the
//! program out and to test what surrounds a model. It is used only where somebody names it.

use std::time::Duration;

use atomic_protocol::json::{ObjectWriter, Raw};
use atomic_protocol::message::{Block, Message, StopReason, ToolResultMessage, Usage};
use atomic_protocol::model::{Model, ModelCost, ModelEvent, ModelRequest, ModelSpec, ThinkingLevel};
use tokio::sync::mpsc;

use crate::env::Env;
use crate::estimate;
use crate::pump::{Stop, send};

/// Provider id; the model has the same one.
pub const PROVIDER: &str = "demo";
/// The dialect's name in models.
pub const API: &str = "demo";

/// Between two pieces, so that a person sees it stream.
const DELAY: Duration = Duration::from_millis(15);

/// The session's variable that replaces [`DELAY`], in milliseconds; 0 is none.
const DELAY_VARIABLE: &str = "ATOMIC_DEMO_DELAY_MS";

/// Words of the prompt that are quoted.
const QUOTED_WORDS: usize = 8;

/// Most characters of a tool's first line that are reported.
const QUOTED_CHARS: usize = 200;

/// What `bash` is asked to run when the prompt names nothing.
const HELLO: &str = "echo \"hello from atomic\"; pwd";

pub(crate) fn model() -> Model {
    Model::from_spec(ModelSpec {
        id: PROVIDER.to_owned(),
        name: "Demo".to_owned(),
        api: API.to_owned(),
        provider: PROVIDER.to_owned(),
        base_url: String::new(),
        reasoning: true,
        thinking_level_map: None,
        input: vec!["text".to_owned(), "image".to_owned()],
        cost: ModelCost::default(),
        context_window: 200_000,
        max_tokens: 16_384,
        headers: None,
        compat: None,
        input_limits: None,
    })
}

/// What will be said.
#[derive(Debug, Default, PartialEq)]
struct Script {
    thinking: String,
    text: String,
    /// Tool and arguments.
    call: Option<(String, Raw)>,
}

pub(crate) async fn stream(
    env: &Env,
    request: &ModelRequest,
    sink: &mpsc::Sender<Vec<ModelEvent>>,
) -> Result<(), Stop> {
    let delay = env
        .get(DELAY_VARIABLE)
        .and_then(|text| text.trim().parse().ok())
        .map_or(DELAY, Duration::from_millis);
    for batch in events(request) {
        send(sink, batch).await?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
    Ok(())
}

/// The answer in the pieces that are sent.
fn events(request: &ModelRequest) -> Vec<Vec<ModelEvent>> {
    let script = script(request);
    // The same conversation gets the same ids, two places of one conversation never do.
    let place = format!("{}_{}", last_time(&request.messages), request.messages.len());
    let mut usage = Usage { input: estimate::prompt_tokens(request), ..Usage::default() };
    usage.total_tokens = usage.input;
    let mut batches = vec![vec![
        ModelEvent::Start { response_id: Some(format!("demo_{place}")), response_model: None },
        ModelEvent::Usage(usage.clone()),
    ]];
    let mut index = 0;
    if request.thinking != ThinkingLevel::Off && !script.thinking.is_empty() {
        batches.push(vec![ModelEvent::ThinkingStart { index }]);
        batches.extend(words(&script.thinking).map(|delta| vec![ModelEvent::ThinkingDelta { index, delta }]));
        batches.push(vec![ModelEvent::ThinkingEnd { index, signature: None, redacted: false }]);
        usage.reasoning = Some(estimate::to_tokens(script.thinking.len()));
        usage.output += estimate::to_tokens(script.thinking.len());
        index += 1;
    }
    batches.push(vec![ModelEvent::TextStart { index }]);
    batches.extend(words(&script.text).map(|delta| vec![ModelEvent::TextDelta { index, delta }]));
    batches.push(vec![ModelEvent::TextEnd { index, signature: None }]);
    usage.output += estimate::to_tokens(script.text.len());
    let mut reason = StopReason::Stop;
    if let Some((name, arguments)) = script.call {
        index += 1;
        reason = StopReason::ToolUse;
        usage.output += estimate::to_tokens(name.len() + arguments.as_str().len());
        batches.push(vec![ModelEvent::ToolCallStart { index, id: format!("demo_{place}_call"), name }]);
        batches
            .extend(words(arguments.as_str()).map(|delta| vec![ModelEvent::ToolCallDelta { index, delta }]));
        batches.push(vec![ModelEvent::ToolCallEnd { index, arguments, thought_signature: None }]);
    }
    usage.total_tokens = usage.input + usage.output;
    batches
        .push(vec![ModelEvent::Usage(usage), ModelEvent::Done { reason, raw_reason: None, end_turn: None }]);
    batches
}

fn script(request: &ModelRequest) -> Script {
    match request.messages.last() {
        Some(Message::ToolResult(_)) => report(&request.messages),
        _ => {
            let last = request.messages.iter().rev().find_map(|message| match message {
                Message::User(user) => Some(text_of(&user.content.blocks())),
                _ => None,
            });
            answer(&last.unwrap_or_default(), request)
        }
    }
}

fn answer(prompt: &str, request: &ModelRequest) -> Script {
    let quote = match first_words(prompt) {
        quote if quote.is_empty() => "You said nothing in words.".to_owned(),
        quote => format!("You said: \"{quote}\"."),
    };
    let active = |name: &str| request.tools.iter().any(|tool| tool.name == name);
    let call = call_for(prompt, active);
    let (plan, thinking) = match &call {
        Some((name, _)) => (
            format!("I am a script, not a model, but the tool is real: I will call `{name}` now."),
            format!("The prompt is new. The tool {name} is active, so I can show a real call."),
        ),
        None => (
            "I am a script, not a model, and no tool that I know is active, so this is all I do.".to_owned(),
            "The prompt is new. No tool that I know is active, so I only answer.".to_owned(),
        ),
    };
    Script { thinking, text: format!("{quote} {plan}"), call }
}

/// `run COMMAND`, `read FILE`, `list [DIRECTORY]`; else something harmless.
fn call_for(prompt: &str, active: impl Fn(&str) -> bool) -> Option<(String, Raw)> {
    let line = prompt.trim().lines().next().unwrap_or_default();
    let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (verb, rest) = (verb.to_lowercase(), rest.trim());
    let call = |name: &str, key: &str, value: &str| {
        let mut out = Vec::new();
        let mut object = ObjectWriter::begin(&mut out);
        object.str(key, value);
        object.end();
        Some((name.to_owned(), Raw::from_trusted(out.into())))
    };
    let directory = if rest.is_empty() { "." } else { rest };
    match verb.as_str() {
        "run" if !rest.is_empty() && active("bash") => call("bash", "command", rest),
        "read" if !rest.is_empty() && active("read") => call("read", "path", rest),
        "list" | "ls" if active("ls") => call("ls", "path", directory),
        "list" | "ls" if active("bash") => call("bash", "command", "ls"),
        _ if active("bash") => call("bash", "command", HELLO),
        _ if active("ls") => call("ls", "path", "."),
        _ if active("find") => call("find", "pattern", "*"),
        _ => None,
    }
}

fn report(messages: &[Message]) -> Script {
    // All results since the last answer.
    let results: Vec<&ToolResultMessage> = messages
        .iter()
        .rev()
        .map_while(|message| match message {
            Message::ToolResult(result) => Some(result),
            _ => None,
        })
        .collect();
    let lines = results.iter().rev().map(|result| {
        let text = text_of(&result.content);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("(nothing)");
        let line: String = line.chars().take(QUOTED_CHARS).collect();
        let verb = if result.is_error { "failed with" } else { "returned" };
        format!("The tool `{}` {verb}: {line}", result.tool_name)
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    Script { thinking: "The tool has answered. I report its first line.".to_owned(), text, call: None }
}

fn text_of(blocks: &[Block]) -> String {
    blocks.iter().filter_map(Block::as_text).collect::<Vec<_>>().join("\n")
}

fn first_words(prompt: &str) -> String {
    let mut words = prompt.split_whitespace();
    let quote = words.by_ref().take(QUOTED_WORDS).collect::<Vec<_>>().join(" ");
    let quote: String = quote.chars().take(QUOTED_CHARS).collect();
    if words.next().is_some() { format!("{quote} …") } else { quote }
}

/// Pieces as a model would stream them: a word with the white space after it.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split_inclusive(' ').map(str::to_owned)
}

fn last_time(messages: &[Message]) -> u64 {
    messages
        .last()
        .map(|message| match message {
            Message::User(message) => message.timestamp.0,
            Message::Assistant(message) => message.timestamp.0,
            Message::ToolResult(message) => message.timestamp.0,
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::Other(_) => 0,
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_protocol::tool::ToolSpec;
    use std::sync::Arc;

    fn request(tools: &[&str], messages: &[&str]) -> ModelRequest {
        let tool = |name: &&str| ToolSpec {
            name: (*name).to_owned(),
            description: String::new(),
            parameters: Raw::empty_object(),
            snippet: None,
            guidelines: Vec::new(),
            sequential: false,
        };
        ModelRequest {
            model: Arc::new(model()),
            thinking: ThinkingLevel::Medium,
            system: Arc::from("system"),
            messages: messages
                .iter()
                .map(|text| Message::parse(&Raw::parse(text).unwrap()).unwrap())
                .collect(),
            tools: tools.iter().map(tool).collect(),
            session_id: String::new(),
        }
    }

    fn user(text: &str) -> String {
        format!(r#"{{"role":"user","content":[{{"type":"text","text":"{text}"}}],"timestamp":7}}"#)
    }

    #[test]
    fn prompts_choose_the_tool() {
        for (prompt, tools, want) in [
            (
                "run cargo --version",
                &["read", "bash"][..],
                Some(("bash", r#"{"command":"cargo --version"}"#)),
            ),
            ("READ src/a.rs\nplease", &["read", "bash"], Some(("read", r#"{"path":"src/a.rs"}"#))),
            ("list src", &["ls"], Some(("ls", r#"{"path":"src"}"#))),
            ("list", &["bash"], Some(("bash", r#"{"command":"ls"}"#))),
            (
                "hello there",
                &["edit", "bash"],
                Some(("bash", r#"{"command":"echo \"hello from atomic\"; pwd"}"#)),
            ),
            ("hello", &["find"], Some(("find", r#"{"pattern":"*"}"#))),
            ("hello", &["edit", "write"], None),
            ("run x", &[], None),
        ] {
            let script = answer(prompt, &request(tools, &[]));
            let call = script.call.as_ref().map(|(name, raw)| (name.as_str(), raw.as_str()));
            assert_eq!(call, want, "{prompt}");
        }
    }

    #[test]
    fn an_answer_is_whole_and_the_same_every_time() {
        let request = request(&["bash"], &[&user("one two three four five six seven eight nine")]);
        let batches = events(&request);
        assert_eq!(batches, events(&request));
        let all: Vec<ModelEvent> = batches.into_iter().flatten().collect();
        let joined = |pick: fn(&ModelEvent) -> Option<&str>| all.iter().filter_map(pick).collect::<String>();
        let text = joined(|event| match event {
            ModelEvent::TextDelta { delta, .. } => Some(delta),
            _ => None,
        });
        assert!(text.starts_with("You said: \"one two three four five six seven eight …\"."), "{text}");
        let json = joined(|event| match event {
            ModelEvent::ToolCallDelta { delta, .. } => Some(delta),
            _ => None,
        });
        assert!(all.iter().any(|event| matches!(event, ModelEvent::ToolCallEnd { index: 2, arguments, .. } if arguments.as_str() == json)));
        assert!(matches!(all.first(), Some(ModelEvent::Start { .. })));
        assert!(matches!(all.last(), Some(ModelEvent::Done { reason: StopReason::ToolUse, .. })));
        let usage = all.iter().rev().find_map(|event| match event {
            ModelEvent::Usage(usage) => Some(usage),
            _ => None,
        });
        assert!(
            usage.is_some_and(|usage| usage.output > 10 && usage.total_tokens == usage.input + usage.output)
        );
    }

    #[test]
    fn results_are_reported() {
        let result = r#"{"role":"toolResult","toolCallId":"c","toolName":"bash","content":[{"type":"text","text":"\n hi there\nmore"}]}"#;
        let script = script(&request(&["bash"], &[&user("x"), result]));
        assert_eq!((script.text.as_str(), script.call), ("The tool `bash` returned: hi there", None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_session_sets_the_pace() {
        for (value, wait) in
            [(None, DELAY), (Some("0"), Duration::ZERO), (Some("100"), Duration::from_millis(100))]
        {
            let env: Env = value.into_iter().map(|value| (DELAY_VARIABLE, value)).collect();
            let request = request(&[], &[&user("x")]);
            let pieces = events(&request).len() as u32;
            let (sink, mut batches) = mpsc::channel(1000);
            let begin = tokio::time::Instant::now();
            stream(&env, &request, &sink).await.unwrap();
            assert_eq!(begin.elapsed(), wait * pieces);
            drop(sink);
            let mut count = 0;
            while batches.recv().await.is_some() {
                count += 1;
            }
            assert_eq!(count, pieces);
        }
    }
}
