//! mlxcel-oracle
