//! Commands: what a client asks, one line each.
//!
//! [`Request::parse`] turns a line into a command or into the one answer the line gets instead. Each command declares
//! its [`Lane`], so that no handler decides about order. Names and fields are those of seed 001 "Commands".

use base64::Engine as _;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::json::{self, Fields, NotAnObject, ObjectWriter, Raw};
use crate::message::Block;
use crate::model::ThinkingLevel;
use crate::response;

/// A command line that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The raw text of the id. `null` is an id, absence is not.
    pub id: Option<Raw>,
    /// What is asked.
    pub command: Command,
}

/// What a client can ask.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Start a run with a user message, or queue it when a run is active.
    Prompt {
        /// The text.
        message: String,
        /// Images after the text.
        images: Vec<Block>,
        /// What to do when a run is active.
        streaming_behavior: Option<StreamingBehavior>,
    },
    /// Queue a message for the next point between turns.
    Steer {
        /// The text.
        message: String,
        /// Images after the text.
        images: Vec<Block>,
    },
    /// Queue a message for when the agent has nothing else to do.
    FollowUp {
        /// The text.
        message: String,
        /// Images after the text.
        images: Vec<Block>,
    },
    /// Stop the run and wait until the session is idle.
    Abort,
    /// Take all queued messages back.
    ClearQueue,
    /// Go on in a fresh session.
    NewSession {
        /// Recorded in the new session's header, not checked.
        parent_session: Option<String>,
    },
    /// The session's state.
    GetState,
    /// The conversation as a model would see it.
    GetMessages,
    /// The text of the last answer.
    GetLastAssistantText,
    /// Use another model.
    SetModel {
        /// Provider id.
        provider: String,
        /// Model id.
        model_id: String,
        /// Save as the default as well.
        persist: bool,
    },
    /// The models with a configured key.
    GetAvailableModels,
    /// Use another thinking level.
    SetThinkingLevel {
        /// The wish; it is clamped to what the model supports.
        level: ThinkingLevel,
        /// Save as the default as well.
        persist: bool,
    },
    /// How steering messages are delivered.
    SetSteeringMode {
        /// All at once or one per turn.
        mode: QueueMode,
    },
    /// How follow-up messages are delivered.
    SetFollowUpMode {
        /// All at once or one per turn.
        mode: QueueMode,
    },
    /// Retry failed calls by itself, or not.
    SetAutoRetry {
        /// Do.
        enabled: bool,
    },
    /// Give a retry up that is being waited for.
    AbortRetry,
    /// Run a shell command for the client.
    Bash {
        /// The command line.
        command: String,
        /// Keep the result from the model.
        exclude_from_context: bool,
    },
    /// Cancel this client's shell commands.
    AbortBash {
        /// Only the one with this id.
        request_id: Option<Raw>,
    },
    /// Counts, tokens, money.
    GetSessionStats,
    /// Name the session.
    SetSessionName {
        /// The name, trimmed and not empty.
        name: String,
    },
    /// Entries of the session file.
    GetEntries {
        /// Only those after this entry.
        since: Option<String>,
    },
    /// What can be sent as `/name`: prompt templates and skills.
    GetCommands,
    /// What an argument of a command could be.
    GetCommandCompletions {
        /// The command.
        command_name: String,
        /// What is typed of the argument.
        argument_prefix: String,
    },
    /// Read settings, resources, context files and `models.json` again.
    Reload,
    /// The answer to a dialog. Gets no answer itself, whatever it holds.
    ExtensionUiResponse(Raw),
}

/// What a prompt does when a run is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamingBehavior {
    /// Queue as steering.
    Steer,
    /// Queue as follow-up.
    FollowUp,
}

/// How a queue is emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueMode {
    /// Everything at once.
    All,
    /// One message per turn.
    #[default]
    OneAtATime,
}

impl QueueMode {
    /// The wire's word.
    pub fn as_str(self) -> &'static str {
        match self {
            QueueMode::All => "all",
            QueueMode::OneAtATime => "one-at-a-time",
        }
    }
}

