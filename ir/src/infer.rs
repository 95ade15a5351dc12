//! The rules that give an op's result type, and the constraints on its operands.
//!
//! One function per kind of op, named in the op table. A rule reads its [`Site`] and returns either
//! the type or the constraint that is broken, as a sentence that names the operand. Element types
//! of floats are free (f16, bf16, f32) but must agree, unless a rule says otherwise; sizes must be
//! equal as dimensions, so a symbol equals only itself.

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

macro_rules! attributes {
    ($op:expr, $variant:ident { $($attribute:ident),* }) => {
        let Op::$variant { $($attribute,)* .. } = $op else {
            return Err(concat!("not an op `", stringify!($variant), "`").into());
        };
    };
}

pub(crate) fn parameter(_: &Op, site: &Site<'_>) -> Inferred {
    Ok(TensorType::new(
        DType::F32,
        site.weights[0].shape.iter().copied(),
    ))
}

pub(crate) fn constant(op: &Op, _: &Site<'_>) -> Inferred {
    attributes!(
        op,
        Constant {
            value,
            dtype,
            shape
        }
    );
    let exact = match dtype {
        DType::Bool => *value == 0.0 || *value == 1.0,
        DType::I32 => value.fract() == 0.0 && (*value as i32) as f64 == *value,
        DType::U32 => value.fract() == 0.0 && (*value as u32) as f64 == *value,
        DType::F16 | DType::BF16 | DType::F32 => !value.is_nan(),
    };
    require(exact, || format!("{value} is not a number of type {dtype}"))?;
    Ok(TensorType::new(*dtype, shape.iter().copied()))
}

pub(crate) fn table(op: &Op, _: &Site<'_>) -> Inferred {
    attributes!(op, Table { values, dtype });
    require_float("result", &TensorType::scalar(*dtype))?;
    require(values.iter().all(|value| value.is_finite()), || {
        "`values` must be finite".into()
    })?;
    Ok(TensorType::new(*dtype, [values.len()]))
}

pub(crate) fn iota(op: &Op, _: &Site<'_>) -> Inferred {
    attributes!(op, Iota { dim, dtype, shape });
    let ty = TensorType::new(*dtype, shape.iter().copied());
    require(*dtype != DType::Bool, || "cannot count in bool".into())?;
    require_dim("result", &ty, *dim)?;
    Ok(ty)
}

pub(crate) fn convert(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(op, Convert { dtype });
    Ok(TensorType::new(
        *dtype,
        site.operands[0].shape.iter().copied(),
    ))
}

pub(crate) fn float_unary(_: &Op, site: &Site<'_>) -> Inferred {
    require_float("x", site.operands[0])?;
    Ok(site.operands[0].clone())
}

pub(crate) fn softmax(op: &Op, site: &Site<'_>) -> Inferred {
    require(site.operands[0].rank() > 0, || {
        "`x` must have a dimension".into()
    })?;
    float_unary(op, site)
}

fn require_same(site: &Site<'_>) -> Result<(), String> {
    let (lhs, rhs) = (site.operands[0], site.operands[1]);
    require(lhs == rhs, || {
        format!("operands must be of one type, are {lhs} and {rhs}")
    })
}

pub(crate) fn binary(_: &Op, site: &Site<'_>) -> Inferred {
    require_same(site)?;
    require(site.operands[0].dtype != DType::Bool, || {
        "operands must be numbers, are bool".into()
    })?;
    Ok(site.operands[0].clone())
}

pub(crate) fn compare(_: &Op, site: &Site<'_>) -> Inferred {
    require_same(site)?;
    Ok(TensorType::new(
        DType::Bool,
        site.operands[0].shape.iter().copied(),
    ))
}

pub(crate) fn logical(_: &Op, site: &Site<'_>) -> Inferred {
    require_same(site)?;
    not(&Op::Not {}, site)
}

pub(crate) fn not(_: &Op, site: &Site<'_>) -> Inferred {
    let x = site.operands[0];
    require(x.dtype == DType::Bool, || {
        format!("operands must be bool, are {x}")
    })?;
    Ok(x.clone())
}

pub(crate) fn select(_: &Op, site: &Site<'_>) -> Inferred {
    let (condition, on_true, on_false) = (site.operands[0], site.operands[1], site.operands[2]);
    require(on_true == on_false, || {
        format!("both choices must be of one type, are {on_true} and {on_false}")
    })?;
    require(
        condition.dtype == DType::Bool && condition.shape == on_true.shape,
        || format!("`condition` must be bool of the shape of {on_true}, is {condition}"),
    )?;
    Ok(on_true.clone())
}

