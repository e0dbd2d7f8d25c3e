//! Answers to command lines: the only place that spells their shape.
//!
//! Key order (seed 001 "Response", reference 1.1): `id, type, command, success[, data]` or `… success, error`. The id is
//! the raw text the client sent; an absent id is an absent key.

use crate::json::{ObjectWriter, Raw};

/// A record that answers one line, complete with its LF.
pub fn success(id: Option<&Raw>, command: &str, data: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + data.map_or(0, <[u8]>::len));
    let mut object = begin(&mut out, id);
    object.str("command", command).bool("success", true);
    if let Some(data) = data {
        object.raw("data", data);
    }
    object.end();
    out.push(b'\n');
    out
}

/// What stands before and after the data of a record that answers one line with success, LF included.
pub fn around(id: Option<&Raw>, command: &str) -> (Vec<u8>, &'static [u8]) {
    let mut before = Vec::with_capacity(96);
    let mut object = begin(&mut before, id);
    object.str("command", command).bool("success", true).key("data");
    (before, b"}\n")
}

/// A record that refuses one line, complete with its LF.
pub fn failure(id: Option<&Raw>, command: &str, error: &str) -> Vec<u8> {
    let mut text = Vec::new();
    crate::json::write_string(&mut text, command);
    failure_of(id, Some(&text), error)
}

/// As [`failure`], for a `type` that is no string or is missing: `command` is its JSON text.
pub(crate) fn failure_of(id: Option<&Raw>, command: Option<&[u8]>, error: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let mut object = begin(&mut out, id);
    if let Some(command) = command {
        object.raw("command", command);
    }
    object.bool("success", false).str("error", error);
    object.end();
    out.push(b'\n');
    out
}

fn begin<'a>(out: &'a mut Vec<u8>, id: Option<&Raw>) -> ObjectWriter<'a> {
    let mut object = ObjectWriter::begin(out);
    if let Some(id) = id {
        object.raw("id", id.bytes());
    }
    object.str("type", "response");
    object
}
