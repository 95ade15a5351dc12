//! A prompt of thousands of tokens, in chunks, and what follows it: an artifact against the eager path.

use std::fs;

use mlxcel_engine::{OpenOptions, Session, open};
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_runtime_iree::{Artifact, Device, Runtime};
use mlxcel_test_support::{copy_folder, golden, relative_error};
use serde_json::Value;

use crate::program::{folder, mlxcel};

const PROMPT: usize = 4000;
const REPLY: usize = 200;
const CONTEXT: usize = 8192;

/// Largest relative error of logits: what single-precision sums of this many terms leave, as for the golden
/// models.
const BUDGET: f64 = 1e-4;

/// The logits after the prompt and after each token of the reply.
fn logits(mut submit: impl FnMut(&[u32]) -> RowOutput, vocabulary: usize) -> Vec<Vec<f32>> {
    let token = |index: usize| ((index * 7919 + index / 13) % vocabulary) as u32;
    let prompt: Vec<u32> = (0..PROMPT).map(token).collect();
    let reply: Vec<u32> = (PROMPT..PROMPT + REPLY).map(token).collect();
    let steps = std::iter::once(&prompt[..]).chain(reply.chunks(1));
    steps
        .map(|tokens| match submit(tokens) {
            RowOutput::Logits(logits) => logits,
            other => panic!("logits were wanted, not {other:?}"),
        })
        .collect()
}

fn row(sequence: SequenceId, tokens: &[u32]) -> Row<'_> {
    Row {
        sequence,
        tokens: Tokens::Given(tokens),
        want: Want::Logits,
    }
}

#[test]
fn a_long_prompt_in_chunks_is_the_eager_path() {
    let folder = folder("long");
    let model = folder.join("model");
    copy_folder(&golden("llama"), &model);
    let file = model.join("config.json");
    let config = fs::read(&file).expect("the configuration can be read");
    let mut config: Value = serde_json::from_slice(&config).expect("the configuration is JSON");
    config["max_position_embeddings"] = CONTEXT.into();
    fs::write(&file, config.to_string()).expect("the copy can be written");
    let made = folder.join("artifact");
    let context = CONTEXT.to_string();
    let plain = |path: &std::path::Path| path.to_str().expect("plain").to_string();
    let (model, made) = (plain(&model), plain(&made));
    let arguments = [
        "compile",
        &model,
        "--target",
        "iree-cpu",
        "--context",
        &context,
    ];
    mlxcel([&arguments[..], &["--buckets", "128,512", "-o", &made]].concat()).success();

    let mut eager = open(model.as_ref(), &OpenOptions::default()).expect("the model opens");
    let session: &mut dyn Session = &mut *eager.session;
    let vocabulary = session.limits().vocabulary;
    let sequence = session.create().expect("there is room");
    let submit = |tokens: &[u32]| {
        let ticket = session.submit(&[row(sequence, tokens)]).expect("a step");
        session.wait(ticket).expect("its output").remove(0)
    };
    let expect = logits(submit, vocabulary);

    let artifact = Artifact::open(made.as_ref()).expect("the artifact opens");
    let device = artifact.default_device().and_then(Device::open);
    let mut runtime = Runtime::new(&artifact, &device.expect("a device")).expect("it loads");
    let sequence = runtime.create().expect("there is room");
    let planned = runtime.statistics().cache_bytes;
    assert_eq!(planned, CONTEXT * cache_bytes_a_token(&config));
    let submit = |tokens: &[u32]| {
        let ticket = runtime.submit(&[row(sequence, tokens)]).expect("a step");
        runtime.wait(ticket).expect("its output").remove(0)
    };
    let found = logits(submit, vocabulary);
    for (step, (found, expect)) in found.iter().zip(&expect).enumerate() {
        let error = relative_error(found, expect);
        assert!(error <= BUDGET, "step {step}: {error}");
    }
    let statistics = runtime.statistics();
    assert_eq!(statistics.reserved_bytes, planned);
    assert!(statistics.in_place, "caches were copied");
}

/// What the cache of a Llama takes for a token.
fn cache_bytes_a_token(config: &Value) -> usize {
    let size = |name: &str| config[name].as_u64().expect("a size") as usize;
    let width = match config["head_dim"].as_u64() {
        Some(width) => width as usize,
        None => size("hidden_size") / size("num_attention_heads"),
    };
    2 * size("num_hidden_layers") * size("num_key_value_heads") * width * 4
}
