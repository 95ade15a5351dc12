//! `cargo xtask bench`: how fast a model is decoded or its prompts are read, against what the machine allows.
//!
//! Each round measures every side once, one after the other, so that whatever else the machine does meets all of
//! them; medians over the rounds are told. A speed is a ratio to the memory's bandwidth, measured in the same run.

mod bandwidth;
mod checkpoint;
mod compile;
mod figures;
mod load;
mod peer;
mod traffic;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;

use crate::mlxcel::{Backend, Program, Request};
use crate::workspace::Workspace;
use figures::{Figures, Side};
use peer::Peer;
use traffic::Traffic;

/// Repeated to make a prompt; common words, each a token of its own in most vocabularies.
const WORDS: &str = " the river and the old house";

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Phase {
    /// Tokens generated one by one.
    Decode,
    /// Tokens of a prompt, read together.
    Prefill,
}

/// What to measure, and of which program.
#[derive(Debug, PartialEq)]
pub(crate) struct Bench {
    what: What,
    /// A `mlxcel` that there is; a release build if none.
    program: Option<PathBuf>,
}

/// What to measure.
#[derive(Debug, PartialEq)]
enum What {
    Speed(Options),
    Load(LoadOptions),
    Compile(CompileOptions),
}

/// What to compile for; every usual target if none is named.
#[derive(Debug, PartialEq)]
struct CompileOptions {
    targets: Vec<String>,
    json: bool,
}

/// What to load, and how often.
#[derive(Debug, PartialEq)]
struct LoadOptions {
    layers: usize,
    rounds: usize,
    json: bool,
}

/// What to measure of a model, and how often.
#[derive(Debug, PartialEq)]
struct Options {
    phase: Phase,
    model: PathBuf,
    artifact: Option<PathBuf>,
    tokens: usize,
    rounds: usize,
    peer: Option<PathBuf>,
    json: bool,
}

impl Bench {
    pub(crate) fn parse(arguments: &mut lexopt::Parser) -> Result<Self, lexopt::Error> {
        let mut words = Vec::new();
        let (mut artifact, mut peer, mut tokens) = (None, None, None);
        let (mut rounds, mut json, mut layers) = (5, false, None);
        let (mut targets, mut program) = (Vec::new(), None);
        while let Some(argument) = arguments.next()? {
            match argument {
                Value(word) => words.push(word),
                Long("artifact") => artifact = Some(arguments.value()?.into()),
                Long("peer") => peer = Some(arguments.value()?.into()),
                Long("tokens") => tokens = Some(positive(arguments, "--tokens")?),
                Long("rounds") => rounds = positive(arguments, "--rounds")?,
                Long("target") => targets.push(arguments.value()?.string()?),
                Long("layers") => layers = Some(positive(arguments, "--layers")?),
                Long("program") => program = Some(arguments.value()?.into()),
                Long("json") => json = true,
                other => return Err(other.unexpected()),
            }
        }
        let mut words = words.into_iter();
        let phase = match words
            .next()
            .map(|word| word.string())
            .transpose()?
            .as_deref()
        {
            Some("decode") => Phase::Decode,
            Some("prefill") => Phase::Prefill,
            Some("compile") => match words.next() {
                Some(more) => return Err(Value(more).unexpected()),
                None => {
                    let what = What::Compile(CompileOptions { targets, json });
                    return Ok(Self { what, program });
                }
            },
            Some("load") => match words.next() {
                Some(more) => return Err(Value(more).unexpected()),
                None => {
                    let what = What::Load(LoadOptions {
                        layers: layers.unwrap_or(load::LAYERS),
                        rounds,
                        json,
                    });
                    return Ok(Self { what, program });
                }
            },
            Some(other) => {
                return Err(format!(
                    "bench measures decode, prefill, load or compile, not {other:?}"
                )
                .into());
            }
            None => return Err("bench what? decode, prefill, load or compile".into()),
        };
        if layers.is_some() {
            return Err(Long("layers").unexpected());
        }
        let model = words
            .next()
            .ok_or("which model? give its folder or GGUF file")?;
        if let Some(more) = words.next() {
            return Err(Value(more).unexpected());
        }
        let what = What::Speed(Options {
            phase,
            model: model.into(),
            artifact,
            tokens: tokens.unwrap_or(match phase {
                Phase::Decode => 64,
                Phase::Prefill => 128,
            }),
            rounds,
            peer,
            json,
        });
        Ok(Self { what, program })
    }
}

