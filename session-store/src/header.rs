//! The first line of a session file, as read.

use atomic_protocol::Raw;
use atomic_protocol::entry::{Header, VERSION};
use atomic_protocol::json::Fields;
use atomic_protocol::time::Millis;

/// A header and the line it stands in, which may say more than [`Header`] does.
#[derive(Clone, Debug)]
pub struct StoredHeader {
    /// The fields that matter to everybody.
    pub header: Header,
    /// The whole line.
    pub line: Raw,
    /// The file's version; 1 when the header has none.
    pub version: u32,
    /// A stage of a workflow made this session: listings and `--continue` skip it.
    pub internal: bool,
}

impl StoredHeader {
    /// A header for a file that is yet to be written.
    pub(crate) fn new(header: Header) -> StoredHeader {
        let line = Raw::from_trusted(header.to_line().into());
        StoredHeader { header, line, version: VERSION, internal: false }
    }

    /// Reads a header line. `None` when it is another record: a header has the type `session` and a string id.
    pub(crate) fn read(line: &Raw) -> Option<StoredHeader> {
        let fields = Fields::parse(line.as_str()).ok()?;
        if fields.str("type").as_deref() != Some("session") {
            return None;
        }
        let text = |key| fields.str(key).map(|text| text.into_owned());
        let header = Header {
            id: text("id")?,
            timestamp: fields.str("timestamp").and_then(|time| Millis::from_iso(&time)).unwrap_or_default(),
            cwd: text("cwd").unwrap_or_default(),
            parent_session: text("parentSession"),
        };
        let version = match fields.get("version") {
            None | Some("null") => 1,
            // What is no number is certainly nothing that an old program wrote: leave the file alone.
            Some(version) => version.parse::<f64>().map_or(VERSION, |version| version as u32),
        };
        let internal =
            fields.get("internal") == Some("true") && fields.get("workflow").is_some_and(is_workflow);
        Some(StoredHeader { header, line: line.clone(), version, internal })
    }
}

/// The marker counts only when it names run, stage id and stage name.
fn is_workflow(text: &str) -> bool {
    Fields::parse(text).is_ok_and(|fields| {
        ["runId", "stageId", "stageName"]
            .iter()
            .all(|key| fields.str(key).is_some_and(|value| !value.trim().is_empty()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<StoredHeader> {
        StoredHeader::read(&Raw::parse(text).unwrap())
    }

    #[test]
    fn what_a_header_is() {
        for other in
            [r#"{"type":"session"}"#, r#"{"type":"session","id":5}"#, r#"{"type":"message","id":"a"}"#, "5"]
        {
            assert!(read(other).is_none(), "{other}");
        }
        let header = read(r#"{"type":"session","id":"a"}"#).unwrap();
        assert_eq!((header.version, header.header.cwd.as_str(), header.internal), (1, "", false));
        assert_eq!(read(r#"{"type":"session","version":4,"id":"a"}"#).unwrap().version, 4);
    }

    #[test]
    fn internal_needs_the_whole_marker() {
        let internal = |workflow: &str| {
            let text =
                format!(r#"{{"type":"session","version":3,"id":"a","internal":true,"workflow":{workflow}}}"#);
            read(&text).unwrap().internal
        };
        assert!(internal(r#"{"runId":"r","stageId":"s","stageName":"n"}"#));
        assert!(!internal(r#"{"runId":"r","stageId":"s","stageName":""}"#));
        assert!(!internal("null"));
    }
}
