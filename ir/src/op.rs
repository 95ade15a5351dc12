//! The op table.
//!
//! Each op is declared once, in the invocation of `op_table!` below: its documentation, name in the
//! text form, tensor operands, weights, state, attributes, the rule that gives its result type and
//! whether it is a primitive or a composite. To add an op, add a row, its rule in [`crate::infer`],
//! and, for a composite, its decomposition; the compiler then names every place that must learn it.

use crate::attribute::{Attribute, AttributeValue};
use crate::builder::{BuildError, Builder, WeightArgument};
use crate::{
    Activation, Bindings, Comparison, DType, Dim, Mask, Pairing, Reduction, RopeScaling, StateId,
    StatePart, TensorType, ValueId, WeightId, infer,
};

/// Whether an op is one of the basic operations or is defined by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// One basic tensor operation.
    Primitive,
    /// An operation with a decomposition into primitives.
    Composite,
}

/// What an op's declaration says about it.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// The name in the text form.
    pub name: &'static str,
    /// The documentation, one line per element.
    pub doc: &'static [&'static str],
    /// Primitive or composite.
    pub layer: Layer,
    /// Names of the tensor operands.
    pub operands: &'static [&'static str],
    /// Names of the weights, and whether each may be left out.
    pub weights: &'static [(&'static str, bool)],
    /// Whether the op reads and writes a state.
    pub state: bool,
    /// Names of the attributes.
    pub attributes: &'static [&'static str],
    /// What each attribute may be, in words that follow "expected".
    pub expected: &'static [fn() -> String],
}

macro_rules! op_table {
    ($(
        $(#[doc = $doc:literal])*
        $layer:ident $variant:ident = $name:ident
            ($($operand:ident),*)
            [$($weight:ident : $weight_type:ty),*]
            $(state $state:ident)?
            {$($attribute:ident : $attribute_type:ty),*}
            => $infer:path;
    )*) => {
        /// An operation with its attributes. Operands, weights and state are the node's.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $(
                $(#[doc = $doc])*
                $variant {
                    $(
                        #[doc = concat!("The attribute `", stringify!($attribute), "`.")]
                        $attribute: $attribute_type,
                    )*
                },
            )*
        }

        impl Op {
            /// The declarations of all ops, in table order.
            pub const TABLE: &'static [OpInfo] = &[$(
                OpInfo {
                    name: stringify!($name),
                    doc: &[$($doc),*],
                    layer: Layer::$layer,
                    operands: &[$(stringify!($operand)),*],
                    weights: &[$((stringify!($weight), <$weight_type as WeightArgument>::OPTIONAL)),*],
                    state: op_table!(@has $($state)?),
                    attributes: &[$(stringify!($attribute)),*],
                    expected: &[$(<$attribute_type as Attribute>::expected),*],
                },
            )*];

            /// The declaration of this op.
            pub fn info(&self) -> &'static OpInfo {
                #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
                enum Index { $($variant),* }
                match self {
                    $(Op::$variant { .. } => &Op::TABLE[Index::$variant as usize],)*
                }
            }

            /// The attributes that are present, with their names.
            pub fn attributes(&self) -> Vec<(&'static str, AttributeValue)> {
                match self {
                    $(Op::$variant { $($attribute),* } => {
                        #[allow(unused_mut)]
                        let mut attributes = Vec::new();
                        $(
                            if let Some(value) = Attribute::to_value($attribute) {
                                attributes.push((stringify!($attribute), value));
                            }
                        )*
                        attributes
                    })*
                }
            }

            /// The op called `name` with the given attributes.
            ///
            /// # Errors
            /// An unknown op, an unknown attribute, or an attribute of the wrong kind.
            pub fn from_text(
                name: &str,
                attributes: &[(String, AttributeValue)],
            ) -> Result<Op, String> {
                #[allow(unused_variables)]
                let find = |wanted: &str| {
                    attributes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value)
                };
                let op = match name {
                    $(stringify!($name) => Op::$variant {
                        $(
                            $attribute: Attribute::from_value(find(stringify!($attribute)))
                                .map_err(|expected| format!(
                                    "attribute `{}` of `{}`: expected {expected}",
                                    stringify!($attribute), name,
                                ))?,
                        )*
                    },)*
                    _ => return Err(format!("unknown op `{name}`")),
                };
                let known = op.info().attributes;
                match attributes.iter().find(|(name, _)| !known.contains(&name.as_str())) {
                    Some((stray, _)) => Err(format!("`{name}` has no attribute `{stray}`")),
                    None => Ok(op),
                }
            }

            /// The op with the symbols of its attributes replaced, where `bindings` binds them.
            #[allow(unused_variables)]
            pub fn bind(&self, bindings: &Bindings) -> Op {
                match self {
                    $(Op::$variant { $($attribute),* } => Op::$variant {
                        $($attribute: Attribute::bind($attribute, bindings),)*
                    },)*
                }
            }

            /// The type of the result, from the types of the operands.
            ///
            /// # Errors
            /// The constraint that the operands, weights or attributes break.
            pub fn infer(&self, site: &infer::Site<'_>) -> Result<TensorType, String> {
                match self {
                    $(Op::$variant { .. } => $infer(self, site),)*
                }
            }
        }

        impl Builder {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// The constraint of the op that the arguments break.
                #[allow(clippy::too_many_arguments)]
                pub fn $name(
                    &mut self,
                    $($operand: ValueId,)*
                    $($weight: $weight_type,)*
                    $($state: StateId,)?
                    $($attribute: $attribute_type,)*
                ) -> Result<ValueId, BuildError> {
                    #[allow(unused_mut)]
                    let mut weights = Vec::new();
                    $(WeightArgument::push($weight, &mut weights);)*
                    #[allow(unused_mut, unused_assignments)]
                    let mut state_argument = None;
                    $(state_argument = Some($state);)?
                    self.push(
                        Op::$variant { $($attribute),* },
                        vec![$($operand),*],
                        weights,
                        state_argument,
                    )
                }
            )*
        }
    };
    (@has) => { false };
    (@has $state:ident) => { true };
}

