//! Attributes: the constant parameters of an op, and how each kind stands in the text form.

use crate::{Bindings, DType};
use std::fmt;

/// The value of an attribute as the text form has it.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// A whole number.
    Integer(i64),
    /// A real number, printed so that it reads back to the same bits.
    Float(f64),
    /// A word: `true`, `half`, `f32`.
    Word(String),
    /// A list, in brackets.
    List(Vec<AttributeValue>),
    /// A word with arguments, in parentheses.
    Call(String, Vec<AttributeValue>),
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, items: &[AttributeValue]| {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    f.write_str(", ")?;
                }
                write!(f, "{item}")?;
            }
            Ok(())
        };
        match self {
            AttributeValue::Integer(value) => write!(f, "{value}"),
            AttributeValue::Float(value) => write!(f, "{value:?}"),
            AttributeValue::Word(word) => f.write_str(word),
            AttributeValue::List(items) => {
                f.write_str("[")?;
                list(f, items)?;
                f.write_str("]")
            }
            AttributeValue::Call(name, items) => {
                write!(f, "{name}(")?;
                list(f, items)?;
                f.write_str(")")
            }
        }
    }
}

/// A Rust type that an attribute can have.
pub trait Attribute: Sized {
    /// The text form, or `None` for an absent optional attribute.
    fn to_value(&self) -> Option<AttributeValue>;

    /// What the text form may be, in words that follow "expected".
    fn expected() -> String;

    /// Reads the text form; `None` stands for an attribute that was not written.
    ///
    /// # Errors
    /// What was expected, in words that follow "expected".
    fn from_value(value: Option<&AttributeValue>) -> Result<Self, String>;

    /// The attribute with its symbols replaced, where `bindings` binds them.
    fn bind(&self, _: &Bindings) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }
}

impl Attribute for usize {
    fn to_value(&self) -> Option<AttributeValue> {
        Some(AttributeValue::Integer(*self as i64))
    }

    fn expected() -> String {
        "a whole number".into()
    }

    fn from_value(value: Option<&AttributeValue>) -> Result<Self, String> {
        match value {
            Some(AttributeValue::Integer(value)) if *value >= 0 => Ok(*value as usize),
            _ => Err(Self::expected()),
        }
    }
}

impl Attribute for u8 {
    fn to_value(&self) -> Option<AttributeValue> {
        Some(AttributeValue::Integer(i64::from(*self)))
    }

    fn expected() -> String {
        "a whole number up to 255".into()
    }

    fn from_value(value: Option<&AttributeValue>) -> Result<Self, String> {
        match value {
            Some(AttributeValue::Integer(value)) => {
                u8::try_from(*value).map_err(|_| Self::expected())
            }
            _ => Err(Self::expected()),
        }
    }
}

impl Attribute for f64 {
    fn to_value(&self) -> Option<AttributeValue> {
        Some(AttributeValue::Float(*self))
    }

    fn expected() -> String {
        "a number".into()
    }

    fn from_value(value: Option<&AttributeValue>) -> Result<Self, String> {
        match value {
            Some(AttributeValue::Float(value)) => Ok(*value),
            Some(AttributeValue::Integer(value)) => Ok(*value as f64),
            _ => Err(Self::expected()),
        }
    }
}

impl Attribute for bool {
    fn to_value(&self) -> Option<AttributeValue> {
        Some(AttributeValue::Word(self.to_string()))
    }

    fn expected() -> String {
        "true or false".into()
    }

    fn from_value(value: Option<&AttributeValue>) -> Result<Self, String> {
        match value {
            Some(AttributeValue::Word(word)) if word == "true" => Ok(true),
            Some(AttributeValue::Word(word)) if word == "false" => Ok(false),
            _ => Err(Self::expected()),
        }
    }
}

impl Attribute for DType {
    fn to_value(&self) -> Option<AttributeValue> {
        Some(AttributeValue::Word(self.name().into()))
    }

    fn expected() -> String {
        "an element type".into()
    }

    fn from_value(value: Option<&AttributeValue>) -> Result<Self, String> {
        match value {
            Some(AttributeValue::Word(word)) => word.parse().ok(),
            _ => None,
        }
        .ok_or_else(Self::expected)
    }
}

