//! OPT: learned positions that start at row 2; norms before each part, or in the 350M model after it.

use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{
    Attention, Branch, Decoder, Embedding, Head, Layer, Linear, Norm, Plain, Positions,
    Projections, Step,
};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["opt"],
    title: "OPT",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

/// Rows of the table of positions before that of position 0.
const OFFSET: usize = 2;

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let (hidden, vocabulary) = (reader.config.hidden, reader.config.vocabulary);
    let sizes = reader.own_heads()?;
    let before = reader.flag_or("do_layer_norm_before", true)?;
    let bias = reader.flag_or("enable_bias", true)?;
    let affine = reader.flag_or("layer_norm_elementwise_affine", true)?;
    let inner = reader.width_or(&["ffn_dim"], 4 * hidden)?;
    let activation = reader.activation(Activation::Relu)?;
    let norm = |name: String| {
        let norm = Norm::layer(name, hidden, 1e-5, true);
        if affine { norm } else { norm.plain() }
    };
    let layers = reader.layers("model.decoder.layers", |_, module| {
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, bias);
        let projections = Projections::new(&format!("{module}.self_attn"), hidden, sizes, bias);
        let output = linear("self_attn.out_proj", hidden, hidden);
        let attention = Attention::new(sizes, projections, output, None);
        let mlp = Plain {
            up: linear("fc1", hidden, inner),
            down: linear("fc2", inner, hidden),
            activation,
        };
        let norms = ["self_attn_layer_norm", "final_layer_norm"];
        let [first, second] = norms.map(|name| norm(format!("{module}.{name}")));
        Ok(match before {
            true => Layer::sequential([Branch::new(first, attention), Branch::new(second, mlp)]),
            false => Layer {
                steps: vec![
                    Step::of(Branch::new(None, attention)).then(first),
                    Step::of(Branch::new(None, mlp)).then(second),
                ],
            },
        })
    });
    let width = reader.width_or(&["word_embed_proj_dim"], hidden)?;
    let projected = |name: &str, from, to| {
        (width != hidden).then(|| Linear::new(format!("model.decoder.{name}"), from, to, false))
    };
    let mut embedding = Embedding::new("model.decoder.embed_tokens", vocabulary, width);
    embedding.projection = projected("project_in", width, hidden);
    embedding.positions = Some(Positions {
        module: "model.decoder.embed_positions".into(),
        rows: reader.config.context + OFFSET,
        offset: OFFSET,
    });
    let untied = reader.config.tied == Some(false);
    let mut head = Head::new(untied.then(|| Linear::new("lm_head", width, vocabulary, false)));
    head.projection = projected("project_out", hidden, width);
    let last = before && !reader.flag_or("_remove_final_layer_norm", false)?;
    Ok(Decoder {
        embedding,
        layers: layers?,
        norm: last.then(|| norm("model.decoder.final_layer_norm".into())),
        head,
        context: None,
    })
}
