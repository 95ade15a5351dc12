//! A model small enough to check by hand, written in StableHLO.
//!
//! Its cache holds the embedding of every token; the hidden state after a token is the sum of the
//! cached rows up to it; the logits are that sum times the embedding, and the chosen token is the
//! first of the largest. A second form keeps the sum in a memory instead, and so must give the same. All numbers are small integers, so results are exact however they are
//! computed.

use mlxcel_frontend::artifact::{
    Buffer, CONTRACT, Compiler, Contract, FORMAT, Function, MANIFEST, MODULE, Manifest, Part,
    WEIGHTS,
};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Entries of the vocabulary.
pub(crate) const VOCABULARY: usize = 8;
/// Width of the embedding.
pub(crate) const WIDTH: usize = 4;
/// Tokens of the cache.
pub(crate) const CONTEXT: usize = 16;

/// The embedding, `f32[VOCABULARY, WIDTH]`.
pub(crate) fn embedding() -> Vec<f32> {
    let count = VOCABULARY * WIDTH;
    (0..count)
        .map(|i| ((i * 7 + i / 5) % 11) as f32 - 5.0)
        .collect()
}

/// The logits `[tokens.len(), VOCABULARY]` after each token.
pub(crate) fn logits(tokens: &[u32]) -> Vec<f32> {
    let embedding = embedding();
    let mut sum = vec![0f32; WIDTH];
    let mut logits = Vec::new();
    for &token in tokens {
        for (total, value) in sum.iter_mut().zip(&embedding[token as usize * WIDTH..]) {
            *total += value;
        }
        let rows = embedding.chunks(WIDTH);
        logits.extend(rows.map(|row| row.iter().zip(&sum).map(|(a, b)| a * b).sum::<f32>()));
    }
    logits
}

/// The token that the model chooses after `tokens`.
pub(crate) fn choice(tokens: &[u32]) -> u32 {
    let logits = logits(tokens);
    let last = &logits[logits.len() - VOCABULARY..];
    let largest = last.iter().copied().fold(f32::MIN, f32::max);
    last.iter().position(|&value| value == largest).unwrap() as u32
}

/// The compiled module, or `None`, with a message, where there is no compiler.
///
/// Functions: `decode` and `prefill` (logits, token), `every` (logits after each of four tokens), `decode`
/// and `prefill` for several rows ([`ROWS`]), the same with the prefix `recurrent_`, `scaled` (its argument times the first weight) and `unsigned`.
pub(crate) fn module() -> Option<&'static [u8]> {
    static MODULE: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let flags = [
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
    ];
    MODULE
        .get_or_init(|| compile(&program(), &flags))
        .as_deref()
}

/// The compiled `program`, or `None`, with a message, where there is no compiler.
pub(crate) fn compile(program: &str, flags: &[&str]) -> Option<Vec<u8>> {
    let Some(compiler) = compiler() else {
        eprintln!("skipped: iree-compile is neither in .deps nor in PATH; run `cargo xtask setup`");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("toy.mlir");
    let target = folder.path().join("toy.vmfb");
    std::fs::write(&source, program).unwrap();
    let output = Command::new(compiler)
        .arg("--iree-input-type=stablehlo")
        .args(flags)
        .arg("-o")
        .arg(&target)
        .arg(&source)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    Some(std::fs::read(target).unwrap())
}

fn compiler() -> Option<PathBuf> {
    let deps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.deps/python/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(deps)
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join("iree-compile"))
        .find(|file| file.is_file())
}

/// The source of [`module`].
pub(crate) fn program() -> String {
    let steps = [State::Cache, State::Memory].map(|state| {
        let steps = [
            ("decode", 1, false),
            ("prefill", 4, false),
            ("every", 4, true),
        ];
        let batches = [false, true].into_iter().flat_map(|faulty| {
            ROWS.map(|(name, rows, tokens)| batch(state, faulty, name, rows, tokens))
        });
        steps
            .map(|(name, tokens, every)| step(state, name, tokens, every))
            .into_iter()
            .chain(batches)
            .collect::<Vec<_>>()
            .join("\n")
    });
    format!(
        r#"module @toy {{
  util.global private @embed = #flow.parameter.named<"model"::"embed"> : tensor<8x4xf32>
  {}
  func.func @scaled(%x: tensor<2x4xf32>, %by: tensor<i32>) -> tensor<2x4xf32> {{
    %w = util.global.load @embed : tensor<8x4xf32>
    %f = stablehlo.slice %w [0:2, 0:4] : (tensor<8x4xf32>) -> tensor<2x4xf32>
    %s = stablehlo.convert %by : (tensor<i32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %y = stablehlo.multiply %x, %f : tensor<2x4xf32>
    %z = stablehlo.multiply %y, %b : tensor<2x4xf32>
    return %z : tensor<2x4xf32>
  }}
  func.func @unsigned(%x: tensor<3xui32>, %on: tensor<3xi1>) -> (tensor<3xui32>, tensor<3xi1>) {{
    %y = stablehlo.add %x, %x : tensor<3xui32>
    %n = stablehlo.not %on : tensor<3xi1>
    return %y, %n : tensor<3xui32>, tensor<3xi1>
  }}
}}"#,
        steps.join("\n")
    )
}

