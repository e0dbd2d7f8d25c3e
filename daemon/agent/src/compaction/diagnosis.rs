//! What is kept of a planner's answer for who wants to know why it failed, or what it cost to recover (reference compaction 6).

use std::sync::Arc;

use atomic_protocol::json::{ObjectWriter, Raw};
use atomic_protocol::message::StopReason;
use atomic_protocol::model::{Model, ModelFailure, ThinkingLevel};
use atomic_protocol::time::Millis;

use super::plan::{MALFORMED, PlannerAnswer, STARVED};
use super::result::{Boundary, Rung};
use super::step::{PlanOutcome, Work};
use crate::retry::{self, RetryPolicy};

/// Bytes of a planner's answer that are kept.
const KEPT_BYTES: usize = 256 << 10;

/// Whom a step asks, and what is known of the asking.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The planner.
    pub model: Arc<Model>,
    /// How much it may think.
    pub thinking: ThinkingLevel,
    /// It is not the session's own model.
    pub borrowed: bool,
    /// The rules for failures.
    pub retry: RetryPolicy,
    /// Retries of this planner before.
    pub retries: u32,
}

/// Something to keep beside the session's file.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// Part of the file's name.
    pub label: &'static str,
    /// It tells why the planner was given up; the error for a person names the file.
    pub failed: bool,
    /// The file's content, one JSON object.
    pub record: Raw,
}

impl Asked {
    /// What is worth keeping of an answer and what came of it. `None`: nothing; it was as it should, or the planner is asked
    /// again.
    pub fn diagnosis(&self, answer: &PlannerAnswer, outcome: &PlanOutcome, now: Millis) -> Option<Diagnosis> {
        let mut out = Vec::new();
        let mut record = ObjectWriter::begin(&mut out);
        record.int("version", 1).str("timestamp", &now.iso());
        let label = match outcome {
            PlanOutcome::Done(boundary) => match &**boundary {
                Boundary::Lines(compaction) if compaction.rung != Rung::Planned => return None,
                Boundary::Lines(compaction) if answer.stop == StopReason::Length => {
                    record.str("recoveryCategory", "partial_length_recovery");
                    record.count("recoveredRangeCount", compaction.stats.range_count as u64);
                    "planner-recovery"
                }
                Boundary::Lines(_) if self.borrowed => {
                    record.str("successCategory", "borrowed_planner");
                    record.str("thinkingLevel", self.thinking.as_str());
                    "planner-success"
                }
                _ => return None,
            },
            outcome => {
                let (category, message) = self.failure(outcome)?;
                record.str("failureCategory", category).str("failureMessage", &message);
                if matches!(category, "rate_limited" | "quota") {
                    record.bool("rateLimitExhausted", category == "rate_limited" && self.retries > 0);
                }
                "planner-diagnostic"
            }
        };
        let mut kept = answer.text.len().min(KEPT_BYTES);
        while !answer.text.is_char_boundary(kept) {
            kept -= 1;
        }
        record.str("rawResponse", &answer.text[..kept]).value("stopReason", &answer.stop);
        let error = answer.failure.as_ref().map(|failure| &failure.message);
        // No cap on the answer is ever asked for.
        record.value("providerError", &error).value("usage", &answer.usage).raw("requestMaxTokens", b"null");
        let mut model = ObjectWriter::begin(record.key("model"));
        model.str("provider", &self.model.provider).str("id", &self.model.id).str("api", &self.model.api);
        model.count("contextWindow", self.model.context_window).count("maxTokens", self.model.max_tokens);
        model.end();
        record.end();
        let failed = label == "planner-diagnostic";
        Some(Diagnosis { label, failed, record: Raw::from_trusted(out.into()) })
    }

    /// Why the planner of lines is given up, if it is.
    fn failure(&self, outcome: &PlanOutcome) -> Option<(&'static str, String)> {
        match outcome {
            PlanOutcome::Unusable { work: Work::Lines(_), why } => {
                let category = match &why[..] {
                    MALFORMED => "malformed_output",
                    STARVED => "starved",
                    _ => "no_usable_ranges",
                };
                Some((category, why.clone()))
            }
            PlanOutcome::TooLong(Work::Lines(plan)) if plan.trimmed().is_none() => {
                Some(("overflowed", "The conversation does not fit into its context window".to_owned()))
            }
            PlanOutcome::Failed { work: Work::Lines(_), failure }
                if self.retry.delay(self.retries + 1, failure).is_none() =>
            {
                Some((category(failure), failure.message.clone()))
            }
            _ => None,
        }
    }
}

