//! Own kernels as operations of MLX, on the CPU.
//!
//! Kernels that follow one another are one operation of MLX, a [`Segment`]: scheduling an operation
//! costs MLX several microseconds, as much as a small kernel. A segment runs on the stream's thread
//! and shares each kernel's work with the threads of a pool. What it fails with is reported when its
//! results are evaluated, with the node's name.

mod attention;
mod body;
mod cache;
mod fuse;
mod join;
mod linear;
mod memory;
mod planner;
mod rows;
mod segment;
mod slots;

pub(crate) use cache::HostCache;
pub(crate) use memory::HostMemory;
pub(crate) use planner::{Planned, plan};
pub(crate) use segment::Segment;

use crate::fail::Fail;
use crate::machine::Machine;
use std::sync::Arc;

/// The body of a kernel. Operands and results are elements of 32 bits; [`body::integers`] reads
/// them as integers.
pub(crate) trait Compute: Send + Sync {
    /// Computes `outputs` from `inputs`.
    fn run(&self, inputs: &[&[f32]], outputs: &mut [&mut [f32]]) -> Result<(), Fail>;
}

/// A kernel with everything resolved that does not depend on a call.
pub(crate) trait Step: Send + Sync {
    /// The kernel for one call.
    fn prepare(&self, machine: &Machine<'_>) -> Result<Arc<dyn Compute>, Fail>;
}

/// A kernel that depends on nothing but its operands.
pub(crate) struct Fixed(Arc<dyn Compute>);

impl Step for Fixed {
    fn prepare(&self, _: &Machine<'_>) -> Result<Arc<dyn Compute>, Fail> {
        Ok(self.0.clone())
    }
}

/// A kernel of the plan, by the values that it reads and makes.
pub(crate) struct KernelStep {
    /// The node whose place in the order it has.
    pub(crate) node: usize,
    pub(crate) operands: Vec<usize>,
    pub(crate) results: Vec<usize>,
    /// `None` for a step whose result is its operand in another shape.
    pub(crate) kernel: Option<Box<dyn Step>>,
}
