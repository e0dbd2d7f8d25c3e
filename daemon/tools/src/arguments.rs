//! Checks a call's arguments against its schema: the subset of JSON Schema that tools use (`type`, `properties`,
//! `required`, `additionalProperties: false`, `items`, `enum`). Keywords outside the subset are not enforced.
//!
//! Two habits of models are forgiven, as the reference's validator forgives them: a number or boolean written as a string
//! is converted, and `null` for an optional field means the field is absent.

use atomic_protocol::Raw;
use serde_json::{Map, Value};

use crate::error::ToolError;

/// Reads `arguments` as the object that `schema` describes.
///
/// # Errors
/// [`ToolError::Arguments`], whose text names the field.
pub fn validate(tool: &str, schema: &Raw, arguments: &Raw) -> Result<Map<String, Value>, ToolError> {
    let failed = |problem: String| ToolError::Arguments { tool: tool.to_owned(), problem };
    let schema: Value = schema.read().map_err(|error| failed(format!("its schema is not JSON ({error})")))?;
    let value: Value = arguments.read().map_err(|error| failed(format!("not JSON ({error})")))?;
    validate_value(&schema, value).map_err(failed)
}

/// [`validate`] on values that were read already.
pub(crate) fn validate_value(schema: &Value, mut value: Value) -> Result<Map<String, Value>, String> {
    check(schema, &mut value, "")?;
    match value {
        Value::Object(map) => Ok(map),
        _ => Err("arguments must be an object".to_owned()),
    }
}

fn check(schema: &Value, value: &mut Value, path: &str) -> Result<(), String> {
    if let Some(wanted) = schema.get("type") {
        let kinds: Vec<&str> = match wanted {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !kinds.is_empty() && !kinds.iter().any(|kind| is(kind, value)) {
            match kinds.iter().find_map(|kind| converted(kind, value)) {
                Some(better) => *value = better,
                None => {
                    return Err(format!(
                        "{} must be {}",
                        name(path),
                        kinds.iter().map(|k| article(k)).collect::<Vec<_>>().join(" or ")
                    ));
                }
            }
        }
    }
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        return Err(format!("{} must be one of {}", name(path), allowed.join(", ")));
    }
    match value {
        Value::Object(map) => check_object(schema, map, path),
        Value::Array(items) => match schema.get("items") {
            Some(schema) => items
                .iter_mut()
                .enumerate()
                .try_for_each(|(at, item)| check(schema, item, &format!("{path}[{at}]"))),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_object(schema: &Value, map: &mut Map<String, Value>, path: &str) -> Result<(), String> {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required: Vec<&str> = match schema.get("required") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    map.retain(|key, value| {
        let optional = properties.contains_key(key) && !required.contains(&key.as_str());
        !(optional && value.is_null() && !accepts_null(&properties[key]))
    });
    if let Some(missing) = required.iter().find(|name| !map.contains_key(**name)) {
        return Err(format!("{} is required", join(path, missing)));
    }
    for (key, value) in map.iter_mut() {
        match properties.get(key) {
            Some(schema) => check(schema, value, &join(path, key))?,
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                return Err(format!("{} is not a known field", join(path, key)));
            }
            None => {}
        }
    }
    Ok(())
}

fn accepts_null(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "null",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "null"),
        _ => true,
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

fn converted(kind: &str, value: &Value) -> Option<Value> {
    let text = value.as_str()?.trim();
    let parsed: Value = serde_json::from_str(text).ok()?;
    (matches!(kind, "number" | "integer" | "boolean") && is(kind, &parsed)).then_some(parsed)
}

fn article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" | "object" | "integer" => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

fn name(path: &str) -> &str {
    if path.is_empty() { "arguments" } else { path }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specs::builtin_specs;

    fn try_call(tool: &str, arguments: &str) -> Result<String, String> {
        let spec = builtin_specs().into_iter().find(|spec| spec.name == tool).unwrap();
        validate(tool, &spec.parameters, &Raw::parse(arguments).unwrap())
            .map(|map| Value::Object(map).to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn wrong_arguments_name_the_field() {
        for (tool, arguments, problem) in [
            ("read", "{}", "path is required"),
            ("read", r#"{"path":5}"#, "path must be a string"),
            ("read", r#"{"path":null}"#, "path must be a string"),
            ("read", r#"{"path":"a","offset":"x"}"#, "offset must be a number"),
            ("read", r#"{"path":"a","nope":1}"#, "nope is not a known field"),
            ("read", "[]", "arguments must be an object"),
            ("edit", r#"{"path":"a","edits":"x"}"#, "edits must be an array"),
            ("edit", r#"{"path":"a","edits":[{"oldText":"x"}]}"#, "edits[0].newText is required"),
            (
                "edit",
                r#"{"path":"a","edits":[{"oldText":"x","newText":1}]}"#,
                "edits[0].newText must be a string",
            ),
            ("grep", r#"{"pattern":"a","literal":"maybe"}"#, "literal must be a boolean"),
        ] {
            let expected = format!("Invalid arguments for tool \"{tool}\": {problem}");
            assert_eq!(try_call(tool, arguments), Err(expected), "{arguments}");
        }
    }

    #[test]
    fn habits_of_models_are_forgiven() {
        assert_eq!(
            try_call("read", r#"{"path":"a","offset":"10","limit":null}"#).unwrap(),
            r#"{"path":"a","offset":10}"#
        );
        assert_eq!(
            try_call("grep", r#"{"pattern":"a","literal":"true"}"#).unwrap(),
            r#"{"pattern":"a","literal":true}"#
        );
        assert_eq!(try_call("ls", r#"{"anything":1}"#).unwrap(), r#"{"anything":1}"#);
    }

    #[test]
    fn whole_floats_are_integers_and_enums_are_checked() {
        let schema: Value = serde_json::json!({"type":"object","properties":{
            "n":{"type":"integer"},"e":{"enum":["a","b"]},"u":{"type":["string","null"]}}});
        let run = |value: Value| validate_value(&schema, value);
        assert!(run(serde_json::json!({"n":2.0,"e":"a","u":null})).is_ok());
        assert_eq!(run(serde_json::json!({"n":2.5})), Err("n must be an integer".into()));
        assert_eq!(run(serde_json::json!({"e":"c"})), Err(r#"e must be one of "a", "b""#.into()));
        assert_eq!(run(serde_json::json!({"u":1})), Err("u must be a string or null".into()));
    }
}