/// What the model keeps of a sequence.
#[derive(Clone, Copy)]
pub(crate) enum State {
    /// The embedding of every token.
    Cache,
    /// Their sum.
    Memory,
}

impl State {
    fn function(self, name: &str) -> String {
        match self {
            State::Cache => name.into(),
            State::Memory => format!("recurrent_{name}"),
        }
    }

    fn shape(self) -> Vec<usize> {
        match self {
            State::Cache => vec![1, CONTEXT, 1, WIDTH],
            State::Memory => vec![1, 1, 1, WIDTH],
        }
    }
}

fn step(state: State, name: &str, tokens: usize, every: bool) -> String {
    let (outputs, results, position) = if every {
        ("%e", format!("tensor<1x{tokens}x8xf32>"), 1)
    } else {
        ("%l, %c", "tensor<1x8xf32>, tensor<1xi32>".to_string(), 2)
    };
    let (ty, hidden) = match state {
        State::Cache => ("tensor<1x16x1x4xf32>", CACHE),
        State::Memory => ("tensor<1x1x1x4xf32>", MEMORY),
    };
    STEP.replace("HIDDEN", hidden)
        .replace("KEPT", ty)
        .replace("NAME", &state.function(name))
        .replace("TIED", &position.to_string())
        .replace("OUTPUTS", outputs)
        .replace("RESULTS", &results)
        .replace('T', &tokens.to_string())
}

/// The functions for several rows: what each does to a row, how many rows, of how many tokens.
const ROWS: [(&str, usize, usize); 4] = [
    ("decode", 2, 1),
    ("decode", 4, 1),
    ("prefill", 2, 4),
    ("prefill", 4, 4),
];

/// The name of a function for several rows, or of one that fails when it is called.
fn batched(name: &str, rows: usize, faulty: bool) -> String {
    match faulty {
        true => format!("{name}_faulty_b{rows}"),
        false => format!("{name}_b{rows}"),
    }
}

/// A function for `rows` rows, each of which goes through the function for one.
fn batch(state: State, faulty: bool, name: &str, rows: usize, tokens: usize) -> String {
    let one = state.function(name);
    let kept = |rows: usize| {
        let shape = state.shape();
        format!("tensor<{rows}x{}x1x{WIDTH}xf32>", shape[1])
    };
    let types = |rows: usize| {
        [
            format!("tensor<{rows}x{tokens}xi32>"),
            format!("tensor<{rows}xi32>"),
            format!("tensor<{rows}xi32>"),
            kept(rows),
        ]
    };
    let results = |rows: usize| {
        let logits = format!("tensor<{rows}x{VOCABULARY}xf32>");
        [logits, format!("tensor<{rows}xi32>"), kept(rows)]
    };
    let mut body = String::new();
    if faulty {
        body += "%no = arith.constant false\ncf.assert %no, \"it is faulty\"\n";
    }
    for row in 0..rows {
        let ranges = [
            format!("0:{tokens}"),
            String::new(),
            String::new(),
            format!("0:{}, 0:1, 0:{WIDTH}", state.shape()[1]),
        ];
        for (index, rest) in ranges.iter().enumerate() {
            let comma = if rest.is_empty() { "" } else { ", " };
            body += &format!(
                "%a{row}_{index} = stablehlo.slice %a{index} [{row}:{}{comma}{rest}] : ({}) -> {}\n",
                row + 1,
                types(rows)[index],
                types(1)[index],
            );
        }
        let arguments: Vec<String> = (0..4).map(|index| format!("%a{row}_{index}")).collect();
        body += &format!(
            "%r{row}:3 = func.call @{one}({}) : ({}) -> ({})\n",
            arguments.join(", "),
            types(1).join(", "),
            results(1).join(", "),
        );
    }
    for index in 0..3 {
        let parts: Vec<String> = (0..rows).map(|row| format!("%r{row}#{index}")).collect();
        let kinds = vec![results(1)[index].clone(); rows];
        body += &format!(
            "%y{index} = stablehlo.concatenate {}, dim = 0 : ({}) -> {}\n",
            parts.join(", "),
            kinds.join(", "),
            results(rows)[index],
        );
    }
    let [tokens, start, length, kept] = types(rows);
    format!(
        "func.func @{}(%a0: {tokens}, %a1: {start}, %a2: {length}, %a3: {kept}) -> ({results}) {{
           {body}
           return %y0, %y1, %y2 : {results}
         }}",
        batched(&one, rows, faulty),
        results = results(rows).join(", "),
    )
}

