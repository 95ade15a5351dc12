//! Which weights a pattern selects, and what its stars stand for.

use super::file::Place;
use crate::LoadError;
use crate::weights::Weights;
use globset::Glob;
use regex::Regex;

/// Names of the weights that `pattern` selects, in order; at least one.
pub(super) fn select(
    weights: &Weights,
    pattern: &str,
    place: &Place,
) -> Result<Vec<String>, LoadError> {
    let glob = Glob::new(pattern)
        .map_err(|error| place.error(format!("`pattern`: {error}")))?
        .compile_matcher();
    let names = weights.stored.keys().filter(|name| glob.is_match(name));
    let mut names: Vec<String> = names.cloned().collect();
    names.sort();
    if names.is_empty() {
        let example = weights.stored.keys().min();
        let example = example.map_or(String::new(), |name| {
            format!(", which are called like `{name}`")
        });
        let reason = format!(
            "`pattern` {pattern} selects none of the model's {} weights{example}; a quantised weight \
             is one, named after its `.weight`",
            weights.stored.len()
        );
        return Err(place.error(reason));
    }
    Ok(names)
}

/// A pattern whose stars are told apart, so that another text can be filled with what they stand for.
pub(super) struct Captures {
    regex: Regex,
}

impl Captures {
    /// The stars of `pattern`, which must have no other wildcard if it has any.
    pub(super) fn new(pattern: &str, place: &Place) -> Result<Self, LoadError> {
        let others = ['?', '[', ']', '{', '}', '\\'];
        if pattern.contains('*') && pattern.contains(others) {
            let reason = "`pattern` must have no wildcard but `*` where `source_key` has one";
            return Err(place.error(reason));
        }
        let parts: Vec<String> = pattern.split('*').map(regex::escape).collect();
        let regex = Regex::new(&format!("^{}$", parts.join("(.*?)")))
            .map_err(|error| place.error(format!("`pattern`: {error}")))?;
        Ok(Self { regex })
    }

    /// `template` with each star replaced by what the star at its position stands for in `name`.
    pub(super) fn fill(&self, name: &str, template: &str) -> String {
        let Some(found) = self.regex.captures(name) else {
            return template.into();
        };
        let mut filled = String::new();
        for (index, part) in template.split('*').enumerate() {
            if index > 0 {
                filled.push_str(found.get(index).map_or("", |text| text.as_str()));
            }
            filled.push_str(part);
        }
        filled
    }
}
