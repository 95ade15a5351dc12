//! Surgeries: what each operation does to the weights, and what is refused before any is changed.

mod common;

use common::numbers;
use mlxcel_frontend::{LoadOptions, Model, read_tensors};
use mlxcel_ir::HostTensor;
use mlxcel_ir::weight::dequantize;
use mlxcel_test_support::{NewTensor, golden, write_tensors};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const DENSE: &str = "llama";
const QUANTISED: &str = "llama-mlx-q4-g64";

/// The weights of the model that `recipe`, written to `folder`, makes of the golden `family`.
fn operate(family: &str, folder: &Path, recipe: &str) -> Result<Model, String> {
    let file = folder.join("surgery.yaml");
    fs::write(&file, recipe).expect("written");
    let options = LoadOptions {
        surgery: Some(file),
        ..LoadOptions::default()
    };
    Model::load_with(&golden(family), &options).map_err(|error| error.to_string())
}

/// The numbers of a model's weights.
fn weights(model: &Model) -> BTreeMap<String, Vec<f64>> {
    let graph = model
        .graph(&mlxcel_frontend::GraphOptions::default())
        .expect("a graph");
    let source = model.weights();
    let of = |declaration: &mlxcel_ir::WeightDecl| {
        let data = source.get(&declaration.name).expect("its bytes");
        dequantize::<f64>(declaration, data).expect("numbers")
    };
    graph
        .weights
        .iter()
        .map(|one| (one.name.clone(), of(one)))
        .collect()
}

/// What each weight of `family` must become, if it is not to stay: by its name, from what it was.
type Expect<'a> = &'a dyn Fn(&str, &[f64]) -> Option<Vec<f64>>;

fn check(family: &str, folder: &Path, operations: &str, expect: Expect<'_>) {
    let plain = weights(&Model::load(&golden(family)).expect("a model"));
    let recipe = format!("version: 1\noperations:\n{operations}");
    let model =
        operate(family, folder, &recipe).unwrap_or_else(|error| panic!("{operations}: {error}"));
    let mut changed = 0;
    for (name, got) in weights(&model) {
        let old = &plain[&name];
        let expect = expect(&name, old);
        changed += usize::from(expect.is_some());
        let expect = expect.unwrap_or_else(|| old.clone());
        let near = got
            .iter()
            .zip(&expect)
            .all(|(got, expect)| (got - expect).abs() <= 1e-6 * expect.abs().max(1.0));
        assert!(
            near && got.len() == expect.len(),
            "{family}, {operations}: {name}"
        );
    }
    assert!(changed > 0, "{family}, {operations}");
}

/// A donor like the golden Llama with other numbers, and its numbers by name.
fn donor(folder: &Path, name: &str, seed: u64) -> BTreeMap<String, Vec<f64>> {
    let stored = read_tensors(&golden(DENSE).join("model.safetensors")).expect("tensors");
    let fresh = |(index, (name, tensor)): (usize, (&String, &HostTensor))| {
        let count = tensor.shape.iter().product();
        NewTensor::f32(name, &tensor.shape, &numbers(seed + index as u64, count))
    };
    let tensors: Vec<NewTensor> = stored.iter().enumerate().map(fresh).collect();
    write_tensors(&folder.join(name), &tensors);
    let numbers = |tensor: &NewTensor| {
        let (elements, _) = tensor.bytes.as_chunks::<4>();
        elements
            .iter()
            .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
            .collect()
    };
    tensors
        .iter()
        .map(|tensor| (tensor.name.clone(), numbers(tensor)))
        .collect()
}

/// `values`, rows of `columns`, with those for which `zero` holds at zero.
fn zeroed(values: &[f64], columns: usize, zero: impl Fn(usize, usize) -> bool) -> Vec<f64> {
    let one = |(flat, value): (usize, &f64)| {
        if zero(flat / columns, flat % columns) {
            0.0
        } else {
            *value
        }
    };
    values.iter().enumerate().map(one).collect()
}

