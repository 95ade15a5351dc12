//! Where a model's chat templates stand: a file of their own, the tokenizer's settings as one text or
//! as a list with names, and a folder of further ones.

use super::files::{TEMPLATE, TEMPLATE_JSON, TOKENIZER_CONFIG, TextFiles};
use super::template::Template;
use crate::LoadError;
use crate::config::fields::Fields;
use serde_json::{Value, json};

/// Name of the template that is used unless another is asked for.
pub(super) const DEFAULT: &str = "default";
/// Name of the template that is used when there are tools, if there is one.
pub(super) const TOOL_USE: &str = "tool_use";

/// The chat templates of a model, by name.
#[derive(Debug, Default)]
pub(super) struct Templates {
    named: Vec<(String, Template)>,
}

impl Templates {
    /// Compiles the templates among `files`.
    pub(super) fn read(files: &TextFiles) -> Result<Self, LoadError> {
        let mut templates = Self::default();
        if let Some(source) = files.text(TEMPLATE)? {
            templates.file(files, TEMPLATE, DEFAULT, source)?;
        } else if let Some(value) = files.json(TEMPLATE_JSON)? {
            templates.field(files, TEMPLATE_JSON, &value)?;
        } else if let Some(value) = files.json(TOKENIZER_CONFIG)? {
            templates.field(files, TOKENIZER_CONFIG, &value)?;
        }
        for (file, name) in files.more_templates() {
            if let Some(source) = files.text(file)? {
                templates.file(files, file, name, source)?;
            }
        }
        Ok(templates)
    }

    fn file(
        &mut self,
        files: &TextFiles,
        file: &str,
        name: &str,
        source: &str,
    ) -> Result<(), LoadError> {
        let template = Template::new(source).map_err(|reason| {
            LoadError::format(files.path(file), format!("chat template: {reason}"))
        })?;
        self.set(name, template);
        Ok(())
    }

    /// The template or templates in the field `chat_template` of `file`.
    fn field(&mut self, files: &TextFiles, file: &str, value: &Value) -> Result<(), LoadError> {
        let path = files.path(file);
        let fields = Fields::root(&path, value)?;
        let field = "chat_template";
        let what = "a template or a list of templates with names";
        let value = match fields.get(field) {
            None => return Ok(()),
            Some(Value::String(source)) => {
                &json!([{ "name": DEFAULT, "template": source.as_str() }])
            }
            // Older files have an object of names.
            Some(Value::Object(named)) => &named
                .iter()
                .map(|(name, template)| json!({ "name": name, "template": template }))
                .collect(),
            Some(other) => other,
        };
        let list = value
            .as_array()
            .ok_or_else(|| fields.expected(field, what, value))?;
        for entry in list {
            let (Some(name), Some(source)) = (entry["name"].as_str(), entry["template"].as_str())
            else {
                return Err(fields.expected(field, what, value));
            };
            let template = Template::new(source)
                .map_err(|reason| fields.error(field, format!("`{name}`: {reason}")))?;
            self.set(name, template);
        }
        match self.get(DEFAULT) {
            Some(_) => Ok(()),
            None => {
                let reason = format!("is a list without a template named `{DEFAULT}`");
                Err(fields.error(field, reason))
            }
        }
    }

    /// Puts `template` in the place of the one called `name`.
    pub(super) fn set(&mut self, name: &str, template: Template) {
        match self.named.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = template,
            None => self.named.push((name.into(), template)),
        }
    }

    /// The template called `name`.
    pub(super) fn get(&self, name: &str) -> Option<&Template> {
        let found = self.named.iter().find(|(known, _)| known == name);
        found.map(|(_, template)| template)
    }

    /// The template for a conversation, with or without tools.
    pub(super) fn choose(&self, tools: bool) -> Option<&Template> {
        let for_tools = tools.then(|| self.get(TOOL_USE)).flatten();
        for_tools.or_else(|| self.get(DEFAULT))
    }

    /// The templates' names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }
}
