//! Files in, graphs out.

pub mod artifact;
