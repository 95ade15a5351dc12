//! What a stranger may write into the files of a model is taken or refused: nothing panics, aborts or
//! takes more memory than the book states (reference/checkpoints.md, reference/tokenizers.md).
//!
//! Each test takes a second; `MLXCEL_FUZZ_SECONDS` makes each take as many, and `--show-output` prints
//! what was seen.

#[path = "../common/change.rs"]
mod change;
mod config;
#[path = "../common/fuzz.rs"]
mod fuzzing;
mod gguf;
mod large;
mod safetensors;
mod template;
#[path = "../common/texts.rs"]
mod texts;
mod tokenizer;
#[path = "../common/gguf.rs"]
mod writer;
