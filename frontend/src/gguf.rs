//! GGUF files: metadata as a configuration, blocks taken apart into a graph's formats, the embedded
//! tokenizer as a `tokenizer.json`.

mod architectures;
mod blocks;
mod derived;
mod names;
pub(crate) mod parts;
mod read;
mod repack;
mod settings;
mod tensors;
mod vocabulary;

use crate::families::{self, Family, Kind};
use crate::map::MappedFile;
use crate::text::TextFiles;
use crate::weights::Weights;
use crate::{LoadError, Text};
use architectures::{ARCHITECTURES, Architecture};
use read::{Head, Value};
use std::path::Path;

/// What a GGUF file gives a model.
pub(crate) struct Loaded {
    pub(crate) family: &'static Family,
    /// The metadata in the words of `config.json`.
    pub(crate) fields: serde_json::Value,
    pub(crate) weights: Weights,
}

/// Loads the GGUF file at `path`, and those of which it is the first.
pub(crate) fn load(path: &Path) -> Result<Loaded, LoadError> {
    let files = parts::open(path)?;
    let heads = parts::heads(&files)?;
    let metadata = Metadata::of(&heads, path)?;
    let (architecture, family) = metadata.architecture()?;
    let described = tensors::describe(&metadata, architecture)?;
    let (fields, sizes) = settings::fields(&metadata, architecture, family, &described)?;
    let format = (architecture, family.names);
    let weights = tensors::weights(&metadata, &files, &described, format, sizes)?;
    drop(heads);
    Ok(Loaded {
        family,
        fields,
        weights: Weights {
            path: path.to_path_buf(),
            files,
            ..weights
        },
    })
}

/// The text that the GGUF file at `path` embeds.
pub(crate) fn text(path: &Path) -> Result<Text, LoadError> {
    let mapped = MappedFile::open(path)?;
    let head = [read::head(path, mapped.bytes())?];
    let metadata = Metadata::of(&head, path)?;
    let files = TextFiles {
        origin: path.to_path_buf(),
        files: vocabulary::files(&metadata)?,
    };
    Text::from_files(files, Vec::new())
}

/// The metadata of a model, with errors that name the file.
struct Metadata<'a> {
    /// The first file, which has them,
    file: &'a Path,
    /// what precedes its data,
    head: &'a Head<'a>,
    /// and that of all files.
    parts: &'a [Head<'a>],
}

