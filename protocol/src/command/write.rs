//! Commands as a client writes them.

use crate::json::ObjectWriter;
use crate::message::Block;

use super::{Command, LoginKind, Request, StreamingBehavior};

impl Request {
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
            Command::CycleModel { backward, persist } => {
                if *backward {
                    object.str("direction", "backward");
                }
                write_flag(&mut object, "persist", *persist);
            }
            Command::CycleThinkingLevel { persist } => write_flag(&mut object, "persist", *persist),
            Command::LoginProvider { provider, kind } => {
                object.str("provider", provider);
                if *kind == LoginKind::ApiKey {
                    object.str("authType", "api_key");
                }
            }
            Command::SaveProviderCredential { provider, key } => {
                object.str("provider", provider);
                let mut credential = ObjectWriter::begin(object.key("credential"));
                credential.str("type", "api_key").str("key", &key.0);
                credential.end();
            }
            Command::CancelLoginProvider { provider } | Command::LogoutProvider { provider } => {
                object.str("provider", provider);
            }
            Command::Compact { custom_instructions, parameters } => {
                if let Some(text) = custom_instructions {
                    object.str("customInstructions", text);
                }
                if let Some(ratio) = parameters.compression_ratio {
                    object.value("compression_ratio", &ratio);
                }
                if let Some(count) = parameters.preserve_recent {
                    object.count("preserve_recent", count);
                }
                if let Some(query) = &parameters.query {
                    object.str("query", query);
                }
            }
            Command::SetAutoCompaction { enabled } | Command::SetAutoRetry { enabled } => {
                object.bool("enabled", *enabled);
            }
            Command::NavigateTree {
                target_id,
                summarize,
                custom_instructions,
                replace_instructions,
                label,
            } => {
                object.str("targetId", target_id);
                let plain = !*summarize && !*replace_instructions;
                if !plain || custom_instructions.is_some() || label.is_some() {
                    let mut options = ObjectWriter::begin(object.key("options"));
                    write_flag(&mut options, "summarize", *summarize);
                    if let Some(text) = custom_instructions {
                        options.str("customInstructions", text);
                    }
                    write_flag(&mut options, "replaceInstructions", *replace_instructions);
                    if let Some(label) = label {
                        options.str("label", label);
                    }
                    options.end();
                }
            }
            Command::SetLabel { entry_id, label } => {
                object.str("entryId", entry_id);
                if let Some(label) = label {
                    object.str("label", label);
                }
            }
            Command::Fork { entry_id } => {
                object.str("entryId", entry_id);
            }
            Command::SwitchSession { session_path } => {
                object.str("sessionPath", session_path);
            }
            Command::ImportSession { input_path, cwd_override } => {
                object.str("inputPath", input_path);
                if let Some(cwd) = cwd_override {
                    object.str("cwdOverride", cwd);
                }
            }
            Command::ListSessions { all, query } => {
                write_flag(&mut object, "all", *all);
                if let Some(query) = query {
                    object.str("query", query);
                }
            }
            Command::AttachSession { session_id } => {
                object.str("sessionId", session_id);
            }
            Command::ExportHtml { output_path: Some(path) } => {
                object.str("outputPath", path);
            }
            Command::InvokeShortcut { key } => {
                object.str("key", key);
            }
            Command::UserBash { command, exclude_from_context }
            | Command::Bash { command, exclude_from_context } => {
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
