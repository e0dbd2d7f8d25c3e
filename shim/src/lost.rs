//! Answers that the shim gives when the daemon can give none any more, and what it has to know of a line for that.

use std::borrow::Cow;
use std::fmt;

use atomic_protocol::json::{self, NotAnObject, ObjectWriter};
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};

use crate::pending::Line;
use crate::run::fields;

/// Appends the answer for `line`; none for a line that never gets one.
pub(crate) fn answer(line: &Line, admitted: bool, out: &mut Vec<u8>) {
    let error = if admitted { "daemon lost; outcome unknown" } else { "daemon lost; not executed" };
    match line {
        Line::Whole(bytes) => {
            let text = json::text(bytes);
            match fields(&text) {
                // An answer to a dialog is never answered itself.
                Ok(fields) if fields.str("type").as_deref() == Some("extension_ui_response") => {}
                Ok(fields) => write(out, fields.get("id"), fields.get("type"), error),
                Err(NotAnObject::OtherValue) => write(out, None, Some("\"unknown\""), error),
                Err(NotAnObject::Syntax(_)) => write(out, None, Some("\"parse\""), error),
            }
        }
        Line::Long { id, head } => {
            let command = command_in(&json::text(head));
            if command.as_deref() == Some("extension_ui_response") {
                return;
            }
            let mut name = Vec::new();
            json::write_string(&mut name, command.as_deref().unwrap_or("unknown"));
            write(out, id.as_ref().map(|id| id.as_str()), std::str::from_utf8(&name).ok(), error);
        }
    }
}

/// Key order of the reference; the id is echoed as its bytes.
fn write(out: &mut Vec<u8>, id: Option<&str>, command: Option<&str>, error: &str) {
    let mut object = ObjectWriter::begin(out);
    if let Some(id) = id {
        object.raw("id", id.as_bytes());
    }
    object.str("type", "response");
    if let Some(command) = command {
        object.raw("command", command.as_bytes());
    }
    object.bool("success", false).str("error", error);
    object.end();
    out.push(b'\n');
}

/// The command that the beginning of a line names, if it names one before it breaks off.
fn command_in(head: &str) -> Option<String> {
    struct TypeField<'a>(&'a mut Option<String>);
    impl<'de> Visitor<'de> for TypeField<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                if key == "type" {
                    *self.0 = Some(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(())
        }
    }
    let mut found = None;
    // The error at the end of the head is expected; what was seen before it counts.
    let _ = serde_json::Deserializer::from_str(head).deserialize_map(TypeField(&mut found));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_to(line: &str) -> String {
        let mut out = Vec::new();
        answer(&Line::Whole(line.into()), true, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_line_gets_an_answer_of_its_shape() {
        let rest = ",\"success\":false,\"error\":\"daemon lost; outcome unknown\"}\n";
        for (line, want) in [
            (r#"{"id":null,"type":"prompt"}"#, r#"{"id":null,"type":"response","command":"prompt""#),
            (r#"{"id":{"a":[1]},"type":"x"}"#, r#"{"id":{"a":[1]},"type":"response","command":"x""#),
            (r#"{"type":5}"#, r#"{"type":"response","command":5"#),
            ("{}\r", r#"{"type":"response""#),
            ("null", r#"{"type":"response","command":"unknown""#),
            ("not json", r#"{"type":"response","command":"parse""#),
            ("", r#"{"type":"response","command":"parse""#),
        ] {
            assert_eq!(answer_to(line), format!("{want}{rest}"), "{line:?}");
        }
        assert_eq!(answer_to(r#"{"type":"extension_ui_response","id":"d"}"#), "");
    }

    #[test]
    fn a_head_names_its_command_if_it_comes_in_time() {
        assert_eq!(command_in(r#"{"id":"1","type":"prompt","message":"xx"#).as_deref(), Some("prompt"));
        assert_eq!(command_in(r#"{"a":{"type":"no"},"type":"ba\u0073h","x"#).as_deref(), Some("bash"));
        assert_eq!(command_in(r#"{"message":"xxxx"#), None);
        assert_eq!(command_in("[["), None);
    }
}