impl<'a> Metadata<'a> {
    fn of(parts: &'a [Head<'a>], file: &'a Path) -> Result<Self, LoadError> {
        let head = parts
            .first()
            .ok_or_else(|| LoadError::format(file, "has no parts"))?;
        Ok(Self { file, head, parts })
    }

    fn get(&self, field: &str) -> Option<&'a Value<'a>> {
        self.head.metadata.get(field)
    }

    fn error(&self, field: &str, reason: impl Into<String>) -> LoadError {
        LoadError::Field {
            file: self.file.to_path_buf(),
            field: field.into(),
            reason: reason.into(),
        }
    }

    /// `field` as `read` understands it; `what` says what it must be.
    fn optional<T>(
        &self,
        field: &str,
        what: &str,
        read: impl FnOnce(&'a Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, LoadError> {
        self.get(field)
            .map(|value| read(value).ok_or_else(|| self.error(field, format!("must be {what}"))))
            .transpose()
    }

    fn text(&self, field: &str) -> Result<Option<&'a str>, LoadError> {
        self.optional(field, "text", |value| match value {
            Value::Text(text) => Some(*text),
            _ => None,
        })
    }

    fn texts(&self, field: &str) -> Result<Option<&'a [&'a str]>, LoadError> {
        self.optional(field, "a list of texts", |value| match value {
            Value::Texts(texts) => Some(texts.as_slice()),
            _ => None,
        })
    }

    fn flag(&self, field: &str) -> Result<Option<bool>, LoadError> {
        self.optional(field, "true or false", Value::flag)
    }

    /// The whole numbers of a list of them; `None` where the field is one number or none.
    fn sizes(&self, field: &str) -> Result<Option<Vec<u64>>, LoadError> {
        let Some(numbers) = self.get(field).and_then(Value::integers) else {
            return Ok(None);
        };
        let sizes: Option<Vec<u64>> = numbers.map(|number| u64::try_from(number).ok()).collect();
        let what = "must be whole numbers";
        sizes.map(Some).ok_or_else(|| self.error(field, what))
    }

    fn number(&self, field: &str) -> Result<Option<f64>, LoadError> {
        self.optional(field, "a number", Value::number)
    }

    fn size(&self, field: &str) -> Result<Option<u64>, LoadError> {
        self.optional(field, "a whole number", |value| {
            value
                .integer()
                .and_then(|number| u64::try_from(number).ok())
        })
    }

    fn required<T>(&self, field: &str, value: Option<T>) -> Result<T, LoadError> {
        value.ok_or_else(|| self.error(field, "is missing"))
    }

    /// Whether experts are chosen with a correction of their scores.
    fn has_corrections(&self) -> bool {
        let mut tensors = self.parts.iter().flat_map(|part| &part.tensors);
        tensors.any(|tensor| tensor.name.contains(".exp_probs_b"))
    }

    /// The file's architecture and the family that it is read as.
    fn architecture(&self) -> Result<(&'static Architecture, &'static Family), LoadError> {
        let field = "general.architecture";
        let found = self.required(field, self.text(field)?)?;
        let unknown = || LoadError::Family {
            file: self.file.to_path_buf(),
            field: field.into(),
            found: found.into(),
            supported: ARCHITECTURES
                .iter()
                .map(|architecture| architecture.name.into())
                .collect(),
        };
        let mut known = ARCHITECTURES.iter();
        let architecture = known.find(|known| known.name == found);
        let architecture = architecture.ok_or_else(unknown)?;
        let field = format!("{found}.expert_count");
        let family = match self.size(&field)? {
            None | Some(0) => architecture.family,
            Some(_) => architecture.sparse.ok_or_else(|| {
                let reason = "mixtures of experts are not supported in GGUF files of this family";
                self.error(&field, reason)
            })?,
        };
        // With a window the second OLMo is the third.
        let window = format!("{found}.attention.sliding_window");
        let family = match (family, self.size(&window)?) {
            ("olmo2", Some(1..)) => "olmo3",
            ("deepseek_v2", _) if self.has_corrections() => "deepseek_v3",
            ("mamba", _) if self.flag("mamba.ssm.dt_b_c_rms")? == Some(true) => "falcon_mamba",
            (family, _) => family,
        };
        match families::find(family) {
            Some(Kind::Decoder(family)) => Ok((architecture, family)),
            _ => Err(unknown()),
        }
    }
}

/// Families whose files go by another's name, or are read as another's.
const OTHERS: [(&str, &str); 5] = [
    ("deepseek_v3", "deepseek2"),
    ("falcon_mamba", "mamba"),
    ("internlm2", "internlm2"),
    ("mistral", "llama"),
    ("olmo3", "olmo2"),
];

/// What GGUF files call the family, if they are read.
pub(crate) fn name(family: &Family) -> Option<&'static str> {
    let other = OTHERS.iter().find(|(other, _)| *other == family.name());
    if let Some((_, name)) = other {
        return Some(name);
    }
    let is_it = |known: &&Architecture| {
        let mut types = family.model_types.iter();
        types.any(|name| *name == known.family || Some(*name) == known.sparse)
    };
    // A name may stand for several families; most have one of their own.
    let own = |known: &&Architecture| is_it(known) && family.model_types.contains(&known.name);
    let mut all = ARCHITECTURES.iter();
    let found = all.clone().find(own).or_else(|| all.find(is_it));
    found.map(|known| known.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_is_a_familys() {
        for known in ARCHITECTURES {
            for name in [Some(known.family), known.sparse].into_iter().flatten() {
                let found = families::find(name);
                assert!(
                    matches!(found, Some(Kind::Decoder(_))),
                    "{name} is no family"
                );
            }
            let implied = serde_json::from_str::<serde_json::Value>(known.implied);
            assert!(
                implied.is_ok_and(|implied| implied.is_object()),
                "{}",
                known.name
            );
        }
    }
}
