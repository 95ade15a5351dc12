//! Holding a compiled artifact against the interpreter.

use super::{Arguments, NotRun};
use crate::failure::Usage;
use crate::progress::Spinner;
use anyhow::Context;
use mlxcel_frontend::Model;
use mlxcel_ir::DType;
use mlxcel_lower::StoredContract;
use mlxcel_oracle::contract::{self, hold, reference};
use mlxcel_oracle::{Report, known};
use mlxcel_runtime_iree::{Artifact, Contract, Device, Error, Runtime};
use std::path::Path;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let path = &arguments.model;
    if arguments.source.is_none() && (arguments.prompt.is_some() || arguments.tokens.is_some()) {
        let path = path.display();
        let problem =
            "without --source, an artifact is verified on the tokens that are stored in it";
        return Err(Usage(format!("{path}: {problem}")).into());
    }
    if arguments.kv_dtype.is_some() {
        let problem = "an artifact's caches have the element type that it was compiled with";
        return Err(Usage(format!("{}: {problem}", path.display())).into());
    }
    if arguments.text_file.is_some() {
        let path = path.display();
        return Err(Usage(format!("{path}: an artifact is verified on a prompt")).into());
    }
    let spinner = Spinner::new(format!("loading {}", path.display()));
    let artifact = Artifact::open(path)?;
    let contract = match &arguments.source {
        Some(source) => from_source(arguments, &artifact, source, &spinner)?,
        None => artifact.contract().ok_or_else(|| {
            NotRun(format!(
                "{}: it holds no reference values; name the model that it was compiled from with \
                 --source, or compile it with --verify",
                path.display()
            ))
        })?,
    };
    spinner.say("running the artifact");
    let device = match &arguments.device {
        Some(device) => device.parse()?,
        None => artifact.default_device()?,
    };
    let report = report(&artifact, device, &contract)?;
    drop(spinner);
    super::tell(arguments, &report)
}

fn from_source(
    arguments: &Arguments,
    artifact: &Artifact,
    source: &Path,
    spinner: &Spinner,
) -> anyhow::Result<Contract> {
    let model = arguments.changes.load(source)?;
    let (digest, manifest) = (model.digest()?, artifact.manifest());
    if digest != manifest.source {
        return Err(NotRun(format!(
            "{}: it was compiled from a checkpoint with the digest {}, and {} has {digest}",
            arguments.model.display(),
            manifest.source,
            source.display(),
        ))
        .into());
    }
    let tokens = match (&arguments.prompt, &arguments.tokens) {
        (Some(prompt), _) => model.text()?.encode(prompt, true)?,
        (_, Some(tokens)) => tokens.clone(),
        _ => contract::tokens(&model)?,
    };
    if tokens.len() > manifest.context {
        return Err(Usage(format!(
            "a prompt of {} tokens does not fit into the artifact's context of {}",
            tokens.len(),
            manifest.context
        ))
        .into());
    }
    spinner.say("computing reference values");
    let kv = manifest.cache_dtype().and_then(|name| name.parse().ok());
    let contract = reference(&model, &tokens, kv.unwrap_or(DType::F32));
    Ok(contract.map_err(|error| NotRun(known::full(&error)))?)
}

fn report(
    artifact: &Artifact,
    device: mlxcel_runtime_iree::DeviceSpec,
    contract: &Contract,
) -> Result<Report, Error> {
    let device = Device::open(device)?;
    let mut runtime = Runtime::new(artifact, &device)?;
    let manifest = artifact.manifest();
    hold([&manifest.model, &manifest.target], &mut runtime, contract)
}

/// What is stored in an artifact of `model` with caches of `kv` for later verifications.
pub(crate) fn stored(
    model: &Model,
    context: usize,
    kv: DType,
) -> anyhow::Result<StoredContract> {
    let mut tokens = contract::tokens(model)?;
    tokens.truncate(context);
    let Contract {
        tokens,
        logits,
        budget,
    } = reference(model, &tokens, kv)?;
    Ok(StoredContract {
        contract: mlxcel_frontend::artifact::Contract { tokens, budget },
        logits,
    })
}

/// Holds a new artifact against what is stored in it; `None`, with a note, if it cannot run here.
pub(crate) fn after_compiling(path: &Path) -> anyhow::Result<Option<Report>> {
    let artifact = Artifact::open(path)?;
    let contract = artifact.contract().context("it was just stored")?;
    let device = artifact.default_device();
    match device.and_then(|device| report(&artifact, device, &contract)) {
        Ok(report) => Ok(Some(report)),
        // Of another device or processor, or of a driver that is not here.
        Err(
            error @ (Error::Artifact { .. }
            | Error::DriverNotBuilt { .. }
            | Error::DeviceUnavailable { .. }),
        ) => {
            crate::args::tell(&[format!("it was not run here: {error}")]);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
