//! What holds where a published configuration leaves a field out: the defaults of the family's class in
//! Hugging Face transformers. `defaults.json` has them; tests/family_defaults.py completes it.

use crate::config::{alias, language_mut};
use serde_json::{Map, Value};
use std::sync::LazyLock;

static DEFAULTS: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("defaults.json")).unwrap_or_default());

/// Fills in what the configuration `value` of a model of `family` leaves out, and gives the sizes among
/// that. A field that is null is there.
pub(crate) fn complete(value: &mut Value, family: &str) -> Vec<(String, usize)> {
    let mut sizes = Vec::new();
    let defaults = DEFAULTS.get(family).and_then(Value::as_object);
    let (Some(defaults), Some(fields)) = (defaults, language_mut(value).as_object_mut()) else {
        return sizes;
    };
    for (name, default) in defaults {
        let names = alias::ALL
            .iter()
            .find(|names| names.contains(&name.as_str()));
        let names = names.copied().unwrap_or_default();
        let is_there =
            fields.contains_key(name) || names.iter().any(|name| fields.contains_key(*name));
        if !is_there {
            if let Some(size) = default.as_u64() {
                sizes.push((name.clone(), size as usize));
            }
            fields.insert(name.clone(), default.clone());
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_is_filled_in_and_nothing_else() {
        let check = |mut value: Value, family: &str, place: &str, expect: Option<Value>| {
            complete(&mut value, family);
            assert_eq!(value.pointer(place), expect.as_ref(), "{place} of {value}");
        };
        let nested = json!({"text_config": {"model_type": "gemma3_text", "head_dim": 128}});
        check(
            nested.clone(),
            "gemma3_text",
            "/text_config/num_attention_heads",
            Some(json!(8)),
        );
        check(
            nested.clone(),
            "gemma3_text",
            "/text_config/head_dim",
            Some(json!(128)),
        );
        check(nested, "gemma3_text", "/num_attention_heads", None);
        let null = json!({"head_dim": null, "num_experts": 4});
        check(null.clone(), "qwen3_next", "/head_dim", Some(Value::Null));
        check(null.clone(), "llama4_text", "/num_local_experts", None);
        check(null, "llama", "/vocab_size", Some(json!(32000)));
    }
}
