//! mlxcel-iree-runtime-sys
