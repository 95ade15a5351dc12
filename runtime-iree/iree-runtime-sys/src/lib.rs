//! IREE's C runtime, built from source into a static archive, and bindings to the part of it that
//! `mlxcel-runtime-iree` calls.
//!
//! Invariants:
//! - Nothing here has a meaning of its own: every item is IREE's, under IREE's name, except
//!   [`iree_allocator_system`].
//! - No library of a GPU vendor is linked; the drivers load theirs at run time.
//! - The source is compiled once per build profile and set of features. A change in Rust code never
//!   compiles it again.
//!
//! The functions that are bound are listed in `build.rs`.

/// The generated bindings.
#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use bindings::*;

unsafe extern "C" {
    fn iree_allocator_libc_ctl(
        self_: *mut std::ffi::c_void,
        command: iree_allocator_command_t,
        params: *const std::ffi::c_void,
        inout_ptr: *mut *mut std::ffi::c_void,
    ) -> iree_status_t;
}

/// The allocator over `malloc`, which IREE's headers define inline and so export under no name.
pub fn iree_allocator_system() -> iree_allocator_t {
    iree_allocator_t {
        self_: std::ptr::null_mut(),
        ctl: Some(iree_allocator_libc_ctl),
    }
}
