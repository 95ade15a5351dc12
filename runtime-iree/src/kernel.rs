//! Kernels of this program that compiled modules call.
//!
//! A module for a processor names the pieces of its graph that it leaves to the runtime. IREE asks
//! for them by name when it loads the module; a piece without a kernel fails the load.

mod compute;

use compute::Compute;
use mlxcel_frontend::artifact::{Kernel, KernelBuffer, Role};
use mlxcel_iree_runtime_sys as sys;
use mlxcel_kernels::Pool;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::status::view;

/// The kernels of one device. Stays where it is, since IREE holds its address.
pub(crate) struct Kernels(Box<Inner>);

struct Inner {
    threads: usize,
    pool: OnceLock<Result<Arc<Pool>, String>>,
    /// By name. An entry stays as long as the device, for executables hold its address.
    loaded: Mutex<HashMap<String, Box<Loaded>>>,
    failure: Arc<Mutex<Option<String>>>,
}

/// A kernel that a module asked for.
struct Loaded {
    compute: Compute,
    buffers: Vec<KernelBuffer>,
    /// Why the last call failed, for IREE passes on a number only.
    failure: Arc<Mutex<Option<String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kernels {
    /// Kernels whose work `threads` threads share. They start when a module asks for a kernel.
    pub(crate) fn new(threads: usize) -> Self {
        Self(Box::new(Inner {
            threads,
            pool: OnceLock::new(),
            loaded: Mutex::default(),
            failure: Arc::default(),
        }))
    }

    /// What IREE asks for kernels; valid while `self` lives.
    pub(crate) fn provider(&self) -> sys::iree_hal_executable_import_provider_t {
        sys::iree_hal_executable_import_provider_t {
            self_: ptr::from_ref::<Inner>(&self.0).cast_mut().cast(),
            resolve: Some(resolve),
        }
    }

    /// Why a kernel failed, once.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.0.failure).take()
    }
}

impl Inner {
    fn load(&self, name: &str) -> Result<*const Loaded, String> {
        let mut loaded = lock(&self.loaded);
        if let Some(known) = loaded.get(name) {
            return Ok(ptr::from_ref(&**known));
        }
        let kernel = Kernel::parse(name)?;
        let pool = self
            .pool
            .get_or_init(|| match Pool::new(self.threads) {
                Ok(pool) => Ok(Arc::new(pool)),
                Err(error) => Err(error.to_string()),
            })
            .clone()?;
        let buffers = kernel.buffers().ok_or("the kernel has open sizes")?;
        let made = Box::new(Loaded {
            compute: Compute::new(kernel, pool)?,
            buffers,
            failure: self.failure.clone(),
        });
        let address = ptr::from_ref(&*made);
        loaded.insert(name.to_string(), made);
        Ok(address)
    }
}

/// Answers which functions the names of a module's imports stand for.
///
/// # Safety
/// `kernels` is of [`Kernels::provider`]; names and results have `count` entries.
unsafe extern "C" fn resolve(
    kernels: *mut c_void,
    count: sys::iree_host_size_t,
    names: *const *const c_char,
    functions: *mut *mut c_void,
    contexts: *mut *mut c_void,
    _resolution: *mut sys::iree_hal_executable_import_resolution_t,
) -> sys::iree_status_t {
    let found = catch_unwind(AssertUnwindSafe(|| {
        for index in 0..count {
            // SAFETY: the caller's promise.
            unsafe {
                if !(*functions.add(index)).is_null() {
                    continue;
                }
                let name = CStr::from_ptr(*names.add(index)).to_string_lossy();
                let inner = &*kernels.cast::<Inner>();
                let loaded = inner.load(&name).map_err(|reason| {
                    let name = name.lines().take(2).collect::<Vec<_>>().join(" ");
                    format!("no kernel for `{name}`: {reason}")
                })?;
                *functions.add(index) = call as *mut c_void;
                *contexts.add(index) = loaded.cast_mut().cast();
            }
        }
        Ok(())
    }));
    let message = match found {
        Ok(Ok(())) => return ptr::null_mut(),
        Ok(Err(message)) => message,
        Err(_) => "looking for a kernel panicked".to_string(),
    };
    // SAFETY: IREE copies the message.
    unsafe {
        sys::iree_status_allocate(
            sys::iree_status_code_e_IREE_STATUS_NOT_FOUND,
            ptr::null(),
            0,
            view(&message),
        )
    }
}

/// One buffer of a call, as the code of the module passes it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Argument {
    address: *mut u8,
    offset: usize,
}

/// Runs the kernel of `context` over the buffers of `arguments`. Returns 0, or else the device is
/// lost.
///
/// # Safety
/// `context` is of [`resolve`], and `arguments` has an entry for each of its buffers, of its size or
/// larger; what is written is no other buffer of the call.
unsafe extern "C" fn call(
    arguments: *mut c_void,
    context: *mut c_void,
    _reserved: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise; the entry lives as long as the device.
    let loaded = unsafe { &*context.cast::<Loaded>() };
    let arguments = arguments.cast::<Argument>().cast_const();
    let run = || {
        let (mut read, mut states, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for (index, buffer) in loaded.buffers.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let Argument { address, offset } = *arguments.add(index);
                let address = address.add(offset);
                match buffer.role {
                    Role::Input => read.push(std::slice::from_raw_parts(address, buffer.bytes)),
                    Role::State => {
                        states.push(std::slice::from_raw_parts_mut(address, buffer.bytes));
                    }
                    Role::Output => {
                        written.push(std::slice::from_raw_parts_mut(address, buffer.bytes));
                    }
                }
            }
        }
        loaded.compute.run(&read, &mut states, &mut written)
    };
    let message = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => return 0,
        Ok(Err(message)) => message,
        Err(_) => "a kernel panicked".to_string(),
    };
    *lock(&loaded.failure) = Some(message);
    1
}
