//! The one place that reads the clock.

use std::time::{SystemTime, UNIX_EPOCH};

use atomic_protocol::time::Millis;
use jiff::tz::TimeZone;

/// Now.
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Today where the user is, `YYYY-MM-DD`. `tz` is the session's variable `TZ`. Reads one small file.
pub fn local_date(tz: Option<&str>) -> String {
    let now = jiff::Timestamp::from_millisecond(now().0 as i64).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    now.to_zoned_datetime(zone(tz)).strftime("%Y-%m-%d").to_string()
}

/// The zone itself is read and not looked up by name: finding the name of the system's zone means walking through all
/// that there are.
#[cfg(unix)]
fn zone(tz: Option<&str>) -> TimeZone {
    let name = tz.map(|name| name.trim_start_matches(':')).filter(|name| !name.is_empty());
    let path = match name {
        None => "/etc/localtime".into(),
        // An absolute name is a file, any other stands for one in the usual place.
        Some(name) => std::path::Path::new("/usr/share/zoneinfo").join(name),
    };
    let read = || TimeZone::tzif(name.unwrap_or("Local"), &std::fs::read(path).ok()?).ok();
    read().or_else(|| TimeZone::posix(name?).ok()).unwrap_or(TimeZone::UTC)
}

#[cfg(not(unix))]
fn zone(_tz: Option<&str>) -> TimeZone {
    TimeZone::system()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_files_or_rules_and_nonsense_is_utc() {
        let far = jiff::Timestamp::UNIX_EPOCH;
        let hour = |tz: Option<&str>| far.to_zoned_datetime(zone(tz)).hour();
        assert_eq!(hour(Some("EST5")), 19);
        assert_eq!([hour(Some("no/such/zone")), hour(Some("UTC0"))], [0, 0]);
        assert_eq!(local_date(Some("UTC0")).len(), 10);
    }
}
