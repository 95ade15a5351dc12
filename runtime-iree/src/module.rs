//! Compiled modules: loading one with its weights, and calling its functions.

use crate::buffer::DeviceTensor;
use crate::signature::tensor_type;
use crate::status::{check, text, view};
use crate::{Device, Error, Parameters, Signature, instance};
use memmap2::MmapMut;
use mlxcel_ir::{HostTensor, WeightDecl, WeightSource};
use mlxcel_iree_runtime_sys as sys;
use std::any::Any;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;

/// A compiled module on a device, with its weights.
///
/// One call runs at a time: a module can move between threads but is not shared.
pub struct Module {
    functions: BTreeMap<String, Function>,
    weight_bytes: usize,
    /// Dropped before everything below, which it uses.
    session: Session,
    device: Device,
    /// The bytes that the session executes from.
    _archive: MmapMut,
    /// The memory that parameters were loaded from in place.
    _weights: Arc<dyn Any + Send + Sync>,
}

/// An exported function.
struct Function {
    raw: sys::iree_vm_function_t,
    signature: Signature,
}

// SAFETY: a session may be used from any thread, one at a time, which `&self` methods of a type that
// is not `Sync` ensure. The functions point into the session.
unsafe impl Send for Module {}

impl Module {
    /// Loads the bytes of a compiled module, taking its weights from `source`. The weights stay
    /// where the source has them if the device can read them there.
    ///
    /// The bytes are code: whoever can change them can run anything in this process. Check where
    /// they come from first.
    ///
    /// # Errors
    /// [`Error::Weights`] if the source lacks a declared weight or the module wants one that was
    /// not declared; [`Error::Module`] if the bytes are no module for this device.
    pub fn from_bytes<'d>(
        device: &Device,
        vmfb: &[u8],
        source: &Arc<dyn WeightSource>,
        declared: impl IntoIterator<Item = &'d WeightDecl>,
    ) -> Result<Self, Error> {
        Self::load(device, vmfb, &Parameters::from_source(source, declared)?)
    }

    /// Loads the bytes of a compiled module with `parameters` as its weights.
    ///
    /// # Errors
    /// As [`Module::from_bytes`].
    pub fn load(device: &Device, vmfb: &[u8], parameters: &Parameters) -> Result<Self, Error> {
        let archive = aligned(vmfb)?;
        let session = Session::new(device).map_err(|message| Error::Module { message })?;
        let weights = parameters
            .module(session.vm_instance())
            .and_then(|module| session.append(&OwnedModule(module)));
        weights.map_err(|message| Error::Weights { message })?;
        let module = session
            .bytecode(&archive)
            .map_err(|message| Error::Module { message })?;
        session.append(&module).map_err(|message| {
            // Parameters are loaded when the module's initialiser runs, that is here.
            if message.contains("parameter") {
                Error::Weights { message }
            } else {
                Error::Module { message }
            }
        })?;
        Ok(Self {
            functions: module.functions(),
            weight_bytes: parameters.bytes(),
            session,
            device: device.clone(),
            _archive: archive,
            _weights: parameters.owner(),
        })
    }

    /// The device that executes the module.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes of the weights.
    pub fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// The exported functions, by name.
    pub fn functions(&self) -> impl Iterator<Item = &Signature> {
        self.functions.values().map(|function| &function.signature)
    }

    /// The function of this name.
    ///
    /// # Errors
    /// [`Error::UnknownFunction`].
    pub fn function(&self, name: &str) -> Result<&Signature, Error> {
        Ok(&self.lookup(name)?.signature)
    }

    fn lookup(&self, name: &str) -> Result<&Function, Error> {
        self.functions.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.functions.keys().map(String::as_str).collect();
            Error::UnknownFunction {
                function: name.to_string(),
                known: known.join(", "),
            }
        })
    }

    /// Calls a function on tensors in host memory.
    ///
    /// # Errors
    /// [`Error::UnknownFunction`], [`Error::ArgumentCount`] and [`Error::Argument`] before anything
    /// runs; [`Error::Call`] and [`Error::Memory`] after.
    pub fn call(&self, function: &str, inputs: &[HostTensor]) -> Result<Vec<HostTensor>, Error> {
        let signature = self.function(function)?;
        check_count(signature, inputs.len())?;
        for (index, input) in inputs.iter().enumerate() {
            if !signature.accepts(index, input.dtype, &input.shape) {
                return Err(Error::Argument {
                    function: function.to_string(),
                    index,
                    expected: signature.inputs[index].clone(),
                    actual: tensor_type(input.dtype, &input.shape),
                });
            }
        }
        let inputs = inputs
            .iter()
            .map(|input| self.device.upload(input.dtype, &input.shape, &input.bytes))
            .collect::<Result<Vec<_>, _>>()?;
        self.call_on_device(function, inputs.iter())?
            .iter()
            .map(|output| self.device.download(output))
            .collect()
    }

    /// Calls a function on tensors in device memory.
    ///
    /// The results may stand in the memory of an argument that the function updates: an argument
    /// must not be used afterwards unless it is known to be only read.
    pub(crate) fn call_on_device<'t>(
        &self,
        function: &str,
        inputs: impl ExactSizeIterator<Item = &'t DeviceTensor>,
    ) -> Result<Vec<DeviceTensor>, Error> {
        let target = self.lookup(function)?;
        check_count(&target.signature, inputs.len())?;
        self.session
            .call(&target.raw, inputs)
            .map_err(|message| Error::Call {
                function: function.to_string(),
                message: match self.device.failure() {
                    Some(reason) => format!("{message}: {reason}"),
                    None => message,
                },
            })
    }
}

