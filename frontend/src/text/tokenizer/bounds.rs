//! What a `tokenizer.json` must keep to before the `tokenizers` crate sees it: the crate reads nested
//! steps at a cost that grows with their depth, and a chain of replacements can multiply a text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Steps in one another: published tokenizers have two levels.
const DEPTH: usize = 6;
/// Steps in all of a pipeline.
const STEPS: usize = 256;
/// How much longer a chain of replacements may make a text.
const GROWTH: f64 = 10_000.0;
/// Bytes of all patterns of a part: the longest published expressions have about 1,000. The crate makes
/// an automaton of each.
const PATTERNS: usize = 8 << 10;
/// The sum of all numbers of repetitions (`{1,3}`) in a part's expressions, each of which multiplies what
/// is repeated.
const REPEATED: usize = 64;
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
        if let Some(reason) = seen.broken {
            return Err(format!("`{name}`: {reason}"));
        }
        if seen.patterns > PATTERNS {
            return Err(format!(
                "`{name}` has more than {PATTERNS} bytes of patterns"
            ));
        }
        if seen.repeated > REPEATED {
            return Err(format!(
                "`{name}` has expressions with more than {REPEATED} counted repetitions"
            ));
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

/// The length of the longest text that SentencePiece's map of characters puts in the place of one. The crate
/// allocates as much as the map's first number says before it reads on.
fn longest_replacement(map: &Value) -> Result<usize, String> {
    let text = map
        .as_str()
        .ok_or("`precompiled_charsmap` must be a text")?;
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| format!("`precompiled_charsmap` is not base64: {error}"))?;
    let short = || "`precompiled_charsmap` is shorter than it says".to_string();
    let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
    // The crate reads whole numbers of four bytes.
    let size = u32::from_le_bytes(*size) / 4 * 4;
    let texts = rest.get(size as usize..).ok_or_else(short)?;
    let lengths = texts.split(|&byte| byte == 0).map(<[u8]>::len);
    Ok(lengths.max().unwrap_or(0))
}

/// What a walk over a pipeline found.
#[derive(Default)]
struct Seen {
    depth: usize,
    steps: usize,
    growth: f64,
    patterns: usize,
    repeated: usize,
    /// What the crate would take at its word.
    broken: Option<String>,
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
                if let Some(pattern) = fields.get("pattern") {
                    self.pattern(pattern);
                }
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
                if let Some(map) = fields.get("precompiled_charsmap") {
                    match longest_replacement(map) {
                        Ok(longest) => self.growth *= longest.max(1) as f64,
                        Err(reason) => self.broken = Some(reason),
                    }
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

    fn pattern(&mut self, pattern: &Value) {
        let expression = pattern["Regex"].as_str();
        for text in [expression, pattern["String"].as_str()]
            .into_iter()
            .flatten()
        {
            self.patterns += text.len();
        }
        for counts in expression
            .into_iter()
            .flat_map(|text| text.split('{').skip(1))
        {
            // A name of a property (`\p{N}`) or the like is no count.
            let counts = counts.split('}').next().unwrap_or_default();
            let counts = counts
                .split(',')
                .filter_map(|count| count.trim().parse().ok());
            self.repeated = counts.fold(self.repeated, usize::saturating_add);
        }
    }
}
