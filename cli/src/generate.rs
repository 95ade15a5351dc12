//! `mlxcel generate`: a reply with figures, for scripts.

use crate::args::{GenerationArguments, ModelArguments, PromptArguments};
use crate::failure::Usage;
use crate::reply::{Reply, Speaker, tell};
use crate::{input, output};
use clap::Args;
use mlxcel_engine::Cancel;
use mlxcel_lower::memory;
use serde_json::json;

/// Generate once and tell token ids and timings.
#[derive(Debug, Args)]
#[command(
    visible_alias = "gen",
    after_help = "Examples:\n  \
    mlxcel generate ./SmolLM2-135M-Instruct -p 'Name a river.' --json\n  \
    mlxcel generate ./demo --no-chat-template -p 'Once upon a time' --max-tokens 64\n  \
    mlxcel generate smollm2-cpu --no-chat-template --ignore-eos -n 128 -p 'The' --json"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Print one JSON object with the text, token ids and timings instead of the text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    prompt: PromptArguments,
    #[command(flatten)]
    generation: GenerationArguments,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    arguments.generation.check()?;
    let prompt = input::prompt(&arguments.prompt)?
        .ok_or_else(|| Usage("there is no prompt; give one with -p or on stdin".into()))?;
    let mut speaker = Speaker::load(&arguments.model)?;
    let options = arguments.generation.options(speaker.text.end_tokens());
    let tokens = input::encode(&speaker.text, &prompt, &arguments.prompt)?;
    let cancel = Cancel::default();
    if arguments.json {
        let reply = speaker.reply(&tokens, &options, &cancel, |_| Ok(()))?;
        return output::json(&summary(&speaker.model, &tokens, &reply));
    }
    let reply = speaker.speak(&tokens, &options, &cancel)?;
    tell(&reply.summary);
    Ok(())
}

fn summary(model: &str, prompt: &[u32], reply: &Reply) -> serde_json::Value {
    let Reply { text, summary } = reply;
    json!({
        "model": model,
        "text": text,
        "finish_reason": summary.reason.name(),
        "prompt_ids": prompt,
        "prompt_tokens": summary.prompt_tokens,
        "tokens": summary.tokens,
        "time_to_first_token": summary.time_to_first_token.as_secs_f64(),
        "seconds": summary.time.as_secs_f64(),
        "prefill_tokens_per_second": summary.prefill_speed(),
        "decode_tokens_per_second": summary.decode_speed(),
        "peak_memory_bytes": memory::peak(),
    })
}
