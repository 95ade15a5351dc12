//! mlxcel-mlx-sys
