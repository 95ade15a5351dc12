//! The embedded tokenizer and chat template as the files that a model folder has.

use super::Metadata;
use super::read::Value as Metadatum;
use crate::LoadError;
use crate::text::{GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Kinds of tokens, as `tokenizer.ggml.token_type` has them.
mod kind {
    pub(super) const NORMAL: i64 = 1;
    pub(super) const UNKNOWN: i64 = 2;
    pub(super) const CONTROL: i64 = 3;
    pub(super) const USER: i64 = 4;
}

/// `tokenizer.json`, `tokenizer_config.json` and `generation_config.json` of a file.
pub(super) fn files(metadata: &Metadata<'_>) -> Result<Vec<(String, Vec<u8>)>, LoadError> {
    let vocabulary = Vocabulary::read(metadata)?;
    let field = "tokenizer.ggml.model";
    let (tokenizer, add_bos) = match metadata.required(field, metadata.text(field)?)? {
        "gpt2" => byte_level(metadata, &vocabulary)?,
        "llama" => (sentence_piece(metadata, &vocabulary)?, true),
        other => {
            let reason = format!("`{other}` is not supported; supported are gpt2, llama");
            return Err(metadata.error(field, reason));
        }
    };
    let mut config = Map::new();
    let add_bos = metadata
        .flag("tokenizer.ggml.add_bos_token")?
        .unwrap_or(add_bos);
    config.insert("add_bos_token".into(), add_bos.into());
    for (name, key) in [
        ("bos_token", "bos"),
        ("eos_token", "eos"),
        ("unk_token", "unknown"),
        ("pad_token", "padding"),
    ] {
        if let Some((_, token)) = vocabulary.special(metadata, key)? {
            config.insert(name.into(), token.into());
        }
    }
    if let Some(template) = metadata.text("tokenizer.chat_template")? {
        config.insert("chat_template".into(), template.into());
    }
    let mut ends = Vec::new();
    for key in ["eos", "eot", "eom"] {
        if let Some((id, _)) = vocabulary.special(metadata, key)?
            && !ends.contains(&id)
        {
            ends.push(id);
        }
    }
    let generation = json!({ "eos_token_id": ends });
    Ok(vec![
        (TOKENIZER.into(), tokenizer.to_string().into_bytes()),
        (
            TOKENIZER_CONFIG.into(),
            Value::Object(config).to_string().into_bytes(),
        ),
        (
            GENERATION_CONFIG.into(),
            generation.to_string().into_bytes(),
        ),
    ])
}

struct Vocabulary<'a> {
    tokens: &'a [&'a str],
    kinds: Vec<i64>,
    ids: HashMap<&'a str, usize>,
}

impl<'a> Vocabulary<'a> {
    fn read(metadata: &Metadata<'a>) -> Result<Self, LoadError> {
        let field = "tokenizer.ggml.tokens";
        let tokens = metadata.required(field, metadata.texts(field)?)?;
        let field = "tokenizer.ggml.token_type";
        let kinds: Vec<i64> =
            match metadata.optional(field, "a list of numbers", Metadatum::integers)? {
                Some(kinds) => kinds.collect(),
                None => vec![kind::NORMAL; tokens.len()],
            };
        if kinds.len() != tokens.len() {
            let reason = format!("has {} entries for {} tokens", kinds.len(), tokens.len());
            return Err(metadata.error(field, reason));
        }
        let mut ids = HashMap::with_capacity(tokens.len());
        for (id, &token) in tokens.iter().enumerate() {
            ids.entry(token).or_insert(id);
        }
        Ok(Self { tokens, kinds, ids })
    }

    /// Id and text of the special token that the metadata calls `key`.
    fn special(
        &self,
        metadata: &Metadata<'_>,
        key: &str,
    ) -> Result<Option<(usize, &'a str)>, LoadError> {
        let field = format!("tokenizer.ggml.{key}_token_id");
        let Some(id) = metadata.size(&field)? else {
            return Ok(None);
        };
        let found = usize::try_from(id)
            .ok()
            .and_then(|id| Some((id, *self.tokens.get(id)?)));
        match found {
            Some(found) => Ok(Some(found)),
            None => {
                let reason = format!("{id} is none of the {} tokens", self.tokens.len());
                Err(metadata.error(&field, reason))
            }
        }
    }

    fn json(&self) -> Value {
        let entries = self.ids.iter();
        Value::Object(
            entries
                .map(|(token, id)| (token.to_string(), json!(id)))
                .collect(),
        )
    }

    /// The tokens that are found in a text as they stand: those of the given kinds.
    fn added(&self, kinds: &[i64]) -> Value {
        let added = self.tokens.iter().enumerate().filter_map(|(id, token)| {
            let own = self.kinds[id];
            (kinds.contains(&own) && self.ids.get(token) == Some(&id)).then(|| {
                json!({
                    "id": id,
                    "content": token,
                    "single_word": false,
                    "lstrip": false,
                    "rstrip": false,
                    "normalized": own == kind::USER,
                    "special": own != kind::USER,
                })
            })
        });
        added.collect()
    }
}

