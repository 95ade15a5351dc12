//! Holding a compiled artifact against the interpreter.

use super::{Arguments, Level, NotRun};
use crate::failure::Usage;
use crate::progress::Spinner;
use anyhow::Context;
use mlxcel_engine::IreeSession;
use mlxcel_frontend::Model;
use mlxcel_ir::DType;
use mlxcel_lower::StoredContract;
use mlxcel_oracle::contract::{self, hold, reference};
use mlxcel_oracle::greedy::{Choices, Judge, by_steps};
use mlxcel_oracle::model::read;
use mlxcel_oracle::verify::texts;
use mlxcel_oracle::{Report, known};
use mlxcel_runtime_iree::{Artifact, Contract, Device, Error, Runtime};
use std::path::Path;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let path = &arguments.model;
    let spinner = Spinner::new(format!("loading {}", path.display()));
    let artifact = Artifact::open(path)?;
    let source = match &arguments.source {
        Some(source) => Some(Source::open(arguments, &artifact, source)?),
        None => None,
    };
    let contracts = match &source {
        Some(source) => source.contracts(&spinner)?,
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
    let layers = source.as_ref().map(|source| source.model.layers());
    let device = Device::open(device)?;
    let mut report = report(&artifact, &device, layers, &contracts)?;
    if let (Some(source), Level::Tokens) = (&source, arguments.level) {
        spinner.say("choosing tokens");
        let choices = source.choices(&artifact, &device, arguments.max_tokens);
        report.choose(0, choices?);
    }
    drop(spinner);
    super::tell(arguments, &report)
}

/// The model that an artifact was compiled from, and what it is run on.
struct Source {
    model: Model,
    tokens: Vec<u32>,
    /// How many tokens are run at a time.
    size: usize,
    /// What the artifact's caches keep.
    kv: DType,
}

impl Source {
    fn open(arguments: &Arguments, artifact: &Artifact, source: &Path) -> anyhow::Result<Self> {
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
        Ok(Self {
            model,
            tokens,
            size,
            kv: kv.unwrap_or(DType::F32),
        })
    }

    fn contracts(&self, spinner: &Spinner) -> Result<Vec<Contract>, NotRun> {
        let texts: Vec<&[u32]> = texts(&self.tokens, self.size).collect();
        let mut contracts = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            let place = format!("{} of {}", number + 1, texts.len());
            spinner.say(format!("computing reference values, text {place}"));
            let contract = reference(&self.model, text, self.kv);
            contracts.push(contract.map_err(|error| NotRun(known::full(&error)))?);
        }
        Ok(contracts)
    }

    /// What the artifact chooses after the first text.
    fn choices(
        &self,
        artifact: &Artifact,
        device: &Device,
        count: usize,
    ) -> anyhow::Result<Choices> {
        let prompt = texts(&self.tokens, self.size).next().unwrap_or_default();
        let count = count.min(artifact.manifest().context - prompt.len());
        let mut session = IreeSession::new(artifact, device)?;
        let text = by_steps("iree", &mut session, prompt, count);
        let graph = read(&self.model, Some(self.kv))?;
        let weights = self.model.weights();
        let choices = text.and_then(|text| Judge::new(&graph, &weights).hold(&text, prompt.len()));
        Ok(choices.map_err(|error| NotRun(known::full(&error)))?)
    }
}

fn report(
    artifact: &Artifact,
    device: &Device,
    layers: Option<usize>,
    contracts: &[Contract],
) -> Result<Report, Error> {
    let mut runtime = Runtime::new(artifact, device)?;
    let manifest = artifact.manifest();
    let names = [&manifest.model[..], &manifest.target];
    hold(names, layers, &mut runtime, contracts)
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

/// Holds a new artifact of `model` against what is stored in it; `None`, with a note, if it cannot run here.
pub(crate) fn after_compiling(model: &Model, path: &Path) -> anyhow::Result<Option<Report>> {
    let artifact = Artifact::open(path)?;
    let contract = artifact.contract().context("it was just stored")?;
    let layers = Some(model.layers());
    let device = artifact.default_device().and_then(Device::open);
    match device.and_then(|device| report(&artifact, &device, layers, &[contract])) {
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