pub(crate) fn reshape(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(op, Reshape { shape });
    let x = site.operands[0];
    let (from, to) = (elements(&x.shape), elements(shape));
    require(from.0.is_some() && from == to, || {
        let ty = TensorType::new(x.dtype, shape.iter().copied());
        format!("{x} and {ty} have different numbers of elements")
    })?;
    Ok(TensorType::new(x.dtype, shape.iter().copied()))
}

pub(crate) fn transpose(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(op, Transpose { permutation });
    let x = site.operands[0];
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    require(sorted.iter().copied().eq(0..x.rank()), || {
        format!("{permutation:?} does not permute the dimensions of {x}")
    })?;
    Ok(TensorType::new(
        x.dtype,
        permutation.iter().map(|&dim| x.shape[dim]),
    ))
}

pub(crate) fn broadcast(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(op, Broadcast { shape, dims });
    let x = site.operands[0];
    let ty = TensorType::new(x.dtype, shape.iter().copied());
    require(dims.len() == x.rank(), || {
        format!(
            "`dims` must name {} dimensions, names {}",
            x.rank(),
            dims.len()
        )
    })?;
    require(dims.windows(2).all(|pair| pair[0] < pair[1]), || {
        format!("`dims` must increase, is {dims:?}")
    })?;
    for (index, &dim) in dims.iter().enumerate() {
        require_dim("result", &ty, dim)?;
        let fits = x.shape[index] == shape[dim] || x.shape[index] == Dim::Fixed(1);
        require(fits, || {
            format!("dimension {index} of {x} does not fit {ty}")
        })?;
    }
    Ok(ty)
}

pub(crate) fn slice(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(
        op,
        Slice {
            dim,
            start,
            limit,
            stride
        }
    );
    let x = site.operands[0];
    require_dim("x", x, *dim)?;
    let size = x.shape[*dim]
        .fixed()
        .ok_or_else(|| format!("dimension {dim} of {x} is a symbol and cannot be sliced"))?;
    require(start <= limit && *limit <= size && *stride > 0, || {
        format!("{start}..{limit} by {stride} is not within dimension {dim} of {x}")
    })?;
    let mut ty = x.clone();
    ty.shape[*dim] = Dim::Fixed((limit - start).div_ceil(*stride));
    Ok(ty)
}

pub(crate) fn concatenate(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(op, Concatenate { dim });
    let (lhs, rhs) = (site.operands[0], site.operands[1]);
    require_dim("lhs", lhs, *dim)?;
    require_dim("rhs", rhs, *dim)?;
    let (Dim::Fixed(left), Dim::Fixed(right)) = (lhs.shape[*dim], rhs.shape[*dim]) else {
        return Err(format!("dimension {dim} of {lhs} or {rhs} is a symbol"));
    };
    let size = left
        .checked_add(right)
        .ok_or_else(|| format!("dimension {dim} of {lhs} and {rhs} is too large"))?;
    let (mut ty, mut other) = (lhs.clone(), rhs.clone());
    (ty.shape[*dim], other.shape[*dim]) = (Dim::Fixed(size), Dim::Fixed(size));
    require(ty == other, || {
        format!("{lhs} and {rhs} must agree in all but dimension {dim}")
    })?;
    Ok(ty)
}

pub(crate) fn gather(_: &Op, site: &Site<'_>) -> Inferred {
    let (table, indices) = (site.operands[0], site.operands[1]);
    require_dim("table", table, 0)?;
    require(indices.dtype == DType::I32, || {
        format!("`indices` must be i32, is {indices}")
    })?;
    let dims = indices.shape.iter().chain(&table.shape[1..]).copied();
    Ok(TensorType::new(table.dtype, dims))
}

/// Rows along the last dimension: the dimensions before it, which both must share, and its sizes.
fn rows_of<'a>(x: &'a TensorType, indices: &TensorType) -> Result<&'a [Dim], String> {
    require(indices.dtype == DType::I32, || {
        format!("`indices` must be i32, is {indices}")
    })?;
    let (Some((_, rows)), Some((_, wanted))) = (x.shape.split_last(), indices.shape.split_last())
    else {
        return Err("`x` and `indices` must have a dimension".into());
    };
    require(rows == wanted, || {
        format!("{x} and {indices} must agree in all but the last dimension")
    })?;
    Ok(rows)
}

