//! A module: functions that share weights.

use super::function;
use super::weight::Globals;
use crate::{CompileError, FunctionSpec};
use melior::Context;
use melior::ir::{Location, Module};

/// A module and the parameters that it reads.
pub(crate) struct Emitted<'c> {
    pub(crate) module: Module<'c>,
    pub(crate) parameters: Vec<String>,
}

/// The functions as one module of StableHLO.
pub(crate) fn module<'c>(
    context: &'c Context,
    functions: &[FunctionSpec],
) -> Result<Emitted<'c>, CompileError> {
    let module = Module::new(Location::unknown(context));
    let mut globals = Globals::default();
    for function in functions {
        function::add(context, &module, &mut globals, function)?;
    }
    globals
        .declare(context, &module)
        .map_err(|reason| CompileError::Emit {
            function: "all".into(),
            node: "the weights".into(),
            reason,
        })?;
    Ok(Emitted {
        module,
        parameters: globals.names(),
    })
}
