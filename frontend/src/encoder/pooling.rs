//! How the states of a text become one vector, as the module files of sentence-transformers say.

use crate::config::fields::Fields;
use crate::{LoadError, map};
use std::path::Path;

/// Which states of a text count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// That of the first token.
    First,
    /// The mean of all.
    Mean,
    /// That of the last token.
    Last,
}

/// How the states of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// Which states count.
    pub reduce: Reduce,
    /// Whether the vector gets length 1.
    pub normalize: bool,
}

/// The list of modules.
const MODULES: &str = "modules.json";
/// Where the first module says how long a text may be.
const LONGEST: &str = "sentence_bert_config.json";

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

impl Pooling {
    /// What the files of `folder` say; the mean, not normalised, where they say nothing.
    ///
    /// # Errors
    /// A file that is broken, or a module that is not supported.
    pub(crate) fn of_folder(folder: &Path) -> Result<Self, LoadError> {
        let mut found = Self {
            reduce: Reduce::Mean,
            normalize: false,
        };
        let file = folder.join(MODULES);
        if !file.is_file() {
            return Ok(found);
        }
        let value = map::read_json(&file, map::CONFIG)?;
        let unfit = |reason: String| LoadError::Format {
            file: file.clone(),
            reason,
        };
        let modules = value
            .as_array()
            .ok_or_else(|| unfit("it is not a list of modules".into()))?;
        for module in modules {
            let fields = Fields::root(&file, module)?;
            let kind = fields.text("type")?.unwrap_or_default();
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => {}
                "Normalize" => found.normalize = true,
                "Pooling" => {
                    let inner = fields.text("path")?.unwrap_or_default();
                    found.reduce = reduce(folder, inner)?;
                }
                _ => {
                    let known = "Transformer, Pooling and Normalize";
                    return Err(unfit(format!(
                        "the module `{kind}` is not supported; supported are {known}"
                    )));
                }
            }
        }
        Ok(found)
    }
}

/// What the file in `folder/inner` says.
fn reduce(folder: &Path, inner: &str) -> Result<Reduce, LoadError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let inside = inner.chars().all(plain) && !inner.starts_with('.');
    if !inside {
        return Err(LoadError::Format {
            file: folder.join(MODULES),
            reason: format!("the module's path `{inner}` is not the name of a folder beside it"),
        });
    }
    let file = folder.join(inner).join("config.json");
    let value = map::read_json(&file, map::CONFIG)?;
    let fields = Fields::root(&file, &value)?;
    let mut found = None;
    let modes = [
        ("cls_token", "cls", Some(Reduce::First)),
        ("mean_tokens", "mean", Some(Reduce::Mean)),
        ("lasttoken", "lasttoken", Some(Reduce::Last)),
        ("max_tokens", "max", None),
        ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens", None),
        ("weightedmean_tokens", "weightedmean", None),
    ];
    let named = fields.text("pooling_mode")?;
    for (flag, name, reduce) in modes {
        let flag = format!("pooling_mode_{flag}");
        if named != Some(name) && !fields.flag(&flag)?.unwrap_or(false) {
            continue;
        }
        let Some(reduce) = reduce else {
            return Err(fields.error(&flag, "is not supported; cls, mean and lasttoken are"));
        };
        if found.is_some_and(|found| found != reduce) {
            return Err(fields.error(&flag, "is one of several modes, and one is supported"));
        }
        found = Some(reduce);
    }
    found.ok_or_else(|| fields.error("pooling_mode", "names no mode"))
}
