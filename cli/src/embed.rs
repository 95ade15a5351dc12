//! `mlxcel embed`: the vectors of texts.

use crate::args::{ChangeArguments, positive};
use crate::encoding::{EncoderArguments, PoolingName, counted, passages, texts};
use crate::failure::Usage;
use crate::output;
use clap::Args;
use mlxcel_frontend::Prompts;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Turn texts into vectors with an encoder.
///
/// Without --json, each vector is a line, followed by the cosines of all pairs if there are several.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mlxcel embed ./all-MiniLM-L6-v2 'A cat sits.' 'A kitten rests.'\n  \
    mlxcel embed ./bge-small-en-v1.5 --file sentences.txt --json > vectors.json\n  \
    mlxcel embed ./nomic-embed --instruction 'search_query: ' 'rivers' --dimensions 256\n  \
    mlxcel embed ./embeddinggemma-300m --prompt-name query 'rivers'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: EncoderArguments,
    /// Texts. Those that start with a dash are given by -p.
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// A text. Can be given several times.
    #[arg(long = "prompt", short = 'p', value_name = "TEXT")]
    prompts: Vec<String>,
    /// Take each line of this file as a text; without any other text, those of stdin.
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Put this before each text, as some models are trained to expect.
    #[arg(long, value_name = "TEXT")]
    instruction: Option<String>,
    /// Put the prompt of this name before each text, which the model's files store (`query`, `document`); by default
    /// the one that they name as default, if any.
    #[arg(long, value_name = "NAME", conflicts_with = "instruction")]
    prompt_name: Option<String>,
    /// Which states become the vector; by default as the model's files say.
    #[arg(long, value_enum, value_name = "NAME")]
    pooling: Option<PoolingName>,
    /// Give vectors length 1: true or false; by default as the model's files say.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    normalize: Option<bool>,
    /// Keep the first N elements of each vector, and give what is left length 1.
    #[arg(long, value_name = "N", value_parser = positive)]
    dimensions: Option<usize>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    changes: ChangeArguments,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let given = [arguments.texts.as_slice(), &arguments.prompts].concat();
    let mut inputs = texts(&given, arguments.file.as_deref())?;
    if inputs.is_empty() {
        let reason = "there is no text; give one after the model, with -p, --file or on stdin";
        return Err(Usage(reason.into()).into());
    }
    let (encoder, text) =
        arguments
            .model
            .open(&arguments.changes, arguments.pooling, arguments.normalize)?;
    let before = before(arguments, &encoder.prompts()?)?;
    for input in &mut inputs {
        input.insert_str(0, &before);
    }
    let width = encoder.info().width;
    let dimensions = arguments.dimensions.unwrap_or(width);
    if dimensions > width {
        let reason = format!("--dimensions {dimensions}: the vectors have {width}");
        return Err(Usage(reason).into());
    }
    let passages = passages(&text, None, &inputs)?;
    let started = Instant::now();
    let mut vectors = counted(passages.len(), |done| {
        encoder.vectors(&passages, arguments.model.batch_size, done)
    })?;
    if dimensions < width {
        for vector in &mut vectors {
            vector.truncate(dimensions);
            let length = dot(vector, vector).sqrt();
            if length > 0.0 {
                vector
                    .iter_mut()
                    .for_each(|x| *x = (f64::from(*x) / length) as f32);
            }
        }
    }
    let tokens: usize = passages.iter().map(|passage| passage.tokens.len()).sum();
    let seconds = started.elapsed().as_secs_f64();
    let similarity = cosines(&vectors);
    if arguments.json {
        return output::json(&json!({
            "model": encoder.name(),
            "model_type": encoder.family(),
            "dim": dimensions,
            "max_length": encoder.longest(),
            "multi_vector": false,
            "inputs": inputs,
            "embeddings": vectors,
            "shapes": vectors.iter().map(|vector| [1, vector.len()]).collect::<Vec<_>>(),
            "prompt_tokens": tokens,
            "seconds": seconds,
            "similarity": similarity,
        }));
    }
    for vector in &vectors {
        output::line(&row(vector.iter().map(|&x| f64::from(x)), 6))?;
    }
    if vectors.len() > 1 {
        output::line("")?;
        for cosines in similarity {
            output::line(&row(cosines, 4))?;
        }
    }
    anstream::eprintln!(
        "{}, {tokens} tokens, {dimensions} dimensions, {:.0} tokens/s",
        match inputs.len() {
            1 => "1 text".to_string(),
            count => format!("{count} texts"),
        },
        tokens as f64 / seconds.max(1e-9)
    );
    Ok(())
}

/// What to put before each text.
fn before(arguments: &Arguments, stored: &Prompts) -> anyhow::Result<String> {
    if let Some(instruction) = &arguments.instruction {
        return Ok(instruction.clone());
    }
    let name = arguments.prompt_name.as_ref();
    let Some(name) = name.or(stored.default.as_ref()) else {
        return Ok(String::new());
    };
    stored.get(name).map(str::to_owned).ok_or_else(|| {
        let names: Vec<&str> = stored.texts.iter().map(|(name, _)| name.as_str()).collect();
        let known = match names.is_empty() {
            true => "the model stores none; give its text with --instruction".to_string(),
            false => format!("the model has {}", names.join(", ")),
        };
        Usage(format!("--prompt-name {name}: {known}")).into()
    })
}

fn row(values: impl IntoIterator<Item = f64>, digits: usize) -> String {
    let values = values.into_iter().map(|value| format!("{value:.digits$}"));
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    let products = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b));
    products.sum()
}

/// The cosine of the angle between each two vectors.
fn cosines(vectors: &[Vec<f32>]) -> Vec<Vec<f64>> {
    let lengths: Vec<f64> = vectors.iter().map(|v| dot(v, v).sqrt()).collect();
    let cosine = |a: usize, b: usize| match lengths[a] * lengths[b] {
        0.0 => 0.0,
        product => dot(&vectors[a], &vectors[b]) / product,
    };
    (0..vectors.len())
        .map(|a| (0..vectors.len()).map(|b| cosine(a, b)).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_are_those_of_the_angles() {
        let vectors = [
            vec![1.0, 0.0],
            vec![0.0, 2.0],
            vec![3.0, 3.0],
            vec![0.0, 0.0],
        ];
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let expect = [
            [1.0, 0.0, half, 0.0],
            [0.0, 1.0, half, 0.0],
            [half, half, 1.0, 0.0],
            [0.0, 0.0, 0.0, 0.0],
        ];
        for (row, expect) in cosines(&vectors).iter().zip(expect) {
            for (got, expect) in row.iter().zip(expect) {
                assert!((got - expect).abs() < 1e-12, "{row:?}");
            }
        }
    }
}
