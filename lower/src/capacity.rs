//! How many tokens a cache holds.
//!
//! A cache that is only read through a window needs no row for every token of the context. It keeps a
//! window and what one call adds, and the row of position `p` is `p` modulo their number: when a call has
//! written its tokens, padding too, the last window before its first token is still there.

use crate::FunctionSpec;
use mlxcel_ir::{Graph, Node, Op, StateId, StateKind, Symbol};

/// The most tokens of a row that one call of any of the functions adds.
pub(crate) fn most_tokens<'f>(functions: impl IntoIterator<Item = &'f FunctionSpec>) -> usize {
    let tokens = functions
        .into_iter()
        .filter_map(|function| function.bindings.get(Symbol::T));
    tokens.max().unwrap_or(1)
}

/// How many positions before a token, itself included, anything reads of the cache `state`; `None` if
/// that is not bounded.
pub(crate) fn window(graph: &Graph, state: StateId) -> Option<usize> {
    if graph.state(state)?.kind != StateKind::Cache {
        return None;
    }
    let seen = |node: &Node| match &node.op {
        // A slope counts from the first position on.
        Op::Attention {
            window,
            chunk,
            slopes,
            ..
        } if slopes.is_empty() => window.iter().chain(chunk).min().copied(),
        _ => None,
    };
    let users = graph
        .nodes
        .iter()
        .filter(|node| node.state == Some(state))
        .map(seen);
    // Nothing that reads it is no bound either.
    users.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Rows of the cache `state` where the context is of `context` tokens. With `most`, the tokens that a call
/// adds at most, it may rotate.
pub(crate) fn rows(graph: &Graph, state: StateId, context: usize, most: Option<usize>) -> usize {
    let rotating = most
        .zip(window(graph, state))
        .map(|(most, window)| window.saturating_add(most));
    rotating.map_or(context, |rows| rows.min(context))
}