pub(crate) fn take_along(_: &Op, site: &Site<'_>) -> Inferred {
    let (x, indices) = (site.operands[0], site.operands[1]);
    rows_of(x, indices)?;
    Ok(TensorType::new(x.dtype, indices.shape.iter().copied()))
}

pub(crate) fn top_k(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(op, TopK { count });
    let x = site.operands[0];
    require_float("x", x)?;
    let Some((&Dim::Fixed(size), rows)) = x.shape.split_last() else {
        return Err(format!(
            "the last dimension of `x` must be a number, is {x}"
        ));
    };
    require(*count > 0 && *count <= size, || {
        format!("`count` must be between 1 and {size}, is {count}")
    })?;
    let dims = rows.iter().copied().chain([Dim::Fixed(*count)]);
    Ok(TensorType::new(DType::I32, dims))
}

pub(crate) fn take_row(_: &Op, site: &Site<'_>) -> Inferred {
    let (x, index) = (site.operands[0], site.operands[1]);
    require_dim("x", x, 1)?;
    require_vector("index", index, DType::I32, x.shape[0])?;
    let dims = x.shape[..1].iter().chain(&x.shape[2..]).copied();
    Ok(TensorType::new(x.dtype, dims))
}

pub(crate) fn dot(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(
        op,
        Dot {
            lhs_batch,
            rhs_batch,
            lhs_contract,
            rhs_contract
        }
    );
    let (lhs, rhs) = (site.operands[0], site.operands[1]);
    require_float("lhs", lhs)?;
    require(lhs.dtype == rhs.dtype, || {
        format!("operands must be of one element type, are {lhs} and {rhs}")
    })?;
    let free = |name: &str, ty: &TensorType, batch: &[usize], contract: &[usize]| {
        let mut used = vec![false; ty.rank()];
        for &dim in batch.iter().chain(contract) {
            require_dim(name, ty, dim)?;
            require(!std::mem::replace(&mut used[dim], true), || {
                format!("dimension {dim} of `{name}` is named twice")
            })?;
        }
        let dims = (0..ty.rank()).filter(|&dim| !used[dim]);
        Ok::<_, String>(dims.map(|dim| ty.shape[dim]).collect::<Vec<_>>())
    };
    let lhs_free = free("lhs", lhs, lhs_batch, lhs_contract)?;
    let rhs_free = free("rhs", rhs, rhs_batch, rhs_contract)?;
    for (kind, left, right) in [
        ("batch", lhs_batch, rhs_batch),
        ("contracted", lhs_contract, rhs_contract),
    ] {
        let sizes = |ty: &TensorType, dims: &[usize]| -> Vec<Dim> {
            dims.iter().map(|&dim| ty.shape[dim]).collect()
        };
        require(sizes(lhs, left) == sizes(rhs, right), || {
            format!("{kind} dimensions {left:?} of {lhs} and {right:?} of {rhs} differ")
        })?;
    }
    let batch = lhs_batch.iter().map(|&dim| lhs.shape[dim]);
    Ok(TensorType::new(
        lhs.dtype,
        batch.chain(lhs_free).chain(rhs_free),
    ))
}

pub(crate) fn reduce(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(op, Reduce { dim });
    let x = site.operands[0];
    require(x.dtype != DType::Bool, || {
        "`x` must be numbers, is bool".into()
    })?;
    require_dim("x", x, *dim)?;
    let mut ty = x.clone();
    ty.shape[*dim] = Dim::Fixed(1);
    Ok(ty)
}

pub(crate) fn argmax(_: &Op, site: &Site<'_>) -> Inferred {
    let x = site.operands[0];
    require_float("x", x)?;
    let (last, rest) = x
        .shape
        .split_last()
        .ok_or_else(|| "`x` must have a dimension".to_string())?;
    require(*last != Dim::Fixed(0), || {
        "the last dimension is empty".into()
    })?;
    Ok(TensorType::new(DType::I32, rest.iter().copied()))
}

pub(crate) fn cache_append(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(op, CacheAppend { part });
    let state = require_state(site, StateKind::Cache)?;
    require(*part != StatePart::Whole, || {
        "`part` of a cache must be key or value".into()
    })?;
    let buffer = state.buffer(*part);
    let (rows, start) = (site.operands[0], site.operands[1]);
    require_rank("rows", rows, 4)?;
    require_vector("start", start, DType::I32, rows.shape[0])?;
    require(
        rows.dtype == buffer.dtype && rows.shape[2..] == buffer.shape[2..],
        || format!("`rows` must fit the cache {buffer}, is {rows}"),
    )?;
    let mut ty = buffer;
    ty.shape[0] = rows.shape[0];
    Ok(ty)
}

