//! The text files of a model: which there are, and their bytes.

use crate::{LoadError, map};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Name of the tokenizer.
pub(crate) const TOKENIZER: &str = "tokenizer.json";
/// Name of the tokenizer's settings.
pub(crate) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// Name of the chat template in a file of its own.
pub(crate) const TEMPLATE: &str = "chat_template.jinja";
/// Name of the chat template in the file that processors write.
pub(super) const TEMPLATE_JSON: &str = "chat_template.json";
/// Name of the generation settings.
pub(crate) const GENERATION_CONFIG: &str = "generation_config.json";
/// Name of the older list of special tokens.
pub(super) const SPECIAL_TOKENS: &str = "special_tokens_map.json";
/// Name of the older list of added tokens.
pub(super) const ADDED_TOKENS: &str = "added_tokens.json";
/// The folder of templates beside the default one.
const MORE_TEMPLATES: &str = "additional_chat_templates";
/// More templates than that are no model's.
const TEMPLATES: usize = 64;

/// Vocabularies that stand for a `tokenizer.json`, in the order in which they are looked for.
pub(super) mod vocabulary {
    /// Names of a SentencePiece model; the first may also be a list of ranks.
    pub(in crate::text) const PIECES: [&str; 4] = [
        "tokenizer.model",
        "spiece.model",
        "spm.model",
        "sentencepiece.bpe.model",
    ];
    /// Name of the ids of a vocabulary of merged bytes.
    pub(in crate::text) const IDS: &str = "vocab.json";
    /// Name of its merges.
    pub(in crate::text) const MERGES: &str = "merges.txt";
    /// Name of a vocabulary of word pieces.
    pub(in crate::text) const WORDS: &str = "vocab.txt";
    /// Name of Mistral's ranks of bytes.
    pub(in crate::text) const TEKKEN: &str = "tekken.json";
    /// Name of a list of ranks.
    pub(in crate::text) const RANKS: &str = "tiktoken.model";
    /// The end of the name of a list of ranks.
    pub(in crate::text) const RANKS_END: &str = ".tiktoken";
}

/// The text files of a model, as bytes by name; a GGUF file yields the same set.
#[derive(Debug, Default)]
pub(crate) struct TextFiles {
    /// The folder or file they are from.
    pub(crate) origin: PathBuf,
    /// Name and content.
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

impl TextFiles {
    /// Whether `folder` has a vocabulary.
    pub(crate) fn present(folder: &Path) -> bool {
        let ranks = || listed(folder, vocabulary::RANKS_END).is_ok_and(|names| !names.is_empty());
        let names = vocabulary::PIECES.into_iter().chain([
            TOKENIZER,
            vocabulary::IDS,
            vocabulary::WORDS,
            vocabulary::TEKKEN,
            vocabulary::RANKS,
        ]);
        names.into_iter().any(|name| folder.join(name).is_file()) || ranks()
    }

    /// Reads those that `folder` has; vocabularies only if there is no `tokenizer.json`.
    pub(super) fn read(folder: &Path) -> Result<Self, LoadError> {
        let mut found = Self {
            origin: folder.to_path_buf(),
            files: Vec::new(),
        };
        found.add(TOKENIZER, map::TOKENIZER)?;
        for name in [
            TOKENIZER_CONFIG,
            TEMPLATE,
            TEMPLATE_JSON,
            GENERATION_CONFIG,
            SPECIAL_TOKENS,
            ADDED_TOKENS,
        ] {
            found.add(name, map::SMALL)?;
        }
        if found.get(TOKENIZER).is_none() {
            let named = vocabulary::PIECES.into_iter().chain([
                vocabulary::IDS,
                vocabulary::MERGES,
                vocabulary::WORDS,
                vocabulary::TEKKEN,
                vocabulary::RANKS,
            ]);
            for name in named {
                found.add(name, map::TOKENIZER)?;
            }
            for name in listed(folder, vocabulary::RANKS_END)? {
                found.add(&name, map::TOKENIZER)?;
            }
        }
        for name in listed(&folder.join(MORE_TEMPLATES), ".jinja")? {
            found.add(&format!("{MORE_TEMPLATES}/{name}"), map::SMALL)?;
        }
        Ok(found)
    }

    fn add(&mut self, name: &str, limit: u64) -> Result<(), LoadError> {
        let path = self.origin.join(name);
        if path.is_file() {
            self.files.push((name.into(), map::read(&path, limit)?));
        }
        Ok(())
    }

    /// The content of the file called `name`.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.files
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, bytes)| bytes.as_slice())
    }

    /// The file called `name`, which must be UTF-8.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, LoadError> {
        self.get(name)
            .map(|bytes| {
                std::str::from_utf8(bytes).map_err(|error| {
                    LoadError::format(self.path(name), format!("is not UTF-8: {error}"))
                })
            })
            .transpose()
    }

    /// Where the file called `name` is, for messages.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        match self.origin.is_file() {
            true => self.origin.clone(),
            false => self.origin.join(name),
        }
    }

    /// The JSON in the file called `name`.
    pub(super) fn json(&self, name: &str) -> Result<Option<Value>, LoadError> {
        self.get(name)
            .map(|bytes| map::parse_json(&self.path(name), bytes))
            .transpose()
    }

    /// The files without folders, for a place that has none: templates of several files become the
    /// list of them that `tokenizer_config.json` may have.
    pub(super) fn flat(&self) -> Vec<(String, Vec<u8>)> {
        let mut list: Vec<Value> = Vec::new();
        for (file, name) in self.more_templates() {
            if let Ok(Some(source)) = self.text(file) {
                list.push(json!({ "name": name, "template": source }));
            }
        }
        if list.is_empty() {
            return self.files.clone();
        }
        let mut config = match self.json(TOKENIZER_CONFIG) {
            Ok(Some(Value::Object(config))) => config,
            _ => Map::new(),
        };
        let other = match self.json(TEMPLATE_JSON) {
            Ok(Some(mut file)) => file["chat_template"].take(),
            _ => config.get("chat_template").cloned().unwrap_or_default(),
        };
        match (self.text(TEMPLATE), other) {
            (Ok(Some(source)), _) => list.push(json!({ "name": "default", "template": source })),
            (_, Value::String(source)) => {
                list.push(json!({ "name": "default", "template": source }));
            }
            (_, Value::Array(named)) => list.extend(named),
            _ => {}
        }
        config.insert("chat_template".into(), list.into());
        let replaced = [TOKENIZER_CONFIG, TEMPLATE, TEMPLATE_JSON];
        let kept = |(name, _): &&(String, Vec<u8>)| {
            !replaced.contains(&name.as_str()) && !name.starts_with(MORE_TEMPLATES)
        };
        let mut files: Vec<_> = self.files.iter().filter(kept).cloned().collect();
        let config = Value::Object(config).to_string().into_bytes();
        files.push((TOKENIZER_CONFIG.into(), config));
        files
    }

    /// The templates beside the default one: file and name.
    pub(super) fn more_templates(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(file, _)| {
            let name = file.strip_prefix(MORE_TEMPLATES)?.strip_prefix('/')?;
            Some((file.as_str(), name.strip_suffix(".jinja")?))
        })
    }
}

/// Names of the files in `folder` that end in `end`, in order; none if there is no such folder.
fn listed(folder: &Path, end: &str) -> Result<Vec<String>, LoadError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder).map_err(LoadError::read(folder))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(end))
        .take(TEMPLATES)
        .collect();
    names.sort_unstable();
    Ok(names)
}
