//! The rules that give an op's result type, and the constraints on its operands.
//!
//! One function per kind of op, named in the op table. A rule reads its [`Site`] and returns either
//! the type or the constraint that is broken, as a sentence that names the operand. Element types
//! of floats are free (f16, bf16, f32) but must agree, unless a rule says otherwise; sizes must be
//! equal as dimensions, so a symbol equals only itself.

macro_rules! attributes {
    ($op:expr, $variant:ident { $($attribute:ident),* }) => {
        let Op::$variant { $($attribute,)* .. } = $op else {
            return Err(concat!("not an op `", stringify!($variant), "`").into());
        };
    };
}

mod composite;
mod primitive;
mod state;

pub(crate) use composite::*;
pub(crate) use primitive::*;
pub(crate) use state::*;

use crate::graph::{Graph, StateDecl};
use crate::{
    DType, Dim, Op, StateId, StateKind, StatePart, Symbol, TensorType, ValueId, WeightDecl,
    WeightId,
};

/// What an op is applied to.
#[derive(Debug)]
pub struct Site<'a> {
    /// Types of the tensor operands.
    pub operands: Vec<&'a TensorType>,
    /// Declarations of the weights.
    pub weights: Vec<&'a WeightDecl>,
    /// Declaration of the state.
    pub state: Option<&'a StateDecl>,
}

type Inferred = Result<TensorType, String>;

impl<'a> Site<'a> {
    /// Looks the arguments of a node up in its graph, checking their number.
    ///
    /// # Errors
    /// An argument too few or too many, or one that the graph does not have.
    pub fn of(
        graph: &'a Graph,
        op: &Op,
        operands: &[ValueId],
        weights: &[WeightId],
        state: Option<StateId>,
    ) -> Result<Self, String> {
        let info = op.info();
        if operands.len() != info.operands.len() {
            return Err(format!(
                "takes {} operands ({}), got {}",
                info.operands.len(),
                info.operands.join(", "),
                operands.len()
            ));
        }
        let required = info
            .weights
            .iter()
            .filter(|(_, optional)| !optional)
            .count();
        if weights.len() < required || weights.len() > info.weights.len() {
            return Err(format!(
                "takes {required} to {} weights, got {}",
                info.weights.len(),
                weights.len()
            ));
        }
        if state.is_some() != info.state {
            return Err(match info.state {
                true => "needs a state".into(),
                false => "takes no state".into(),
            });
        }
        Ok(Site {
            operands: operands
                .iter()
                .map(|&value| {
                    graph
                        .ty(value)
                        .ok_or_else(|| format!("no value %{}", value.0))
                })
                .collect::<Result<_, _>>()?,
            weights: weights
                .iter()
                .map(|&weight| {
                    graph
                        .weight(weight)
                        .ok_or_else(|| format!("no weight {}", weight.0))
                })
                .collect::<Result<_, _>>()?,
            state: state
                .map(|state| {
                    graph
                        .state(state)
                        .ok_or_else(|| format!("no state {}", state.0))
                })
                .transpose()?,
        })
    }
}

fn require(condition: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(message()) }
}

fn require_rank(name: &str, ty: &TensorType, rank: usize) -> Result<(), String> {
    require(ty.rank() == rank, || {
        format!("`{name}` must have {rank} dimensions, is {ty}")
    })
}

fn require_float(name: &str, ty: &TensorType) -> Result<(), String> {
    require(ty.dtype.is_float(), || {
        format!("`{name}` must be of a floating-point type, is {ty}")
    })
}

fn require_dim(name: &str, ty: &TensorType, dim: usize) -> Result<(), String> {
    require(dim < ty.rank(), || {
        format!("`{name}` has no dimension {dim}, is {ty}")
    })
}

fn require_vector(name: &str, ty: &TensorType, dtype: DType, size: Dim) -> Result<(), String> {
    require(ty.dtype == dtype && ty.shape == [size], || {
        format!("`{name}` must be {dtype}[{size}], is {ty}")
    })
}

fn require_positive(name: &str, value: f64) -> Result<(), String> {
    require(value.is_finite() && value > 0.0, || {
        format!("`{name}` must be positive and finite, is {value}")
    })
}

fn elements(shape: &[Dim]) -> (Option<usize>, [usize; Symbol::ALL.len()]) {
    let mut symbols = [0; Symbol::ALL.len()];
    let mut product = Some(1usize);
    for &dim in shape {
        match dim {
            Dim::Fixed(size) => product = product.and_then(|product| product.checked_mul(size)),
            Dim::Symbol(symbol) => symbols[symbol as usize] += 1,
        }
    }
    (product, symbols)
}
