//! What a `tokenizer.json` must keep to before the `tokenizers` crate sees it: the crate reads nested
//! steps at a cost that grows with their depth, and a chain of replacements can multiply a text.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Steps in one another: published tokenizers have two levels.
const DEPTH: usize = 6;
/// Steps in all of a pipeline.
const STEPS: usize = 256;
/// How much longer a chain of replacements may make a text.
const GROWTH: f64 = 10_000.0;
/// Bytes of the mark on the inner parts of a word: BERT's has two.
const PREFIX: usize = 64;

#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: Model,
}

/// The fields of a model whose misuse the crate does not notice; the vocabulary is skipped.
#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    r#type: Option<String>,
    #[serde(default)]
    dropout: Option<f64>,
    #[serde(default)]
    merges: Option<IgnoredAny>,
}

/// Checks the description of a tokenizer.
///
/// # Errors
/// The field at fault and the limit.
pub(super) fn check(json: &[u8]) -> Result<(), String> {
    let outline: Outline = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let parts = [
        ("normalizer", &outline.normalizer),
        ("pre_tokenizer", &outline.pre_tokenizer),
        ("post_processor", &outline.post_processor),
        ("decoder", &outline.decoder),
    ];
    for (name, part) in parts {
        let mut seen = Seen::default();
        seen.walk(part, 0);
        if seen.depth > DEPTH {
            return Err(format!("`{name}` nests deeper than {DEPTH} levels"));
        }
        if seen.steps > STEPS {
            return Err(format!("`{name}` has more than {STEPS} steps"));
        }
        if seen.growth > GROWTH {
            return Err(format!(
                "`{name}` may make a text more than {GROWTH} times as long"
            ));
        }
    }
    let model = outline.model;
    if model.dropout.is_some_and(|dropout| dropout != 0.0) {
        return Err("`model.dropout` makes tokens random; remove it".into());
    }
    let merging = model.merges.is_some() && model.r#type.is_none_or(|kind| kind == "BPE");
    let prefix = model.continuing_subword_prefix.unwrap_or_default();
    if merging && !prefix.is_empty() {
        check_merges(json, &prefix)?;
    }
    Ok(())
}

/// The crate cuts the prefix off the right part of each merge without looking at it.
fn check_merges(json: &[u8], prefix: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Tokenizer {
        model: Merging,
    }
    #[derive(Deserialize)]
    struct Merging {
        merges: Vec<Value>,
    }
    if prefix.len() > PREFIX {
        return Err("`model.continuing_subword_prefix` is too long".into());
    }
    let tokenizer: Tokenizer = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    for merge in &tokenizer.model.merges {
        let right = match merge {
            Value::String(pair) => pair.split_once(' ').map(|(_, right)| right),
            pair => pair[1].as_str(),
        };
        if !right.is_some_and(|right| right.starts_with(prefix)) {
            return Err(format!(
                "`model.merges`: the right part of {merge} does not start with `{prefix}`"
            ));
        }
    }
    Ok(())
}

/// What a walk over a pipeline found.
#[derive(Default)]
struct Seen {
    depth: usize,
    steps: usize,
    growth: f64,
}

impl Seen {
    fn walk(&mut self, step: &Value, depth: usize) {
        if depth == 0 {
            self.growth = 1.0;
        }
        self.depth = self.depth.max(depth);
        if self.depth > DEPTH || self.steps > STEPS {
            return;
        }
        match step {
            Value::Array(steps) => {
                for step in steps {
                    self.walk(step, depth + 1);
                }
            }
            Value::Object(fields) => {
                self.steps += 1;
                if let Some(content) = fields.get("content").and_then(Value::as_str)
                    && fields.contains_key("pattern")
                {
                    // At least one byte becomes the content; an expression may match nothing at all.
                    let shortest = fields["pattern"]["String"].as_str().map_or(0, str::len);
                    self.growth *= match shortest {
                        0 => 1.0 + content.len() as f64,
                        shortest => (content.len() as f64 / shortest as f64).max(1.0),
                    };
                }
                if let Some(prefix) = fields.get("prepend").and_then(Value::as_str) {
                    self.growth *= 1.0 + prefix.len() as f64;
                }
                for step in fields.values().filter(|value| value.is_array()) {
                    self.walk(step, depth + 1);
                }
            }
            _ => {}
        }
    }
}
