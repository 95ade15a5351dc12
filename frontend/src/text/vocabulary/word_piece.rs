//! BERT's `vocab.txt`: a token for each line, the inner ones of a word marked by `##`.

use super::describe::{self, Tokenizer};
use crate::text::settings::TokenizerSettings;
use serde_json::{Map, Value, json};
use tokenizers::AddedToken;

/// How BERT's tokenizer changes a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) lowercase: bool,
    pub(crate) strip_accents: Option<bool>,
    pub(crate) cut_chinese: bool,
}

/// The tokenizer of the lines of `vocab.txt`.
pub(super) fn tokenizer(
    lines: &str,
    settings: &TokenizerSettings,
) -> Result<(Tokenizer, Map<String, Value>), String> {
    let mut words: Vec<&str> = lines.split('\n').collect();
    // What follows the last line's end is no line.
    if words.last() == Some(&"") {
        words.pop();
    }
    let words: Vec<&str> = (words.into_iter())
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
        .collect();
    let usage = Usage {
        lowercase: settings.lowercase.unwrap_or(true),
        strip_accents: settings.strip_accents,
        cut_chinese: settings.cut_chinese.unwrap_or(true),
    };
    // MPNet names its special tokens as RoBERTa does.
    let defaults = match settings.class.as_str() {
        "MPNetTokenizer" => ["<s>", "</s>", "[UNK]", "<pad>", "<mask>"],
        _ => ["[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"],
    };
    let names = [
        "cls_token",
        "sep_token",
        "unk_token",
        "pad_token",
        "mask_token",
    ];
    let mut special = Map::new();
    let mut tokens = Vec::new();
    for (name, default) in names.into_iter().zip(defaults) {
        let token = settings.token(name).unwrap_or(default);
        if words.contains(&token) {
            special.insert(name.into(), token.into());
            tokens.push(token);
        }
    }
    let named = |name: &str| special.get(name).and_then(Value::as_str);
    let (Some(cls), Some(sep), Some(unknown)) =
        (named("cls_token"), named("sep_token"), named("unk_token"))
    else {
        return Err(format!(
            "has none of the lines {}",
            defaults[..3].join(", ")
        ));
    };
    Ok((
        describe(&words, usage, &tokens, [cls, sep, unknown])?,
        special,
    ))
}

/// The tokenizer of `words`, whose ids are their places; `special` are found in a text as they stand,
/// and a text is put between the first two of `roles`, the third of which unknown words become.
pub(crate) fn describe(
    words: &[&str],
    usage: Usage,
    special: &[&str],
    roles: [&str; 3],
) -> Result<Tokenizer, String> {
    let mut vocab = Map::new();
    for (id, &word) in words.iter().enumerate() {
        // Of equal lines the last one counts, as in the original's dictionary.
        vocab.insert(word.into(), json!(id));
    }
    let id = |word: &str| {
        let id = vocab.get(word).and_then(Value::as_u64);
        id.map(|id| id as usize)
            .ok_or_else(|| format!("has no token `{word}`"))
    };
    let added = special
        .iter()
        .map(|&token| Ok(describe::added(id(token)?, &AddedToken::from(token, true))))
        .collect::<Result<_, String>>()?;
    let [cls, sep, unknown] = roles;
    Ok(Tokenizer {
        added,
        normalizer: vec![json!({
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": usage.cut_chinese,
            "strip_accents": usage.strip_accents,
            "lowercase": usage.lowercase,
        })],
        pre_tokenizer: vec![json!({ "type": "BertPreTokenizer" })],
        post_processor: describe::around(&[(cls, id(cls)?)], &[(sep, id(sep)?)]),
        decoder: json!({ "type": "WordPiece", "prefix": "##", "cleanup": true }),
        model: json!({
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        }),
    })
}
