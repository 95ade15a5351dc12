//! OLMo Hybrid: a gated delta rule in most layers, attention with norms after each part in the others.

use super::parts::{Defaults, Parts};
use super::qwen3_next::{attends, sizes};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::config::fields::Fields;
use crate::decoder::{Branch, Convolution, Decoder, GatedDelta, Layer, Linear, Norm};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["olmo_hybrid"],
    title: "OLMo Hybrid",
    category: Category::Recurrent,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = Parts::read(reader, Defaults::default())?;
    let attends = attends(reader)?;
    // Without a base of it, nothing turns.
    let settings = reader.fields.object("rope_parameters")?;
    let has = |inner: &Fields<'_>| inner.get("rope_theta").is_some();
    let turns = has(&reader.fields) || settings.is_some_and(|inner| has(&inner));
    parts.decoder(|index, module| {
        // The names of the checkpoint and of transformers.
        let norm = |names: [&str; 2]| {
            let has = |name: &&str| reader.weights.has(&format!("{module}.{name}.weight"));
            let name = names.into_iter().find(has).unwrap_or(names[0]);
            parts.rms(module, name)
        };
        let middle = norm(["feedforward_layer_norm", "post_attention_layernorm"]);
        if attends[index] {
            let mut attention = parts.attention(module);
            attention.rope = attention.rope.filter(|_| turns);
            let [q, k] = parts.whole_norms(module, ["q_norm", "k_norm"]);
            (attention.query_norm, attention.key_norm) = (q, k);
            let last = parts.rms(module, "post_feedforward_layernorm");
            return Ok(Layer::sequential([
                Branch::new(None, attention).then(middle),
                Branch::new(None, parts.gated(module)).then(last),
            ]));
        }
        let before = norm(["attention_layer_norm", "input_layernorm"]);
        let delta = delta(&parts, &format!("{module}.linear_attn"))?;
        Ok(Layer::sequential([
            Branch::new(before, delta),
            Branch::new(middle, parts.gated(module)),
        ]))
    })
}

fn delta(parts: &Parts<'_>, module: &str) -> Result<GatedDelta, LoadError> {
    let (reader, hidden) = (parts.reader, parts.hidden);
    let [key_heads, value_heads, key, value] = sizes(reader)?;
    let (keys, values) = (key_heads * key, value_heads * value);
    let named = |name: &str| format!("{module}.{name}");
    let linear = |name: &str, to| Linear::new(named(name), hidden, to, false);
    let kernel = reader.width_or(&["linear_conv_kernel_dim"], 4)?;
    let activation = Some(parts.activation);
    let conv = |name: &str, channels| {
        Convolution::new(&named(name), [channels, kernel], false, activation)
    };
    // Transformers cuts its one convolution into three parts of about the same size on saving, which
    // are not those of queries, keys and values.
    let names = ["q_conv1d", "k_conv1d", "v_conv1d"];
    let rows = |name: &str| reader.weights.rows(&named(&format!("{name}.weight")));
    let convolutions = match names.map(rows) {
        [Some(q), Some(k), Some(v)] if q + k + v == 2 * keys + values => names
            .into_iter()
            .zip([q, k, v])
            .map(|(name, rows)| conv(name, rows))
            .collect(),
        [None, ..] => vec![conv("conv1d", 2 * keys + values)],
        _ => names
            .into_iter()
            .zip([keys, keys, values])
            .map(|(name, to)| conv(name, to))
            .collect(),
    };
    let doubled = reader.flag_or("linear_allow_neg_eigval", true)?;
    Ok(GatedDelta {
        key_heads,
        value_heads,
        widths: [key, value],
        projections: vec![
            linear("q_proj", keys),
            linear("k_proj", keys),
            linear("v_proj", values),
        ],
        convolutions,
        share: linear("b_proj", value_heads),
        share_scale: if doubled { 2.0 } else { 1.0 },
        decay: vec![linear("a_proj", value_heads)],
        rate: [named("A_log"), named("dt_bias")],
        gate: vec![linear("g_proj", values)],
        gate_activation: Activation::Silu,
        norm: Norm::rms(named("o_norm"), value, 1e-5),
        output: Linear::new(named("o_proj"), values, hidden, false),
    })
}
