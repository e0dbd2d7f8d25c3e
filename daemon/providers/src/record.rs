//! A provider's record: reading one that may be broken, and what its error and its stop reason become.

use atomic_protocol::json;
use atomic_protocol::message::StopReason;
use atomic_protocol::model::{ModelEvent, ModelFailure};
use serde::Deserialize;

use crate::http::cut;
use crate::partial_json;

/// A record that borrows from its text.
pub(crate) trait Record {
    /// The record for a text that lives for `'a`.
    type Of<'a>: Deserialize<'a>;
}

/// Reads a record, mends it if need be, and hands it on.
///
/// # Errors
/// A failure that shows the text, when it cannot be mended.
pub(crate) fn read<R: Record, T>(
    text: &str,
    then: impl for<'a> FnOnce(R::Of<'a>) -> T,
) -> Result<T, ModelFailure> {
    let error = match serde_json::from_str::<R::Of<'_>>(text) {
        Ok(record) => return Ok(then(record)),
        Err(error) => error,
    };
    if let Some(mended) = partial_json::record(text)
        && let Ok(record) = serde_json::from_str::<R::Of<'_>>(&mended)
    {
        return Ok(then(record));
    }
    let text = cut(text);
    Err(ModelFailure::new(format!("The provider sent an event that cannot be read ({error}): {text}")))
}

/// An error inside an answer that began with status 200: as it stands, the first code that is a status in front.
pub(crate) fn failure(error: &str, codes: impl IntoIterator<Item = Option<u64>>) -> ModelFailure {
    let status = codes.into_iter().flatten().find(|code| (400..600).contains(code));
    let status = status.and_then(|code| u16::try_from(code).ok());
    let text = json::string(error);
    let text = cut(text.as_deref().unwrap_or(error));
    let message = status.map_or_else(|| text.clone(), |status| format!("{status} {text}"));
    ModelFailure { status, ..ModelFailure::new(message) }
}

/// An answer that ends with a word which is not an end: the failure names it.
pub(crate) fn stopped_with(word: String, text: String) -> ModelFailure {
    ModelFailure { raw_reason: Some(word), ..ModelFailure::new(text) }
}

/// The end of an answer. The provider's word is kept when it is not the usual one for `reason`.
pub(crate) fn done(reason: StopReason, usual: bool, word: String) -> ModelEvent {
    ModelEvent::Done { reason, raw_reason: (!usual).then_some(word), end_turn: None }
}
