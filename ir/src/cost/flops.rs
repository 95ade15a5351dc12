//! Floating-point operations of each op.

use super::{Sizes, Unbound};
use crate::{Activation, Dim, Node, Op, Symbol, TensorType};

/// The floating-point operations of `node`.
pub(super) fn flops(sizes: &Sizes<'_>, node: &Node) -> Result<u64, Unbound> {
    let result = sizes.elements(&node.ty)?;
    let operand = sizes.value(node.operands.first())?;
    let elements = operand.iter().copied().fold(1, u64::saturating_mul);
    Ok(match &node.op {
        Op::Parameter {}
        | Op::Constant { .. }
        | Op::Table { .. }
        | Op::Iota { .. }
        | Op::Convert { .. }
        | Op::And {}
        | Op::Or {}
        | Op::Not {}
        | Op::Select {}
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Broadcast { .. }
        | Op::Slice { .. }
        | Op::Concatenate { .. }
        | Op::Gather {}
        | Op::TakeRow {}
        | Op::TakeAlong {}
        | Op::CacheAppend { .. }
        | Op::Embedding {} => 0,
        Op::Negate {}
        | Op::Abs {}
        | Op::Exp {}
        | Op::Log {}
        | Op::Log1p {}
        | Op::Rsqrt {}
        | Op::Sqrt {}
        | Op::Sin {}
        | Op::Cos {}
        | Op::Tanh {}
        | Op::Sigmoid {}
        | Op::Erf {}
        | Op::Add {}
        | Op::Subtract {}
        | Op::Multiply {}
        | Op::Divide {}
        | Op::Maximum {}
        | Op::Minimum {}
        | Op::Power {}
        | Op::Compare { .. } => result,
        Op::Reduce { .. } | Op::Argmax {} | Op::TopK { .. } => elements,
        Op::Dot { lhs_contract, .. } => {
            let length = |&dim: &usize| operand.get(dim).copied().unwrap_or(0);
            let length = lhs_contract.iter().map(length).fold(1, u64::saturating_mul);
            result.saturating_mul(length).saturating_mul(2)
        }
        Op::CausalConvolution {} => {
            let weight = node.weights.first().and_then(|&w| sizes.graph.weight(w));
            let width = weight.and_then(|w| w.shape.last().copied()).unwrap_or(0) as u64;
            let biases = if node.weights.len() > 1 { 1 } else { 0 };
            result.saturating_mul(width.saturating_mul(2).saturating_add(biases))
        }
        // Decay, update and read; to erase reads and updates once more.
        Op::Recurrence {} => recurrence(&operand, result, 5),
        Op::DeltaRecurrence {} => recurrence(&operand, result, 9),
        Op::Linear {} | Op::ExpertLinear {} => {
            let length = operand.last().copied().unwrap_or(0);
            let biases = if node.weights.len() > 1 { result } else { 0 };
            let products = result.saturating_mul(length).saturating_mul(2);
            products.saturating_add(biases)
        }
        // Square, sum, scale, weigh.
        Op::RmsNorm { .. } => elements.saturating_mul(4),
        // The same after a sum and a difference, and a bias.
        Op::LayerNorm { .. } => elements.saturating_mul(7),
        Op::MutualAttention { .. } => {
            let [rows, tokens, heads, key] = operand[..] else {
                return Ok(0);
            };
            let value = sizes.dims(&node.ty)?.last().copied().unwrap_or(0);
            let each = key.saturating_add(value).saturating_mul(2);
            [
                rows,
                tokens,
                tokens,
                heads,
                each.saturating_add(SOFTMAX + 1),
            ]
            .into_iter()
            .fold(1, u64::saturating_mul)
        }
        // Each element of a pair is two products and a sum; the angles are shared by all heads.
        Op::Rope { dims, .. } => {
            let width = operand.last().copied().unwrap_or(0).max(1);
            (elements / width)
                .saturating_mul(*dims as u64)
                .saturating_mul(3)
        }
        Op::Attention {
            window, softcap, ..
        } => {
            let (rows, tokens, positions) = attended(sizes, node, *window)?;
            let heads = operand.get(2).copied().unwrap_or(0);
            let key = operand.get(3).copied().unwrap_or(0);
            let value = sizes.dims(&node.ty)?.last().copied().unwrap_or(0);
            let scores = [rows, tokens, heads, positions]
                .into_iter()
                .fold(1, u64::saturating_mul);
            // Products and sums of both contractions; scale and softmax; divide, tanh, multiply.
            let each = key.saturating_add(value).saturating_mul(2);
            let each = each.saturating_add(SOFTMAX + 1 + if softcap.is_some() { 3 } else { 0 });
            scores.saturating_mul(each)
        }
        Op::Activate { activation } => result.saturating_mul(activate(*activation)),
        Op::Gated { activation } => result.saturating_mul(activate(*activation) + 1),
        Op::Softmax {} => result.saturating_mul(SOFTMAX),
    })
}

/// Largest, subtract, exponential, sum, divide.
const SOFTMAX: u64 = 5;

/// Operations of a recurrence, `each` for each number of the memory and token.
fn recurrence(query: &[u64], result: u64, each: u64) -> u64 {
    let keys = query.last().copied().unwrap_or(0);
    result.saturating_mul(keys).saturating_mul(each)
}

fn activate(activation: Activation) -> u64 {
    match activation {
        Activation::Relu | Activation::Tanh | Activation::Sigmoid => 1,
        Activation::Silu | Activation::Relu2 => 2,
        Activation::QuickGelu => 3,
        Activation::Gelu => 5,
        Activation::Softplus => 6,
        Activation::GeluTanh => 8,
    }
}

/// Rows, new tokens, and cached positions that a query of an attention node reads: the capacity, or
/// what the windows of the new tokens cover together.
pub(super) fn attended(
    sizes: &Sizes<'_>,
    node: &Node,
    window: Option<usize>,
) -> Result<(u64, u64, u64), Unbound> {
    let q = sizes.value(node.operands.first())?;
    let rows = q.first().copied().unwrap_or(0);
    let tokens = q.get(1).copied().unwrap_or(0);
    let capacity = TensorType::new(crate::DType::Bool, [Dim::Symbol(Symbol::S)]);
    let capacity = sizes.elements(&capacity)?;
    let positions = match window {
        Some(window) => capacity.min((window as u64).saturating_add(tokens.saturating_sub(1))),
        None => capacity,
    };
    Ok((rows, tokens, positions))
}
