//! Verification through the command line.

use crate::program::{argument, run};
use crate::schema;
use mlxcel_frontend::artifact::{CONTRACT, MANIFEST, Manifest};
use mlxcel_test_support::{demo_model, golden};
use serde_json::Value;
use sha2::{Digest, Sha256};

#[test]
fn a_model_that_is_right_passes() {
    let model = argument(&golden("llama"));
    let report = run(["verify", &model, "--tokens", "1,2,3,4,5"]).success();
    assert!(report.contains("verdict: pass"), "{report}");
    assert!(
        report.contains("mlx") && report.contains("iree-cpu"),
        "{report}"
    );

    let demo = argument(&demo_model());
    let arguments = [
        "verify",
        &demo,
        "--prompt",
        "What is a violin?",
        "--backends",
        "mlx",
        "--json",
    ];
    let report: Value = serde_json::from_str(&run(arguments).success()).expect("JSON");
    assert_eq!(report["verdict"], "pass");
    assert_eq!(report["executions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_is_chosen_is_held() {
    let model = argument(&golden("llama"));
    let arguments = ["verify", &model, "--tokens", "1,2,3", "--level", "tokens"];
    let report = run([&arguments[..], &["--backends", "mlx,kernels"]].concat()).success();
    let (_, told) = report.split_once("greedy text").expect("it is told");
    let rows: Vec<Vec<&str>> = told
        .lines()
        .skip(1)
        .take(2)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows,
        [["mlx", "32", "0"], ["kernels", "32", "0"]],
        "{report}"
    );
}

#[test]
fn a_fault_fails_after_its_report() {
    let model = argument(&golden("llama"));
    let fault = "mlx:model.layers.1.mlp.down_proj.weight";
    let ended = run([
        "verify",
        &model,
        "--tokens",
        "1,2,3",
        "--backends",
        "mlx",
        "--fault",
        fault,
    ]);
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert_eq!(ended.stderr, "");
    assert!(ended.stdout.contains("hidden.1"), "{ended:#?}");
    assert!(ended.stdout.contains("verdict: mismatch"), "{ended:#?}");
}

#[test]
fn what_cannot_be_verified_says_why() {
    let model = argument(&golden("llama"));
    run(["verify", &model, "--tokens", "999999", "--backends", "mlx"]).failure(3, &["999999"]);
    run(["verify", &model, "--fault", "mlx:nothing", "--tokens", "1"]).failure(3, &["`nothing`"]);
    run(["verify", &model, "--fault", "abacus:nothing"]).failure(2, &["abacus"]);
    // It has no tokenizer.
    run(["verify", &model, "--prompt", "x"]).failure(3, &["tokenizer.json"]);
}

#[test]
fn options_that_would_change_nothing_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // What is given is known before it is read.
    let artifact = argument(folder.path());
    std::fs::write(folder.path().join(MANIFEST), "").expect("it is ours");
    let model = argument(&golden("llama"));
    let check = |subject: &[&str], refused: &[&str], part: &str| {
        for options in refused {
            let options: Vec<&str> = options.split(' ').collect();
            let named = options[options.len() - options.len().min(2)];
            let all = [&["verify"], subject, &options].concat();
            run(all).failure(2, &[named, part]);
        }
    };
    check(&[&model], &["--source x"], "for artifacts");
    check(&[&model], &["--device gpu"], "--backends");
    check(&[&model], &["--limit 9", "--chunk 9"], "--text-file <FILE>");
    check(&[&model], &["--max-tokens 9"], "--level tokens");
    check(
        &[&model],
        &["--level nodes --max-tokens 9"],
        "--level tokens",
    );
    let two = [
        "-p x --tokens 1",
        "-p x --text-file y",
        "--tokens 1 --text-file y",
    ];
    check(&[&model], &two, "cannot be used with");
    let inside = ["--level layers", "--level nodes", "--repro x"];
    let models = ["--backends mlx", "--kv-dtype f32"];
    for subject in [&[&artifact[..]][..], &[&artifact, "--source", &model]] {
        check(subject, &inside, "for models; only the logits");
        check(subject, &models, "so leave it out");
    }
    check(
        &[&artifact, "--source", &model],
        &["--max-tokens 9"],
        "--level tokens",
    );
    let sourced = [
        "--prompt x",
        "--text-file x",
        "--tokens 1",
        "--level tokens",
        "--max-tokens 9",
        "--adapter x",
        "--surgery x",
    ];
    check(&[&artifact], &sourced, "--source");
    let any = [
        &sourced[..],
        &inside,
        &models,
        &["--json", "--html x", "--device x"],
    ]
    .concat();
    check(&["fault.mxg"], &any, "not for cases");
}

