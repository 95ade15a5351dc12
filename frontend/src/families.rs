//! The model families: one small file each, which reads a configuration into a [`Decoder`].

mod afmoe;
mod albert;
mod apertus;
mod arcee;
mod bamba;
mod bert;
mod bitnet;
mod bloom;
mod cohere;
mod cohere2;
mod cwm;
mod dbrx;
mod deberta_v2;
mod deepseek;
mod defaults;
mod distilbert;
mod dots1;
mod electra;
mod ernie4_5;
mod ernie4_5_moe;
mod exaone;
mod exaone4;
mod exaone_moe;
mod falcon;
mod falcon_h1;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma3n;
mod gemma4;
mod glm;
mod glm4;
mod glm4_moe;
mod gpt2;
mod gpt_bigcode;
mod gpt_neox;
mod gpt_oss;
mod gptj;
mod granite;
mod granitemoe;
mod granitemoehybrid;
mod helium;
mod hunyuan_v1_dense;
mod internlm2;
mod internlm3;
mod jais2;
mod jamba;
mod kimi_linear;
mod lfm2;
mod llama;
mod llama4;
mod mamba;
mod minicpm;
mod minimax;
mod ministral;
mod ministral3;
mod mistral;
mod mixtral;
mod modernbert;
mod mpnet;
mod mpt;
mod nemotron;
mod nemotron_h;
mod nomic_bert;
mod olmo;
mod olmo2;
mod olmo3;
mod olmo_hybrid;
mod olmoe;
mod opt;
mod parts;
mod phi;
mod phi3;
mod phimoe;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_next;
mod recurrent_gemma;
mod roberta;
mod rwkv;
mod rwkv7;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;
mod zamba2;

use crate::LoadError;
use crate::config::fields::Fields;
use crate::config::{Reader, language};
use crate::decoder::Decoder;
use crate::encoder::Encoder;
pub(crate) use crate::weights::names::Names;
pub(crate) use defaults::complete;
use serde_json::Value;
use std::path::Path;

/// What a family is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Attention and feed-forward layers.
    Dense,
    /// With a choice of experts.
    Experts,
    /// With memories in place of some or all caches.
    Recurrent,
    /// Gives vectors or scores, not text.
    Encoder,
}

impl Category {
    /// The word in catalogues.
    pub fn name(self) -> &'static str {
        match self {
            Category::Dense => "dense",
            Category::Experts => "experts",
            Category::Recurrent => "recurrent",
            Category::Encoder => "encoder",
        }
    }
}

/// A family of models.
#[derive(Debug)]
pub(crate) struct Family {
    /// The values of `model_type` in config.json, the family's own name first.
    pub(crate) model_types: &'static [&'static str],
    /// What people call it.
    pub(crate) title: &'static str,
    pub(crate) category: Category,
    /// How its tensors are named.
    pub(crate) names: Names,
    /// Reads its decoder.
    pub(crate) decoder: fn(&Reader<'_>) -> Result<Decoder, LoadError>,
}

impl Family {
    /// The family's name.
    pub(crate) fn name(&self) -> &'static str {
        self.model_types.first().copied().unwrap_or_default()
    }
}

/// Every family, in alphabetical order.
pub(crate) const FAMILIES: &[Family] = &[
    afmoe::FAMILY,
    apertus::FAMILY,
    arcee::FAMILY,
    bamba::FAMILY,
    bitnet::FAMILY,
    bloom::FAMILY,
    cohere2::FAMILY,
    cohere::FAMILY,
    cwm::FAMILY,
    dbrx::FAMILY,
    deepseek::GLM4_LITE,
    deepseek::V2,
    deepseek::V3,
    dots1::FAMILY,
    ernie4_5::FAMILY,
    ernie4_5_moe::FAMILY,
    exaone4::FAMILY,
    exaone::FAMILY,
    exaone_moe::FAMILY,
    falcon::FAMILY,
    falcon_h1::FAMILY,
    gemma2::FAMILY,
    gemma3::FAMILY,
    gemma3n::FAMILY,
    gemma4::FAMILY,
    gemma::FAMILY,
    glm4::FAMILY,
    glm4_moe::FAMILY,
    glm::FAMILY,
    gpt2::FAMILY,
    gpt_bigcode::FAMILY,
    gpt_neox::FAMILY,
    gpt_oss::FAMILY,
    gptj::FAMILY,
    granite::FAMILY,
    granitemoe::FAMILY,
    granitemoehybrid::FAMILY,
    helium::FAMILY,
    hunyuan_v1_dense::FAMILY,
    internlm2::FAMILY,
    internlm3::FAMILY,
    jais2::FAMILY,
    jamba::FAMILY,
    kimi_linear::FAMILY,
    lfm2::FAMILY,
    lfm2::MOE,
    llama4::FAMILY,
    llama::FAMILY,
    mamba::FALCON,
    mamba::FAMILY,
    mamba::MAMBA2,
    minicpm::FAMILY,
    minicpm::LATENT,
    minimax::FAMILY,
    ministral3::FAMILY,
    ministral::FAMILY,
    mistral::FAMILY,
    mixtral::FAMILY,
    mpt::FAMILY,
    nemotron::FAMILY,
    nemotron_h::FAMILY,
    olmo2::FAMILY,
    olmo3::FAMILY,
    olmo::FAMILY,
    olmo_hybrid::FAMILY,
    olmoe::FAMILY,
    opt::FAMILY,
    phi3::FAMILY,
    phi::FAMILY,
    phimoe::FAMILY,
    qwen2::FAMILY,
    qwen2_moe::FAMILY,
    qwen2_moe::QWEN3,
    qwen3::FAMILY,
    qwen3_next::DENSE,
    qwen3_next::FAMILY,
    qwen3_next::MOE,
    recurrent_gemma::FAMILY,
    rwkv7::FAMILY,
    rwkv::FAMILY,
    seed_oss::FAMILY,
    smollm3::FAMILY,
    stablelm::FAMILY,
    starcoder2::FAMILY,
    zamba2::FAMILY,
];

