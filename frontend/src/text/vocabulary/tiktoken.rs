//! Lists of ranks as tiktoken has them: a token's bytes in base64 and its rank, which is its id and
//! says how early it is merged.

use super::byte_level::{cased, modern};
use super::describe::{self, Tokenizer};
use crate::text::settings::TokenizerSettings;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use tokenizers::AddedToken;

/// Longer tokens are found as whole words only: every way to split one is looked at. No published
/// vocabulary has one half as long.
const LONGEST: usize = 512;

/// A published list of ranks.
struct Known {
    /// What a model's type or tokenizer class begins with, in lower case.
    names: &'static [&'static str],
    /// How many ranks it has.
    ranks: usize,
    /// How a text is cut.
    cut: Cut,
    /// The special tokens after the ranks, in order, where the settings list none.
    special: &'static [&'static str],
    /// Which of them begin and end a text.
    ends: [Option<&'static str>; 2],
}

/// How a text is cut into words.
enum Cut {
    /// Words by case and digits by threes, as OpenAI's o200k.
    Cased,
    /// As o200k, but a run of Han characters is a word.
    Han,
    /// As cl100k and Llama 3.
    Threes,
    /// As cl100k, each digit alone.
    Digits,
}

impl Cut {
    fn pattern(&self) -> String {
        match self {
            Cut::Cased => format!(
                r"{}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                cased("", true)
            ),
            Cut::Han => format!(
                r"[\p{{Han}}]+|{}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                cased(r"&&[^\p{Han}]", true)
            ),
            Cut::Threes => modern("{1,3}"),
            Cut::Digits => modern(""),
        }
    }
}

const KNOWN: [Known; 5] = [
    Known {
        names: &["llama", "pretrainedtokenizer"],
        ranks: 128_000,
        cut: Cut::Threes,
        special: &[
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|reserved_special_token_0|>",
            "<|reserved_special_token_1|>",
            "<|finetune_right_pad_id|>",
            "<|reserved_special_token_2|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eom_id|>",
            "<|eot_id|>",
            "<|python_tag|>",
        ],
        ends: [Some("<|begin_of_text|>"), Some("<|end_of_text|>")],
    },
    Known {
        names: &["qwen"],
        ranks: 151_643,
        cut: Cut::Digits,
        special: &["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        ends: [None, Some("<|endoftext|>")],
    },
    Known {
        names: &["kimi", "deepseek", "tiktoken", "moonlight"],
        ranks: 163_584,
        cut: Cut::Han,
        special: &["[BOS]", "[EOS]"],
        ends: [Some("[BOS]"), Some("[EOS]")],
    },
    Known {
        names: &["gpt4", "cl100k", "dbrx", "phi", "gpt2"],
        ranks: 100_256,
        cut: Cut::Threes,
        special: &["<|endoftext|>"],
        ends: [None, Some("<|endoftext|>")],
    },
    Known {
        names: &["gpt_oss", "gpt4o", "o200k"],
        ranks: 199_998,
        cut: Cut::Cased,
        special: &["<|endoftext|>"],
        ends: [None, Some("<|endoftext|>")],
    },
];

/// Whether `bytes` are a list of ranks rather than a protocol buffer.
pub(super) fn is_ranks(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\n').next();
    line.is_some_and(|line| self::line(line).is_some())
}

/// A token and its rank.
fn line(line: &[u8]) -> Option<(Vec<u8>, usize)> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let (token, rank) = line.split_once(' ')?;
    let token = STANDARD.decode(token).ok()?;
    Some((token, rank.parse().ok()?))
}

/// The tokenizer of the ranks in `bytes`; `family` is the model's type.
pub(super) fn tokenizer(
    bytes: &[u8],
    settings: &TokenizerSettings,
    family: &str,
) -> Result<(Tokenizer, Map<String, Value>), String> {
    let mut ranks = Vec::new();
    for (at, text) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if !text.is_empty() {
            let entry = line(text)
                .ok_or_else(|| format!("line {} is not a token in base64 and a rank", at + 1))?;
            ranks.push(entry);
        }
    }
    let class = settings.class.to_lowercase();
    let named = |known: &&Known| {
        let of = |name: &str| !name.is_empty() && known.names.iter().any(|n| name.starts_with(n));
        of(family) || of(&class)
    };
    // The number of ranks is the surest sign; names serve cut-down lists.
    let known = KNOWN
        .iter()
        .find(|known| known.ranks == ranks.len())
        .or_else(|| KNOWN.iter().find(named))
        .ok_or_else(|| {
            format!(
                "has {} ranks, and neither config.json's `model_type` nor tokenizer_config.json's \
                 `tokenizer_class` says how its texts are cut; give the model's tokenizer.json",
                ranks.len()
            )
        })?;
    let after = ranks.iter().map(|(_, rank)| rank + 1).max().unwrap_or(0);
    let mut special = Map::new();
    let mut added = Vec::new();
    if settings.added.is_empty() {
        for (at, token) in known.special.iter().enumerate() {
            added.push((after + at, AddedToken::from(*token, true)));
        }
    } else {
        let own = settings.added.iter();
        added.extend(own.map(|(&id, token)| (id as usize, token.clone())));
    }
    for (name, token) in ["bos_token", "eos_token"].into_iter().zip(known.ends) {
        if let Some(token) = token {
            special.insert(name.into(), token.into());
        }
    }
    special.insert("add_bos_token".into(), known.ends[0].is_some().into());
    Ok((of_ranks(&ranks, added, &known.cut.pattern())?, special))
}

/// The tokenizer of tokens and ranks, with `added` tokens, which cuts a text by `pattern`.
pub(super) fn of_ranks(
    ranks: &[(Vec<u8>, usize)],
    added: Vec<(usize, AddedToken)>,
    pattern: &str,
) -> Result<Tokenizer, String> {
    let mut known: HashMap<&[u8], usize> = HashMap::with_capacity(ranks.len());
    let mut vocab = Map::new();
    for (bytes, rank) in ranks {
        if bytes.is_empty() || known.insert(bytes, *rank).is_some() {
            return Err(format!("the token of rank {rank} is empty or there twice"));
        }
        vocab.insert(describe::byte_chars(bytes), json!(rank));
    }
    // Two tokens merge as early as what they make ranks.
    let mut merges = Vec::new();
    for (bytes, rank) in ranks.iter().filter(|(bytes, _)| bytes.len() <= LONGEST) {
        for at in 1..bytes.len() {
            let (left, right) = bytes.split_at(at);
            if let (Some(&a), Some(&b)) = (known.get(left), known.get(right)) {
                merges.push((*rank, a, b, left, right));
            }
        }
    }
    merges.sort_unstable_by_key(|&(rank, a, b, ..)| (rank, a, b));
    let merges = merges
        .into_iter()
        .map(|(.., left, right)| json!([describe::byte_chars(left), describe::byte_chars(right)]))
        .collect();
    let added = added
        .into_iter()
        .map(|(id, token)| {
            // In the vocabulary too: the crate numbers added tokens by itself otherwise.
            vocab.entry(token.content.clone()).or_insert(json!(id));
            describe::added(id, &token)
        })
        .collect();
    let mut model = describe::bpe(vocab, merges);
    model["ignore_merges"] = true.into();
    Ok(Tokenizer {
        added,
        normalizer: Vec::new(),
        pre_tokenizer: vec![describe::split(pattern), describe::byte_level(false, false)],
        post_processor: Value::Null,
        decoder: describe::byte_level_decoder(),
        model,
    })
}