#[test]
fn operations_do_what_they_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (a, b) = (
        donor(folder, "a.safetensors", 7),
        donor(folder, "b.safetensors", 500),
    );
    let mix = |x: &[f64], y: &[f64], f: &dyn Fn(f64, f64) -> f64| {
        Some(x.iter().zip(y).map(|(x, y)| f(*x, *y)).collect())
    };
    let down = |name: &str| name.ends_with("mlp.down_proj.weight");

    for family in [DENSE, QUANTISED] {
        check(
            family,
            folder,
            "  - {op: scale, pattern: '*.down_proj.weight', factor: -1.5}",
            &|name, old| down(name).then(|| old.iter().map(|x| -1.5 * x).collect()),
        );
        check(
            family,
            folder,
            "  - {op: prune, granularity: layer, layer_ids: [0, 2], pattern: 'model.layers.*proj.weight'}",
            &|name, old| {
                let hit = name.contains("layers.0.") || name.contains("layers.2.");
                (hit && name.contains("proj")).then(|| vec![0.0; old.len()])
            },
        );
        check(
            family,
            folder,
            "  - {op: prune, granularity: mlp_channel, channel_ids: [3, 4, 127], pattern: '*{gate,up}_proj*'}",
            &|name, old| {
                let hit = name.contains("gate_proj") || name.contains("up_proj");
                hit.then(|| zeroed(old, 64, |row, _| [3, 4, 127].contains(&row)))
            },
        );
    }
    check(
        DENSE,
        folder,
        "  - {op: prune, granularity: mlp_channel, channel_ids: [5], pattern: 'model.layers.1.mlp.*'}",
        &|name, old| match name {
            "model.layers.1.mlp.down_proj.weight" => {
                Some(zeroed(old, 128, |_, column| column == 5))
            }
            name if name.starts_with("model.layers.1.mlp.") => {
                Some(zeroed(old, 64, |row, _| row == 5))
            }
            _ => None,
        },
    );
    check(
        DENSE,
        folder,
        "  - {op: prune, granularity: attention_head, head_ids: [1], pattern: '*self_attn*'}",
        &|name, old| match name {
            name if name.contains("q_proj") => Some(zeroed(old, 64, |row, _| row / 32 == 1)),
            name if name.contains("o_proj") => Some(zeroed(old, 128, |_, column| column / 32 == 1)),
            _ => None,
        },
    );
    // Groups of 64 columns are two heads of 32.
    check(
        QUANTISED,
        folder,
        "  - {op: prune, granularity: attention_head, head_ids: [3, 2], pattern: '*.o_proj.weight'}",
        &|name, old| {
            name.contains("o_proj")
                .then(|| zeroed(old, 128, |_, column| column >= 64))
        },
    );
    check(
        DENSE,
        folder,
        "  - {op: add, pattern: 'lm_head.weight', source: a.safetensors, alpha: 0.5}",
        &|name, old| (name == "lm_head.weight").then(|| mix(old, &a[name], &|x, y| x + 0.5 * y))?,
    );
    check(
        DENSE,
        folder,
        "  - {op: add, pattern: 'model.norm.weight', source: a.safetensors}",
        &|name, old| (name == "model.norm.weight").then(|| mix(old, &a[name], &|x, y| x + y))?,
    );
    check(
        DENSE,
        folder,
        "  - {op: replace, pattern: 'model.layers.*.mlp.*.weight', source: a.safetensors, source_key: 'model.layers.*.mlp.*.weight'}",
        &|name, _| name.contains(".mlp.").then(|| a[name].clone()),
    );
    check(
        DENSE,
        folder,
        "  - {op: replace, pattern: 'model.layers.1.*_layernorm.weight', source: a.safetensors, source_key: 'model.layers.2.*_layernorm.weight'}",
        &|name, _| {
            (name.contains("layers.1.") && name.contains("layernorm"))
                .then(|| a[&name.replace("layers.1.", "layers.2.")].clone())
        },
    );
    check(
        DENSE,
        folder,
        "  - {op: interpolate, pattern: '*.up_proj.weight', source_a: a.safetensors, source_b: b.safetensors, ratio: 0.25}",
        &|name, _| {
            name.contains("up_proj")
                .then(|| mix(&a[name], &b[name], &|x, y| 0.75 * x + 0.25 * y))?
        },
    );
    check(
        DENSE,
        folder,
        "  - {op: interpolate, method: slerp, pattern: 'model.norm.weight', source_a: a.safetensors, source_b: a.safetensors, ratio: 0.5}",
        &|name, _| (name == "model.norm.weight").then(|| a[name].clone()),
    );
    // Each goes on from what the one before made.
    check(
        DENSE,
        folder,
        "  - {op: scale, pattern: 'model.norm.weight', factor: 2}\n  - {op: add, pattern: 'model.norm.weight', source: a.safetensors}\n  - {op: scale, pattern: 'model.norm.weight', factor: 3}",
        &|name, old| {
            (name == "model.norm.weight")
                .then(|| mix(old, &a[name], &|x, y| 3.0 * (2.0 * x + y)))?
        },
    );
}

