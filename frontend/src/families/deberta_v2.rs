//! DeBERTa v2 and v3: scores of content against distances and of distances against content.

use super::bert::{embedding, output, post_norm};
use super::{EncoderFamily, Names};
use crate::LoadError;
use crate::config::{Reader, limit};
use crate::decoder::{Distances, Linear, Norm, Plain, Projections, RelativeAttention};
use crate::encoder::{Classifier, Encoder, Reduce};
use mlxcel_ir::Activation;
use serde_json::Value;

pub(super) const FAMILY: EncoderFamily = EncoderFamily {
    model_types: &["deberta-v2"],
    title: "DeBERTa",
    names: Names {
        root: "deberta",
        transposed: &[],
    },
    encoder,
};

/// The distance from which all are alike, whatever the configuration says.
const FAR: usize = 1 << 16;

/// How distances are told apart.
struct Scale {
    /// Distances that have a row of their own, on both sides together; 0 if all have.
    buckets: usize,
    /// The distance that the last row is for.
    furthest: usize,
}

impl Scale {
    fn read(reader: &Reader<'_>) -> Result<Self, LoadError> {
        // Both are -1 where they are not set.
        let set = |name: &str| match reader.fields.get(name).and_then(Value::as_i64) {
            Some(..1) => Ok(None),
            _ => reader.fields.size(name, 1..=limit::WIDTH),
        };
        Ok(Self {
            buckets: set("position_buckets")?.unwrap_or(0),
            furthest: set("max_relative_positions")?
                .unwrap_or(reader.config.context)
                .min(FAR),
        })
    }

    /// Rows on each side.
    fn span(&self) -> usize {
        match self.buckets {
            0 => self.furthest,
            buckets => buckets,
        }
    }

    /// The row, counted from the middle, of the distance `away`: near ones have their own, then rows
    /// get wider. In f32, as the models were made.
    fn bucket(&self, away: usize) -> usize {
        let middle = self.buckets / 2;
        if self.buckets == 0 || away <= middle || middle == 0 {
            return away;
        }
        let whole = ((self.furthest.saturating_sub(1)) as f64 / middle as f64) as f32;
        let share = (away as f32 / middle as f32).ln() / whole.ln();
        (share * (middle as f32 - 1.0)).ceil() as usize + middle
    }

    /// The row of the distance `key - query`.
    fn row(&self, distance: isize) -> usize {
        let (span, bucket) = (self.span(), self.bucket(distance.unsigned_abs()));
        match distance > 0 {
            true => span.saturating_sub(bucket),
            false => (span + bucket).min(2 * span - 1),
        }
    }
}

/// Which of both kinds of scores there are: content against distances, distances against content.
fn kinds(reader: &Reader<'_>) -> Result<[bool; 2], LoadError> {
    let name = "pos_att_type";
    let given: Vec<String> = match reader.fields.get(name) {
        None => Vec::new(),
        Some(Value::String(text)) => text
            .split('|')
            .map(|kind| kind.trim().to_string())
            .collect(),
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_string)
            .collect(),
        Some(other) => return Err(reader.fields.expected(name, "a list of words", other)),
    };
    Ok(["c2p", "p2c"].map(|kind| given.iter().any(|found| found == kind)))
}

fn encoder(reader: &Reader<'_>) -> Result<Encoder, LoadError> {
    let (fields, hidden) = (&reader.fields, reader.config.hidden);
    if !reader.flag_or("relative_attention", false)? {
        return Err(fields.error("relative_attention", "must be true"));
    }
    for name in ["conv_kernel_size", "embedding_size"] {
        let wanted = if name == "embedding_size" { hidden } else { 0 };
        if reader.count_or(name, wanted)? != wanted {
            return Err(fields.error(
                name,
                format!("must be {wanted}: other models are not supported"),
            ));
        }
    }
    let [heads, _, width] = reader.own_heads()?;
    let epsilon = reader.positive_or(&["layer_norm_eps"], 1e-7)?;
    let inner = reader.width_or(&["intermediate_size"], 4 * hidden)?;
    let activation = reader.activation(Activation::Gelu)?;
    let scale = Scale::read(reader)?;
    let reach = scale.furthest as isize;
    let rows: Vec<usize> = (-reach..=reach)
        .map(|distance| scale.row(distance))
        .collect();
    let [to_distance, from_distance] = kinds(reader)?;
    let shared = reader.flag_or("share_att_key", false)?;
    let normed = fields
        .text("norm_rel_ebd")?
        .unwrap_or("none")
        .contains("layer_norm");
    let norm = |name: String| Norm::layer(name, hidden, epsilon, true);
    let layers = reader.layers("deberta.encoder.layer", |_, module| {
        let linear = |name: &str, from, to| Linear::new(format!("{module}.{name}"), from, to, true);
        let own = |name: &str| linear(&format!("attention.self.{name}"), hidden, hidden);
        let made = |shared_name: &str, name: &str| own(if shared { shared_name } else { name });
        let factor = 1 + usize::from(to_distance) + usize::from(from_distance);
        let attention = RelativeAttention {
            heads,
            width,
            projections: Projections {
                q: own("query_proj"),
                k: own("key_proj"),
                v: own("value_proj"),
            },
            output: linear("attention.output.dense", hidden, hidden),
            scale: 1.0 / ((width * factor) as f64).sqrt(),
            distances: Distances::Vectors {
                name: "deberta.encoder.rel_embeddings.weight".into(),
                count: 2 * scale.span(),
                norm: normed.then(|| norm("deberta.encoder.LayerNorm".into())),
                keys: to_distance.then(|| made("key_proj", "pos_key_proj")),
                queries: from_distance.then(|| made("query_proj", "pos_query_proj")),
            },
            rows: rows.clone(),
        };
        let mlp = Plain {
            up: linear("intermediate.dense", hidden, inner),
            down: linear("output.dense", inner, hidden),
            activation,
        };
        let norms = ["attention.output.LayerNorm", "output.LayerNorm"];
        Ok(post_norm(
            attention,
            mlp,
            norms.map(|name| norm(format!("{module}.{name}"))),
        ))
    });
    let mut embedding = embedding(reader, "deberta", 0, epsilon)?;
    embedding.types = embedding
        .types
        .filter(|_| fields.get("type_vocab_size").is_some());
    if !reader.flag_or("position_biased_input", true)? {
        embedding.positions = None;
    }
    let classifier = match output(reader, "classifier")? {
        None => None,
        Some(output) => {
            let activation = reader.activation_at("pooler_hidden_act", Activation::Gelu)?;
            Some(Classifier {
                of: Reduce::First,
                dense: Some((
                    Linear::new("pooler.dense", hidden, hidden, true),
                    activation,
                )),
                norm: None,
                output,
            })
        }
    };
    Ok(Encoder {
        embedding,
        layers: layers?,
        norm: None,
        pooler: None,
        classifier,
        context: reader.config.context,
    })
}
