//! Small decoders with one of everything: what the oracle is tested on, and what is run step by step.

use crate::case::Case;
use mlxcel_ir::{
    Activation, Bindings, BuildError, Builder, DType, Dim, Graph, Mask, Pairing, RopeScaling,
    StateDecl, StateId, StateKind, Symbol, TensorType, ValueId, WeightDecl, WeightFormat, WeightId,
    step,
};

/// Width of the hidden state.
const WIDTH: usize = 32;
/// Heads, heads of keys and values, and their width.
const HEADS: [usize; 3] = [4, 2, 8];
/// Tokens that there are; the inputs of a [`Case`] are below.
pub const VOCABULARY: usize = 7;

struct Toy {
    builder: Builder,
    start: ValueId,
    length: ValueId,
    form: Form,
}

/// Where logits come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Head {
    /// A matrix of their own.
    #[default]
    Own,
    /// The table of embeddings.
    Tied,
    /// A copy of the table, [`COPY`].
    Copied,
}

/// What a decoder of this module is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Where its logits come from.
    pub head: Head,
    /// Whether its first projection has a low-rank adapter of scale 0.
    pub adapter: bool,
    /// Whether tokens also attend to later ones, so that it cannot be run step by step.
    pub mutual: bool,
    /// Whether there are logits after each token, and not only after the last.
    pub all: bool,
}

/// The name of the table of embeddings.
pub const TABLE: &str = "embedding";
/// The name of its copy.
pub const COPY: &str = "copy";
/// Rank of the adapter.
const RANK: usize = 4;

type Built = Result<ValueId, BuildError>;

impl Toy {
    fn weight(&mut self, name: &str, shape: &[usize], format: WeightFormat) -> WeightId {
        self.builder.weight(WeightDecl {
            name: name.into(),
            shape: shape.to_vec(),
            format,
        })
    }

    fn dense(&mut self, name: &str, shape: &[usize]) -> WeightId {
        self.weight(name, shape, WeightFormat::Dense(DType::F32))
    }

    fn state(&mut self, name: &str, kind: StateKind, [heads, key, value]: [usize; 3]) -> StateId {
        self.builder.state(StateDecl {
            name: name.into(),
            kind,
            heads,
            key_dim: key,
            value_dim: value,
            dtype: DType::F32,
        })
    }

    fn named(&mut self, name: &str, value: Built) -> Built {
        let value = value?;
        self.builder.name(value, name);
        Ok(value)
    }

    fn linear(
        &mut self,
        name: &str,
        x: ValueId,
        [outputs, inputs]: [usize; 2],
        bias: bool,
    ) -> Built {
        let format = match name.ends_with("down") {
            true => WeightFormat::Dense(DType::BF16),
            false => WeightFormat::Affine {
                bits: 4,
                group: 32,
                scale: DType::F32,
            },
        };
        let format = match format.check(&[outputs, inputs]) {
            Ok(()) => format,
            Err(_) => WeightFormat::Dense(DType::F32),
        };
        let weight = self.weight(&format!("{name}.weight"), &[outputs, inputs], format);
        let bias = bias.then(|| self.dense(&format!("{name}.bias"), &[outputs]));
        let y = self.builder.linear(x, weight, bias);
        self.named(name, y)
    }

    /// `y` with what a low-rank adapter of scale 0 makes of `x` added.
    fn adapted(
        &mut self,
        name: &str,
        x: ValueId,
        y: ValueId,
        [outputs, inputs]: [usize; 2],
    ) -> Built {
        let down = self.dense(&format!("{name}.a"), &[RANK, inputs]);
        let up = self.dense(&format!("{name}.b"), &[outputs, RANK]);
        let low = self.builder.linear(x, down, None)?;
        let change = self.builder.linear(low, up, None)?;
        let ty = self.builder.ty(change).clone();
        let scale = self.builder.constant(0.0, ty.dtype, ty.shape)?;
        let change = self.builder.multiply(change, scale)?;
        self.builder.add(y, change)
    }