/// One step; `T` stands for the number of tokens, `HIDDEN` for what gives the hidden states `%h` and
/// the new state.
const STEP: &str = r#"
  func.func @NAME(%tokens: tensor<1xTxi32>, %start: tensor<1xi32>, %length: tensor<1xi32>,
      %kept: KEPT {iree.abi.output = TIED : index}) -> (RESULTS, KEPT) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %many = stablehlo.constant dense<8> : tensor<i32>
    %w = util.global.load @embed : tensor<8x4xf32>
    %i = stablehlo.reshape %tokens : (tensor<1xTxi32>) -> tensor<Tx1xi32>
    %x = "stablehlo.gather"(%w, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>, indices_are_sorted = false}> : (tensor<8x4xf32>, tensor<Tx1xi32>) -> tensor<Tx4xf32>
    %n = stablehlo.reshape %length : (tensor<1xi32>) -> tensor<i32>
    %at = stablehlo.subtract %n, %one : tensor<i32>
    HIDDEN
    %all = stablehlo.dot_general %h, %w, contracting_dims = [1] x [1] : (tensor<Tx4xf32>, tensor<8x4xf32>) -> tensor<Tx8xf32>
    %e = stablehlo.reshape %all : (tensor<Tx8xf32>) -> tensor<1xTx8xf32>
    %l = stablehlo.dynamic_slice %all, %at, %zero, sizes = [1, 8] : (tensor<Tx8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %max = stablehlo.reduce(%l init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<1x8xf32>, tensor<f32>) -> tensor<1xf32>
    %maxes = stablehlo.broadcast_in_dim %max, dims = [0] : (tensor<1xf32>) -> tensor<1x8xf32>
    %is = stablehlo.compare EQ, %l, %maxes : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xi1>
    %ids = stablehlo.iota dim = 1 : tensor<1x8xi32>
    %none = stablehlo.broadcast_in_dim %many, dims = [] : (tensor<i32>) -> tensor<1x8xi32>
    %which = stablehlo.select %is, %ids, %none : tensor<1x8xi1>, tensor<1x8xi32>
    %c = stablehlo.reduce(%which init: %many) applies stablehlo.minimum across dimensions = [1] : (tensor<1x8xi32>, tensor<i32>) -> tensor<1xi32>
    return OUTPUTS, %new : RESULTS, KEPT
  }"#;

/// The hidden states from a cache of all tokens.
const CACHE: &str = r#"%rows = stablehlo.reshape %x : (tensor<Tx4xf32>) -> tensor<1xTx1x4xf32>
    %s = stablehlo.reshape %start : (tensor<1xi32>) -> tensor<i32>
    %new = stablehlo.dynamic_update_slice %kept, %rows, %zero, %s, %zero, %zero : (tensor<1x16x1x4xf32>, tensor<1xTx1x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x16x1x4xf32>
    %flat = stablehlo.reshape %new : (tensor<1x16x1x4xf32>) -> tensor<16x4xf32>
    %row = stablehlo.iota dim = 0 : tensor<Tx16xi32>
    %column = stablehlo.iota dim = 1 : tensor<Tx16xi32>
    %starts = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<i32>) -> tensor<Tx16xi32>
    %last = stablehlo.add %row, %starts : tensor<Tx16xi32>
    %in = stablehlo.compare LE, %column, %last : (tensor<Tx16xi32>, tensor<Tx16xi32>) -> tensor<Tx16xi1>
    %ones = stablehlo.constant dense<1.0> : tensor<Tx16xf32>
    %zeros = stablehlo.constant dense<0.0> : tensor<Tx16xf32>
    %mask = stablehlo.select %in, %ones, %zeros : tensor<Tx16xi1>, tensor<Tx16xf32>
    %h = stablehlo.dot_general %mask, %flat, contracting_dims = [1] x [0] : (tensor<Tx16xf32>, tensor<16x4xf32>) -> tensor<Tx4xf32>"#;

