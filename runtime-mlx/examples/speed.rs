//! Measures prefill and decode of a model on the CPU: `speed <model> [prompt] [tokens] [threads]`.
//!
//! Prints tokens per second, the weights' bytes per second of decoding, how much of a decode step
//! the host spends on recording it, and the processor time of a step, which other work on the
//! machine disturbs less than the clock.

use mlxcel_frontend::{GraphOptions, Logits, Model};
use mlxcel_ir::step::{Row, RowOutput, Tokens, Want};
use mlxcel_runtime_mlx::{Device, Graphs, Options, Runtime};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

/// Seconds that the threads of this process have computed, where the system tells.
fn processor_time() -> f64 {
    let seconds = || {
        let text = std::fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = text.rsplit(") ").next()?.split(' ').collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        Some((ticks(11)? + ticks(12)?) / 100.0)
    };
    seconds().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize, other: usize| {
        arguments
            .get(index)
            .map_or(Ok(other), |text| text.parse::<usize>())
    };
    let path = arguments.get(1).ok_or("which model?")?;
    let (prompt, tokens) = (number(2, 128)?, number(3, 64)?);
    let threads = number(4, 0)?;

    let model = Model::load(Path::new(path))?;
    let graph = |logits, token| {
        model.graph(&GraphOptions {
            name: format!("{logits:?}"),
            logits,
            token,
            hidden: false,
        })
    };
    let graphs = Graphs {
        last: graph(Logits::Last, true)?,
        all: graph(Logits::All, false)?,
    };
    let device = match std::env::var("DEVICE").as_deref() {
        Ok("mlx") => Device::CpuMlx,
        Ok("gpu") => Device::Gpu,
        _ => Device::Cpu,
    };
    let options = Options {
        device,
        threads: (threads > 0).then_some(threads),
        ..Options::new(model.context())
    };
    let begin = Instant::now();
    let mut runtime = Runtime::new(&graphs, model.weights(), options)?;
    println!(
        "planned in {:?}, {:?}",
        begin.elapsed(),
        runtime.statistics()
    );
    let weights = runtime.statistics().weight_bytes as f64;

    let ids: Vec<u32> = (0..prompt as u32).map(|n| 5 + n % 1000).collect();
    let mut best = [f64::INFINITY; 4];
    for _ in 0..5 {
        let sequence = runtime.create()?;
        let begin = Instant::now();
        let row = Row {
            sequence,
            tokens: Tokens::Given(&ids),
            want: Want::Token,
        };
        let ticket = runtime.submit(&[row])?;
        runtime.wait(ticket)?;
        let prefill = begin.elapsed();

        let (begin, computing) = (Instant::now(), processor_time());
        let mut recording = Duration::ZERO;
        let mut last = None;
        for _ in 0..tokens {
            let start = Instant::now();
            let row = Row {
                sequence,
                tokens: Tokens::Chosen,
                want: Want::Token,
            };
            let ticket = runtime.submit(&[row])?;
            recording += start.elapsed();
            if let Some(ticket) = last.replace(ticket) {
                let output = runtime.wait(ticket)?;
                debug_assert!(matches!(output[..], [RowOutput::Token(_)]));
            }
        }
        if let Some(ticket) = last {
            runtime.wait(ticket)?;
        }
        let step = begin.elapsed().as_secs_f64() / tokens as f64;
        let recording = recording.as_secs_f64() / tokens as f64;
        best[0] = best[0].min(prefill.as_secs_f64());
        best[1] = best[1].min(step);
        best[2] = best[2].min(recording);
        let computing = (processor_time() - computing) / tokens as f64;
        best[3] = best[3].min(computing);
        println!(
            "prefill {:7.1} tok/s   decode {:6.1} tok/s ({:.2} ms, {:.2} ms recording, {:.2} ms of processors)",
            prompt as f64 / prefill.as_secs_f64(),
            1.0 / step,
            step * 1e3,
            recording * 1e3,
            computing * 1e3,
        );
        runtime.release(sequence)?;
    }
    println!(
        "best: prefill {:.1} tok/s, decode {:.1} tok/s, {:.1} GB/s of weights, {:.2} ms \
         recording, {:.2} ms of processors",
        prompt as f64 / best[0],
        1.0 / best[1],
        weights / best[1] / 1e9,
        best[2] * 1e3,
        best[3] * 1e3,
    );
    Ok(())
}