#[test]
fn a_quantised_donor_brings_all_its_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = golden(QUANTISED);
    let operations = format!(
        "version: 1\noperations:\n  - {{op: replace, pattern: 'model.layers.0.mlp.up_proj.weight', source: {}, source_key: 'model.layers.2.mlp.up_proj.weight'}}",
        from.display()
    );
    let plain = weights(&Model::load(&from).expect("a model"));
    let got = weights(
        &operate(QUANTISED, folder.path(), &operations).unwrap_or_else(|error| panic!("{error}")),
    );
    assert_eq!(
        got["model.layers.0.mlp.up_proj.weight"],
        plain["model.layers.2.mlp.up_proj.weight"]
    );
    assert_ne!(
        got["model.layers.0.mlp.up_proj.weight"],
        plain["model.layers.0.mlp.up_proj.weight"]
    );
}

#[test]
fn no_operations_change_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = operate(DENSE, folder.path(), "version: 1\noperations: []").expect("a model");
    let plain = Model::load(&golden(DENSE)).expect("a model");
    assert_eq!(weights(&model), weights(&plain));
    assert_eq!(
        model.digest().expect("a digest"),
        plain.digest().expect("a digest")
    );
    let other = "version: 1\noperations:\n  - {op: scale, pattern: '*', factor: 2}";
    let other = operate(DENSE, folder.path(), other).expect("a model");
    assert_ne!(
        other.digest().expect("a digest"),
        plain.digest().expect("a digest")
    );
}

