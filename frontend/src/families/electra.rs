//! ELECTRA, its discriminator: BERT with an embedding of a width of its own and no pooler.

use super::bert::{base, two_layers};
use super::{EncoderFamily, Names};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::Linear;
use crate::encoder::Encoder;
use mlxcel_ir::Activation;

pub(super) const FAMILY: EncoderFamily = EncoderFamily {
    model_types: &["electra"],
    title: "ELECTRA",
    names: Names {
        root: "electra",
        transposed: &[],
    },
    encoder,
};

fn encoder(reader: &Reader<'_>) -> Result<Encoder, LoadError> {
    let mut encoder = base(reader, "electra", 0)?;
    let (width, hidden) = (encoder.embedding.width, reader.config.hidden);
    encoder.embedding.projection =
        (width != hidden).then(|| Linear::new("electra.embeddings_project", width, hidden, true));
    let names = ["classifier.dense", "classifier.out_proj"];
    encoder.classifier = two_layers(reader, names, Activation::Gelu)?;
    Ok(encoder)
}