impl Attribute for crate::Dim {
    fn to_value(&self) -> Option<AttributeValue> {
        Some(match self {
            crate::Dim::Fixed(size) => AttributeValue::Integer(*size as i64),
            crate::Dim::Symbol(symbol) => AttributeValue::Word(symbol.name().into()),
        })
    }

    fn expected() -> String {
        "a dimension".into()
    }

    fn from_value(value: Option<&AttributeValue>) -> Result<Self, String> {
        match value {
            Some(AttributeValue::Integer(size)) if *size >= 0 => {
                Some(crate::Dim::Fixed(*size as usize))
            }
            Some(AttributeValue::Word(word)) => crate::Symbol::ALL
                .into_iter()
                .find(|symbol| symbol.name() == word)
                .map(crate::Dim::Symbol),
            _ => None,
        }
        .ok_or_else(Self::expected)
    }

    fn bind(&self, bindings: &Bindings) -> Self {
        bindings.apply(*self)
    }
}

impl<A: Attribute + Clone> Attribute for Vec<A> {
    fn to_value(&self) -> Option<AttributeValue> {
        Some(AttributeValue::List(
            self.iter().filter_map(Attribute::to_value).collect(),
        ))
    }

    fn expected() -> String {
        format!("a list of {}", plural(&A::expected()))
    }

    fn from_value(value: Option<&AttributeValue>) -> Result<Self, String> {
        match value {
            Some(AttributeValue::List(items)) => {
                items.iter().map(|item| A::from_value(Some(item))).collect()
            }
            _ => Err(Self::expected()),
        }
    }

    fn bind(&self, bindings: &Bindings) -> Self {
        self.iter().map(|item| item.bind(bindings)).collect()
    }
}

impl<A: Attribute> Attribute for Option<A> {
    fn to_value(&self) -> Option<AttributeValue> {
        self.as_ref().and_then(Attribute::to_value)
    }

    fn expected() -> String {
        format!("{}, or left out", A::expected())
    }

    fn from_value(value: Option<&AttributeValue>) -> Result<Self, String> {
        value.map(|value| A::from_value(Some(value))).transpose()
    }
}

/// "a number" as "numbers".
fn plural(one: &str) -> String {
    let one = one.split_once(' ').map_or(one, |(_, noun)| noun);
    format!("{one}s")
}

/// Declares an enum whose members are words in the text form.
macro_rules! word_attribute {
    ($(#[$doc:meta])* $name:ident { $($(#[$member_doc:meta])* $member:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$member_doc])* $member,)* }

        impl $name {
            /// Every member, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$member,)*];

            /// The word in the text form.
            pub fn name(self) -> &'static str {
                match self { $($name::$member => $word,)* }
            }
        }

        impl Attribute for $name {
            fn to_value(&self) -> Option<AttributeValue> {
                Some(AttributeValue::Word(self.name().into()))
            }

            fn expected() -> String {
                [$($word),*].join(" or ")
            }

            fn from_value(value: Option<&AttributeValue>) -> Result<Self, String> {
                match value {
                    $(Some(AttributeValue::Word(word)) if word == $word => Ok($name::$member),)*
                    _ => Err(Self::expected()),
                }
            }
        }
    };
}

word_attribute! {
    /// How two numbers are compared.
    Comparison {
        /// Equal.
        Equal = "eq",
        /// Not equal.
        NotEqual = "ne",
        /// Less than.
        Less = "lt",
        /// Less than or equal.
        LessEqual = "le",
        /// Greater than.
        Greater = "gt",
        /// Greater than or equal.
        GreaterEqual = "ge",
    }
}

word_attribute! {
    /// What a reduction computes.
    Reduction {
        /// The sum.
        Sum = "sum",
        /// The largest element.
        Max = "max",
        /// The smallest element.
        Min = "min",
    }
}

word_attribute! {
    /// A nonlinearity.
    Activation {
        /// `x * sigmoid(x)`.
        Silu = "silu",
        /// `x * Φ(x)` with the error function.
        Gelu = "gelu",
        /// The tanh approximation of GELU.
        GeluTanh = "gelu_tanh",
        /// `max(x, 0)`.
        Relu = "relu",
        /// `max(x, 0)²`.
        Relu2 = "relu2",
        /// `x * sigmoid(1.702 x)`.
        QuickGelu = "quick_gelu",
        /// The hyperbolic tangent.
        Tanh = "tanh",
        /// `1 / (1 + e^-x)`.
        Sigmoid = "sigmoid",
        /// `ln(1 + e^x)`.
        Softplus = "softplus",
    }
}

