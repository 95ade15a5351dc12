//! What a model consists of, without running it.

use crate::model::Model;
use crate::surgery::Heads;
use crate::{LoadError, safetensors};
use mlxcel_ir::{StateKind, Symbol, WeightFormat, step};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A weight of a model or a tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its logical shape.
    pub shape: Vec<usize>,
    /// How its numbers are stored, as the graph's text form spells it or as the file does.
    pub format: String,
    /// Bytes that it takes.
    pub bytes: u64,
    /// The file that it is from.
    pub file: PathBuf,
}

/// How many weights are stored in one format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatInfo {
    /// Weights.
    pub weights: usize,
    /// Numbers in them.
    pub parameters: u64,
    /// Bytes that they take.
    pub bytes: u64,
}

/// What the states of a sequence take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateInfo {
    /// Caches, which grow with the tokens of a sequence.
    pub caches: usize,
    /// Memories, which do not.
    pub memories: usize,
    /// Bytes that one token takes in all caches.
    pub bytes_per_token: u64,
    /// Bytes that one sequence takes in all memories.
    pub bytes_per_sequence: u64,
}

/// What a model's graph needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Numbers in the weights that the graph uses.
    pub parameters: u64,
    /// Bytes that these weights take.
    pub weight_bytes: u64,
    /// The same by format.
    pub formats: BTreeMap<String, FormatInfo>,
    /// The states.
    pub states: StateInfo,
    /// Attention heads and the width of one; zero where there is no attention.
    pub heads: [usize; 2],
    /// Numbers of the largest value that a step computes for a token, logits aside.
    pub widest: u64,
}

impl Model {
    /// What the graph of one step needs, or of one text if the model is an encoder.
    ///
    /// # Errors
    /// None for a model that loaded; the type says what building found.
    pub fn summary(&self) -> Result<Summary, LoadError> {
        let graph = self.main_graph()?;
        let mut summary = Summary::default();
        for weight in &graph.weights {
            let format = summary
                .formats
                .entry(format_name(weight.format))
                .or_default();
            let (parameters, bytes) = (weight.elements() as u64, weight.bytes() as u64);
            format.weights += 1;
            format.parameters += parameters;
            format.bytes += bytes;
            summary.parameters += parameters;
            summary.weight_bytes += bytes;
        }
        for state in &graph.states {
            let size = state.dtype.size() as u64;
            match state.kind {
                StateKind::Cache => {
                    summary.states.caches += 1;
                    summary.states.bytes_per_token += state.elements(1) as u64 * size;
                }
                StateKind::Memory => {
                    summary.states.memories += 1;
                    summary.states.bytes_per_sequence += state.elements(1) as u64 * size;
                }
            }
        }
        let heads = Heads::of(&graph);
        summary.heads = [heads.count, heads.width];
        let mut outputs = graph.outputs.iter();
        let logits = outputs.find(|output| output.name == step::LOGITS);
        for (index, node) in graph.nodes.iter().enumerate() {
            let of_token = node.ty.shape.contains(&Symbol::T.into());
            if of_token && logits.is_none_or(|logits| logits.value != graph.value_of(index)) {
                let width = node.ty.shape.iter().filter_map(|dim| dim.fixed());
                let width = width.fold(1u64, |product, size| product.saturating_mul(size as u64));
                summary.widest = summary.widest.max(width);
            }
        }
        Ok(summary)
    }

    /// All weights of the model's files by name, whether the graph uses them or not.
    pub fn tensors(&self) -> Vec<TensorInfo> {
        let weights = self.stored();
        let mut tensors: Vec<TensorInfo> = weights
            .stored
            .values()
            .map(|stored| TensorInfo {
                name: stored.declaration.name.clone(),
                shape: stored.declaration.shape.clone(),
                format: format_name(stored.declaration.format),
                bytes: stored.declaration.bytes() as u64,
                file: stored.file.clone(),
            })
            .collect();
        tensors.sort_by(|one, other| one.name.cmp(&other.name));
        tensors
    }
}

/// The format's name, as the graph's text form spells it.
fn format_name(format: WeightFormat) -> String {
    format.to_string()
}

/// The tensors of the safetensors file `file` with the content `bytes`, of which the header alone is read.
///
/// # Errors
/// The file breaks the format.
pub fn list_tensors(file: &Path, bytes: &[u8]) -> Result<Vec<TensorInfo>, LoadError> {
    let mut tensors: Vec<TensorInfo> = safetensors::parse(file, bytes)?
        .into_iter()
        .map(|entry| TensorInfo {
            bytes: entry.range.len() as u64,
            name: entry.name,
            shape: entry.shape,
            format: entry.dtype.to_lowercase(),
            file: file.to_path_buf(),
        })
        .collect();
    tensors.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(tensors)
}
