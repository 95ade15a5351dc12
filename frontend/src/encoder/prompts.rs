//! Texts that a model expects before others, as sentence-transformers stores them.

use crate::config::fields::Fields;
use crate::{LoadError, map};
use std::path::Path;

/// Where they are.
const FILE: &str = "config_sentence_transformers.json";

/// Texts to put before a text, by what it is for (`query`, `document`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    /// Names and texts, in the file's order.
    pub texts: Vec<(String, String)>,
    /// The name of the one that is put before a text if nothing else is asked for.
    pub default: Option<String>,
}

impl Prompts {
    /// Those in the files of `folder`.
    ///
    /// # Errors
    /// A file that is broken; a default that is none of them.
    pub(crate) fn read(folder: &Path) -> Result<Self, LoadError> {
        let file = folder.join(FILE);
        if !file.is_file() {
            return Ok(Self::default());
        }
        let value = map::read_json(&file, map::CONFIG)?;
        let fields = Fields::root(&file, &value)?;
        let mut found = Self::default();
        if let Some(prompts) = fields.object("prompts")? {
            for (name, text) in prompts.entries() {
                let text = text
                    .as_str()
                    .ok_or_else(|| prompts.expected(name, "a text", text))?;
                found.texts.push((name.to_string(), text.to_string()));
            }
        }
        let field = "default_prompt_name";
        if let Some(name) = fields.text(field)? {
            if found.get(name).is_none() {
                return Err(fields.error(field, format!("`{name}` is none of `prompts`")));
            }
            found.default = Some(name.to_string());
        }
        Ok(found)
    }

    /// The text called `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.texts.iter().find(|(known, _)| known == name);
        found.map(|(_, text)| text.as_str())
    }
}
