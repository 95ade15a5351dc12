//! The chat: lines in, replies out.

use crate::input::{conversation, message};
use crate::reply::{Speaker, tell};
use anyhow::Context;
use mlxcel_engine::{Cancel, FinishReason, GenerateError, Options};
use mlxcel_frontend::Message;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

const HELP: &str = "\
/bye      end the chat (Ctrl-D does too)
/clear    forget the conversation
/help     this list
\"\"\"       begin a message of several lines; another \"\"\" ends it
Ctrl-C    stop a reply";

/// Entered lines that are kept between chats.
const HISTORY: usize = 1000;

/// Chats until stdin ends. `system` stands before every conversation.
pub(crate) fn chat(
    speaker: &mut Speaker,
    system: Vec<Message>,
    options: &Options,
    stats: bool,
) -> anyhow::Result<()> {
    let cancel = Cancel::default();
    let stop = cancel.clone();
    ctrlc::set_handler(move || match stop.is_set() {
        // The last one was not heard.
        true => std::process::exit(130),
        false => stop.set(),
    })
    .context("cannot listen for Ctrl-C")?;
    let mut editor = Editor::open()?;
    if io::stderr().is_terminal() {
        anstream::eprintln!(
            "\x1b[1m{}\x1b[0m: /help lists what can be done",
            speaker.model
        );
    }
    let mut messages = system.clone();
    while let Some(entry) = editor.entry()? {
        match entry.trim() {
            "" => continue,
            "/bye" | "/exit" | "/quit" => break,
            "/clear" => messages.clone_from(&system),
            "/help" | "/?" => anstream::eprintln!("{HELP}"),
            command if command.starts_with('/') && !command.contains(char::is_whitespace) => {
                anstream::eprintln!("there is no {command}; /help lists what there is");
            }
            _ => {
                messages.push(message("user", &entry));
                answer(speaker, &mut messages, options, &cancel, stats)?;
            }
        }
    }
    editor.close();
    Ok(())
}

/// Answers the last message. What fails about this message alone is told, and the chat goes on.
fn answer(
    speaker: &mut Speaker,
    messages: &mut Vec<Message>,
    options: &Options,
    cancel: &Cancel,
    stats: bool,
) -> anyhow::Result<()> {
    cancel.clear();
    let tokens = conversation(&speaker.text, messages)?;
    let reply = match speaker.speak(&tokens, options, cancel) {
        Err(error) if is_about_the_message(&error) => {
            messages.pop();
            anstream::eprintln!("\x1b[1;31merror:\x1b[0m {error}; /clear makes room");
            return Ok(());
        }
        reply => reply?,
    };
    cancel.clear();
    messages.push(message("assistant", &reply.text));
    match reply.summary.reason {
        FinishReason::Cancelled => anstream::eprintln!("\x1b[2m(stopped)\x1b[0m"),
        FinishReason::Context => {
            anstream::eprintln!("\x1b[2m(the context is full; /clear makes room)\x1b[0m");
        }
        FinishReason::Stop | FinishReason::Length => {}
    }
    if stats {
        tell(&reply.summary);
    }
    Ok(())
}

fn is_about_the_message(error: &anyhow::Error) -> bool {
    let about = |error: &GenerateError| {
        matches!(
            error,
            GenerateError::PromptTooLong { .. } | GenerateError::EmptyPrompt
        )
    };
    error.downcast_ref().is_some_and(about)
}

/// Lines from a terminal, with editing and a history that lasts, or from a pipe.
struct Editor {
    editor: DefaultEditor,
    history: Option<PathBuf>,
}

impl Editor {
    fn open() -> anyhow::Result<Self> {
        let config = rustyline::Config::builder()
            .max_history_size(HISTORY)?
            .build();
        let mut editor = DefaultEditor::with_config(config)?;
        let history = io::stdin().is_terminal().then(history_file).flatten();
        if let Some(history) = &history {
            // There is none before the first chat.
            let _ = editor.load_history(history);
        }
        Ok(Self { editor, history })
    }

    /// The next message, or `None` at the end.
    fn entry(&mut self) -> anyhow::Result<Option<String>> {
        let Some(first) = self.line(">>> ")? else {
            return Ok(None);
        };
        let Some(begin) = first.trim_start().strip_prefix("\"\"\"") else {
            return Ok(Some(first));
        };
        let mut entry = begin.to_string();
        while !entry.trim_end().ends_with("\"\"\"") {
            let Some(line) = self.line("... ")? else {
                break;
            };
            entry.push('\n');
            entry.push_str(&line);
        }
        let entry = entry.trim_end();
        Ok(Some(
            entry
                .strip_suffix("\"\"\"")
                .unwrap_or(entry)
                .trim_matches('\n')
                .to_string(),
        ))
    }

    fn line(&mut self, prompt: &str) -> anyhow::Result<Option<String>> {
        let prompt = if io::stdin().is_terminal() {
            prompt
        } else {
            ""
        };
        loop {
            match self.editor.readline(prompt) {
                Ok(line) => {
                    if !line.trim().is_empty() {
                        self.editor.add_history_entry(&line)?;
                    }
                    return Ok(Some(line));
                }
                // Ctrl-C empties the line.
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error).context("cannot read a message"),
            }
        }
    }

    /// Keeps the history. A chat does not fail for it.
    fn close(&mut self) {
        if let Some(history) = &self.history {
            let kept = history.parent().map_or(Ok(()), std::fs::create_dir_all);
            if kept.is_err() || self.editor.save_history(history).is_err() {
                anstream::eprintln!("the history could not be kept in {}", history.display());
            }
        }
    }
}

/// Where the history is: `$MLXCEL_HISTORY`, or a file in the user's folder for programs' state.
fn history_file() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(file) = variable("MLXCEL_HISTORY") {
        return Some(file.into());
    }
    let state = variable("XDG_STATE_HOME").map(PathBuf::from);
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    Some(state.or_else(home)?.join("mlxcel/history"))
}
