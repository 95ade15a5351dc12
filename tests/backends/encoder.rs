//! Checks of encoders.

use std::path::Path;

use libtest_mimic::Failed;
use mlxcel_engine::encode::Output;
use mlxcel_engine::{Backend, Encoder, EncoderOptions, Passage};
use mlxcel_ir::step;
use mlxcel_test_support::Tensors;

use crate::Faults;

/// Holds `model` on `backend` against what is recorded: states of single texts, then of a padded batch,
/// and its scores.
pub(crate) fn check(
    model: &Path,
    backend: Backend,
    budget: f64,
    faults: &mut Faults,
) -> Result<(), Failed> {
    let expected = &Tensors::read(&model.join("expected.safetensors"));
    let options = EncoderOptions {
        backend: Some(backend),
        ..EncoderOptions::default()
    };
    let encoder = Encoder::open(model, &options)?;
    let names = expected.names();
    let has = |name: &str| names.iter().any(|known| known == name);
    for length in [9, 45] {
        let tokens = format!("p{length}.input_ids");
        if !has(&tokens) {
            continue;
        }
        let tokens = expected.tokens(&tokens);
        let types = vec![0; tokens.len()];
        let outputs = encoder.run(&[&Passage { tokens, types }])?;
        for (output, recorded) in [
            (step::STATES, "last_hidden_state"),
            (step::POOLED, "pooler_output"),
        ] {
            let name = format!("p{length}.{recorded}");
            if has(&name) {
                let values = &find(&outputs, output)?.values;
                faults.near(values, &expected.f32(&name).values, budget, &name);
            }
        }
    }
    let passages = batch(expected, has("batch.token_type_ids"));
    let rows: Vec<&Passage> = passages.iter().collect();
    let outputs = encoder.run(&rows)?;
    if has("batch.logits") {
        let values = &find(&outputs, step::SCORES)?.values;
        faults.near(
            values,
            &expected.f32("batch.logits").values,
            budget,
            "batch.logits",
        );
    }
    if has("batch.last_hidden_state") {
        let recorded = expected.f32("batch.last_hidden_state");
        let [_, longest, width] = recorded.shape[..] else {
            return Err("batch.last_hidden_state has another rank".into());
        };
        // The rows of padding hold nothing.
        let kept = |values: &[f32]| -> Vec<f32> {
            let texts = values.chunks(longest * width).zip(&passages);
            let kept = texts.flat_map(|(text, passage)| &text[..passage.tokens.len() * width]);
            kept.copied().collect()
        };
        let values = kept(&find(&outputs, step::STATES)?.values);
        faults.near(
            &values,
            &kept(&recorded.values),
            budget,
            "batch.last_hidden_state",
        );
    }
    Ok(())
}

fn find<'a>(outputs: &'a [Output], name: &str) -> Result<&'a Output, Failed> {
    let found = outputs.iter().find(|output| output.name == name);
    found.ok_or_else(|| format!("there is no output `{name}`").into())
}

/// The recorded batch without its padding, which is at the end of each row.
fn batch(expected: &Tensors, with_types: bool) -> Vec<Passage> {
    let longest = expected.shape("batch.input_ids")[1];
    let tokens = expected.tokens("batch.input_ids");
    let mask = expected.tokens("batch.attention_mask");
    let types = match with_types {
        true => expected.tokens("batch.token_type_ids"),
        false => vec![0; tokens.len()],
    };
    let rows = tokens.chunks(longest).zip(types.chunks(longest));
    let passages = rows
        .zip(mask.chunks(longest))
        .map(|((tokens, types), mask)| {
            let length = mask.iter().filter(|&&kept| kept == 1).count();
            Passage {
                tokens: tokens[..length].to_vec(),
                types: types[..length].to_vec(),
            }
        });
    passages.collect()
}
