//! Text to tokens and back: tokenizer, chat template, end tokens.

mod conversation;
mod files;
mod settings;
mod template;
mod templates;
mod tokenizer;
mod vocabulary;

use crate::artifact::Files;
use crate::{LoadError, map, model};
pub(crate) use files::{GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG, TextFiles};
use serde_json::{Map, Value, json};
use settings::TokenizerSettings;
use std::path::{Path, PathBuf};
use template::Template;
use templates::Templates;
pub use tokenizer::TokenKind;
use tokenizer::Tokenizer;
pub(crate) use vocabulary::{cased, describe, modern, pieces, word_piece};

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
    /// The chat template refused the conversation by `raise_exception`: the conversation is at
    /// fault, not the model, so a server answers with a client error.
    #[error("{}: the chat template refuses this conversation: {message}", origin.display())]
    Refused {
        /// The model.
        origin: PathBuf,
        /// What the template says.
        message: String,
    },
    /// The chat template failed.
    #[error("{}: chat template: {reason}", origin.display())]
    Template {
        /// The model.
        origin: PathBuf,
        /// What failed and where.
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
    templates: Templates,
    settings: TokenizerSettings,
    end_tokens: Vec<u32>,
    files: TextFiles,
}

impl Text {
    /// Loads the text files of a model or artifact folder: `tokenizer.json` or another vocabulary
    /// (SentencePiece, `vocab.txt`, `vocab.json` with `merges.txt`, tiktoken ranks), and where
    /// present `tokenizer_config.json`, the chat templates, `generation_config.json` and the end
    /// tokens of `config.json`.
    ///
    /// # Errors
    /// A file that is missing or broken.
    pub fn from_folder(folder: &Path) -> Result<Self, LoadError> {
        let mut end_tokens = Vec::new();
        let config = folder.join(model::CONFIG);
        let mut family = String::new();
        if config.is_file() {
            let value = map::read_json(&config, map::CONFIG)?;
            end_tokens = settings::end_tokens(&config, &value)?;
            family = value["model_type"].as_str().unwrap_or_default().into();
        }
        Self::build(TextFiles::read(folder)?, &family, end_tokens)
    }

    /// Reads the text files of the artifact at `path`.
    ///
    /// # Errors
    /// A file that is missing or broken.
    pub fn from_artifact(path: &Path) -> Result<Self, LoadError> {
        match Files::open(path)?.texts() {
            None => Self::from_folder(path),
            Some(files) => {
                let origin = path.to_path_buf();
                Self::from_files(TextFiles { origin, files }, Vec::new())
            }
        }
    }

    /// Makes a text of its files, with more end tokens than those name.
    pub(crate) fn from_files(files: TextFiles, more: Vec<u32>) -> Result<Self, LoadError> {
        Self::build(files, "", more)
    }

    fn build(mut files: TextFiles, family: &str, more: Vec<u32>) -> Result<Self, LoadError> {
        let mut settings = TokenizerSettings::read(&files)?;
        if files.get(TOKENIZER).is_none() {
            vocabulary::convert(&mut files, &settings, family)?;
            settings = TokenizerSettings::read(&files)?;
        }
        let file = files.path(TOKENIZER);
        let bytes = files.get(TOKENIZER).unwrap_or_default();
        let mut tokenizer = Tokenizer::new(bytes)
            .map_err(|error| LoadError::format(&file, format!("is not a tokenizer: {error}")))?;
        add_tokens(&mut tokenizer, &settings)
            .map_err(|error| LoadError::format(files.path(TOKENIZER_CONFIG), error))?;
        let templates = Templates::read(&files)?;
        let mut end_tokens = match files.json(GENERATION_CONFIG)? {
            Some(value) => settings::end_tokens(&files.path(GENERATION_CONFIG), &value)?,
            None => Vec::new(),
        };
        let of_tokenizer = settings
            .token("eos_token")
            .and_then(|token| tokenizer.token_id(token));
        for id in more.into_iter().chain(of_tokenizer) {
            if !end_tokens.contains(&id) {
                end_tokens.push(id);
            }
        }
        Ok(Self {
            tokenizer,
            templates,
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
        let mut tokens = self
            .tokenizer
            .encode(text, add_special)
            .map_err(|reason| self.failed(reason))?;
        if add_special {
            let id = |name| self.tokenizer.token_id(self.settings.token(name)?);
            if self.settings.add_bos == Some(true)
                && let Some(first) = id("bos_token")
                && tokens.first() != Some(&first)
            {
                tokens.insert(0, first);
            }
            if self.settings.add_eos
                && let Some(last) = id("eos_token")
                && tokens.last() != Some(&last)
            {
                tokens.push(last);
            }
        }
        Ok(tokens)
    }

    /// The tokens of a text, or of a query and a document, as an encoder expects them, and the kind of
    /// each token: 0 in the first text, 1 in the second.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of a text.
    pub fn encode_texts(
        &self,
        first: &str,
        second: Option<&str>,
    ) -> Result<(Vec<u32>, Vec<u32>), TextError> {
        self.tokenizer
            .encode_texts(first, second)
            .map_err(|reason| self.failed(reason))
    }

    /// Has whatever is encoded from now on cut to `tokens`, special ones included; of two texts the
    /// longer one.
    ///
    /// # Errors
    /// The special tokens alone are more.
    pub fn truncate_at(&mut self, tokens: usize) -> Result<(), TextError> {
        let done = self.tokenizer.truncate_at(tokens);
        done.map_err(|reason| self.failed(reason))
    }

    fn failed(&self, reason: String) -> TextError {
        TextError::Encode {
            origin: self.files.origin.clone(),
            reason,
        }
    }

    /// The text of `tokens`. Special tokens and ids without a token have none; bytes that do not
    /// make a character become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        self.tokenizer.decode(tokens)
    }

    /// What `token` contributes to a text.
    pub fn token_kind(&self, token: u32) -> TokenKind {
        self.tokenizer.kind(token)
    }

    /// The id of the token spelled `token`.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_id(token)
    }