fn require_state<'a>(site: &Site<'a>, kind: StateKind) -> Result<&'a StateDecl, String> {
    let state = site.state.ok_or("needs a state")?;
    require(state.kind == kind, || {
        format!(
            "state `{}` must be a {}, is a {}",
            state.name,
            kind.name(),
            state.kind.name()
        )
    })?;
    Ok(state)
}

fn require_memory(site: &Site<'_>, dtype: DType, shape: [Dim; 3]) -> Result<(), String> {
    let buffer = require_state(site, StateKind::Memory)?.buffer(StatePart::Whole);
    require(buffer.dtype == dtype && buffer.shape[1..] == shape, || {
        let [heads, key, value] = shape;
        format!("the memory must be {dtype}[B, {heads}, {key}, {value}], is {buffer}")
    })
}

pub(crate) fn causal_convolution(_: &Op, site: &Site<'_>) -> Inferred {
    let (x, weight) = (site.operands[0], site.weights[0]);
    require_float("x", x)?;
    require_rank("x", x, 3)?;
    require_vector("length", site.operands[1], DType::I32, x.shape[0])?;
    let &[channels, width] = &weight.shape[..] else {
        return Err(format!(
            "weight `{}` must be [C, W], is {:?}",
            weight.name, weight.shape
        ));
    };
    require(x.shape[2] == Dim::Fixed(channels) && width > 1, || {
        format!(
            "weight `{}` {:?} does not fit x {x}, or is of one step",
            weight.name, weight.shape
        )
    })?;
    if let Some(bias) = site.weights.get(1) {
        require(bias.shape == [channels], || {
            format!(
                "bias `{}` must be [{channels}], is {:?}",
                bias.name, bias.shape
            )
        })?;
    }
    require_memory(
        site,
        x.dtype,
        [1, width.saturating_sub(1), channels].map(Dim::Fixed),
    )?;
    Ok(x.clone())
}

pub(crate) fn recurrence(_: &Op, site: &Site<'_>) -> Inferred {
    let [query, key, value, decay, ref rest @ ..] = site.operands[..] else {
        return Err("takes query, key, value and decay".into());
    };
    let Some((length, others)) = rest.split_last() else {
        return Err("takes length".into());
    };
    require_float("value", value)?;
    require_rank("value", value, 4)?;
    require_rank("key", key, 4)?;
    require_vector("length", length, DType::I32, value.shape[0])?;
    let [rows, tokens, heads, width] = [0, 1, 2, 3].map(|dim| value.shape[dim]);
    let names = ["erase", "write"];
    for (name, ty) in [("key", key), ("query", query)]
        .into_iter()
        .chain(names.into_iter().zip(others.iter().copied()))
    {
        let groups = ty.shape.get(2).and_then(|dim| dim.fixed()).unwrap_or(0);
        let shared = groups > 0
            && heads
                .fixed()
                .is_some_and(|heads| heads.is_multiple_of(groups));
        let expected = [rows, tokens, Dim::Fixed(groups), key.shape[3]];
        require(
            shared && ty.dtype == value.dtype && ty.shape == expected,
            || format!("`{name}` must be [B, T, G, K] with {heads} heads in G groups, is {ty}"),
        )?;
    }
    let fits = decay.dtype == value.dtype
        && decay.rank() == 4
        && decay.shape[..3] == value.shape[..3]
        && (decay.shape[3] == key.shape[3] || decay.shape[3] == Dim::Fixed(1));
    require(fits, || {
        format!("`decay` must be [B, T, H, K] or [B, T, H, 1], is {decay}")
    })?;
    require_memory(site, value.dtype, [heads, key.shape[3], width])?;
    Ok(value.clone())
}

pub(crate) fn embedding(_: &Op, site: &Site<'_>) -> Inferred {
    let (tokens, table) = (site.operands[0], site.weights[0]);
    require(tokens.dtype == DType::I32, || {
        format!("`tokens` must be i32, is {tokens}")
    })?;
    require(table.shape.len() == 2, || {
        format!(
            "weight `{}` must be [V, H], is {:?}",
            table.name, table.shape
        )
    })?;
    let dims = tokens
        .shape
        .iter()
        .copied()
        .chain([Dim::Fixed(table.shape[1])]);
    Ok(TensorType::new(DType::F32, dims))
}

