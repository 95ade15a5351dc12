//! Closures as kernels.

use super::{Compute, Fixed};
use crate::fail::Fail;
use std::sync::Arc;

struct Body<F> {
    label: Arc<str>,
    run: F,
}

impl<F> Compute for Body<F>
where
    F: Fn(&[&[f32]], &mut [&mut [f32]]) -> Result<(), Fail> + Send + Sync,
{
    fn run(&self, inputs: &[&[f32]], outputs: &mut [&mut [f32]]) -> Result<(), Fail> {
        (self.run)(inputs, outputs)
            .map_err(|Fail(reason)| Fail(format!("{}: {reason}", self.label)))
    }
}

/// A kernel that runs `run`, whose errors begin with `label`.
pub(super) fn kernel<F>(label: Arc<str>, run: F) -> Arc<dyn Compute>
where
    F: Fn(&[&[f32]], &mut [&mut [f32]]) -> Result<(), Fail> + Send + Sync + 'static,
{
    Arc::new(Body { label, run })
}

/// The same for one that depends on nothing but its operands.
pub(super) fn fixed<F>(label: Arc<str>, run: F) -> Fixed
where
    F: Fn(&[&[f32]], &mut [&mut [f32]]) -> Result<(), Fail> + Send + Sync + 'static,
{
    Fixed(kernel(label, run))
}

/// Input `index`.
pub(super) fn floats<'a>(inputs: &[&'a [f32]], index: usize) -> Result<&'a [f32], Fail> {
    inputs
        .get(index)
        .copied()
        .ok_or_else(|| Fail(format!("operand {index} is missing")))
}

/// Input `index`, whose elements are i32.
pub(super) fn integers<'a>(inputs: &[&'a [f32]], index: usize) -> Result<&'a [i32], Fail> {
    Ok(bytemuck::cast_slice(floats(inputs, index)?))
}

/// The only output.
pub(super) fn only<'a>(outputs: &'a mut [&mut [f32]]) -> Result<&'a mut [f32], Fail> {
    match outputs {
        [output] => Ok(output),
        outputs => Err(Fail(format!("{} results where one is made", outputs.len()))),
    }
}
