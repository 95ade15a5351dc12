//! `bench load`: how long a large model takes to its first token, and what memory.
//!
//! The model is made here: a Llama of 8 billion random numbers in MLX's affine 4-bit format, 4.5 GB, with a tokenizer
//! of single bytes. What it says means nothing; how its weights are read does.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use serde_json::json;

use super::checkpoint::{self, EIGHT_BILLION, Form, Shape};
use crate::mlxcel::{Backend, Program, Request};

/// Layers of the model that the goals are for.
pub(super) const LAYERS: usize = EIGHT_BILLION.layers;

/// Memory that the program may take above the weights.
const MEMORY: u64 = 300_000_000;
/// Seconds that it may take to the first token, its start included.
const SECONDS: f64 = 2.0;

/// Makes the model of `layers` layers in `folder`, runs it, and prints what it took: the median time and the largest
/// memory of all rounds. Fails if that misses a goal. The folder is left as it is.
pub(super) fn run(
    program: &Program,
    folder: &Path,
    layers: usize,
    rounds: usize,
    as_json: bool,
) -> Result<()> {
    eprintln!("writing the model to {}", folder.display());
    let shape = Shape {
        layers,
        ..EIGHT_BILLION
    };
    let bytes = checkpoint::write(folder, &shape, Form::FourBits)?;
    let request = Request {
        model: folder,
        backend: Backend::Mlx,
        prompt: "a river",
        tokens: 1,
        raw: true,
    };
    // The first run reads the file, if the system has dropped it since it was written.
    program.generate(&request)?;
    let mut times = Vec::new();
    let mut peak = 0;
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        let start = Instant::now();
        let reply = program.generate(&request)?;
        times.push((start.elapsed().as_secs_f64(), reply.time_to_first_token));
        peak = reply.peak_memory.max(peak);
    }
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(&(seconds, first)) = times.get(times.len() / 2) else {
        bail!("nothing was measured");
    };
    let above = peak.saturating_sub(bytes);
    if as_json {
        let figures = json!({
            "layers": layers,
            "weight_bytes": bytes,
            "seconds": seconds,
            "time_to_first_token": first,
            "peak_memory_bytes": peak,
            "bytes_above_weights": above,
        });
        println!("{figures:#}");
    } else {
        let verdict = |good: bool| if good { "reached" } else { "missed" };
        println!(
            "weights                     {:8.1} MB in {layers} layers",
            bytes as f64 / 1e6
        );
        println!(
            "start to end of a token     {seconds:8.2} s   (at most {SECONDS} s: {})",
            verdict(seconds <= SECONDS)
        );
        println!("first token, model loaded   {first:8.2} s");
        let most = MEMORY as f64 / 1e6;
        println!("peak memory                 {:8.1} MB", peak as f64 / 1e6);
        println!(
            "above the weights           {:8.1} MB  (at most {most} MB: {})",
            above as f64 / 1e6,
            verdict(above <= MEMORY)
        );
    }
    match seconds <= SECONDS && above <= MEMORY {
        true => Ok(()),
        false => bail!("a goal was missed"),
    }
}
