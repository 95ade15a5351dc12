//! Text to tokens and back: tokenizer, chat template, end tokens.

mod settings;
mod template;

use crate::{LoadError, map, model};
use serde_json::{Map, Value, json};
use settings::TokenizerSettings;
pub(crate) use settings::{GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG, TextFiles};
use std::path::{Path, PathBuf};
use template::Template;
use tokenizers::Tokenizer;

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }
}

/// Why a text could not be turned into tokens or a conversation into text.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The tokenizer failed.
    #[error("{}: cannot turn the text into tokens: {reason}", origin.display())]
    Encode {
        /// The model.
        origin: PathBuf,
        /// What the tokenizer said.
        reason: String,
    },
    /// The model has no chat template.
    #[error(
        "{}: the model has no chat template (neither chat_template.jinja nor `chat_template` in \
         tokenizer_config.json); give a plain prompt instead",
        origin.display()
    )]
    NoTemplate {
        /// The model.
        origin: PathBuf,
    },
    /// The chat template refused the conversation, or failed.
    #[error("{}: chat template: {reason}", origin.display())]
    Template {
        /// The model.
        origin: PathBuf,
        /// What it raised, or what failed and where.
        reason: String,
    },
}

/// A model's tokenizer, chat template and end tokens.
///
/// It is made of the files of [`Text::files`] alone, so that a model and the artifact compiled from
/// it treat text the same way.
#[derive(Debug)]
pub struct Text {
    tokenizer: Tokenizer,
    template: Option<Template>,
    settings: TokenizerSettings,
    end_tokens: Vec<u32>,
    files: TextFiles,
}

impl Text {
    /// Loads the text files of a model or artifact folder: `tokenizer.json`, and where present
    /// `tokenizer_config.json`, `chat_template.jinja`, `generation_config.json` and the end tokens
    /// of `config.json`.
    ///
    /// # Errors
    /// A file that is missing or broken.
    pub fn from_folder(folder: &Path) -> Result<Self, LoadError> {
        let mut end_tokens = Vec::new();
        let config = folder.join(model::CONFIG);
        if config.is_file() {
            let value = map::read_json(&config, map::SMALL)?;
            end_tokens = settings::end_tokens(&config, &value)?;
        }
        Self::from_files(TextFiles::read(folder)?, end_tokens)
    }

    /// Makes a text of its files, with more end tokens than those name.
    pub(crate) fn from_files(files: TextFiles, more: Vec<u32>) -> Result<Self, LoadError> {
        let file = files.path(TOKENIZER);
        let Some(bytes) = files.get(TOKENIZER) else {
            return Err(LoadError::format(
                files.origin.clone(),
                "has no tokenizer.json; copy it from the model's publisher",
            ));
        };
        let mut tokenizer = Tokenizer::from_bytes(bytes)
            .map_err(|error| LoadError::format(&file, format!("is not a tokenizer: {error}")))?;
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|error| LoadError::format(&file, error.to_string()))?;
        let config = files.json(TOKENIZER_CONFIG)?;
        let settings = match &config {
            Some(value) => TokenizerSettings::parse(&files.path(TOKENIZER_CONFIG), value)?,
            None => TokenizerSettings::default(),
        };
        let template = settings::template(&files, config.as_ref())?;
        let mut end_tokens = match files.json(GENERATION_CONFIG)? {
            Some(value) => settings::end_tokens(&files.path(GENERATION_CONFIG), &value)?,
            None => Vec::new(),
        };
        let of_tokenizer = settings
            .token("eos_token")
            .and_then(|token| tokenizer.token_to_id(token));
        for id in more.into_iter().chain(of_tokenizer) {
            if !end_tokens.contains(&id) {
                end_tokens.push(id);
            }
        }
        Ok(Self {
            tokenizer,
            template,
            settings,
            end_tokens,
            files,
        })
    }

    /// The tokens of `text`, in which special tokens may be spelled out. With `add_special`, those
    /// that the model expects around a text are added; a rendered conversation has them already.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TextError> {
        let encoding = self
            .tokenizer
            .encode_fast(text, add_special)
            .map_err(|error| TextError::Encode {
                origin: self.files.origin.clone(),
                reason: error.to_string(),
            })?;
        let mut tokens = encoding.get_ids().to_vec();
        if add_special
            && self.settings.add_bos
            && let Some(first) = self.settings.token("bos_token")
            && let Some(first) = self.tokenizer.token_to_id(first)
            && tokens.first() != Some(&first)
        {
            tokens.insert(0, first);
        }
        Ok(tokens)
    }

    /// The text of `tokens`. Special tokens and ids without a token have none; bytes that do not
    /// make a character yet become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        self.tokenizer.decode(tokens, true).unwrap_or_default()
    }

    /// The id of the token spelled `token`.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// One more than the largest id that stands for a token. A model may have embeddings for more,
    /// which are padding.
    pub fn vocabulary(&self) -> usize {
        let added = self.tokenizer.get_added_tokens_decoder();
        let most = added.keys().max().map_or(0, |&id| id as usize + 1);
        most.max(self.tokenizer.get_vocab_size(true))
    }

    /// Whether `token` stands for one byte, spelled `<0xE2>`, that is text only together with the
    /// bytes around it.
    pub fn is_byte(&self, token: u32) -> bool {
        let spelling = self.tokenizer.id_to_token(token);
        let digits = spelling
            .as_deref()
            .and_then(|s| s.strip_prefix("<0x")?.strip_suffix('>'));
        digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
    }

    /// Whether the model has a chat template.
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// A conversation as text, by the model's chat template; with `add_generation_prompt`, up to
    /// where the assistant's answer begins.
    ///
    /// # Errors
    /// There is no template, or it refuses the conversation.
    pub fn chat(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TextError> {
        let mut variables = Map::new();
        variables.insert("messages".into(), json!(messages));
        variables.insert("add_generation_prompt".into(), add_generation_prompt.into());
        self.render(variables)
    }

    /// The chat template with the given variables (`messages`, `tools`, `add_generation_prompt` and
    /// what else the template knows); the special tokens are added to them.
    ///
    /// # Errors
    /// There is no template, or it raised an error.
    pub fn render(&self, variables: Map<String, Value>) -> Result<String, TextError> {
        let origin = || self.files.origin.clone();
        let template = self
            .template
            .as_ref()
            .ok_or_else(|| TextError::NoTemplate { origin: origin() })?;
        let mut all = self.settings.special.clone();
        all.extend(variables);
        template.render(all).map_err(|reason| TextError::Template {
            origin: origin(),
            reason,
        })
    }

    /// The tokens that end a text, without duplicates.
    pub fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }

    /// The files, by name, from which [`Text::from_folder`] makes the same text again.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let generation = match self.files.json(GENERATION_CONFIG) {
            Ok(Some(Value::Object(mut generation))) => {
                generation.insert("eos_token_id".into(), json!(self.end_tokens));
                Value::Object(generation)
            }
            _ => json!({ "eos_token_id": self.end_tokens }),
        };
        let mut files: Vec<_> = self
            .files
            .files
            .iter()
            .filter(|(name, _)| name != GENERATION_CONFIG)
            .cloned()
            .collect();
        files.push((
            GENERATION_CONFIG.into(),
            format!("{generation:#}\n").into_bytes(),
        ));
        files
    }
}
