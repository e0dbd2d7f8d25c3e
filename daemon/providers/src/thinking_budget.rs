//! How many tokens a thinking level is worth, for models that are given a number.

use atomic_protocol::model::ThinkingLevel;

/// Thinking tokens for minimal, low, medium and high; the levels above use the last.
const BUDGETS: [u64; 4] = [1024, 2048, 8192, 16_384];

/// Tokens that stay for the answer when thinking shares its limit.
const MIN_ANSWER: u64 = 1024;

/// The budget for `level`, from the user's numbers where there are any, at least `least`; cut to leave room for an answer
/// within `max_tokens`, to nothing if need be.
pub(crate) fn budget(level: ThinkingLevel, own: &[Option<u64>; 4], least: u64, max_tokens: u64) -> u64 {
    let step = match level {
        ThinkingLevel::Off | ThinkingLevel::Minimal => 0,
        ThinkingLevel::Low => 1,
        ThinkingLevel::Medium => 2,
        ThinkingLevel::High | ThinkingLevel::Xhigh | ThinkingLevel::Max => 3,
    };
    own[step].unwrap_or(BUDGETS[step]).max(least).min(max_tokens.saturating_sub(MIN_ANSWER))
}
