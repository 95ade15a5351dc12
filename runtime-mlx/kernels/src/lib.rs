//! mlxcel-kernels
