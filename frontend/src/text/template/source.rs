//! What is changed in a template's source before the engine reads it. Tags are found by the engine's own
//! tokens, so that nothing is a tag here and not there.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The filter that keeps namespaces out of namespaces.
pub(super) const PLAIN: &str = "_plain";

/// `source` without the marks that transformers puts around what the assistant says, for training: they
/// print nothing, and the engine does not know them, so that another block with a scope of its own takes
/// their place. What is assigned to a field of a namespace goes through [`PLAIN`].
///
/// A source that the engine cannot read is left as it is from there on, for the engine to say why.
pub(super) fn prepared(source: &str, syntax: SyntaxConfig) -> String {
    let mut changes: Vec<(usize, usize, &str)> = Vec::new();
    // The tag that is open: its first word, and whether the target of its assignment has a dot.
    let (mut first, mut word, mut dotted, mut assigned) = (false, "", false, false);
    let after: String = format!(") | {PLAIN} ");
    for token in tokenize(source, false, syntax) {
        let Ok((token, span)) = token else { break };
        let (start, end) = (span.start_offset as usize, span.end_offset as usize);
        match token {
            Token::BlockStart => (first, word, dotted, assigned) = (true, "", false, false),
            Token::BlockEnd => {
                if assigned {
                    changes.push((start, start, &after));
                }
                (word, assigned) = ("", false);
            }
            Token::Ident(name) if first => {
                (first, word) = (false, name);
                match name {
                    "generation" => changes.push((start, end, "with")),
                    "endgeneration" => changes.push((start, end, "endwith")),
                    _ => {}
                }
            }
            Token::Dot if word == "set" => dotted = true,
            Token::Assign if word == "set" => {
                if dotted {
                    changes.push((end, end, " ("));
                    assigned = true;
                }
                word = "";
            }
            _ => first = false,
        }
    }
    let mut result = String::with_capacity(source.len());
    let mut at = 0;
    for (start, end, new) in changes {
        result.push_str(source.get(at..start).unwrap_or_default());
        result.push_str(new);
        at = end;
    }
    result.push_str(source.get(at..).unwrap_or_default());
    result
}
