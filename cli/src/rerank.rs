//! `mlxcel rerank`: documents by how well they answer a query.

use crate::args::{ChangeArguments, positive};
use crate::encoding::{EncoderArguments, counted, passages, texts};
use crate::failure::Usage;
use crate::output;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Order documents by how well they answer a query, with a cross-encoder.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel rerank ./ms-marco-MiniLM-L-12-v2 -q 'How many people live in Berlin?' \\\n    \
    'Berlin has 3.6 million inhabitants.' 'Bread is baked.'\n  \
    mlxcel rerank ./reranker -q 'rivers' --file passages.txt --top-n 5 --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: EncoderArguments,
    /// The query.
    #[arg(long, short = 'q', value_name = "TEXT")]
    query: String,
    /// Documents. Those that start with a dash are given by -d.
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// A document. Can be given several times.
    #[arg(long = "document", short = 'd', value_name = "TEXT")]
    documents: Vec<String>,
    /// Take each line of this file as a document; without any other document, those of stdin.
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the best N only.
    #[arg(long, value_name = "N", value_parser = positive)]
    top_n: Option<usize>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    changes: ChangeArguments,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let given = [arguments.texts.as_slice(), &arguments.documents].concat();
    let documents = texts(&given, arguments.file.as_deref())?;
    if documents.is_empty() {
        let reason = "there is no document; give one after the model, with -d, --file or on stdin";
        return Err(Usage(reason.into()).into());
    }
    if arguments.query.trim().is_empty() {
        return Err(Usage("the query is empty".into()).into());
    }
    let (encoder, text) = arguments.model.open(&arguments.changes, None, None)?;
    let passages = passages(&text, Some(&arguments.query), &documents)?;
    let scores = counted(passages.len(), |done| {
        encoder.scores(&passages, arguments.model.batch_size, done)
    })?;
    let mut ranking = ranking(&scores);
    ranking.truncate(arguments.top_n.unwrap_or(usize::MAX));
    if arguments.json {
        let tokens: usize = passages.iter().map(|passage| passage.tokens.len()).sum();
        return output::json(&json!({
            "model": encoder.name(),
            "kind": "cross-encoder",
            "model_type": encoder.family(),
            "max_length": encoder.longest(),
            "batch_size": arguments.model.batch_size,
            "query": arguments.query,
            "documents": documents,
            "scores": scores,
            "ranking": ranking,
            "prompt_tokens": tokens,
        }));
    }
    for &index in &ranking {
        output::line(&format!("{:9.4}  {}", scores[index], documents[index]))?;
    }
    Ok(())
}

/// Places of the scores from the highest to the lowest; equal ones in their order.
fn ranking(scores: &[f32]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..scores.len()).collect();
    places.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_comes_first_and_equals_keep_their_order() {
        let check = |scores: &[f32], expect: &[usize]| assert_eq!(ranking(scores), expect);
        check(&[], &[]);
        check(&[1.0, 3.0, 2.0], &[1, 2, 0]);
        check(&[1.0, 1.0, -2.0, 1.0], &[0, 1, 3, 2]);
    }
}
