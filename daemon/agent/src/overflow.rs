//! How providers say that a conversation is too long.
//!
//! Each says it in its own words (reference 4.3), and some say nothing and answer all the same.

use atomic_protocol::message::{StopReason, Usage};

/// Words of a conversation that is too long: the parts of one entry in this order, `#` for a digit. Lower case.
const TOO_LONG: [&[&str]; 26] = [
    &["prompt is too long"],
    &["request_too_large"],
    &["input is too long"],
    &["exceeds the context window"],
    &["exceeds", "maximum context length"],
    &["input token count", "exceeds the maximum"],
    &["maximum prompt length is #"],
    &["reduce the length of the messages"],
    &["maximum context length is #", "tokens"],
    &["exceeds", "maximum allowed input length"],
    &["input (", "tokens) is longer than the model's context length"],
    &["exceeds the limit of #"],
    &["exceeds the available context size"],
    &["greater than the context length"],
    &["context window exceeds limit"],
    &["exceeded model token limit"],
    &["too large for model with", "maximum context length"],
    &["prompt has", "tokens, but the configured context size"],
    &["model_context_window_exceeded"],
    &["prompt too long"],
    &["exceeded context length"],
    &["exceeded max context length"],
    &["range of input length should be"],
    &["context_length_exceeded"],
    &["context length exceeded"],
    &["token limit exceeded"],
];

/// Words of load that stand in the same sentences.
const LOAD: [&str; 2] = ["rate limit", "too many requests"];

/// How a text of load begins.
const LOAD_BEGINS: [&str; 3] = ["throttling error:", "service unavailable:", "429 "];

/// An answer of nothing that fills this part of the window, in percent, is one that did not fit.
const FULL_PERCENT: u64 = 99;

/// Whether a provider's error says that the conversation is too long.
pub(crate) fn says_too_long(message: &str) -> bool {
    let text = message.to_lowercase();
    if LOAD_BEGINS.iter().any(|words| text.starts_with(words))
        || LOAD.iter().any(|words| text.contains(words))
    {
        return false;
    }
    TOO_LONG.iter().any(|parts| in_order(&text, parts))
        || text.contains("too many tokens")
        || is_bare_refusal(&text)
}

/// The most tokens that an error says fit, when it says so: the account or the endpoint may allow less than the catalog has.
pub(crate) fn limit(message: &str) -> Option<u64> {
    const BEFORE: [&str; 5] = [
        "maximum context length is ",
        "maximum prompt length is ",
        "exceeds the limit of ",
        "context length of ",
        " > ",
    ];
    let text = message.to_lowercase();
    let number = BEFORE.iter().find_map(|words| {
        let digits = &text[text.find(words)? + words.len()..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    })?;
    (number >= LEAST_LIMIT).then_some(number)
}

/// A smaller number in an error is no context window.
const LEAST_LIMIT: u64 = 1000;

/// Whether an answer shows that the conversation was too long for the window although the provider did not say so.
pub(crate) fn is_silent(stop: StopReason, usage: &Usage, window: u64) -> bool {
    let sent = usage.input.saturating_add(usage.cache_read);
    match stop {
        _ if window == 0 => false,
        StopReason::Stop => sent > window,
        StopReason::Length => {
            usage.output == 0 && sent.saturating_mul(100) >= window.saturating_mul(FULL_PERCENT)
        }
        _ => false,
    }
}

/// Some servers refuse what does not fit with a status and nothing else.
fn is_bare_refusal(text: &str) -> bool {
    let rest = text.strip_prefix("400").or_else(|| text.strip_prefix("413"));
    rest.is_some_and(|rest| {
        let rest = rest.trim_start();
        rest.strip_prefix("status code").unwrap_or(rest).trim_start().starts_with("(no body)")
    })
}

fn in_order(text: &str, parts: &[&str]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| match find(rest, part) {
        Some(end) => {
            rest = &rest[end..];
            true
        }
        None => false,
    })
}

/// Where the first `part` ends; a `#` at its end asks for a digit.
fn find(text: &str, part: &str) -> Option<usize> {
    let Some(words) = part.strip_suffix('#') else {
        return text.find(part).map(|at| at + part.len());
    };
    text.match_indices(words)
        .map(|(at, words)| at + words.len())
        .find(|end| text[*end..].starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_many_providers() {
        for (text, expected) in [
            (
                "400 {\"type\":\"error\",\"error\":{\"message\":\"prompt is too long: 210000 tokens > 200000 maximum\"}}",
                true,
            ),
            ("413 {\"error\":{\"type\":\"request_too_large\"}}", true),
            ("Your input exceeds the context window of this model.", true),
            ("Requested token count exceeds the model's maximum context length of 131072 tokens", true),
            ("The input token count (1196265) exceeds the maximum number of tokens allowed", true),
            ("This model's maximum prompt length is 131072 but the request contains 537812 tokens", true),
            ("Please reduce the length of the messages or completion.", true),
            ("This endpoint's maximum context length is 8192 tokens.", true),
            ("prompt token count of 65536 exceeds the limit of 64000", true),
            ("the request exceeds the available context size", true),
            ("Prompt has 9000 tokens, but the configured context size is 4096 tokens", true),
            ("{\"code\":\"context_length_exceeded\"}", true),
            ("400 status code (no body)", true),
            ("413 (no body)", true),
            ("400 (no body yet)", false),
            ("Too many tokens in the request", true),
            ("Throttling error: Too many tokens, please wait", false),
            ("Service unavailable: prompt too long", false),
            ("429 {\"message\":\"Too many tokens, please wait before trying again.\"}", false),
            ("4290 tokens: too many tokens", true),
            ("rate limit exceeds the limit of 5", false),
            ("429 Too many requests: token limit exceeded", false),
            ("exceeds the limit of requests", false),
            ("maximum context length exceeds", false),
            ("500 oops", false),
        ] {
            assert_eq!(says_too_long(text), expected, "{text}");
        }
    }

    #[test]
    fn limits_that_errors_name() {
        for (text, expected) in [
            ("prompt is too long: 210000 tokens > 200000 maximum", Some(200_000)),
            ("This model's maximum context length is 8192 tokens. However", Some(8192)),
            ("maximum prompt length is 131072 but the request contains 537812 tokens", Some(131_072)),
            ("exceeds the limit of 64000", Some(64_000)),
            ("exceeds the model's maximum context length of 131072 tokens", Some(131_072)),
            ("a > 5", None),
            ("prompt too long", None),
            ("9 > 99999999999999999999999", None),
        ] {
            assert_eq!(limit(text), expected, "{text}");
        }
    }

    #[test]
    fn answers_that_show_it() {
        let usage = |input, cache_read, output| Usage { input, cache_read, output, ..Usage::default() };
        for (stop, usage, window, expected) in [
            (StopReason::Stop, usage(90, 11, 5), 100, true),
            (StopReason::Stop, usage(90, 10, 5), 100, false),
            (StopReason::Length, usage(99, 0, 0), 100, true),
            (StopReason::Length, usage(98, 0, 0), 100, false),
            (StopReason::Length, usage(99, 0, 1), 100, false),
            (StopReason::ToolUse, usage(200, 0, 1), 100, false),
            (StopReason::Stop, usage(90, 11, 5), 0, false),
        ] {
            assert_eq!(is_silent(stop, &usage, window), expected, "{stop:?} {usage:?} {window}");
        }
    }
}
