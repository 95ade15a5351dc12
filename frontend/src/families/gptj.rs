//! GPT-J: attention and feed-forward side by side on one norm; a share of each head turns in
//! neighbouring pairs.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Attention, Branch, Decoder, Layer, Linear, Norm, Plain, Projections};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["gptj"],
    title: "GPT-J",
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
    let inner = reader.width_or(&["n_inner"], 4 * hidden)?;
    let activation = reader.activation(Activation::GeluTanh)?;
    let turning = reader.width_or(&["rotary_dim"], sizes[2])?;
    if turning > sizes[2] || !turning.is_multiple_of(2) {
        let reason = format!("must be even and at most the width {} of a head", sizes[2]);
        return Err(reader.fields.error("rotary_dim", reason));
    }
    let rope = Rope::plain(turning, 10_000.0).interleaved();
    let layers = reader.layers("transformer.h", |_, module| {
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, true);
        let attention = format!("{module}.attn");
        let projections = Projections::new(&attention, hidden, sizes, false);
        let output = Linear::new(format!("{attention}.out_proj"), hidden, hidden, false);
        let attention = Attention::new(sizes, projections, output, Some(rope.clone()));
        let mlp = Plain {
            up: linear("mlp.fc_in", hidden, inner),
            down: linear("mlp.fc_out", inner, hidden),
            activation,
        };
        let norm = Norm::layer(format!("{module}.ln_1"), hidden, epsilon, true);
        Ok(Layer::parallel(vec![
            Branch::new(norm.clone(), attention),
            Branch::new(norm, mlp),
        ]))
    });
    Ok(Decoder {
        embedding: reader.embedding("transformer.wte"),
        layers: layers?,
        norm: Some(Norm::layer("transformer.ln_f", hidden, epsilon, true)),
        head: reader.biased_head("lm_head"),
        context: None,
    })
}
