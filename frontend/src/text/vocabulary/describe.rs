//! The parts of a `tokenizer.json`.

use serde_json::{Map, Value, json};
use tokenizers::AddedToken;

/// What SentencePiece has in place of a space.
pub(crate) const SPACE: &str = "\u{2581}";

/// A `tokenizer.json` in parts; a part left null does nothing.
#[derive(Debug, Default)]
pub(crate) struct Tokenizer {
    /// Tokens that are found in a text as they stand.
    pub(crate) added: Vec<Value>,
    /// What is done to a text first.
    pub(crate) normalizer: Vec<Value>,
    /// How a text is cut into words.
    pub(crate) pre_tokenizer: Vec<Value>,
    /// What is added around a text.
    pub(crate) post_processor: Value,
    /// How tokens become text.
    pub(crate) decoder: Value,
    /// The vocabulary.
    pub(crate) model: Value,
}

impl Tokenizer {
    /// The whole.
    pub(crate) fn json(self) -> Value {
        let sequence = |field: &str, steps: Vec<Value>| match steps.is_empty() {
            true => Value::Null,
            false => json!({ "type": "Sequence", field: steps }),
        };
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": self.added,
            "normalizer": sequence("normalizers", self.normalizer),
            "pre_tokenizer": sequence("pretokenizers", self.pre_tokenizer),
            "post_processor": self.post_processor,
            "decoder": self.decoder,
            "model": self.model,
        })
    }
}

/// An added token.
pub(crate) fn added(id: usize, token: &AddedToken) -> Value {
    json!({
        "id": id,
        "content": token.content,
        "single_word": token.single_word,
        "lstrip": token.lstrip,
        "rstrip": token.rstrip,
        "normalized": token.normalized,
        "special": token.special,
    })
}

/// A model that merges the pairs of `merges`, the first ones first.
pub(crate) fn bpe(vocab: Map<String, Value>, merges: Vec<Value>) -> Value {
    json!({
        "type": "BPE",
        "dropout": null,
        "unk_token": null,
        "continuing_subword_prefix": null,
        "end_of_word_suffix": null,
        "fuse_unk": false,
        "byte_fallback": false,
        "ignore_merges": false,
        "vocab": vocab,
        "merges": merges,
    })
}

/// A step that replaces one text by another.
pub(crate) fn replace(pattern: &str, content: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "String": pattern }, "content": content })
}

/// A step that replaces the matches of an expression.
pub(crate) fn replace_matches(pattern: &str, content: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "Regex": pattern }, "content": content })
}

/// A cut into the matches of an expression and what lies between them.
pub(crate) fn split(pattern: &str) -> Value {
    json!({
        "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false,
    })
}

/// Bytes as the characters that stand for them, cut as GPT-2 does with `cut`.
pub(crate) fn byte_level(cut: bool, prefix_space: bool) -> Value {
    json!({
        "type": "ByteLevel",
        "add_prefix_space": prefix_space,
        "trim_offsets": true,
        "use_regex": cut,
    })
}

/// The way back from [`byte_level`].
pub(crate) fn byte_level_decoder() -> Value {
    byte_level(true, true)
}

/// The way back from SentencePiece's pieces; `prefix` drops the space that was added at the start.
pub(crate) fn pieces_decoder(prefix: bool) -> Value {
    let mut decoders = vec![
        replace(SPACE, " "),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if prefix {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    json!({ "type": "Sequence", "decoders": decoders })
}

/// Special tokens before and after a text.
pub(crate) fn around(before: &[(&str, usize)], after: &[(&str, usize)]) -> Value {
    let special = |kind: usize| move |&(token, _): &(&str, usize)| json!({ "SpecialToken": { "id": token, "type_id": kind } });
    let text = |name: &str, kind: usize| json!({ "Sequence": { "id": name, "type_id": kind } });
    let first: Vec<Value> = (before.iter().map(special(0)))
        .chain([text("A", 0)])
        .chain(after.iter().map(special(0)))
        .collect();
    let pair: Vec<Value> = (first.iter().cloned())
        .chain([text("B", 1)])
        .chain(after.iter().map(special(1)))
        .collect();
    let tokens: Map<String, Value> = (before.iter().chain(after))
        .map(|&(token, id)| {
            let entry = json!({ "id": token, "ids": [id], "tokens": [token] });
            (token.into(), entry)
        })
        .collect();
    json!({
        "type": "TemplateProcessing", "single": first, "pair": pair, "special_tokens": tokens,
    })
}

/// The character that stands for `byte` in a vocabulary of bytes: itself where it is printable in
/// Latin-1, else the next free one from U+0100 on, as GPT-2's vocabulary has it.
pub(crate) fn byte_char(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&byte| !printable(byte)).count();
    char::from_u32(256 + before as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The spelling of `bytes` in a vocabulary of bytes.
pub(crate) fn byte_chars(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| byte_char(byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_characters_of_their_own() {
        let check = |byte: u8, expect: char| assert_eq!(byte_char(byte), expect, "{byte}");
        check(b'a', 'a');
        check(b' ', 'Ġ');
        check(b'\n', 'Ċ');
        check(0, 'Ā');
        check(0xff, 'ÿ');
        check(0xad, 'Ń');
        let all: std::collections::BTreeSet<char> = (0..=255).map(byte_char).collect();
        assert_eq!(all.len(), 256);
    }
}
