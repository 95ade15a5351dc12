//! Vocabularies in other forms than `tokenizer.json`, described as one, so that all of them are used,
//! bounded and stored the same way.

mod byte_level;
pub(crate) mod describe;
pub(crate) mod pieces;
mod proto;
mod sentence_piece;
mod tekken;
mod tiktoken;
pub(crate) mod word_piece;

pub(crate) use byte_level::{cased, modern};

use super::files::TOKENIZER_CONFIG;
use super::files::{TOKENIZER, TextFiles, vocabulary as name};
use super::settings::TokenizerSettings;
use crate::LoadError;
use serde_json::{Map, Value};

/// A tokenizer, and settings that go with it.
type Made = (describe::Tokenizer, Map<String, Value>);

/// Makes `tokenizer.json` and the settings that go with it of the vocabulary among `files`, and leaves
/// that vocabulary out. `family` is
/// the model's type, which says how a text is cut where the files do not.
///
/// # Errors
/// There is no vocabulary, or a file is broken; it is named.
pub(super) fn convert(
    files: &mut TextFiles,
    settings: &TokenizerSettings,
    family: &str,
) -> Result<(), LoadError> {
    let (description, known) = match find(files, settings, family)? {
        Some(found) => found,
        None => {
            return Err(LoadError::format(
                files.origin.clone(),
                "has no tokenizer: none of tokenizer.json, tokenizer.model, spiece.model, vocab.json \
                 with merges.txt, vocab.txt, tekken.json, *.tiktoken; copy it from the model's \
                 publisher",
            ));
        }
    };
    let is_source = |file: &str| {
        name::PIECES.contains(&file)
            || file.ends_with(name::RANKS_END)
            || [
                name::IDS,
                name::MERGES,
                name::WORDS,
                name::TEKKEN,
                name::RANKS,
            ]
            .contains(&file)
    };
    files.files.retain(|(file, _)| !is_source(file));
    let json = description.json().to_string().into_bytes();
    // What the vocabulary says by itself counts where the settings are silent.
    let mut config = match files.json(TOKENIZER_CONFIG)? {
        Some(Value::Object(config)) => config,
        _ => Map::new(),
    };
    for (name, value) in known {
        if config.get(&name).is_none_or(Value::is_null) {
            config.insert(name, value);
        }
    }
    files.files.retain(|(file, _)| file != TOKENIZER_CONFIG);
    let config = Value::Object(config).to_string().into_bytes();
    files.files.insert(0, (TOKENIZER.into(), json));
    files.files.insert(1, (TOKENIZER_CONFIG.into(), config));
    Ok(())
}

fn find(
    files: &TextFiles,
    settings: &TokenizerSettings,
    family: &str,
) -> Result<Option<Made>, LoadError> {
    let broken = |file: &str| {
        let path = files.path(file);
        move |reason: String| LoadError::format(path, reason)
    };
    for file in name::PIECES {
        if let Some(bytes) = files.get(file) {
            // Llama 3's original folder has ranks under SentencePiece's name.
            let made = match tiktoken::is_ranks(bytes) {
                true => tiktoken::tokenizer(bytes, settings, family),
                false => sentence_piece::tokenizer(bytes, settings),
            };
            return made.map(Some).map_err(broken(file));
        }
    }
    if let (Some(ids), Some(merges)) = (files.json(name::IDS)?, files.text(name::MERGES)?) {
        let made = byte_level::tokenizer(&ids, merges, settings);
        return made.map(Some).map_err(broken(name::IDS));
    }
    if let Some(words) = files.text(name::WORDS)? {
        let made = word_piece::tokenizer(words, settings);
        return made.map(Some).map_err(broken(name::WORDS));
    }
    if let Some(value) = files.json(name::TEKKEN)? {
        return tekken::tokenizer(&value)
            .map(Some)
            .map_err(broken(name::TEKKEN));
    }
    let ranks = files
        .files
        .iter()
        .find(|(file, _)| file == name::RANKS || file.ends_with(name::RANKS_END));
    if let Some((file, bytes)) = ranks {
        let made = tiktoken::tokenizer(bytes, settings, family);
        return made.map(Some).map_err(broken(file));
    }
    Ok(None)
}
