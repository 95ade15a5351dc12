//! What `embed` and `rerank` share: an encoder, and texts on their way through it.

use crate::args::{ChangeArguments, positive, tell};
use crate::failure::Usage;
use crate::progress::{Count, Spinner};
use anyhow::Context;
use clap::{Args, ValueEnum};
use mlxcel_engine::{Backend, Encoder, EncoderOptions, Passage};
use mlxcel_frontend::{Reduce, Text};
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

/// The most bytes of texts that are read from a file or stdin.
const MOST_BYTES: u64 = 1 << 30;

/// An encoder and how it runs.
#[derive(Debug, Args)]
pub(crate) struct EncoderArguments {
    /// A model folder: config.json, *.safetensors and a tokenizer.
    model: PathBuf,
    /// What executes it; mlx if not given.
    #[arg(long, short = 'b', value_enum, value_name = "NAME")]
    backend: Option<EncoderBackend>,
    /// The most tokens of a text; what is longer is cut. By default what the model takes.
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    max_length: Option<usize>,
    /// Texts that run at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = positive)]
    pub(crate) batch_size: usize,
}

/// What executes an encoder, none of which is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EncoderBackend {
    /// Eagerly, on MLX.
    Mlx,
    /// By the interpreter: slow, and right by definition.
    Reference,
}

impl From<EncoderBackend> for Backend {
    fn from(name: EncoderBackend) -> Self {
        match name {
            EncoderBackend::Mlx => Backend::Mlx,
            EncoderBackend::Reference => Backend::Reference,
        }
    }
}

/// Which states of a text become its vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolingName {
    /// The mean of all tokens' states.
    Mean,
    /// The first token's.
    Cls,
    /// The last token's.
    Last,
}

impl EncoderArguments {
    /// Loads the model with `changes`, with another pooling and normalising where they are given.
    pub(crate) fn open(
        &self,
        changes: &ChangeArguments,
        pooling: Option<PoolingName>,
        normalize: Option<bool>,
    ) -> anyhow::Result<(Encoder, Text)> {
        let _spinner = Spinner::new(format!("loading {}", self.model.display()));
        let options = EncoderOptions {
            backend: self.backend.map(Into::into),
            reduce: pooling.map(|pooling| match pooling {
                PoolingName::Mean => Reduce::Mean,
                PoolingName::Cls => Reduce::First,
                PoolingName::Last => Reduce::Last,
            }),
            normalize,
            longest: self.max_length,
            load: changes.options(),
        };
        let encoder = Encoder::open(&self.model, &options)?;
        tell(encoder.notes());
        let text = encoder.text()?;
        Ok((encoder, text))
    }
}

/// Cuts texts into tokens; with `query`, each is a document beside it.
pub(crate) fn passages(
    text: &Text,
    query: Option<&str>,
    texts: &[String],
) -> anyhow::Result<Vec<Passage>> {
    let passage = |own: &String| {
        if own.trim().is_empty() {
            return Err(Usage("a text is empty; leave it out".into()).into());
        }
        let (tokens, types) = match query {
            Some(query) => text.encode_texts(query, Some(own))?,
            None => text.encode_texts(own, None)?,
        };
        Ok(Passage { tokens, types })
    };
    texts.iter().map(passage).collect()
}

/// Runs `work` while a bar tells how many of `total` texts are done.
pub(crate) fn counted<T>(total: usize, work: impl FnOnce(&mut dyn FnMut(usize)) -> T) -> T {
    let bar = Count::new("encoding", total);
    work(&mut |done| bar.at(done))
}

/// The texts given: on the command line, else the lines of `file`, else those of stdin where it is
/// no terminal.
pub(crate) fn texts(given: &[String], file: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let mut texts = given.to_vec();
    match file {
        Some(file) => {
            let source =
                fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            texts.extend(lines(source, &file.display().to_string())?);
        }
        None if texts.is_empty() && !io::stdin().is_terminal() => {
            texts.extend(lines(io::stdin(), "stdin")?);
        }
        None => {}
    }
    Ok(texts)
}

/// The lines of a source that are not empty.
fn lines(source: impl Read, name: &str) -> anyhow::Result<Vec<String>> {
    let mut bytes = Vec::new();
    source
        .take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MOST_BYTES {
        anyhow::bail!("{name}: is longer than {MOST_BYTES} bytes; give it in parts");
    }
    let text = String::from_utf8(bytes).with_context(|| format!("{name}: is not UTF-8 text"))?;
    let full = text.lines().filter(|line| !line.trim().is_empty());
    Ok(full.map(str::to_owned).collect())
}