/// The contractions, words and whitespace that the patterns of Llama 3 and Qwen 2 share; `digits` is
/// how many of them stand together.
fn modern(digits: &str) -> String {
    format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// How a text is cut before its bytes are merged, by the value of `tokenizer.ggml.pre`, and whether
/// a first token is added unless the file says otherwise.
fn cutting(pre: &str) -> Option<(Vec<Value>, bool)> {
    let split = |pattern: &str| {
        json!({
            "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false,
        })
    };
    let bytes = |cut: bool| {
        json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": cut,
        })
    };
    Some(match pre {
        "gpt-2" | "gpt2" => (vec![bytes(true)], false),
        "smollm" => (
            vec![
                json!({"type": "Digits", "individual_digits": true}),
                bytes(true),
            ],
            false,
        ),
        "llama-bpe" | "llama3" | "llama-v3" => (vec![split(&modern("{1,3}")), bytes(false)], true),
        "qwen2" | "deepseek-r1-qwen" => (vec![split(&modern("")), bytes(false)], false),
        "default" => (
            vec![
                split(r"[\p{P}\$\+<=>\^~\|]+"),
                split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
                split(r"\p{N}+"),
                split("[0-9][0-9][0-9]"),
                bytes(false),
            ],
            false,
        ),
        _ => return None,
    })
}

/// A tokenizer that merges bytes, and whether it adds a first token by default.
fn byte_level(
    metadata: &Metadata<'_>,
    vocabulary: &Vocabulary<'_>,
) -> Result<(Value, bool), LoadError> {
    let field = "tokenizer.ggml.pre";
    let pre = metadata.text(field)?.unwrap_or("default");
    let (cut, add_bos) = cutting(pre).ok_or_else(|| {
        let reason = format!(
            "`{pre}` is not supported; supported are default, gpt-2, smollm, llama-bpe, qwen2"
        );
        metadata.error(field, reason)
    })?;
    let field = "tokenizer.ggml.merges";
    let merges = metadata.required(field, metadata.texts(field)?)?;
    let merges: Vec<Value> = merges
        .iter()
        .map(|merge| {
            // The first byte may itself stand for a space in other encodings, never in this one.
            merge
                .split_once(' ')
                .map(|(left, right)| json!([left, right]))
                .ok_or_else(|| metadata.error(field, format!("`{merge}` is not two tokens")))
        })
        .collect::<Result<_, _>>()?;
    let normalizer = match pre {
        "qwen2" => json!({"type": "NFC"}),
        _ => Value::Null,
    };
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added(&[kind::CONTROL, kind::USER]),
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cut},
        "post_processor": null,
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
        },
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            // Llama 3 takes a word that is a token whole, whatever its merges.
            "ignore_merges": matches!(pre, "llama-bpe" | "llama3" | "llama-v3"),
            "vocab": vocabulary.json(),
            "merges": merges,
        },
    });
    Ok((tokenizer, add_bos))
}

/// A tokenizer of SentencePiece's kind: pieces with scores, spaces as U+2581, unknown characters as
/// bytes. Its merges are the ways to split a piece in two, those of the best pieces first.
fn sentence_piece(
    metadata: &Metadata<'_>,
    vocabulary: &Vocabulary<'_>,
) -> Result<Value, LoadError> {
    let field = "tokenizer.ggml.scores";
    let scores = metadata.optional(field, "a list of f32", Metadatum::floats)?;
    let scores: Vec<f32> = metadata.required(field, scores)?.collect();
    if scores.len() != vocabulary.tokens.len() {
        return Err(metadata.error(field, "must have one entry for each token"));
    }
    let mut merges = Vec::new();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        // Longer pieces than this would take quadratic time, and no published vocabulary has one.
        if !matches!(vocabulary.kinds[id], kind::NORMAL | kind::USER) || token.len() > 512 {
            continue;
        }
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(&a), Some(&b)) = (vocabulary.ids.get(left), vocabulary.ids.get(right)) {
                merges.push((scores[id], a, b, left, right));
            }
        }
    }
    merges.sort_by(|x, y| y.0.total_cmp(&x.0).then((x.1, x.2).cmp(&(y.1, y.2))));
    let merges: Vec<Value> = merges
        .into_iter()
        .map(|(_, _, _, left, right)| json!([left, right]))
        .collect();
    let prefix = metadata
        .flag("tokenizer.ggml.add_space_prefix")?
        .unwrap_or(true);
    let mut normalizers = vec![json!({
        "type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}",
    })];
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        normalizers.insert(0, json!({"type": "Prepend", "prepend": "\u{2581}"}));
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let unknown = vocabulary
        .special(metadata, "unknown")?
        .map(|(_, token)| token);
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": vocabulary.added(&[kind::UNKNOWN, kind::CONTROL, kind::USER]),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": unknown,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": true,
            "byte_fallback": true,
            "ignore_merges": false,
            "vocab": vocabulary.json(),
            "merges": merges,
        },
    }))
}