/// The hidden states from a memory of their sum. A token that does not count adds nothing.
const MEMORY: &str = r#"%sums = stablehlo.reshape %kept : (tensor<1x1x1x4xf32>) -> tensor<4xf32>
    %nil = stablehlo.constant dense<0.0> : tensor<f32>
    %none4 = stablehlo.constant dense<0.0> : tensor<Tx4xf32>
    %place = stablehlo.iota dim = 0 : tensor<Tx4xi32>
    %ends = stablehlo.broadcast_in_dim %at, dims = [] : (tensor<i32>) -> tensor<Tx4xi32>
    %real = stablehlo.compare LE, %place, %ends : (tensor<Tx4xi32>, tensor<Tx4xi32>) -> tensor<Tx4xi1>
    %rows = stablehlo.select %real, %x, %none4 : tensor<Tx4xi1>, tensor<Tx4xf32>
    %row = stablehlo.iota dim = 0 : tensor<TxTxi32>
    %column = stablehlo.iota dim = 1 : tensor<TxTxi32>
    %in = stablehlo.compare LE, %column, %row : (tensor<TxTxi32>, tensor<TxTxi32>) -> tensor<TxTxi1>
    %ones = stablehlo.constant dense<1.0> : tensor<TxTxf32>
    %zeros = stablehlo.constant dense<0.0> : tensor<TxTxf32>
    %mask = stablehlo.select %in, %ones, %zeros : tensor<TxTxi1>, tensor<TxTxf32>
    %own = stablehlo.dot_general %mask, %rows, contracting_dims = [1] x [0] : (tensor<TxTxf32>, tensor<Tx4xf32>) -> tensor<Tx4xf32>
    %before = stablehlo.broadcast_in_dim %sums, dims = [1] : (tensor<4xf32>) -> tensor<Tx4xf32>
    %h = stablehlo.add %own, %before : tensor<Tx4xf32>
    %added = stablehlo.reduce(%rows init: %nil) applies stablehlo.add across dimensions = [0] : (tensor<Tx4xf32>, tensor<f32>) -> tensor<4xf32>
    %total = stablehlo.add %sums, %added : tensor<4xf32>
    %new = stablehlo.reshape %total : (tensor<4xf32>) -> tensor<1x1x1x4xf32>"#;

/// An artifact of the module in a new folder, or `None` where there is no compiler.
pub(crate) fn artifact() -> Option<tempfile::TempDir> {
    artifact_with(State::Cache)
}

/// The same, for one of the model's forms.
pub(crate) fn artifact_with(state: State) -> Option<tempfile::TempDir> {
    artifact_of(state, false)
}

/// The same, whose functions for several rows may be faulty.
pub(crate) fn artifact_of(state: State, faulty: bool) -> Option<tempfile::TempDir> {
    let vmfb = module()?;
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = embedding().iter().flat_map(|v| v.to_le_bytes()).collect();
    let view = safetensors::tensor::TensorView::new(
        safetensors::Dtype::F32,
        vec![VOCABULARY, WIDTH],
        &bytes,
    );
    let weights = safetensors::serialize([("embed", view.unwrap())], None).unwrap();
    let function = |name: &str, tokens, outputs: &[&str]| Function {
        name: state.function(name),
        batch: 1,
        tokens,
        outputs: outputs.iter().map(|output| output.to_string()).collect(),
    };
    let several = ROWS.map(|(name, rows, tokens)| Function {
        name: batched(&state.function(name), rows, faulty),
        batch: rows,
        ..function(name, tokens, &["logits", "token"])
    });
    let functions = [
        function("decode", 1, &["logits", "token"]),
        function("prefill", 4, &["logits", "token"]),
        function("every", 4, &["logits"]),
    ];
    let tokens = vec![3, 1, 4];
    let logits: Vec<u8> = logits(&tokens)
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    let parts = [
        (MODULE, vmfb),
        (WEIGHTS, weights.as_slice()),
        (CONTRACT, logits.as_slice()),
    ];
    let mut manifest = Manifest {
        format: FORMAT,
        mlxcel: "0".into(),
        model: "toy".into(),
        family: "toy".into(),
        source: String::new(),
        target: "iree-cpu".into(),
        chip: std::env::consts::ARCH.into(),
        compiler: Compiler {
            version: String::new(),
            flags: Vec::new(),
        },
        context: CONTEXT,
        vocabulary: VOCABULARY,
        functions: functions.into_iter().chain(several).collect(),
        buffers: vec![Buffer {
            name: "state.0".into(),
            dtype: "f32".into(),
            shape: state.shape(),
            tokens_dim: matches!(state, State::Cache).then_some(1),
            window: None,
        }],
        dispatches: 0,
        kernels: 0,
        transient_bytes: 0,
        contract: Some(Contract {
            tokens,
            budget: 1e-6,
        }),
        reference: None,
        parts: parts.map(|(name, bytes)| (name.into(), part(bytes))).into(),
        seal: String::new(),
    };
    manifest.seal = manifest.digest();
    for (name, bytes) in parts {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let manifest = serde_json::to_vec_pretty(&manifest).unwrap();
    std::fs::write(folder.path().join(MANIFEST), manifest).unwrap();
    Some(folder)
}

/// The entry of a part with these bytes.
pub(crate) fn part(bytes: &[u8]) -> Part {
    let digest = Sha256::digest(bytes);
    Part {
        sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        bytes: bytes.len() as u64,
    }
}
