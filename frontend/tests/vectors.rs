//! Decoders that give vectors or scores: tiny models, whose weights are made from the tensors' names, give
//! what Hugging Face transformers gave for them in f32, alone and beside a shorter text.

mod common;

use common::{encoded, relative_error};
use libtest_mimic::{Arguments, Failed, Trial};
use mlxcel_frontend::{GraphOptions, Model};
use mlxcel_ir::step;
use mlxcel_test_support::{RecordedCase, recorded_vectors};

/// The budget of a relative error; both sides compute in f32.
const BUDGET: f64 = 1e-5;

fn check(case: &RecordedCase) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    case.write(folder.path());
    let model = Model::load(folder.path())?;
    let info = model.encoder().ok_or("it is no encoder")?;
    let output = match info.scores {
        0 => step::EMBEDDING,
        _ => step::SCORES,
    };
    // What gives vectors may have a head too; what gives scores has none.
    let has_head = model.graph(&GraphOptions::default()).is_ok();
    if info.scores > 0 && has_head {
        return Err("a classifier gives logits".into());
    }
    let expected: Vec<f64> = case.logits.iter().map(|&x| f64::from(x)).collect();
    let ids: Vec<i32> = case.ids.iter().map(|&id| id as i32).collect();
    let mut shorter = ids[..7].to_vec();
    shorter.resize(ids.len(), 0);
    let tokens = [shorter, ids.clone()].concat();
    let lengths = [7, ids.len() as i32];
    let beside = encoded(&model, &tokens, &vec![0; tokens.len()], &lengths);
    let beside = beside.get(output).ok_or("no output")?;
    let error = relative_error(&beside[expected.len()..], &expected);
    let alone = encoded(&model, &ids[..7], &[0; 7], &[7]);
    let alone = alone.get(output).ok_or("no output")?;
    let padded = relative_error(&beside[..expected.len()], alone);
    match error <= BUDGET && padded <= BUDGET {
        true => Ok(()),
        false => {
            Err(format!("relative error {error:.3e}; of the shorter text {padded:.3e}").into())
        }
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let trials = recorded_vectors()
        .into_iter()
        .map(|case| Trial::test(case.name.clone(), move || check(&case)));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
