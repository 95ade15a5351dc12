//! The bytes that one token must move, from an artifact's manifest and the header of its weights.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// No header of a checkpoint is longer.
const LONGEST_HEADER: u64 = 100 << 20;

/// What a step of a model reads, whatever executes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Traffic {
    /// Bytes of the weights as they are stored, all of which each step needs.
    pub(super) weights: u64,
    /// Bytes of the cache for each token in it.
    pub(super) cache_per_token: u64,
}

impl Traffic {
    /// Of the model that `artifact` was compiled from.
    pub(super) fn of_artifact(artifact: &Path) -> Result<Self> {
        let manifest = artifact.join("manifest.json");
        let text =
            std::fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
        let weights = artifact.join("weights.safetensors");
        let header = header(&weights).with_context(|| weights.display().to_string())?;
        Ok(Self {
            weights: weights_of(&header),
            cache_per_token: cache_of(&serde_json::from_str(&text)?)
                .with_context(|| manifest.display().to_string())?,
        })
    }

    /// Bytes for one of `tokens` that a step adds to a cache that holds `held`.
    pub(super) fn per_token(&self, tokens: usize, held: usize) -> u64 {
        self.weights / tokens as u64 + self.cache_per_token * (held as u64 + 1)
    }
}

/// The JSON header of a safetensors file.
fn header(path: &Path) -> Result<Value> {
    let mut file = File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    ensure!(length <= LONGEST_HEADER, "the header has {length} bytes");
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// The bytes of all tensors. Of an embedding beside a head of its own a step reads one row, which does not count.
fn weights_of(header: &Value) -> u64 {
    let tensors = || header.as_object().into_iter().flatten();
    let head = tensors().any(|(name, _)| name.contains("lm_head"));
    tensors()
        .filter(|(name, _)| !(head && name.contains("embed_tokens")))
        .filter_map(|(_, tensor)| {
            let [begin, end] = [0, 1].map(|index| tensor["data_offsets"][index].as_u64());
            end?.checked_sub(begin?)
        })
        .sum()
}

/// The bytes that one token takes in all caches of a manifest. A memory counts as well, which a token
/// changes as a whole.
fn cache_of(manifest: &Value) -> Result<u64> {
    let buffers = manifest["buffers"]
        .as_array()
        .context("no list `buffers`")?;
    buffers.iter().map(buffer_of).sum()
}

fn buffer_of(buffer: &Value) -> Result<u64> {
    let shape = buffer["shape"]
        .as_array()
        .context("a buffer has no `shape`")?;
    let tokens = buffer["tokens_dim"].as_u64();
    let dtype = buffer["dtype"].as_str().unwrap_or("");
    let bits: u64 = dtype
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .with_context(|| format!("a buffer has the type {dtype:?}"))?;
    let others = shape
        .iter()
        .enumerate()
        .filter(|(index, _)| Some(*index as u64) != tokens);
    let elements: u64 = others.filter_map(|(_, size)| size.as_u64()).product();
    Ok(elements * bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tied_embedding_counts_and_one_beside_a_head_does_not() {
        let tensor = |begin: u64, end: u64| json!({"data_offsets": [begin, end]});
        let tied = json!({
            "__metadata__": {"format": "pt"},
            "model.embed_tokens.weight": tensor(0, 100),
            "model.norm.weight": tensor(100, 110),
        });
        assert_eq!(weights_of(&tied), 110);
        let mut untied = tied;
        untied["lm_head.weight"] = tensor(110, 210);
        assert_eq!(weights_of(&untied), 110);
    }

    #[test]
    fn a_cache_has_so_many_bytes_for_each_token() {
        let buffer = json!({"name": "cache.0.key", "dtype": "f32", "shape": [1, 512, 3, 64], "tokens_dim": 1});
        let manifest = json!({"buffers": [buffer, buffer]});
        assert_eq!(cache_of(&manifest).unwrap(), 2 * 3 * 64 * 4);
        let error = cache_of(&json!({"buffers": [{"shape": [1], "tokens_dim": 0, "dtype": "q"}]}));
        assert!(error.unwrap_err().to_string().contains("\"q\""));
    }

    #[test]
    fn a_token_of_a_long_step_moves_its_share_of_the_weights() {
        let traffic = Traffic {
            weights: 1000,
            cache_per_token: 10,
        };
        assert_eq!(traffic.per_token(1, 4), 1050);
        assert_eq!(traffic.per_token(10, 0), 110);
    }
}
