//! A conversation made fit for one model: what another model signed is taken away, images go where there are eyes,
//! every call has its result. Nothing is copied that can be borrowed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use atomic_protocol::json::Raw;
use atomic_protocol::message::{AssistantMessage, Block, Content, Message, StopReason, ToolCall};
use atomic_protocol::model::Model;

/// Stands for images a model cannot see.
const NO_EYES: &str = "(image omitted: this model takes text only)";

/// Answers a call whose result got lost.
const NO_RESULT: &str = "No result provided";

/// A message of the conversation, fit for the model.
#[derive(Debug, PartialEq)]
pub(crate) enum Turn<'a> {
    User(Vec<Part<'a>>),
    Assistant(Vec<Part<'a>>),
    ToolResult {
        id: Cow<'a, str>,
        /// The tool's.
        name: &'a str,
        content: Vec<Part<'a>>,
        is_error: bool,
    },
}

/// A content block, fit for the model.
#[derive(Debug, PartialEq)]
pub(crate) enum Part<'a> {
    Text(&'a str),
    /// Only of the same model, for dialects that sign text.
    SignedText {
        text: &'a str,
        signature: &'a str,
    },
    Image {
        data: &'a str,
        mime_type: &'a str,
    },
    /// Only of the same model.
    Thinking {
        text: &'a str,
        signature: Option<&'a str>,
    },
    /// Only of the same model.
    Redacted {
        data: &'a str,
    },
    Call {
        id: Cow<'a, str>,
        name: &'a str,
        arguments: &'a Raw,
        /// Only of the same model.
        signature: Option<&'a str>,
        /// The call's second id ([`IdRule::paired`]). Only of the same model.
        item: Option<&'a str>,
    },
}

/// What a dialect makes of a conversation that is not the same for all of them, ids of tool calls above all.
pub(crate) struct IdRule {
    pub(crate) allowed: fn(char) -> bool,
    /// In characters, as are the others.
    pub(crate) shortest: usize,
    pub(crate) longest: usize,
    /// What an id that does not fit is cut to.
    pub(crate) cut: usize,
    /// An id that does not fit is replaced by a hash of [`IdRule::cut`] letters and digits.
    pub(crate) hashed: bool,
    /// The provider gives a call two ids. Ours is both with `|` between; the first one pairs a call and its result.
    pub(crate) paired: bool,
    /// Text carries signatures that go back.
    pub(crate) signed_text: bool,
}

impl IdRule {
    /// What most endpoints allow: letters, digits, `_` and `-`, at most 64 of them.
    pub(crate) const USUAL: IdRule = IdRule {
        allowed: |c| c.is_ascii_alphanumeric() || c == '_' || c == '-',
        shortest: 1,
        longest: 64,
        cut: 64,
        hashed: false,
        paired: false,
        signed_text: false,
    };

    /// The part of our id that is the provider's.
    fn own<'i>(&self, id: &'i str) -> &'i str {
        self.split(id).0
    }

    fn split<'i>(&self, id: &'i str) -> (&'i str, Option<&'i str>) {
        match id.split_once('|') {
            Some((call, item)) if self.paired => (call, Some(item)),
            _ => (id, None),
        }
    }
}

