//! What compiled modules are made of: a change of these figures is one to explain.

use mlxcel_frontend::Model;
use mlxcel_frontend::artifact::{MANIFEST, Manifest};
use mlxcel_ir::DType;
use mlxcel_lower::{CompileOptions, Target, compile};
use mlxcel_test_support::golden;
use std::fmt::Write;

/// Models, the element types of their caches, and targets; chips that are the same on every machine.
const MODELS: [(&str, DType); 3] = [
    ("llama-mlx-q4-g64", DType::F32),
    ("qwen3_moe", DType::F32),
    // Of windows, so that its caches rotate.
    ("mistral", DType::BF16),
];
const TARGETS: [(&str, &str); 4] = [
    ("iree-cpu", "x86-64-v3"),
    ("iree-cuda", "sm_89"),
    ("iree-rocm", "gfx1100"),
    ("iree-vulkan", "rdna3"),
];

#[test]
fn figures_are_as_recorded() {
    let mut table = String::new();
    for (name, kv) in MODELS {
        let model = Model::load(&golden(name)).unwrap();
        for (target, chip) in TARGETS {
            let folder = tempfile::tempdir().unwrap();
            let output = folder.path().join("artifact");
            let target = Target::new(target, Some(chip)).unwrap();
            let mut options = CompileOptions::new(&model, target, &output);
            options.context = 64;
            options.buckets = vec![16];
            options.kv = kv;
            let summary = compile(&model, &options, &|_| {}).unwrap();
            let manifest = std::fs::read(output.join(MANIFEST)).unwrap();
            let manifest: Manifest = serde_json::from_slice(&manifest).unwrap();
            assert_eq!(manifest.dispatches, summary.dispatches);
            writeln!(
                table,
                "{name} {} {chip}: {} dispatches, {} of kernels, {} transient bytes, {} KiB",
                target.name(),
                summary.dispatches,
                summary.kernels,
                summary.transient_bytes,
                summary.module_bytes / 1024,
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
