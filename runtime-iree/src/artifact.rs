//! Artifacts: compiled modules on disk, checked before anything in them is used.

use crate::function_table::LogitsOf;
use crate::layout::BufferLayout;
use crate::sequence::Fingerprint;
use crate::signature::tensor_type;
use crate::target::Target;
use crate::verify;
use crate::{Device, DeviceSpec, Error, Module, Parameters, Signature};
use memmap2::Mmap;
use mlxcel_frontend::artifact::{MODULE, Manifest, WEIGHTS};
use mlxcel_ir::DType;
use mlxcel_ir::step::{LOGITS, TOKEN};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An artifact whose parts were all found and have the digests that its manifest records.
#[derive(Debug)]
pub struct Artifact {
    folder: PathBuf,
    manifest: Manifest,
    target: Target,
    layouts: Vec<BufferLayout>,
    module: Arc<Mmap>,
    weights: Arc<Mmap>,
}

impl Artifact {
    /// Opens the artifact in `folder`: reads and checks the manifest, then the sha256 of every part.
    /// No native code sees any of it before that.
    ///
    /// The weights are used where they are mapped: the file must not be changed while the artifact
    /// is in use.
    ///
    /// # Errors
    /// [`Error::Artifact`], naming the file and field.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let manifest = verify::read_manifest(folder)?;
        let in_manifest = |problem| Error::Artifact {
            path: folder.join(mlxcel_frontend::artifact::MANIFEST),
            problem,
        };
        let target = Target::new(&manifest).map_err(in_manifest)?;
        let layouts = BufferLayout::all(&manifest).map_err(in_manifest)?;
        verify::check_seal(&manifest).map_err(in_manifest)?;
        let mut module = None;
        let mut weights = None;
        for (name, part) in &manifest.parts {
            let map = verify::open_part(folder, name, part)?;
            match name.as_str() {
                MODULE => module = Some(map),
                WEIGHTS => weights = Some(map),
                _ => {}
            }
        }
        let missing = |name| in_manifest(format!("parts: `{name}` is not listed"));
        Ok(Self {
            folder: folder.to_path_buf(),
            target,
            layouts,
            module: Arc::new(module.ok_or_else(|| missing(MODULE))?),
            weights: Arc::new(weights.ok_or_else(|| missing(WEIGHTS))?),
            manifest,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
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
            path: self.folder.join(name),
            problem: error.to_string(),
        };
        let module =
            Module::load(device, &self.module, &self.parameters()?).map_err(
                |error| match error {
                    Error::Module { .. } => at(MODULE, error),
                    Error::Weights { .. } => at(WEIGHTS, error),
                    other => other,
                },
            )?;
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
            path: self.folder.clone(),
            problem,
        }
    }

    /// The tensors of the weights file.
    fn parameters(&self) -> Result<Parameters, Error> {
        let broken = |problem: String| Error::Artifact {
            path: self.folder.join(WEIGHTS),
            problem,
        };
        let (header, metadata) = safetensors::SafeTensors::read_metadata(&self.weights)
            .map_err(|error| broken(format!("no safetensors file: {error}")))?;
        let data = size_of::<u64>() + header;
        let ranges = metadata.tensors().into_iter().map(|(name, tensor)| {
            let (start, end) = tensor.data_offsets;
            (name, data + start..data + end)
        });
        Parameters::from_owner(Arc::clone(&self.weights), ranges)
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
