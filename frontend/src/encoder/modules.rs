//! The module files of sentence-transformers: what follows a model's states.

use super::pooling::{Pooling, reduce};
use crate::checkpoint::Checkpoint;
use crate::config::Reader;
use crate::config::fields::Fields;
use crate::decoder::Linear;
use crate::{LoadError, map};
use mlxcel_ir::Activation;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The list of modules.
const MODULES: &str = "modules.json";
/// Where the first module says how long a text may be.
const LONGEST: &str = "sentence_bert_config.json";
/// The widest layer on a vector.
const WIDTH: usize = 1 << 24;

/// What becomes of the states of a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Modules {
    pub(crate) pooling: Pooling,
    /// Layers on the vector, in their order.
    pub(crate) layers: Vec<Dense>,
}

/// A layer on the vector of a text.
#[derive(Clone, Debug)]
pub(crate) struct Dense {
    pub(crate) linear: Linear,
    pub(crate) activation: Option<Activation>,
    /// The file of its weights.
    file: PathBuf,
}

/// The most tokens of a text that the files of `folder` name.
///
/// # Errors
/// A file that is broken.
pub(crate) fn longest(folder: &Path) -> Result<Option<usize>, LoadError> {
    let file = folder.join(LONGEST);
    if !file.is_file() {
        return Ok(None);
    }
    let value = map::read_json(&file, map::CONFIG)?;
    Fields::root(&file, &value)?.size("max_seq_length", 1..=1 << 24)
}

/// Whether the files of `folder` say how a text's states become a vector.
pub(crate) fn has_modules(folder: &Path) -> bool {
    folder.join(MODULES).is_file()
}

impl Modules {
    /// What the files of `folder` say; the mean, not normalised, where they say nothing.
    ///
    /// # Errors
    /// A file that is broken, or a module that is not supported.
    pub(crate) fn read(folder: &Path) -> Result<Self, LoadError> {
        let mut found = Self::default();
        let file = folder.join(MODULES);
        if !file.is_file() {
            return Ok(found);
        }
        let value = map::read_json(&file, map::CONFIG)?;
        let unfit = |reason: String| LoadError::format(&file, reason);
        let modules = value
            .as_array()
            .ok_or_else(|| unfit("it is not a list of modules".into()))?;
        for module in modules {
            let fields = Fields::root(&file, module)?;
            let kind = fields.text("type")?.unwrap_or_default();
            let path = fields.text("path")?.unwrap_or_default();
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => {}
                "Normalize" => found.pooling.normalize = true,
                "Pooling" => {
                    let (file, value) = settings(&file, folder, path)?;
                    found.pooling.reduce = reduce(&Fields::root(&file, &value)?)?;
                }
                "Dense" if found.pooling.normalize => {
                    let reason = "a Dense module after one that normalises is not supported";
                    return Err(unfit(reason.into()));
                }
                "Dense" => {
                    let (file, value) = settings(&file, folder, path)?;
                    let fields = Fields::root(&file, &value)?;
                    let layer = Dense::read(&fields, &folder.join(path), found.layers.len())?;
                    found.layers.push(layer);
                }
                _ => {
                    let known = "Transformer, Pooling, Dense and Normalize";
                    return Err(unfit(format!(
                        "the module `{kind}` is not supported; supported are {known}"
                    )));
                }
            }
        }
        Ok(found)
    }

    /// Adds the weights of the layers to those of the model.
    ///
    /// # Errors
    /// A file that is missing or broken.
    pub(crate) fn add_weights(&self, checkpoint: &mut Checkpoint) -> Result<(), LoadError> {
        for (index, layer) in self.layers.iter().enumerate() {
            checkpoint.add_under(&prefix(index), &layer.file)?;
        }
        Ok(())
    }

    /// Elements of a vector, made of a state of `hidden`.
    pub(crate) fn width(&self, hidden: usize) -> usize {
        self.layers.last().map_or(hidden, |layer| layer.linear.to)
    }
}

impl Dense {
    fn read(fields: &Fields<'_>, folder: &Path, index: usize) -> Result<Self, LoadError> {
        let width = |name: &str| fields.required(name, 1..=WIDTH);
        let (from, to) = (width("in_features")?, width("out_features")?);
        let bias = fields.flag("bias")?.unwrap_or(true);
        let field = "activation_function";
        let named = fields.text(field)?.unwrap_or("Tanh");
        let name = named.rsplit('.').next().unwrap_or_default().to_lowercase();
        let activation = match name.as_str() {
            "identity" => None,
            name => Some(Reader::named_activation(name).ok_or_else(|| {
                fields.error(
                    field,
                    format!("`{named}` is not supported; Tanh and Identity are"),
                )
            })?),
        };
        // Its input may be another one's than the vector.
        for name in ["module_input_name", "module_output_name"] {
            let other = fields
                .text(name)?
                .is_some_and(|name| name != "sentence_embedding");
            if other {
                return Err(fields.error(name, "must be sentence_embedding"));
            }
        }
        let file = folder.join("model.safetensors");
        if !file.is_file() {
            let reason = "has no model.safetensors, in which this layer's weights are read; convert those of \
                          pytorch_model.bin";
            return Err(LoadError::format(folder, reason));
        }
        Ok(Self {
            // As the tensors of its file are called.
            linear: Linear::new(format!("{}linear", prefix(index)), from, to, bias),
            activation,
            file,
        })
    }
}

/// What the names of these layers' tensors begin with,
pub(crate) const PREFIX: &str = "sentence_dense.";

/// and those of one of them.
fn prefix(index: usize) -> String {
    format!("{PREFIX}{index}.")
}

/// The configuration of the module at `folder/path`, which `modules` names.
fn settings(modules: &Path, folder: &Path, path: &str) -> Result<(PathBuf, Value), LoadError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let inside = path.chars().all(plain) && !path.starts_with('.');
    if !inside {
        let reason = format!("the module's path `{path}` is not the name of a folder beside it");
        return Err(LoadError::format(modules, reason));
    }
    let file = folder.join(path).join("config.json");
    let value = map::read_json(&file, map::CONFIG)?;
    Ok((file, value))
}
