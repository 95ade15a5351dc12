//! mlxcel-runtime-mlx
