//! Points in time as the wire and the files spell them. Nothing here reads a clock.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z, as `message.timestamp` carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// The ISO 8601 form that entries and headers carry: UTC, three decimals, `Z`.
    pub fn iso(self) -> String {
        match jiff::Timestamp::from_millisecond(self.0 as i64) {
            Ok(time) => format!("{time:.3}"),
            Err(_) => Millis(0).iso(),
        }
    }

    /// Reads an ISO 8601 time.
    pub fn from_iso(text: &str) -> Option<Millis> {
        let time: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(time.as_millisecond()).ok().map(Millis)
    }

    /// This time and `millis` more.
    pub fn plus(self, millis: u64) -> Millis {
        Millis(self.0.saturating_add(millis))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iso())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_has_three_decimals_and_round_trips() {
        let time = Millis(1_733_234_567_890);
        assert_eq!(time.iso(), "2024-12-03T14:02:47.890Z");
        assert_eq!(Millis::from_iso(&time.iso()), Some(time));
        assert_eq!(Millis(0).iso(), "1970-01-01T00:00:00.000Z");
    }
}
