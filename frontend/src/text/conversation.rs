//! A conversation as templates expect it.

use super::template::{Failure, Template};
use serde_json::{Map, Value};

/// Names under which a message may carry what a model thought; templates read the first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// What `template` makes of `variables`, passed as transformers passes them. Where it needs the content of a
/// message that has none, and fails, it gets an empty one.
pub(super) fn render(
    template: &Template,
    variables: Map<String, Value>,
) -> Result<String, Failure> {
    let variables = normalize(variables);
    match template.render(&variables) {
        Err(Failure::Other(reason)) => match with_contents(variables) {
            Some(variables) => template.render(&variables),
            None => Err(Failure::Other(reason)),
        },
        rendered => rendered,
    }
}

/// `variables` with an empty content in each message without one, if there is any.
fn with_contents(mut variables: Map<String, Value>) -> Option<Map<String, Value>> {
    let mut added = false;
    let messages = variables.get_mut("messages")?.as_array_mut()?;
    for message in messages.iter_mut().filter_map(Value::as_object_mut) {
        if !message.contains_key("content") {
            message.insert("content".into(), "".into());
            added = true;
        }
    }
    added.then_some(variables)
}

/// The variables as transformers passes them: those that every template may test are there, if only
/// as null; messages have no null fields, for templates test whether a field is there, and a client may
/// send `"tool_calls": null`.
fn normalize(mut variables: Map<String, Value>) -> Map<String, Value> {
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
    message.retain(|_, value| !value.is_null());
    let thought = REASONING
        .iter()
        .find_map(|name| message.get(*name))
        .cloned();
    if let Some(thought) = thought {
        // First, as transformers has it.
        if !message.contains_key(REASONING[1]) {
            message.shift_insert(0, REASONING[1].into(), thought.clone());
        }
        message.insert(REASONING[0].into(), thought);
    }
}