fn check_count(signature: &Signature, actual: usize) -> Result<(), Error> {
    let expected = signature.inputs.len();
    if expected == actual {
        return Ok(());
    }
    Err(Error::ArgumentCount {
        function: signature.name.clone(),
        expected,
        actual,
    })
}

/// A copy of `bytes` at the start of a memory page: IREE maps machine code inside a module in place
/// and needs it aligned.
fn aligned(bytes: &[u8]) -> Result<MmapMut, Error> {
    let empty = || Error::Module {
        message: "the module has no bytes".to_string(),
    };
    if bytes.is_empty() {
        return Err(empty());
    }
    let mut archive = MmapMut::map_anon(bytes.len()).map_err(|error| Error::Memory {
        operation: "copying a compiled module".to_string(),
        message: error.to_string(),
    })?;
    archive.copy_from_slice(bytes);
    Ok(archive)
}

/// An IREE session: modules linked to one another over a device.
struct Session {
    /// Of the process, never released.
    instance: *mut sys::iree_runtime_instance_t,
    session: *mut sys::iree_runtime_session_t,
    inputs: *mut sys::iree_vm_list_t,
    outputs: *mut sys::iree_vm_list_t,
    /// IREE's number for buffer views, the type of every argument and result.
    view_type: sys::iree_vm_ref_type_t,
}

impl Session {
    fn new(device: &Device) -> Result<Self, String> {
        let allocator = sys::iree_allocator_system();
        let mut this = Self {
            instance: instance::shared()?,
            session: ptr::null_mut(),
            inputs: ptr::null_mut(),
            outputs: ptr::null_mut(),
            view_type: 0,
        };
        // SAFETY: plain calls on live objects; what they create is owned by `this`, which frees it
        // on error too.
        unsafe {
            let mut options = sys::iree_runtime_session_options_t::default();
            sys::iree_runtime_session_options_initialize(&mut options);
            check(sys::iree_runtime_session_create_with_device(
                this.instance,
                &options,
                device.raw(),
                allocator,
                &mut this.session,
            ))?;
            for list in [&mut this.inputs, &mut this.outputs] {
                check(sys::iree_vm_list_create(
                    sys::iree_vm_type_def_t::default(),
                    LIST_CAPACITY,
                    allocator,
                    list,
                ))?;
            }
            this.view_type =
                sys::iree_vm_instance_lookup_type(this.vm_instance(), view("hal.buffer_view"));
        }
        Ok(this)
    }

    fn vm_instance(&self) -> *mut sys::iree_vm_instance_t {
        // SAFETY: the instance is alive.
        unsafe { sys::iree_runtime_instance_vm_instance(self.instance) }
    }

    /// Links a module to those before it and runs its initialiser.
    fn append(&self, module: &OwnedModule) -> Result<(), String> {
        // SAFETY: session and module are alive; the session retains the module.
        check(unsafe { sys::iree_runtime_session_append_module(self.session, module.0) })
    }

