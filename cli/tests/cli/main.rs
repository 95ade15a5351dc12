//! The program through its command line: what it prints where, its exit codes and its messages.

mod artifact;
mod bad_input;
mod chat;
mod demo;
mod logits;
mod program;
mod usage;
mod verify;
