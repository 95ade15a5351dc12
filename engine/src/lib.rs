//! mlxcel-engine
