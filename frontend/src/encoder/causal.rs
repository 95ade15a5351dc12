//! Decoders that give vectors or scores: a text's tokens see those before them, and the state of the
//! last one, mostly, is what counts.

use super::{Classifier, Modules, Reduce, results};
use crate::LoadError;
use crate::config::Reader;
use crate::decoder::{Decoder, Linear, Work};
use crate::weights::Weights;
use mlxcel_ir::{DType, Graph, Symbol, TensorType, step};
use serde_json::Value;

/// The name of a decoder's classifier.
const CLASSIFIER: &str = "score";

/// Such a decoder.
#[derive(Debug)]
pub(crate) struct Causal {
    pub(crate) decoder: Decoder,
    pub(crate) classifier: Option<Classifier>,
}

impl Causal {
    /// `decoder` with a classifier, if its files have one.
    ///
    /// # Errors
    /// Its tokens shall see those after them too, which a decoder's do not.
    pub(crate) fn new(decoder: Decoder, reader: &Reader<'_>) -> Result<Self, LoadError> {
        let directions = [("is_causal", false), ("use_bidirectional_attention", true)];
        for (name, both) in directions {
            if reader.fields.get(name) == Some(&Value::Bool(both)) {
                let reason =
                    "asks for attention in both directions, which this family does not have";
                return Err(reader.fields.error(name, reason));
            }
        }
        let classes = reader.weights.rows(&format!("{CLASSIFIER}.weight"));
        let classifier = classes.map(|classes| Classifier {
            of: Reduce::Last,
            dense: None,
            norm: None,
            output: Linear::new(CLASSIFIER, reader.config.hidden, classes, false),
        });
        Ok(Self {
            decoder,
            classifier,
        })
    }

    /// The graph from whole texts to states, vectors and scores, as an encoder's.
    ///
    /// # Errors
    /// A tensor that is missing or of the wrong shape.
    pub(crate) fn graph(
        &self,
        [name, model_type]: [&str; 2],
        weights: &Weights,
        modules: &Modules,
        hidden: bool,
    ) -> Result<Graph, LoadError> {
        let mut work = Work::new(name, model_type, weights);
        let ty = TensorType::new(DType::I32, [Symbol::B, Symbol::T]);
        work.builder.input(step::TOKEN_TYPES, ty);
        let (x, _) = self.decoder.stream(&mut work, hidden)?;
        let x = self.decoder.ended(&mut work, x)?;
        work.builder.output(step::STATES, x);
        results(&mut work, x, modules, self.classifier.as_ref())?;
        Ok(work.builder.finish())
    }
}

/// Whether the configuration `value` is of a decoder with a classifier in place of its head.
pub(crate) fn classifies(value: &Value) -> bool {
    let names = value.get("architectures").and_then(Value::as_array);
    let mut names = names.into_iter().flatten().filter_map(Value::as_str);
    names.any(|name| name.ends_with("ForSequenceClassification"))
}
