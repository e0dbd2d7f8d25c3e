//! From a line to a command, or to the answer the line gets instead.

use base64::Engine as _;
use bytes::Bytes;

use crate::json::{self, Fields, NotAnObject, Raw};
use crate::message::Block;
use crate::model::ThinkingLevel;
use crate::response;

use super::{ApiKey, Command, CompactParameters, LoginKind, QueueMode, Request, StreamingBehavior};

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
        "cycle_model" => Command::CycleModel {
            backward: match fields.get("direction") {
                None | Some("null") => false,
                Some(_) => match fields.str("direction").as_deref() {
                    Some("forward") => false,
                    Some("backward") => true,
                    _ => return Err(read.invalid("direction", "\"forward\" or \"backward\"")),
                },
            },
            persist: read.flag("persist")?,
        },
        "get_available_models" => Command::GetAvailableModels,
        "refresh_models" => {
            read.flag("force")?;
            let allow_network =
                matches!(fields.get("allowNetwork"), None | Some("null")) || read.flag("allowNetwork")?;
            let timeout_ms = read.optional_millis("timeoutMs")?;
            Command::RefreshModels { allow_network, timeout_ms }
        }
        "login_provider" => Command::LoginProvider {
            provider: read.string("provider")?,
            kind: match fields.get("authType") {
                None | Some("null") => LoginKind::Oauth,
                Some(_) => match fields.str("authType").as_deref() {
                    Some("api_key") => LoginKind::ApiKey,
                    Some("oauth") => LoginKind::Oauth,
                    _ => return Err(read.invalid("authType", "\"api_key\" or \"oauth\"")),
                },
            },
        },
        "save_provider_credential" => {
            Command::SaveProviderCredential { provider: read.filled("provider")?, key: read.api_key()? }
        }
        "cancel_login_provider" => {
            read.optional_string("loginId")?;
            Command::CancelLoginProvider { provider: read.string("provider")? }
        }
        "logout_provider" => Command::LogoutProvider { provider: read.string("provider")? },
        "set_thinking_level" => Command::SetThinkingLevel {
            level: ThinkingLevel::parse(&read.string("level")?)
                .ok_or_else(|| read.invalid("level", "one of off, minimal, low, medium, high, xhigh, max"))?,
            persist: read.flag("persist")?,
        },
        "cycle_thinking_level" => Command::CycleThinkingLevel { persist: read.flag("persist")? },
        "get_available_thinking_levels" => Command::GetAvailableThinkingLevels,
        "set_steering_mode" => Command::SetSteeringMode { mode: read.mode()? },
        "set_follow_up_mode" => Command::SetFollowUpMode { mode: read.mode()? },
        "pause_queued_messages" => Command::PauseQueuedMessages,
        "resume_queued_messages" => Command::ResumeQueuedMessages,
        "compact" => Command::Compact {
            custom_instructions: read.optional_string("customInstructions")?,
            parameters: read.compact_parameters()?,
        },
        "set_auto_compaction" => Command::SetAutoCompaction { enabled: read.boolean("enabled")? },
        "abort_compaction" => Command::AbortCompaction,
        "set_auto_retry" => Command::SetAutoRetry { enabled: read.boolean("enabled")? },
        "abort_retry" => Command::AbortRetry,
        "bash" => Command::Bash {
            command: read.string("command")?,
            exclude_from_context: read.flag("excludeFromContext")?,
        },
        "user_bash" => Command::UserBash {
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
        "get_tree" => Command::GetTree,
        "navigate_tree" => read.navigation()?,
        "set_label" => Command::SetLabel {
            entry_id: read.string("entryId")?,
            label: read.optional_string("label")?.filter(|label| !label.is_empty()),
        },
        "get_fork_messages" => Command::GetForkMessages,
        "fork" => Command::Fork { entry_id: read.string("entryId")? },
        "clone" => Command::Clone,
        "switch_session" => Command::SwitchSession { session_path: read.filled("sessionPath")? },
        "import_session" => Command::ImportSession {
            input_path: read.filled("inputPath")?,
            cwd_override: read.optional_string("cwdOverride")?,
        },
        "list_sessions" => {
            Command::ListSessions { all: read.flag("all")?, query: read.optional_string("query")? }
        }
        "attach_session" => Command::AttachSession { session_id: read.filled("sessionId")? },
        "export_html" => Command::ExportHtml { output_path: read.optional_string("outputPath")? },
        "get_shortcuts" => Command::GetShortcuts,
        "invoke_shortcut" => Command::InvokeShortcut { key: read.string("key")? },
        "get_commands" => Command::GetCommands,
        "get_command_completions" => Command::GetCommandCompletions {
            command_name: read.string("commandName")?,
            argument_prefix: read.string("argumentPrefix")?,
        },
        "reload" => Command::Reload,
        "extension_ui_response" => {
            Command::ExtensionUiResponse(Raw::from_trusted(Bytes::copy_from_slice(text.trim().as_bytes())))
        }
        unknown => return Err(format!("Unknown command: {unknown}")),
    })
}

