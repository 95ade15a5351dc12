//! `vocab.json` with `merges.txt`: bytes that are merged, as GPT-2, RoBERTa and Qwen2 have them; and
//! how the texts of such vocabularies are cut into words first.

use super::describe::{self, Tokenizer};
use crate::text::settings::TokenizerSettings;
use serde_json::{Map, Value, json};
use tokenizers::AddedToken;

/// Words, numbers and whitespace as Llama 3, Qwen 2 and their kin tell them apart; `digits` says how
/// many of them stand together.
pub(crate) fn modern(digits: &str) -> String {
    format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// Words by case, as OpenAI's o200k, Mistral and Kimi tell them apart: `and` narrows the classes of
/// letters, `contractions` take an ending such as `'s` along.
pub(crate) fn cased(and: &str, contractions: bool) -> String {
    let first = format!(r"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{and}]");
    let then = format!(r"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{and}]");
    let end = match contractions {
        true => "(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        false => "",
    };
    format!("{first}*{then}+{end}|{first}+{then}*{end}")
}

/// The tokenizer of the ids in `vocab.json` and the lines of `merges.txt`.
pub(super) fn tokenizer(
    ids: &Value,
    merges: &str,
    settings: &TokenizerSettings,
) -> Result<(Tokenizer, Map<String, Value>), String> {
    let vocab = ids.as_object().ok_or("must hold an object of ids")?;
    if let Some((token, id)) = vocab.iter().find(|(_, id)| !id.is_u64()) {
        return Err(format!("the id of `{token}` is {id}"));
    }
    let id = |token: &str| vocab.get(token).and_then(Value::as_u64);
    let lines = merges.lines().filter(|line| !line.is_empty());
    let merges = lines
        // The first line may name a version; no merge starts with the same text.
        .filter(|line| !line.starts_with("#version"))
        .map(|line| {
            line.split_once(' ')
                .map(|(left, right)| json!([left, right]))
                .ok_or_else(|| format!("merges.txt: `{line}` is not two tokens"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let prefix_space = settings.add_prefix_space.unwrap_or(false);
    let class = settings.class.as_str();
    let qwen = class.starts_with("Qwen2");
    let between = match class {
        "RobertaTokenizer" | "BartTokenizer" | "LongformerTokenizer" => Some(["<s>", "</s>"]),
        "DebertaTokenizer" => Some(["[CLS]", "[SEP]"]),
        _ => None,
    };
    let mut special = Map::new();
    let defaults: &[(&str, &str)] = match between {
        Some(["<s>", _]) => &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("cls_token", "<s>"),
            ("sep_token", "</s>"),
            ("unk_token", "<unk>"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
        ],
        Some(_) => &[
            ("cls_token", "[CLS]"),
            ("sep_token", "[SEP]"),
            ("unk_token", "[UNK]"),
            ("pad_token", "[PAD]"),
            ("mask_token", "[MASK]"),
        ],
        None if qwen => &[("eos_token", "<|endoftext|>")],
        None => &[
            ("bos_token", "<|endoftext|>"),
            ("eos_token", "<|endoftext|>"),
        ],
    };
    let mut added = Vec::new();
    for &(name, default) in defaults {
        let token = settings.token(name).unwrap_or(default);
        let Some(id) = id(token) else { continue };
        let first = !special.values().any(|known| known == token);
        special.insert(name.into(), token.into());
        if first {
            // RoBERTa's mask takes the space before it, as a word would.
            let own = AddedToken::from(token, true).lstrip(name == "mask_token");
            added.push(describe::added(id as usize, &own));
        }
    }
    let post_processor = match between {
        Some(tokens) => {
            let [first, last] = tokens.map(|token| Some((token, id(token)? as usize)));
            let missing = || format!("has no tokens {}", tokens.join(", "));
            describe::around(&[first.ok_or_else(missing)?], &[last.ok_or_else(missing)?])
        }
        None => Value::Null,
    };
    let mut cut = Vec::new();
    if qwen {
        cut.push(describe::split(&modern("")));
    }
    cut.push(describe::byte_level(!qwen, prefix_space));
    let tokenizer = Tokenizer {
        added,
        normalizer: match qwen {
            true => vec![json!({ "type": "NFC" })],
            false => Vec::new(),
        },
        pre_tokenizer: cut,
        post_processor,
        decoder: describe::byte_level_decoder(),
        model: describe::bpe(vocab.clone(), merges),
    };
    Ok((tokenizer, special))
}