#[test]
fn keys_and_values_stay_with_a_note() {
    let folder = tempfile::tempdir().expect("a folder");
    let recipe = "version: 1\noperations:\n  - {op: prune, granularity: attention_head, head_ids: [0], pattern: '*_proj.weight'}";
    let model = operate(DENSE, folder.path(), recipe).expect("a model");
    assert!(
        model.notes()[0].contains("6 weights like `model.layers.0.self_attn.k_proj.weight` stay"),
        "{:?}",
        model.notes()
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    donor(folder, "a.safetensors", 7);
    write_tensors(
        &folder.join("small.safetensors"),
        &[NewTensor::f32("lm_head.weight", &[2], &[0.0; 2])],
    );
    let refuse = |family: &str, recipe: &str, expect: &[&str]| {
        let error = operate(family, folder, recipe).expect_err(recipe);
        for part in expect.iter().chain(&["surgery.yaml"]) {
            assert!(error.contains(part), "{recipe}: {part} in: {error}");
        }
    };
    for (recipe, expect) in [
        ("version: 2\noperations: []", "version"),
        ("operations: []", "version"),
        ("version: 1", "operations"),
        ("version: 1\noperations: []\nextra: 1", "extra"),
        ("version: 1\noperations: [", "surgery"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]",
            "surgery",
        ),
    ] {
        refuse(DENSE, recipe, &[expect]);
    }
    let one = |operation: &str, expect: &[&str]| {
        let recipe = format!(
            "version: 1\noperations:\n  - {{op: scale, pattern: '*', factor: 2}}\n  - {{{operation}}}"
        );
        refuse(DENSE, &recipe, expect);
    };
    let quantised = |operation: &str, expect: &[&str]| {
        let recipe = format!("version: 1\noperations:\n  - {{{operation}}}");
        refuse(QUANTISED, &recipe, expect);
    };
    one("op: melt, pattern: '*'", &["melt", "scale"]);
    one("op: scale, pattern: '*', factor: 2, alpha: 1", &["alpha"]);
    one("op: scale, pattern: '*'", &["factor"]);
    one("op: scale, pattern: '*', factor: .inf", &[".inf"]);
    one(
        "op: scale, pattern: '*.nothing', factor: 1",
        &["operations[1] (scale)", "*.nothing", "selects none"],
    );
    one(
        "op: scale, pattern: '[', factor: 1",
        &["operations[1] (scale)", "pattern"],
    );
    one(
        "op: add, pattern: '*', source: no.safetensors",
        &["operations[1] (add)", "no.safetensors"],
    );
    one(
        "op: add, pattern: 'lm_head.weight', source: small.safetensors",
        &["operations[1] (add)", "[320, 64]", "[2]"],
    );
    one(
        "op: add, pattern: 'model.norm.weight', source: small.safetensors",
        &["operations[1] (add)", "no tensor `model.norm.weight`"],
    );
    one(
        "op: add, pattern: '*', source: surgery.yaml",
        &["operations[1] (add)", "safetensors"],
    );
    one(
        "op: add, pattern: '*', source: a.safetensors, alpha: .nan",
        &[".nan"],
    );
    one(
        "op: replace, pattern: 'lm_head.*', source: a.safetensors, source_key: lm_head.weight",
        &["operations[1] (replace)", "as many `*`"],
    );
    one(
        "op: replace, pattern: 'lm_head.w?*', source: a.safetensors, source_key: 'lm_head.*'",
        &["operations[1] (replace)", "no wildcard"],
    );
    one(
        "op: replace, pattern: 'lm_head.weight', source: a.safetensors, source_key: model.norm.weight",
        &["operations[1] (replace)", "[320, 64]", "[64]"],
    );
    one(
        "op: interpolate, pattern: 'lm_head.weight', source_a: a.safetensors, source_b: a.safetensors, ratio: 1.5",
        &["ratio"],
    );
    one(
        "op: interpolate, pattern: 'lm_head.weight', source_a: a.safetensors, source_b: a.safetensors, ratio: 0.5, method: cubic",
        &["cubic"],
    );
    one(
        "op: prune, granularity: head, pattern: '*', head_ids: [1]",
        &["head"],
    );
    one(
        "op: prune, granularity: layer, pattern: '*'",
        &["operations[1] (prune)", "layer_ids", "missing"],
    );
    one(
        "op: prune, granularity: layer, pattern: '*', head_ids: [1], layer_ids: [1]",
        &["operations[1] (prune)", "head_ids"],
    );
    one(
        "op: prune, granularity: layer, pattern: '*', layer_ids: [1, 9]",
        &["operations[1] (prune)", "layer 9"],
    );
    one(
        "op: prune, granularity: layer, pattern: 'lm_head*', layer_ids: [1]",
        &["operations[1] (prune)", "nothing"],
    );
    one(
        "op: prune, granularity: attention_head, pattern: '*', head_ids: [4]",
        &["operations[1] (prune)", "number 4", "0 to 3"],
    );
    one(
        "op: prune, granularity: attention_head, pattern: '*k_proj*', head_ids: [1]",
        &["operations[1] (prune)", "nothing"],
    );
    one(
        "op: prune, granularity: mlp_channel, pattern: '*', channel_ids: [128]",
        &["operations[1] (prune)", "number 128"],
    );
    quantised(
        "op: prune, granularity: mlp_channel, pattern: '*down_proj*', channel_ids: [3]",
        &["operations[0] (prune)", "groups of 64"],
    );
    quantised(
        "op: prune, granularity: attention_head, pattern: '*o_proj*', head_ids: [1]",
        &["operations[0] (prune)", "groups of 64"],
    );
    quantised(
        "op: add, pattern: 'lm_head.weight', source: a.safetensors",
        &["operations[0] (add)", "quantised"],
    );
    quantised(
        "op: interpolate, pattern: 'lm_head.weight', source_a: a.safetensors, source_b: a.safetensors, ratio: 0.5",
        &["operations[0] (interpolate)", "quantised"],
    );
    quantised(
        "op: replace, pattern: 'lm_head.weight', source: a.safetensors, source_key: lm_head.weight",
        &["operations[0] (replace)", "U32"],
    );
}
