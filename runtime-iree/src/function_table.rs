//! Which compiled function serves which call.

use crate::signature::tensor_type;
use crate::{Error, Module};
use mlxcel_frontend::artifact::{Function, Manifest};
use mlxcel_ir::DType;
use mlxcel_ir::step::{LOGITS, TOKEN, Want};

/// After which tokens a function returns logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogitsOf {
    /// `[B, V]`, after the last real token.
    Last,
    /// `[B, T, V]`, after each token.
    Every,
}

impl LogitsOf {
    /// The type of the output `logits` of `function`.
    pub(crate) fn tensor(self, function: &Function, vocabulary: usize) -> String {
        let Function { batch, tokens, .. } = *function;
        match self {
            LogitsOf::Last => tensor_type(DType::F32, &[batch, vocabulary]),
            LogitsOf::Every => tensor_type(DType::F32, &[batch, tokens, vocabulary]),
        }
    }

    /// Which of the two `function` returns, if its output `logits` has the type `output`.
    pub(crate) fn read(function: &Function, vocabulary: usize, output: &str) -> Option<Self> {
        [LogitsOf::Last, LogitsOf::Every]
            .into_iter()
            .find(|kind| kind.tensor(function, vocabulary) == output)
    }
}

/// A function of the module.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Rows of a call.
    pub(crate) rows: usize,
    /// New tokens of each row.
    pub(crate) tokens: usize,
    /// Names of its outputs before the caches.
    pub(crate) outputs: Vec<String>,
    /// What its output `logits` holds, if it has one.
    pub(crate) logits: Option<LogitsOf>,
}

impl Entry {
    /// The position of the output that holds what is wanted.
    pub(crate) fn position(&self, want: Want) -> Option<usize> {
        let wanted = output_for(want)?;
        self.outputs.iter().position(|output| output == wanted)
    }

    fn serves(&self, want: Want) -> bool {
        match want {
            Want::Nothing => true,
            Want::Token | Want::Logits => self.position(want).is_some(),
            // The last of one token is every one.
            Want::AllLogits => match self.logits {
                Some(LogitsOf::Every) => true,
                Some(LogitsOf::Last) => self.tokens == 1,
                None => false,
            },
        }
    }

    /// Elements that a call computes for outputs, in units that only order functions.
    fn weight(&self, want: Want) -> (bool, usize) {
        let spare = self.logits == Some(LogitsOf::Every) && want != Want::AllLogits;
        (spare, self.outputs.len())
    }
}

/// The functions, by rows, tokens and outputs.
pub(crate) struct FunctionTable(Vec<Entry>);

impl FunctionTable {
    /// The functions of an artifact. Those for several rows are left out: rows run one by one.
    ///
    /// # Errors
    /// [`Error::UnknownFunction`] if the module lacks one.
    pub(crate) fn new(manifest: &Manifest, module: &Module) -> Result<Self, Error> {
        let entries = manifest.functions.iter().map(|function| {
            let signature = module.function(&function.name)?;
            let position = function.outputs.iter().position(|name| name == LOGITS);
            let logits = position
                .and_then(|index| signature.outputs.get(index))
                .and_then(|output| LogitsOf::read(function, manifest.vocabulary, output));
            Ok(Entry {
                name: function.name.clone(),
                rows: function.batch,
                tokens: function.tokens,
                outputs: function.outputs.clone(),
                logits,
            })
        });
        Ok(Self(entries.collect::<Result<_, Error>>()?))
    }

    /// The function for `rows` rows of `tokens` tokens that returns what is wanted and the least besides.
    pub(crate) fn find(&self, rows: usize, tokens: usize, want: Want) -> Option<&Entry> {
        self.0
            .iter()
            .filter(|entry| (entry.rows, entry.tokens) == (rows, tokens) && entry.serves(want))
            .min_by_key(|entry| entry.weight(want))
    }

    /// The numbers of tokens that there are functions of one row for which return what is wanted.
    pub(crate) fn sizes(&self, want: Want) -> Vec<usize> {
        self.0
            .iter()
            .filter(|entry| entry.rows == 1 && entry.serves(want))
            .map(|entry| entry.tokens)
            .collect()
    }

