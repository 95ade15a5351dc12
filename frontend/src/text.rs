//! Text to tokens and back: tokenizer, chat template, end tokens.

use crate::LoadError;
use std::path::Path;

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

/// A model's tokenizer, chat template and end tokens.
#[derive(Debug)]
pub struct Text {}

impl Text {
    /// Loads the text files of a model or artifact folder.
    ///
    /// # Errors
    /// A file that is missing or broken.
    pub fn from_folder(folder: &Path) -> Result<Self, LoadError> {
        Err(LoadError::format(folder, "reading text files is not done yet"))
    }
}
