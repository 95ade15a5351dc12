//! Artifacts: compiled modules on disk, checked before anything in them is used.

use crate::function_table::LogitsOf;
use crate::layout::BufferLayout;
use crate::sequence::Fingerprint;
use crate::signature::tensor_type;
use crate::target::Target;
use crate::verify;
use crate::{Device, DeviceSpec, Error, Module, Parameters, Signature};
use mlxcel_frontend::artifact::{Bytes, CONTRACT, Files, MANIFEST, MODULE, Manifest, WEIGHTS};
use mlxcel_frontend::{GraphOptions, LoadError, Model};
use mlxcel_ir::DType;
use mlxcel_ir::step::{LOGITS, TOKEN};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An artifact whose parts were all found and have the digests that its manifest records.
#[derive(Debug)]
pub struct Artifact {
    path: PathBuf,
    manifest: Manifest,
    target: Target,
    layouts: Vec<BufferLayout>,
    module: Bytes,
    /// The weights, if they are in the artifact.
    weights: Option<Bytes>,
    /// The logits of the contract.
    logits: Option<Bytes>,
}

/// What an artifact must compute, as it was when it was compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Contract {
    /// The tokens, from an empty cache.
    pub tokens: Vec<u32>,
    /// The logits `[tokens, vocabulary]` after each.
    pub logits: Vec<f32>,
    /// The largest relative root mean square error that rounding explains.
    pub budget: f64,
}

