//! Families of which there is no golden checkpoint, and variants of those of which there is one: tiny
//! models, whose weights are made from the tensors' names, give the logits that Hugging Face
//! transformers gave for them in f32.
//!
//! One file of `data/families` for each: the configuration, the tensors' shapes, a prompt and the
//! logits after its ninth and its last token.

mod common;

use common::{Run, relative_error};
use libtest_mimic::{Arguments, Failed, Trial};
use mlxcel_frontend::Model;
use mlxcel_ir::step;
use mlxcel_test_support::{NewTensor, write_tensors};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The budget of a relative error; both sides compute in f32.
const BUDGET: f64 = 1e-5;

/// The numbers of the tensor `name`: multiples of 1/512 within a quarter of zero, or of one for the
/// weight of a norm.
fn numbers(name: &str, shape: &[usize]) -> Vec<f32> {
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    let one = match shape.len() == 1 && name.ends_with(".weight") {
        true => 1.0,
        false => 0.0,
    };
    let count: usize = shape.iter().product();
    let number = |index: usize| {
        let mut x = hash.wrapping_add((index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^= x >> 31;
        one + ((x >> 56) as f32 - 128.0) / 512.0
    };
    (0..count).map(number).collect()
}

fn check(file: &Path) -> Result<(), Failed> {
    let case: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let tensors: Vec<NewTensor> = case["tensors"]
        .as_object()
        .ok_or("no tensors")?
        .iter()
        .map(|(name, shape)| {
            let sizes = shape.as_array().into_iter().flatten();
            let sizes: Vec<usize> = sizes
                .map(|size| size.as_u64().unwrap_or(0) as usize)
                .collect();
            NewTensor::f32(name, &sizes, &numbers(name, &sizes))
        })
        .collect();
    let folder = tempfile::tempdir()?;
    write_tensors(&folder.path().join("model.safetensors"), &tensors);
    std::fs::write(
        folder.path().join("config.json"),
        case["config"].to_string(),
    )?;
    let model = Model::load(folder.path())?;

    let list = |name: &str| case[name].as_array().into_iter().flatten();
    let ids: Vec<i32> = list("ids")
        .map(|id| id.as_i64().unwrap_or(0) as i32)
        .collect();
    let expected: Vec<f64> = list("logits")
        .map(|x| x.as_f64().unwrap_or(f64::NAN))
        .collect();
    let vocabulary = model.config().vocabulary;
    let rows = [8, ids.len() - 1];
    let run = || Run::new(&model, 1, 64);

    let at_once = run()
        .step(std::slice::from_ref(&ids), &[0])
        .remove(step::LOGITS);
    let at_once = at_once.ok_or("no logits")?;
    let row = |row: usize| &at_once[row * vocabulary..(row + 1) * vocabulary];
    let error = relative_error(&rows.map(row).concat(), &expected);
    let mut run = run();
    let mut stepped = Vec::new();
    for (position, &id) in ids.iter().enumerate() {
        let mut outputs = run.step(&[vec![id]], &[position as i32]);
        stepped.extend(outputs.remove(step::LOGITS).ok_or("no logits")?);
    }
    let difference = relative_error(&stepped, &at_once);
    match error <= BUDGET && difference <= BUDGET {
        true => Ok(()),
        false => Err(format!(
            "relative error {error:.3e}; one by one, {difference:.3e} from all at once"
        )
        .into()),
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/families");
    let mut trials = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the cases can be listed") {
        let file = entry.expect("the cases can be listed").path();
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        trials.push(Trial::test(name, move || check(&file)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
