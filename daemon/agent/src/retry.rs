//! Automatic retry: which failures pass by themselves, and how long to wait.
//!
//! A policy is data; nothing here sleeps. Facts: reference 4.2 (statuses, words, delays), with status codes in texts as words of
//! their own, so that "15000 tokens" is not a 500.

use atomic_protocol::event::Event;
use atomic_protocol::message::{AssistantMessage, Block, StopReason};
use atomic_protocol::model::{MAX_RETRY_DELAY_MS, ModelFailure};

use crate::Agent;
use crate::context::units;
use crate::effect::Effect;
use crate::input::TimerId;
use crate::overflow;
use crate::run::{Run, Step, Waiting};

/// Settings `retry.*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Retry at all.
    pub enabled: bool,
    /// Attempts after the first, per streak of failures.
    pub max_retries: u32,
    /// Wait before the first retry, in milliseconds; doubles each time.
    pub base_delay_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy { enabled: true, max_retries: 3, base_delay_ms: 2000 }
    }
}

/// `finalError` of a retry that was given up (literal of the reference).
const CANCELLED: &str = "Retry cancelled";

/// What is said of answers that say nothing (literals of the reference).
const EMPTY: &str = "Provider returned an empty completion";
const REFUSAL: &str = "Provider returned a canned safety refusal";

/// The longest text that may be one, in UTF-16 units.
const REFUSAL_UNITS: u64 = 120;

/// Longest wait, in milliseconds. A provider that asks for more is not waited for.
const MAX_DELAY_MS: u64 = MAX_RETRY_DELAY_MS;

/// Statuses of failures that pass. 425 only when the provider says when.
const STATUSES: [u16; 16] = [408, 409, 429, 500, 501, 502, 503, 504, 520, 521, 522, 523, 524, 525, 598, 599];

/// Words of failures that last: money, not load.
const LASTING: [&str; 9] = [
    "gousagelimiterror",
    "freeusagelimiterror",
    "monthly usage limit reached",
    "available balance",
    "insufficient_quota",
    "insufficient quota",
    "out of budget",
    "quota exceeded",
    "billing",
];

/// Words of failures that pass, when there is no status.
const PASSING: [&str; 36] = [
    "overloaded",
    "rate limit",
    "rate_limit",
    "ratelimit",
    "too many requests",
    "service unavailable",
    "service_unavailable",
    "server error",
    "server_error",
    "internal error",
    "internal_error",
    "api_error",
    "provider returned error",
    "connection error",
    "connection refused",
    "connection lost",
    "connection reset",
    "network error",
    "other side closed",
    "fetch failed",
    "getaddrinfo",
    "upstream connect",
    "upstream_connect",
    "socket hang up",
    "timed out",
    "timeout",
    "terminated",
    "decompress",
    "incorrect header check",
    "stream deadline exceeded",
    "ended without",
    "stream ended before",
    "resourceexhausted",
    "you can retry your request",
    "retry delay",
    "broke off",
];

/// Words of failures for load (reference compaction 6), in lower case.
const LOAD: [&str; 12] = [
    "overloaded",
    "rate limit",
    "rate_limit",
    "ratelimit",
    "too many requests",
    "service unavailable",
    "service_unavailable",
    "server error",
    "server_error",
    "internal error",
    "internal_error",
    "resourceexhausted",
];

impl RetryPolicy {
    /// How long to wait before retry number `attempt` (from 1) of `failure`, in milliseconds. `None`: do not.
    pub(crate) fn delay(&self, attempt: u32, failure: &ModelFailure) -> Option<u64> {
        if !self.enabled || attempt > self.max_retries || !passes(failure) {
            return None;
        }
        let doubled = self.base_delay_ms.saturating_mul(1 << (attempt - 1).min(16)).min(MAX_DELAY_MS);
        match failure.retry_after_ms {
            Some(asked) if asked > MAX_DELAY_MS => None,
            Some(asked) => Some(asked.max(doubled)),
            None => Some(doubled),
        }
    }
}

impl Agent {
    /// The run failed and will be tried again: in a way that passes, or with another model.
    pub(crate) fn will_retry(&mut self) -> bool {
        let (retries, policy) = (self.retries, self.retry);
        let run = self.active();
        let failure = run.failure.as_ref().filter(|_| !run.aborted && !run.refused);
        failure.is_some_and(|failure| policy.delay(retries + 1, failure).is_some()) || self.will_fall_back()
    }