word_attribute! {
    /// Which elements of a head rotary embedding turns together.
    Pairing {
        /// Element `i` with element `i + dims / 2`.
        Half = "half",
        /// Element `2 i` with element `2 i + 1`.
        Interleaved = "interleaved",
    }
}

word_attribute! {
    /// Which cached positions a query may see.
    Mask {
        /// Its own position and all before it.
        Causal = "causal",
        /// Every position of its row.
        Full = "full",
    }
}

word_attribute! {
    /// What a state is.
    StateKind {
        /// A key-value cache, which grows with the sequence.
        Cache = "cache",
        /// A memory of fixed size, which each token changes.
        Memory = "memory",
    }
}

word_attribute! {
    /// One of the buffers of a state.
    StatePart {
        /// The keys of a cache.
        Key = "key",
        /// The values of a cache.
        Value = "value",
        /// All of a memory.
        Whole = "whole",
    }
}

/// How rotary frequencies are stretched to contexts longer than those of training.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// The rule of Llama 3: long wavelengths divided by `factor`, short ones kept, a ramp between.
    Llama3 {
        /// The divisor of long wavelengths.
        factor: f64,
        /// `original / low` is the wavelength above which the divisor applies fully.
        low: f64,
        /// `original / high` is the wavelength below which frequencies are kept.
        high: f64,
        /// Context length of training.
        original: f64,
    },
    /// YaRN: pairs that turn less than `slow` times within `original` positions are divided by
    /// `factor`, those that turn more than `fast` times are kept, a ramp over the pairs between.
    Yarn {
        /// The divisor of slow pairs.
        factor: f64,
        /// Turns above which a pair is kept.
        fast: f64,
        /// Turns below which a pair is divided.
        slow: f64,
        /// Context length of training.
        original: f64,
        /// Whether the ends of the ramp are moved outwards to whole pairs.
        whole: bool,
    },
    /// The frequency of each pair divided by a factor of its own; infinity stands for no turning.
    Factors(Vec<f64>),
}

impl Attribute for RopeScaling {
    fn to_value(&self) -> Option<AttributeValue> {
        let call = |name: &str, items: &[f64]| {
            Some(AttributeValue::Call(
                name.into(),
                items
                    .iter()
                    .map(|&item| AttributeValue::Float(item))
                    .collect(),
            ))
        };
        match *self {
            RopeScaling::None => None,
            RopeScaling::Factors(ref factors) => call("factors", factors),
            RopeScaling::Yarn {
                factor,
                fast,
                slow,
                original,
                whole,
            } => call(
                "yarn",
                &[factor, fast, slow, original, f64::from(u8::from(whole))],
            ),
            RopeScaling::Linear { factor } => call("linear", &[factor]),
            RopeScaling::Llama3 {
                factor,
                low,
                high,
                original,
            } => call("llama3", &[factor, low, high, original]),
        }
    }

    fn expected() -> String {
        "linear(factor), llama3(factor, low, high, original), yarn(factor, fast, slow, original, \
         whole) or factors(one, for, each, pair), or left out"
            .into()
    }

    fn from_value(value: Option<&AttributeValue>) -> Result<Self, String> {
        let Some(value) = value else {
            return Ok(RopeScaling::None);
        };
        if let AttributeValue::Call(name, items) = value {
            let items: Vec<f64> = items
                .iter()
                .map(|item| f64::from_value(Some(item)))
                .collect::<Result<_, _>>()?;
            match (name.as_str(), items.as_slice()) {
                ("linear", &[factor]) => return Ok(RopeScaling::Linear { factor }),
                ("factors", factors) => return Ok(RopeScaling::Factors(factors.to_vec())),
                ("yarn", &[factor, fast, slow, original, whole])
                    if whole == 0.0 || whole == 1.0 =>
                {
                    return Ok(RopeScaling::Yarn {
                        factor,
                        fast,
                        slow,
                        original,
                        whole: whole == 1.0,
                    });
                }
                ("llama3", &[factor, low, high, original]) => {
                    return Ok(RopeScaling::Llama3 {
                        factor,
                        low,
                        high,
                        original,
                    });
                }
                _ => {}
            }
        }
        Err(Self::expected())
    }
}
