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
    /// Calls of kernels.
    pub(crate) kernels: usize,
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
    let mut calls = 0;
    if let Some(kernels) = kernels {
        calls = kernels.calls();
        kernels
            .declare(context, &module)
            .map_err(|reason| whole("the kernels", reason))?;
    }
    Ok(Emitted {
        module,
        parameters: globals.names(),
        kernels: calls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Target, library, session::Session};
    use melior::ir::operation::OperationLike;
    use mlxcel_ir::*;

    fn check(name: &str, rows: usize, build: fn(&mut Builder, ValueId) -> ValueId) {
        let mut builder = Builder::new(name);
        let x = builder.input(
            "x",
            TensorType::new(DType::F32, [Dim::Symbol(Symbol::T), 64.into()]),
        );
        let value = build(&mut builder, x);
        builder.output("out", value);
        let spec = FunctionSpec {
            name: name.into(),
            graph: builder.finish(),
            bindings: Bindings::new().with(Symbol::T, rows),
        };
        let session = Session::open(&library::find().unwrap(), &Target::host().flags()).unwrap();
        let emitted = module(session.context(), &[spec], None, false).unwrap();
        assert!(emitted.module.as_operation().verify());
        insta::assert_snapshot!(name, emitted.module.as_operation());
    }

    fn weight(builder: &mut Builder) -> WeightId {
        builder.weight(WeightDecl {
            name: "layers.0.q".into(),
            shape: vec![32, 64],
            format: WeightFormat::Affine {
                bits: 4,
                group: 32,
                scale: DType::BF16,
            },
        })
    }

    #[test]
    fn one_row_times_codes_is_multiply_and_reduce() {
        check("linear_one", 1, |b, x| {
            let weight = weight(b);
            b.linear(x, weight, None).unwrap()
        });
    }

    #[test]
    fn many_rows_times_codes_are_a_dot_product() {
        check("linear_many", 4, |b, x| {
            let weight = weight(b);
            b.linear(x, weight, None).unwrap()
        });
    }

    #[test]
    fn composites_are_decomposed() {
        check("activate", 2, |b, x| {
            b.activate(x, Activation::Silu).unwrap()
        });
    }

    #[test]
    fn what_cannot_be_expressed_is_named() {
        let mut builder = Builder::new("odd");
        let weight = builder.weight(WeightDecl {
            name: "w".into(),
            shape: vec![32, 64],
            format: WeightFormat::Affine {
                bits: 4,
                group: 4,
                scale: DType::F32,
            },
        });
        let value = builder.parameter(weight).unwrap();
        builder.name(value, "first");
        builder.output("out", value);
        let spec = FunctionSpec {
            name: "odd".into(),
            graph: builder.finish(),
            bindings: Bindings::new(),
        };
        let session = Session::open(&library::find().unwrap(), &Target::host().flags()).unwrap();
        let error = module(session.context(), &[spec], None, false)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("`odd`, first: the weight `w` has 64 numbers in a row and groups of 4"),
            "{error}"
        );
    }
}