pub(crate) fn linear(_: &Op, site: &Site<'_>) -> Inferred {
    let (x, weight) = (site.operands[0], site.weights[0]);
    require_float("x", x)?;
    let fits = weight.shape.len() == 2
        && x.shape.last().copied() == weight.shape.get(1).map(|&size| Dim::Fixed(size));
    require(fits, || {
        format!(
            "weight `{}` {:?} does not fit x {x}",
            weight.name, weight.shape
        )
    })?;
    if let Some(bias) = site.weights.get(1) {
        require(bias.shape == weight.shape[..1], || {
            format!(
                "bias `{}` must be [{}], is {:?}",
                bias.name, weight.shape[0], bias.shape
            )
        })?;
    }
    let mut ty = x.clone();
    if let Some(last) = ty.shape.last_mut() {
        *last = Dim::Fixed(weight.shape[0]);
    }
    Ok(ty)
}

pub(crate) fn expert_linear(_: &Op, site: &Site<'_>) -> Inferred {
    let (x, experts, weight) = (site.operands[0], site.operands[1], site.weights[0]);
    require_float("x", x)?;
    require_rank("experts", experts, 3)?;
    require(experts.dtype == DType::I32, || {
        format!("`experts` must be i32, is {experts}")
    })?;
    let &[count, outputs, width] = &weight.shape[..] else {
        return Err(format!(
            "weight `{}` must be [E, N, K], is {:?}",
            weight.name, weight.shape
        ));
    };
    let [rows, tokens, chosen] = [0, 1, 2].map(|dim| experts.shape[dim]);
    let shared = x.shape == [rows, tokens, Dim::Fixed(width)];
    require(
        shared || x.shape == [rows, tokens, chosen, Dim::Fixed(width)],
        || {
            format!(
                "weight `{}` {:?} and experts {experts} do not fit x {x}",
                weight.name, weight.shape
            )
        },
    )?;
    if let Some(bias) = site.weights.get(1) {
        require(bias.shape == [count, outputs], || {
            format!(
                "bias `{}` must be [{count}, {outputs}], is {:?}",
                bias.name, bias.shape
            )
        })?;
    }
    Ok(TensorType::new(
        x.dtype,
        [rows, tokens, chosen, Dim::Fixed(outputs)],
    ))
}

pub(crate) fn norm(op: &Op, site: &Site<'_>) -> Inferred {
    let (Op::RmsNorm { epsilon, offset } | Op::LayerNorm { epsilon, offset }) = op else {
        return Err("not a norm".into());
    };
    let x = site.operands[0];
    require_float("x", x)?;
    require(epsilon.is_finite() && *epsilon >= 0.0, || {
        format!("`epsilon` must be finite and not negative, is {epsilon}")
    })?;
    require(offset.is_finite(), || {
        format!("`offset` must be finite, is {offset}")
    })?;
    require(x.rank() > 0, || "`x` must have a dimension".into())?;
    for weight in &site.weights {
        let fits = weight.shape.len() == 1 && x.shape.last() == Some(&Dim::Fixed(weight.shape[0]));
        require(fits, || {
            format!(
                "weight `{}` {:?} does not fit x {x}",
                weight.name, weight.shape
            )
        })?;
    }
    Ok(x.clone())
}

pub(crate) fn rope(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(
        op,
        Rope {
            dims,
            base,
            scaling,
            magnitude
        }
    );
    let (x, start) = (site.operands[0], site.operands[1]);
    require_float("x", x)?;
    require_rank("x", x, 4)?;
    require_vector("start", start, DType::I32, x.shape[0])?;
    let width = x.shape[3].fixed().unwrap_or(0);
    require(*dims > 0 && dims % 2 == 0 && *dims <= width, || {
        format!("`dims` must be even and between 2 and {width}, is {dims}")
    })?;
    require_positive("base", *base)?;
    require_positive("magnitude", *magnitude)?;
    match *scaling {
        crate::RopeScaling::None => {}
        crate::RopeScaling::Yarn {
            factor,
            fast,
            slow,
            original,
            ..
        } => {
            for (name, value) in [
                ("factor", factor),
                ("fast", fast),
                ("slow", slow),
                ("original", original),
            ] {
                require_positive(name, value)?;
            }
            require(*base != 1.0, || "`base` must not be 1 for yarn".into())?;
        }
        crate::RopeScaling::Factors(ref factors) => {
            require(factors.len() == dims / 2, || {
                format!(
                    "{} pairs need as many factors, not {}",
                    dims / 2,
                    factors.len()
                )
            })?;
            require(factors.iter().all(|&factor| factor > 0.0), || {
                "factors must be above 0".into()
            })?;
        }
        crate::RopeScaling::Linear { factor } => require_positive("factor", factor)?,
        crate::RopeScaling::Llama3 {
            factor,
            low,
            high,
            original,
        } => {
            require_positive("factor", factor)?;
            require_positive("low", low)?;
            require_positive("original", original)?;
            require(high.is_finite() && high > low, || {
                format!("`high` must be finite and above {low}, is {high}")
            })?;
        }
    }
    Ok(x.clone())
}

