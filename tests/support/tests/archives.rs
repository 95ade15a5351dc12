//! What the archives hold.

use std::path::{Path, PathBuf};

use mlxcel_test_support::{
    GOLDEN_FAMILIES, Tensors, copy_folder, demo_model, golden, goldens, relative_error,
    smollm2_prompts,
};

/// Requires that `folder` has these files, none of them empty.
#[track_caller]
fn check_files(folder: &Path, files: &[&str]) {
    for file in files {
        let path = folder.join(file);
        let length = path.metadata().map(|metadata| metadata.len()).unwrap_or(0);
        assert!(length > 0, "{} is missing or empty", path.display());
    }
}

#[test]
fn every_golden_family_is_complete() {
    let folders = goldens().read_dir().unwrap();
    let folders: Vec<PathBuf> = folders
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(folders.len(), 63);
    for folder in folders {
        check_files(
            &folder,
            &[
                "config.json",
                "model.safetensors",
                "expected.safetensors",
                "meta.json",
            ],
        );
    }
    for family in GOLDEN_FAMILIES {
        check_files(
            &golden(family),
            &[
                "config.json",
                "config.v4.json",
                "model.safetensors",
                "expected.safetensors",
                "meta.json",
            ],
        );
    }
}

#[test]
fn the_demo_model_travels_with_its_licences() {
    check_files(
        &demo_model(),
        &[
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
            "reference.json",
            "expected.safetensors",
            "licenses/WordNet-3.0.txt",
        ],
    );
}

#[test]
fn recorded_prompts_begin_with_their_best_token() {
    for prompt in smollm2_prompts() {
        assert_eq!(prompt.greedy[0], prompt.last_top[0].0, "{}", prompt.prompt);
        assert!(prompt.last_top.is_sorted_by(|a, b| a.1 >= b.1));
    }
}

#[test]
fn a_copied_folder_has_the_files_of_its_source() {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo-copy");
    copy_folder(&demo_model(), &copy);
    check_files(&copy, &["model.safetensors", "licenses/KJV-text.txt"]);
}

#[test]
fn expected_values_are_read() {
    let expected = Tensors::read(&golden("llama").join("expected.safetensors"));
    let logits = expected.f32("p9.logits");
    assert_eq!(logits.shape, [9, 320]);
    assert_eq!(expected.tokens("p9.input_ids").len(), 9);
    assert!(expected.names().contains(&"p9.layer.0".to_owned()));
    assert_eq!(relative_error(&logits.values, &logits.values), 0.0);
}

#[test]
fn errors_are_relative() {
    assert!((relative_error(&[3.0, 4.4], &[3.0, 4.0]) - 0.08).abs() < 1e-7);
    assert_eq!(relative_error(&[f32::NAN], &[1.0]), f64::INFINITY);
}
