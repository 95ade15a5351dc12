//! MiniCPM 1, 2 and 4: a Llama with factors of the embedding, the branches and the logits; MiniCPM 3:
//! the same with latent attention.

use super::deepseek::latent;
use super::parts::{Defaults, Parts};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Decoder, Layer};

pub(super) const FAMILY: Family = Family {
    model_types: &["minicpm"],
    title: "MiniCPM",
    category: Category::Dense,
    names: Names::MODEL,
    decoder,
};

pub(super) const LATENT: Family = Family {
    model_types: &["minicpm3"],
    title: "MiniCPM 3",
    decoder: |reader| {
        let mut parts = Parts::read(reader, DEFAULTS)?;
        parts.rope = Rope::read(reader, reader.width_or(&["qk_rope_head_dim"], 32)?)?;
        let decoder = parts.decoder(|_, module| {
            let rope = Some(parts.rope.clone());
            let attention = latent(reader, &format!("{module}.self_attn"), rope)?;
            Ok(parts.pre_norm(module, attention, parts.gated(module)))
        })?;
        // What it leaves out is as in the one model there is.
        let [embedding, depth, base] = [12.0, 1.4, 256.0];
        scaled(reader, decoder, [embedding, depth, base].map(Some))
    },
    ..FAMILY
};

const DEFAULTS: Defaults = Defaults {
    epsilon: 1e-5,
    ..Defaults::LLAMA
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts {
        mlp_bias: false,
        ..Parts::read(reader, Defaults::default())?
    };
    let decoder = parts.decoder(|_, module| {
        Ok(parts.pre_norm(module, parts.attention(module), parts.gated(module)))
    })?;
    scaled(reader, decoder, [None; 3])
}

/// `decoder` with its factors: of the embedding, of the branches and of the logits. `otherwise` has
/// what they are made of where the configuration has no such field; null is no factor.
fn scaled(
    reader: &Reader<'_>,
    mut decoder: Decoder,
    otherwise: [Option<f64>; 3],
) -> Result<Decoder, LoadError> {
    let factor = |name: &str, otherwise: Option<f64>| {
        let given = reader.fields.positive(name)?;
        let otherwise = otherwise.filter(|_| !reader.fields.is_null(name));
        Ok::<_, LoadError>(given.or(otherwise))
    };
    // A branch counts for `scale_depth` divided by the root of the number of layers.
    if let Some(depth) = factor("scale_depth", otherwise[1])? {
        let scale = depth / (reader.config.layers as f64).sqrt();
        let steps = decoder.layers.iter_mut().flat_map(|Layer { steps }| steps);
        steps.for_each(|step| step.scale = scale);
    }
    decoder.embedding.scale = factor("scale_emb", otherwise[0])?.unwrap_or(1.0);
    // Logits are taken at the width of the model that the settings were found with.
    if let Some(base) = factor("dim_model_base", otherwise[2])? {
        decoder.head.scale = base / reader.config.hidden as f64;
    }
    Ok(decoder)
}
