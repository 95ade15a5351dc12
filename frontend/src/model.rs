//! A model on disk, and the graphs it has.

use crate::adapter::{self, Adapter};
use crate::checkpoint::Checkpoint;
use crate::config::fields::Fields;
use crate::config::{Reader, language};
use crate::decoder::Decoder;
use crate::encoder::{self, Causal, Classifier, Encoder, Modules, Pooling, Prompts};
use crate::families::{self, Kind};
use crate::surgery::{self, Heads};
use crate::text::TextFiles;
use crate::weights::Weights;
use crate::{Config, LoadError, Text, gguf, map};
use mlxcel_ir::{DType, Graph, WeightSource};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which logits a graph gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Logits {
    /// None.
    None,
    /// `[B, V]`: those after each row's last token, at position `length - 1`.
    #[default]
    Last,
    /// `[B, T, V]`: those after every token.
    All,
}

/// What a model's graph shall give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphOptions {
    /// The function's name.
    pub name: String,
    /// Which logits.
    pub logits: Logits,
    /// Whether to give `token` `i32[B]`, the most likely next token of each row.
    pub token: bool,
    /// Whether to give `hidden.N` `f32[B, T, H]` after each layer, `f32[S, B, T, H]` of a model with
    /// `S` residual streams.
    pub hidden: bool,
}

impl Default for GraphOptions {
    /// The logits after the last token, by a function called `step`.
    fn default() -> Self {
        Self {
            name: "step".into(),
            logits: Logits::Last,
            token: false,
            hidden: false,
        }
    }
}

/// What is done to a model's weights when it is loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadOptions {
    /// The element type of its matrices that are not quantised, f32, f16 or bf16, as if it were stored so; that of
    /// its files if none. Numbers are rounded to the nearest.
    pub dtype: Option<DType>,
    /// The file of a surgery on its weights, done before an adapter is loaded.
    pub surgery: Option<PathBuf>,
    /// The adapter to load with it.
    pub adapter: Option<Adapter>,
}

/// What an encoder gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderInfo {
    /// How a text's states become one vector.
    pub pooling: Pooling,
    /// How many kinds of tokens it tells apart; 0 if none, in which case what it is told of them does
    /// not matter.
    pub token_types: usize,
    /// How many scores its classifier gives; 0 if it has none.
    pub scores: usize,
    /// Elements of a vector.
    pub width: usize,
}

/// What a model's graph is made from.
#[derive(Clone, Debug)]
enum Body {
    Decoder(Arc<Decoder>),
    Causal(Arc<Causal>, Modules),
    Encoder(Arc<Encoder>, Modules),
}

/// A model: its configuration, weights and text files, checked against each other when loaded.
#[derive(Clone, Debug)]
pub struct Model {
    path: PathBuf,
    name: String,
    family: &'static str,
    config: Config,
    body: Body,
    weights: Arc<Weights>,
    notes: Vec<String>,
}

/// Name of the configuration in a model folder.
pub(crate) const CONFIG: &str = "config.json";

