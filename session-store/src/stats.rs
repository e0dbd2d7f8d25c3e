//! What a session has cost so far, counted entry by entry.

use atomic_protocol::json::{self, Fields, ObjectWriter};
use atomic_protocol::message::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::entry::{Kind, Role};

/// Tokens by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Sent and not cached.
    pub input: u64,
    /// Received.
    pub output: u64,
    /// Read from the provider's cache.
    pub cache_read: u64,
    /// Written to the provider's cache.
    pub cache_write: u64,
}

impl Tokens {
    /// The sum of the four.
    pub fn total(&self) -> u64 {
        self.input + self.output + self.cache_read + self.cache_write
    }
}

/// Counts over all entries of a session, on all branches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Messages of role user.
    pub user_messages: u64,
    /// Messages of role assistant.
    pub assistant_messages: u64,
    /// Tool calls inside assistant messages.
    pub tool_calls: u64,
    /// Messages of role toolResult.
    pub tool_results: u64,
    /// Entries of type message, of any role.
    pub total_messages: u64,
    /// Tokens of assistant messages, tool results and summaries.
    pub tokens: Tokens,
    /// US dollars of the same.
    pub cost: f64,
}

impl Stats {
    /// Appends the fields from `userMessages` to `cost`, in the order of the seed (seed 001, `get_session_stats`).
    pub fn write_fields(&self, object: &mut ObjectWriter<'_>) {
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        object
            .int("userMessages", count(self.user_messages))
            .int("assistantMessages", count(self.assistant_messages))
            .int("toolCalls", count(self.tool_calls))
            .int("toolResults", count(self.tool_results))
            .int("totalMessages", count(self.total_messages));
        let mut tokens = ObjectWriter::begin(object.key("tokens"));
        tokens
            .int("input", count(self.tokens.input))
            .int("output", count(self.tokens.output))
            .int("cacheRead", count(self.tokens.cache_read))
            .int("cacheWrite", count(self.tokens.cache_write))
            .int("total", count(self.tokens.total()));
        tokens.end();
        json::number::serialize(&self.cost, &mut serde_json::Serializer::new(object.key("cost")))
            .expect("writing a number into memory cannot fail");
    }

    /// What one entry adds.
    pub(crate) fn of(
        kind: Kind,
        role: Option<Role>,
        line: &Fields<'_>,
        message: Option<&Fields<'_>>,
    ) -> Stats {
        let mut stats = Stats::default();
        let usage = match kind {
            Kind::Message => {
                stats.total_messages = 1;
                let field = |key| message.and_then(|message| message.get(key));
                match role {
                    Some(Role::User) => stats.user_messages = 1,
                    Some(Role::Assistant) => {
                        stats.assistant_messages = 1;
                        stats.tool_calls = field("content").map_or(0, tool_calls);
                    }
                    Some(Role::ToolResult) => stats.tool_results = 1,
                    _ => {}
                }
                match role {
                    Some(Role::Assistant | Role::ToolResult) => field("usage"),
                    _ => None,
                }
            }
            Kind::BranchSummary | Kind::SessionSummary | Kind::Compaction => line.get("usage"),
            _ => None,
        };
        // Somebody's broken usage must not cost the message.
        if let Some(usage) = usage.and_then(|usage| json::from_str::<Usage>(usage).ok()) {
            stats.tokens = Tokens {
                input: usage.input,
                output: usage.output,
                cache_read: usage.cache_read,
                cache_write: usage.cache_write,
            };
            stats.cost = usage.cost.total;
        }
        stats
    }

    /// Adds what another entry adds.
    pub(crate) fn add(&mut self, other: &Stats) {
        self.user_messages += other.user_messages;
        self.assistant_messages += other.assistant_messages;
        self.tool_calls += other.tool_calls;
        self.tool_results += other.tool_results;
        self.total_messages += other.total_messages;
        self.tokens.input = self.tokens.input.saturating_add(other.tokens.input);
        self.tokens.output = self.tokens.output.saturating_add(other.tokens.output);
        self.tokens.cache_read = self.tokens.cache_read.saturating_add(other.tokens.cache_read);
        self.tokens.cache_write = self.tokens.cache_write.saturating_add(other.tokens.cache_write);
        self.cost += other.cost;
    }
}

/// Blocks of type `toolCall` in the text of a `content`.
fn tool_calls(content: &str) -> u64 {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(rename = "type", borrow)]
        kind: Option<&'a RawValue>,
    }
    let is_call = |kind: &str| json::string(kind).as_deref() == Some("toolCall");
    if !content.starts_with('[') {
        return 0;
    }
    let count = match serde_json::from_str::<Vec<Head<'_>>>(content) {
        Ok(heads) => heads.iter().filter(|head| head.kind.is_some_and(|kind| is_call(kind.get()))).count(),
        // Repeated keys, half surrogates in keys, blocks that are no objects: block by block, skipping what is odd.
        Err(_) => serde_json::from_str::<Vec<&RawValue>>(content)
            .unwrap_or_default()
            .iter()
            .filter(|block| {
                Fields::parse(block.get()).is_ok_and(|block| block.get("type").is_some_and(is_call))
            })
            .count(),
    };
    count as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_calls_are_counted_in_any_shape_of_content() {
        for (content, count) in [
            ("null", 0),
            ("\"toolCall\"", 0),
            (r#"[{"type":"text","text":"x"},{"type":"toolCall","id":"a"},{"id":"b","type":"toolCall"}]"#, 2),
            (r#"[5,{"type":"text","type":"toolCall"},{"\ud800":1,"type":"toolCall"}]"#, 2),
            (r#"[{"type":7},{}]"#, 0),
        ] {
            assert_eq!(tool_calls(content), count, "{content}");
        }
    }

    #[test]
    fn fields_are_written_in_the_order_of_the_seed() {
        let stats = Stats {
            user_messages: 1,
            tokens: Tokens { input: 1, output: 2, cache_read: 3, cache_write: 4 },
            cost: 0.5,
            ..Stats::default()
        };
        let mut out = Vec::new();
        let mut object = ObjectWriter::begin(&mut out);
        stats.write_fields(&mut object);
        object.end();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"userMessages":1,"assistantMessages":0,"toolCalls":0,"toolResults":0,"totalMessages":0,"tokens":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"total":10},"cost":0.5}"#
        );
    }
}
