//! Holding a compiled artifact against the interpreter.

use super::{Arguments, NotRun};
use crate::failure::Usage;
use crate::progress::Spinner;
use anyhow::Context;
use mlxcel_frontend::Model;
use mlxcel_ir::DType;
use mlxcel_lower::StoredContract;
use mlxcel_oracle::contract::{self, hold, reference};
use mlxcel_oracle::verify::texts;
use mlxcel_oracle::{Report, known};
use mlxcel_runtime_iree::{Artifact, Contract, Device, Error, Runtime};
use std::path::Path;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let path = &arguments.model;
    let chosen =
        arguments.prompt.is_some() || arguments.tokens.is_some() || arguments.text_file.is_some();
    if arguments.source.is_none() && chosen {
        let path = path.display();
        let problem =
            "without --source, an artifact is verified on the tokens that are stored in it";
        return Err(Usage(format!("{path}: {problem}")).into());
    }
    if arguments.kv_dtype.is_some() {
        let problem = "an artifact's caches have the element type that it was compiled with";
        return Err(Usage(format!("{}: {problem}", path.display())).into());
    }
    let spinner = Spinner::new(format!("loading {}", path.display()));
    let artifact = Artifact::open(path)?;
    let contracts = match &arguments.source {
        Some(source) => from_source(arguments, &artifact, source, &spinner)?,
        None => vec![artifact.contract().ok_or_else(|| {
            NotRun(format!(
                "{}: it holds no reference values; name the model that it was compiled from with \
                 --source, or compile it with --verify",
                path.display()
            ))
        })?],
    };
    spinner.say("running the artifact");
    let device = match &arguments.device {
        Some(device) => device.parse()?,
        None => artifact.default_device()?,
    };
    let report = report(&artifact, device, &contracts)?;
    drop(spinner);
    super::tell(arguments, &report)
}

fn from_source(
    arguments: &Arguments,
    artifact: &Artifact,
    source: &Path,
    spinner: &Spinner,
) -> anyhow::Result<Vec<Contract>> {
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
    let (tokens, size) = match super::tokens(arguments, &model)? {
        Some(tokens) => tokens,
        None => {
            let tokens = contract::tokens(&model)?;
            (tokens, None)
        }
    };
    let size = size.unwrap_or(tokens.len());
    if size > manifest.context {
        return Err(Usage(format!(
            "{size} tokens at a time do not fit into the artifact's context of {}",
            manifest.context
        ))
        .into());
    }
    let kv = manifest.cache_dtype().and_then(|name| name.parse().ok());
    let kv = kv.unwrap_or(DType::F32);
    let texts: Vec<&[u32]> = texts(&tokens, size).collect();
    let mut contracts = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let place = format!("{} of {}", number + 1, texts.len());
        spinner.say(format!("computing reference values, text {place}"));
        contracts.push(reference(&model, text, kv).map_err(|error| NotRun(known::full(&error)))?);
    }
    Ok(contracts)
}

fn report(
    artifact: &Artifact,
    device: mlxcel_runtime_iree::DeviceSpec,
    contracts: &[Contract],
) -> Result<Report, Error> {
    let device = Device::open(device)?;
    let mut runtime = Runtime::new(artifact, &device)?;
    let manifest = artifact.manifest();
    hold([&manifest.model, &manifest.target], &mut runtime, contracts)
}

/// What is stored in an artifact of `model` with caches of `kv` for later verifications.
pub(crate) fn stored(model: &Model, context: usize, kv: DType) -> anyhow::Result<StoredContract> {
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
    match device.and_then(|device| report(&artifact, device, &[contract])) {
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
