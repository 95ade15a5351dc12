//! The rules of primitives that change a state.

use super::*;

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

pub(super) fn require_state<'a>(site: &Site<'a>, kind: StateKind) -> Result<&'a StateDecl, String> {
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
