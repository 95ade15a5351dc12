//! The program through its command line: what it prints where, its exit codes and its messages.

mod artifact;
mod bad_input;
mod changes;
mod chat;
mod compile;
mod demo;
mod encoders;
mod inspect;
mod logits;
mod one_file;
mod program;
mod schema;
mod usage;
mod verify;
