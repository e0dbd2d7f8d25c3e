//! Asks a model once, outside the daemon, and prints each event on a line: for developers, see `tests/providers-diff`.
//!
//! Stdin: `{"agentDir":…,"env":{…},"provider":…,"model":…,"thinking":…,"system":…,"messages":[…],"tools":[…],"sessionId":…}`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read as _;
use std::path::PathBuf;

use atomic_protocol::Raw;
use atomic_protocol::message::Message;
use atomic_protocol::model::{ModelRequest, ThinkingLevel};
use atomic_protocol::tool::ToolSpec;
use atomic_providers::{Env, Http, Registry, SINK_CAPACITY, Setup, stream};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    agent_dir: PathBuf,
    env: BTreeMap<String, String>,
    provider: String,
    model: String,
    thinking: String,
    system: String,
    messages: Vec<Raw>,
    tools: Vec<Tool>,
    session_id: String,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    description: String,
    parameters: Raw,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "that is what it is for")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let asked: Asked = serde_json::from_str(&text)?;
    let registry = Registry::load(Setup {
        agent_dir: asked.agent_dir,
        env: asked.env.into_iter().collect::<Env>(),
        ..Setup::default()
    });
    if let Some(warning) = registry.warnings().first() {
        return Err(warning.clone().into());
    }
    let tools = asked.tools.into_iter().map(|tool| ToolSpec {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
        snippet: None,
        guidelines: Vec::new(),
        sequential: false,
    });
    let model = registry.find(&asked.provider, &asked.model).ok_or("no such model")?;
    let wish = ThinkingLevel::parse(&asked.thinking).ok_or("no such level")?;
    let request = ModelRequest {
        // As sessions do it.
        thinking: model.clamp_thinking(wish),
        model,
        system: asked.system.into(),
        messages: asked.messages.iter().map(Message::parse).collect::<Result<_, _>>()?,
        tools: tools.collect(),
        session_id: asked.session_id,
    };
    let (sink, mut batches) = mpsc::channel(SINK_CAPACITY);
    let task = tokio::spawn(async move {
        stream(&Http::new(), &registry, request, sink, CancellationToken::new()).await;
    });
    while let Some(batch) = batches.recv().await {
        for event in batch {
            println!("{event:?}");
        }
    }
    task.await?;
    Ok(())
}
