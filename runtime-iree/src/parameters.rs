//! Weights as parameters of a module.
//!
//! IREE loads a parameter in place where the device can read host memory (the processor, if the
//! bytes are aligned to 64), and copies it to the device otherwise.

use crate::status::{check, view};
use mlxcel_frontend::artifact::{PARAMETER_SCOPE, compiled_bits, parameter_names, widen_codes};
use mlxcel_ir::{WeightDecl, WeightSource};
use mlxcel_iree_runtime_sys as sys;
use std::any::Any;
use std::ptr;
use std::sync::Arc;

/// Named bytes, and the owner that keeps them where they are.
pub struct Parameters {
    entries: Vec<(String, &'static [u8])>,
    /// Keeps the bytes of `entries` alive, whose lifetime is in truth this field's.
    owner: Arc<dyn Any + Send + Sync>,
}

impl Parameters {
    /// No parameters, for a module that declares none.
    pub fn none() -> Self {
        Self {
            entries: Vec::new(),
            owner: Arc::new(()),
        }
    }

    /// The weights `declared`, under the names that [`parameter_names`] gives their parts.
    ///
    /// # Errors
    /// The name of a weight that the source lacks.
    pub fn from_source<'d>(
        source: &Arc<dyn WeightSource>,
        declared: impl IntoIterator<Item = &'d WeightDecl>,
    ) -> Result<Self, crate::Error> {
        let mut entries = Vec::new();
        let mut widened: Vec<Vec<u8>> = Vec::new();
        for weight in declared {
            let data = source
                .get(&weight.name)
                .ok_or_else(|| crate::Error::Weights {
                    message: format!("nothing provides `{}`", weight.name),
                })?;
            let code = weight.format.coded().map(|coded| coded.code);
            let sizes = code.map(|code| (code.bits(), compiled_bits(code)));
            let mut values = data.values;
            if let Some((bits, wide)) = sizes.filter(|(bits, wide)| bits != wide) {
                let codes = widen_codes(values, bits, wide);
                // SAFETY: what the vector holds stays where it is when the vector moves into
                // `owner`, and nobody changes it.
                values = unsafe { extend(&codes) };
                widened.push(codes);
            }
            let parts = [values, data.scales, data.biases];
            for (name, part) in parameter_names(&weight.name).into_iter().zip(parts) {
                if !part.is_empty() {
                    // SAFETY: the slices of a source live as long as the source, and the clone in
                    // `owner` outlives every use of `entries`.
                    entries.push((name, unsafe { extend(part) }));
                }
            }
        }
        Ok(Self {
            entries,
            owner: Arc::new((Arc::clone(source), widened)),
        })
    }

    /// Parameters whose bytes lie in the memory of `owner`.
    pub(crate) fn from_owner<O: AsRef<[u8]> + Any + Send + Sync>(
        owner: Arc<O>,
        ranges: impl IntoIterator<Item = (String, std::ops::Range<usize>)>,
    ) -> Option<Self> {
        let entries = ranges
            .into_iter()
            .map(|(name, range)| {
                let bytes = (*owner).as_ref().get(range)?;
                // SAFETY: the bytes belong to `owner`, which nobody can change while this struct
                // shares it.
                Some((name, unsafe { extend(bytes) }))
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self { entries, owner })
    }

    /// Bytes of all parameters.
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// What must outlive every module that the parameters were given to.
    pub(crate) fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.owner)
    }

    /// The IREE module that answers a compiled module's requests for parameters. The caller owns
    /// the reference.
    pub(crate) fn module(
        &self,
        instance: *mut sys::iree_vm_instance_t,
    ) -> Result<*mut sys::iree_vm_module_t, String> {
        let allocator = sys::iree_allocator_system();
        let mut parts = Parts::default();
        let mut module = ptr::null_mut();
        // SAFETY: each call gets live objects that the calls before it created; `parts` releases
        // them and what they are handed to retains them.
        unsafe {
            check(sys::iree_io_parameter_index_create(
                allocator,
                &mut parts.index,
            ))?;
            for (name, bytes) in &self.entries {
                add(parts.index, name, bytes)?;
            }
            check(sys::iree_io_parameter_index_provider_create(
                view(PARAMETER_SCOPE),
                parts.index,
                CONCURRENT_LOADS,
                allocator,
                &mut parts.provider,
            ))?;
            check(sys::iree_io_parameters_module_create(
                instance,
                1,
                &parts.provider,
                allocator,
                &mut module,
            ))?;
        }
        Ok(module)
    }
}

/// Copies to a device that IREE keeps in flight: its own default.
const CONCURRENT_LOADS: sys::iree_host_size_t = 16;

/// # Safety
/// The bytes stay where they are, unchanged, as long as the result is used.
unsafe fn extend(bytes: &[u8]) -> &'static [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
}

/// Adds one parameter. Each has a file handle of its own, for IREE's in-place load takes all bytes
/// of the handle after the entry's offset to be the parameter.
///
/// # Safety
/// `index` is alive, and `bytes` outlive every use of it.
unsafe fn add(
    index: *mut sys::iree_io_parameter_index_t,
    name: &str,
    bytes: &[u8],
) -> Result<(), String> {
    let mut handle = ptr::null_mut();
    // SAFETY: the handle is for reading only, so IREE does not write through the pointer; the index
    // copies the name and retains the handle.
    unsafe {
        check(sys::iree_io_file_handle_wrap_host_allocation(
            sys::iree_io_file_access_bits_t_IREE_IO_FILE_ACCESS_READ,
            sys::iree_byte_span_t {
                data: bytes.as_ptr().cast_mut(),
                data_length: bytes.len() as _,
            },
            sys::iree_io_file_handle_release_callback_t::default(),
            sys::iree_allocator_system(),
            &mut handle,
        ))?;
        let mut entry = sys::iree_io_parameter_index_entry_t {
            key: view(name),
            length: bytes.len() as u64,
            type_: sys::iree_io_parameter_index_entry_storage_type_e_IREE_IO_PARAMETER_INDEX_ENTRY_STORAGE_TYPE_FILE,
            ..Default::default()
        };
        entry.storage.file.handle = handle;
        entry.storage.file.offset = 0;
        let added = check(sys::iree_io_parameter_index_add(index, &entry));
        sys::iree_io_file_handle_release(handle);
        added
    }
}

struct Parts {
    index: *mut sys::iree_io_parameter_index_t,
    provider: *mut sys::iree_io_parameter_provider_t,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            index: ptr::null_mut(),
            provider: ptr::null_mut(),
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // SAFETY: each pointer is an owned reference, or null, which IREE ignores.
        unsafe {
            sys::iree_io_parameter_provider_release(self.provider);
            sys::iree_io_parameter_index_release(self.index);
        }
    }
}
