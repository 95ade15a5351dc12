//! DBRX: clipped queries, keys and values of one tensor, and experts of three tensors.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::fields::Fields;
use crate::config::{Reader, Rope, limit};
use crate::decoder::{
    Attention, Branch, Decoder, Experts, Glu, Inner, Layer, Linear, Norm, Projections, Router,
    Scores, Stack,
};
use crate::weights::spelling::{reshaped, transposed};
use serde_json::Value;

pub(super) const FAMILY: Family = Family {
    model_types: &["dbrx"],
    title: "DBRX",
    category: Category::Experts,
    names: Names {
        root: "transformer",
        transposed: &[],
    },
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    /// The epsilon of its norms, which no configuration names.
    const EPSILON: f64 = 1e-5;
    let hidden = reader.config.hidden;
    let object = |name| {
        reader
            .fields
            .object(name)?
            .ok_or_else(|| reader.fields.missing(name))
    };
    let (attention, experts) = (object("attn_config")?, object("ffn_config")?);
    let [heads, _, width] = reader.own_heads()?;
    let kv_heads = attention.size("kv_n_heads", 1..=heads)?.unwrap_or(1);
    if !heads.is_multiple_of(kv_heads) {
        let reason = format!("{kv_heads} does not divide the {heads} attention heads");
        return Err(attention.error("kv_n_heads", reason));
    }
    let base = attention.positive("rope_theta")?.unwrap_or(10_000.0);
    let rope = Rope::of_kind(reader, width, "full_attention", base)?;
    let (sizes, clip) = ([heads, kv_heads, width], attention.positive("clip_qkv")?);
    let layers = reader.layers("transformer.blocks", |_, module| {
        let module = format!("{module}.norm_attn_norm");
        let linear =
            |name: &str, from, to| Linear::new(format!("{module}.attn.{name}"), from, to, false);
        let norm = |name: &str| Norm::layer(format!("{module}.{name}"), hidden, EPSILON, false);
        let all = linear("Wqkv", hidden, (heads + 2 * kv_heads) * width);
        let projections = Projections::fused(&all, sizes);
        let output = linear("out_proj", heads * width, hidden);
        let mut attention = Attention::new(sizes, projections, output, Some(rope.clone()));
        attention.clip = clip;
        let within = module.replace("norm_attn_norm", "ffn");
        Ok(Layer::sequential([
            Branch::new(norm("norm_1"), attention),
            Branch::new(norm("norm_2"), mixture(&experts, &within, hidden)?),
        ]))
    })?;
    let norm = Norm::layer("transformer.norm_f", hidden, EPSILON, false);
    Ok(Decoder {
        embedding: reader.embedding("transformer.wte"),
        layers,
        norm: Some(norm),
        head: reader.head("lm_head"),
        context: rope.context,
    })
}

/// The experts of `module`, whose layers stand on each other: `w1` and `v1` `[E * F, H]`, `w2` too,
/// which is the reverse of a layer's.
fn mixture(fields: &Fields<'_>, module: &str, hidden: usize) -> Result<Experts, LoadError> {
    let inner = fields.size("ffn_hidden_size", 1..=limit::WIDTH)?;
    let inner = inner.unwrap_or(3584);
    let count = fields
        .size("moe_num_experts", 1..=limit::WIDTH)?
        .unwrap_or(4);
    let chosen = fields.size("moe_top_k", 1..=count)?.unwrap_or(1);
    let activation = match fields.object("ffn_act_fn")? {
        Some(named) => named.text("name")?.unwrap_or("silu"),
        None => "silu",
    };
    let activation = Reader::named_activation(activation).ok_or_else(|| {
        let what = "the name of a nonlinearity";
        fields.expected("ffn_act_fn.name", what, &Value::from(activation))
    })?;
    let gate = Linear::new(format!("{module}.router.layer"), hidden, count, false);
    let router = Router::new(gate, chosen, Scores::Softmax);
    // The weights are divided by their norm of this degree; all of them are above zero.
    let name = "moe_normalize_expert_weights";
    let router = match fields.number(name)? {
        None if fields.is_null(name) => router,
        None | Some(1.0) => router.normalised(true),
        Some(other) => {
            let reason = format!("must be 1 or null, is {other}");
            return Err(fields.error(name, reason));
        }
    };
    let stack = |name: &str| {
        let name = format!("{module}.experts.mlp.{name}");
        reshaped(&name, &[count, inner, hidden])
    };
    let layer = |name: &str| Stack::new(stack(name), count, hidden, inner);
    Ok(Experts {
        router,
        norm: None,
        inner: Inner::Gated(layer("w1"), layer("v1")),
        down: Stack::new(transposed(&stack("w2")), count, inner, hidden),
        glu: Glu::Activation(activation),
        shared: None,
        narrow: None,
        weigh_input: false,
    })
}
