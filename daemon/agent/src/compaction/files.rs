//! Which files a part of a conversation was about, as its tool calls say (reference compaction 12).

use std::collections::BTreeSet;

use atomic_protocol::json::{Fields, ObjectWriter, Raw, from_str};
use atomic_protocol::message::Message;

/// Files that were read, and files that were changed. One that was changed is not listed as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    read: BTreeSet<String>,
    modified: BTreeSet<String>,
}

impl Files {
    /// Takes the calls of an answer: `read`, `write` and `edit` with their `path`.
    pub(super) fn take_calls(&mut self, message: &Message) {
        let Message::Assistant(answer) = message else { return };
        for call in answer.tool_calls() {
            let into = match call.name.as_str() {
                "read" => &mut self.read,
                "write" | "edit" => &mut self.modified,
                _ => continue,
            };
            let path = Fields::parse(call.arguments.as_str()).ok().and_then(|arguments| {
                let path = arguments.str("path")?;
                (!path.is_empty()).then(|| path.into_owned())
            });
            into.extend(path);
        }
    }

    /// Takes the lists of an entry that stands for others, if it has any. One that an extension made is not looked at.
    pub(super) fn take_entry(&mut self, line: &Raw) {
        let Ok(fields) = Fields::parse(line.as_str()) else { return };
        let details = fields.get("details").and_then(|details| Fields::parse(details).ok());
        let Some(details) = details.filter(|_| fields.get("fromHook") != Some("true")) else { return };
        let list = |key| details.get(key).and_then(|list| from_str::<Vec<String>>(list).ok());
        self.read.extend(list("readFiles").into_iter().flatten());
        self.modified.extend(list("modifiedFiles").into_iter().flatten());
    }

    fn read_only(&self) -> Vec<&String> {
        self.read.difference(&self.modified).collect()
    }

    /// `readFiles` and `modifiedFiles`.
    pub(super) fn write(&self, object: &mut ObjectWriter<'_>) {
        object.value("readFiles", &self.read_only()).value("modifiedFiles", &self.modified);
    }

    /// The lists as the end of a summary; empty when there are none.
    pub(super) fn text(&self) -> String {
        let list = |tag: &str, paths: Vec<&String>| {
            let lines: String = paths.iter().map(|path| format!("{path}\n")).collect();
            if paths.is_empty() { String::new() } else { format!("\n\n<{tag}>\n{lines}</{tag}>") }
        };
        list("read-files", self.read_only()) + &list("modified-files", self.modified.iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_lists_add_up_and_changed_wins() {
        let mut files = Files::default();
        let answer = r#"{"role":"assistant","content":[
            {"type":"toolCall","id":"1","name":"read","arguments":{"path":"b"}},
            {"type":"toolCall","id":"2","name":"read","arguments":{"path":"a"}},
            {"type":"toolCall","id":"3","name":"edit","arguments":{"path":"b"}},
            {"type":"toolCall","id":"4","name":"write","arguments":{"path":7}},
            {"type":"toolCall","id":"5","name":"bash","arguments":{"path":"x"}}],"stopReason":"toolUse"}"#;
        files.take_calls(&Message::parse(&Raw::parse(answer).unwrap()).unwrap());
        files.take_calls(
            &Message::parse(&Raw::parse(r#"{"role":"user","content":"read c"}"#).unwrap()).unwrap(),
        );
        for line in [
            r#"{"type":"branch_summary","details":{"readFiles":["c"],"modifiedFiles":["d"]}}"#,
            r#"{"type":"branch_summary","fromHook":true,"details":{"readFiles":["e"]}}"#,
            r#"{"type":"compaction","details":{"strategy":"verbatim-lines","readFiles":"no list"}}"#,
            r#"{"type":"compaction"}"#,
        ] {
            files.take_entry(&Raw::parse(line).unwrap());
        }
        let mut out = Vec::new();
        let mut object = ObjectWriter::begin(&mut out);
        files.write(&mut object);
        object.end();
        assert_eq!(out, br#"{"readFiles":["a","c"],"modifiedFiles":["b","d"]}"#);
        assert_eq!(
            files.text(),
            "\n\n<read-files>\na\nc\n</read-files>\n\n<modified-files>\nb\nd\n</modified-files>"
        );
        assert_eq!(Files::default().text(), "");
    }
}