/// When a line may start, relative to earlier lines of its connection (design "Lanes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// One after the other.
    Ordinary,
    /// Ordinary, and what follows it is meant for another session: reads wait for it too.
    Replacing,
    /// Ordinary, but changes nothing: passes a busy lane unless a line that changes something is parked before it.
    Read,
    /// Starts at once, but never before an earlier line that has not been admitted.
    Control,
    /// Starts at once and runs beside everything else.
    Concurrent,
}

/// Commands of seed 001 that this version names but does not have.
pub const NOT_BUILT: [&str; 13] = [
    "cycle_model",
    "logout_provider",
    "cycle_thinking_level",
    "get_available_thinking_levels",
    "compact",
    "set_auto_compaction",
    "export_html",
    "switch_session",
    "import_session",
    "fork",
    "clone",
    "get_fork_messages",
    "get_tree",
];

impl Command {
    /// The wire's `type`.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Prompt { .. } => "prompt",
            Command::Steer { .. } => "steer",
            Command::FollowUp { .. } => "follow_up",
            Command::Abort => "abort",
            Command::ClearQueue => "clear_queue",
            Command::NewSession { .. } => "new_session",
            Command::GetState => "get_state",
            Command::GetMessages => "get_messages",
            Command::GetLastAssistantText => "get_last_assistant_text",
            Command::SetModel { .. } => "set_model",
            Command::GetAvailableModels => "get_available_models",
            Command::SetThinkingLevel { .. } => "set_thinking_level",
            Command::SetSteeringMode { .. } => "set_steering_mode",
            Command::SetFollowUpMode { .. } => "set_follow_up_mode",
            Command::SetAutoRetry { .. } => "set_auto_retry",
            Command::AbortRetry => "abort_retry",
            Command::Bash { .. } => "bash",
            Command::AbortBash { .. } => "abort_bash",
            Command::GetSessionStats => "get_session_stats",
            Command::SetSessionName { .. } => "set_session_name",
            Command::GetEntries { .. } => "get_entries",
            Command::GetCommands => "get_commands",
            Command::GetCommandCompletions { .. } => "get_command_completions",
            Command::Reload => "reload",
            Command::ExtensionUiResponse(_) => "extension_ui_response",
        }
    }

    /// When it may start.
    pub fn lane(&self) -> Lane {
        match self {
            Command::Prompt { .. }
            | Command::Steer { .. }
            | Command::FollowUp { .. }
            | Command::SetModel { .. }
            | Command::SetThinkingLevel { .. }
            | Command::SetSteeringMode { .. }
            | Command::SetFollowUpMode { .. }
            | Command::SetAutoRetry { .. }
            | Command::SetSessionName { .. }
            | Command::Reload => Lane::Ordinary,
            Command::NewSession { .. } => Lane::Replacing,
            Command::GetState
            | Command::GetMessages
            | Command::GetLastAssistantText
            | Command::GetAvailableModels
            | Command::GetSessionStats
            | Command::GetEntries { .. }
            | Command::GetCommands
            | Command::GetCommandCompletions { .. } => Lane::Read,
            Command::Abort
            | Command::AbortRetry
            | Command::ClearQueue
            | Command::AbortBash { .. }
            | Command::ExtensionUiResponse(_) => Lane::Control,
            Command::Bash { .. } => Lane::Concurrent,
        }
    }
}

