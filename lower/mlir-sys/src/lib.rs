//! mlir-sys
