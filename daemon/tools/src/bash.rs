//! bash: runs a command line for the model.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::environment::{ToolEnvironment, ToolVariables};
use crate::error::ToolError;
use crate::shell::{Exit, Follower, OutputText, ShellCommand, ShellOutcome, Snapshot, follow_shell};
use crate::truncate::{self, MAX_BYTES, TruncatedBy, Truncation};
use crate::updates::UpdateSink;
use crate::{Block, ToolOutput};

/// `details` of bash: the first two keys are the seed's and always there, null when there is nothing to say.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    truncation: Option<&'a Truncation>,
    full_output_path: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wall_time_ms: Option<u64>,
}

pub(crate) async fn run(
    arguments: &Map<String, Value>,
    variables: &ToolVariables,
    environment: &ToolEnvironment,
    cancel: &CancellationToken,
    updates: &UpdateSink,
) -> Result<ToolOutput, ToolError> {
    let command = arguments.get("command").and_then(Value::as_str).unwrap_or_default().to_owned();
    let seconds = arguments.get("timeout");
    let timeout = seconds.map(timeout_of).transpose()?;
    let command = ShellCommand { command, timeout, text: OutputText::Raw, variables: variables.clone() };
    updates.send(ToolOutput::default());
    let show = |snapshot: Snapshot| {
        if !updates.is_closed() {
            updates.send(partial(&snapshot));
        }
    };
    let outcome = follow_shell(command, environment, cancel, Follower::Snapshots(&show)).await?;
    Ok(result(&outcome, seconds))
}

fn timeout_of(seconds: &Value) -> Result<Duration, ToolError> {
    let given = seconds.as_f64().filter(|given| given.is_finite() && *given > 0.0);
    let refused = || {
        ToolError::refused(format!(
            "Invalid timeout {seconds}: timeout must be a finite number of seconds greater than 0"
        ))
    };
    // A time beyond what the clock can count is as good as none, but never an overflow.
    Ok(Duration::try_from_secs_f64(given.ok_or_else(refused)?).unwrap_or(Duration::MAX))
}

fn known(path: &Option<Option<PathBuf>>) -> Option<&Path> {
    path.as_ref()?.as_deref()
}

fn partial(snapshot: &Snapshot) -> ToolOutput {
    let details = Details {
        truncation: snapshot.output.truncated.then_some(&snapshot.output),
        full_output_path: known(&snapshot.full_output_path),
        exit_code: None,
        timeout_seconds: None,
        wall_time_ms: None,
    };
    ToolOutput::text(snapshot.output.content.clone()).with_details(&details)
}

/// The result as Pi words it.
fn result(outcome: &ShellOutcome, seconds: Option<&Value>) -> ToolOutput {
    let mut text = outcome.output.content.clone();
    if outcome.output.truncated {
        text.push_str("\n\n");
        text.push_str(&notice(outcome));
    }
    let status = match outcome.exit {
        Exit::Exited(0) => None,
        Exit::Exited(_) | Exit::Signalled(_) => {
            outcome.exit.code().map(|code| format!("Command exited with code {code}"))
        }
        Exit::Cancelled => Some("Command aborted".to_owned()),
        Exit::TimedOut => {
            Some(format!("Command timed out after {} seconds", seconds.unwrap_or(&Value::Null)))
        }
    };
    // Without output, an end that we made says all; one of its own says that there was none.
    if text.is_empty() && outcome.exit.code().is_some() {
        text.push_str("(no output)");
    }
    if let Some(status) = &status {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(status);
    }
    let details = Details {
        truncation: outcome.output.truncated.then_some(&outcome.output),
        full_output_path: known(&outcome.full_output_path),
        exit_code: outcome.exit.code(),
        timeout_seconds: seconds,
        wall_time_ms: Some(u64::try_from(outcome.wall.as_millis()).unwrap_or(u64::MAX)),
    };
    let output =
        ToolOutput { content: vec![Block::text(text)], is_error: status.is_some(), ..ToolOutput::default() };
    output.with_details(&details)
}

