//! The manifest of a compiled artifact.
//!
//! An artifact is a folder, or one file ([`archive`]), that a runtime can execute with no compiler: `manifest.json`, the
//! compiled module, the weights, and the text files of the model (tokenizer, template, generation
//! settings). `lower` writes it and `runtime-iree` reads it; neither knows the other, so the format
//! stands here.
//!
//! A function of the module takes [`mlxcel_ir::step`]'s inputs in the order tokens `i32[B, T]`,
//! start `i32[B]`, length `i32[B]`, then one buffer per entry of [`Manifest::buffers`]. It returns
//! its [`Function::outputs`] in order, then the buffers, updated in place.

pub mod archive;
mod files;
mod kernel;

pub use files::{Bytes, Files, is_artifact};
pub use kernel::{Kernel, KernelBuffer, Pattern, Role, stored};

use mlxcel_ir::weight::Code;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The version of the format that this build writes and reads.
pub const FORMAT: u32 = 3;
/// Name of the manifest in an artifact.
pub const MANIFEST: &str = "manifest.json";
/// Name of the compiled module in an artifact.
pub const MODULE: &str = "module.vmfb";
/// Name of the weights in an artifact.
pub const WEIGHTS: &str = "weights.safetensors";
/// Name of the logits of a [`Contract`] in an artifact.
pub const CONTRACT: &str = "logits.f32";
/// Scope of the weights as parameters of the module.
pub const PARAMETER_SCOPE: &str = "model";

/// The names under which the parts of the weight `name` stand in [`WEIGHTS`] and in the module's
/// parameters: values, scales, biases.
pub fn parameter_names(name: &str) -> [String; 3] {
    [
        name.to_string(),
        format!("{name}.scales"),
        format!("{name}.biases"),
    ]
}

/// Bits that a code takes in [`WEIGHTS`] and in parameters: 4 or 8.
///
/// Compilers address elements of these sizes only: integers of 2 and 3 bits take 4 there, and those
/// of 5 and 6 bits 8. Floating-point numbers of 4 bits take 8: IREE's compiler cannot lower all loads
/// of four bits that it makes for them. The numbers are the same.
pub fn compiled_bits(code: Code) -> usize {
    match code {
        Code::Unsigned(..=4) => 4,
        Code::Unsigned(_) | Code::E2M1 | Code::E4M3 => 8,
    }
}

/// Codes of `bits` bits, packed lowest bits first, as codes of `wide` bits. Eight codes come from
/// `bits` bytes; what is left of `codes` beyond a multiple of that is dropped.
pub fn widen_codes(codes: &[u8], bits: usize, wide: usize) -> Vec<u8> {
    let wide = wide.min(8);
    let mask = u64::MAX >> (64 - bits.clamp(1, 64));
    let mut widened = Vec::with_capacity(codes.len() / bits.max(1) * wide);
    for codes in codes.chunks_exact(bits.max(1)) {
        let mut eight = [0; 8];
        let length = codes.len().min(8);
        eight[..length].copy_from_slice(&codes[..length]);
        let from = u64::from_le_bytes(eight);
        let code = |place: usize| (from >> (bits * place) & mask) << (wide * place);
        let to: u64 = (0..8).map(code).sum();
        widened.extend_from_slice(&to.to_le_bytes()[..wide]);
    }
    widened
}

/// What an artifact is and what it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format: [`FORMAT`].
    pub format: u32,
    /// Version of mlxcel that wrote it.
    pub mlxcel: String,
    /// The model's name.
    pub model: String,
    /// The model's family.
    pub family: String,
    /// sha256 of the source checkpoint's configuration and weights.
    pub source: String,
    /// The target as the user names it, for instance `iree-cpu`.
    pub target: String,
    /// The chip compiled for.
    pub chip: String,
    /// The compiler.
    pub compiler: Compiler,
    /// Tokens that the cache of a row holds (the symbol S).
    pub context: usize,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// The functions of the module.
    pub functions: Vec<Function>,
    /// The state buffers of each function, in argument order, for a batch of one.
    pub buffers: Vec<Buffer>,
    /// Dispatches of the compiled module, counted at compile time.
    pub dispatches: usize,
    /// How many of them do nothing but call a [`Kernel`] of the runtime.
    pub kernels: usize,
    /// Bytes that values between dispatches take, of all functions together.
    pub transient_bytes: u64,
    /// The numbers that the artifact must give, if they were computed when it was compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<Contract>,
    /// Where the weights are, if they are not in the artifact: an absolute path of the checkpoint that has the
    /// digest [`Manifest::source`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Every other file of the artifact, by name relative to the manifest.
    pub parts: BTreeMap<String, Part>,
    /// [`Manifest::digest`].
    pub seal: String,
}

impl Manifest {
    /// Element type of the caches, as the graph's text form names it; `None` if there are none.
    pub fn cache_dtype(&self) -> Option<&str> {
        let mut buffers = self.buffers.iter();
        let cache = buffers.find(|buffer| buffer.tokens_dim.is_some())?;
        Some(&cache.dtype)
    }

    /// The sha256, in hexadecimal, of the manifest as compact JSON with an empty seal.
    pub fn digest(&self) -> String {
        let open = Self {
            seal: String::new(),
            ..self.clone()
        };
        // Nothing in a manifest has no JSON.
        let text = serde_json::to_vec(&open).unwrap_or_default();
        let digest = Sha256::digest(&text);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What an artifact must compute: the part [`CONTRACT`] has the logits `f32[tokens, vocabulary]`, little-endian,
/// that the interpreter gives in f64 after each of these tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// The tokens, from an empty cache.
    pub tokens: Vec<u32>,
    /// The largest relative root mean square error that rounding explains. A number of few digits, which
    /// JSON brings back unchanged.
    pub budget: f64,
}

/// The compiler that made a module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compiler {
    /// Version as the compiler reports it.
    pub version: String,
    /// Every flag it was given.
    pub flags: Vec<String>,
}

/// A function of the module, specialised to one batch size and number of new tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// Its exported name, without the module's.
    pub name: String,
    /// Rows (the symbol B).
    pub batch: usize,
    /// New tokens of each row (the symbol T).
    pub tokens: usize,
    /// Names of the outputs before the state buffers, in order.
    pub outputs: Vec<String>,
}

/// A state buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Its name, for instance `cache.0.key`.
    pub name: String,
    /// Element type, as the graph's text form names it.
    pub dtype: String,
    /// Dimensions; the first is the batch.
    pub shape: Vec<usize>,
    /// Which dimension counts cached tokens; none in a memory, which is of one size at any length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_dim: Option<usize>,
    /// In a cache that has fewer rows than the context has tokens: how many tokens back, its own included, a token
    /// reads. Position `p` then stands in row `p` modulo the number of rows, which are at least this window and
    /// the most tokens of a function together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
}

/// A file of the artifact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its sha256, in hexadecimal.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
}
