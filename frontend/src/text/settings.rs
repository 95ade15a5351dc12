//! `tokenizer_config.json`, the chat template's files and `generation_config.json`.

use super::template::Template;
use crate::config::{fields::Fields, token_ids};
use crate::{LoadError, map};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Name of the tokenizer.
pub(crate) const TOKENIZER: &str = "tokenizer.json";
/// Name of the tokenizer's settings.
pub(crate) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// Name of the chat template in a file of its own.
pub(super) const TEMPLATE: &str = "chat_template.jinja";
/// Name of the generation settings.
pub(crate) const GENERATION_CONFIG: &str = "generation_config.json";

/// The text files of a model, as bytes by name; a GGUF file yields the same set.
#[derive(Debug, Default)]
pub(crate) struct TextFiles {
    /// The folder or file they are from.
    pub(crate) origin: PathBuf,
    /// Name and content.
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

impl TextFiles {
    /// Reads those that `folder` has.
    pub(super) fn read(folder: &Path) -> Result<Self, LoadError> {
        let names = [
            (TOKENIZER, map::TOKENIZER),
            (TOKENIZER_CONFIG, map::SMALL),
            (TEMPLATE, map::SMALL),
            (GENERATION_CONFIG, map::SMALL),
        ];
        let mut files = Vec::new();
        for (name, limit) in names {
            let path = folder.join(name);
            if path.is_file() {
                files.push((name.to_string(), map::read(&path, limit)?));
            }
        }
        Ok(Self {
            origin: folder.to_path_buf(),
            files,
        })
    }

    /// The content of the file called `name`.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.files
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, bytes)| bytes.as_slice())
    }

    /// Where the file called `name` is, for messages.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        match self.origin.is_dir() {
            true => self.origin.join(name),
            false => self.origin.clone(),
        }
    }

    /// The JSON in the file called `name`.
    pub(super) fn json(&self, name: &str) -> Result<Option<Value>, LoadError> {
        self.get(name)
            .map(|bytes| map::parse_json(&self.path(name), bytes))
            .transpose()
    }
}

/// What `tokenizer_config.json` says.
#[derive(Debug, Default)]
pub(super) struct TokenizerSettings {
    /// Whether a text with special tokens starts with the first of them.
    pub(super) add_bos: bool,
    /// The special tokens that templates may name: `bos_token`, `eos_token` and the like.
    pub(super) special: Map<String, Value>,
}

impl TokenizerSettings {
    pub(super) fn parse(file: &Path, value: &Value) -> Result<Self, LoadError> {
        let fields = Fields::root(file, value)?;
        let mut special = Map::new();
        for name in ["bos_token", "eos_token", "unk_token", "pad_token"] {
            // Either the token's text or an object that describes it.
            let text = match fields.get(name) {
                Some(Value::Object(_)) => fields
                    .object(name)?
                    .map(|token| token.text("content"))
                    .transpose()?
                    .flatten(),
                _ => fields.text(name)?,
            };
            if let Some(text) = text {
                special.insert(name.into(), text.into());
            }
        }
        Ok(Self {
            add_bos: fields.flag("add_bos_token")?.unwrap_or(false),
            special,
        })
    }

    /// The text of the special token `name`.
    pub(super) fn token(&self, name: &str) -> Option<&str> {
        self.special.get(name).and_then(Value::as_str)
    }
}

/// The chat template, from its own file or the tokenizer's settings.
pub(super) fn template(
    files: &TextFiles,
    settings: Option<&Value>,
) -> Result<Option<Template>, LoadError> {
    if let Some(bytes) = files.get(TEMPLATE) {
        let file = files.path(TEMPLATE);
        let source = std::str::from_utf8(bytes)
            .map_err(|error| LoadError::format(&file, format!("is not UTF-8: {error}")))?;
        return Template::new(source)
            .map(Some)
            .map_err(|reason| LoadError::format(&file, format!("chat template: {reason}")));
    }
    let Some(settings) = settings else {
        return Ok(None);
    };
    let file = files.path(TOKENIZER_CONFIG);
    let fields = Fields::root(&file, settings)?;
    let field = "chat_template";
    let source = match fields.get(field) {
        None => return Ok(None),
        Some(Value::String(source)) => source,
        Some(Value::Array(named)) => {
            let find = |wanted: &str| {
                let entry = named.iter().find(|entry| entry["name"] == wanted)?;
                entry["template"].as_str()
            };
            find("default").ok_or_else(|| {
                fields.error(field, "is a list without a template named `default`")
            })?
        }
        Some(other) => return Err(fields.expected(field, "a template or a list of them", other)),
    };
    Template::new(source)
        .map(Some)
        .map_err(|reason| fields.error(field, reason))
}

/// The end tokens that `value` of `file` names.
pub(super) fn end_tokens(file: &Path, value: &Value) -> Result<Vec<u32>, LoadError> {
    token_ids(&Fields::root(file, value)?, "eos_token_id")
}
