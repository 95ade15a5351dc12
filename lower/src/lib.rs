//! mlxcel-lower
