//! IREE's table of types, of which a process has one.

use crate::status::check;
use mlxcel_iree_runtime_sys as sys;
use std::ptr;
use std::sync::OnceLock;

/// The instance that every session of this process is in. It lives as long as the process.
///
/// IREE keeps the numbers of its types in globals, which each new instance sets to zero and then to
/// the same number again. A call on another thread that looks at one in between fails with "ref type
/// mismatch" or "ref is null", so no second instance is made, here or in IREE: the build leaves out its
/// loader of VMVX modules, which makes one for each device.
///
/// # Errors
/// What IREE says if there is no memory for it.
pub(crate) fn shared() -> Result<*mut sys::iree_runtime_instance_t, String> {
    static SHARED: OnceLock<Result<Instance, String>> = OnceLock::new();
    match SHARED.get_or_init(create) {
        Ok(instance) => Ok(instance.0),
        Err(message) => Err(message.clone()),
    }
}

struct Instance(*mut sys::iree_runtime_instance_t);

// SAFETY: an instance is reference-counted atomically and locks its table of types.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

fn create() -> Result<Instance, String> {
    let mut instance = ptr::null_mut();
    let mut options = sys::iree_runtime_instance_options_t::default();
    // SAFETY: plain calls; `instance` receives an owned reference on success.
    unsafe {
        sys::iree_runtime_instance_options_initialize(&mut options);
        check(sys::iree_runtime_instance_create(
            &options,
            sys::iree_allocator_system(),
            &mut instance,
        ))?;
    }
    Ok(Instance(instance))
}
