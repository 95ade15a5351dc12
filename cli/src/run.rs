//! `mlxcel run`: an answer, or a chat.

use crate::args::{GenerationArguments, ModelArguments, PromptArguments};
use crate::reply::{Speaker, tell};
use crate::{chat, input};
use clap::Args;
use mlxcel_engine::Cancel;
use std::io::{self, IsTerminal};

/// Answer a prompt, or chat with a model.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel run ./SmolLM2-135M-Instruct\n  \
    mlxcel run SmolLM2-135M-Instruct.Q4_1.gguf -p 'Name three rivers.' --temp 0.7 --top-p 0.9\n  \
    mlxcel run smollm2-cpu --system 'Answer in one word.' < question.txt\n  \
    mlxcel run ./demo --backend reference -p 'What is a violin?' --max-tokens 32")]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Chat even if stdin is no terminal: each line of it is a message.
    #[arg(long, short = 'i', conflicts_with_all = ["prompt", "no_chat_template"])]
    interactive: bool,
    /// Tell on stderr what a reply took; done without it where stderr is a terminal.
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    prompt: PromptArguments,
    #[command(flatten)]
    generation: GenerationArguments,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    arguments.generation.check()?;
    let prompt = match arguments.interactive {
        true => None,
        false => input::prompt(&arguments.prompt)?,
    };
    let mut speaker = Speaker::load(&arguments.model)?;
    let options = arguments.generation.options(speaker.text.end_tokens());
    let stats = arguments.stats || io::stderr().is_terminal();
    let Some(prompt) = prompt else {
        let system = input::system(&arguments.prompt);
        return chat::chat(&mut speaker, system, &options, stats);
    };
    let tokens = input::encode(&speaker.text, &prompt, &arguments.prompt)?;
    let reply = speaker.speak(&tokens, &options, &Cancel::default())?;
    if stats {
        tell(&reply.summary);
    }
    Ok(())
}
