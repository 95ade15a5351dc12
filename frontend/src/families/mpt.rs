//! MPT: ALiBi, bounded queries, keys and values, and no bias anywhere.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Attention, Branch, Decoder, Layer, Linear, Norm, Plain, Projections, alibi};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["mpt"],
    title: "MPT",
    category: Category::Dense,
    names: Names {
        root: "transformer",
        transposed: &[],
    },
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let sizes = reader.own_heads()?;
    let epsilon = reader.positive_or(&["layer_norm_epsilon"], 1e-5)?;
    let inner = reader
        .width_or(&["expansion_ratio"], 4)?
        .saturating_mul(hidden);
    let (mut clip, mut scale, mut steepest) = (None, None, 8.0);
    if let Some(inner) = reader.fields.object("attn_config")? {
        for (name, wanted) in [("alibi", true), ("qk_ln", false), ("prefix_lm", false)] {
            if inner.flag(name)?.is_some_and(|found| found != wanted) {
                let reason = format!("must be {wanted}: models made otherwise are not supported");
                return Err(inner.error(name, reason));
            }
        }
        clip = inner.positive("clip_qkv")?;
        scale = inner.positive("softmax_scale")?;
        steepest = inner.positive("alibi_bias_max")?.unwrap_or(steepest);
    }
    let norm = |name: String| Norm::layer(name, hidden, epsilon, false);
    let layers = reader.layers("transformer.blocks", |_, module| {
        let linear =
            |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, false);
        let all = linear("attn.Wqkv", hidden, 3 * hidden);
        let output = linear("attn.out_proj", hidden, hidden);
        let projections = Projections::fused(&all, sizes);
        let mut attention = Attention::new(sizes, projections, output, None);
        attention.slopes = alibi(sizes[0], steepest);
        attention.clip = clip;
        attention.scale = scale.unwrap_or(attention.scale);
        let mlp = Plain {
            up: linear("ffn.up_proj", hidden, inner),
            down: linear("ffn.down_proj", inner, hidden),
            activation: Activation::Gelu,
        };
        Ok(Layer::sequential([
            Branch::new(norm(format!("{module}.norm_1")), attention),
            Branch::new(norm(format!("{module}.norm_2")), mlp),
        ]))
    });
    Ok(Decoder {
        embedding: reader.embedding("transformer.wte"),
        layers: layers?,
        norm: Some(norm("transformer.norm_f".into())),
        head: reader.head("lm_head"),
        context: None,
    })
}
