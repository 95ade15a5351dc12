//! Tensors in device memory.

use crate::status::check;
use crate::{Device, Error};
use mlxcel_ir::{DType, HostTensor};
use mlxcel_iree_runtime_sys as sys;
use std::fmt;
use std::ptr::{self, NonNull};

/// A tensor in device memory: an IREE buffer view. Clones share the memory.
pub(crate) struct DeviceTensor(NonNull<sys::iree_hal_buffer_view_t>);

// SAFETY: buffer views and buffers are reference-counted atomically, and this crate writes to their
// memory only in calls that are ordered after one another.
unsafe impl Send for DeviceTensor {}

impl Clone for DeviceTensor {
    fn clone(&self) -> Self {
        // SAFETY: the view is alive, and the clone owns the reference taken here.
        unsafe { sys::iree_hal_buffer_view_retain(self.0.as_ptr()) };
        Self(self.0)
    }
}

impl Drop for DeviceTensor {
    fn drop(&mut self) {
        // SAFETY: owned reference.
        unsafe { sys::iree_hal_buffer_view_release(self.0.as_ptr()) }
    }
}

impl fmt::Debug for DeviceTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceTensor({:?})", self.shape())
    }
}

impl DeviceTensor {
    /// Takes over a reference to a view.
    ///
    /// # Safety
    /// `view` is null or an owned reference to a live view.
    pub(crate) unsafe fn from_owned(view: *mut sys::iree_hal_buffer_view_t) -> Option<Self> {
        NonNull::new(view).map(Self)
    }

    /// IREE's view, valid while `self` lives.
    pub(crate) fn raw(&self) -> *mut sys::iree_hal_buffer_view_t {
        self.0.as_ptr()
    }

    fn buffer(&self) -> *mut sys::iree_hal_buffer_t {
        // SAFETY: the view is alive.
        unsafe { sys::iree_hal_buffer_view_buffer(self.0.as_ptr()) }
    }

    /// The dimensions.
    pub(crate) fn shape(&self) -> Vec<usize> {
        // SAFETY: the view is alive and the dimension index below its rank.
        unsafe {
            let rank = sys::iree_hal_buffer_view_shape_rank(self.0.as_ptr());
            (0..rank)
                .map(|dim| sys::iree_hal_buffer_view_shape_dim(self.0.as_ptr(), dim) as usize)
                .collect()
        }
    }

    /// The element type, where it is one of ours. IREE has signed, unsigned and signless integers;
    /// compiled functions return the signless ones.
    pub(crate) fn dtype(&self) -> Option<DType> {
        // SAFETY: the view is alive.
        let element = unsafe { sys::iree_hal_buffer_view_element_type(self.0.as_ptr()) };
        DType::ALL
            .into_iter()
            .find(|&dtype| element_type(dtype) == element)
            .or(match element {
                INT_8 => Some(DType::Bool),
                INT_32 => Some(DType::I32),
                _ => None,
            })
    }

    /// Bytes of the memory behind it.
    pub(crate) fn byte_length(&self) -> usize {
        // SAFETY: the view and so its buffer is alive.
        unsafe { sys::iree_hal_buffer_byte_length(self.buffer()) as usize }
    }

    /// Whether both stand at the same place in device memory.
    pub(crate) fn same_memory(&self, other: &Self) -> bool {
        // SAFETY: both buffers are alive; the fields are set at creation and never change.
        unsafe {
            let (a, b) = (&*self.buffer(), &*other.buffer());
            a.allocated_buffer == b.allocated_buffer && a.byte_offset == b.byte_offset
        }
    }