/// What was left out, and where it is.
fn notice(outcome: &ShellOutcome) -> String {
    let output = &outcome.output;
    let last = output.total_lines;
    let first = last.saturating_sub(output.output_lines) + 1;
    let place = match known(&outcome.full_output_path) {
        Some(path) => format!(". Full output: {}", path.display()),
        None => String::new(),
    };
    if output.last_line_partial {
        let (shown, whole) = (truncate::size(output.output_bytes), truncate::size(outcome.last_line_bytes));
        format!("[Showing last {shown} of line {last} (line is {whole}){place}]")
    } else if output.truncated_by == Some(TruncatedBy::Lines) {
        format!("[Showing lines {first}-{last} of {last}{place}]")
    } else {
        format!(
            "[Showing lines {first}-{last} of {last} ({} limit){place}]",
            truncate::size(MAX_BYTES as u64)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truncate::MAX_LINES;

    fn outcome(text: &str, exit: Exit) -> ShellOutcome {
        ShellOutcome {
            output: truncate::tail(text, MAX_LINES, MAX_BYTES),
            last_line_bytes: 0,
            exit,
            full_output_path: None,
            wall: Duration::from_millis(5),
        }
    }

    fn worded(text: &str, exit: Exit) -> (String, bool) {
        let output = result(&outcome(text, exit), Some(&Value::from(3)));
        (crate::testing::text(&output).to_owned(), output.is_error)
    }

    #[test]
    fn results_are_worded_as_pi_words_them() {
        for (text, exit, expected, is_error) in [
            ("a\n", Exit::Exited(0), "a\n", false),
            ("", Exit::Exited(0), "(no output)", false),
            ("a", Exit::Exited(2), "a\n\nCommand exited with code 2", true),
            ("", Exit::Exited(1), "(no output)\n\nCommand exited with code 1", true),
            ("", Exit::Signalled(9), "(no output)\n\nCommand exited with code 137", true),
            ("a", Exit::Cancelled, "a\n\nCommand aborted", true),
            ("", Exit::Cancelled, "Command aborted", true),
            ("a", Exit::TimedOut, "a\n\nCommand timed out after 3 seconds", true),
        ] {
            assert_eq!(worded(text, exit), (expected.to_owned(), is_error));
        }
    }

    #[test]
    fn notices_name_what_is_missing() {
        let many: String = (1..=2500).map(|n| format!("{n}\n")).collect();
        let mut cut = outcome(&many, Exit::Exited(0));
        assert_eq!(notice(&cut), "[Showing lines 501-2500 of 2500]");
        cut.full_output_path = Some(Some("/t/x.log".into()));
        assert_eq!(notice(&cut), "[Showing lines 501-2500 of 2500. Full output: /t/x.log]");
        let wide = vec!["x".repeat(1023); 60].join("\n");
        let cut = outcome(&wide, Exit::Exited(0));
        assert_eq!(notice(&cut), "[Showing lines 11-60 of 60 (50.0KB limit)]");
        let mut cut = outcome(&"x".repeat(60 * 1024), Exit::Exited(0));
        cut.last_line_bytes = 60 * 1024;
        assert_eq!(notice(&cut), "[Showing last 50.0KB of line 1 (line is 60.0KB)]");
    }

    #[test]
    fn timeouts_are_checked() {
        assert_eq!(timeout_of(&Value::from(1.5)).unwrap(), Duration::from_millis(1500));
        assert_eq!(timeout_of(&Value::from(1e300)).unwrap(), Duration::MAX);
        let text = timeout_of(&Value::from(0)).unwrap_err().to_string();
        assert_eq!(text, "Invalid timeout 0: timeout must be a finite number of seconds greater than 0");
    }

    #[test]
    fn details_have_the_keys_of_the_seed() {
        let raw = result(&outcome("a", Exit::Exited(0)), None).details.unwrap();
        assert_eq!(raw.as_str(), r#"{"truncation":null,"fullOutputPath":null,"exitCode":0,"wallTimeMs":5}"#);
    }
}