impl Request {
    /// Reads a line (without its LF).
    ///
    /// # Errors
    /// The complete answer record, with its LF, that the line gets instead.
    pub fn parse(line: &Bytes) -> Result<Request, Vec<u8>> {
        let text = json::text(line);
        let fields = match Fields::parse(&text) {
            Ok(fields) => fields,
            Err(NotAnObject::OtherValue) => {
                return Err(response::failure(
                    None,
                    "unknown",
                    "Invalid command: a command is a JSON object",
                ));
            }
            Err(NotAnObject::Syntax(error)) => {
                return Err(response::failure(
                    None,
                    "parse",
                    &format!("Failed to parse command: {}", syntax(&text, &error)),
                ));
            }
        };
        let id = fields.get("id").map(|id| match &text {
            std::borrow::Cow::Borrowed(_) => Raw::from_trusted(line.slice_ref(id.as_bytes())),
            std::borrow::Cow::Owned(_) => Raw::from_trusted(Bytes::copy_from_slice(id.as_bytes())),
        });
        let Some(name) = fields.str("type") else {
            let (command, word) = match fields.get("type") {
                Some(other) => (Some(other), other),
                None => (None, "undefined"),
            };
            let error = format!("Unknown command: {word}");
            return Err(response::failure_of(id.as_ref(), command.map(str::as_bytes), &error));
        };
        match command(&name, &fields, &text) {
            Ok(command) => Ok(Request { id, command }),
            Err(error) => Err(response::failure(id.as_ref(), &name, &error)),
        }
    }

    /// The line as a client would write it, with its LF.
    pub fn to_line(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Command::ExtensionUiResponse(raw) = &self.command {
            out.extend_from_slice(raw.bytes());
            out.push(b'\n');
            return out;
        }
        let mut object = ObjectWriter::begin(&mut out);
        if let Some(id) = &self.id {
            object.raw("id", id.bytes());
        }
        object.str("type", self.command.name());
        match &self.command {
            Command::Prompt { message, images, streaming_behavior } => {
                write_message(&mut object, message, images);
                match streaming_behavior {
                    Some(StreamingBehavior::Steer) => object.str("streamingBehavior", "steer"),
                    Some(StreamingBehavior::FollowUp) => object.str("streamingBehavior", "followUp"),
                    None => &mut object,
                };
            }
            Command::Steer { message, images } | Command::FollowUp { message, images } => {
                write_message(&mut object, message, images);
            }
            Command::NewSession { parent_session: Some(parent) } => {
                object.str("parentSession", parent);
            }
            Command::SetModel { provider, model_id, persist } => {
                object.str("provider", provider).str("modelId", model_id);
                write_flag(&mut object, "persist", *persist);
            }
            Command::SetThinkingLevel { level, persist } => {
                object.str("level", level.as_str());
                write_flag(&mut object, "persist", *persist);
            }
            Command::SetSteeringMode { mode } | Command::SetFollowUpMode { mode } => {
                object.str("mode", mode.as_str());
            }
            Command::SetAutoRetry { enabled } => {
                object.bool("enabled", *enabled);
            }
            Command::Bash { command, exclude_from_context } => {
                object.str("command", command);
                write_flag(&mut object, "excludeFromContext", *exclude_from_context);
            }
            Command::AbortBash { request_id: Some(id) } => {
                object.raw("requestId", id.bytes());
            }
            Command::SetSessionName { name } => {
                object.str("name", name);
            }
            Command::GetCommandCompletions { command_name, argument_prefix } => {
                object.str("commandName", command_name).str("argumentPrefix", argument_prefix);
            }
            Command::GetEntries { since: Some(since) } => {
                object.str("since", since);
            }
            _ => {}
        }
        object.end();
        out.push(b'\n');
        out
    }
}

fn write_message(object: &mut ObjectWriter<'_>, message: &str, images: &[Block]) {
    object.str("message", message);
    if !images.is_empty() {
        object.value("images", images);
    }
}

fn write_flag(object: &mut ObjectWriter<'_>, key: &str, value: bool) {
    if value {
        object.bool(key, true);
    }
}

/// The reason in the words clients of the reference know where there are such words.
fn syntax(text: &str, error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "Unexpected end of JSON input".to_owned();
    }
    if text.starts_with('\u{feff}') {
        return "Unexpected byte order mark (U+FEFF) before the command".to_owned();
    }
    error.to_string()
}