    /// A module over `archive`, which must outlive the session.
    fn bytecode(&self, archive: &[u8]) -> Result<OwnedModule, String> {
        let mut module = OwnedModule(ptr::null_mut());
        // SAFETY: the archive outlives the module (it stands behind the session in `Module`), and
        // the empty allocator tells IREE not to free it.
        check(unsafe {
            sys::iree_vm_bytecode_module_create(
                self.vm_instance(),
                0,
                sys::iree_const_byte_span_t {
                    data: archive.as_ptr(),
                    data_length: archive.len() as _,
                },
                sys::iree_allocator_t::default(),
                sys::iree_allocator_system(),
                &mut module.0,
            )
        })?;
        Ok(module)
    }

    fn call<'t>(
        &self,
        function: &sys::iree_vm_function_t,
        inputs: impl Iterator<Item = &'t DeviceTensor>,
    ) -> Result<Vec<DeviceTensor>, String> {
        // SAFETY: session and lists are alive and used by this thread alone; the function belongs to
        // the session; a pushed view is retained by the list.
        unsafe {
            sys::iree_vm_list_clear(self.inputs);
            sys::iree_vm_list_clear(self.outputs);
            for input in inputs {
                let reference = sys::iree_vm_ref_t {
                    ptr: input.raw().cast(),
                    type_: self.view_type,
                };
                check(sys::iree_vm_list_push_ref_retain(self.inputs, &reference))?;
            }
            let called = check(sys::iree_runtime_session_call(
                self.session,
                function,
                self.inputs,
                self.outputs,
            ));
            // The lists must not keep caches alive between calls.
            sys::iree_vm_list_clear(self.inputs);
            called?;
            let results = (0..sys::iree_vm_list_size(self.outputs))
                .map(|index| self.result(index))
                .collect();
            sys::iree_vm_list_clear(self.outputs);
            results
        }
    }

    /// The result `index` of the last call.
    fn result(&self, index: sys::iree_host_size_t) -> Result<DeviceTensor, String> {
        let mut reference = sys::iree_vm_ref_t::default();
        // SAFETY: the list is alive; on success `reference` owns a reference, which either becomes
        // the tensor's or is released.
        unsafe {
            check(sys::iree_vm_list_get_ref_retain(
                self.outputs,
                index,
                &mut reference,
            ))?;
            if reference.type_ != self.view_type {
                sys::iree_vm_ref_release(&mut reference);
                return Err(format!("result {index} is no tensor"));
            }
            DeviceTensor::from_owned(reference.ptr.cast())
                .ok_or_else(|| format!("result {index} is missing"))
        }
    }
}

/// Entries that a call's lists have room for without growing.
const LIST_CAPACITY: sys::iree_host_size_t = 128;

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: each is an owned reference, or null, which IREE ignores.
        unsafe {
            sys::iree_vm_list_release(self.inputs);
            sys::iree_vm_list_release(self.outputs);
            sys::iree_runtime_session_release(self.session);
        }
    }
}

/// A reference to an IREE module.
struct OwnedModule(*mut sys::iree_vm_module_t);

impl OwnedModule {
    /// The exported functions that the compiler declared tensor signatures for, which leaves out the
    /// initialiser.
    fn functions(&self) -> BTreeMap<String, Function> {
        // SAFETY: the module is alive; strings in it live as long as it does and are copied.
        unsafe {
            let exports = sys::iree_vm_module_signature(self.0).export_function_count;
            (0..exports)
                .filter_map(|ordinal| {
                    let mut raw = sys::iree_vm_function_t::default();
                    check(sys::iree_vm_module_lookup_function_by_ordinal(
                        self.0,
                        sys::iree_vm_function_linkage_e_IREE_VM_FUNCTION_LINKAGE_EXPORT,
                        ordinal,
                        &mut raw,
                    ))
                    .ok()?;
                    let name = text(sys::iree_vm_function_name(&raw));
                    let declaration = text(sys::iree_vm_function_lookup_attr_by_name(
                        &raw,
                        view("iree.abi.declaration"),
                    ));
                    let signature = Signature::parse(&name, &declaration)?;
                    Some((name, Function { raw, signature }))
                })
                .collect()
        }
    }
}

impl Drop for OwnedModule {
    fn drop(&mut self) {
        // SAFETY: owned reference, or null, which IREE ignores.
        unsafe { sys::iree_vm_module_release(self.0) }
    }
}
