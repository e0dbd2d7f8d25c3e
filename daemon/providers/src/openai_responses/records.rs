//! The provider's records, as flat structs that borrow.

use atomic_protocol::json::{Raw, repair_surrogates};
use atomic_protocol::model::ModelFailure;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::diagnostic;
use crate::http::cut;
use crate::partial_json;
use crate::record::Record;
use crate::wire::{Count, Text};

/// Between the parts of what was thought.
pub(super) const GAP: &str = "\n\n";

pub(super) fn read_item(raw: &RawValue) -> Option<WireItem<'_>> {
    serde_json::from_str(raw.get()).ok()
}

/// An item as it will be kept: its own text, which must fit on one line of a file.
pub(super) fn one_line(text: &str) -> String {
    let text = repair_surrogates(text);
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(raw) if !raw.get().contains(['\n', '\r']) => raw.get().to_owned(),
        _ => partial_json::arguments(&text).as_str().to_owned(),
    }
}

impl Record for Wire<'static> {
    type Of<'a> = Wire<'a>;
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Wire<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Text<'a>,
    pub(super) output_index: Count,
    #[serde(borrow)]
    pub(super) item_id: Text<'a>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) arguments: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) response: Option<WireResponse<'a>>,
    #[serde(borrow)]
    pub(super) code: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl Wire<'_> {
    /// The text of an error inside an answer that began with status 200.
    pub(super) fn failure(&self) -> ModelFailure {
        let inner = self.error.and_then(|error| serde_json::from_str::<WireError<'_>>(error.get()).ok());
        let code = self.code.map(RawValue::get).or_else(|| inner.as_ref()?.code.map(RawValue::get));
        let status =
            code.and_then(|code| code.trim_matches('"').parse().ok()).filter(|c| (400..600).contains(c));
        let word = code.filter(|code| *code != "null").map(|code| code.trim_matches('"'));
        let message = self.message.as_deref().filter(|text| !text.is_empty());
        let message = message.or_else(|| inner.as_ref()?.message.as_deref().filter(|text| !text.is_empty()));
        let text = match (word, message) {
            (Some(word), Some(message)) => format!("Error Code {}: {}", cut(word), cut(message)),
            (None, Some(message)) => cut(message),
            (word, None) => match self.error {
                Some(error) => cut(error.get()),
                None => format!("Error Code {}", cut(word.unwrap_or("unknown"))),
            },
        };
        ModelFailure { status, ..ModelFailure::new(text) }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireItem<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) call_id: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) arguments: Text<'a>,
    #[serde(borrow)]
    pub(super) phase: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) summary: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) encrypted_content: Option<Text<'a>>,
}

impl WireItem<'_> {
    /// What a message says.
    pub(super) fn text(&self) -> String {
        parts(self.content, "")
    }

    /// What was thought: the summary, else the text itself.
    pub(super) fn thinking(&self) -> String {
        Some(parts(self.summary, GAP))
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| parts(self.content, GAP))
    }
}

fn parts(list: Option<&RawValue>, between: &str) -> String {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Part<'a> {
        #[serde(borrow)]
        text: Text<'a>,
        #[serde(borrow)]
        refusal: Text<'a>,
    }
    let list =
        list.and_then(|list| serde_json::from_str::<Vec<Part<'_>>>(list.get()).ok()).unwrap_or_default();
    let texts = list.iter().map(|part| if part.text.is_empty() { &*part.refusal } else { &*part.text });
    texts.collect::<Vec<_>>().join(between)
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireResponse<'a> {
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) model: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) status: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) incomplete_details: Option<WireReason<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<WireError<'a>>,
    #[serde(borrow)]
    pub(super) service_tier: Option<Text<'a>>,
    pub(super) end_turn: Option<bool>,
    pub(super) usage: Option<WireUsage>,
    #[serde(borrow)]
    pub(super) output: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input_transformations: Option<&'a RawValue>,
}

/// What the provider did to an item of the request.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireChange<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    action: Option<Text<'a>>,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
}

impl WireResponse<'_> {
    /// The reasoning item of that id, if it has its encrypted part here.
    pub(super) fn sealed(&self, id: &str) -> Option<String> {
        let list: Vec<&RawValue> = serde_json::from_str(self.output?.get()).ok()?;
        let found = list.into_iter().find(|raw| {
            read_item(raw).is_some_and(|item| *item.id == *id && item.encrypted_content.is_some())
        });
        found.map(|raw| one_line(raw.get()))
    }

    /// The reasoning that the provider left out of the request, if it did. What it leaves out of earlier turns because
    /// they are over is not worth a word: it does so each time.
    pub(super) fn removed(&self) -> Option<Raw> {
        let list: Vec<&RawValue> = serde_json::from_str(self.input_transformations?.get()).ok()?;
        let changes = list.iter().filter_map(|raw| serde_json::from_str::<WireChange<'_>>(raw.get()).ok());
        let is = |word: &Option<Text<'_>>, want: &str| word.as_deref() == Some(want);
        let removed: Vec<WireChange<'_>> = changes
            .filter(|change| is(&change.kind, "reasoning") && is(&change.action, "removed"))
            .filter(|change| !is(&change.reason, "turn_boundary"))
            .collect();
        (!removed.is_empty()).then(|| {
            diagnostic::transformations(removed.iter().map(|change| {
                [
                    ("type", &change.kind),
                    ("id", &change.id),
                    ("action", &change.action),
                    ("reason", &change.reason),
                ]
            }))
        })
    }

    pub(super) fn failure(&self, status: &str) -> String {
        let detail = self.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
        match (&self.error, detail) {
            (Some(error), _) => {
                let code = error.code.map_or("unknown", |code| code.get().trim_matches('"'));
                let said = error.message.as_deref().filter(|text| !text.is_empty());
                format!("{}: {}", cut(code), cut(said.unwrap_or("no message")))
            }
            (None, Some(detail)) => format!("incomplete: {}", cut(detail)),
            (None, None) => format!("The response {status} and the provider does not say why."),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireReason<'a> {
    #[serde(borrow)]
    pub(super) reason: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireError<'a> {
    #[serde(borrow)]
    pub(super) code: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireUsage {
    pub(super) input_tokens: Count,
    pub(super) output_tokens: Count,
    pub(super) input_tokens_details: Option<WireInput>,
    pub(super) output_tokens_details: Option<WireOutput>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireInput {
    pub(super) cached_tokens: Count,
    pub(super) cache_write_tokens: Count,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireOutput {
    pub(super) reasoning_tokens: Count,
}
