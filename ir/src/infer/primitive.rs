//! The rules of primitives without a state.

use super::*;

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
