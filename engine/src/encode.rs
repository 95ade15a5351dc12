//! Vectors and scores of texts, by an encoder.

use crate::{Backend, OpenError};
use mlxcel_frontend::{
    EncoderInfo, LoadError, LoadOptions, Model, Pooling, Prompts, Reduce, Text, TextError,
};
use mlxcel_ir::interpret::{Interpreter, States};
use mlxcel_ir::{Bindings, Graph, HostTensor, Symbol, step};
use mlxcel_runtime_mlx::{Device, Function};
use std::path::Path;

/// How an encoder is opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncoderOptions {
    /// What executes it: MLX if not given.
    pub backend: Option<Backend>,
    /// Which states of a text become its vector; by default as the model's files say.
    pub reduce: Option<Reduce>,
    /// Whether vectors get length 1; by default as the model's files say.
    pub normalize: Option<bool>,
    /// The most tokens of a text, special ones included; by default what the model takes.
    pub longest: Option<usize>,
    /// What is done to a model's weights when they are loaded.
    pub load: LoadOptions,
}

/// Why texts could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// A text could not be cut into tokens.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The interpreter failed.
    #[error(transparent)]
    Interpret(#[from] mlxcel_ir::interpret::InterpretError),
    /// MLX failed.
    #[error(transparent)]
    Mlx(#[from] mlxcel_runtime_mlx::Error),
    /// A token id does not fit the graph's i32 input.
    #[error("token {0} is not a token id")]
    Token(u32),
    /// The model gives no such thing.
    #[error("{model} gives no {what}: {reason}")]
    Lacks {
        /// The model's name.
        model: String,
        /// What was asked for.
        what: &'static str,
        /// Why, and what to do.
        reason: String,
    },
}

/// The tokens of a text, or of a query and a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Token ids, special ones included.
    pub tokens: Vec<u32>,
    /// The kind of each token: 0 in the first text, 1 in the second.
    pub types: Vec<u32>,
}

/// An output of an encoder's graph; [`mlxcel_ir::step`] has the names.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its elements, row-major.
    pub values: Vec<f32>,
}

/// An encoder ready to run.
pub struct Encoder {
    name: String,
    family: String,
    info: EncoderInfo,
    longest: usize,
    model: Model,
    execution: Execution,
}

enum Execution {
    Mlx(Function),
    Reference(Graph, Box<Interpreter<f32>>),
}

