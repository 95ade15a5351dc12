//! A conversation as templates expect it.

use serde_json::{Map, Value};

/// Names under which a message may carry what a model thought; templates read the first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The variables as transformers passes them: those that every template may test are there, if only
/// as null; messages have no null fields (a client may send `"tool_calls": null`, and templates test
/// whether the field is there), but a null content is an empty text, which templates index.
pub(super) fn normalize(mut variables: Map<String, Value>) -> Map<String, Value> {
    for name in ["tools", "documents"] {
        variables.entry(name).or_insert(Value::Null);
    }
    variables
        .entry("add_generation_prompt")
        .or_insert(Value::Bool(false));
    if let Some(Value::Array(messages)) = variables.get_mut("messages") {
        for message in messages {
            if let Value::Object(message) = message {
                normalize_message(message);
            }
        }
    }
    variables
}

fn normalize_message(message: &mut Map<String, Value>) {
    if let Some(content) = message.get_mut("content")
        && content.is_null()
    {
        *content = "".into();
    }
    message.retain(|_, value| !value.is_null());
    let thought = REASONING
        .iter()
        .find_map(|name| message.get(*name))
        .cloned();
    if let Some(thought) = thought {
        message.entry("thinking").or_insert(thought.clone());
        message.insert(REASONING[0].into(), thought);
    }
}