pub(crate) fn attention(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(
        op,
        Attention {
            scale,
            window,
            chunk,
            softcap,
            slopes
        }
    );
    let state = require_state(site, StateKind::Cache)?;
    let [q, k, v, start] = site.operands[..] else {
        return Err("takes q, k, v and start".into());
    };
    require_float("q", q)?;
    require_rank("q", q, 4)?;
    require_vector("start", start, DType::I32, q.shape[0])?;
    let rows = |heads: Dim, width: usize| {
        TensorType::new(q.dtype, [q.shape[0], q.shape[1], heads, Dim::Fixed(width)])
    };
    let kv_heads = Dim::Fixed(state.heads);
    for (name, ty, expected) in [
        ("q", q, rows(q.shape[2], state.key_dim)),
        ("k", k, rows(kv_heads, state.key_dim)),
        ("v", v, rows(kv_heads, state.value_dim)),
    ] {
        require(*ty == expected, || {
            format!("`{name}` must be {expected}, is {ty}")
        })?;
    }
    let heads = q.shape[2].fixed().unwrap_or(0);
    require(
        state.heads > 0 && heads > 0 && heads.is_multiple_of(state.heads),
        || {
            format!(
                "{heads} query heads cannot share {} key-value heads",
                state.heads
            )
        },
    )?;
    require(scale.is_finite(), || {
        format!("`scale` must be finite, is {scale}")
    })?;
    require(*window != Some(0), || "`window` must be at least 1".into())?;
    require(*chunk != Some(0), || "`chunk` must be at least 1".into())?;
    let sloped = slopes.is_empty() || slopes.len() == heads;
    require(
        sloped && slopes.iter().all(|slope| slope.is_finite()),
        || format!("`slopes` must be none or one finite number for each of {heads} heads"),
    )?;
    if let Some(sinks) = site.weights.first() {
        require(sinks.shape == [heads], || {
            format!(
                "weight `{}` must be [{heads}], is {:?}",
                sinks.name, sinks.shape
            )
        })?;
    }
    if let Some(softcap) = softcap {
        require_positive("softcap", *softcap)?;
    }
    Ok(rows(q.shape[2], state.value_dim))
}

pub(crate) fn mutual_attention(op: &Op, site: &Site<'_>) -> Inferred {
    attributes!(op, MutualAttention { scale });
    let [q, k, v, length] = site.operands[..] else {
        return Err("takes q, k, v and length".into());
    };
    require_float("q", q)?;
    for (name, ty) in [("q", q), ("k", k), ("v", v)] {
        require_rank(name, ty, 4)?;
    }
    require_vector("length", length, DType::I32, q.shape[0])?;
    let rows =
        |heads: Dim, width: Dim| TensorType::new(q.dtype, [q.shape[0], q.shape[1], heads, width]);
    for (name, ty, expected) in [
        ("k", k, rows(k.shape[2], q.shape[3])),
        ("v", v, rows(k.shape[2], v.shape[3])),
    ] {
        require(*ty == expected, || {
            format!("`{name}` must be {expected}, is {ty}")
        })?;
    }
    let (heads, shared) = (q.shape[2].fixed(), k.shape[2].fixed());
    let (heads, shared) = (heads.unwrap_or(0), shared.unwrap_or(0));
    require(
        shared > 0 && heads > 0 && heads.is_multiple_of(shared),
        || format!("{heads} query heads cannot share {shared} key-value heads"),
    )?;
    require(scale.is_finite(), || {
        format!("`scale` must be finite, is {scale}")
    })?;
    Ok(rows(q.shape[2], v.shape[3]))
}
