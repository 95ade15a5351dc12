//! A module: functions that share weights.

use super::function;
use super::kernel::{Kernels, Shared};
use crate::capacity::most_tokens;
use crate::targets::KernelOwner;
use crate::{CompileError, FunctionSpec};
use melior::Context;
use melior::ir::{Location, Module};

/// A module and the parameters that it reads.
pub(crate) struct Emitted<'c> {
    pub(crate) module: Module<'c>,
    pub(crate) parameters: Vec<String>,
    /// The kernels that are called, if not all code is the compiler's.
    pub(crate) kernels: Option<Kernels>,
}

/// The functions as one module of StableHLO. Pieces that `owner` has kernels for are calls of these; if
/// `rotate`, caches that are read through windows rotate.
pub(crate) fn module<'c>(
    context: &'c Context,
    functions: &[FunctionSpec],
    owner: Option<KernelOwner>,
    rotate: bool,
) -> Result<Emitted<'c>, CompileError> {
    let module = Module::new(Location::unknown(context));
    let mut shared = Shared {
        kernels: owner.map(Kernels::new),
        ..Shared::default()
    };
    let most = rotate.then(|| most_tokens(functions));
    for function in functions {
        function::add(context, &module, &mut shared, function, most)?;
    }
    let whole = |node: &str, reason| CompileError::Emit {
        function: "all".into(),
        node: node.into(),
        reason,
    };
    let Shared { globals, kernels } = shared;
    globals
        .declare(context, &module)
        .map_err(|reason| whole("the weights", reason))?;
    if let Some(kernels) = &kernels {
        kernels
            .declare(context, &module)
            .map_err(|reason| whole("the kernels", reason))?;
    }
    Ok(Emitted {
        module,
        parameters: globals.names(),
        kernels,
    })
}
