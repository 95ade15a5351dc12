//! MPNet: BERT with a learned number for each distance between tokens in the scores, and positions
//! that start after that of the padding token.

use super::bert::{embedding, pooler, post_norm, two_layers};
use super::{EncoderFamily, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Distances, Linear, Norm, Plain, Projections, RelativeAttention};
use crate::encoder::Encoder;
use mlxcel_ir::Activation;

pub(super) const FAMILY: EncoderFamily = EncoderFamily {
    model_types: &["mpnet"],
    title: "MPNet",
    names: Names {
        root: "mpnet",
        transposed: &[],
    },
    encoder,
};

/// The position of the first token: the padding token has number 1, whatever the configuration says.
const OFFSET: usize = 2;
/// Rows for distances, and the distance from which they have one row.
const ROWS: usize = 32;
const FAR: usize = 128;

/// The row of the distance `key - query`: one for each small distance, then ever wider ones; those of
/// later keys are the upper half.
fn row(distance: isize) -> usize {
    let (half, later) = (ROWS / 2, distance > 0);
    let (near, away) = (half / 2, distance.unsigned_abs());
    let row = match away < near {
        true => away,
        false => {
            let share = (away as f32 / near as f32).ln() / ((FAR / near) as f64).ln() as f32;
            near + (share * (half - near) as f32) as usize
        }
    };
    row.min(half - 1) + if later { half } else { 0 }
}

fn encoder(reader: &Reader<'_>) -> Result<Encoder, LoadError> {
    let hidden = reader.config.hidden;
    let [heads, _, width] = reader.own_heads()?;
    let epsilon = reader.positive_or(&["layer_norm_eps"], 1e-12)?;
    let inner = reader.width_or(&["intermediate_size"], 4 * hidden)?;
    let activation = reader.activation(Activation::Gelu)?;
    let count = reader.width_or(&["relative_attention_num_buckets"], ROWS)?;
    if count < ROWS {
        let reason = format!("must be at least {ROWS}, is {count}");
        return Err(reader
            .fields
            .error("relative_attention_num_buckets", reason));
    }
    let reach = FAR as isize;
    let rows: Vec<usize> = (-reach..=reach).map(row).collect();
    let layers = reader.layers("mpnet.encoder.layer", |_, module| {
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, true);
        let attention = RelativeAttention {
            heads,
            width,
            projections: Projections {
                q: linear("attention.attn.q", hidden, hidden),
                k: linear("attention.attn.k", hidden, hidden),
                v: linear("attention.attn.v", hidden, hidden),
            },
            output: linear("attention.attn.o", hidden, hidden),
            scale: 1.0 / (width as f64).sqrt(),
            distances: Distances::Numbers {
                name: "mpnet.encoder.relative_attention_bias.weight".into(),
                count,
            },
            rows: rows.clone(),
        };
        let mlp = Plain {
            up: linear("intermediate.dense", hidden, inner),
            down: linear("output.dense", inner, hidden),
            activation,
        };
        let norms = ["attention.LayerNorm", "output.LayerNorm"];
        let norm = |name| Norm::layer(format!("{module}.{name}"), hidden, epsilon, true);
        Ok(post_norm(attention, mlp, norms.map(norm)))
    });
    let mut embedding = embedding(reader, "mpnet", OFFSET, epsilon)?;
    embedding.types = None;
    let names = ["classifier.dense", "classifier.out_proj"];
    Ok(Encoder {
        embedding,
        layers: layers?,
        norm: None,
        pooler: pooler(reader, "mpnet.pooler.dense"),
        classifier: two_layers(reader, names, Activation::Tanh)?,
        context: reader.config.context.saturating_sub(OFFSET),
    })
}