impl Encoder {
    /// Opens the model folder at `path`.
    ///
    /// # Errors
    /// A file that is missing or broken, a model that is not an encoder, a backend that does not run
    /// encoders.
    pub fn open(path: &Path, options: &EncoderOptions) -> Result<Self, OpenError> {
        if mlxcel_frontend::artifact::is_artifact(path) || options.backend == Some(Backend::Iree) {
            return Err(OpenError::EncoderBackend {
                path: path.to_path_buf(),
            });
        }
        let mut model = Model::load_with(path, &options.load)?;
        let mut info = model.encoder().ok_or_else(|| LoadError::WrongKind {
            path: path.to_path_buf(),
            reason: "it is a language model, which gives text: take an encoder, or `mlxcel run`"
                .into(),
        })?;
        let Pooling { reduce, normalize } = &mut info.pooling;
        *reduce = options.reduce.unwrap_or(*reduce);
        *normalize = options.normalize.unwrap_or(*normalize);
        model = model.with_pooling(info.pooling);
        let graph = model.encoder_graph("encode", false)?;
        let longest = model.context();
        let longest = match options.longest {
            Some(asked) if asked > longest => {
                return Err(OpenError::Context {
                    path: path.to_path_buf(),
                    asked,
                    available: longest,
                    hint: "",
                });
            }
            asked => asked.unwrap_or(longest),
        };
        let weights = model.weights();
        let execution = match options.backend {
            Some(Backend::Reference) => {
                let interpreter = Interpreter::new(&graph, weights);
                let interpreter = interpreter.map_err(crate::SessionError::runtime)?;
                Execution::Reference(graph, Box::new(interpreter))
            }
            _ => Execution::Mlx(Function::new(&graph, &weights, Device::Cpu)?),
        };
        Ok(Self {
            name: model.name().into(),
            family: model.family().into(),
            info,
            longest,
            model,
            execution,
        })
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The model's family.
    pub fn family(&self) -> &str {
        &self.family
    }

    /// What a user should know of how the model was loaded, in sentences.
    pub fn notes(&self) -> &[String] {
        self.model.notes()
    }

    /// Texts that the model expects before others.
    ///
    /// # Errors
    /// A file that is broken.
    pub fn prompts(&self) -> Result<Prompts, LoadError> {
        self.model.prompts()
    }

    /// What the model gives.
    pub fn info(&self) -> EncoderInfo {
        self.info
    }

    /// The most tokens of a text, special ones included.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The tokenizer, which cuts texts to [`Encoder::longest`].
    ///
    /// # Errors
    /// A file that is missing or broken.
    pub fn text(&self) -> Result<Text, OpenError> {
        let mut text = self.model.text()?;
        text.truncate_at(self.longest)
            .map_err(|error| OpenError::Session(crate::SessionError::runtime(error)))?;
        Ok(text)
    }

    /// The vector of each passage, `info().width` elements long, in their order. `done` is told how
    /// many are ready.
    ///
    /// # Errors
    /// What the execution says.
    pub fn vectors(
        &self,
        passages: &[Passage],
        batch: usize,
        done: &mut dyn FnMut(usize),
    ) -> Result<Vec<Vec<f32>>, EncodeError> {
        self.rows(passages, batch, step::EMBEDDING, done)
    }

    /// The score of each passage, in their order.
    ///
    /// # Errors
    /// The model has no classifier with one score; what the execution says.
    pub fn scores(
        &self,
        passages: &[Passage],
        batch: usize,
        done: &mut dyn FnMut(usize),
    ) -> Result<Vec<f32>, EncodeError> {
        let reason = match self.info.scores {
            1 => None,
            0 => Some("it has no classifier; take a cross-encoder, or compare vectors".into()),
            many => Some(format!("its classifier tells {many} classes apart")),
        };
        if let Some(reason) = reason {
            return Err(EncodeError::Lacks {
                model: self.name.clone(),
                what: "score of a query and a document",
                reason,
            });
        }
        let rows = self.rows(passages, batch, step::SCORES, done)?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// The rows of an output, in batches of passages that are about equally long.
    fn rows(
        &self,
        passages: &[Passage],
        batch: usize,
        output: &str,
        done: &mut dyn FnMut(usize),
    ) -> Result<Vec<Vec<f32>>, EncodeError> {
        let mut order: Vec<usize> = (0..passages.len()).collect();
        order.sort_by_key(|&index| passages[index].tokens.len());
        let mut rows = vec![Vec::new(); passages.len()];
        let mut ready = 0;
        for members in order.chunks(batch.max(1)) {
            let batch: Vec<&Passage> = members.iter().map(|&index| &passages[index]).collect();
            let outputs = self.run(&batch)?;
            let values = outputs.into_iter().find(|found| found.name == output);
            let values = values.map(|found| found.values).unwrap_or_default();
            let width = values.len() / members.len();
            for (&index, row) in members.iter().zip(values.chunks(width.max(1))) {
                rows[index] = row.to_vec();
            }
            ready += members.len();
            done(ready);
        }
        Ok(rows)
    }

    /// All outputs for a batch of passages, the shorter ones padded at their ends.
    ///
    /// # Errors
    /// What the execution says.
    pub fn run(&self, batch: &[&Passage]) -> Result<Vec<Output>, EncodeError> {
        let longest = batch.iter().map(|passage| passage.tokens.len()).max();
        let size = [batch.len(), longest.unwrap_or(0).max(1)];
        let padded = |of: fn(&Passage) -> &[u32]| {
            let rows = batch.iter().flat_map(|passage| {
                let values = of(passage).iter().copied();
                values.chain(std::iter::repeat(0)).take(size[1])
            });
            rows.map(|value| i32::try_from(value).map_err(|_| EncodeError::Token(value)))
                .collect::<Result<Vec<i32>, _>>()
        };
        let lengths = batch.iter().map(|passage| passage.tokens.len() as i32);
        let inputs = [
            (
                step::TOKENS,
                HostTensor::i32(size, &padded(|row| &row.tokens)?),
            ),
            (step::START, HostTensor::i32([size[0]], &vec![0; size[0]])),
            (
                step::LENGTH,
                HostTensor::i32([size[0]], &lengths.collect::<Vec<_>>()),
            ),
            (
                step::TOKEN_TYPES,
                HostTensor::i32(size, &padded(|row| &row.types)?),
            ),
        ];
        let bindings = Bindings::new()
            .with(Symbol::B, size[0])
            .with(Symbol::T, size[1])
            .with(Symbol::S, size[1]);
        let output = |name: String, shape: Vec<usize>, values: Vec<f64>| Output {
            name,
            shape,
            values: values.into_iter().map(|value| value as f32).collect(),
        };
        Ok(match &self.execution {
            Execution::Mlx(function) => {
                let outputs = function.call(&bindings, &inputs)?.into_iter();
                outputs
                    .map(|(name, tensor)| output(name, tensor.shape.clone(), tensor.to_f64()))
                    .collect()
            }
            Execution::Reference(graph, interpreter) => {
                let outputs = interpreter.run(&bindings, &inputs, &mut States::new(graph))?;
                outputs
                    .into_iter()
                    .map(|(name, tensor)| output(name, tensor.shape.clone(), tensor.to_f64()))
                    .collect()
            }
        })
    }
}
