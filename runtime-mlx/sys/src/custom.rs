//! Rust code as an operation of MLX, on the CPU.

use crate::array::list;
use crate::bridge::ffi::{self, Dtype, RawView};
use crate::{Array, Error, Stream};
use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The body of an operation. It runs on the stream's thread, once per evaluation.
pub trait Kernel: Send + Sync {
    /// Computes `outputs` from `inputs`; all are row-major.
    ///
    /// # Errors
    /// What is wrong, in words. The evaluation then fails with it.
    fn run(&self, inputs: &[Input<'_>], outputs: &mut [Output<'_>]) -> Result<(), String>;
}

/// A tensor that a kernel reads.
pub struct Input<'a>(RawView, PhantomData<&'a ()>);

/// A tensor that a kernel writes; its elements are not initialised by MLX but by a former use.
pub struct Output<'a>(RawView, PhantomData<&'a mut ()>);

/// An element type as Rust knows it.
pub trait Element: Copy + 'static + sealed::Sealed {
    /// The same as MLX knows it.
    const DTYPE: Dtype;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for i32 {}
    impl Sealed for u32 {}
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;
}
impl Element for i32 {
    const DTYPE: Dtype = Dtype::I32;
}
impl Element for u32 {
    const DTYPE: Dtype = Dtype::U32;
}

fn dimensions(view: &RawView) -> &[i32] {
    if view.rank == 0 {
        return &[];
    }
    // SAFETY: the shim points `shape` at `rank` numbers that live as long as the view.
    unsafe { std::slice::from_raw_parts(view.shape, view.rank) }
}

fn mismatch<T: Element>(view: &RawView) -> String {
    format!(
        "a tensor of {:?} where {:?} is wanted",
        view.dtype,
        T::DTYPE
    )
}

impl<'a> Input<'a> {
    /// The dimensions.
    pub fn shape(&self) -> &[i32] {
        dimensions(&self.0)
    }

    /// The elements.
    ///
    /// # Errors
    /// They are not of type `T`.
    pub fn elements<T: Element>(&self) -> Result<&'a [T], String> {
        if self.0.dtype != T::DTYPE {
            return Err(mismatch::<T>(&self.0));
        }
        if self.0.elements == 0 {
            return Ok(&[]);
        }
        // SAFETY: the shim points `data` at `elements` row-major elements of this type, which live
        // and stay unchanged while the kernel runs.
        Ok(unsafe { std::slice::from_raw_parts(self.0.data.cast(), self.0.elements) })
    }
}

impl Output<'_> {
    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    /// The dimensions.
    pub fn shape(&self) -> &[i32] {
        dimensions(&self.0)
    }

    /// The elements, to be written.
    ///
    /// # Errors
    /// They are not of type `T`.
    pub fn elements<T: Element>(&mut self) -> Result<&mut [T], String> {
        if self.0.dtype != T::DTYPE {
            return Err(mismatch::<T>(&self.0));
        }
        if self.0.elements == 0 {
            return Ok(&mut []);
        }
        // SAFETY: the shim points `data` at `elements` elements of memory that it allocated for this
        // output alone; every bit pattern is a number of the types that `Element` admits.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.data.cast(), self.0.elements) })
    }
}

/// A kernel as the shim holds it.
pub struct KernelBox(Arc<dyn Kernel>);

/// What the shim calls. A panic must not unwind into C++, so it becomes an error here.
pub(crate) fn run(
    kernel: &KernelBox,
    inputs: &[RawView],
    outputs: &[RawView],
) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| {
        let inputs: Vec<_> = inputs
            .iter()
            .map(|view| Input(*view, PhantomData))
            .collect();
        let mut outputs: Vec<_> = outputs
            .iter()
            .map(|view| Output(*view, PhantomData))
            .collect();
        kernel.0.run(&inputs, &mut outputs)
    }))
    .unwrap_or_else(|payload| Err(format!("a kernel panicked: {}", message(&*payload))))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// Records the operation `kernel`, which computes tensors of the given shapes and element types from
/// `inputs`. `name` is for MLX's own messages.
///
/// # Errors
/// What MLX says. What the kernel fails with, the evaluation of its results says.
pub fn custom<'a>(
    name: &str,
    kernel: Arc<dyn Kernel>,
    inputs: impl IntoIterator<Item = &'a Array>,
    outputs: &[(&[i32], Dtype)],
    stream: &Stream,
) -> Result<Vec<Array>, Error> {
    let shapes: Vec<i32> = outputs
        .iter()
        .flat_map(|(shape, _)| shape.iter().copied())
        .collect();
    let ranks: Vec<usize> = outputs.iter().map(|(shape, _)| shape.len()).collect();
    let dtypes: Vec<Dtype> = outputs.iter().map(|(_, dtype)| *dtype).collect();
    let kernel = Box::new(KernelBox(kernel));
    let inputs = list(inputs);
    let results = ffi::custom(
        name,
        kernel,
        &inputs,
        &shapes,
        &ranks,
        &dtypes,
        stream.raw(),
    )?;
    (0..ffi::length(&results))
        .map(|index| Ok(Array::new(ffi::get(&results, index)?)))
        .collect()
}