op_table! {
    // Primitives: sources.

    /// The numbers of a weight, dequantised to f32.
    Primitive Parameter = parameter() [weight: WeightId] {} => infer::parameter;
    /// A tensor whose elements all equal `value`.
    Primitive Constant = constant() [] {value: f64, dtype: DType, shape: Vec<Dim>} => infer::constant;
    /// The vector of the given numbers, each rounded to `dtype`.
    Primitive Table = table() [] {values: Vec<f64>, dtype: DType} => infer::table;
    /// A tensor whose elements equal their index along dimension `dim`.
    Primitive Iota = iota() [] {dim: usize, dtype: DType, shape: Vec<Dim>} => infer::iota;

    // Primitives: element by element.

    /// The same numbers in another element type, rounded to nearest even.
    Primitive Convert = convert(x) [] {dtype: DType} => infer::convert;
    /// `-x`.
    Primitive Negate = negate(x) [] {} => infer::float_unary;
    /// `|x|`.
    Primitive Abs = abs(x) [] {} => infer::float_unary;
    /// `ln(1 + x)`, exact near zero.
    Primitive Log1p = log1p(x) [] {} => infer::float_unary;
    /// `e^x`.
    Primitive Exp = exp(x) [] {} => infer::float_unary;
    /// The natural logarithm.
    Primitive Log = log(x) [] {} => infer::float_unary;
    /// `1 / sqrt(x)`.
    Primitive Rsqrt = rsqrt(x) [] {} => infer::float_unary;
    /// `sqrt(x)`.
    Primitive Sqrt = sqrt(x) [] {} => infer::float_unary;
    /// The sine of an angle in radians.
    Primitive Sin = sin(x) [] {} => infer::float_unary;
    /// The cosine of an angle in radians.
    Primitive Cos = cos(x) [] {} => infer::float_unary;
    /// The hyperbolic tangent.
    Primitive Tanh = tanh(x) [] {} => infer::float_unary;
    /// `1 / (1 + e^-x)`.
    Primitive Sigmoid = sigmoid(x) [] {} => infer::float_unary;
    /// The error function.
    Primitive Erf = erf(x) [] {} => infer::float_unary;
    /// `lhs + rhs`.
    Primitive Add = add(lhs, rhs) [] {} => infer::binary;
    /// `lhs - rhs`.
    Primitive Subtract = subtract(lhs, rhs) [] {} => infer::binary;
    /// `lhs * rhs`.
    Primitive Multiply = multiply(lhs, rhs) [] {} => infer::binary;
    /// `lhs / rhs`; integers truncate towards zero.
    Primitive Divide = divide(lhs, rhs) [] {} => infer::binary;
    /// The larger of two numbers; NaN if either is NaN.
    Primitive Maximum = maximum(lhs, rhs) [] {} => infer::binary;
    /// The smaller of two numbers; NaN if either is NaN.
    Primitive Minimum = minimum(lhs, rhs) [] {} => infer::binary;
    /// `lhs` to the power of `rhs`.
    Primitive Power = power(lhs, rhs) [] {} => infer::binary;
    /// Whether `lhs` stands in the given relation to `rhs`.
    Primitive Compare = compare(lhs, rhs) [] {comparison: Comparison} => infer::compare;
    /// Both.
    Primitive And = and(lhs, rhs) [] {} => infer::logical;
    /// Either.
    Primitive Or = or(lhs, rhs) [] {} => infer::logical;
    /// Not.
    Primitive Not = not(x) [] {} => infer::not;
    /// `on_true` where `condition` holds, else `on_false`.
    Primitive Select = select(condition, on_true, on_false) [] {} => infer::select;

    // Primitives: shape and selection.

    /// The same elements, row-major, in another shape.
    Primitive Reshape = reshape(x) [] {shape: Vec<Dim>} => infer::reshape;
    /// Dimension `i` of the result is dimension `permutation[i]` of `x`.
    Primitive Transpose = transpose(x) [] {permutation: Vec<usize>} => infer::transpose;
    /// Repeats `x` to `shape`: dimension `i` of `x` becomes dimension `dims[i]`, and has either the
    /// result's size there or size 1. `dims` is increasing.
    Primitive Broadcast = broadcast(x) [] {shape: Vec<Dim>, dims: Vec<usize>} => infer::broadcast;
    /// Elements `start .. limit` in steps of `stride` along dimension `dim`.
    Primitive Slice = slice(x) [] {dim: usize, start: usize, limit: usize, stride: usize} => infer::slice;
    /// `lhs` and then `rhs` along dimension `dim`.
    Primitive Concatenate = concatenate(lhs, rhs) [] {dim: usize} => infer::concatenate;
    /// Rows of `table` (its first dimension) chosen by `indices`; each index must be in range.
    Primitive Gather = gather(table, indices) [] {} => infer::gather;
    /// The elements of each row of `x` (its last dimension) that the same row of `indices` names; each
    /// index must be in range. All but the last dimension of both are the same.
    Primitive TakeAlong = take_along(x, indices) [] {} => infer::take_along;
    /// From each row `b` of `x[B, T, ...]` the element `index[b]` along T: `[B, ...]`.
    Primitive TakeRow = take_row(x, index) [] {} => infer::take_row;

    // Primitives: contraction and reduction.

    /// Sums of products over the dimensions `lhs_contract` and `rhs_contract`, for each index of the
    /// dimensions `lhs_batch` and `rhs_batch`. The result has the batch dimensions, then those left
    /// of `lhs`, then those left of `rhs`.
    Primitive Dot = dot(lhs, rhs) [] {
        lhs_batch: Vec<usize>, rhs_batch: Vec<usize>,
        lhs_contract: Vec<usize>, rhs_contract: Vec<usize>
    } => infer::dot;
    /// Reduces the dimension `dim`, which the result keeps with size 1.
    Primitive Reduce = reduce(x) [] {reduction: Reduction, dim: usize} => infer::reduce;
    /// The index of the largest element along the last dimension, which is dropped; the first one
    /// of equals.
    Primitive Argmax = argmax(x) [] {} => infer::argmax;

    /// The indices of the `count` largest elements along the last dimension, the largest first; the
    /// first one of equals.
    Primitive TopK = top_k(x) [] {count: usize} => infer::top_k;

    // Primitives: state.

    /// Writes `rows[B, T, heads, dim]` into the cache at positions `start[b] .. start[b] + T` and
    /// gives the whole buffer `[B, S, heads, dim]`.
    Primitive CacheAppend = cache_append(rows, start) [] state cache {part: StatePart} => infer::cache_append;

    /// A convolution of each channel with itself over time: `y[b, t, c]` is the sum over `j` of
    /// `weight[c, j] * x[b, t - W + 1 + j, c]`, plus `bias[c]`. What lies before the step comes from
    /// the memory `[1, W - 1, C]`, which then holds the last inputs of the first `length[b]` tokens.
    Primitive CausalConvolution = causal_convolution(x, length)
        [weight: WeightId, bias: Option<WeightId>] state memory {} => infer::causal_convolution;
    /// A linear recurrence over time. For each row and head, the memory `m[K, V]` becomes
    /// `decay ⊙ m + key ⊗ value` at each of the first `length[b]` tokens, and the result is
    /// `query · m`. `query` and `key` are `[B, T, G, K]` with heads in `G` groups, `value` is
    /// `[B, T, H, V]`, `decay` is `[B, T, H, K]` or, the same for a whole head, `[B, T, H, 1]`.
    Primitive Recurrence = recurrence(query, key, value, decay, length) [] state memory {}
        => infer::recurrence;
    /// The recurrence of a delta rule: as `recurrence`, but the memory becomes
    /// `n - write ⊗ (erase · n) + key ⊗ value` with `n = decay ⊙ m`. `erase` and `write` are like
    /// `key`.
    Primitive DeltaRecurrence = delta_recurrence(query, key, value, decay, erase, write, length) []
        state memory {} => infer::recurrence;

    // Composites.

    /// Rows of an embedding table `[V, H]` chosen by `tokens`.
    Composite Embedding = embedding(tokens) [table: WeightId] {} => infer::embedding;
    /// `x · weightᵀ + bias` for a weight `[N, K]` and a bias `[N]`.
    Composite Linear = linear(x) [weight: WeightId, bias: Option<WeightId>] {} => infer::linear;
    /// `x · weight[expert]ᵀ + bias[expert]` for each of the `k` experts that `experts[B, T, k]` names.
    /// `x` is `[B, T, K]`, the same for each of them, or `[B, T, k, K]`; the weight is `[E, N, K]`, the
    /// bias `[E, N]`, the result `[B, T, k, N]`.
    Composite ExpertLinear = expert_linear(x, experts) [weight: WeightId, bias: Option<WeightId>] {}
        => infer::expert_linear;
    /// `x / sqrt(mean(x²) + epsilon) * (offset + weight)` along the last dimension; without a weight
    /// there is no second factor.
    Composite RmsNorm = rms_norm(x) [weight: Option<WeightId>] {epsilon: f64, offset: f64}
        => infer::norm;
    /// `(x - mean(x)) / sqrt(variance(x) + epsilon) * (offset + weight) + bias` along the last
    /// dimension; without a weight there is no second factor.
    Composite LayerNorm = layer_norm(x) [weight: Option<WeightId>, bias: Option<WeightId>]
        {epsilon: f64, offset: f64} => infer::norm;
    /// Rotary position embedding of `x[B, T, heads, D]`, whose row `b` starts at position
    /// `start[b]`. The first `dims` elements of each head turn in pairs by `position * frequency`,
    /// with the frequencies of [`crate::rope::frequencies`], and grow by `magnitude`; the rest pass.
    Composite Rope = rope(x, start) [] {
        dims: usize, base: f64, pairing: Pairing, scaling: RopeScaling, magnitude: f64
    } => infer::rope;
    /// Appends `k` and `v` `[B, T, kv_heads, D]` to the cache and lets `q[B, T, heads, D]` attend to
    /// it: `softmax(scale * q · kᵀ) · v`. Query head `h` reads key-value head
    /// `h / (heads / kv_heads)`. With a window of `w`, position `p` sees `p - w + 1 ..= p`; with
    /// chunks of `c`, the positions of its own chunk, `p / c`. A soft-cap of `c` replaces each score
    /// `s` by `c * tanh(s / c)`. `slopes`, one for each head or none, adds `slope * position` to each
    /// score. `sinks[heads]` joins each head's softmax as one more score, whose share is dropped. Keys
    /// and values, the new ones too, are rounded to the element type of the cache.
    Composite Attention = attention(q, k, v, start) [sinks: Option<WeightId>] state cache {
        scale: f64, mask: Mask, window: Option<usize>, chunk: Option<usize>, softcap: Option<f64>,
        slopes: Vec<f64>
    } => infer::attention;
    /// Attention of the tokens of a step to each other, with no cache: `q[B, T, heads, D]` attends to
    /// the first `length[b]` of `k` and `v` `[B, T, kv_heads, D]`, and a padding token to itself too.
    /// With a window of `w`, position `p` sees `p - w ..= p + w`.
    Composite MutualAttention = mutual_attention(q, k, v, length) [] {
        scale: f64, window: Option<usize>
    } => infer::mutual_attention;
    /// The nonlinearity `activation`, element by element.
    Composite Activate = activate(x) [] {activation: Activation} => infer::float_unary;
    /// `activation(gate) * up`, element by element.
    Composite Gated = gated(gate, up) [] {activation: Activation} => infer::binary;
    /// `e^x` divided by its sum along the last dimension.
    Composite Softmax = softmax(x) [] {} => infer::softmax;
}
