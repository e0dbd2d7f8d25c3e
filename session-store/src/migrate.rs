//! Old files → version 3.
//!
//! Version 1 has no ids: the entries are a list, and a compaction names what it kept by its index in the list (the header
//! counts). Version 2 calls the role of extensions' messages `hookMessage`.

use std::borrow::Cow;

use atomic_protocol::Raw;
use atomic_protocol::entry::{EntryId, VERSION};
use atomic_protocol::json::Fields;
use bytes::Bytes;

use crate::ids::new_entry_id;
use crate::load;
use crate::splice::{quoted, with_fields};

/// The file's version and its content in version 3. `None` when it is no session, or is of version 3 or newer. Lines that are no records
/// keep their place and bytes.
pub(crate) fn migrate(bytes: &Bytes) -> Option<(u32, Bytes)> {
    let (header_line, header) = load::header(bytes)?;
    if header.version >= VERSION {
        return None;
    }
    let ids = (header.version < 2).then(|| draw_ids(bytes));
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 8);
    let mut previous: Option<EntryId> = None;
    let mut at = 0;
    for (number, range) in load::lines(bytes) {
        let Some(line) = load::record(bytes, range.clone()) else { continue };
        let Ok(fields) = Fields::parse(line.as_str()) else {
            out.extend_from_slice(&bytes[range]);
            out.push(b'\n');
            continue;
        };
        let mut changes: Vec<(&str, Option<Cow<'_, [u8]>>)> = Vec::new();
        if number == header_line {
            changes.push(("version", Some(VERSION.to_string().into_bytes().into())));
        } else {
            if let Some(ids) = &ids {
                changes.push(("id", Some(quoted(ids[at].as_str()))));
                let parent = previous.replace(ids[at].clone());
                changes.push((
                    "parentId",
                    Some(parent.map_or(Cow::Borrowed(b"null".as_slice()), |parent| quoted(parent.as_str()))),
                ));
                if let Some(kept) = first_kept(&fields) {
                    changes.push(("firstKeptEntryIndex", None));
                    // Index 0 is the header, which no id names.
                    if let Some(id) = (kept > 0).then(|| ids.get(kept)).flatten() {
                        changes.push(("firstKeptEntryId", Some(quoted(id.as_str()))));
                    }
                }
            }
            if let Some(message) = renamed_role(&fields) {
                changes.push(("message", Some(message.bytes().to_vec().into())));
            }
        }
        at += 1;
        if changes.is_empty() {
            out.extend_from_slice(line.bytes());
        } else {
            out.extend_from_slice(with_fields(&fields, &changes).bytes());
        }
        out.push(b'\n');
    }
    Some((header.version, out.into()))
}

/// An id for each record; the first, the header's, is never used.
fn draw_ids(bytes: &Bytes) -> Vec<EntryId> {
    let mut taken = std::collections::HashSet::new();
    load::lines(bytes)
        .filter_map(|(_, range)| load::record(bytes, range))
        .filter(|line| Fields::parse(line.as_str()).is_ok())
        .map(|_| {
            let id = new_entry_id(|id| taken.contains(id));
            taken.insert(id.as_str().to_owned());
            id
        })
        .collect()
}

fn first_kept(fields: &Fields<'_>) -> Option<usize> {
    if fields.str("type").as_deref() != Some("compaction") {
        return None;
    }
    fields.get("firstKeptEntryIndex")?.parse().ok()
}

/// The entry's message with the role of version 3, if it has that of version 2.
fn renamed_role(fields: &Fields<'_>) -> Option<Raw> {
    if fields.str("type").as_deref() != Some("message") {
        return None;
    }
    let message = Fields::parse(fields.get("message")?).ok()?;
    (message.str("role").as_deref() == Some("hookMessage"))
        .then(|| with_fields(&message, &[("role", Some(quoted("custom")))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(content: &Bytes) -> Vec<String> {
        String::from_utf8(content.to_vec()).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn version_1_becomes_a_chain() {
        let old = concat!(
            r#"{"type":"session","id":"s","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/w","extra":1.0}"#,
            "\n",
            r#"{"type":"message","timestamp":"t1","message":{"role":"user","content":"a"}}"#,
            "\nnot json\n\n",
            r#"{"type":"message","timestamp":"t2","message":{"role":"hookMessage","content":"b"}}"#,
            "\n",
            r#"{"type":"compaction","summary":"x","firstKeptEntryIndex":2,"tokensBefore":5}"#,
        );
        let new = lines_of(&migrate(&Bytes::from_static(old.as_bytes())).unwrap().1);
        assert_eq!(
            new[0],
            r#"{"type":"session","id":"s","timestamp":"2024-12-03T14:00:00.000Z","cwd":"/w","extra":1.0,"version":3}"#
        );
        assert_eq!(new[2], "not json");
        let field = |line: &str, key: &str| Fields::parse(line).unwrap().get(key).map(str::to_owned);
        assert_eq!(field(&new[1], "parentId").as_deref(), Some("null"));
        assert_eq!(field(&new[3], "parentId"), field(&new[1], "id"));
        assert_eq!(field(&new[4], "parentId"), field(&new[3], "id"));
        // Records: header 0, first message 1, second message 2.
        assert_eq!(field(&new[4], "firstKeptEntryId"), field(&new[3], "id"));
        assert_eq!(field(&new[4], "firstKeptEntryIndex"), None);
        assert_eq!(field(&new[3], "message").as_deref(), Some(r#"{"role":"custom","content":"b"}"#));
    }

    #[test]
    fn version_2_keeps_ids_and_untouched_lines() {
        let old = concat!(
            r#"{"type":"session","version":2,"id":"s"}"#,
            "\n",
            r#"{"type":"message", "id":"a","parentId":null,"message":{"role":"user","content":"a"}}"#,
            "\n",
            r#"{"type":"message","id":"b","parentId":"a","message":{"role":"hookMessage","x":1.50}}"#,
            "\n",
        );
        let new = lines_of(&migrate(&Bytes::from_static(old.as_bytes())).unwrap().1);
        assert_eq!(new[0], r#"{"type":"session","version":3,"id":"s"}"#);
        assert_eq!(new[1], old.lines().nth(1).unwrap());
        assert_eq!(
            new[2],
            r#"{"type":"message","id":"b","parentId":"a","message":{"role":"custom","x":1.50}}"#
        );
    }

    #[test]
    fn current_newer_and_foreign_files_are_left_alone() {
        for content in
            [r#"{"type":"session","version":3,"id":"s"}"#, r#"{"type":"session","version":9,"id":"s"}"#, "{}"]
        {
            assert!(migrate(&Bytes::from_static(content.as_bytes())).is_none(), "{content}");
        }
    }
}