/// The conversation for `model`. Answers that failed or were aborted are left out with the results of their calls.
pub(crate) fn conversation<'a>(messages: &'a [Message], model: &Model, rule: &IdRule) -> Vec<Turn<'a>> {
    let eyes = model.input.iter().any(|kind| kind == "image");
    let mut ids = Ids { rule, given: HashMap::new(), taken: HashMap::new() };
    let mut turns = Vec::with_capacity(messages.len());
    // Calls of the last answer that still wait, in order.
    let mut waiting: Vec<&ToolCall> = Vec::new();
    for message in messages {
        match message {
            Message::User(user) => {
                answer_all(&mut waiting, &mut ids, &mut turns);
                turns.push(Turn::User(match &user.content {
                    Content::Text(text) => vec![Part::Text(text)],
                    Content::Blocks(blocks) => seen(blocks, eyes),
                }));
            }
            Message::Assistant(answer) => {
                answer_all(&mut waiting, &mut ids, &mut turns);
                if !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted) {
                    turns.push(Turn::Assistant(said(answer, model, &mut ids)));
                    waiting = answer.tool_calls().collect();
                }
            }
            Message::ToolResult(result) => {
                // A result without a call belongs to an answer that was left out.
                if let Some(at) = waiting.iter().position(|call| call.id == result.tool_call_id) {
                    let call = waiting.remove(at);
                    turns.push(Turn::ToolResult {
                        id: ids.fit(&call.id),
                        name: &call.name,
                        content: seen(&result.content, eyes),
                        is_error: result.is_error,
                    });
                }
            }
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::Other(_) => {}
        }
    }
    answer_all(&mut waiting, &mut ids, &mut turns);
    turns
}

fn answer_all<'a>(waiting: &mut Vec<&'a ToolCall>, ids: &mut Ids<'a, '_>, turns: &mut Vec<Turn<'a>>) {
    turns.extend(waiting.drain(..).map(|call| Turn::ToolResult {
        id: ids.fit(&call.id),
        name: &call.name,
        content: vec![Part::Text(NO_RESULT)],
        is_error: true,
    }));
}

/// Text and images. For a model without eyes a row of images becomes one notice.
fn seen(blocks: &[Block], eyes: bool) -> Vec<Part<'_>> {
    let mut parts = Vec::with_capacity(blocks.len());
    for block in blocks {
        match block {
            Block::Text { text, .. } => parts.push(Part::Text(text)),
            Block::Image { data, mime_type } if eyes => parts.push(Part::Image { data, mime_type }),
            Block::Image { .. } if parts.last() != Some(&Part::Text(NO_EYES)) => {
                parts.push(Part::Text(NO_EYES))
            }
            _ => {}
        }
    }
    parts
}

fn said<'a>(answer: &'a AssistantMessage, model: &Model, ids: &mut Ids<'a, '_>) -> Vec<Part<'a>> {
    let same = answer.provider == model.provider && answer.api == model.api && answer.model == model.id;
    let mut parts = Vec::with_capacity(answer.content.len());
    for block in &answer.content {
        match block {
            Block::Text { text, signature } => {
                parts.push(match signature.as_deref().filter(|signature| !signature.is_empty()) {
                    Some(signature) if same && ids.rule.signed_text => Part::SignedText { text, signature },
                    _ => Part::Text(text),
                });
            }
            Block::Thinking { thinking, signature, redacted } => {
                let signature = signature.as_deref().filter(|signature| !signature.is_empty());
                match (same, *redacted, signature) {
                    (true, true, Some(data)) => parts.push(Part::Redacted { data }),
                    // Another model cannot read what was withheld, and nobody what has no data.
                    (_, true, _) => {}
                    (true, false, Some(_)) => parts.push(Part::Thinking { text: thinking, signature }),
                    (_, false, _) if thinking.trim().is_empty() => {}
                    (true, false, None) => parts.push(Part::Thinking { text: thinking, signature: None }),
                    (false, false, _) => parts.push(Part::Text(thinking)),
                }
            }
            Block::ToolCall(call) => {
                let arguments =
                    if call.arguments.as_str().starts_with('{') { &call.arguments } else { &*NOTHING };
                let signature = call.thought_signature.as_deref().filter(|_| same);
                let item = ids.rule.split(&call.id).1.filter(|_| same);
                let (id, name) = (ids.fit(&call.id), call.name.as_str());
                parts.push(Part::Call { id, name, arguments, signature, item });
            }
            Block::Image { .. } | Block::Other(_) => {}
        }
    }
    parts
}

/// Arguments of a call that has none.
static NOTHING: LazyLock<Raw> = LazyLock::new(Raw::empty_object);

