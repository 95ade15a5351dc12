//! The whole program on whole models: what no crate can show alone.
//!
//! - [`smollm2`]: a published model, from a GGUF file, from a converted folder and compiled, against recorded tokens;
//! - [`artifact`]: an artifact moved to another folder, on a machine without a compiler and without a network;
//! - [`fault`]: a fault put into one execution is found and located;
//! - [`long`]: a prompt of thousands of tokens on an artifact, against the eager path;
//! - [`reference_page`]: the book's page on the command line is what the program says of itself.
//!
//! Everything made here lies in a folder that a test owns, below cargo's folder for tests.

mod artifact;
mod fault;
mod long;
mod mlx_folder;
mod program;
mod reference_page;
mod smollm2;