/// A family of encoders.
#[derive(Debug)]
pub(crate) struct EncoderFamily {
    /// The values of `model_type` in config.json, the family's own name first.
    pub(crate) model_types: &'static [&'static str],
    /// What people call it.
    pub(crate) title: &'static str,
    /// How its tensors are named.
    pub(crate) names: Names,
    /// Reads its encoder.
    pub(crate) encoder: fn(&Reader<'_>) -> Result<Encoder, LoadError>,
}

/// Every family of encoders, in alphabetical order.
pub(crate) const ENCODERS: &[EncoderFamily] = &[
    albert::FAMILY,
    bert::FAMILY,
    deberta_v2::FAMILY,
    distilbert::FAMILY,
    electra::FAMILY,
    modernbert::FAMILY,
    mpnet::FAMILY,
    nomic_bert::FAMILY,
    roberta::FAMILY,
];

/// A family of either kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Of language models.
    Decoder(&'static Family),
    /// Of encoders.
    Encoder(&'static EncoderFamily),
}

impl Kind {
    /// The family's name.
    pub(crate) fn name(self) -> &'static str {
        let types = match self {
            Kind::Decoder(family) => family.model_types,
            Kind::Encoder(family) => family.model_types,
        };
        types.first().copied().unwrap_or_default()
    }

    /// How its tensors are named.
    pub(crate) fn names(self) -> Names {
        match self {
            Kind::Decoder(family) => family.names,
            Kind::Encoder(family) => family.names,
        }
    }
}

/// The family with `name` among its values of `model_type`.
pub(crate) fn find(name: &str) -> Option<Kind> {
    let decoder = FAMILIES
        .iter()
        .find(|family| family.model_types.contains(&name));
    let encoder = ENCODERS
        .iter()
        .find(|family| family.model_types.contains(&name));
    decoder.map(Kind::Decoder).or(encoder.map(Kind::Encoder))
}

/// The `model_type` of every supported family.
pub fn supported() -> Vec<String> {
    let decoders = FAMILIES.iter().flat_map(|family| family.model_types);
    let encoders = ENCODERS.iter().flat_map(|family| family.model_types);
    decoders
        .chain(encoders)
        .map(|name| name.to_string())
        .collect()
}

/// What a catalogue says of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyInfo {
    /// Its name, the first of its values of `model_type`.
    pub id: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// What it is made of.
    pub category: Category,
    /// Its values of `model_type` in config.json.
    pub model_types: &'static [&'static str],
    /// The architecture that GGUF files call it, if they are read.
    pub gguf: Option<&'static str>,
}

/// Every family.
pub fn catalogue() -> Vec<FamilyInfo> {
    let info = |family: &'static Family| FamilyInfo {
        id: family.model_types.first().copied().unwrap_or_default(),
        title: family.title,
        category: family.category,
        model_types: family.model_types,
        gguf: crate::gguf::name(family),
    };
    let encoder = |family: &'static EncoderFamily| FamilyInfo {
        id: family.model_types.first().copied().unwrap_or_default(),
        title: family.title,
        category: Category::Encoder,
        model_types: family.model_types,
        gguf: None,
    };
    let decoders = FAMILIES.iter().map(info);
    decoders.chain(ENCODERS.iter().map(encoder)).collect()
}

/// The family that the configuration `value` of `file` asks for: by the type of its language model,
/// else by that of the whole.
///
/// # Errors
/// The field is missing, or the family is not supported.
pub(crate) fn choose(file: &Path, value: &Value) -> Result<Kind, LoadError> {
    let field = "model_type";
    let outer = Fields::root(file, value)?;
    let inner = Fields::root(file, language(value))?;
    let types = [inner.text(field)?, outer.text(field)?];
    let found = types.into_iter().flatten();
    if let Some(family) = found.clone().find_map(find) {
        return Ok(family);
    }
    let found = found.last().ok_or_else(|| outer.missing(field))?;
    Err(LoadError::Family {
        file: file.to_path_buf(),
        field: field.into(),
        found: found.into(),
        supported: supported(),
    })
}
