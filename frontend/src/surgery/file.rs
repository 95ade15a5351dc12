//! The file of a surgery: YAML with `version: 1` and a list of `operations`.

use crate::{LoadError, map};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The largest file that is read.
const LIMIT: u64 = 4 << 20;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    version: u64,
    operations: Vec<Operation>,
}

/// What is done to the weights that a pattern selects.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Operation {
    /// `W = factor W`.
    Scale { pattern: String, factor: f64 },
    /// `W = W + alpha S`, with `S` the weight of the same name in `source`.
    Add {
        pattern: String,
        source: PathBuf,
        #[serde(default = "one")]
        alpha: f64,
    },
    /// Whole layers, attention heads or channels of feed-forward parts become zero.
    Prune {
        granularity: Granularity,
        pattern: String,
        #[serde(default)]
        layer_ids: Vec<usize>,
        #[serde(default)]
        head_ids: Vec<usize>,
        #[serde(default)]
        channel_ids: Vec<usize>,
    },
    /// `W = S`, with `S` the weight `source_key` of `source`.
    Replace {
        pattern: String,
        source: PathBuf,
        source_key: String,
    },
    /// `W` = a mixture of the weights of the same name in two sources.
    Interpolate {
        pattern: String,
        source_a: PathBuf,
        source_b: PathBuf,
        ratio: f64,
        #[serde(default)]
        method: Method,
    },
}

/// What `prune` makes zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Granularity {
    Layer,
    AttentionHead,
    MlpChannel,
}

/// How `interpolate` mixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Method {
    /// Along the line between the two.
    #[default]
    Lerp,
    /// Along the arc between the two.
    Slerp,
}

fn one() -> f64 {
    1.0
}

/// An operation and the place that it stands at.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) operation: Operation,
    pub(super) place: Place,
}

/// A place in the file, for messages.
#[derive(Clone, Debug)]
pub(super) struct Place {
    file: PathBuf,
    index: usize,
    kind: &'static str,
}

impl Place {
    /// An error about this operation.
    pub(super) fn error(&self, reason: impl Into<String>) -> LoadError {
        LoadError::Field {
            file: self.file.clone(),
            field: format!("operations[{}] ({})", self.index, self.kind),
            reason: reason.into(),
        }
    }
}

impl Operation {
    fn kind(&self) -> &'static str {
        match self {
            Operation::Scale { .. } => "scale",
            Operation::Add { .. } => "add",
            Operation::Prune { .. } => "prune",
            Operation::Replace { .. } => "replace",
            Operation::Interpolate { .. } => "interpolate",
        }
    }

    pub(super) fn pattern(&self) -> &str {
        match self {
            Operation::Scale { pattern, .. }
            | Operation::Add { pattern, .. }
            | Operation::Prune { pattern, .. }
            | Operation::Replace { pattern, .. }
            | Operation::Interpolate { pattern, .. } => pattern,
        }
    }

    fn sources_mut(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Operation::Scale { .. } | Operation::Prune { .. } => Vec::new(),
            Operation::Add { source, .. } | Operation::Replace { source, .. } => vec![source],
            Operation::Interpolate {
                source_a, source_b, ..
            } => vec![source_a, source_b],
        }
    }

    /// What is wrong with its numbers, if anything is.
    fn fault(&self) -> Option<String> {
        let finite = |name: &str, value: f64| {
            (!value.is_finite()).then(|| format!("`{name}` must be a finite number, is {value}"))
        };
        match self {
            Operation::Scale { factor, .. } => finite("factor", *factor),
            Operation::Add { alpha, .. } => finite("alpha", *alpha),
            Operation::Interpolate { ratio, .. } => (!(0.0..=1.0).contains(ratio))
                .then(|| format!("`ratio` must be from 0 to 1, is {ratio}")),
            Operation::Replace {
                pattern,
                source_key,
                ..
            } => {
                let stars = |text: &str| text.matches('*').count();
                let (one, other) = (stars(pattern), stars(source_key));
                (one != other).then(|| {
                    format!("`source_key` must have as many `*` as `pattern`, {one}, has {other}")
                })
            }
            Operation::Prune {
                granularity,
                layer_ids,
                head_ids,
                channel_ids,
                ..
            } => {
                let lists = [
                    ("layer_ids", layer_ids, Granularity::Layer),
                    ("head_ids", head_ids, Granularity::AttentionHead),
                    ("channel_ids", channel_ids, Granularity::MlpChannel),
                ];
                lists.into_iter().find_map(|(name, list, of)| {
                    match (of == *granularity, list.is_empty()) {
                        (true, true) => Some(format!("`{name}` is missing or empty")),
                        (false, false) => {
                            Some(format!("`{name}` does not go with this granularity"))
                        }
                        _ => None,
                    }
                })
            }
        }
    }
}

/// The operations of the surgery `file`, sources as paths from here, and the file's content.
///
/// # Errors
/// The file is no surgery, or an operation has a wrong number or a source that does not exist.
pub(super) fn read(file: &Path) -> Result<(Vec<Placed>, Vec<u8>), LoadError> {
    let bytes = map::read(file, LIMIT)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| LoadError::format(file, format!("is not UTF-8: {error}")))?;
    let recipe: Recipe = serde_saphyr::from_str(text)
        .map_err(|error| LoadError::format(file, format!("is no surgery: {error}")))?;
    if recipe.version != 1 {
        return Err(LoadError::Field {
            file: file.to_path_buf(),
            field: "version".into(),
            reason: format!("must be 1, is {}", recipe.version),
        });
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut operations = Vec::with_capacity(recipe.operations.len());
    for (index, mut operation) in recipe.operations.into_iter().enumerate() {
        let place = Place {
            file: file.to_path_buf(),
            index,
            kind: operation.kind(),
        };
        if let Some(fault) = operation.fault() {
            return Err(place.error(fault));
        }
        for source in operation.sources_mut() {
            *source = folder.join(&*source);
            if !source.exists() {
                return Err(place.error(format!("there is no source {}", source.display())));
            }
        }
        operations.push(Placed { operation, place });
    }
    Ok((operations, bytes))
}