    /// The same memory with other dimensions of the same number of elements.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Result<Self, Error> {
        // SAFETY: the buffer is alive and retained by the new view.
        unsafe { self.view(self.buffer(), shape) }
    }

    /// The memory from byte `offset` on as a tensor of `shape` and this element type.
    pub(crate) fn part(&self, offset: usize, bytes: usize, shape: &[usize]) -> Result<Self, Error> {
        bounded(self, offset, bytes)?;
        let mut part = ptr::null_mut();
        // SAFETY: the range lies in the buffer, which the part retains; the view retains the part, of
        // which the reference taken here is then released.
        unsafe {
            let status = sys::iree_hal_buffer_subspan(
                self.buffer(),
                offset as _,
                bytes as _,
                sys::iree_allocator_system(),
                &mut part,
            );
            check(status).map_err(|message| Error::Memory {
                operation: "taking a part of a device tensor".to_string(),
                message,
            })?;
            let view = self.view(part, shape);
            sys::iree_hal_buffer_release(part);
            view
        }
    }

    /// A view of `buffer` with this element type.
    ///
    /// # Safety
    /// `buffer` is alive.
    unsafe fn view(
        &self,
        buffer: *mut sys::iree_hal_buffer_t,
        shape: &[usize],
    ) -> Result<Self, Error> {
        let dims: Vec<sys::iree_hal_dim_t> = shape.iter().map(|&dim| dim as _).collect();
        let mut view = ptr::null_mut();
        // SAFETY: the buffer is alive and retained by the new view; `dims` outlives the call. IREE
        // checks that the shape fits the buffer.
        let status = unsafe {
            sys::iree_hal_buffer_view_create(
                buffer,
                dims.len() as _,
                dims.as_ptr(),
                sys::iree_hal_buffer_view_element_type(self.0.as_ptr()),
                sys::iree_hal_encoding_types_t_IREE_HAL_ENCODING_TYPE_DENSE_ROW_MAJOR as _,
                sys::iree_allocator_system(),
                &mut view,
            )
        };
        owned(check(status), view, "viewing a device tensor")
    }
}

/// Signless integers as compiled functions return them: integer class without sign, and bits.
const INT_8: u32 = sys::iree_hal_element_types_t_IREE_HAL_ELEMENT_TYPE_INT_8;
const INT_32: u32 = sys::iree_hal_element_types_t_IREE_HAL_ELEMENT_TYPE_INT_32;

/// IREE's number for an element type.
fn element_type(dtype: DType) -> u32 {
    match dtype {
        DType::Bool => sys::iree_hal_element_types_t_IREE_HAL_ELEMENT_TYPE_BOOL_8,
        DType::I32 => sys::iree_hal_element_types_t_IREE_HAL_ELEMENT_TYPE_SINT_32,
        DType::U32 => sys::iree_hal_element_types_t_IREE_HAL_ELEMENT_TYPE_UINT_32,
        DType::F16 => sys::iree_hal_element_types_t_IREE_HAL_ELEMENT_TYPE_FLOAT_16,
        DType::BF16 => sys::iree_hal_element_types_t_IREE_HAL_ELEMENT_TYPE_BFLOAT_16,
        DType::F32 => sys::iree_hal_element_types_t_IREE_HAL_ELEMENT_TYPE_FLOAT_32,
    }
}

fn owned(
    result: Result<(), String>,
    view: *mut sys::iree_hal_buffer_view_t,
    operation: &str,
) -> Result<DeviceTensor, Error> {
    let memory = |message| Error::Memory {
        operation: operation.to_string(),
        message,
    };
    result.map_err(memory)?;
    NonNull::new(view)
        .map(DeviceTensor)
        .ok_or_else(|| memory("the device returned none".to_string()))
}

fn forever() -> sys::iree_timeout_t {
    sys::iree_timeout_t {
        type_: sys::iree_timeout_type_e_IREE_TIMEOUT_ABSOLUTE,
        nanos: i64::MAX,
    }
}

/// Fails unless `[offset, offset + length)` lies in `tensor`.
fn bounded(tensor: &DeviceTensor, offset: usize, length: usize) -> Result<(), Error> {
    let size = tensor.byte_length();
    if offset.checked_add(length).is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(Error::Memory {
        operation: "transferring a part of a device tensor".to_string(),
        message: format!("bytes {offset} to +{length} of {size}"),
    })
}

