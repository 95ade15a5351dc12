//! dots.llm1: norms of query and key heads, experts chosen by sigmoids.

use super::deepseek::{dense_layers, experts, mlp, sigmoid_router};
use super::llama::{attention, common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Block, Decoder, Norm};

pub(super) const FAMILY: Family = Family {
    model_types: &["dots1"],
    title: "dots.llm1",
    category: Category::Experts,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let [_, _, width] = reader.heads()?;
    let epsilon = reader.epsilon()?;
    let rope = Rope::read(reader, width)?;
    let bias = reader.flag_or("attention_bias", false)?;
    let first = reader.count_or("max_window_layers", 62)?;
    let windows = reader.windows(|layer| layer >= first)?;
    let dense = dense_layers(reader, 0)?;
    common(reader, rope.context, |index, module| {
        let within = format!("{module}.self_attn");
        let norm = |name: &str| Norm::rms(format!("{within}.{name}"), width, epsilon);
        let mut attention = attention(reader, &within, rope.clone(), [bias, bias])?
            .with_head_norms(norm("q_norm"), norm("k_norm"));
        attention.window = windows[index];
        let within = format!("{module}.mlp");
        let feed_forward: Box<dyn Block> = match dense[index] {
            true => Box::new(mlp(reader, &within, reader.width("intermediate_size")?)?),
            false => Box::new(experts(reader, &within, sigmoid_router(reader, &within)?)?),
        };
        pre_norm(reader, module, attention, feed_forward)
    })
}
