//! ERNIE 4.5 with experts.

use super::{Category, Family, Names, ernie4_5};
use crate::LoadError;
use crate::config::{Reader, limit};
use crate::decoder::{Decoder, Experts, Gated, Linear, Normal, Router, Scores};

pub(super) const FAMILY: Family = Family {
    model_types: &["ernie4_5_moe"],
    title: "ERNIE 4.5 MoE",
    category: Category::Experts,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let parts = ernie4_5::parts(reader)?;
    let (hidden, bias, activation) = (parts.hidden, parts.mlp_bias, parts.activation);
    let [count, chosen] = reader.experts()?;
    let inner = reader.width("moe_intermediate_size")?;
    let shared = reader
        .count_or("moe_num_shared_experts", 2)?
        .min(limit::LAYERS);
    let first = reader.count_or("moe_layer_start_index", 1)?;
    // -1 stands for the last layer.
    let last = match reader.fields.number("moe_layer_end_index")? {
        Some(last) if last >= 0.0 => last as usize,
        _ => usize::MAX,
    };
    let period = reader.width_or(&["moe_layer_interval"], 1)?;
    let mut decoder = parts.decoder(|index, module| {
        let attention = parts.attention(module);
        let sparse = (index + 1).is_multiple_of(period) && (first..=last).contains(&index);
        if !sparse {
            return Ok(parts.pre_norm(module, attention, parts.gated(module)));
        }
        let within = format!("{module}.mlp");
        let gate = Linear::new(format!("{within}.gate"), hidden, count, false);
        let mut router = Router::new(gate, chosen, Scores::Softmax);
        let correction = format!("{within}.moe_statics.e_score_correction_bias");
        router.correction = Some(format!("{correction}({count})"));
        router.normal = Normal::AtLeast(reader.positive_or(&["moe_norm_min"], 1e-12)?);
        let sizes = [hidden, inner];
        let mut experts = Experts::new(reader.weights, &within, router, sizes, activation);
        if shared > 0 {
            let name = format!("{within}.shared_experts");
            let mlp = Gated::new(&name, [hidden, shared * inner], bias, activation);
            experts = experts.with_shared(mlp, None);
        }
        Ok(parts.pre_norm(module, attention, experts))
    })?;
    if bias {
        // A head that is the embedding has a bias of its own.
        let size = [hidden, reader.config.vocabulary];
        let mut head = Linear::new("lm_head", size[0], size[1], true);
        if decoder.head.linear.is_none() {
            head.weight = format!("{}.weight", decoder.embedding.module);
        }
        decoder.head.linear = Some(head);
    }
    Ok(decoder)
}
