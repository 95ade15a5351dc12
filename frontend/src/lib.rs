//! Files in, graphs out.

pub mod artifact;
mod checkpoint;
pub mod config;
mod error;
mod map;
mod safetensors;
mod weights;

pub use error::LoadError;
