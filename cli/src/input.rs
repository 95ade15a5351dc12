//! Prompts: where they come from and how they become tokens.

use crate::args::PromptArguments;
use crate::failure::Usage;
use anyhow::{Context, bail};
use mlxcel_frontend::{Message, Text};
use std::io::{self, IsTerminal, Read};

/// The most bytes that are read from stdin; any context is full long before.
const MOST_BYTES: u64 = 64 << 20;

/// The prompt that was given, or what stdin holds where it is no terminal.
pub(crate) fn prompt(arguments: &PromptArguments) -> anyhow::Result<Option<String>> {
    match &arguments.prompt {
        Some(prompt) => Ok(Some(prompt.clone())),
        None if io::stdin().is_terminal() => Ok(None),
        None => read_stdin().map(Some),
    }
}

fn read_stdin() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let mut stdin = io::stdin().lock().take(MOST_BYTES + 1);
    stdin
        .read_to_end(&mut bytes)
        .context("cannot read the prompt from stdin")?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("stdin: the prompt is longer than {MOST_BYTES} bytes; give a shorter one");
    }
    let mut text = String::from_utf8(bytes).context("stdin: the prompt is not UTF-8 text")?;
    // The end of the last line belongs to the shell, not to the prompt.
    if text.ends_with('\n') {
        text.pop();
    }
    if text.is_empty() {
        return Err(Usage("stdin: there is no prompt; write one or give it with -p".into()).into());
    }
    Ok(text)
}

/// The tokens of a prompt, by the model's chat template unless the arguments say otherwise.
pub(crate) fn encode(
    text: &Text,
    prompt: &str,
    arguments: &PromptArguments,
) -> anyhow::Result<Vec<u32>> {
    if arguments.no_chat_template {
        return Ok(text.encode(prompt, true)?);
    }
    let mut messages = system(arguments);
    messages.push(message("user", prompt));
    conversation(text, &messages)
}

/// The tokens of a conversation that the model goes on with.
pub(crate) fn conversation(text: &Text, messages: &[Message]) -> anyhow::Result<Vec<u32>> {
    // The template writes the special tokens.
    Ok(text.encode(&text.chat(messages, true)?, false)?)
}

/// What stands before a conversation.
pub(crate) fn system(arguments: &PromptArguments) -> Vec<Message> {
    let system = arguments.system.iter();
    system.map(|content| message("system", content)).collect()
}

pub(crate) fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.into(),
        content: content.into(),
    }
}
