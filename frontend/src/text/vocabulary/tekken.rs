//! Mistral's `tekken.json`: ranks as tiktoken has them, after a block of special tokens.

use super::describe::Tokenizer;
use super::tiktoken;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::collections::HashSet;
use tokenizers::AddedToken;

/// More special tokens are no model's; published files have 1000.
const MOST_SPECIAL: usize = 100_000;
/// The special tokens of files that list none.
const SPECIAL: [&str; 15] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
];

/// The tokenizer that `tekken.json` describes.
pub(super) fn tokenizer(value: &Value) -> Result<(Tokenizer, Map<String, Value>), String> {
    let config = &value["config"];
    let size = |name: &str| {
        let size = config[name].as_u64().filter(|&size| size < 1 << 24);
        size.map(|size| size as usize)
            .ok_or_else(|| format!("field `config.{name}` must be a number"))
    };
    let pattern = config["pattern"]
        .as_str()
        .ok_or("field `config.pattern` must be a string")?;
    let total = size("default_vocab_size")?;
    let block = size("default_num_special_tokens")?;
    if block > MOST_SPECIAL {
        return Err(format!(
            "field `config.default_num_special_tokens` is more than {MOST_SPECIAL}"
        ));
    }
    let ranked = total
        .checked_sub(block)
        .ok_or("field `config.default_vocab_size` is less than its special tokens")?;
    let entries = value["vocab"]
        .as_array()
        .ok_or("field `vocab` must be a list")?;
    let mut ranks = Vec::with_capacity(ranked.min(entries.len()));
    // The list may be longer than the model's vocabulary.
    for (at, entry) in entries.iter().take(ranked).enumerate() {
        let bytes = entry["token_bytes"]
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok());
        let bytes = bytes.ok_or_else(|| format!("`vocab[{at}].token_bytes` must be in base64"))?;
        ranks.push((bytes, block + at));
    }
    let token = |content: String| AddedToken::from(content, true);
    let mut added: Vec<(usize, AddedToken)> = match value["special_tokens"].as_array() {
        Some(listed) => (listed.iter().enumerate())
            .filter_map(|(at, entry)| {
                let id = entry["rank"].as_u64().map_or(at, |rank| rank as usize);
                Some((id, token(entry["token_str"].as_str()?.into())))
            })
            .filter(|&(id, _)| id < block)
            .collect(),
        None => (SPECIAL.iter().enumerate())
            .map(|(id, content)| (id, token((*content).into())))
            .collect(),
    };
    let known: HashSet<usize> = added.iter().map(|&(id, _)| id).collect();
    let rest = (0..block).filter(|id| !known.contains(id));
    added.extend(rest.map(|id| (id, token(format!("<SPECIAL_{id}>")))));
    let mut special = Map::new();
    special.insert("add_bos_token".into(), true.into());
    for (name, content) in [
        ("bos_token", "<s>"),
        ("eos_token", "</s>"),
        ("unk_token", "<unk>"),
        ("pad_token", "<pad>"),
    ] {
        if added.iter().any(|(_, token)| token.content == content) {
            special.insert(name.into(), content.into());
        }
    }
    Ok((tiktoken::of_ranks(&ranks, added, pattern)?, special))
}
