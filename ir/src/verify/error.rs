//! Where a graph is not legal, and why.

use std::fmt;

/// The part of a graph that is not legal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The function as a whole.
    Function,
    /// The input of this name.
    Input(String),
    /// The weight of this name.
    Weight(String),
    /// The state of this name.
    State(String),
    /// A node.
    Node {
        /// The number of its value, as in the text form.
        value: usize,
        /// The op's name in the text form.
        op: &'static str,
        /// The node's name.
        name: Option<String>,
    },
    /// The output of this name.
    Output(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Function => f.write_str("declaration"),
            Place::Input(name) => write!(f, "input {name:?}"),
            Place::Weight(name) => write!(f, "weight {name:?}"),
            Place::State(name) => write!(f, "state {name:?}"),
            Place::Output(name) => write!(f, "output {name:?}"),
            Place::Node { value, op, name } => {
                write!(f, "node %{value} `{op}`")?;
                match name {
                    Some(name) => write!(f, " {name:?}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Why a graph is not legal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("function {function:?}, {place}: {reason}")]
pub struct VerifyError {
    /// The function's name.
    pub function: String,
    /// The part of it.
    pub place: Place,
    /// The rule that it breaks.
    pub reason: String,
}