/// Gives each id one that the dialect allows, the same for a call and its result, different for different ids.
struct Ids<'a, 'r> {
    rule: &'r IdRule,
    given: HashMap<&'a str, String>,
    /// Ids given out, each with the one it stands for.
    taken: HashMap<String, &'a str>,
}

impl<'a> Ids<'a, '_> {
    fn fit(&mut self, id: &'a str) -> Cow<'a, str> {
        if let Some(given) = self.given.get(id) {
            return Cow::Owned(given.clone());
        }
        let own = self.rule.own(id);
        let length = own.chars().count();
        let fits = (self.rule.shortest.max(1)..=self.rule.longest).contains(&length)
            && own.chars().all(self.rule.allowed);
        if fits {
            match self.taken.get(own) {
                None => {
                    self.taken.insert(own.to_owned(), id);
                    return Cow::Borrowed(own);
                }
                Some(owner) if *owner == id => return Cow::Borrowed(own),
                Some(_) => {}
            }
        }
        let mut given = self.made(own, 1);
        let mut number = 2;
        while self.taken.contains_key(&given) {
            given = self.made(own, number);
            number += 1;
        }
        self.taken.insert(given.clone(), id);
        self.given.insert(id, given.clone());
        Cow::Owned(given)
    }

    /// An id that fits instead of one that does not, another one for each number.
    fn made(&self, id: &str, number: usize) -> String {
        let suffix = if number > 1 { format!("_{number}") } else { String::new() };
        if self.rule.hashed {
            return hash(&format!("{id}{suffix}"), self.rule.cut);
        }
        let clean = |c: char| if (self.rule.allowed)(c) { c } else { '_' };
        let stem: String = id.chars().map(clean).collect();
        let stem = if stem.is_empty() { "call" } else { &stem };
        stem.chars().take(self.rule.cut - suffix.len()).chain(suffix.chars()).collect()
    }
}

