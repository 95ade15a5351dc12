//! Which compiled function serves which call.

use mlxcel_frontend::artifact::Function;
use mlxcel_ir::step::{LOGITS, TOKEN, Want};

/// The functions for one row, by tokens and outputs.
pub(crate) struct FunctionTable(Vec<Function>);

impl FunctionTable {
    /// The functions of an artifact. Those for several rows are left out: rows run one by one.
    pub(crate) fn new(functions: &[Function]) -> Self {
        let one_row = functions.iter().filter(|function| function.batch == 1);
        Self(one_row.cloned().collect())
    }

    /// The function for `tokens` tokens that returns what is wanted and the least besides.
    pub(crate) fn find(&self, tokens: usize, want: Want) -> Option<&Function> {
        self.0
            .iter()
            .filter(|function| function.tokens == tokens && serves(function, want))
            .min_by_key(|function| function.outputs.len())
    }

    /// The numbers of tokens that there are functions for which return what is wanted.
    pub(crate) fn sizes(&self, want: Want) -> Vec<usize> {
        self.0
            .iter()
            .filter(|function| serves(function, want))
            .map(|function| function.tokens)
            .collect()
    }
}

/// The output that a function must have for `want`.
pub(crate) fn output_for(want: Want) -> Option<&'static str> {
    match want {
        Want::Nothing => None,
        Want::Token => Some(TOKEN),
        Want::Logits | Want::AllLogits => Some(LOGITS),
    }
}

fn serves(function: &Function, want: Want) -> bool {
    output_for(want).is_none_or(|output| function.outputs.iter().any(|name| name == output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_leanest_function() {
        let function = |name: &str, batch, tokens, outputs: &[&str]| Function {
            name: name.into(),
            batch,
            tokens,
            outputs: outputs.iter().map(|output| output.to_string()).collect(),
        };
        let table = FunctionTable::new(&[
            function("decode", 1, 1, &[LOGITS, TOKEN]),
            function("decode_4", 4, 1, &[TOKEN]),
            function("prefill", 1, 32, &[LOGITS]),
            function("chunk", 1, 32, &[]),
        ]);
        let check = |tokens, want, expect: Option<&str>| {
            let found = table
                .find(tokens, want)
                .map(|function| function.name.as_str());
            assert_eq!(found, expect, "{tokens} {want:?}");
        };
        check(1, Want::Token, Some("decode"));
        check(1, Want::Logits, Some("decode"));
        check(32, Want::Nothing, Some("chunk"));
        check(32, Want::Logits, Some("prefill"));
        check(32, Want::Token, None);
        check(8, Want::Nothing, None);
        assert_eq!(table.sizes(Want::Token), [1]);
        assert_eq!(table.sizes(Want::Nothing), [1, 32, 32]);
    }
}
