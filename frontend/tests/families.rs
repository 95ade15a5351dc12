//! Families of which there is no golden checkpoint, and variants of those of which there is one: tiny
//! models, whose weights are made from the tensors' names, give the logits that Hugging Face
//! transformers gave for them in f32.
//!
//! One file of `data/families` for each: the configuration, for some also in the spelling of
//! transformers 4, which must give the same graph; the tensors' shapes, a prompt and the logits after
//! its ninth and its last token.

mod common;

use common::{Run, relative_error};
use libtest_mimic::{Arguments, Failed, Trial};
use mlxcel_frontend::{GraphOptions, Model};
use mlxcel_ir::{step, text};
use mlxcel_test_support::{RecordedCase, recorded_cases};

/// The budget of a relative error; both sides compute in f32.
const BUDGET: f64 = 1e-5;

fn graph(model: &Model) -> Result<String, Failed> {
    Ok(text::print(&model.graph(&GraphOptions::default())?))
}

fn check(case: &RecordedCase) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    case.write(folder.path());
    let expected: Vec<f64> = case.logits.iter().map(|&x| f64::from(x)).collect();
    let ids: Vec<i32> = case.ids.iter().map(|&id| id as i32).collect();
    let model = Model::load(folder.path())?;
    if let Some(older) = &case.older {
        std::fs::write(folder.path().join("config.json"), older.to_string())?;
        if graph(&Model::load(folder.path())?)? != graph(&model)? {
            return Err("the older spelling gives another graph".into());
        }
    }
    let vocabulary = model.config().vocabulary;
    let run = || Run::new(&model, 1, 64);

    let at_once = run()
        .step(std::slice::from_ref(&ids), &[0])
        .remove(step::LOGITS);
    let at_once = at_once.ok_or("no logits")?;
    let row = |row: usize| &at_once[row * vocabulary..(row + 1) * vocabulary];
    let error = relative_error(&case.rows().map(row).concat(), &expected);
    if case.whole {
        return match error <= BUDGET {
            true => Ok(()),
            false => Err(format!("relative error {error:.3e}").into()),
        };
    }
    // Beside a shorter row, which is padded.
    let rows = [ids[..7].to_vec(), ids.clone()];
    let beside = Run::new(&model, 2, 64)
        .step(&rows, &[0, 0])
        .remove(step::LOGITS)
        .ok_or("no logits")?;
    let padded = relative_error(&beside[..7 * vocabulary], &at_once[..7 * vocabulary])
        .max(relative_error(&beside[ids.len() * vocabulary..], &at_once));
    let mut run = run();
    let mut stepped = Vec::new();
    for (position, &id) in ids.iter().enumerate() {
        let mut outputs = run.step(&[vec![id]], &[position as i32]);
        stepped.extend(outputs.remove(step::LOGITS).ok_or("no logits")?);
    }
    let difference = relative_error(&stepped, &at_once);
    match [error, difference, padded]
        .iter()
        .all(|&error| error <= BUDGET)
    {
        true => Ok(()),
        false => Err(format!(
            "relative error {error:.3e}; one by one, {difference:.3e} from all at once; beside \
             another row, {padded:.3e}"
        )
        .into()),
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let trials = recorded_cases()
        .into_iter()
        .map(|case| Trial::test(case.name.clone(), move || check(&case)));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
