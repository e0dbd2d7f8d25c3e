//! When and how a conversation is shortened: what the settings say, and what a client asks for.

use atomic_protocol::command::CompactParameters;

use crate::compaction::Parameters;

/// Settings `compaction.*`.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionPolicy {
    /// Shorten without being asked.
    pub enabled: bool,
    /// Tokens of the context window to keep free.
    pub reserve_tokens: u64,
    /// How, when nobody says.
    pub strategy: Strategy,
    /// How far, line by line.
    pub parameters: Parameters,
    /// Tokens of the newest messages that a summary leaves as they are.
    pub keep_recent_tokens: u64,
}

/// Setting `compaction.strategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Take lines away and leave the others as they are.
    #[default]
    VerbatimLines,
    /// Have a summary written.
    Summary,
}

/// What a client that asks for a compaction says of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// As the settings say, but for what is given here. A summary is only told what matters (`query`).
    Settings(CompactParameters),
    /// A summary, with what it shall say besides.
    Summary(Option<String>),
}

impl Default for Wish {
    fn default() -> Self {
        Wish::Settings(CompactParameters::default())
    }
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        CompactionPolicy {
            enabled: true,
            reserve_tokens: 16_384,
            strategy: Strategy::default(),
            parameters: Parameters::default(),
            keep_recent_tokens: 20_000,
        }
    }
}