impl Artifact {
    /// Opens the artifact in the folder or file `path`: reads and checks the manifest, then the sha256 of every part.
    /// No native code sees any of it before that.
    ///
    /// The weights are used where they are mapped: the file must not be changed while the artifact
    /// is in use.
    ///
    /// # Errors
    /// [`Error::Artifact`], naming the file and field.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let files = Files::open(path).map_err(|error| Error::Artifact {
            path: path.to_path_buf(),
            problem: error.to_string(),
        })?;
        let manifest = verify::read_manifest(&files)?;
        let in_manifest = |problem| Error::Artifact {
            path: files.place(MANIFEST),
            problem,
        };
        let target = Target::new(&manifest).map_err(in_manifest)?;
        let layouts = BufferLayout::all(&manifest).map_err(in_manifest)?;
        verify::check_seal(&manifest).map_err(in_manifest)?;
        let mut module = None;
        let mut weights = None;
        let mut logits = None;
        for (name, part) in &manifest.parts {
            let map = verify::open_part(&files, name, part)?;
            match name.as_str() {
                MODULE => module = Some(map),
                WEIGHTS => weights = Some(map),
                CONTRACT => logits = Some(map),
                _ => {}
            }
        }
        let missing = |name| in_manifest(format!("parts: `{name}` is not listed"));
        if weights.is_none() && manifest.reference.is_none() {
            return Err(missing(WEIGHTS));
        }
        Ok(Self {
            path: path.to_path_buf(),
            target,
            layouts,
            module: module.ok_or_else(|| missing(MODULE))?,
            weights,
            logits,
            manifest,
        })
    }

    /// The folder or file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What the artifact must compute, if that is in it.
    pub fn contract(&self) -> Option<Contract> {
        let contract = self.manifest.contract.as_ref()?;
        let numbers = self.logits.as_deref()?.chunks_exact(size_of::<f32>());
        let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap_or_default());
        Some(Contract {
            tokens: contract.tokens.clone(),
            logits: numbers.map(number).collect(),
            budget: contract.budget,
        })
    }

    /// The device to run on if the user names none.
    ///
    /// # Errors
    /// [`Error::Artifact`] if this runtime has no driver for the target.
    pub fn default_device(&self) -> Result<DeviceSpec, Error> {
        self.target
            .default_device()
            .map_err(|problem| self.error(problem))
    }

    /// Loads the module and its weights on a device, and checks that its functions are those that
    /// the manifest describes.
    ///
    /// # Errors
    /// [`Error::Artifact`] if the artifact is for another device, this processor lacks an instruction
    /// set that it uses, or manifest, module and weights do not belong together; [`Error::Memory`].
    pub fn load(&self, device: &Device) -> Result<Module, Error> {
        self.target
            .check(device.spec())
            .map_err(|problem| self.error(problem))?;
        let at = |name: &str, error: Error| Error::Artifact {
            path: self.path.join(name),
            problem: error.to_string(),
        };
        let loaded = Module::load(device, &self.module, &self.parameters()?);
        let module = loaded.map_err(|error| match (error, device.name()) {
            // A driver says that it cannot use the code, and not what it was made for.
            (error @ Error::Module { .. }, Some(name)) => Error::Artifact {
                path: self.path.join(MODULE),
                problem: format!(
                    "{error}; it is compiled for the chip {}, and {} is {name}: if that has another \
                     chip, compile the model with it as `--chip`",
                    self.manifest.chip,
                    device.spec()
                ),
            },
            (error @ Error::Module { .. }, None) => at(MODULE, error),
            (error @ Error::Weights { .. }, _) => at(WEIGHTS, error),
            (other, _) => other,
        })?;
        self.check_functions(&module)?;
        Ok(module)
    }

    /// The layouts of the state buffers.
    pub(crate) fn layouts(&self) -> &[BufferLayout] {
        &self.layouts
    }

    /// What a saved sequence depends on: the code and the weights.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let mut digest = Sha256::new();
        digest.update(&self.manifest.source);
        for part in [MODULE, WEIGHTS] {
            digest.update(
                self.manifest
                    .parts
                    .get(part)
                    .map_or("", |part| &part.sha256),
            );
        }
        digest.finalize().into()
    }

    fn error(&self, problem: String) -> Error {
        Error::Artifact {
            path: self.path.clone(),
            problem,
        }
    }

    /// The weights, from the artifact or from the checkpoint that it refers to.
    fn parameters(&self) -> Result<Parameters, Error> {
        match (&self.weights, &self.manifest.reference) {
            (Some(weights), _) => self.embedded(weights),
            (None, Some(path)) => self.referenced(Path::new(path)),
            // Refused when it was opened.
            (None, None) => Ok(Parameters::none()),
        }
    }

    /// The weights of the checkpoint at `path`, which must be the one that was compiled.
    fn referenced(&self, path: &Path) -> Result<Parameters, Error> {
        let wrong = |problem: String| Error::Artifact {
            path: self.path.clone(),
            problem: format!(
                "its weights are those of {}: {problem}; put the checkpoint back, or compile the model \
                 again, with `--weights embed` to have them in the artifact",
                path.display()
            ),
        };
        let load = || {
            let model = Model::load(path)?;
            let digest = model.digest()?;
            let graph = model.graph(&GraphOptions::default())?;
            Ok::<_, LoadError>((model, digest, graph))
        };
        let (model, digest, graph) = load().map_err(|error| wrong(error.to_string()))?;
        if digest != self.manifest.source {
            let expected = &self.manifest.source;
            return Err(wrong(format!(
                "its digest is {digest}, and the manifest says {expected}"
            )));
        }
        Parameters::from_source(&model.weights(), &graph.weights)
    }

    /// The tensors of the weights file.
    fn embedded(&self, weights: &Bytes) -> Result<Parameters, Error> {
        let broken = |problem: String| Error::Artifact {
            path: self.path.join(WEIGHTS),
            problem,
        };
        let (header, metadata) = safetensors::SafeTensors::read_metadata(weights)
            .map_err(|error| broken(format!("no safetensors file: {error}")))?;
        let data = size_of::<u64>() + header;
        let ranges = metadata.tensors().into_iter().map(|(name, tensor)| {
            let (start, end) = tensor.data_offsets;
            (name, data + start..data + end)
        });
        Parameters::from_owner(Arc::new(weights.clone()), ranges)
            .ok_or_else(|| broken("a tensor lies outside the file".to_string()))
    }

    /// Fails unless every function of the manifest stands in the module with the types that the
    /// manifest implies.
    fn check_functions(&self, module: &Module) -> Result<(), Error> {
        for function in &self.manifest.functions {
            let signature = module
                .function(&function.name)
                .map_err(|error| self.error(format!("functions: {error}")))?;
            let mut inputs = vec![
                tensor_type(DType::I32, &[function.batch, function.tokens]),
                tensor_type(DType::I32, &[function.batch]),
                tensor_type(DType::I32, &[function.batch]),
            ];
            let mut outputs = Vec::new();
            for (index, name) in function.outputs.iter().enumerate() {
                outputs.push(match name.as_str() {
                    LOGITS => {
                        let vocabulary = self.manifest.vocabulary;
                        let actual = signature.outputs.get(index);
                        let kind = actual
                            .and_then(|output| LogitsOf::read(function, vocabulary, output))
                            .unwrap_or(LogitsOf::Last);
                        Some(kind.tensor(function, vocabulary))
                    }
                    TOKEN => Some(tensor_type(DType::I32, &[function.batch])),
                    // Hidden states are for debugging, and the manifest does not say how wide.
                    _ => None,
                });
            }
            for layout in &self.layouts {
                let buffer = tensor_type(layout.dtype, &layout.shape_of(function.batch));
                inputs.push(buffer.clone());
                outputs.push(Some(buffer));
            }
            let same = signature.inputs == inputs
                && signature.outputs.len() == outputs.len()
                && signature
                    .outputs
                    .iter()
                    .zip(&outputs)
                    .all(|(actual, expected)| expected.as_ref().is_none_or(|e| e == actual));
            if !same {
                return Err(self.error(mismatch(signature, &inputs, &outputs)));
            }
        }
        Ok(())
    }
}

/// Says in which type a function and the manifest differ first.
fn mismatch(signature: &Signature, inputs: &[String], outputs: &[Option<String>]) -> String {
    let name = &signature.name;
    let first = |kind: &str, actual: &[String], expected: &[Option<String>]| {
        let differs = |index: &usize| match (actual.get(*index), expected.get(*index)) {
            (Some(actual), Some(Some(expected))) => actual != expected,
            (Some(_), Some(None)) => false,
            _ => true,
        };
        let index = (0..actual.len().max(expected.len())).find(differs)?;
        let actual = actual.get(index).map_or("nothing", String::as_str);
        let expected = match expected.get(index) {
            Some(Some(expected)) => expected.as_str(),
            Some(None) => "a tensor",
            None => "nothing",
        };
        Some(format!(
            "the manifest does not describe the module: function `{name}`, {kind} {index} is \
             {actual}, and the manifest says {expected}; compile the model again"
        ))
    };
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    first("argument", &signature.inputs, &inputs)
        .or_else(|| first("result", &signature.outputs, outputs))
        .unwrap_or_else(|| format!("function `{name}` differs from the manifest"))
}