/// A credential of a login that this program cannot make.
const OAUTH_NOT_BUILT: &str =
    "A login through a provider's page is not built in this version; save an API key instead.";

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

    fn filled(&self, field: &str) -> Result<String, String> {
        Some(self.string(field)?)
            .filter(|text| !text.trim().is_empty())
            .ok_or_else(|| self.invalid(field, "a string that is not empty"))
    }

    fn boolean(&self, field: &str) -> Result<bool, String> {
        match self.fields.get(field) {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => Err(self.invalid(field, "a boolean")),
        }
    }

    /// A time in milliseconds; what is below nothing is nothing.
    fn optional_millis(&self, field: &str) -> Result<Option<u64>, String> {
        match self.fields.get(field) {
            None | Some("null") => Ok(None),
            // The cast takes what is too large as the largest.
            Some(text) => text
                .parse::<f64>()
                .map(|number| Some(number as u64))
                .map_err(|_| self.invalid(field, "a number")),
        }
    }

    fn compact_parameters(&self) -> Result<CompactParameters, String> {
        let given = |field| self.fields.get(field).filter(|text| *text != "null");
        let compression_ratio = given("compression_ratio").map(|text| {
            let ratio = text.parse().ok().filter(|ratio| 0.0 < *ratio && *ratio < 1.0);
            ratio.ok_or_else(|| self.invalid("compression_ratio", "a number above 0 and below 1"))
        });
        let preserve_recent = given("preserve_recent").map(|text| {
            // Some write whole numbers as floats.
            let count = text.parse::<f64>().ok().filter(|count| *count >= 0.0 && count.fract() == 0.0);
            count
                .map(|count| count as u64)
                .ok_or_else(|| self.invalid("preserve_recent", "a whole number, 0 or more"))
        });
        let query = self.optional_string("query")?.map(|query| query.trim().to_owned());
        Ok(CompactParameters {
            compression_ratio: compression_ratio.transpose()?,
            preserve_recent: preserve_recent.transpose()?,
            query: query.filter(|query| !query.is_empty()),
        })
    }

    fn api_key(&self) -> Result<ApiKey, String> {
        let shape = || self.invalid("credential", "{type: \"api_key\", key}");
        let fields = Fields::parse(self.fields.get("credential").ok_or_else(shape)?).map_err(|_| shape())?;
        match (fields.str("type").as_deref(), fields.str("key")) {
            (Some("oauth"), _) => Err(OAUTH_NOT_BUILT.to_owned()),
            (Some("api_key"), Some(key)) if !key.trim().is_empty() => Ok(ApiKey(key.trim().to_owned())),
            _ => Err(shape()),
        }
    }

    fn navigation(&self) -> Result<Command, String> {
        let target_id = self.string("targetId")?;
        let options = match self.fields.get("options") {
            None | Some("null") => Fields::default(),
            Some(text) => Fields::parse(text).map_err(|_| self.invalid("options", "an object"))?,
        };
        let read = Reader { name: self.name, fields: &options };
        Ok(Command::NavigateTree {
            target_id,
            summarize: read.flag("summarize")?,
            custom_instructions: read.optional_string("customInstructions")?,
            replace_instructions: read.flag("replaceInstructions")?,
            label: read.optional_string("label")?.filter(|label| !label.is_empty()),
        })
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
