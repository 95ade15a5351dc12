//! Rows of different lengths in one call give what each gives alone.

use mlxcel_frontend::Model;
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_lower::{CompileOptions, Target, compile};
use mlxcel_runtime_iree::{Artifact, Device, Runtime};
use mlxcel_test_support::{golden, relative_error};

/// Lengths of the prompts.
const PROMPTS: [usize; 8] = [1, 9, 3, 17, 30, 2, 16, 5];
/// Steps after the prompts.
const STEPS: usize = 4;

fn prompt(row: usize, vocabulary: usize) -> Vec<u32> {
    let token = |index: usize| ((index * 37 + row * 101 + 11) % vocabulary) as u32;
    (0..PROMPTS[row]).map(token).collect()
}

/// The logits of `rows` after their prompts and after each of some steps; all rows of a step in one call
/// of [`Runtime::submit`].
fn logits(runtime: &mut Runtime, rows: &[usize]) -> Vec<Vec<Vec<f32>>> {
    let vocabulary = runtime.vocabulary();
    let sequences: Vec<SequenceId> = rows.iter().map(|_| runtime.create().unwrap()).collect();
    let mut next: Vec<Vec<u32>> = rows.iter().map(|&row| prompt(row, vocabulary)).collect();
    let mut all = vec![Vec::new(); rows.len()];
    for step in 0..=STEPS {
        let inputs: Vec<Row<'_>> = sequences
            .iter()
            .zip(&next)
            .map(|(&sequence, tokens)| Row {
                sequence,
                tokens: Tokens::Given(tokens),
                want: Want::Logits,
            })
            .collect();
        let ticket = runtime.submit(&inputs).unwrap();
        for (row, output) in runtime.wait(ticket).unwrap().into_iter().enumerate() {
            let RowOutput::Logits(logits) = output else {
                panic!("logits were wanted")
            };
            all[row].push(logits);
            next[row] = vec![((rows[row] * 7 + step * 13) % vocabulary) as u32];
        }
    }
    for sequence in sequences {
        runtime.release(sequence).unwrap();
    }
    all
}

fn check(family: &str, target: Target) {
    let model = Model::load(&golden(family)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("artifact");
    let mut options = CompileOptions::new(&model, target, &output);
    options.context = 64;
    options.buckets = vec![4, 16];
    options.batches = vec![2, 8];
    let summary = compile(&model, &options, &|_| {}).unwrap();
    let functions = summary.functions.join(" ");
    assert_eq!(
        functions,
        "decode prefill_4 prefill_16 decode_b2 prefill_4_b2 decode_b8"
    );
    let artifact = Artifact::open(&output).unwrap();
    let mut runtime = Runtime::new(&artifact, &Device::host().unwrap()).unwrap();
    let rows: Vec<usize> = (0..PROMPTS.len()).collect();
    let together = logits(&mut runtime, &rows);
    for row in rows {
        let alone = logits(&mut runtime, &[row]).remove(0);
        for (step, (together, alone)) in together[row].iter().zip(&alone).enumerate() {
            let error = relative_error(together, alone);
            assert!(error <= 1e-5, "{family}, row {row}, step {step}: {error}");
        }
    }
    assert!(
        runtime.statistics().in_place,
        "{family}: caches were copied"
    );
}

#[test]
fn dense() {
    check("llama", Target::host());
}

#[test]
fn four_bits() {
    check("llama-mlx-q4-g64", Target::host());
}

#[test]
fn by_the_compiler_alone() {
    check("llama-mlx-q4-g64", Target::host().without_kernels());
}

#[test]
fn memories_and_experts() {
    for family in ["mamba2", "qwen3_moe"] {
        check(family, Target::host());
    }
}
