//! `reasoning_details`: thinking as a list of records, which OpenRouter and others want back as they sent it (OpenRouter,
//! "Reasoning tokens", preserving reasoning). It arrives in pieces: texts and summaries in a row are one record.

use atomic_protocol::json::{Fields, ObjectWriter, repair_surrogates, write_string};
use serde_json::value::RawValue;

/// The records so far.
#[derive(Debug, Default)]
pub(super) struct Details(Vec<Detail>);

#[derive(Debug)]
struct Detail {
    kind: String,
    /// The text that grows, of the kinds that have one.
    text: String,
    /// The other fields, each with the text of its value, in the order they came.
    fields: Vec<(String, String)>,
}

/// The field that grows.
fn growing(kind: &str) -> Option<&'static str> {
    match kind {
        "reasoning.text" => Some("text"),
        "reasoning.summary" => Some("summary"),
        _ => None,
    }
}

impl Detail {
    fn read(record: &str) -> Option<Detail> {
        let fields = Fields::parse(record).ok()?;
        let kind = fields.str("type")?.into_owned();
        let grows = growing(&kind);
        let text = grows.and_then(|name| fields.str(name)).unwrap_or_default().into_owned();
        let others = fields.iter().filter(|(name, _)| *name != "type" && Some(*name) != grows);
        let fields = others.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Some(Detail { kind, text, fields })
    }

    fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().rev().find(|(known, value)| known == name && value != "null");
        field.map(|(_, value)| value.as_str())
    }

    /// Whether `next` goes on where this record stopped.
    fn goes_on(&self, next: &Detail) -> bool {
        let same = |name: &str| match (self.get(name), next.get(name)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        self.kind == next.kind && growing(&self.kind).is_some() && same("id") && same("index")
    }

    fn grow(&mut self, next: Detail) {
        self.text.push_str(&next.text);
        for (name, value) in next.fields {
            if self.get(&name).is_none() {
                self.fields.retain(|(known, _)| *known != name);
                self.fields.push((name, value));
            }
        }
    }
}

impl Details {
    /// Adds the records of one delta and returns the thinking a person may read in them.
    pub(super) fn add(&mut self, list: &RawValue) -> String {
        let records: Vec<&RawValue> = serde_json::from_str(list.get()).unwrap_or_default();
        let mut shown = String::new();
        for detail in records.iter().filter_map(|record| Detail::read(record.get())) {
            shown.push_str(&detail.text);
            match self.0.last_mut() {
                Some(last) if last.goes_on(&detail) => last.grow(detail),
                _ => self.0.push(detail),
            }
        }
        shown
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The list as it goes back.
    pub(super) fn to_signature(&self) -> String {
        let mut out = vec![b'['];
        for (index, detail) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let mut object = ObjectWriter::begin(&mut out);
            object.str("type", &detail.kind);
            if let Some(name) = growing(&detail.kind) {
                write_string(object.key(name), &detail.text);
            }
            for (name, value) in &detail.fields {
                // Names are written as they stand; none that is known needs escapes.
                if !name.contains(|c: char| c.is_control() || matches!(c, '"' | '\\')) {
                    object.raw(name, repair_surrogates(value).as_bytes());
                }
            }
            object.end();
        }
        out.push(b']');
        String::from_utf8(out).expect("it was written from strings")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_records() {
        let mut details = Details::default();
        assert!(details.is_empty());
        let mut shown = String::new();
        for list in [
            r#"[{"type":"reasoning.text","text":"Let ","format":"f","index":0,"signature":null}]"#,
            r#"[{"type":"reasoning.text","text":"me","index":0,"id":null}]"#,
            r#"[{"type":"reasoning.text","signature":"s\/ig","index":0}]"#,
            r#"[{"type":"reasoning.text","text":"two","index":1}, {"type":"reasoning.summary","summary":"S"}, 7, {"no":"type"}]"#,
            r#"[{"type":"reasoning.encrypted","data":"A","id":"c1"},{"type":"reasoning.encrypted","data":"B","id":"c2"}]"#,
            r#"{"not":"a list"}"#,
        ] {
            shown.push_str(&details.add(serde_json::from_str(list).unwrap()));
        }
        assert_eq!(shown, "Let metwoS");
        assert_eq!(
            details.to_signature(),
            concat!(
                r#"[{"type":"reasoning.text","text":"Let me","format":"f","index":0,"id":null,"signature":"s\/ig"},"#,
                r#"{"type":"reasoning.text","text":"two","index":1},{"type":"reasoning.summary","summary":"S"},"#,
                r#"{"type":"reasoning.encrypted","data":"A","id":"c1"},{"type":"reasoning.encrypted","data":"B","id":"c2"}]"#
            )
        );
    }
}
