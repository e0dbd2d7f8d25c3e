//! Records as tests look at them.

use std::ops::Deref;

use serde_json::{Map, Value};

/// One line of the daemon's output.
#[derive(Clone, Debug)]
pub struct Record {
    /// The line without its LF.
    pub raw: String,
    /// The same, parsed. Key order is the wire's.
    pub json: Value,
}

impl Record {
    /// The record's `type`, or nothing.
    pub fn kind(&self) -> &str {
        self.json["type"].as_str().unwrap_or_default()
    }

    /// It is a response.
    pub fn is_response(&self) -> bool {
        self.kind() == "response"
    }

    /// It is a response with `success:true`.
    pub fn succeeded(&self) -> bool {
        self.is_response() && self.json["success"] == true
    }

    /// Fails with the record when it is no success, else gives its `data`.
    ///
    /// # Panics
    /// When it is no success.
    #[track_caller]
    pub fn data(&self) -> &Value {
        assert!(self.succeeded(), "no success: {}", self.raw);
        &self.json["data"]
    }

    /// The `error` of a response.
    ///
    /// # Panics
    /// When the record is no failed response with a text.
    #[track_caller]
    pub fn error(&self) -> &str {
        assert!(self.is_response() && self.json["success"] == false, "no failure: {}", self.raw);
        self.json["error"].as_str().unwrap_or_else(|| panic!("no error text: {}", self.raw))
    }

    /// The role of the record's message, or nothing.
    pub fn role(&self) -> &str {
        self.json["message"]["role"].as_str().unwrap_or_default()
    }

    /// It is this event about a message of this role.
    pub fn is_message(&self, kind: &str, role: &str) -> bool {
        self.kind() == kind && self.role() == role
    }

    /// It is a `tool_execution_update` whose output so far holds this text (its arguments do not count).
    pub fn shows_output(&self, text: &str) -> bool {
        let blocks = self.json["partialResult"]["content"].as_array().into_iter().flatten();
        let mut texts = blocks.filter_map(|block| block["text"].as_str());
        self.kind() == "tool_execution_update" && texts.any(|output| output.contains(text))
    }

    /// The delta's type of a `message_update`, or nothing.
    pub fn delta_kind(&self) -> &str {
        self.json["assistantMessageEvent"]["type"].as_str().unwrap_or_default()
    }
}

impl Deref for Record {
    type Target = Value;
    fn deref(&self) -> &Value {
        &self.json
    }
}

/// What each record is, in one word: the event's type, with the role of a message, the type of a delta, or the command
/// and id of a response.
pub fn kinds(records: &[Record]) -> Vec<String> {
    records
        .iter()
        .map(|record| match record.kind() {
            kind @ ("message_start" | "message_end") => format!("{kind} {}", record.role()),
            "message_update" => record.delta_kind().to_owned(),
            kind @ ("tool_execution_start" | "tool_execution_update" | "tool_execution_end") => {
                format!("{kind} {}", record["toolCallId"].as_str().unwrap_or_default())
            }
            "response" => format!("response {}", record["command"].as_str().unwrap_or_default()),
            kind => kind.to_owned(),
        })
        .collect()
}

/// The keys of an object in the wire's order.
///
/// # Panics
/// When the value is no object.
#[track_caller]
pub fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect()
}

/// The record with that predicate, of which there must be exactly one.
///
/// # Panics
/// When there is none or more than one.
#[track_caller]
pub fn the_only<'a>(records: &'a [Record], what: &str, is_it: impl Fn(&Record) -> bool) -> &'a Record {
    let found: Vec<&Record> = records.iter().filter(|record| is_it(record)).collect();
    assert_eq!(found.len(), 1, "records that are {what}: {:#?}", kinds(records));
    found[0]
}

/// The record's text with what differs from run to run replaced: timestamps by `"T"`, a tool's `details` by `"D"`, and
/// the `responseId` of a message that still streams removed (a provider may name it sooner or later).
pub fn normalised(record: &Value) -> String {
    let mut value = record.clone();
    normalise(&mut value);
    value.to_string()
}

fn normalise(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("stopReason").is_some_and(|reason| reason == "pending") {
                map.shift_remove("responseId");
            }
            for (key, value) in map.iter_mut() {
                match key.as_str() {
                    "timestamp" if value.is_u64() => *value = Value::from("T"),
                    "details" if value.is_object() => *value = Value::from("D"),
                    _ => normalise(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        _ => {}
    }
}

/// A written transcript as [`normalised`] lines: one record a line, `$NAME` replaced by the text of that name.
///
/// # Panics
/// When a line is no JSON after that.
pub fn golden(text: &str, names: &[(&str, &str)]) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let mut line = line.to_owned();
            // In the order given, so that a text may hold names that come later.
            for (name, value) in names {
                line = line.replace(name, value);
            }
            let value: Map<String, Value> =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            Value::Object(value).to_string()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_varies_is_replaced_and_order_is_kept() {
        let record = json!({"z": 1.0, "a": {"timestamp": 5, "stopReason": "pending", "responseId": "r"}, "details": {"x": 1}});
        let text = r#"{"z":1.0,"a":{"timestamp":"T","stopReason":"pending"},"details":"D"}"#;
        assert_eq!(normalised(&record), text);
        assert_eq!(
            golden(
                "\n  {\"z\":1.0,\"a\":$A,$D}\n",
                &[
                    ("$A", r#"{"timestamp":$T,"stopReason":"pending"}"#),
                    ("$D", r#""details":"D""#),
                    ("$T", r#""T""#)
                ]
            ),
            [text]
        );
        assert_ne!(golden(r#"{"a":1,"b":2}"#, &[]), golden(r#"{"b":2,"a":1}"#, &[]));
    }

    #[test]
    fn an_iso_time_is_no_message_time() {
        assert_eq!(normalised(&json!({"timestamp": "2026-01-01"})), r#"{"timestamp":"2026-01-01"}"#);
    }
}
