//! Own kernels as operations of MLX, on the CPU.
//!
//! A kernel runs on the stream's thread and shares its work with the threads of a pool. What it
//! fails with is reported when its results are evaluated, with the node's name.

mod attention;
mod body;
mod cache;
mod linear;
mod planner;
mod rows;

pub(crate) use cache::HostCache;
pub(crate) use planner::{Planned, plan};

use crate::fail::Fail;
use crate::machine::Machine;
use crate::plan::{self, Plan};
use mlxcel_ir::ValueId;
use mlxcel_mlx_sys::custom::{self, custom};
use mlxcel_mlx_sys::{Array, Dtype};
use std::sync::Arc;

/// A kernel with everything resolved that does not depend on a call.
pub(crate) trait Step: Send + Sync {
    /// Records the kernel's operation and stores its results in the machine.
    fn record(&self, plan: &Plan, step: &plan::Step, machine: &mut Machine<'_>)
    -> Result<(), Fail>;
}

/// A kernel that depends on nothing but its operands.
pub(crate) struct Fixed {
    /// For MLX's own messages.
    pub(crate) name: &'static str,
    pub(crate) kernel: Arc<dyn custom::Kernel>,
}

impl Step for Fixed {
    fn record(
        &self,
        plan: &Plan,
        step: &plan::Step,
        machine: &mut Machine<'_>,
    ) -> Result<(), Fail> {
        apply(self.name, self.kernel.clone(), plan, step, machine)
    }
}

/// Records `kernel` from the step's operands to its results.
fn apply(
    name: &'static str,
    kernel: Arc<dyn custom::Kernel>,
    plan: &Plan,
    step: &plan::Step,
    machine: &mut Machine<'_>,
) -> Result<(), Fail> {
    let mut shapes: Vec<(Vec<i32>, Dtype)> = Vec::with_capacity(step.results.len());
    for &result in &step.results {
        let ty = plan
            .graph
            .ty(ValueId(result as u32))
            .ok_or("a result without a type")?;
        shapes.push((machine.shape(ty)?, crate::weight::dtype(ty.dtype)));
    }
    let outputs: Vec<(&[i32], Dtype)> = shapes
        .iter()
        .map(|(shape, dtype)| (shape.as_slice(), *dtype))
        .collect();
    let operands: Vec<&Array> = step
        .operands
        .iter()
        .map(|&operand| machine.value(operand))
        .collect::<Result<_, _>>()?;
    let results = custom(name, kernel, operands, &outputs, machine.stream)?;
    for (&index, result) in step.results.iter().zip(results) {
        machine.values[index] = Some(result);
    }
    Ok(())
}
