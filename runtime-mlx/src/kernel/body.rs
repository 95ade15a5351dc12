//! Closures as kernels of MLX.

use crate::fail::Fail;
use mlxcel_mlx_sys::custom::{Input, Kernel, Output};
use std::sync::Arc;

struct Body<F> {
    label: Arc<str>,
    run: F,
}

impl<F> Kernel for Body<F>
where
    F: Fn(&[Input<'_>], &mut [Output<'_>]) -> Result<(), Fail> + Send + Sync,
{
    fn run(&self, inputs: &[Input<'_>], outputs: &mut [Output<'_>]) -> Result<(), String> {
        (self.run)(inputs, outputs).map_err(|Fail(reason)| format!("{}: {reason}", self.label))
    }
}

/// A kernel that runs `run`, whose errors begin with `label`.
pub(super) fn kernel<F>(label: Arc<str>, run: F) -> Arc<dyn Kernel>
where
    F: Fn(&[Input<'_>], &mut [Output<'_>]) -> Result<(), Fail> + Send + Sync + 'static,
{
    Arc::new(Body { label, run })
}

/// The f32 elements of input `index`.
pub(super) fn floats<'a>(inputs: &[Input<'a>], index: usize) -> Result<&'a [f32], Fail> {
    Ok(element(inputs, index)?.elements::<f32>()?)
}

/// The i32 elements of input `index`.
pub(super) fn integers<'a>(inputs: &[Input<'a>], index: usize) -> Result<&'a [i32], Fail> {
    Ok(element(inputs, index)?.elements::<i32>()?)
}

fn element<'a, 'b>(inputs: &'b [Input<'a>], index: usize) -> Result<&'b Input<'a>, Fail> {
    inputs
        .get(index)
        .ok_or_else(|| Fail(format!("operand {index} is missing")))
}

/// The f32 elements of the only output.
pub(super) fn only<'a>(outputs: &'a mut [Output<'_>]) -> Result<&'a mut [f32], Fail> {
    match outputs {
        [output] => Ok(output.elements::<f32>()?),
        outputs => Err(Fail(format!("{} results where one is made", outputs.len()))),
    }
}