fn command(name: &str, fields: &Fields<'_>, text: &str) -> Result<Command, String> {
    let read = Reader { name, fields };
    Ok(match name {
        "prompt" => Command::Prompt {
            message: read.string("message")?,
            images: read.images()?,
            streaming_behavior: read.behavior()?,
        },
        "steer" => Command::Steer { message: read.string("message")?, images: read.images()? },
        "follow_up" => Command::FollowUp { message: read.string("message")?, images: read.images()? },
        "abort" => Command::Abort,
        "clear_queue" => Command::ClearQueue,
        "new_session" => Command::NewSession { parent_session: read.optional_string("parentSession")? },
        "get_state" => Command::GetState,
        "get_messages" => Command::GetMessages,
        "get_last_assistant_text" => Command::GetLastAssistantText,
        "set_model" => Command::SetModel {
            provider: read.string("provider")?,
            model_id: read.string("modelId")?,
            persist: read.flag("persist")?,
        },
        "get_available_models" => Command::GetAvailableModels,
        "set_thinking_level" => Command::SetThinkingLevel {
            level: ThinkingLevel::parse(&read.string("level")?)
                .ok_or_else(|| read.invalid("level", "one of off, minimal, low, medium, high, xhigh, max"))?,
            persist: read.flag("persist")?,
        },
        "set_steering_mode" => Command::SetSteeringMode { mode: read.mode()? },
        "set_follow_up_mode" => Command::SetFollowUpMode { mode: read.mode()? },
        "set_auto_retry" => match fields.get("enabled") {
            Some("true") => Command::SetAutoRetry { enabled: true },
            Some("false") => Command::SetAutoRetry { enabled: false },
            _ => return Err(read.invalid("enabled", "a boolean")),
        },
        "abort_retry" => Command::AbortRetry,
        "bash" => Command::Bash {
            command: read.string("command")?,
            exclude_from_context: read.flag("excludeFromContext")?,
        },
        "abort_bash" => Command::AbortBash {
            request_id: match fields.get("requestId") {
                None | Some("null") => None,
                Some(id) => Some(Raw::from_trusted(Bytes::copy_from_slice(id.as_bytes()))),
            },
        },
        "get_session_stats" => Command::GetSessionStats,
        "set_session_name" => {
            let name = read.string("name")?;
            match name.trim() {
                "" => return Err("Session name cannot be empty".to_owned()),
                trimmed => Command::SetSessionName { name: trimmed.to_owned() },
            }
        }
        "get_entries" => Command::GetEntries { since: read.optional_string("since")? },
        "get_commands" => Command::GetCommands,
        "get_command_completions" => Command::GetCommandCompletions {
            command_name: read.string("commandName")?,
            argument_prefix: read.string("argumentPrefix")?,
        },
        "reload" => Command::Reload,
        "extension_ui_response" => {
            Command::ExtensionUiResponse(Raw::from_trusted(Bytes::copy_from_slice(text.trim().as_bytes())))
        }
        known if NOT_BUILT.contains(&known) => return Err(format!("{known} is not built in this version")),
        unknown => return Err(format!("Unknown command: {unknown}")),
    })
}

/// Reads the fields of one command and words what is wrong with them.
struct Reader<'a> {
    name: &'a str,
    fields: &'a Fields<'a>,
}

