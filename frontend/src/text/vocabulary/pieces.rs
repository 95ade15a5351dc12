//! SentencePiece's pieces as a tokenizer: from a file of its own, or embedded in GGUF.

use super::describe::{self, SPACE, Tokenizer};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use tokenizers::AddedToken;

/// Longer pieces take no part in merging, which looks at every way to split one; no published
/// vocabulary has one half as long.
const LONGEST: usize = 512;
/// The longest expression of user-defined pieces, in bytes.
const LONGEST_PATTERN: usize = 1 << 20;

/// What a piece is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text.
    Normal,
    /// What unknown text becomes.
    Unknown,
    /// A mark that text never becomes.
    Control,
    /// Text that always is this piece.
    UserDefined,
    /// No text.
    Unused,
    /// A byte of unknown text.
    Byte,
}

impl Kind {
    /// The kind that SentencePiece numbers so.
    pub(crate) fn from_number(number: i64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

/// An entry of the vocabulary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) text: &'a str,
    pub(crate) score: f32,
    pub(crate) kind: Kind,
}

/// Where a space is added that is not in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Nowhere.
    Never,
    /// At the start of the text.
    First,
    /// At the start of each part between special tokens.
    Always,
}

/// How pieces are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage<'a> {
    /// The best pieces by the sum of their scores, instead of merging the best pair first.
    pub(crate) unigram: bool,
    /// Unknown characters become bytes.
    pub(crate) bytes: bool,
    /// The id of the unknown piece.
    pub(crate) unknown: usize,
    pub(crate) prefix: Prefix,
    /// Runs of spaces become one, those around a text none.
    pub(crate) squeeze: bool,
    /// SentencePiece's compiled map of characters.
    pub(crate) characters: Option<&'a [u8]>,
}

/// The tokenizer of `pieces`, whose ids are their places.
pub(crate) fn tokenizer(pieces: &[Piece<'_>], usage: Usage<'_>) -> Result<Tokenizer, String> {
    let unknown = pieces
        .get(usage.unknown)
        .ok_or("the id of the unknown piece is not in the vocabulary")?;
    let user = user_defined(pieces)?;
    let model = match usage.unigram {
        true => unigram(pieces, usage),
        false => merging(pieces, usage, unknown.text, user.is_some()),
    };
    let mut normalizer = Vec::new();
    if let Some(characters) = usage.characters {
        let map = STANDARD.encode(characters);
        normalizer.push(json!({ "type": "Precompiled", "precompiled_charsmap": map }));
    }
    if usage.squeeze {
        normalizer.push(describe::replace_matches(r"\A +|[ ▁]+\z", ""));
        normalizer.push(describe::replace_matches(" {2,}", " "));
    }
    let mut pre_tokenizer = Vec::new();
    match usage.prefix {
        Prefix::Never => {}
        Prefix::Always => normalizer.push(json!({ "type": "Prepend", "prepend": SPACE })),
        Prefix::First => pre_tokenizer.push(json!({
            "type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": false,
        })),
    }
    normalizer.push(describe::replace(" ", SPACE));
    pre_tokenizer.extend(user.map(|pattern| describe::split(&pattern)));
    let added = pieces.iter().enumerate().filter_map(|(id, piece)| {
        let special = matches!(piece.kind, Kind::Unknown | Kind::Control);
        let token = AddedToken::from(piece.text, true);
        (special && !piece.text.is_empty()).then(|| describe::added(id, &token))
    });
    Ok(Tokenizer {
        added: added.collect(),
        normalizer,
        pre_tokenizer,
        post_processor: Value::Null,
        decoder: describe::pieces_decoder(usage.prefix != Prefix::Never),
        model,
    })
}

fn unigram(pieces: &[Piece<'_>], usage: Usage<'_>) -> Value {
    let vocab: Vec<Value> = pieces
        .iter()
        .map(|piece| json!([piece.text, piece.score]))
        .collect();
    json!({
        "type": "Unigram", "unk_id": usage.unknown, "vocab": vocab, "byte_fallback": usage.bytes,
    })
}

/// Merges are the ways to split a piece in two, those of the best pieces first.
fn merging(pieces: &[Piece<'_>], usage: Usage<'_>, unknown: &str, whole: bool) -> Value {
    let mut vocab = Map::new();
    let mut normal = HashMap::new();
    for (id, piece) in pieces.iter().enumerate() {
        if !vocab.contains_key(piece.text) {
            vocab.insert(piece.text.into(), json!(id));
            if piece.kind == Kind::Normal {
                normal.insert(piece.text, id);
            }
        }
    }
    let mut merges = Vec::new();
    for (id, piece) in pieces.iter().enumerate() {
        if piece.kind != Kind::Normal || piece.text.len() > LONGEST {
            continue;
        }
        for (at, _) in piece.text.char_indices().skip(1) {
            let (left, right) = piece.text.split_at(at);
            if let (Some(&a), Some(&b)) = (normal.get(left), normal.get(right)) {
                merges.push((piece.score, id, a, b));
            }
        }
    }
    merges.sort_unstable_by(|x, y| {
        let key = |merge: &(f32, usize, usize, usize)| (merge.1, merge.2, merge.3);
        y.0.total_cmp(&x.0).then(key(x).cmp(&key(y)))
    });
    let merges = merges
        .into_iter()
        .map(|(_, _, left, right)| json!([pieces[left].text, pieces[right].text]))
        .collect();
    let mut model = describe::bpe(vocab, merges);
    model["unk_token"] = unknown.into();
    model["fuse_unk"] = true.into();
    model["byte_fallback"] = usage.bytes.into();
    // A user-defined piece is cut out of the text, and is a token as a whole.
    model["ignore_merges"] = whole.into();
    model
}

/// An expression that matches the user-defined pieces, the longest first.
fn user_defined(pieces: &[Piece<'_>]) -> Result<Option<String>, String> {
    let mut texts: Vec<&str> = pieces
        .iter()
        .filter(|piece| piece.kind == Kind::UserDefined && !piece.text.is_empty())
        .map(|piece| piece.text)
        .collect();
    if texts.is_empty() {
        return Ok(None);
    }
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let mut pattern = String::new();
    for text in texts {
        if !pattern.is_empty() {
            pattern.push('|');
        }
        for c in text.chars() {
            if r"\.+*?()|[]{}^$#&-~".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        if pattern.len() > LONGEST_PATTERN {
            return Err("the user-defined pieces are too long together".into());
        }
    }
    Ok(Some(pattern))
}
