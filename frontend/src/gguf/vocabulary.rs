//! The embedded tokenizer and chat template as the files that a model folder has.

mod cutting;

use super::Metadata;
use super::read::Value as Metadatum;
use crate::LoadError;
use crate::text::describe::{self, Tokenizer};
use crate::text::pieces::{Kind, Piece, Prefix, Usage};
use crate::text::{self, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG, word_piece};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use tokenizers::AddedToken;

/// Kinds of tokens, as `tokenizer.ggml.token_type` has them.
mod kind {
    pub(super) const NORMAL: i64 = 1;
    pub(super) const UNKNOWN: i64 = 2;
    pub(super) const CONTROL: i64 = 3;
    pub(super) const USER: i64 = 4;
    pub(super) const BYTE: i64 = 6;
}

/// `tokenizer.json`, `tokenizer_config.json` and `generation_config.json` of a file.
pub(super) fn files(metadata: &Metadata<'_>) -> Result<Vec<(String, Vec<u8>)>, LoadError> {
    let vocabulary = Vocabulary::read(metadata)?;
    let field = "tokenizer.ggml.model";
    let model = metadata.required(field, metadata.text(field)?)?;
    let make = MODELS.iter().find(|(name, _)| *name == model);
    let Some((_, make)) = make else {
        let known: Vec<&str> = MODELS.iter().map(|(name, _)| *name).collect();
        let reason = format!(
            "`{model}` is not supported; supported are {}",
            known.join(", ")
        );
        return Err(metadata.error(field, reason));
    };
    let (tokenizer, add_bos) = make(metadata, &vocabulary)?;
    let mut config = Map::new();
    let add_bos = metadata
        .flag("tokenizer.ggml.add_bos_token")?
        .unwrap_or(add_bos);
    config.insert("add_bos_token".into(), add_bos.into());
    if let Some(add_eos) = metadata.flag("tokenizer.ggml.add_eos_token")? {
        config.insert("add_eos_token".into(), add_eos.into());
    }
    for (name, key) in [
        ("bos_token", "bos"),
        ("eos_token", "eos"),
        ("unk_token", "unknown"),
        ("pad_token", "padding"),
        ("cls_token", "cls"),
        ("sep_token", "seperator"),
        ("mask_token", "mask"),
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
        (TOKENIZER.into(), tokenizer.json().to_string().into_bytes()),
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

/// The kinds of vocabulary, by the value of `tokenizer.ggml.model`.
const MODELS: [(&str, Make); 5] = [
    ("gpt2", byte_level),
    ("llama", |metadata, vocabulary| {
        pieces(metadata, vocabulary, false)
    }),
    ("t5", |metadata, vocabulary| {
        pieces(metadata, vocabulary, true)
    }),
    ("gemma4", merged_pieces),
    ("bert", word_pieces),
];

type Make = fn(&Metadata<'_>, &Vocabulary<'_>) -> Result<Made, LoadError>;

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

    fn json(&self) -> Map<String, Value> {
        let entries = self.ids.iter();
        entries
            .map(|(token, id)| (token.to_string(), json!(id)))
            .collect()
    }

    /// The tokens that are found in a text as they stand: those of the given kinds.
    fn added(&self, kinds: &[i64]) -> Vec<Value> {
        let added = self.tokens.iter().enumerate().filter_map(|(id, token)| {
            let own = self.kinds[id];
            let token = AddedToken::from(*token, own != kind::USER);
            (kinds.contains(&own) && self.ids.get(token.content.as_str()) == Some(&id))
                .then(|| describe::added(id, &token))
        });
        added.collect()
    }
}

/// What a kind of vocabulary is made into, and whether it adds a first token unless told.
type Made = (Tokenizer, bool);

/// A tokenizer that merges bytes.
fn byte_level(metadata: &Metadata<'_>, vocabulary: &Vocabulary<'_>) -> Result<Made, LoadError> {
    let field = "tokenizer.ggml.pre";
    let pre = metadata.text(field)?.unwrap_or("default");
    let cutting = cutting::find(pre).map_err(|known| {
        metadata.error(
            field,
            format!("`{pre}` is not supported; supported are {known}"),
        )
    })?;
    let mut model = describe::bpe(vocabulary.json(), merges(metadata)?);
    model["ignore_merges"] = cutting.whole.into();
    let tokenizer = Tokenizer {
        added: vocabulary.added(&[kind::CONTROL, kind::USER]),
        normalizer: cutting.normalizer,
        pre_tokenizer: cutting.steps,
        post_processor: Value::Null,
        decoder: describe::byte_level_decoder(),
        model,
    };
    Ok((tokenizer, cutting.add_bos))
}

fn merges(metadata: &Metadata<'_>) -> Result<Vec<Value>, LoadError> {
    let field = "tokenizer.ggml.merges";
    let merges = metadata.required(field, metadata.texts(field)?)?;
    let pair = |merge: &&str| {
        // A token may itself start with a space in vocabularies of pieces.
        let at = merge.char_indices().skip(1).find(|&(_, c)| c == ' ');
        at.map(|(at, _)| json!([merge[..at], merge[at + 1..]]))
            .ok_or_else(|| metadata.error(field, format!("`{merge}` is not two tokens")))
    };
    merges.iter().map(pair).collect()
}

/// A tokenizer of SentencePiece's kind: pieces with scores.
fn pieces(
    metadata: &Metadata<'_>,
    vocabulary: &Vocabulary<'_>,
    unigram: bool,
) -> Result<Made, LoadError> {
    let field = "tokenizer.ggml.scores";
    let scores = metadata.optional(field, "a list of f32", Metadatum::floats)?;
    let scores: Vec<f32> = metadata.required(field, scores)?.collect();
    if scores.len() != vocabulary.tokens.len() {
        return Err(metadata.error(field, "must have one entry for each token"));
    }
    let parts = vocabulary.tokens.iter().zip(&vocabulary.kinds).zip(scores);
    let pieces: Vec<Piece<'_>> = parts
        .map(|((&text, &kind), score)| Piece {
            text,
            score: if score.is_finite() { score } else { 0.0 },
            kind: Kind::from_number(kind).unwrap_or(Kind::Normal),
        })
        .collect();
    let flag = |name: &str, otherwise: bool| {
        let flag = metadata.flag(&format!("tokenizer.ggml.{name}"))?;
        Ok::<bool, LoadError>(flag.unwrap_or(otherwise))
    };
    let field = "tokenizer.ggml.precompiled_charsmap";
    let characters = metadata.optional(field, "a list of bytes", Metadatum::integers)?;
    let characters = characters.map(|bytes| bytes.map(|byte| byte as u8).collect::<Vec<u8>>());
    let unknown = vocabulary.special(metadata, "unknown")?;
    let usage = Usage {
        unigram,
        bytes: vocabulary.kinds.contains(&kind::BYTE),
        unknown: unknown.map_or(0, |(id, _)| id),
        prefix: match flag("add_space_prefix", true)? {
            true => Prefix::Always,
            false => Prefix::Never,
        },
        squeeze: flag("remove_extra_whitespaces", false)?,
        characters: characters.as_deref().filter(|map| !map.is_empty()),
    };
    let tokenizer = text::pieces::tokenizer(&pieces, usage)
        .map_err(|reason| metadata.error("tokenizer.ggml.tokens", reason))?;
    Ok((tokenizer, true))
}

/// A tokenizer that merges characters, spaces as U+2581, by a list of merges, as Gemma 4's.
fn merged_pieces(metadata: &Metadata<'_>, vocabulary: &Vocabulary<'_>) -> Result<Made, LoadError> {
    let unknown = vocabulary.special(metadata, "unknown")?;
    let mut model = describe::bpe(vocabulary.json(), merges(metadata)?);
    model["unk_token"] = unknown.map(|(_, token)| token).into();
    model["fuse_unk"] = true.into();
    model["byte_fallback"] = true.into();
    let tokenizer = Tokenizer {
        added: vocabulary.added(&[kind::UNKNOWN, kind::CONTROL, kind::USER]),
        normalizer: vec![describe::replace(" ", describe::SPACE)],
        decoder: describe::pieces_decoder(false),
        model,
        ..Tokenizer::default()
    };
    Ok((tokenizer, true))
}

/// BERT's tokenizer. Its words carry a mark in front here, and their inner parts none, where the
/// original has none and `##`.
fn word_pieces(metadata: &Metadata<'_>, vocabulary: &Vocabulary<'_>) -> Result<Made, LoadError> {
    let spelled = |(&token, &own): (&&str, &i64)| match token.strip_prefix(describe::SPACE) {
        _ if own != kind::NORMAL => token.to_string(),
        Some(word) => word.to_string(),
        None => format!("##{token}"),
    };
    let words = vocabulary.tokens.iter().zip(&vocabulary.kinds);
    let words: Vec<String> = words.map(spelled).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut roles = [""; 3];
    let keys = [
        ["cls", "bos"],
        ["seperator", "separator"],
        ["unknown", "unk"],
    ];
    for (role, keys) in roles.iter_mut().zip(keys) {
        for key in keys.iter().rev() {
            if let Some((id, _)) = vocabulary.special(metadata, key)? {
                *role = words[id];
            }
        }
        if role.is_empty() {
            let field = format!("tokenizer.ggml.{}_token_id", keys[0]);
            return Err(metadata.error(&field, "is missing"));
        }
    }
    let special = words.iter().zip(&vocabulary.kinds);
    let special: Vec<&str> = special
        .filter(|&(_, &own)| own == kind::CONTROL)
        .map(|(&word, _)| word)
        .collect();
    // Whether letters become small is not told; a vocabulary without large ones tells it.
    let large =
        |word: &&str| !special.contains(word) && word.contains(|c: char| c.is_ascii_uppercase());
    let usage = word_piece::Usage {
        lowercase: !words.iter().any(large),
        strip_accents: None,
        cut_chinese: true,
    };
    let tokenizer = word_piece::describe(&words, usage, &special, roles)
        .map_err(|reason| metadata.error("tokenizer.ggml.tokens", reason))?;
    Ok((tokenizer, false))
}

#[cfg(test)]
mod tests;
