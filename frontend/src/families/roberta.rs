//! RoBERTa and XLM-RoBERTa: BERT whose positions start after that of the padding token.

use super::bert::{base, two_layers};
use super::{EncoderFamily, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::encoder::Encoder;
use mlxcel_ir::Activation;

pub(super) const FAMILY: EncoderFamily = EncoderFamily {
    model_types: &["roberta", "xlm-roberta", "camembert"],
    title: "RoBERTa",
    names: Names {
        root: "roberta",
        transposed: &[],
    },
    encoder,
};

fn encoder(reader: &Reader<'_>) -> Result<Encoder, LoadError> {
    let padding = reader.count_or("pad_token_id", 1)?;
    let mut encoder = base(reader, "roberta", padding + 1)?;
    let names = ["classifier.dense", "classifier.out_proj"];
    encoder.classifier = two_layers(reader, names, Activation::Tanh)?;
    Ok(encoder)
}