impl Reader<'_> {
    fn invalid(&self, field: &str, kind: &str) -> String {
        format!("Invalid {} command: {field} must be {kind}", self.name)
    }

    fn string(&self, field: &str) -> Result<String, String> {
        let text = self.fields.str(field).ok_or_else(|| self.invalid(field, "a string"))?;
        Ok(text.into_owned())
    }

    fn optional_string(&self, field: &str) -> Result<Option<String>, String> {
        match self.fields.get(field) {
            None | Some("null") => Ok(None),
            Some(_) => self.string(field).map(Some),
        }
    }

    fn flag(&self, field: &str) -> Result<bool, String> {
        match self.fields.get(field) {
            None | Some("null" | "false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(self.invalid(field, "a boolean")),
        }
    }

    fn mode(&self) -> Result<QueueMode, String> {
        match self.fields.str("mode").as_deref() {
            Some("all") => Ok(QueueMode::All),
            Some("one-at-a-time") => Ok(QueueMode::OneAtATime),
            _ => Err(self.invalid("mode", "\"all\" or \"one-at-a-time\"")),
        }
    }

    fn behavior(&self) -> Result<Option<StreamingBehavior>, String> {
        match self.fields.get("streamingBehavior") {
            None | Some("null" | "\"\"") => Ok(None),
            Some(_) => match self.fields.str("streamingBehavior").as_deref() {
                Some("steer") => Ok(Some(StreamingBehavior::Steer)),
                Some("followUp") => Ok(Some(StreamingBehavior::FollowUp)),
                _ => Err(self.invalid("streamingBehavior", "\"steer\" or \"followUp\"")),
            },
        }
    }

    fn images(&self) -> Result<Vec<Block>, String> {
        let shape = || self.invalid("images", "an array of {type: \"image\", data, mimeType}");
        let text = match self.fields.get("images") {
            None | Some("null") => return Ok(Vec::new()),
            Some(text) => text,
        };
        let images: Vec<Block> = json::from_str(text).map_err(|_| shape())?;
        for image in &images {
            match image {
                Block::Image { data, mime_type } if !mime_type.is_empty() => {
                    let valid = !data.is_empty() && base64::prelude::BASE64_STANDARD.decode(data).is_ok();
                    if !valid {
                        return Err("Invalid image data: images[].data must be base64".to_owned());
                    }
                }
                _ => return Err(shape()),
            }
        }
        Ok(images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, String> {
        Request::parse(&Bytes::copy_from_slice(line.as_bytes()))
            .map_err(|answer| String::from_utf8(answer).unwrap().trim_end().to_owned())
    }

    /// Bytes → value → bytes, one line for each command.
    #[test]
    fn each_command_round_trips_to_the_byte() {
        let corpus = [
            r#"{"id":"req-1","type":"prompt","message":"Hello, world!"}"#,
            r#"{"type":"prompt","message":"What's in this image?","images":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}"#,
            r#"{"type":"prompt","message":"New instruction","streamingBehavior":"steer"}"#,
            r#"{"type":"prompt","message":"x","streamingBehavior":"followUp"}"#,
            r#"{"type":"steer","message":"Stop and do this instead"}"#,
            r#"{"type":"follow_up","message":"After you're done, also do this"}"#,
            r#"{"type":"abort"}"#,
            r#"{"type":"clear_queue"}"#,
            r#"{"type":"new_session"}"#,
            r#"{"type":"new_session","parentSession":"/path/to/parent-session.jsonl"}"#,
            r#"{"type":"get_state"}"#,
            r#"{"type":"get_messages"}"#,
            r#"{"type":"get_last_assistant_text"}"#,
            r#"{"type":"set_model","provider":"anthropic","modelId":"claude-sonnet-4-20250514"}"#,
            r#"{"type":"set_model","provider":"anthropic","modelId":"m","persist":true}"#,
            r#"{"type":"get_available_models"}"#,
            r#"{"type":"set_thinking_level","level":"high"}"#,
            r#"{"type":"set_thinking_level","level":"off","persist":true}"#,
            r#"{"type":"set_steering_mode","mode":"all"}"#,
            r#"{"type":"set_follow_up_mode","mode":"one-at-a-time"}"#,
            r#"{"id":7,"type":"bash","command":"ls -la"}"#,
            r#"{"id":null,"type":"bash","command":"ls","excludeFromContext":true}"#,
            r#"{"id":"cancel-1","type":"abort_bash","requestId":"req-1"}"#,
            r#"{"type":"abort_bash"}"#,
            r#"{"type":"set_auto_retry","enabled":true}"#,
            r#"{"type":"abort_retry"}"#,
            r#"{"type":"get_session_stats"}"#,
            r#"{"type":"set_session_name","name":"my-feature-work"}"#,
            r#"{"type":"get_entries"}"#,
            r#"{"type":"get_entries","since":"abc123"}"#,
            r#"{"type":"get_commands"}"#,
            r#"{"type":"get_command_completions","commandName":"x","argumentPrefix":""}"#,
            r#"{"type":"reload"}"#,
            r#"{"type":"extension_ui_response","id":"u","value":"x"}"#,
        ];
        let mut names = std::collections::BTreeSet::new();
        for line in corpus {
            let request = parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            names.insert(request.command.name());
            assert_eq!(String::from_utf8(request.to_line()).unwrap().trim_end(), line);
        }
        assert_eq!(names.len(), 25, "a command without a line in the corpus");
    }

    #[test]
    fn every_line_has_an_answer_that_echoes_the_raw_id() {
        let answers = [
            (
                "",
                r#"{"type":"response","command":"parse","success":false,"error":"Failed to parse command: Unexpected end of JSON input"}"#,
            ),
            (
                " \t",
                r#"{"type":"response","command":"parse","success":false,"error":"Failed to parse command: Unexpected end of JSON input"}"#,
            ),
            (
                "null",
                r#"{"type":"response","command":"unknown","success":false,"error":"Invalid command: a command is a JSON object"}"#,
            ),
            ("{}", r#"{"type":"response","success":false,"error":"Unknown command: undefined"}"#),
            (
                r#"{"id":"x0"}"#,
                r#"{"id":"x0","type":"response","success":false,"error":"Unknown command: undefined"}"#,
            ),
            (
                r#"{"type":5}"#,
                r#"{"type":"response","command":5,"success":false,"error":"Unknown command: 5"}"#,
            ),
            (
                r#"{"id":{"b": [1.0]},"type":"context_compact"}"#,
                r#"{"id":{"b": [1.0]},"type":"response","command":"context_compact","success":false,"error":"Unknown command: context_compact"}"#,
            ),
            (
                r#"{"id":null,"type":"fork"}"#,
                r#"{"id":null,"type":"response","command":"fork","success":false,"error":"fork is not built in this version"}"#,
            ),
            (
                r#"{"id":"\ud800","type":"prompt"}"#,
                r#"{"id":"\ud800","type":"response","command":"prompt","success":false,"error":"Invalid prompt command: message must be a string"}"#,
            ),
            (
                r#"{"type":"set_steering_mode","mode":"x"}"#,
                r#"{"type":"response","command":"set_steering_mode","success":false,"error":"Invalid set_steering_mode command: mode must be \"all\" or \"one-at-a-time\""}"#,
            ),
            (
                r#"{"type":"set_session_name","name":"  "}"#,
                r#"{"type":"response","command":"set_session_name","success":false,"error":"Session name cannot be empty"}"#,
            ),
            (
                r#"{"type":"prompt","message":"m","images":[{"type":"image","data":"%%","mimeType":"image/png"}]}"#,
                r#"{"type":"response","command":"prompt","success":false,"error":"Invalid image data: images[].data must be base64"}"#,
            ),
        ];
        for (line, answer) in answers {
            assert_eq!(parse(line).unwrap_err(), answer, "{line}");
        }
        for name in NOT_BUILT {
            let answer = parse(&format!(r#"{{"type":"{name}"}}"#)).unwrap_err();
            assert!(
                answer.ends_with(&format!(r#""error":"{name} is not built in this version"}}"#)),
                "{answer}"
            );
        }
    }

    #[test]
    fn text_is_read_as_javascript_reads_it() {
        let request =
            parse(r#"{"type":"steer","message":"first","message":"a\ud83d\ude00\udc00","future":[[[1]]]}"#)
                .unwrap();
        assert_eq!(request.command, Command::Steer { message: "a😀\u{fffd}".into(), images: vec![] });
        let bytes = Bytes::from_static(b"{\"id\":\"\xff\",\"type\":\"steer\",\"message\":\"\xff\"}");
        let request = Request::parse(&bytes).unwrap();
        assert_eq!(request.id.unwrap().as_str(), "\"\u{fffd}\"");
        assert_eq!(request.command, Command::Steer { message: "\u{fffd}".into(), images: vec![] });
    }
}