impl Device {
    /// A tensor in device memory with the elements `bytes`.
    pub(crate) fn upload(
        &self,
        dtype: DType,
        shape: &[usize],
        bytes: &[u8],
    ) -> Result<DeviceTensor, Error> {
        let operation = "copying a tensor to the device";
        let expected = shape
            .iter()
            .try_fold(dtype.size(), |size, &dim| size.checked_mul(dim));
        if expected != Some(bytes.len()) {
            return Err(Error::Memory {
                operation: operation.to_string(),
                message: format!("{} bytes do not fill {dtype}{shape:?}", bytes.len()),
            });
        }
        let dims: Vec<sys::iree_hal_dim_t> = shape.iter().map(|&dim| dim as _).collect();
        let params = sys::iree_hal_buffer_params_t {
            type_: sys::iree_hal_memory_type_bits_t_IREE_HAL_MEMORY_TYPE_DEVICE_LOCAL as _,
            usage: sys::iree_hal_buffer_usage_bits_t_IREE_HAL_BUFFER_USAGE_DEFAULT as _,
            ..Default::default()
        };
        let mut view = ptr::null_mut();
        // SAFETY: device, dims and bytes are alive during the call, which copies them.
        let status = unsafe {
            sys::iree_hal_buffer_view_allocate_buffer_copy(
                self.raw(),
                sys::iree_hal_device_allocator(self.raw()),
                dims.len() as _,
                dims.as_ptr(),
                element_type(dtype),
                sys::iree_hal_encoding_types_t_IREE_HAL_ENCODING_TYPE_DENSE_ROW_MAJOR as _,
                params,
                sys::iree_const_byte_span_t {
                    data: bytes.as_ptr(),
                    data_length: bytes.len() as _,
                },
                &mut view,
            )
        };
        owned(check(status), view, operation)
    }

    /// Copies `target.len()` bytes at `offset` of a tensor to the host.
    pub(crate) fn read(
        &self,
        tensor: &DeviceTensor,
        offset: usize,
        target: &mut [u8],
    ) -> Result<(), Error> {
        bounded(tensor, offset, target.len())?;
        // SAFETY: the range lies in the buffer and `target` is writable for its length.
        let status = unsafe {
            sys::iree_hal_device_transfer_d2h(
                self.raw(),
                tensor.buffer(),
                offset as _,
                target.as_mut_ptr().cast(),
                target.len() as _,
                0,
                forever(),
            )
        };
        check(status).map_err(|message| Error::Memory {
            operation: "copying a tensor from the device".to_string(),
            message,
        })
    }

    /// Copies `source` to `offset` of a tensor.
    pub(crate) fn write(
        &self,
        source: &[u8],
        tensor: &DeviceTensor,
        offset: usize,
    ) -> Result<(), Error> {
        bounded(tensor, offset, source.len())?;
        // SAFETY: the range lies in the buffer and `source` is readable for its length.
        let status = unsafe {
            sys::iree_hal_device_transfer_h2d(
                self.raw(),
                source.as_ptr().cast(),
                tensor.buffer(),
                offset as _,
                source.len() as _,
                0,
                forever(),
            )
        };
        check(status).map_err(|message| Error::Memory {
            operation: "copying to a tensor on the device".to_string(),
            message,
        })
    }

    /// Copies `length` bytes from an offset of one tensor to an offset of another.
    pub(crate) fn copy(
        &self,
        (source, from): (&DeviceTensor, usize),
        (target, to): (&DeviceTensor, usize),
        length: usize,
    ) -> Result<(), Error> {
        bounded(source, from, length)?;
        bounded(target, to, length)?;
        // SAFETY: the ranges lie in the two buffers.
        let status = unsafe {
            sys::iree_hal_device_transfer_d2d(
                self.raw(),
                source.buffer(),
                from as _,
                target.buffer(),
                to as _,
                length as _,
                0,
                forever(),
            )
        };
        check(status).map_err(|message| Error::Memory {
            operation: "copying a tensor on the device".to_string(),
            message,
        })
    }

    /// The tensor in host memory.
    pub(crate) fn download(&self, tensor: &DeviceTensor) -> Result<HostTensor, Error> {
        let shape = tensor.shape();
        let dtype = tensor.dtype().ok_or_else(|| Error::Memory {
            operation: "copying a tensor from the device".to_string(),
            message: "its element type has no name in the graph".to_string(),
        })?;
        let elements: usize = shape.iter().product();
        let mut bytes = vec![0; elements * dtype.size()];
        self.read(tensor, 0, &mut bytes)?;
        Ok(HostTensor {
            dtype,
            shape,
            bytes,
        })
    }
}
