//! The rules of composites.

use super::*;

pub(crate) fn softmax(op: &Op, site: &Site<'_>) -> Inferred {
    require(site.operands[0].rank() > 0, || {
        "`x` must have a dimension".into()
    })?;
    float_unary(op, site)
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
