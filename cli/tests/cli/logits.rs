//! The file that `mlxcel logits` writes.

use crate::program::{argument, run};
use mlxcel_test_support::{Tensors, golden, relative_error};
use std::path::Path;

/// Runs `logits` on a golden checkpoint with the nine recorded tokens and reads its file.
fn logits(family: &str, options: &[&str]) -> Tensors {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out.safetensors");
    let tokens = expected(family).tokens("p9.input_ids");
    let tokens: Vec<String> = tokens.iter().map(u32::to_string).collect();
    let (model, out_argument) = (argument(&golden(family)), argument(&out));
    let common = [
        "logits",
        &model,
        "--tokens",
        &tokens.join(","),
        "--out",
        &out_argument,
    ];
    assert_eq!(run(common.iter().chain(options)).success(), "");
    Tensors::read(&out)
}

fn expected(family: &str) -> Tensors {
    Tensors::read(&golden(family).join("expected.safetensors"))
}

#[track_caller]
fn same(actual: &Tensors, name: &str, expected: &Tensors, expected_name: &str, budget: f64) {
    let (actual, expected) = (actual.f32(name), expected.f32(expected_name));
    let shape: Vec<usize> = expected
        .shape
        .iter()
        .copied()
        .filter(|&size| size != 1)
        .collect();
    assert_eq!(actual.shape, shape, "{name}");
    let error = relative_error(&actual.values, &expected.values);
    assert!(error <= budget, "{name}: {error:.2e}");
}

#[test]
fn the_file_has_what_was_asked_for() {
    let check = |backend: &str, budget: f64| {
        for family in ["llama", "qwen3"] {
            let expected = expected(family);
            let options = ["--backend", backend, "--greedy", "24"];
            let file = logits(family, &options);
            assert_eq!(file.names(), ["logits", "tokens"]);
            same(&file, "logits", &expected, "p9.logits", budget);
            assert_eq!(
                file.tokens("tokens"),
                expected.tokens("p9.greedy"),
                "{backend}"
            );
        }
    };
    check("reference", 1e-5);
    check("mlx", 1e-5);
    check("iree", 1e-4);
}

#[test]
fn hidden_states_come_after_each_layer() {
    let expected = expected("llama");
    let check = |backend: &str, budget: f64| {
        let file = logits("llama", &["--backend", backend, "--hidden"]);
        let layers = file.names().len() - 1;
        assert!(layers >= 2);
        same(&file, "logits", &expected, "p9.logits", budget);
        let hidden = file.f32("hidden.0");
        assert_eq!(hidden.shape[0], 9);
        file
    };
    let reference = check("reference", 1e-5);
    let mlx = check("mlx", 1e-5);
    assert_eq!(reference.names(), mlx.names());
    for name in mlx.names() {
        same(&mlx, &name, &reference, &name, 1e-5);
    }
    check("iree", 1e-4);
}

#[test]
fn one_by_one_is_all_at_once() {
    for backend in ["reference", "mlx"] {
        let whole = logits("llama-mlx-q4-g64", &["--backend", backend]);
        let steps = logits("llama-mlx-q4-g64", &["--backend", backend, "--one-by-one"]);
        same(&steps, "logits", &whole, "logits", 1e-5);
    }
}

#[test]
fn an_artifact_has_no_hidden_states() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("manifest.json"), "{}").unwrap();
    let model = argument(folder.path());
    let out = argument(Path::new("never-written.safetensors"));
    run(["logits", &model, "--tokens", "1", "--hidden", "--out", &out])
        .failure(2, &["no hidden states"]);
}
