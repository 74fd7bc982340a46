//! The part of JSON Schema that `docs/record-schema.json` uses: type, enum, const, required, properties,
//! additionalProperties, items, oneOf and local references.

use serde_json::Value;

/// Checks a value; the error names the place and the problem.
pub(crate) fn validate(schema: &Value, root: &Value, value: &Value, place: &str) -> Result<(), String> {
    let wrong = |problem: String| Err(format!("{place}: {problem}"));
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target =
            root.pointer(reference.trim_start_matches('#')).ok_or(format!("{reference} does not exist"))?;
        return validate(target, root, value, place);
    }
    if let Some(kind) = schema.get("type").and_then(Value::as_str) {
        let is = match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "number" => value.is_number(),
            "integer" => value.is_u64() || value.is_i64(),
            other => return wrong(format!("the schema has the unknown type {other}")),
        };
        if !is {
            return wrong(format!("{value} is no {kind}"));
        }
    }
    if schema.get("const").is_some_and(|wanted| wanted != value) {
        return wrong(format!("{value} is not {}", schema["const"]));
    }
    if schema.get("enum").and_then(Value::as_array).is_some_and(|all| !all.contains(value)) {
        return wrong(format!("{value} is none of {}", schema["enum"]));
    }
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if name.as_str().is_none_or(|name| value.get(name).is_none()) {
            return wrong(format!("{name} is missing"));
        }
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        let own = schema.get("properties").and_then(|all| all.get(name));
        if let Some(inner) = own.or(schema.get("additionalProperties")) {
            validate(inner, root, member, &format!("{place}/{name}"))?;
        }
    }
    if let Some(items) = schema.get("items") {
        for (i, member) in value.as_array().into_iter().flatten().enumerate() {
            validate(items, root, member, &format!("{place}/{i}"))?;
        }
    }
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let problems: Vec<String> =
            choices.iter().filter_map(|c| validate(c, root, value, place).err()).collect();
        if choices.len() - problems.len() != 1 {
            return wrong(format!("it is not exactly one of the choices: {}", problems.join("; ")));
        }
    }
    Ok(())
}
