//! Why a model could not be loaded.

use std::path::PathBuf;

/// Why a model, or a part of it, could not be loaded. Each message names the file and the field,
/// tensor or token at fault, and says what to do where that is not plain.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The path is no model.
    #[error(
        "{} is not a model: {reason}. Give a folder with config.json and *.safetensors files, \
         or a .gguf file",
        path.display()
    )]
    NotAModel {
        /// The path given.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },
    /// The path is a model, but not of the kind that is asked for.
    #[error("{}: {reason}", path.display())]
    WrongKind {
        /// The model.
        path: PathBuf,
        /// What it is, and what takes such a model.
        reason: String,
    },
    /// A file is not what its format says, as a whole.
    #[error("{}: {reason}", file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// What is wrong and where.
        reason: String,
    },
    /// A field of a configuration or of metadata is missing or wrong.
    #[error("{}: field `{field}`: {reason}", file.display())]
    Field {
        /// The file.
        file: PathBuf,
        /// The field, with the path to it (`rope_scaling.factor`).
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The model is of a family that this build does not know.
    #[error(
        "{}: field `{field}`: model family `{found}` is not supported; supported are {}",
        file.display(), supported.join(", ")
    )]
    Family {
        /// The file.
        file: PathBuf,
        /// The field that names the family.
        field: String,
        /// The family found.
        found: String,
        /// The families that this build knows.
        supported: Vec<String>,
    },
    /// A tensor is described or stored wrongly.
    #[error("{}: tensor `{tensor}`: {reason}", file.display())]
    Tensor {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor that the model needs is in none of its files.
    #[error(
        "{}: tensor `{tensor}` is missing ({reason}); download the checkpoint again or check \
         that its config.json belongs to it",
        path.display()
    )]
    MissingTensor {
        /// The folder or file searched.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Why it is needed.
        reason: String,
    },
    /// A file that the checkpoint's index names is not there.
    #[error(
        "{}: names the shard `{shard}`, which is not in its folder; download that file",
        index.display()
    )]
    MissingShard {
        /// The index.
        index: PathBuf,
        /// The missing file.
        shard: String,
    },
    /// A file of a model in several is not there.
    #[error(
        "{}: the model is in {total} files, of which `{part}` is not there; download that file",
        folder.display()
    )]
    MissingPart {
        /// Where the files are.
        folder: PathBuf,
        /// How many there are.
        total: usize,
        /// The missing one.
        part: String,
    },
    /// The path is no adapter.
    #[error(
        "{} is not an adapter: it {reason}. Give a folder with adapter_config.json and \
         adapter_model.safetensors or adapters.safetensors",
        path.display()
    )]
    NotAnAdapter {
        /// The path given.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },
    /// The graph could not be built.
    #[error("{}: {source}", path.display())]
    Graph {
        /// The model.
        path: PathBuf,
        /// The op and the constraint.
        source: mlxcel_ir::BuildError,
    },
}

impl LoadError {
    /// A reader of `file` failed.
    pub(crate) fn read(file: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let file = file.into();
        move |source| LoadError::Read { file, source }
    }

    /// `file` breaks its format.
    pub(crate) fn format(file: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        LoadError::Format {
            file: file.into(),
            reason: reason.into(),
        }
    }
}