/// Compiles a golden model with reference values; gives the folder and what `compile` told.
fn verified(folder: &tempfile::TempDir) -> (String, Value) {
    let output = argument(&folder.path().join("artifact"));
    let model = argument(&golden("llama-mlx-q4-g64"));
    let told = run([
        "compile",
        &model,
        "--target",
        "iree-cpu",
        "--context",
        "32",
        "--buckets",
        "16",
        "--batch",
        "2",
        "--verify",
        "--json",
        "-o",
        &output,
    ]);
    let told = serde_json::from_str(&told.success()).expect("JSON");
    (output, told)
}

#[test]
fn an_artifact_is_verified_with_and_without_its_model() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (artifact, told) = verified(&folder);
    let model = argument(&golden("llama-mlx-q4-g64"));
    assert_eq!(told["verified"]["verdict"], "pass");
    schema::check(folder.path().join("artifact"));

    let check = |more: &[&str], tokens: usize| {
        let arguments = [&["verify", &artifact, "--json"], more].concat();
        let report: Value = serde_json::from_str(&run(arguments).success()).expect("JSON");
        assert_eq!(report["verdict"], "pass");
        assert_eq!(report["tokens"], tokens);
        let measured = report["executions"][0]["measurements"]
            .as_array()
            .expect("a list");
        assert_eq!(measured.len(), 2, "{report}");
    };
    check(&[], 8);
    check(&["--source", &model], 8);
    check(
        &[
            "--source",
            &model,
            "--tokens",
            "5,6,7",
            "--device",
            "local-task",
        ],
        3,
    );

    let headed = |more: &[&str], expect: &str| {
        let report = run([&["verify", &artifact], more].concat()).success();
        assert!(report.starts_with(expect), "{report}");
        report
    };
    // How many layers there are, only the model tells.
    headed(&[], "llama-mlx-q4-g64: 8 tokens, against");
    headed(
        &["--source", &model],
        "llama-mlx-q4-g64: 8 tokens, 3 layers",
    );
    let tokens = ["--level", "tokens", "--max-tokens", "6"];
    let report = headed(&[&["--source", &model], &tokens[..]].concat(), "llama");
    assert!(report.contains("greedy text"), "{report}");

    let refuse = |more: &[&str], code, parts: &[&str]| {
        run([&["verify", &artifact], more].concat()).failure(code, parts);
    };
    refuse(
        &["--source", &model, "--tokens", "999999"],
        3,
        &["below 320"],
    );
    let other = argument(&golden("llama"));
    refuse(
        &["--source", &other, "--tokens", "5"],
        3,
        &["digest", "llama"],
    );
    let long = vec!["1"; 33].join(",");
    refuse(&["--source", &model, "--tokens", &long], 2, &["33", "32"]);

    let page = argument(&folder.path().join("page.html"));
    headed(&["--html", &page], "llama");
    let page = std::fs::read_to_string(page).expect("it was written");
    assert!(page.contains("class=\"pass\"") && !page.contains("first layer"));

    let told = run(["inspect", &artifact]).success();
    for part in [
        "reference values of 8 tokens",
        "decode_b2",
        "sha256",
        "prefill_16",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn an_artifact_that_computes_something_else_is_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (artifact, _) = verified(&folder);
    // Other reference values, sealed as if they were right.
    let folder = folder.path().join("artifact");
    let file = folder.join(CONTRACT);
    let mut logits = std::fs::read(&file).expect("it is there");
    let last = logits.len() - 4..;
    let logit = f32::from_le_bytes(logits[last.clone()].try_into().expect("four bytes"));
    logits[last].copy_from_slice(&(logit + 0.01).to_le_bytes());
    std::fs::write(&file, &logits).expect("it is ours");
    let path = folder.join(MANIFEST);
    let manifest = std::fs::read(&path).expect("it is there");
    let mut manifest: Manifest = serde_json::from_slice(&manifest).expect("a manifest");
    let digest = Sha256::digest(&logits);
    let part = manifest.parts.get_mut(CONTRACT).expect("a part");
    part.sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    manifest.seal = manifest.digest();
    let text = serde_json::to_vec(&manifest).expect("JSON");
    std::fs::write(&path, text).expect("it is ours");
    let ended = run(["verify", &artifact]);
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.stdout.contains("verdict: mismatch"), "{ended:#?}");

    let demo = argument(&crate::demo::artifact());
    run(["verify", &demo]).failure(3, &["--source", "--verify"]);
}
