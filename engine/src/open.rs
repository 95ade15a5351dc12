//! From a path to a session.

use crate::session::{IreeSession, MlxSession, ReferenceSession, Session, SessionError};
use mlxcel_frontend::artifact::is_artifact;
use mlxcel_frontend::{GraphOptions, LoadError, LoadOptions, Logits, Model, Text};
use mlxcel_ir::DType;
use mlxcel_runtime_iree::{Artifact, Device, DeviceSpec};
use mlxcel_runtime_mlx::{Graphs, Route};
use std::fmt;
use std::path::{Path, PathBuf};

/// What executes a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Eager execution on MLX.
    Mlx,
    /// A compiled artifact on IREE.
    Iree,
    /// The interpreter.
    Reference,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Mlx => "mlx",
            Backend::Iree => "iree",
            Backend::Reference => "reference",
        })
    }
}

/// How a model is opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenOptions {
    /// What executes it; by default IREE for an artifact and MLX for a model.
    pub backend: Option<Backend>,
    /// The device: of an artifact by its name, by default one that it was compiled for; of MLX `cpu`,
    /// the default, or `gpu`.
    pub device: Option<String>,
    /// Tokens of context; by default all that the model or artifact has.
    pub context: Option<usize>,
    /// Whether each sequence gets all of its tokens in one step: then it may have as many as
    /// [`Model::longest`] says, not [`Model::context`].
    pub whole: bool,
    /// Element type in which a model's caches keep keys and values: f32, if not given, f16 or bf16. An artifact has
    /// its own.
    pub kv: Option<DType>,
    /// What is done to a model's weights when they are loaded.
    pub load: LoadOptions,
}

/// Why a model could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The model or its text files are missing or broken.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The artifact or its device cannot be used.
    #[error(transparent)]
    Iree(#[from] mlxcel_runtime_iree::Error),
    /// The model cannot be planned for MLX.
    #[error(transparent)]
    Mlx(#[from] mlxcel_runtime_mlx::Error),
    /// The session could not be made.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// IREE was asked for where there is nothing compiled.
    #[error(
        "{}: IREE runs compiled artifacts only; compile the model with \
         `mlxcel compile {} --target iree-cpu` and run the result",
        path.display(), path.display()
    )]
    NotCompiled {
        /// The model.
        path: PathBuf,
    },
    /// A backend that needs the model was asked for an artifact.
    #[error("{}: a compiled artifact runs on the backend iree, not on {backend}", path.display())]
    Compiled {
        /// The artifact.
        path: PathBuf,
        /// The backend asked for.
        backend: Backend,
    },
    /// A device was named that the backend does not have.
    #[error("the backend {backend} has no device `{device}`; {known}")]
    Device {
        /// The backend.
        backend: Backend,
        /// The device asked for.
        device: String,
        /// What can be asked for, in words.
        known: &'static str,
    },
    /// The caches of an artifact were to be of another element type.
    #[error(
        "{}: the caches of a compiled artifact have the element type that it was compiled with; give --kv-dtype \
         to `mlxcel compile`",
        path.display()
    )]
    FixedCaches {
        /// The artifact.
        path: PathBuf,
    },
    /// The weights of an artifact were to be changed.
    #[error(
        "{}: the weights of a compiled artifact cannot be changed; give the adapter or surgery to \
         `mlxcel compile`",
        path.display()
    )]
    Fixed {
        /// The artifact.
        path: PathBuf,
    },
    /// An encoder was to run where none can.
    #[error("{}: encoders run from their checkpoints, on the backends mlx and reference", path.display())]
    EncoderBackend {
        /// The model.
        path: PathBuf,
    },
    /// More context than there is.
    #[error(
        "{}: a context of {asked} tokens was asked for, and there are {available}{hint}",
        path.display()
    )]
    Context {
        /// The model or artifact.
        path: PathBuf,
        /// Tokens asked for.
        asked: usize,
        /// Tokens that there are.
        available: usize,
        /// What to do.
        hint: &'static str,
    },
}

/// A model ready to generate.
pub struct Opened {
    /// The model being executed.
    pub session: Box<dyn Session>,
    /// The model's name.
    pub name: String,
    /// The model's family.
    pub family: String,
    /// What executes it.
    pub backend: Backend,
    /// On MLX, what computes with the weights, by format.
    pub routes: Vec<Route>,
    source: Source,
}

enum Source {
    Model(Box<Model>),
    Artifact(PathBuf),
}

impl Opened {
    /// What a user should know of how the model was loaded, in sentences.
    pub fn notes(&self) -> &[String] {
        match &self.source {
            Source::Model(model) => model.notes(),
            Source::Artifact(_) => &[],
        }
    }