    /// One more than the largest id that stands for a token. A model may have embeddings for more,
    /// which are padding.
    pub fn vocabulary(&self) -> usize {
        self.tokenizer.vocabulary()
    }

    /// Whether the model has a chat template.
    pub fn has_template(&self) -> bool {
        self.templates.choose(false).is_some()
    }

    /// Names of the chat templates: `default`, and others that a model may have (`tool_use`, `rag`).
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        self.templates.names()
    }

    /// Puts `source` in the place of the model's default chat template, as users do whose checkpoint
    /// has none or a wrong one.
    ///
    /// # Errors
    /// It is not a template; the syntax error and its line.
    pub fn set_template(&mut self, source: &str) -> Result<(), TextError> {
        let template = Template::new(source).map_err(|reason| TextError::Template {
            origin: self.files.origin.clone(),
            reason,
        })?;
        self.templates = Templates::default();
        self.templates.set(templates::DEFAULT, template);
        Ok(())
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

    /// The chat template with the given variables (`messages`, `tools`, `documents`,
    /// `add_generation_prompt` and what else the template knows), as transformers renders it: the
    /// special tokens are added to them and null fields of messages are left out. With tools, the template for tools is used where the model has one.
    ///
    /// # Errors
    /// There is no template, it refused the conversation, or it failed.
    pub fn render(&self, variables: Map<String, Value>) -> Result<String, TextError> {
        let tools = variables.get("tools").and_then(Value::as_array);
        let tools = tools.is_some_and(|tools| !tools.is_empty());
        self.render_by(self.templates.choose(tools), variables)
    }

    /// As [`Text::render`], by the template called `name`.
    ///
    /// # Errors
    /// As [`Text::render`]; there is no template of that name.
    pub fn render_named(
        &self,
        name: &str,
        variables: Map<String, Value>,
    ) -> Result<String, TextError> {
        self.render_by(self.templates.get(name), variables)
    }

    fn render_by(
        &self,
        template: Option<&Template>,
        variables: Map<String, Value>,
    ) -> Result<String, TextError> {
        let origin = self.files.origin.clone();
        let Some(template) = template else {
            return Err(TextError::NoTemplate { origin });
        };
        let mut all = self.settings.special.clone();
        all.extend(variables);
        conversation::render(template, all).map_err(|failure| match failure {
            template::Failure::Raised(message) => TextError::Refused { origin, message },
            template::Failure::Other(reason) => TextError::Template { origin, reason },
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
        let mut files = self.files.flat();
        files.retain(|(name, _)| name != GENERATION_CONFIG);
        files.push((
            GENERATION_CONFIG.into(),
            format!("{generation:#}\n").into_bytes(),
        ));
        files
    }
}

/// Adds the tokens of the settings to the tokenizer where it has not just the same, and marks the
/// special ones.
fn add_tokens(tokenizer: &mut Tokenizer, settings: &TokenizerSettings) -> Result<(), String> {
    let listed = settings.added.values();
    let mut tokens: Vec<_> = listed
        .filter(|token| tokenizer.added(&token.content) != Some(token))
        .cloned()
        .collect();
    for text in settings.special_texts() {
        let known = tokenizer.added(text).is_some() || tokens.iter().any(|t| t.content == text);
        // One that has no id would get one past the model's embeddings.
        if !known && tokenizer.token_id(text).is_some() {
            tokens.push(tokenizers::AddedToken::from(text, true));
        }
    }
    tokenizer.add(tokens)
}