/// Letters and digits that stand for `text`, the same in every run: the provider's cache works on equal beginnings.
fn hash(text: &str, length: usize) -> String {
    // FNV-1a, and one multiplication more to spread it.
    let folded = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut rest = (folded ^ (folded >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let digits = std::iter::repeat_with(|| {
        let digit = char::from_digit((rest % 36) as u32, 36).expect("below 36 is a digit");
        rest /= 36;
        digit
    });
    digits.take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_protocol::model::ModelSpec;

    const RULE: IdRule =
        IdRule { allowed: |c| c.is_ascii_alphanumeric() || c == '_', longest: 8, cut: 8, ..IdRule::USUAL };

    fn model(input: &str) -> Model {
        let spec: ModelSpec =
            serde_json::from_str(&format!(r#"{{"id":"m","provider":"p","api":"a","input":{input}}}"#))
                .unwrap();
        Model::from_spec(spec)
    }

    fn messages(texts: &[&str]) -> Vec<Message> {
        texts.iter().map(|text| Message::parse(&Raw::parse(text).unwrap()).unwrap()).collect()
    }

    fn assistant(model: &str, stop: &str, content: &str) -> String {
        format!(
            r#"{{"role":"assistant","provider":"p","api":"a","model":"{model}","stopReason":"{stop}","content":[{content}]}}"#
        )
    }

    #[test]
    fn signatures_stay_with_the_model_that_made_them() {
        let content = r#"{"type":"thinking","thinking":"why","thinkingSignature":"s"},{"type":"thinking","thinking":"","thinkingSignature":"e"},{"type":"thinking","thinking":"[x]","thinkingSignature":"d","redacted":true},{"type":"thinking","thinking":"bare"},{"type":"thinking","thinking":" "},{"type":"text","text":"t","textSignature":"ts"}"#;
        let own = messages(&[&assistant("m", "stop", content)]);
        assert_eq!(
            conversation(&own, &model("[]"), &RULE),
            [Turn::Assistant(vec![
                Part::Thinking { text: "why", signature: Some("s") },
                Part::Thinking { text: "", signature: Some("e") },
                Part::Redacted { data: "d" },
                Part::Thinking { text: "bare", signature: None },
                Part::Text("t"),
            ])]
        );
        let foreign = messages(&[&assistant("other", "stop", content)]);
        assert_eq!(
            conversation(&foreign, &model("[]"), &RULE),
            [Turn::Assistant(vec![Part::Text("why"), Part::Text("bare"), Part::Text("t")])]
        );
    }

    #[test]
    fn failed_answers_go_with_their_results_and_lost_results_are_made_up() {
        let call = |id: &str| format!(r#"{{"type":"toolCall","id":"{id}","name":"n","arguments":{{}}}}"#);
        let result = |id: &str| format!(r#"{{"role":"toolResult","toolCallId":"{id}","content":[]}}"#);
        let history = messages(&[
            &assistant("m", "aborted", &call("c1")),
            &result("c1"),
            &assistant("m", "error", ""),
            &assistant("m", "toolUse", &format!("{},{}", call("c2"), call("c3"))),
            &result("c3"),
            r#"{"role":"user","content":"next"}"#,
            &assistant("m", "toolUse", &call("c4")),
        ]);
        let turns = conversation(&history, &model("[]"), &RULE);
        let shape: Vec<String> = turns
            .iter()
            .map(|turn| match turn {
                Turn::User(_) => "user".to_owned(),
                Turn::Assistant(parts) => format!("assistant {}", parts.len()),
                Turn::ToolResult { id, is_error, .. } => format!("{id} {is_error}"),
            })
            .collect();
        assert_eq!(shape, ["assistant 2", "c3 false", "c2 true", "user", "assistant 1", "c4 true"]);
    }

    #[test]
    fn ids_fit_and_stay_different_and_paired() {
        let ids = ["a|b", "a_b", "0123456789", "0123456799", "", "a|b"];
        let mut fitted = Ids { rule: &RULE, given: HashMap::new(), taken: HashMap::new() };
        let fitted: Vec<String> = ids.iter().map(|id| fitted.fit(id).into_owned()).collect();
        assert_eq!(fitted, ["a_b", "a_b_2", "01234567", "012345_2", "call", "a_b"]);
    }

    #[test]
    fn ids_may_be_hashes_or_pairs() {
        let fitted = |rule: &IdRule, ids: &[&'static str]| {
            let mut all = Ids { rule, given: HashMap::new(), taken: HashMap::new() };
            ids.iter().map(|id| all.fit(id).into_owned()).collect::<Vec<_>>()
        };
        let nine = IdRule {
            allowed: |c| c.is_ascii_alphanumeric(),
            shortest: 9,
            longest: 9,
            cut: 9,
            hashed: true,
            ..IdRule::USUAL
        };
        let ids = fitted(&nine, &["abcDEF123", "toolu_1", "toolu_2", "", "toolu_1"]);
        assert_eq!((ids[0].as_str(), &ids[1]), ("abcDEF123", &ids[4]));
        assert!(
            ids.iter().all(|id| id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric())),
            "{ids:?}"
        );
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), 4, "{ids:?}");
        let paired = IdRule { paired: true, ..IdRule::USUAL };
        assert_eq!(fitted(&paired, &["c1|fc_1", "c1|fc_2", "c2", "c1|fc_1"]), ["c1", "c1_2", "c2", "c1"]);
    }

    #[test]
    fn images_need_eyes() {
        let history = messages(&[
            r#"{"role":"user","content":[{"type":"image","data":"1","mimeType":"image/png"},{"type":"image","data":"2","mimeType":"image/png"},{"type":"text","text":"x"},{"type":"new"},{"type":"image","data":"3","mimeType":"image/png"}]}"#,
        ]);
        assert_eq!(
            conversation(&history, &model(r#"["text"]"#), &RULE),
            [Turn::User(vec![Part::Text(NO_EYES), Part::Text("x"), Part::Text(NO_EYES)])]
        );
        let Turn::User(parts) = &conversation(&history, &model(r#"["text","image"]"#), &RULE)[0] else {
            panic!()
        };
        assert_eq!(parts.len(), 4);
    }
}
