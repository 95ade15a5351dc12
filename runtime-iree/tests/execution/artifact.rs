//! Artifacts that are damaged, edited or for another machine.

use crate::toy;
use mlxcel_frontend::artifact::{CONTRACT, FORMAT, MANIFEST, MODULE, Manifest, WEIGHTS};
use mlxcel_runtime_iree::{Artifact, Device, Error, Runtime};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

pub(crate) fn load(folder: &Path) -> Result<Runtime, Error> {
    let artifact = Artifact::open(folder)?;
    let device = Device::open(artifact.default_device()?)?;
    Runtime::new(&artifact, &device)
}

fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join(MANIFEST)).unwrap()).unwrap()
}

/// Sets the field at `pointer`, whose last part may be new, and seals what is a manifest then.
fn edit(folder: &Path, pointer: &str, value: Value) {
    let mut manifest = manifest(folder);
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    match manifest.pointer_mut(parent).unwrap() {
        Value::Object(object) => drop(object.insert(field.to_string(), value)),
        Value::Array(list) => list[field.parse::<usize>().unwrap()] = value,
        other => panic!("{other}"),
    }
    let mut text = manifest.to_string();
    if let Ok(mut manifest) = serde_json::from_str::<Manifest>(&text) {
        manifest.seal = manifest.digest();
        text = serde_json::to_string(&manifest).unwrap();
    }
    fs::write(folder.join(MANIFEST), text).unwrap();
}

/// Replaces a part and, if `vouch`, its entry in the manifest.
fn replace(folder: &Path, name: &str, bytes: &[u8], vouch: bool) {
    fs::write(folder.join(name), bytes).unwrap();
    if vouch {
        let part = serde_json::to_value(toy::part(bytes)).unwrap();
        edit(folder, &format!("/parts/{name}"), part);
    }
}

#[test]
fn opens_from_any_folder() {
    let Some(folder) = toy::artifact() else {
        return;
    };
    let runtime = load(folder.path()).unwrap();
    assert_eq!(runtime.context(), toy::CONTEXT);
    assert_eq!(runtime.vocabulary(), toy::VOCABULARY);
    let copy = tempfile::tempdir().unwrap();
    for name in [MANIFEST, MODULE, WEIGHTS, CONTRACT] {
        fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    drop(folder);
    assert!(load(copy.path()).is_ok());
}

#[test]
fn refuses_an_edited_manifest() {
    if toy::module().is_none() {
        return;
    }
    let check = |pointer: &str, value: Value, expect: &str| {
        let folder = toy::artifact().unwrap();
        edit(folder.path(), pointer, value);
        let error = load(folder.path()).err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("{pointer}: loaded"));
        assert!(error.contains(expect), "{pointer}: {error}");
        let place = folder.path().display().to_string();
        assert!(error.contains(&place), "{pointer}: {error}");
    };
    let next = format!("format is {}, and this build reads {FORMAT}", FORMAT + 1);
    check("/format", json!(FORMAT + 1), &next);
    check("/format", json!("1"), "format");
    check("/surprise", json!(1), "unknown field `surprise`");
    check(
        "/parts/x",
        json!({"sha256": "", "bytes": 0, "y": 1}),
        "unknown field `y`",
    );
    check("/context", json!(0), "context is 0");
    check(
        "/context",
        json!(u64::MAX),
        "context is 18446744073709551615",
    );
    check("/context", json!(-1), "-1");
    check(
        "/context",
        json!(8),
        "holds 16 tokens, but the context is 8",
    );
    check("/vocabulary", json!(0), "vocabulary is 0");
    check(
        "/vocabulary",
        json!(9),
        "contract: parts: `logits.f32` of 108 bytes",
    );
    check(
        "/contract/budget",
        json!(0),
        "the budget 0 is not between 0 and 1",
    );
    check("/contract/budget", json!(1.5), "the budget 1.5 is not");
    check("/contract/tokens", json!([]), "contract: 0 tokens");
    check(
        "/contract/tokens/1",
        json!(8),
        "contract: token 8 is outside",
    );
    check(
        "/contract/tokens",
        json!([1, 2]),
        "`logits.f32` of 64 bytes",
    );
    check(
        "/reference",
        json!("/x"),
        "`weights.safetensors` is a part as well",
    );
    check("/functions", json!([]), "functions: there are none");
    check(
        "/functions/0/tokens",
        json!(17),
        "`decode` is for 1 rows of 17 tokens",
    );
    check(
        "/functions/0/tokens",
        json!(2),
        "function `decode`, argument 0 is tensor<1x1xi32>",
    );
    check("/functions/0/batch", json!(0), "`decode` is for 0 rows");
    check(
        "/functions/0/name",
        json!("absent"),
        "functions: the compiled module has no",
    );
    check(
        "/functions/0/outputs",
        json!(["token", "logits"]),
        "function `decode`, result 0",
    );
    check(
        "/functions/0/outputs",
        json!([]),
        "function `decode`, result 0",
    );
    check("/buffers", json!([]), "function `decode`, argument 3");
    check("/buffers/0/dtype", json!("f64"), "dtype `f64` is unknown");
    check(
        "/buffers/0/dtype",
        json!("f16"),
        "function `decode`, argument 3",
    );
    check("/buffers/0/tokens_dim", json!(4), "tokens_dim is outside");
    check(
        "/buffers/0/shape",
        json!([1, 16, u64::MAX, u64::MAX]),
        "the shape is too large",
    );
    check(
        "/target",
        json!("iree-tpu"),
        "target: `iree-tpu` is unknown",
    );
    check("/target", json!("iree-metal"), "iree-metal");
    check("/parts/..%2Fx", json!({"sha256": "", "bytes": 0}), "..%2Fx");
    check("/parts/module.vmfb", Value::Null, "invalid type: null");
}