    /// The function to call when `rows` rows of `tokens` tokens are left: the smallest that takes all of
    /// them if they are more than half of its rows, else the largest that they fill.
    pub(crate) fn best(&self, rows: usize, tokens: usize, want: Want) -> Option<&Entry> {
        let fits = |entry: &&Entry| entry.tokens == tokens && entry.serves(want);
        let sizes = self.0.iter().filter(fits).map(|entry| entry.rows);
        let worth = sizes.filter(|&size| size < 2 * rows.max(1));
        let size = worth.min_by_key(|&size| (size < rows, size.abs_diff(rows)))?;
        self.find(size, tokens, want)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, tokens: usize, outputs: &[&str], logits: Option<LogitsOf>) -> Entry {
        Entry {
            name: name.into(),
            rows: 1,
            tokens,
            outputs: outputs.iter().map(|output| output.to_string()).collect(),
            logits,
        }
    }

    #[test]
    fn finds_the_leanest_function() {
        let table = FunctionTable(vec![
            entry("decode", 1, &[LOGITS, TOKEN], Some(LogitsOf::Last)),
            entry("every", 32, &[LOGITS], Some(LogitsOf::Every)),
            entry("prefill", 32, &[LOGITS], Some(LogitsOf::Last)),
            entry("chunk", 32, &[], None),
        ]);
        let check = |tokens, want, expect: Option<&str>| {
            let found = table.find(1, tokens, want).map(|entry| entry.name.as_str());
            assert_eq!(found, expect, "{tokens} {want:?}");
        };
        check(1, Want::Token, Some("decode"));
        check(1, Want::Logits, Some("decode"));
        check(1, Want::AllLogits, Some("decode"));
        check(32, Want::Nothing, Some("chunk"));
        check(32, Want::Logits, Some("prefill"));
        check(32, Want::AllLogits, Some("every"));
        check(32, Want::Token, None);
        check(8, Want::Nothing, None);
        assert_eq!(table.sizes(Want::Token), [1]);
        assert_eq!(table.sizes(Want::AllLogits), [1, 32]);
        assert_eq!(table.sizes(Want::Nothing), [1, 32, 32, 32]);
    }

    #[test]
    fn finds_the_best_number_of_rows() {
        let table = |sizes: &[usize]| {
            let entry = |&rows: &usize| Entry {
                rows,
                ..entry("decode", 1, &[TOKEN], None)
            };
            FunctionTable(sizes.iter().map(entry).collect())
        };
        let check = |sizes: &[usize], rows, expect: usize| {
            let table = table(sizes);
            let best = table.best(rows, 1, Want::Token).map(|entry| entry.rows);
            assert_eq!(best, Some(expect), "{rows} of {sizes:?}");
        };
        for (rows, expect) in [
            (1, 1),
            (2, 2),
            (3, 4),
            (4, 4),
            (5, 8),
            (8, 8),
            (9, 8),
            (80, 8),
        ] {
            check(&[1, 2, 4, 8], rows, expect);
        }
        check(&[1, 8], 2, 1);
        check(&[1, 8], 4, 1);
        check(&[1, 8], 5, 8);
        check(&[1], 7, 1);
        assert!(table(&[1, 2]).best(2, 9, Want::Token).is_none());
        assert!(table(&[1, 2]).best(2, 1, Want::Logits).is_none());
    }

    #[test]
    fn tells_the_last_logits_from_all() {
        let function = Function {
            name: "f".into(),
            batch: 1,
            tokens: 8,
            outputs: vec![LOGITS.into()],
        };
        let check = |output, expect| {
            assert_eq!(LogitsOf::read(&function, 100, output), expect, "{output}");
        };
        check("tensor<1x100xf32>", Some(LogitsOf::Last));
        check("tensor<1x8x100xf32>", Some(LogitsOf::Every));
        check("tensor<1x7x100xf32>", None);
        check("tensor<1x100xf16>", None);
    }
}
