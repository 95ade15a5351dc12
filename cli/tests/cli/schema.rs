//! Manifests against the schema in the book.

use mlxcel_frontend::artifact::MANIFEST;
use serde_json::{Value, json};
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/src/reference/artifact.md");

fn schema() -> Value {
    let (_, rest) = PAGE.split_once("```json\n").expect("the page has a schema");
    let (schema, _) = rest.split_once("```").expect("the schema ends");
    serde_json::from_str(schema).expect("the schema is JSON")
}

/// What of `value` does not fit `schema`, of which every keyword must be known here. A crate for JSON Schema
/// would bring features to crates that all others share, so that they are built twice.
fn errors(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let mut wrong = |problem: String| found.push(format!("{at}: {problem}"));
    let number = value.as_f64();
    let count = value
        .as_array()
        .map(Vec::len)
        .or(value.as_object().map(|object| object.len()));
    let mut inner = Vec::new();
    for (keyword, want) in schema.as_object().expect("a schema is an object") {
        let limit = want.as_f64().unwrap_or_default();
        let good = match keyword.as_str() {
            "$schema" | "description" => true,
            "const" => value == want,
            "enum" => want.as_array().is_some_and(|list| list.contains(value)),
            "type" => match want.as_str().expect("a type") {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                other => panic!("the type {other} is unknown here"),
            },
            "minimum" => number.is_none_or(|number| number >= limit),
            "maximum" => number.is_none_or(|number| number <= limit),
            "exclusiveMinimum" => number.is_none_or(|number| number > limit),
            "exclusiveMaximum" => number.is_none_or(|number| number < limit),
            "minItems" => count.is_none_or(|count| count as f64 >= limit),
            "maxItems" | "maxProperties" => count.is_none_or(|count| count as f64 <= limit),
            "required" => want.as_array().is_some_and(|names| {
                let has =
                    |name: &Value| name.as_str().is_some_and(|name| value.get(name).is_some());
                names.iter().all(has)
            }),
            "items" => {
                inner.extend(
                    value
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|item| (want, item)),
                );
                true
            }
            "properties" => {
                let properties = want.as_object().into_iter().flatten();
                inner.extend(properties.filter_map(|(name, want)| Some((want, value.get(name)?))));
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                let others = value.as_object().into_iter().flatten();
                let mut others =
                    others.filter(|(name, _)| known.is_none_or(|known| !known.contains_key(*name)));
                match want {
                    Value::Bool(false) => others.next().is_none(),
                    want => {
                        inner.extend(others.map(|(_, value)| (want, value)));
                        true
                    }
                }
            }
            other => panic!("the keyword {other} is unknown here"),
        };
        if !good {
            wrong(format!("{keyword} {want}, and it is {value}"));
        }
    }
    for (index, (schema, value)) in inner.into_iter().enumerate() {
        errors(schema, value, &format!("{at}/{index}"), found);
    }
}

/// Holds the manifest of an artifact against the schema, and damaged ones of it.
#[track_caller]
pub(crate) fn check(artifact: impl AsRef<Path>) {
    let manifest = std::fs::read(artifact.as_ref().join(MANIFEST)).expect("a manifest");
    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    let schema = schema();
    let errors = |manifest: &Value| {
        let mut found = Vec::new();
        errors(&schema, manifest, "", &mut found);
        found
    };
    assert_eq!(errors(&manifest), [] as [String; 0]);
    let damage = |pointer: &str, value: Value| {
        let mut manifest = manifest.clone();
        match manifest.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => manifest[pointer] = value,
        }
        assert_ne!(errors(&manifest), [] as [String; 0], "{pointer}");
    };
    damage("/format", json!(2));
    damage("/functions/0/tokens", json!(0));
    damage("/buffers/0/dtype", json!("f64"));
    damage("/target", json!("iree-abacus"));
    damage("surprise", json!(1));
}

#[test]
fn the_demo_fits_the_schema() {
    check(crate::demo::artifact());
}
