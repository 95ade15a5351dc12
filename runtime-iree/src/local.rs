//! The devices of this machine's processor.
//!
//! IREE's own drivers would do, but they give modules no kernels of ours; and that of `local-task`
//! takes its threads from process-wide command-line flags and starts one per physical core, which
//! on a virtual machine may be half of the processors.

use crate::kernel::Kernels;
use crate::status::{check, view};
use mlxcel_iree_runtime_sys as sys;
use std::ptr;

/// Room for the one loader that is built, that of ELF files inside a module. With a further one no
/// device would open, which keeps IREE's VMVX loader out: see [`crate::instance::shared`].
const LOADERS: usize = 1;

/// Bytes of a worker's stack. Compiled dispatches spill vectors to it without asking how large it is,
/// and the 32 KiB that IREE gives at least have been too few.
const STACK: usize = 1 << 20;

/// Creates the device `local-sync`, on which code runs on the thread that calls; the caller owns the
/// reference. `kernels` must outlive it.
pub(crate) fn sync(
    kernels: &Kernels,
    parameters: &sys::iree_hal_device_create_params_t,
) -> Result<*mut sys::iree_hal_device_t, String> {
    let mut parts = Parts::new(kernels)?;
    let mut device = ptr::null_mut();
    let mut options = sys::iree_hal_sync_device_params_t::default();
    // SAFETY: the device retains the live objects that it is given.
    check(unsafe {
        sys::iree_hal_sync_device_params_initialize(&mut options);
        sys::iree_hal_sync_device_create(
            view("local-sync"),
            &options,
            parameters,
            parts.loader_count,
            parts.loaders.as_mut_ptr(),
            parts.allocator,
            sys::iree_allocator_system(),
            &mut device,
        )
    })?;
    Ok(device)
}

/// Creates the device `local-task`, on which `threads` threads share the code's work; otherwise as
/// [`sync`].
pub(crate) fn task(
    threads: usize,
    kernels: &Kernels,
    parameters: &sys::iree_hal_device_create_params_t,
) -> Result<*mut sys::iree_hal_device_t, String> {
    let allocator = sys::iree_allocator_system();
    let mut parts = Parts::new(kernels)?;
    let mut device = ptr::null_mut();
    // SAFETY: each call gets live objects that the calls before it created, which the device retains.
    // The topology is only read during the call that it is passed to.
    unsafe {
        let mut topology = sys::iree_task_topology_t::default();
        sys::iree_task_topology_initialize_from_group_count(threads as _, &mut topology);
        let mut options = sys::iree_task_executor_options_t::default();
        sys::iree_task_executor_options_initialize(&mut options);
        options.worker_stack_size = STACK;
        let created = check(sys::iree_task_executor_create(
            options,
            &topology,
            allocator,
            &mut parts.executor,
        ));
        sys::iree_task_topology_deinitialize(&mut topology);
        created?;
        let mut options = sys::iree_hal_task_device_params_t::default();
        sys::iree_hal_task_device_params_initialize(&mut options);
        check(sys::iree_hal_task_device_create(
            view("local-task"),
            &options,
            1,
            &parts.executor,
            parts.loader_count,
            parts.loaders.as_mut_ptr(),
            parts.allocator,
            parameters,
            allocator,
            &mut device,
        ))?;
    }
    Ok(device)
}

/// What a device is made of: an owned reference to each, or null.
struct Parts {
    executor: *mut sys::iree_task_executor_t,
    plugins: *mut sys::iree_hal_executable_plugin_manager_t,
    loaders: [*mut sys::iree_hal_executable_loader_t; LOADERS],
    loader_count: sys::iree_host_size_t,
    allocator: *mut sys::iree_hal_allocator_t,
}

impl Parts {
    fn new(kernels: &Kernels) -> Result<Self, String> {
        let allocator = sys::iree_allocator_system();
        let mut parts = Self {
            executor: ptr::null_mut(),
            plugins: ptr::null_mut(),
            loaders: [ptr::null_mut(); LOADERS],
            loader_count: 0,
            allocator: ptr::null_mut(),
        };
        // SAFETY: each call gets live objects that the calls before it created. `parts` owns one
        // reference to each.
        unsafe {
            check(sys::iree_hal_executable_plugin_manager_create(
                1,
                allocator,
                &mut parts.plugins,
            ))?;
            check(sys::iree_hal_executable_plugin_manager_register_provider(
                parts.plugins,
                kernels.provider(),
            ))?;
            check(sys::iree_hal_create_all_available_executable_loaders(
                parts.plugins,
                LOADERS as _,
                &mut parts.loader_count,
                parts.loaders.as_mut_ptr(),
                allocator,
            ))?;
            check(sys::iree_hal_allocator_create_heap(
                view("local"),
                allocator,
                allocator,
                &mut parts.allocator,
            ))?;
        }
        Ok(parts)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // SAFETY: each pointer is an owned reference, or null, which the release functions ignore.
        unsafe {
            for loader in self.loaders {
                sys::iree_hal_executable_loader_release(loader);
            }
            sys::iree_hal_allocator_release(self.allocator);
            sys::iree_hal_executable_plugin_manager_release(self.plugins);
            sys::iree_task_executor_release(self.executor);
        }
    }
}