    /// After `agent_end`: waits for another try if the run failed in a way that passes, or gives it to another model.
    pub(crate) fn retry_failure(&mut self) -> bool {
        let run = self.active();
        let failure = if run.aborted { None } else { run.failure.clone() };
        let Some(failure) = failure else {
            self.end_retries(Some(CANCELLED));
            return false;
        };
        let refused = run.refused;
        let delay_ms = self.retry.delay(self.retries + 1, &failure).filter(|_| !refused);
        let Some(delay_ms) = delay_ms else {
            if self.fall_back(false) {
                return true;
            }
            self.end_retries(Some(&failure.message));
            let run = self.active();
            if run.hollow {
                run.failure = None;
            }
            return false;
        };
        self.retries += 1;
        self.emit(Event::AutoRetryStart {
            attempt: self.retries,
            max_attempts: self.retry.max_retries,
            delay_ms,
            error_message: failure.message,
        });
        let timer = TimerId(self.number());
        self.out.push(Effect::WakeAt { timer, at: self.now.plus(delay_ms) });
        self.active().waiting = Some(Waiting::Retry(timer));
        true
    }

    /// The streak of failures is over: an answer came (`None`), or it did not.
    pub(crate) fn end_retries(&mut self, error: Option<&str>) {
        if self.retries > 0 {
            let attempt = std::mem::take(&mut self.retries);
            let final_error = error.map(str::to_owned);
            self.emit(Event::AutoRetryEnd { success: error.is_none(), attempt, final_error });
        }
    }

    /// The wait is over: the failed answer leaves the conversation (not the file) and the turn is tried again.
    pub(crate) fn timer(&mut self, timer: TimerId) {
        let Some(run) = &mut self.run else { return };
        if !matches!(run.waiting, Some(Waiting::Retry(waited)) if waited == timer) {
            return;
        }
        if let Some((failed, _)) = run.messages.last() {
            self.context.retain(|(id, _)| id != failed);
        }
        let mut next = Run::new(None);
        next.steps.extend([Step::AgentStart, Step::TurnStart, Step::CallModel]);
        self.run = Some(next);
    }

    /// `abort_retry`: gives the wait up, if there is one; the run settles.
    pub(crate) fn abort_retry(&mut self) {
        if let Some(run) = &mut self.run
            && matches!(run.waiting, Some(Waiting::Retry(_)))
        {
            run.waiting = None;
            self.give_up_retrying();
        }
    }

    /// The wait was taken back: say so and settle, or go on with what waits in the queues when the run was aborted.
    pub(crate) fn give_up_retrying(&mut self) {
        self.end_retries(Some(CANCELLED));
        let run = self.active();
        let step = if run.aborted { Step::AfterRun } else { Step::Settle };
        run.steps.push_back(step);
    }
}

/// The failure of an answer that ended well and says nothing: it is empty, or a few words that no model wrote (reference 4.2).
/// Servers that count no tokens at all say nothing of what they did, so there only an empty answer is one. What came to nothing
/// because it did not fit a window of `window` tokens (0: not known) is not tried again as it is.
pub(crate) fn hollow(answer: &AssistantMessage, window: u64) -> Option<ModelFailure> {
    let AssistantMessage { stop_reason, usage, content, .. } = answer;
    if !matches!(stop_reason, StopReason::Stop | StopReason::ToolUse)
        || usage.output > 0
        || overflow::is_silent(*stop_reason, usage, window)
    {
        return None;
    }
    let counted = usage.input > 0 || usage.cache_read > 0 || usage.cache_write > 0;
    let message = match &content[..] {
        [] => EMPTY,
        [Block::Text { text, .. }] if text.trim().is_empty() => EMPTY,
        [Block::Text { text, .. }] if counted && units(text) <= REFUSAL_UNITS => REFUSAL,
        _ => return None,
    };
    Some(ModelFailure { should_retry: Some(true), ..ModelFailure::new(message) })
}

/// Whether a failure may pass by itself.
pub(crate) fn passes(failure: &ModelFailure) -> bool {
    let text = failure.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if overflow::says_too_long(&failure.message) {
        return false;
    }
    // Who answers knows best.
    if let Some(said) = failure.should_retry {
        return said;
    }
    if says(&LASTING) {
        return false;
    }
    match failure.status {
        Some(425) => failure.retry_after_ms.is_some(),
        Some(status) => STATUSES.contains(&status) || (526..530).contains(&status),
        None => says(&PASSING) || names_status(&text),
    }
}

/// The failure is about money, not load.
pub(crate) fn is_quota(failure: &ModelFailure) -> bool {
    let text = failure.message.to_lowercase();
    LASTING.iter().any(|word| text.contains(word))
}

/// The provider has too much to do, for everybody or for this user.
pub(crate) fn is_load(failure: &ModelFailure) -> bool {
    let text = failure.message.to_lowercase();
    let busy = |status: u16| status == 429 || (500..600).contains(&status);
    match failure.status {
        Some(status) => busy(status),
        None => LOAD.iter().any(|word| text.contains(word)) || statuses(&text).any(busy),
    }
}

/// A status of [`STATUSES`] stands in the text.
fn names_status(text: &str) -> bool {
    statuses(text).any(|status| STATUSES.contains(&status) && status != 409)
}

