//! From a call to its result.

use atomic_protocol::message::ToolCall;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::environment::{ToolEnvironment, ToolVariables};
use crate::error::ToolError;
use crate::updates::UpdateSink;
use crate::{ToolOutput, arguments, bash, edit, find, grep, ls, mutation, paths, read, specs, write};

/// Runs a built-in tool. What goes wrong, a panic included, is a result with `is_error`; there is no other way out.
///
/// `cancel` ends the call soon: the shell's group is ended first, a write that has begun is finished first, everything
/// else stops at once. Progress goes to `updates`; the result does not.
///
/// Edits and writes of one file run in the order in which the futures of their calls were first polled.
pub async fn run(
    call: &ToolCall,
    variables: &ToolVariables,
    environment: &ToolEnvironment,
    cancel: CancellationToken,
    updates: UpdateSink,
) -> ToolOutput {
    let result = dispatch(call, variables, environment, cancel, updates).await;
    result.unwrap_or_else(|error| ToolOutput::error(error.to_string()))
}

async fn dispatch(
    call: &ToolCall,
    variables: &ToolVariables,
    environment: &ToolEnvironment,
    cancel: CancellationToken,
    updates: UpdateSink,
) -> Result<ToolOutput, ToolError> {
    let tool = call.name.as_str();
    let arguments = checked_arguments(call)?;
    if tool != "bash" && cancel.is_cancelled() {
        return Err(ToolError::Aborted);
    }
    let environment = environment.clone();
    match tool {
        "bash" => {
            let variables = variables.clone();
            // A task of its own, so that a panic ends this call only.
            let task = AbortOnDropHandle::new(tokio::spawn(async move {
                bash::run(&arguments, &variables, &environment, &cancel, &updates).await
            }));
            task.await.map_err(|error| internal(tool, error))?
        }
        "read" => search(tool, cancel, move |cancel| read::run(&arguments, &environment, cancel)).await,
        "grep" => search(tool, cancel, move |cancel| grep::run(&arguments, &environment, cancel)).await,
        "find" => search(tool, cancel, move |cancel| find::run(&arguments, &environment, cancel)).await,
        "ls" => search(tool, cancel, move |cancel| ls::run(&arguments, &environment, cancel)).await,
        "edit" => change(tool, arguments, environment, cancel, edit::run).await,
        "write" => change(tool, arguments, environment, cancel, write::run).await,
        _ => Err(ToolError::UnknownTool(tool.to_owned())),
    }
}

fn checked_arguments(call: &ToolCall) -> Result<Map<String, Value>, ToolError> {
    let tool = call.name.as_str();
    let schema = specs::schema(tool).ok_or_else(|| ToolError::UnknownTool(tool.to_owned()))?;
    let failed = |problem: String| ToolError::Arguments { tool: tool.to_owned(), problem };
    let schema: Value = serde_json::from_str(schema).expect("the built-in schemas are JSON");
    let mut value: Value = call.arguments.read().map_err(|error| failed(format!("not JSON ({error})")))?;
    if tool == "edit" {
        edit::forgive(&mut value);
    }
    arguments::validate_value(&schema, value).map_err(failed)
}

fn internal(tool: &str, error: tokio::task::JoinError) -> ToolError {
    let what = match error.try_into_panic() {
        Ok(panic) => match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (_, Some(text)) => text.clone(),
            _ => "it panicked".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    ToolError::Internal { tool: tool.to_owned(), what }
}

/// Work that only looks: on a blocking thread, left alone when the call is cancelled (it sees the same token and stops).
async fn search(
    tool: &str,
    cancel: CancellationToken,
    work: impl FnOnce(&CancellationToken) -> Result<ToolOutput, ToolError> + Send + 'static,
) -> Result<ToolOutput, ToolError> {
    let token = cancel.clone();
    let task = tokio::task::spawn_blocking(move || work(&token));
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ToolError::Aborted),
        done = task => done.map_err(|error| internal(tool, error))?,
    }
}