#[test]
fn refuses_parts_outside_the_folder() {
    if toy::module().is_none() {
        return;
    }
    let check = |name: &str| {
        let folder = toy::artifact().unwrap();
        let mut manifest = manifest(folder.path());
        manifest["parts"][name] = json!({"sha256": "", "bytes": 0});
        fs::write(folder.path().join(MANIFEST), manifest.to_string()).unwrap();
        let error = load(folder.path()).err().unwrap().to_string();
        assert!(error.contains("not a file inside the artifact"), "{error}");
    };
    check("../module.vmfb");
    check("/etc/hostname");
    check("a/../../b");
    check("a\\b");
    check("");
}

#[test]
fn refuses_damaged_parts() {
    if toy::module().is_none() {
        return;
    }
    let check = |damage: &dyn Fn(&Path), expect: &[&str]| {
        let folder = toy::artifact().unwrap();
        damage(folder.path());
        let error = load(folder.path()).err().unwrap().to_string();
        for text in expect {
            assert!(error.contains(text), "{text}: {error}");
        }
    };
    let flip = |folder: &Path, name: &str, vouch: bool| {
        let mut bytes = fs::read(folder.join(name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        replace(folder, name, &bytes, vouch);
    };
    check(
        &|f| flip(f, MODULE, false),
        &[MODULE, "its sha256 is", "damaged or edited"],
    );
    check(&|f| flip(f, WEIGHTS, false), &[WEIGHTS, "its sha256 is"]);
    check(
        &|f| replace(f, MODULE, b"short", false),
        &[MODULE, "it has 5 bytes"],
    );
    check(
        &|f| fs::remove_file(f.join(WEIGHTS)).unwrap(),
        &[WEIGHTS, "No such file"],
    );
    check(
        &|f| fs::remove_file(f.join(MANIFEST)).unwrap(),
        &[MANIFEST, "`mlxcel compile`"],
    );
    check(
        &|f| fs::write(f.join(MANIFEST), "{").unwrap(),
        &[MANIFEST, "EOF"],
    );
    check(
        &|f| fs::write(f.join(MANIFEST), "[1]").unwrap(),
        &[MANIFEST, "format"],
    );
    // Vouched for by the manifest, and still wrong.
    check(
        &|f| replace(f, MODULE, b"no module", true),
        &[MODULE, "cannot be loaded"],
    );
    check(
        &|f| replace(f, WEIGHTS, b"no weights", true),
        &[WEIGHTS, "no safetensors"],
    );
    let header = b"{}";
    let empty = [&(header.len() as u64).to_le_bytes(), header.as_slice()].concat();
    check(&|f| replace(f, WEIGHTS, &empty, true), &[WEIGHTS, "embed"]);
}

#[test]
fn refuses_another_machine() {
    let Some(folder) = toy::artifact() else {
        return;
    };
    let folder = folder.path();
    let artifact = Artifact::open(folder).unwrap();
    assert_eq!(artifact.default_device().unwrap().to_string(), "local-task");
    edit(folder, "/target", json!("iree-cuda"));
    edit(folder, "/chip", json!("sm_89"));
    let artifact = Artifact::open(folder).unwrap();
    let error = artifact.load(&Device::host().unwrap()).err().unwrap();
    let expect = "it is compiled for iree-cuda (sm_89) and cannot run on device local-task";
    assert!(error.to_string().contains(expect), "{error}");
    edit(folder, "/target", json!("iree-cpu"));
    let foreign = if cfg!(target_arch = "x86_64") {
        "aarch64"
    } else {
        "x86-64-v3"
    };
    edit(folder, "/chip", json!(foreign));
    let error = load(folder).err().unwrap().to_string();
    assert!(error.contains("this one lacks"), "{error}");
}