impl Model {
    /// Loads the model at `path`: a folder as Hugging Face and MLX publish them, or a `.gguf` file, or a
    /// folder with one; of a model in several such files any of them.
    /// Weights are mapped, not read.
    ///
    /// # Errors
    /// A file that is missing or broken, a configuration that is not supported, tensors that do not
    /// fit it.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::load_with(path, &LoadOptions::default())
    }

    /// Loads the model at `path` as [`Model::load`] does, and changes it as `options` say.
    ///
    /// # Errors
    /// As for [`Model::load`], and what cannot be changed so.
    pub fn load_with(path: &Path, options: &LoadOptions) -> Result<Self, LoadError> {
        let mut model = match path.is_file() {
            true => Self::load_file(&gguf::parts::first(path))?,
            false => Self::load_folder(path)?,
        };
        model.change(options)?;
        // Building the graph looks up every tensor, so that what is wrong shows now.
        adapter::check_used(&model.weights, &model.main_graph()?)?;
        Ok(model)
    }

    /// The graph of what the model is for: text, or vectors and scores.
    pub(crate) fn main_graph(&self) -> Result<Graph, LoadError> {
        match &self.body {
            Body::Decoder(_) => self.graph(&GraphOptions::default()),
            Body::Causal(..) | Body::Encoder(..) => self.encoder_graph("encode", false),
        }
    }

    /// Changes the weights as `options` say.
    fn change(&mut self, options: &LoadOptions) -> Result<(), LoadError> {
        let heads = match &options.surgery {
            Some(_) => Heads::of(&self.graph(&GraphOptions::default())?),
            None => Heads::default(),
        };
        // Nothing shares the weights of a model that is being loaded.
        let Some(weights) = Arc::get_mut(&mut self.weights) else {
            return Ok(());
        };
        if let Some(dtype) = options.dtype
            && weights.convert(dtype)? == 0
        {
            self.notes.push(format!(
                "no weight changed to {}: the matrices are quantised, or have it already",
                dtype.name()
            ));
        }
        if let Some(file) = &options.surgery {
            self.notes.extend(surgery::apply(weights, file, heads)?);
        }
        if let Some(adapter) = &options.adapter {
            adapter::apply(weights, adapter)?;
        }
        Ok(())
    }

    fn load_file(path: &Path) -> Result<Self, LoadError> {
        if path.extension().is_none_or(|extension| extension != "gguf") {
            return Err(LoadError::NotAModel {
                path: path.to_path_buf(),
                reason: "it is a file, and its name does not end in .gguf".into(),
            });
        }
        let loaded = gguf::load(path)?;
        let family = Kind::Decoder(loaded.family);
        let modules = Modules::default();
        Self::assembled(
            path,
            (path, &loaded.fields),
            family,
            loaded.weights,
            modules,
        )
    }

    fn load_folder(path: &Path) -> Result<Self, LoadError> {
        let file = path.join(CONFIG);
        if !file.is_file() {
            if path.is_dir()
                && let Some(file) = gguf::parts::of_folder(path)?
            {
                return Self::load_file(&file);
            }
            return Err(LoadError::NotAModel {
                path: path.to_path_buf(),
                reason: match path.exists() {
                    true => format!("it has no {CONFIG}"),
                    false => "there is no such file or folder".into(),
                },
            });
        }
        let mut value = map::read_json(&file, map::CONFIG)?;
        let family = families::choose(&file, &value)?;
        let assumed = families::complete(&mut value, family.name());
        let config = Config::parse(&file, &value)?;
        let mut checkpoint = Checkpoint::open(path)?;
        let modules = Modules::read(path)?;
        modules.add_weights(&mut checkpoint)?;
        let mut weights =
            Weights::assemble(checkpoint, config.quantization.as_ref(), family.names())?;
        weights.assumed = assumed;
        Self::assembled(path, (&file, &value), family, weights, modules)
    }

    /// The model at `path` with the configuration `value` of `file`.
    fn assembled(
        path: &Path,
        (file, value): (&Path, &Value),
        family: Kind,
        weights: Weights,
        modules: Modules,
    ) -> Result<Self, LoadError> {
        let mut config = Config::parse(file, value)?;
        let reader = Reader {
            fields: Fields::root(file, language(value))?,
            config: &config,
            weights: &weights,
        };
        let (body, context) = match family {
            Kind::Decoder(family) => {
                let decoder = (family.decoder)(&reader)?;
                let context = decoder.context.map(|context| context.growing);
                let context = context.unwrap_or(config.context);
                match encoder::classifies(value) || encoder::has_modules(path) {
                    true => {
                        let longest = encoder::longest(path)?.unwrap_or(context);
                        let causal = Arc::new(Causal::new(decoder, &reader)?);
                        (Body::Causal(causal, modules), longest.min(context))
                    }
                    false => (Body::Decoder(Arc::new(decoder)), context),
                }
            }
            Kind::Encoder(family) => {
                let encoder = (family.encoder)(&reader)?;
                let longest = encoder::longest(path)?;
                let context = longest.map_or(encoder.context, |most| most.min(encoder.context));
                (Body::Encoder(Arc::new(encoder), modules), context)
            }
        };
        config.context = context;
        Ok(Self {
            path: path.to_path_buf(),
            name: name_of(path),
            family: family.name(),
            config,
            body,
            notes: weights.notes.clone(),
            weights: Arc::new(weights),
        })
    }

    /// The model's name: that of its folder or file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a user should know of how it was loaded, in sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The model's family, as `model_type` names it.
    pub fn family(&self) -> &str {
        self.family
    }

    /// Where the model is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The model's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.config.layers
    }

    /// Width of the logits (V).
    pub fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    /// Tokens that the model was made to attend over.
    pub fn context(&self) -> usize {
        self.config.context
    }

    /// Tokens of a text that the model is given in one step. They are more than [`Model::context`] where
    /// rotary embedding turns the tokens of longer texts otherwise, from the first on.
    pub fn longest(&self) -> usize {
        match &self.body {
            Body::Decoder(decoder) => decoder.context.map(|context| context.whole),
            Body::Causal(..) | Body::Encoder(..) => None,
        }
        .unwrap_or(self.config.context)
    }

    /// The weights.
    pub(crate) fn stored(&self) -> &Weights {
        &self.weights
    }

    /// The bytes of the weights. Each part is aligned to its element type.
    pub fn weights(&self) -> Arc<dyn WeightSource> {
        self.weights.clone()
    }

    /// The model's graph, with the inputs of [`mlxcel_ir::step`] and the outputs of `options`. Its
    /// states are `cache.N`, one for each layer.
    ///
    /// # Errors
    /// The model is an encoder. None for a language model that loaded; the type says what building
    /// found.
    pub fn graph(&self, options: &GraphOptions) -> Result<Graph, LoadError> {
        let decoder = match &self.body {
            Body::Decoder(decoder) => Some(decoder.as_ref()),
            Body::Causal(causal, _) if causal.classifier.is_none() => Some(&causal.decoder),
            Body::Causal(..) | Body::Encoder(..) => None,
        };
        match decoder {
            Some(decoder) => decoder.graph(&self.config.model_type, &self.weights, options),
            None => Err(LoadError::WrongKind {
                path: self.path.clone(),
                reason:
                    "it is an encoder, which gives vectors or scores, not text: see `mlxcel embed` \
                         and `mlxcel rerank`"
                        .into(),
            }),
        }
    }

    /// What the model gives if it is an encoder.
    pub fn encoder(&self) -> Option<EncoderInfo> {
        let (modules, types, classifier) = match &self.body {
            Body::Decoder(_) => return None,
            Body::Causal(causal, modules) => (modules, None, &causal.classifier),
            Body::Encoder(encoder, modules) => (
                modules,
                encoder.embedding.types.as_ref(),
                &encoder.classifier,
            ),
        };
        let scores = |classifier: &Classifier| classifier.output.to;
        Some(EncoderInfo {
            pooling: modules.pooling,
            token_types: types.map_or(0, |(_, rows)| *rows),
            scores: classifier.as_ref().map_or(0, scores),
            width: modules.width(self.config.hidden),
        })
    }

    /// Texts that an encoder expects before others.
    ///
    /// # Errors
    /// A file that is broken.
    pub fn prompts(&self) -> Result<Prompts, LoadError> {
        Prompts::read(&self.path)
    }

    /// The encoder with another way from states to a vector than its files say.
    #[must_use]
    pub fn with_pooling(mut self, other: Pooling) -> Self {
        if let Body::Causal(_, modules) | Body::Encoder(_, modules) = &mut self.body {
            modules.pooling = other;
        }
        self
    }

    /// The graph of an encoder, a function called `name`, with the inputs and outputs that
    /// [`mlxcel_ir::step`] describes; with `hidden` it also gives the states after each layer.
    ///
    /// # Errors
    /// The model is not an encoder.
    pub fn encoder_graph(&self, name: &str, hidden: bool) -> Result<Graph, LoadError> {
        let names = [name, &self.config.model_type];
        match &self.body {
            Body::Encoder(encoder, modules) => encoder.graph(names, &self.weights, modules, hidden),
            Body::Causal(causal, modules) => causal.graph(names, &self.weights, modules, hidden),
            Body::Decoder(_) => Err(LoadError::WrongKind {
                path: self.path.clone(),
                reason: "it is a language model, which gives text, not vectors".into(),
            }),
        }
    }

    /// The model's tokenizer, chat template and end tokens.
    ///
    /// # Errors
    /// A file that is missing or broken.
    pub fn text(&self) -> Result<Text, LoadError> {
        match self.path.is_file() {
            true => gguf::text(&self.path),
            false => Text::from_folder(&self.path),
        }
    }

    /// Whether the model comes with a tokenizer. One that does not takes token ids only.
    pub fn has_text(&self) -> bool {
        self.path.is_file() || TextFiles::present(&self.path)
    }

    /// The sha256, in hexadecimal, of the model's configuration and weights, and of what they were
    /// changed by at load. Reads all of them.
    ///
    /// # Errors
    /// The configuration cannot be read any more.
    pub fn digest(&self) -> Result<String, LoadError> {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        if self.path.is_dir() {
            add(&map::read(&self.path.join(CONFIG), map::CONFIG)?);
        }
        let Weights {
            files,
            recipe,
            ingredients,
            ..
        } = &*self.weights;
        for file in files {
            add(file.bytes());
        }
        if !recipe.is_empty() {
            add(recipe);
        }
        for file in ingredients {
            add(file.bytes());
        }
        let digest = hash.finalize();
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The last component of a path, without a file's extension and the number of a part.
fn name_of(path: &Path) -> String {
    let absolute = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let name = match absolute.is_dir() {
        true => absolute.file_name(),
        false => absolute.file_stem(),
    };
    let name = name.map_or_else(|| "model".into(), |name| name.to_string_lossy());
    match absolute.is_dir() {
        true => name.into_owned(),
        false => gguf::parts::without_number(&name),
    }
}