/// Work that changes a file: waits for the file's turn, and gives it back when the last byte is written even if nobody
/// waits for the result any more.
async fn change(
    tool: &str,
    arguments: Map<String, Value>,
    environment: ToolEnvironment,
    cancel: CancellationToken,
    work: fn(&Map<String, Value>, &ToolEnvironment) -> Result<ToolOutput, ToolError>,
) -> Result<ToolOutput, ToolError> {
    let written = text_argument(&arguments, "path").unwrap_or_default().to_owned();
    let path = paths::resolve(&written, &environment);
    let find = {
        let environment = environment.clone();
        move || paths::resolve_existing(&written, &environment)
    };
    let turn = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(ToolError::Aborted),
        turn = mutation::turn(&path, find) => turn?,
    };
    let task = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work(&arguments, &environment)
    });
    task.await.map_err(|error| internal(tool, error))?
}

/// Text argument `name`; the schema has made sure of required ones.
pub(crate) fn text_argument<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Value::as_str)
}

/// Whole part of the number argument `name`, 0 for negative ones. Numbers beyond `usize` are its largest.
pub(crate) fn count_argument(arguments: &Map<String, Value>, name: &str) -> Option<usize> {
    // A cast from float to integer saturates, and takes NaN, which JSON does not have, for 0.
    arguments.get(name).and_then(Value::as_f64).map(|number| number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, text};
    use serde_json::json;

    #[tokio::test]
    async fn unknown_tools_and_wrong_arguments_are_errors_of_the_call() {
        let place = Place::new();
        let output = place.call("browse", json!({})).await;
        assert_eq!((text(&output), output.is_error), ("Tool browse not found", true));
        let output = place.call("read", json!({})).await;
        assert_eq!(text(&output), "Invalid arguments for tool \"read\": path is required");
    }

    #[tokio::test]
    async fn a_cancelled_call_does_not_begin() {
        let place = Place::new();
        place.write("a", "x");
        let cancel = CancellationToken::new();
        cancel.cancel();
        for (tool, arguments) in [
            ("read", json!({"path":"a"})),
            ("write", json!({"path":"a","content":"y"})),
            ("grep", json!({"pattern":"x"})),
        ] {
            let output = place.call_with(tool, arguments, cancel.clone(), UpdateSink::discard()).await;
            assert_eq!((text(&output), output.is_error), ("Operation aborted", true));
        }
        assert_eq!(place.read("a"), "x");
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_the_call() {
        let cancel = CancellationToken::new();
        let result = search("read", cancel, |_| panic!("broken")).await;
        assert_eq!(result.unwrap_err().to_string(), "Tool read failed unexpectedly: broken");
    }

    #[tokio::test]
    async fn edits_of_one_file_at_once_lose_nothing() {
        let place = Place::new();
        let lines: Vec<String> = (0..30).map(|n| format!("line-{n:02}")).collect();
        place.write("a", lines.join("\n"));
        let edits = (0..30).map(|n| {
            let old = format!("line-{n:02}");
            let arguments = json!({"path":"a","edits":[{"oldText": old, "newText": format!("done-{n:02}")}]});
            place.call("edit", arguments)
        });
        for output in futures_join(edits).await {
            assert!(!output.is_error, "{}", text(&output));
        }
        assert_eq!(place.read("a"), lines.join("\n").replace("line", "done"));
    }

    #[tokio::test]
    async fn writes_of_one_file_land_in_the_order_of_their_calls() {
        let place = Place::new();
        let writes = (0..20).map(|n| place.call("write", json!({"path":"a","content":format!("{n}")})));
        futures_join(writes).await;
        assert_eq!(place.read("a"), "19");
    }

    /// Polls all futures in order until each is done.
    async fn futures_join<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
        let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
        std::future::poll_fn(|context| {
            for (future, result) in waiting.iter_mut().filter(|(_, result)| result.is_none()) {
                if let std::task::Poll::Ready(output) = future.as_mut().poll(context) {
                    *result = Some(output);
                }
            }
            if waiting.iter().all(|(_, result)| result.is_some()) {
                return std::task::Poll::Ready(());
            }
            std::task::Poll::Pending
        })
        .await;
        waiting.into_iter().map(|(_, result)| result.expect("all are done")).collect()
    }
}