/// The numbers of three digits in a text that are words of their own, neither in a name nor in a larger number.
fn statuses(text: &str) -> impl Iterator<Item = u16> {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | ',')))
        .map(|word| word.trim_matches(['.', ',']))
        .filter(|word| word.len() == 3)
        .filter_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use atomic_protocol::json::Raw;
    use atomic_protocol::message::Message;

    use super::*;

    fn failure(status: Option<u16>, message: &str) -> ModelFailure {
        ModelFailure { status, ..ModelFailure::new(message) }
    }

    #[test]
    fn what_the_provider_says_about_another_try_counts() {
        for (status, message, said, want) in [
            (400, "odd", Some(true), true),
            (503, "busy", Some(false), false),
            (429, "insufficient_quota", Some(true), true),
            (503, "prompt is too long", Some(true), false),
            (503, "busy", None, true),
        ] {
            let failure = ModelFailure { should_retry: said, ..failure(Some(status), message) };
            assert_eq!(passes(&failure), want, "{status} {message} {said:?}");
        }
    }

    #[test]
    fn answers_that_say_nothing() {
        let text = |text: &str| format!(r#"[{{"type":"text","text":"{text}"}}]"#);
        let call = r#"[{"type":"toolCall","id":"1","name":"t","arguments":{}}]"#.to_owned();
        let long = "x".repeat(121);
        for (content, stop, input, output, want) in [
            ("[]".to_owned(), "stop", 9, 0, Some(EMPTY)),
            ("[]".to_owned(), "toolUse", 0, 0, Some(EMPTY)),
            (text(" "), "stop", 0, 0, Some(EMPTY)),
            (text("I can't help with that."), "stop", 9, 0, Some(REFUSAL)),
            (text(&long[1..]), "stop", 9, 0, Some(REFUSAL)),
            // A server that counts nothing may well say little.
            (text("Done."), "stop", 0, 0, None),
            (text("Done."), "stop", 9, 2, None),
            (text(&long), "stop", 9, 0, None),
            ("[]".to_owned(), "stop", 9, 3, None),
            ("[]".to_owned(), "length", 9, 0, None),
            ("[]".to_owned(), "error", 9, 0, None),
            ("[]".to_owned(), "aborted", 0, 0, None),
            (call, "toolUse", 9, 0, None),
            // It did not fit: another matter.
            ("[]".to_owned(), "stop", 101, 0, None),
        ] {
            let message = format!(
                r#"{{"role":"assistant","content":{content},"usage":{{"input":{input},"output":{output}}},"stopReason":"{stop}"}}"#
            );
            let parsed = Message::parse(&Raw::parse(&message).unwrap());
            let Ok(Message::Assistant(answer)) = parsed else { panic!("{message}") };
            let failure = hollow(&answer, 100);
            assert_eq!(failure.as_ref().map(|failure| &failure.message[..]), want, "{message}");
            assert!(failure.is_none_or(|failure| passes(&failure)));
        }
    }

    #[test]
    fn what_passes_and_what_lasts() {
        for (status, message, expected) in [
            (Some(529), "529 {\"type\":\"overloaded_error\"}", true),
            (Some(500), "500 oops", true),
            (Some(429), "429 rate limited", true),
            (Some(429), "429 insufficient_quota", false),
            (Some(401), "401 timeout in your key", false),
            (Some(401), "401 rate limit of unknown keys exceeded", false),
            (Some(403), "403 overloaded_error", false),
            (Some(400), "400 field 5030 is unknown", false),
            (Some(400), "400 see error 503", false),
            (Some(503), "503 your API key is being checked", true),
            (Some(400), "400 prompt is too long: 15000 tokens", false),
            (Some(425), "425 too early", false),
            (Some(408), "408", true),
            (None, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}", true),
            (None, "Anthropic stream ended before message_stop", true),
            (None, "Connection error: localhost:1: connection refused", true),
            (None, "stream deadline exceeded: no answer for 300 s", true),
            (None, "code 503", true),
            (None, "asked for 15000 tokens", false),
            (None, "request 5030 failed", false),
            (None, "model m500x is unknown", false),
            (None, "it needs 12,500 tokens and 0.503 s", false),
            (None, "it said 503.", true),
            (None, "{\"code\":503,\"text\":\"\"}", true),
            (None, "invalid_request_error: no such model", false),
        ] {
            assert_eq!(passes(&failure(status, message)), expected, "{status:?} {message}");
        }
    }

    #[test]
    fn delays_double_and_heed_the_provider() {
        let policy = RetryPolicy::default();
        let plain = failure(Some(503), "");
        let delays: Vec<_> = (1..=4).map(|attempt| policy.delay(attempt, &plain)).collect();
        assert_eq!(delays, [Some(2000), Some(4000), Some(8000), None]);
        let asks = |ms| ModelFailure { retry_after_ms: Some(ms), ..plain.clone() };
        assert_eq!(policy.delay(1, &asks(5000)), Some(5000));
        assert_eq!(policy.delay(1, &asks(10)), Some(2000));
        assert_eq!(policy.delay(1, &asks(61_000)), None);
        assert_eq!(RetryPolicy { enabled: false, ..policy }.delay(1, &plain), None);
    }
}
