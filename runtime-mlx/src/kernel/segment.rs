//! Kernels that run one after another as one operation of MLX.
//!
//! Values that only the segment's kernels see lie in slots, which are shared by values that do not
//! live at the same time and are kept between calls. Values that others see are written straight
//! into MLX's memory.

use super::slots::{self, Slots};
use super::{Compute, KernelStep, Step};
use crate::fail::Fail;
use crate::machine::Machine;
use crate::plan::Plan;
use mlxcel_ir::{Graph, ValueId};
use mlxcel_mlx_sys::custom::{self, custom};
use mlxcel_mlx_sys::{Array, Dtype};
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

/// Where a kernel finds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Operand of the segment.
    Input(usize),
    /// One of the slots; those of exported values come first.
    Slot(usize),
}

pub(super) struct Inner {
    pub(super) kernel: Box<dyn Step>,
    /// Where its operands are, and their values.
    pub(super) reads: Box<[(Place, usize)]>,
    /// Slots that it writes, and the value in each.
    pub(super) writes: Box<[(usize, usize)]>,
}

/// What a run needs of the plan; shared with the operations that are on their way.
struct Layout {
    inner: Vec<Inner>,
    slots: usize,
    /// Memory of slots between calls.
    scratch: Mutex<Vec<Vec<Vec<f32>>>>,
}

/// Kernels that run as one operation.
pub(crate) struct Segment {
    /// Values that it reads.
    pub(crate) inputs: Vec<usize>,
    /// Values that it makes for others.
    pub(crate) exports: Vec<usize>,
    layout: Arc<Layout>,
}

impl Segment {
    /// Lays out `steps`, of whose results others see those that are `exported`.
    pub(crate) fn new(steps: Vec<KernelStep>, exported: impl Fn(usize) -> bool) -> Self {
        let Slots {
            inputs,
            exports,
            inner,
            slots,
        } = slots::allocate(steps, exported);
        Self {
            inputs,
            exports,
            layout: Arc::new(Layout {
                inner,
                slots,
                scratch: Mutex::default(),
            }),
        }
    }

    /// Records the segment's operation and stores its results in the machine.
    pub(crate) fn record(&self, plan: &Plan, machine: &mut Machine<'_>) -> Result<(), Fail> {
        let mut sizes = vec![0; self.layout.slots];
        let mut bodies = Vec::with_capacity(self.layout.inner.len());
        for inner in &self.layout.inner {
            let count = |value: usize| elements(&plan.graph, machine, value);
            let reads = inner.reads.iter().map(|&(_, value)| count(value));
            let writes = inner.writes.iter().map(|&(_, value)| count(value));
            let body = Body {
                kernel: inner.kernel.prepare(machine)?,
                reads: reads.collect::<Result<_, _>>()?,
                writes: writes.collect::<Result<_, _>>()?,
            };
            for (&(slot, _), &count) in inner.writes.iter().zip(&body.writes) {
                sizes[slot] = sizes[slot].max(count);
            }
            bodies.push(body);
        }
        let mut shapes: Vec<(Vec<i32>, Dtype)> = Vec::with_capacity(self.exports.len());
        for &export in &self.exports {
            let ty = plan.graph.ty(ValueId(export as u32));
            let ty = ty.ok_or("a result without a type")?;
            shapes.push((machine.shape(ty)?, crate::weight::dtype(ty.dtype)));
        }
        let outputs: Vec<(&[i32], Dtype)> = shapes
            .iter()
            .map(|(shape, dtype)| (shape.as_slice(), *dtype))
            .collect();
        let operands: Vec<&Array> = self
            .inputs
            .iter()
            .map(|&input| machine.value(input))
            .collect::<Result<_, _>>()?;
        let call = Arc::new(Call {
            layout: self.layout.clone(),
            bodies,
            sizes,
        });
        let results = custom("kernels", call, operands, &outputs, machine.stream)?;
        for (&export, result) in self.exports.iter().zip(results) {
            machine.values[export] = Some(result);
        }
        Ok(())
    }
}

fn elements(graph: &Graph, machine: &Machine<'_>, value: usize) -> Result<usize, Fail> {
    let ty = graph.ty(ValueId(value as u32));
    let ty = ty.ok_or("a result without a type")?;
    let mut product = 1usize;
    for &dim in &ty.shape {
        let size = machine.bindings.apply(dim).fixed();
        let size = size.ok_or_else(|| Fail(format!("the symbol {dim} is not bound")))?;
        product = product.checked_mul(size).ok_or("a tensor is too large")?;
    }
    Ok(product)
}

/// One call of a segment.
struct Call {
    layout: Arc<Layout>,
    bodies: Vec<Body>,
    /// Elements of each slot.
    sizes: Vec<usize>,
}