/// The number after an option, which may not be 0.
fn positive(arguments: &mut lexopt::Parser, option: &str) -> Result<usize, lexopt::Error> {
    match arguments.value()?.parse()? {
        0 => Err(format!("{option} must be at least 1").into()),
        number => Ok(number),
    }
}

/// Builds the program if none is given, measures, and prints.
pub(crate) fn run(workspace: &Workspace, bench: &Bench) -> Result<()> {
    let program = match &bench.program {
        Some(program) => Program::at(program)?,
        None => {
            crate::setup::run(workspace, &crate::setup::Options::default())?;
            Program::build(workspace, &["--release"])?
        }
    };
    let options = match &bench.what {
        What::Speed(options) => options,
        What::Compile(CompileOptions { targets, json }) => {
            return compile::run(workspace, &program, targets, *json);
        }
        What::Load(LoadOptions {
            layers,
            rounds,
            json,
        }) => {
            let folder = workspace.deps("bench-load");
            std::fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
            let outcome = load::run(&program, &folder, *layers, *rounds, *json);
            // It takes 4.5 GB.
            std::fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
            return outcome;
        }
    };
    let artifact = match &options.artifact {
        Some(folder) => folder.clone(),
        None => {
            let folder = workspace.deps("bench-artifact");
            program.compile(&options.model, "iree-cpu", &folder)?;
            folder
        }
    };
    let traffic = Traffic::of_artifact(&artifact)?;
    eprintln!("measuring the memory's bandwidth");
    let bandwidth = bandwidth::measure();
    let sides = measure(&program, &artifact, options)?;
    let figures = Figures {
        phase: options.phase,
        rounds: options.rounds,
        traffic,
        bandwidth,
        sides,
    };
    if options.json {
        println!("{:#}", figures.json());
    } else {
        print!("{}", figures.table());
    }
    Ok(())
}

/// Runs every side once in each round.
fn measure(program: &Program, artifact: &std::path::Path, options: &Options) -> Result<Vec<Side>> {
    let prompt = WORDS.repeat(match options.phase {
        Phase::Decode => 1,
        Phase::Prefill => options.tokens.div_ceil(WORDS.split_whitespace().count()),
    });
    let tokens = match options.phase {
        Phase::Decode => options.tokens,
        Phase::Prefill => 1,
    };
    let mut sides = [("eager", Backend::Mlx), ("artifact", Backend::Iree)]
        .map(|(name, backend)| (Side::new(name), backend));
    let mut peer = options
        .peer
        .as_deref()
        .map(|program| (Side::new("llama.cpp"), Peer::new(program)));
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for (side, backend) in &mut sides {
            let model = match backend {
                Backend::Mlx => &options.model,
                Backend::Iree => artifact,
            };
            let reply = program.generate(&Request {
                model,
                backend: *backend,
                prompt: &prompt,
                tokens,
                raw: true,
            })?;
            if reply.tokens < tokens {
                bail!(
                    "{} generated {} tokens instead of {tokens}",
                    side.name,
                    reply.tokens
                );
            }
            side.add(options.phase, &reply);
        }
        if let Some((side, peer)) = &mut peer {
            side.tokens = sides[0].0.tokens;
            let speed = peer
                .measure(options.phase, &options.model, side.tokens)
                .context("the peer could not be measured")?;
            side.speeds.push(speed);
        }
    }
    let sides = sides.into_iter().map(|(side, _)| side);
    Ok(sides.chain(peer.map(|(side, _)| side)).collect())
}
