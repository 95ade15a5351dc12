//! Placeholder until the kernels are in.
fn main() {}
