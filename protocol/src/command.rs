//! Commands: what a client asks, one line each.
//!
//! [`Request::parse`] turns a line into a command or into the one answer the line gets instead. Each command declares
//! its [`Lane`], so that no handler decides about order. Names and fields are those of seed 001 "Commands".

mod read;
#[cfg(test)]
mod tests;
mod write;

use serde::{Deserialize, Serialize};

use crate::json::Raw;
use crate::message::Block;
use crate::model::ThinkingLevel;

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
    /// Use the next model of the scope (`--models`), or of those that can be used.
    CycleModel {
        /// The one before instead.
        backward: bool,
        /// Save as the default as well.
        persist: bool,
    },
    /// The models with a configured key.
    GetAvailableModels,
    /// Read the models file and the credentials again, and ask local servers what they have.
    RefreshModels {
        /// Servers may be asked.
        allow_network: bool,
        /// Milliseconds that they have for it.
        timeout_ms: Option<u64>,
    },
    /// Log in to a provider.
    LoginProvider {
        /// Provider id.
        provider: String,
        /// With an API key, or through the provider's own page.
        kind: LoginKind,
    },
    /// Keep a key for a provider.
    SaveProviderCredential {
        /// Provider id.
        provider: String,
        /// The key.
        key: ApiKey,
    },
    /// Give a login up that is under way.
    CancelLoginProvider {
        /// Provider id.
        provider: String,
    },
    /// Forget what is kept for a provider.
    LogoutProvider {
        /// Provider id, any text.
        provider: String,
    },
    /// Use another thinking level.
    SetThinkingLevel {
        /// The wish; it is clamped to what the model supports.
        level: ThinkingLevel,
        /// Save as the default as well.
        persist: bool,
    },
    /// Use the next thinking level of the model.
    CycleThinkingLevel {
        /// Save as the default as well.
        persist: bool,
    },
    /// The thinking levels of the model.
    GetAvailableThinkingLevels,
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
    /// Keep queued messages queued until [`Command::ResumeQueuedMessages`].
    PauseQueuedMessages,
    /// Deliver queued messages again. Starts nothing by itself.
    ResumeQueuedMessages,
    /// Shorten the conversation.
    Compact {
        /// What to keep, in words.
        custom_instructions: Option<String>,
        /// How far, this time.
        parameters: CompactParameters,
    },
    /// Shorten the conversation by itself when it grows too long, or not.
    SetAutoCompaction {
        /// Do.
        enabled: bool,
    },
    /// Give a compaction up that is under way.
    AbortCompaction,
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
    /// The same, typed by a user: extensions may tell the two apart.
    UserBash {
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
    /// Entries as a tree.
    GetTree,
    /// Go on from another entry of the session.
    NavigateTree {
        /// The entry.
        target_id: String,
        /// Have what is left behind summarized.
        summarize: bool,
        /// What the summary shall say besides.
        custom_instructions: Option<String>,
        /// They stand instead of our own instructions.
        replace_instructions: bool,
        /// A label for the entry.
        label: Option<String>,
    },
    /// Label an entry.
    SetLabel {
        /// The entry.
        entry_id: String,
        /// The label; none takes it away.
        label: Option<String>,
    },
    /// User messages that a session can be forked at.
    GetForkMessages,
    /// Go on in a new session with what came before a user message.
    Fork {
        /// The message's entry.
        entry_id: String,
    },
    /// Go on in a new session with the same branch.
    Clone,
    /// Go on in another session.
    SwitchSession {
        /// Its file.
        session_path: String,
    },
    /// Copy a session's file here and go on in it.
    ImportSession {
        /// The file.
        input_path: String,
        /// Where it shall work instead of where it did.
        cwd_override: Option<String>,
    },
    /// Stored and live sessions (ours; PROTOCOL.md).
    ListSessions {
        /// Those of all directories.
        all: bool,
        /// Only those in which these words occur.
        query: Option<String>,
    },
    /// Go on in a session that exists (ours; PROTOCOL.md).
    AttachSession {
        /// Its id, or the beginning of it.
        session_id: String,
    },
    /// Write the session as a page.
    ExportHtml {
        /// Where to; none: beside the caller.
        output_path: Option<String>,
    },
    /// Keys that extensions have bound.
    GetShortcuts,
    /// Press one.
    InvokeShortcut {
        /// The key.
        key: String,
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

/// How to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginKind {
    /// By typing a key.
    ApiKey,
    /// On a page of the provider.
    Oauth,
}

/// How far a conversation is shortened, where it differs from the settings `compaction.*`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactParameters {
    /// Part of the lines to keep, above 0 and below 1.
    pub compression_ratio: Option<f64>,
    /// Newest messages to keep whole.
    pub preserve_recent: Option<u64>,
    /// What matters; trimmed and not empty.
    pub query: Option<String>,
}

