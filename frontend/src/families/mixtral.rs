//! Mixtral: a Mistral with a choice of experts.

use super::llama::{attention, common, pre_norm};
use super::{Category, Family, Names};
use crate::LoadError;
use crate::config::{Reader, Rope};
use crate::decoder::{Decoder, Experts, Linear, Router, Scores};
use mlxcel_ir::Activation;

pub(super) const FAMILY: Family = Family {
    model_types: &["mixtral"],
    title: "Mixtral",
    category: Category::Experts,
    gguf: "",
    gguf_paired: true,
    names: Names::MODEL,
    decoder,
};

fn decoder(reader: &Reader<'_>) -> Result<Decoder, LoadError> {
    let hidden = reader.config.hidden;
    let [_, _, width] = reader.heads()?;
    let rope = Rope::read(reader, width)?;
    let [count, chosen] = reader.experts()?;
    let inner = reader.width("intermediate_size")?;
    let window = reader.window()?;
    common(reader, rope.context, |_, module| {
        let within = format!("{module}.self_attn");
        let mut attention = attention(reader, &within, rope.clone(), [false, false])?;
        attention.window = window;
        let module_of_experts = format!("{module}.block_sparse_moe");
        let gate = Linear::new(format!("{module_of_experts}.gate"), hidden, count, false);
        let router = Router::new(gate, chosen, Scores::SoftmaxChosen);
        let activation = reader.activation(Activation::Silu)?;
        let sizes = [hidden, inner];
        let experts = Experts::new(
            reader.weights,
            &module_of_experts,
            router,
            sizes,
            activation,
        );
        pre_norm(reader, module, attention, experts)
    })
}
