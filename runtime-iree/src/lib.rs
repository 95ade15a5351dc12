//! mlxcel-runtime-iree
