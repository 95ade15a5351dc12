//! Files in, graphs out.

pub mod artifact;
pub mod config;
mod error;
mod map;

pub use error::LoadError;
