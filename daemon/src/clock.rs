//! The one place that reads the clock.

use std::time::{SystemTime, UNIX_EPOCH};

use atomic_protocol::time::Millis;

/// Now.
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Today where the user is, `YYYY-MM-DD`.
pub fn local_date() -> String {
    jiff::ZonedDateTime::now().strftime("%Y-%m-%d").to_string()
}