fn category(failure: &ModelFailure) -> &'static str {
    if retry::is_quota(failure) {
        "quota"
    } else if retry::is_load(failure) {
        "rate_limited"
    } else if failure.message == super::plan::BROKE_OFF {
        "stream_error"
    } else {
        "provider_error"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::{Begin, Begun, Parameters, Source, Way};

    fn asked(borrowed: bool, retries: u32) -> Asked {
        let model = r#"{"id":"m","name":"m","api":"a","provider":"p","contextWindow":9,"maxTokens":8}"#;
        let model = Arc::new(Model::parse(Raw::parse(model).unwrap()).unwrap());
        Asked { model, thinking: ThinkingLevel::Low, borrowed, retry: RetryPolicy::default(), retries }
    }

    fn work() -> Work {
        let lines: Vec<String> = (0..40).map(|line| line.to_string()).collect();
        let message = format!(r#"{{"role":"user","content":"{}"}}"#, lines.join("\\n"));
        let messages = vec![("e".into(), Raw::parse(&message).unwrap())];
        let way = Way::Lines(Parameters { preserve_recent: 0, ..Parameters::default() });
        let begin = Begin { way, tokens_before: 9, load_bearing: false, small: false };
        match begin.begin(Source { previous: None, messages }, 0) {
            Begun::Ask(work) => work,
            Begun::Over(outcome) => panic!("{outcome:?}"),
        }
    }

    fn said(text: &str, stop: StopReason) -> PlannerAnswer {
        PlannerAnswer { text: text.to_owned(), stop, ..PlannerAnswer::default() }
    }

    fn failed(message: &str) -> PlannerAnswer {
        PlannerAnswer { failure: Some(ModelFailure::new(message)), ..PlannerAnswer::default() }
    }

    #[test]
    fn what_is_kept_of_which_answer() {
        for (answer, borrowed, retries, label, part) in [
            (said("2,9", StopReason::Stop), false, 0, None, ""),
            (
                said("2,9", StopReason::Stop),
                true,
                0,
                Some("planner-success"),
                r#""successCategory":"borrowed_planner","thinkingLevel":"low""#,
            ),
            (
                said("2,9\n11", StopReason::Length),
                false,
                0,
                Some("planner-recovery"),
                r#""recoveryCategory":"partial_length_recovery","recoveredRangeCount":1"#,
            ),
            (
                said("no", StopReason::Stop),
                false,
                0,
                Some("planner-diagnostic"),
                r#""failureCategory":"malformed_output""#,
            ),
            (
                said("900,900", StopReason::Stop),
                false,
                0,
                Some("planner-diagnostic"),
                r#""failureCategory":"no_usable_ranges""#,
            ),
            // It is asked again: nothing is over.
            (failed("503 overloaded"), false, 2, None, ""),
            (
                failed("503 overloaded"),
                false,
                3,
                Some("planner-diagnostic"),
                r#""failureCategory":"rate_limited","failureMessage":"503 overloaded","rateLimitExhausted":true"#,
            ),
            (
                failed("429 insufficient_quota"),
                false,
                0,
                Some("planner-diagnostic"),
                r#""failureCategory":"quota","failureMessage":"429 insufficient_quota","rateLimitExhausted":false"#,
            ),
            (
                failed("no such model"),
                false,
                0,
                Some("planner-diagnostic"),
                r#""failureCategory":"provider_error""#,
            ),
            (
                PlannerAnswer::broken(crate::compaction::BROKE_OFF),
                false,
                3,
                Some("planner-diagnostic"),
                r#""failureCategory":"stream_error""#,
            ),
            (failed("prompt is too long"), false, 0, None, ""),
        ] {
            let outcome = work().outcome(answer.clone(), 0);
            let diagnosis = asked(borrowed, retries).diagnosis(&answer, &outcome, Millis(0));
            assert_eq!(diagnosis.as_ref().map(|diagnosis| diagnosis.label), label, "{answer:?}");
            let Some(diagnosis) = diagnosis else { continue };
            let text = diagnosis.record.as_str();
            assert!(text.contains(part), "{text}");
            assert!(Raw::parse(text).is_ok() && text.contains(r#""maxTokens":8"#), "{text}");
            assert_eq!(diagnosis.failed, label == Some("planner-diagnostic"));
        }
    }

    #[test]
    fn an_answer_without_end_is_kept_in_part() {
        let answer = said(&"é".repeat(KEPT_BYTES), StopReason::Stop);
        let outcome = work().outcome(answer.clone(), 0);
        let record = asked(false, 0).diagnosis(&answer, &outcome, Millis(0)).unwrap().record;
        assert!((KEPT_BYTES..KEPT_BYTES + 1000).contains(&record.as_str().len()));
    }
}
