//! Ids of sessions and entries.

use atomic_protocol::entry::EntryId;

use crate::Error;

/// How often a short entry id is drawn again before a full one is taken.
const SHORT_ID_DRAWS: usize = 100;

/// A fresh session id: a UUID version 7, so that ids sort by time.
pub fn new_session_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// A fresh entry id: eight hex digits of a random UUID; the whole UUID if short ones keep being `taken`.
pub fn new_entry_id(taken: impl Fn(&str) -> bool) -> EntryId {
    for _ in 0..SHORT_ID_DRAWS {
        let full = uuid::Uuid::new_v4().simple().to_string();
        let short = &full[..8];
        if !taken(short) {
            return EntryId::from(short);
        }
    }
    EntryId::from(uuid::Uuid::new_v4().to_string().as_str())
}

/// Whether `id` may name a session: letters, digits, `.`, `_`, `-`, with a letter or digit at both ends. A user may give
/// an id, and it becomes part of a file name.
///
/// # Errors
/// [`Error::SessionId`] when it may not.
pub fn check_session_id(id: &str) -> Result<(), Error> {
    let bytes = id.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inner) {
        Ok(())
    } else {
        Err(Error::SessionId { id: id.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids() {
        for good in ["a", "0", "a-b_c.d", new_session_id().as_str()] {
            assert!(check_session_id(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", ".", "..", "a/b", "a b", "ä", "a\n", "../x"] {
            assert!(check_session_id(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn taken_short_ids_are_drawn_again_and_at_last_a_long_one_is_taken() {
        assert_eq!(new_entry_id(|_| false).as_str().len(), 8);
        assert_eq!(new_entry_id(|id| id.len() == 8).as_str().len(), 36);
    }
}
