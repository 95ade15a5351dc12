//! MiniCPM 1, 2 and 4: a Llama with factors of the embedding, the branches and the logits.

use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Decoder, Layer};

pub(super) const FAMILY: Family = Family {
    model_types: &["minicpm"],
    title: "MiniCPM",
    category: Category::Dense,
    gguf: "",
    gguf_paired: false,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts {
        mlp_bias: false,
        ..Parts::read(reader, Defaults::default())?
    };
    let mut decoder = parts.decoder(|_, module| {
        Ok(parts.pre_norm(module, parts.attention(module), parts.gated(module)))
    })?;
    // A branch counts for `scale_depth` divided by the root of the number of layers.
    if let Some(depth) = reader.fields.positive("scale_depth")? {
        let scale = depth / (reader.config.layers as f64).sqrt();
        let steps = decoder.layers.iter_mut().flat_map(|Layer { steps }| steps);
        steps.for_each(|step| step.scale = scale);
    }
    decoder.embedding.scale = reader.positive_or(&["scale_emb"], 1.0)?;
    // Logits are taken at the width of the model that the settings were found with.
    if let Some(base) = reader.fields.positive("dim_model_base")? {
        decoder.head.scale = base / parts.hidden as f64;
    }
    Ok(decoder)
}