/// An inner step of a call.
struct Body {
    kernel: Arc<dyn Compute>,
    /// Elements of its operands.
    reads: Vec<usize>,
    /// Elements of its results.
    writes: Vec<usize>,
}

/// The memory of a slot.
enum Buffer<'a> {
    Own(Vec<f32>),
    Export(&'a mut [f32]),
}

impl Default for Buffer<'_> {
    fn default() -> Self {
        Buffer::Own(Vec::new())
    }
}

impl Buffer<'_> {
    fn get(&self) -> &[f32] {
        match self {
            Buffer::Own(buffer) => buffer,
            Buffer::Export(buffer) => buffer,
        }
    }

    fn get_mut(&mut self) -> &mut [f32] {
        match self {
            Buffer::Own(buffer) => buffer,
            Buffer::Export(buffer) => buffer,
        }
    }
}

impl custom::Kernel for Call {
    fn run(
        &self,
        inputs: &[custom::Input<'_>],
        outputs: &mut [custom::Output<'_>],
    ) -> Result<(), String> {
        let inputs: Vec<&[f32]> = inputs.iter().map(words).collect::<Result<_, String>>()?;
        let exports: Vec<&mut [f32]> = outputs
            .iter_mut()
            .map(words_mut)
            .collect::<Result<_, String>>()?;
        let scratch = &self.layout.scratch;
        let kept = scratch
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_default();
        let mut buffers: Vec<Buffer<'_>> = exports.into_iter().map(Buffer::Export).collect();
        let own = buffers.len();
        buffers.extend(kept.into_iter().map(Buffer::Own));
        buffers.resize_with(self.layout.slots.max(own), Buffer::default);
        for (buffer, &size) in buffers.iter_mut().zip(&self.sizes) {
            if let Buffer::Own(buffer) = buffer
                && buffer.len() < size
            {
                buffer.resize(size, 0.0);
            }
        }
        let outcome = self.execute(&inputs, &mut buffers);
        let kept = buffers.into_iter().skip(own).map(|buffer| match buffer {
            Buffer::Own(buffer) => buffer,
            Buffer::Export(_) => Vec::new(),
        });
        scratch
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(kept.collect());
        outcome.map_err(|Fail(reason)| reason)
    }
}

impl Call {
    fn execute(&self, inputs: &[&[f32]], buffers: &mut [Buffer<'_>]) -> Result<(), Fail> {
        for (inner, body) in self.layout.inner.iter().zip(&self.bodies) {
            // A kernel never writes to a slot that it reads, so its results can be lifted out.
            let mut lifted: Vec<Buffer<'_>> = inner
                .writes
                .iter()
                .map(|&(slot, _)| take(&mut buffers[slot]))
                .collect();
            let outcome = body.run(inner, inputs, buffers, &mut lifted);
            for (&(slot, _), buffer) in inner.writes.iter().zip(lifted) {
                buffers[slot] = buffer;
            }
            outcome?;
        }
        Ok(())
    }
}

impl Body {
    fn run(
        &self,
        inner: &Inner,
        inputs: &[&[f32]],
        buffers: &[Buffer<'_>],
        results: &mut [Buffer<'_>],
    ) -> Result<(), Fail> {
        let mut reads: Vec<&[f32]> = Vec::with_capacity(self.reads.len());
        for (&(place, value), &count) in inner.reads.iter().zip(&self.reads) {
            let found = match place {
                Place::Input(index) => inputs.get(index).copied(),
                Place::Slot(slot) => buffers.get(slot).map(Buffer::get),
            };
            let elements = found.and_then(|found| found.get(..count));
            reads.push(elements.ok_or_else(|| Fail(format!("%{value} has no elements")))?);
        }
        let mut writes: Vec<&mut [f32]> = Vec::with_capacity(results.len());
        for (buffer, &count) in results.iter_mut().zip(&self.writes) {
            let elements = buffer.get_mut().get_mut(..count);
            writes.push(elements.ok_or("a result is larger than its memory")?);
        }
        self.kernel.run(&reads, &mut writes)
    }
}

/// The elements of a tensor of 32-bit elements.
fn words<'a>(input: &custom::Input<'a>) -> Result<&'a [f32], String> {
    input
        .elements::<f32>()
        .or_else(|_| Ok(bytemuck::cast_slice(input.elements::<i32>()?)))
}

fn words_mut<'a>(output: &'a mut custom::Output<'_>) -> Result<&'a mut [f32], String> {
    match output.dtype() {
        Dtype::F32 => output.elements::<f32>(),
        _ => Ok(bytemuck::cast_slice_mut(output.elements::<i32>()?)),
    }
}