/// A key that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(pub String);

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[hidden]")
    }
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
    /// Like a control line, but waits for a replacement before it: it is about the queues of the session that comes.
    Queue,
    /// Runs beside everything else; starts at once, in the session to which a replacement before it leads.
    Concurrent,
}

impl Lane {
    /// Its name in the documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Lane::Ordinary => "ordinary",
            Lane::Replacing => "replacing",
            Lane::Read => "read",
            Lane::Control => "control",
            Lane::Queue => "queue",
            Lane::Concurrent => "concurrent",
        }
    }
}

impl Command {
    named! {
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
            Command::CycleModel { .. } => "cycle_model",
            Command::GetAvailableModels => "get_available_models",
            Command::RefreshModels { .. } => "refresh_models",
            Command::LoginProvider { .. } => "login_provider",
            Command::SaveProviderCredential { .. } => "save_provider_credential",
            Command::CancelLoginProvider { .. } => "cancel_login_provider",
            Command::LogoutProvider { .. } => "logout_provider",
            Command::CycleThinkingLevel { .. } => "cycle_thinking_level",
            Command::GetAvailableThinkingLevels => "get_available_thinking_levels",
            Command::PauseQueuedMessages => "pause_queued_messages",
            Command::ResumeQueuedMessages => "resume_queued_messages",
            Command::Compact { .. } => "compact",
            Command::SetAutoCompaction { .. } => "set_auto_compaction",
            Command::AbortCompaction => "abort_compaction",
            Command::UserBash { .. } => "user_bash",
            Command::GetTree => "get_tree",
            Command::NavigateTree { .. } => "navigate_tree",
            Command::SetLabel { .. } => "set_label",
            Command::GetForkMessages => "get_fork_messages",
            Command::Fork { .. } => "fork",
            Command::Clone => "clone",
            Command::SwitchSession { .. } => "switch_session",
            Command::ImportSession { .. } => "import_session",
            Command::ListSessions { .. } => "list_sessions",
            Command::AttachSession { .. } => "attach_session",
            Command::ExportHtml { .. } => "export_html",
            Command::GetShortcuts => "get_shortcuts",
            Command::InvokeShortcut { .. } => "invoke_shortcut",
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

    /// When it may start.
    pub fn lane(&self) -> Lane {
        match self {
            Command::Prompt { .. }
            | Command::Steer { .. }
            | Command::FollowUp { .. }
            | Command::SetModel { .. }
            | Command::CycleModel { .. }
            | Command::LoginProvider { .. }
            | Command::SaveProviderCredential { .. }
            | Command::LogoutProvider { .. }
            | Command::CycleThinkingLevel { .. }
            | Command::Compact { .. }
            | Command::SetAutoCompaction { .. }
            | Command::NavigateTree { .. }
            | Command::SetLabel { .. }
            | Command::ExportHtml { .. }
            | Command::InvokeShortcut { .. }
            | Command::SetThinkingLevel { .. }
            | Command::SetSteeringMode { .. }
            | Command::SetFollowUpMode { .. }
            | Command::SetAutoRetry { .. }
            | Command::SetSessionName { .. }
            | Command::Reload => Lane::Ordinary,
            Command::NewSession { .. }
            | Command::Fork { .. }
            | Command::Clone
            | Command::SwitchSession { .. }
            | Command::ImportSession { .. }
            | Command::AttachSession { .. } => Lane::Replacing,
            Command::GetState
            | Command::GetMessages
            | Command::GetLastAssistantText
            | Command::GetAvailableModels
            | Command::GetAvailableThinkingLevels
            | Command::GetTree
            | Command::GetForkMessages
            | Command::GetShortcuts
            | Command::GetSessionStats
            | Command::GetEntries { .. }
            | Command::GetCommands
            | Command::GetCommandCompletions { .. } => Lane::Read,
            Command::Abort
            | Command::AbortRetry
            | Command::AbortCompaction
            | Command::CancelLoginProvider { .. }
            | Command::AbortBash { .. }
            | Command::ExtensionUiResponse(_) => Lane::Control,
            Command::PauseQueuedMessages | Command::ResumeQueuedMessages | Command::ClearQueue => Lane::Queue,
            Command::Bash { .. }
            | Command::UserBash { .. }
            | Command::RefreshModels { .. }
            | Command::ListSessions { .. } => Lane::Concurrent,
        }
    }
}