    /// The tokenizer, chat template and end tokens.
    ///
    /// # Errors
    /// A file that is missing or broken.
    pub fn text(&self) -> Result<Text, LoadError> {
        match &self.source {
            Source::Model(model) => model.text(),
            Source::Artifact(path) => Text::from_artifact(path),
        }
    }
}

/// Opens the model folder, `.gguf` file or artifact at `path`.
///
/// # Errors
/// [`OpenError`], naming the file and field at fault.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Opened, OpenError> {
    if is_artifact(path) && options.load != LoadOptions::default() {
        return Err(OpenError::Fixed {
            path: path.to_path_buf(),
        });
    }
    let backend = match (options.backend, is_artifact(path)) {
        (None | Some(Backend::Iree), true) => return open_artifact(path, options),
        (Some(backend), true) => {
            return Err(OpenError::Compiled {
                path: path.to_path_buf(),
                backend,
            });
        }
        (backend, false) => backend.unwrap_or(Backend::Mlx),
    };
    let device = model_device(backend, options.device.as_deref())?;
    let model = Model::load_with(path, &options.load)?;
    let kv = options.kv.unwrap_or(DType::F32);
    let available = match options.whole {
        true => model.longest(),
        false => model.context(),
    };
    let context = context(path, options, available, "")?;
    let mut routes = Vec::new();
    let session: Box<dyn Session> = match backend {
        Backend::Mlx => {
            let session = mlx(&model, context, device, kv)?;
            routes = session.routes();
            Box::new(session)
        }
        Backend::Reference => {
            let mut graph = model.graph(&GraphOptions {
                logits: Logits::All,
                ..GraphOptions::default()
            })?;
            graph.keep_caches_in(kv);
            Box::new(ReferenceSession::new(
                &graph,
                model.weights(),
                context,
                model.vocabulary(),
            )?)
        }
        Backend::Iree => {
            return Err(OpenError::NotCompiled {
                path: path.to_path_buf(),
            });
        }
    };
    Ok(Opened {
        session,
        name: model.name().to_string(),
        family: model.family().to_string(),
        backend,
        routes,
        source: Source::Model(Box::new(model)),
    })
}

/// Where a backend that needs the model computes.
fn model_device(
    backend: Backend,
    device: Option<&str>,
) -> Result<mlxcel_runtime_mlx::Device, OpenError> {
    use mlxcel_runtime_mlx::Device as MlxDevice;
    match (backend, device) {
        (_, None) | (Backend::Mlx, Some("cpu")) => Ok(MlxDevice::Cpu),
        (Backend::Mlx, Some("gpu")) => Ok(MlxDevice::Gpu),
        (backend, Some(device)) => Err(OpenError::Device {
            backend,
            device: device.to_string(),
            known: match backend {
                Backend::Mlx => "it has `cpu` and `gpu`",
                _ => "leave it out",
            },
        }),
    }
}

fn mlx(
    model: &Model,
    context: usize,
    device: mlxcel_runtime_mlx::Device,
    kv: DType,
) -> Result<MlxSession, OpenError> {
    let mut graphs = Graphs {
        last: model.graph(&GraphOptions {
            token: true,
            ..GraphOptions::default()
        })?,
        all: model.graph(&GraphOptions {
            name: "all".into(),
            logits: Logits::All,
            ..GraphOptions::default()
        })?,
    };
    for graph in [&mut graphs.last, &mut graphs.all] {
        graph.keep_caches_in(kv);
    }
    let mut options = mlxcel_runtime_mlx::Options::new(context);
    options.device = device;
    Ok(MlxSession::new(&graphs, model.weights(), options)?)
}

fn open_artifact(path: &Path, options: &OpenOptions) -> Result<Opened, OpenError> {
    if options.kv.is_some() {
        return Err(OpenError::FixedCaches {
            path: path.to_path_buf(),
        });
    }
    let artifact = Artifact::open(path)?;
    let device: DeviceSpec = match &options.device {
        Some(device) => device.parse()?,
        None => artifact.default_device()?,
    };
    let device = Device::open(device)?;
    let session = IreeSession::new(&artifact, &device)?;
    let manifest = artifact.manifest();
    let hint = "; compile the model again with a larger --context";
    let context = context(path, options, manifest.context, hint)?;
    Ok(Opened {
        session: Box::new(session.with_context(context)),
        name: manifest.model.clone(),
        family: manifest.family.clone(),
        backend: Backend::Iree,
        routes: Vec::new(),
        source: Source::Artifact(path.to_path_buf()),
    })
}

/// The context to use of the `available` one.
fn context(
    path: &Path,
    options: &OpenOptions,
    available: usize,
    hint: &'static str,
) -> Result<usize, OpenError> {
    match options.context {
        None => Ok(available),
        Some(asked) if asked <= available => Ok(asked),
        Some(asked) => Err(OpenError::Context {
            path: path.to_path_buf(),
            asked,
            available,
            hint,
        }),
    }
}
