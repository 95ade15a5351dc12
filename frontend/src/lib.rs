//! Files in, graphs out: checkpoints, configurations, tokenizers and chat templates are read here,
//! checked, and turned into the graphs of `mlxcel_ir`.
//!
//! Invariants:
//! - Nothing that a file contains can make this crate panic or allocate more than in proportion to
//!   the file: sizes, offsets and counts are checked against the file before they are used.
//! - Each error names the file and the field or tensor at fault ([`LoadError`]).
//! - A model family is data: one small file under `families`, no code in any runtime.
//! - This crate knows no runtime.
//!
//! Start reading at [`Model`], then [`Text`]; how bytes become weights is in `weights`, how a
//! configuration becomes a graph in `families` and `decoder`.

mod adapter;
pub mod artifact;
mod checkpoint;
pub mod config;
mod convert;
mod decoder;
mod encoder;
mod error;
mod families;
mod gguf;
mod inspect;
mod map;
mod model;
mod safetensors;
mod surgery;
mod text;
mod weights;

pub use adapter::Adapter;
pub use checkpoint::read_tensors;
pub use config::Config;
pub use encoder::{Pooling, Prompts, Reduce};
pub use error::LoadError;
pub use families::{Category, FamilyInfo, catalogue, supported};
pub use inspect::{FormatInfo, StateInfo, Summary, TensorInfo, list_tensors};
pub use model::{EncoderInfo, GraphOptions, LoadOptions, Logits, Model};
pub use text::{Message, Text, TextError, TokenKind};
