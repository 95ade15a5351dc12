//! `tokenizer_config.json`, its older companions, and `generation_config.json`.

use super::files::{ADDED_TOKENS, SPECIAL_TOKENS, TOKENIZER_CONFIG, TextFiles};
use crate::LoadError;
use crate::config::{fields::Fields, token_ids};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;
use tokenizers::AddedToken;

/// Special tokens that have a name of their own.
const NAMED: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "pad_token",
    "cls_token",
    "sep_token",
    "mask_token",
];
/// Lists of further special tokens.
const LISTED: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

/// What `tokenizer_config.json` says, and where it is silent, `special_tokens_map.json` and
/// `added_tokens.json`.
#[derive(Debug, Default)]
pub(super) struct TokenizerSettings {
    /// Whether a text starts with the first special token; unless said, the tokenizer decides.
    pub(super) add_bos: Option<bool>,
    /// Whether a text ends with the end token.
    pub(super) add_eos: bool,
    /// The special tokens that templates may name: `bos_token`, `eos_token` and the like.
    pub(super) special: Map<String, Value>,
    /// Tokens that are found in a text as they stand, by id.
    pub(super) added: BTreeMap<u32, AddedToken>,
    /// The class that transformers has for the tokenizer (`LlamaTokenizer`), without `Fast`.
    pub(super) class: String,
    /// Whether SentencePiece's first space stands before each part between special tokens.
    pub(super) legacy: Option<bool>,
    /// Whether a space is added at the start.
    pub(super) add_prefix_space: Option<bool>,
    /// Whether text becomes lower case.
    pub(super) lowercase: Option<bool>,
    /// Whether accents are dropped.
    pub(super) strip_accents: Option<bool>,
    /// Whether each CJK character is a word.
    pub(super) cut_chinese: Option<bool>,
}

impl TokenizerSettings {
    pub(super) fn read(files: &TextFiles) -> Result<Self, LoadError> {
        let mut settings = Self::default();
        if let Some(value) = files.json(TOKENIZER_CONFIG)? {
            let file = files.path(TOKENIZER_CONFIG);
            settings.config(&Fields::root(&file, &value)?)?;
        }
        if let Some(value) = files.json(SPECIAL_TOKENS)? {
            let file = files.path(SPECIAL_TOKENS);
            settings.special_tokens(&Fields::root(&file, &value)?)?;
        }
        if let Some(value) = files.json(ADDED_TOKENS)?
            && settings.added.is_empty()
        {
            let file = files.path(ADDED_TOKENS);
            let fields = Fields::root(&file, &value)?;
            for (content, id) in fields.entries() {
                let id = id
                    .as_u64()
                    .and_then(|id| u32::try_from(id).ok())
                    .ok_or_else(|| fields.expected(content, "a token id", id))?;
                let special = settings.is_special(content);
                let token = AddedToken::from(content, special).normalized(!special);
                settings.added.insert(id, token);
            }
        }
        Ok(settings)
    }

    fn config(&mut self, fields: &Fields<'_>) -> Result<(), LoadError> {
        self.special_tokens(fields)?;
        self.add_bos = fields.flag("add_bos_token")?;
        self.add_eos = fields.flag("add_eos_token")?.unwrap_or(false);
        self.legacy = fields.flag("legacy")?;
        self.add_prefix_space = fields.flag("add_prefix_space")?;
        self.lowercase = fields.flag("do_lower_case")?;
        self.strip_accents = fields.flag("strip_accents")?;
        self.cut_chinese = fields.flag("tokenize_chinese_chars")?;
        let class = fields.text("tokenizer_class")?.unwrap_or_default();
        self.class = class.strip_suffix("Fast").unwrap_or(class).into();
        let name = "added_tokens_decoder";
        if let Some(decoder) = fields.object(name)? {
            for (id, _) in decoder.entries() {
                let number = id
                    .parse::<u32>()
                    .map_err(|_| fields.error(name, format!("`{id}` is not a token id")))?;
                if let Some(token) = decoder.object(id)? {
                    self.added.insert(number, added_token(&token)?);
                }
            }
        }
        Ok(())
    }

    /// Takes the special tokens that are not known yet.
    fn special_tokens(&mut self, fields: &Fields<'_>) -> Result<(), LoadError> {
        for name in NAMED {
            if let Some(text) = token_text(fields, name)?
                && !self.special.contains_key(name)
            {
                self.special.insert(name.into(), text.into());
            }
        }
        for name in LISTED {
            match fields.get(name) {
                Some(Value::Array(tokens)) if !self.special.contains_key(name) => {
                    let texts = tokens.iter().filter_map(|token| match token {
                        Value::String(text) => Some(text.as_str()),
                        other => other["content"].as_str(),
                    });
                    let texts: Vec<Value> = texts.map(Value::from).collect();
                    self.special.insert(name.into(), texts.into());
                }
                // Tokens with names of the model's own, such as `image_token`.
                Some(Value::Object(named)) => {
                    for (name, token) in named {
                        if let Some(text) = token.as_str().or(token["content"].as_str())
                            && !self.special.contains_key(name)
                        {
                            self.special.insert(name.clone(), text.into());
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The text of the special token `name`.
    pub(super) fn token(&self, name: &str) -> Option<&str> {
        self.special.get(name).and_then(Value::as_str)
    }

    /// The texts of all special tokens.
    pub(super) fn special_texts(&self) -> impl Iterator<Item = &str> {
        self.special.values().flat_map(|value| match value {
            Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect(),
            value => value.as_str().into_iter().collect::<Vec<_>>(),
        })
    }

    fn is_special(&self, token: &str) -> bool {
        self.special_texts().any(|text| text == token)
    }
}

/// Either a token's text or an object that describes it.
fn token_text<'a>(fields: &Fields<'a>, name: &str) -> Result<Option<&'a str>, LoadError> {
    match fields.get(name) {
        Some(Value::Object(_)) => Ok(fields
            .object(name)?
            .map(|token| token.text("content"))
            .transpose()?
            .flatten()),
        _ => fields.text(name),
    }
}

fn added_token(fields: &Fields<'_>) -> Result<AddedToken, LoadError> {
    let content = fields
        .text("content")?
        .ok_or_else(|| fields.missing("content"))?;
    let flag = |name: &str| fields.flag(name).map(|flag| flag.unwrap_or(false));
    let special = flag("special")?;
    Ok(AddedToken {
        content: content.into(),
        single_word: flag("single_word")?,
        lstrip: flag("lstrip")?,
        rstrip: flag("rstrip")?,
        normalized: fields.flag("normalized")?.unwrap_or(!special),
        special,
    })
}

/// The end tokens that `value` of `file` names.
pub(super) fn end_tokens(file: &Path, value: &Value) -> Result<Vec<u32>, LoadError> {
    token_ids(&Fields::root(file, value)?, "eos_token_id")
}