    /// `x` in heads of a width.
    fn heads(&mut self, name: &str, x: ValueId, heads: usize, width: usize) -> Built {
        let [b, t] = [Symbol::B, Symbol::T].map(Dim::Symbol);
        let y = self
            .builder
            .reshape(x, vec![b, t, Dim::Fixed(heads), Dim::Fixed(width)]);
        self.named(name, y)
    }

    fn joined(&mut self, name: &str, x: ValueId) -> Built {
        let [b, t] = [Symbol::B, Symbol::T].map(Dim::Symbol);
        let y = self.builder.reshape(x, vec![b, t, Dim::Fixed(WIDTH)]);
        self.named(name, y)
    }

    /// A full layer as Llama has it, with norms of queries and stretched rotary embedding.
    fn first(&mut self, x: ValueId) -> Built {
        let [heads, kv_heads, width] = HEADS;
        let weight = self.dense("0.norm.weight", &[WIDTH]);
        let normal = self.builder.rms_norm(x, Some(weight), 1e-6, 1.0);
        let normal = self.named("0.norm", normal)?;
        let q = self.linear("0.q", normal, [heads * width, WIDTH], true)?;
        let q = match self.form.adapter {
            true => self.adapted("0.q", normal, q, [heads * width, WIDTH])?,
            false => q,
        };
        let k = self.linear("0.k", normal, [kv_heads * width, WIDTH], false)?;
        let v = self.linear("0.v", normal, [kv_heads * width, WIDTH], false)?;
        let q = self.heads("0.q.heads", q, heads, width)?;
        let k = self.heads("0.k.heads", k, kv_heads, width)?;
        let v = self.heads("0.v.heads", v, kv_heads, width)?;
        let weight = self.dense("0.q.norm.weight", &[width]);
        let q = self.builder.rms_norm(q, Some(weight), 1e-6, 0.0);
        let q = self.named("0.q.norm", q)?;
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            original: 16.0,
        };
        let start = self.start;
        let rope = |toy: &mut Self, name: &str, x| {
            let y = toy.builder.rope(
                x,
                start,
                width,
                10_000.0,
                Pairing::Half,
                scaling.clone(),
                1.25,
            );
            toy.named(name, y)
        };
        let q = rope(self, "0.q.rope", q)?;
        let k = rope(self, "0.k.rope", k)?;
        let state = self.state("cache.0", StateKind::Cache, [kv_heads, width, width]);
        let scale = 1.0 / (width as f64).sqrt();
        let mixed = self.builder.attention(
            q,
            k,
            v,
            start,
            None,
            state,
            scale,
            Mask::Causal,
            None,
            None,
            None,
            vec![],
        );
        let mixed = self.named("0.attention", mixed)?;
        let mixed = self.joined("0.joined", mixed)?;
        let mixed = self.linear("0.o", mixed, [WIDTH, WIDTH], false)?;
        let x = self.builder.add(x, mixed);
        let x = self.named("0.residual", x)?;
        let gate = self.linear("0.gate", x, [64, WIDTH], false)?;
        let up = self.linear("0.up", x, [64, WIDTH], false)?;
        let gated = self.builder.gated(gate, up, Activation::Silu);
        let gated = self.named("0.gated", gated)?;
        let down = self.linear("0.down", gated, [WIDTH, 64], false)?;
        let x = self.builder.add(x, down);
        self.named("0.hidden", x)
    }

    /// A layer with windows, caps, slopes and sinks, and experts.
    fn second(&mut self, x: ValueId) -> Built {
        let [heads, kv_heads, width] = HEADS;
        let (weight, bias) = (
            self.dense("1.norm.weight", &[WIDTH]),
            self.dense("1.norm.bias", &[WIDTH]),
        );
        let normal = self
            .builder
            .layer_norm(x, Some(weight), Some(bias), 1e-5, 0.0);
        let normal = self.named("1.norm", normal)?;
        let q = self.linear("1.q", normal, [heads * width, WIDTH], false)?;
        let k = self.linear("1.k", normal, [kv_heads * width, WIDTH], false)?;
        let v = self.linear("1.v", normal, [kv_heads * width, WIDTH], false)?;
        let q = self.heads("1.q.heads", q, heads, width)?;
        let k = self.heads("1.k.heads", k, kv_heads, width)?;
        let v = self.heads("1.v.heads", v, kv_heads, width)?;
        let start = self.start;
        let scaling = RopeScaling::Linear { factor: 4.0 };
        let q = self
            .builder
            .rope(q, start, 4, 100.0, Pairing::Interleaved, scaling, 1.0);
        let q = self.named("1.q.rope", q)?;
        let state = self.state("cache.1", StateKind::Cache, [kv_heads, width, width]);
        let sinks = self.dense("1.sinks", &[heads]);
        let slopes = (1..=heads).map(|head| 0.5f64.powi(head as i32)).collect();
        let mixed = self.builder.attention(
            q,
            k,
            v,
            start,
            Some(sinks),
            state,
            0.5,
            Mask::Causal,
            Some(5),
            Some(8),
            Some(2.0),
            slopes,
        );
        let mixed = self.named("1.attention", mixed)?;
        let mixed = self.joined("1.joined", mixed)?;
        let x = self.builder.add(x, mixed);
        let x = self.named("1.residual", x)?;
        // Four experts, of which two are chosen by each token.
        let router = self.linear("1.router", x, [4, WIDTH], false)?;
        let chosen = self.builder.top_k(router, 2);
        let chosen = self.named("1.chosen", chosen)?;
        let picked = self.builder.take_along(router, chosen);
        let picked = self.named("1.picked", picked)?;
        let shares = self.builder.softmax(picked);
        let shares = self.named("1.shares", shares)?;
        let up = self.weight(
            "1.experts.up",
            &[4, 16, WIDTH],
            WeightFormat::Affine {
                bits: 8,
                group: 32,
                scale: DType::F32,
            },
        );
        let inner = self.builder.expert_linear(x, chosen, up, None);
        let inner = self.named("1.experts", inner)?;
        let active = self.builder.activate(inner, Activation::Gelu);
        let active = self.named("1.active", active)?;
        let down = self.dense("1.experts.down", &[4, WIDTH, 16]);
        let outer = self.builder.expert_linear(active, chosen, down, None);
        let outer = self.named("1.outer", outer)?;
        let mixed = self
            .builder
            .dot(shares, outer, vec![0, 1], vec![0, 1], vec![2], vec![2]);
        let mixed = self.named("1.mixed", mixed)?;
        let x = self.builder.add(x, mixed);
        self.named("1.hidden", x)
    }

    /// A layer with memories, and with attention of tokens to each other.
    fn third(&mut self, x: ValueId) -> Built {
        let [heads, kv_heads, width] = HEADS;
        let length = self.length;
        let (weight, bias) = (
            self.dense("2.convolution.weight", &[WIDTH, 4]),
            self.dense("2.convolution.bias", &[WIDTH]),
        );
        let state = self.state("memory.0", StateKind::Memory, [1, 3, WIDTH]);
        let x = self
            .builder
            .causal_convolution(x, length, weight, Some(bias), state);
        let x = self.named("2.convolution", x)?;
        let value = self.heads("2.value", x, heads, width)?;
        let key = self.linear("2.key", x, [kv_heads * width, WIDTH], false)?;
        let key = self.heads("2.key.heads", key, kv_heads, width)?;
        let key = self.builder.softmax(key);
        let key = self.named("2.key.shares", key)?;
        let query = self.linear("2.query", x, [kv_heads * width, WIDTH], false)?;
        let query = self.heads("2.query.heads", query, kv_heads, width)?;
        let decay = self.builder.slice(value, 3, 0, 1, 1)?;
        let decay = self.builder.sigmoid(decay);
        let decay = self.named("2.decay", decay)?;
        let state = self.state("memory.1", StateKind::Memory, [heads, width, width]);
        let read = self
            .builder
            .recurrence(query, key, value, decay, length, state);
        let read = self.named("2.recurrence", read)?;
        let state = self.state("memory.2", StateKind::Memory, [heads, width, width]);
        let learned = self
            .builder
            .delta_recurrence(query, key, value, decay, key, key, length, state);
        let learned = self.named("2.delta", learned)?;
        let both = self.builder.add(read, learned);
        let both = self.named("2.both", both)?;
        let mixed = match self.form.mutual {
            true => {
                let mutual =
                    self.builder
                        .mutual_attention(both, query, query, length, 0.5, Some(3));
                self.named("2.mutual", mutual)?
            }
            false => both,
        };
        let mixed = self.joined("2.joined", mixed)?;
        let x = self.builder.add(x, mixed);
        self.named("2.hidden", x)
    }

    fn model(&mut self, tokens: ValueId) -> Result<(), BuildError> {
        let table = self.dense(TABLE, &[VOCABULARY, WIDTH]);
        let x = self.builder.embedding(tokens, table);
        let x = self.named("embedding", x)?;
        let ty = self.builder.ty(x).clone();
        let scale = self.builder.constant(3.0, ty.dtype, ty.shape)?;
        let x = self.builder.multiply(x, scale);
        let x = self.named("scaled", x)?;
        let x = self.first(x)?;
        let x = self.second(x)?;
        let x = self.third(x)?;
        let weight = self.dense("norm.weight", &[WIDTH]);
        let x = self.builder.rms_norm(x, Some(weight), 1e-6, 0.0);
        let x = self.named("norm", x)?;
        let x = match self.form.all {
            true => x,
            false => self.last(x)?,
        };
        let logits = match self.form.head {
            Head::Own => self.linear("head", x, [VOCABULARY, WIDTH], true)?,
            Head::Tied => self.builder.linear(x, table, None)?,
            Head::Copied => {
                let copy = self.dense(COPY, &[VOCABULARY, WIDTH]);
                self.builder.linear(x, copy, None)?
            }
        };
        let capped = self.builder.tanh(logits);
        let capped = self.named("capped", capped)?;
        self.builder.output(step::LOGITS, capped);
        if !self.form.mutual && !self.form.all {
            let token = self.builder.argmax(capped)?;
            self.builder.output(step::TOKEN, token);
        }
        Ok(())
    }

    /// The row of the last token.
    fn last(&mut self, x: ValueId) -> Built {
        let one = self.builder.ty(self.length).clone();
        let one = self.builder.constant(1.0, one.dtype, one.shape)?;
        let last = self.builder.subtract(self.length, one)?;
        let x = self.builder.take_row(x, last);
        self.named("last", x)
    }
}

/// The graph of a decoder.
///
/// # Errors
/// If the graph is not as the op table wants it, which is a fault of this file.
pub fn graph(form: Form) -> Result<Graph, BuildError> {
    let mut builder = Builder::new("toy");
    let [b, t] = [Symbol::B, Symbol::T].map(Dim::Symbol);
    let tokens = builder.input(step::TOKENS, TensorType::new(DType::I32, [b, t]));
    let start = builder.input(step::START, TensorType::new(DType::I32, [b]));
    let length = builder.input(step::LENGTH, TensorType::new(DType::I32, [b]));
    let mut toy = Toy {
        builder,
        start,
        length,
        form,
    };
    toy.model(tokens)?;
    Ok(toy.builder.finish())
}

/// The decoder with everything, run on two rows of twelve tokens.
///
/// # Errors
/// As [`graph`].
pub fn decoder() -> Result<Case, BuildError> {
    let form = Form {
        mutual: true,
        ..Form::default()
    };
    Ok(Case {
        graph: graph(form)?,
        bindings: Bindings::new()
            .with(Symbol::B, 2)
            .with(Symbol::T, 12)
            .with(Symbol::S, 20),
        seed: 5,
        given: None,
    })
}
