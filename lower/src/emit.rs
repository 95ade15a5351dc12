//! Graphs as StableHLO.

mod element;
mod operations;
mod primitive;
