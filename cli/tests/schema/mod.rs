//! Checks the program's output against the schemas in `docs`.

use serde_json::{Value, json};
use std::path::Path;

/// Reads a schema of `docs`.
pub(crate) fn read(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|above| above.join("docs").join(name));
    let path = path.into_iter().find(|path| path.exists()).expect("the documentation");
    serde_json::from_str(&std::fs::read_to_string(path).expect("a schema")).expect("JSON")
}

/// Checks a value against a schema; the error lists all problems with their places.
pub(crate) fn validate(schema: &Value, value: &Value) -> Result<(), String> {
    let validator = jsonschema::validator_for(schema).map_err(|error| format!("the schema: {error}"))?;
    let problems = validator.iter_errors(value);
    let problems: Vec<String> = problems.map(|error| format!("{}: {error}", error.instance_path())).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// Checks the objects that a command with `--json` has printed: one, or one in each line. Each must name a
/// format of `docs/output.schema.json` and have no key that this format lacks. Returns the formats.
pub(crate) fn formats_of(printed: &str) -> Vec<String> {
    let mut schema = read("output.schema.json");
    close(&mut schema);
    // the records of a study have a schema of their own
    let formats = schema["$defs"].as_object_mut().expect("formats");
    formats.remove("unisono-record-1");
    let objects = serde_json::Deserializer::from_str(printed).into_iter::<Value>();
    let judge = |object: Value| {
        let format = object["format"].as_str().unwrap_or_else(|| panic!("no format: {object}"));
        assert!(schema["$defs"].get(format).is_some(), "{format} is not in docs/output.schema.json");
        // refers to a single format, so that errors name the wrong key and not all formats that do not fit
        let wanted = json!({"$ref": format!("#/$defs/{format}"), "$defs": schema["$defs"]});
        if let Err(problems) = validate(&wanted, &object) {
            panic!("{format}: {problems}\nin {object}");
        }
        format.to_owned()
    };
    let formats: Vec<String> = objects.map(|object| judge(object.expect("JSON"))).collect();
    assert!(!formats.is_empty(), "nothing is printed");
    formats
}

/// Makes a schema refuse keys that it does not name. The published schema accepts them, because readers
/// should ignore unknown keys.
fn close(schema: &mut Value) {
    if let Value::Object(keys) = schema
        && keys.contains_key("properties")
        && !keys.contains_key("additionalProperties")
    {
        keys.insert("additionalProperties".to_owned(), json!(false));
    }
    match schema {
        Value::Object(keys) => keys.values_mut().for_each(close),
        Value::Array(values) => values.iter_mut().for_each(close),
        _ => {}
    }
}
