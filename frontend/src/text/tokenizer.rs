//! The `tokenizers` crate behind a wall: what it is given is bounded, and where it panics on a
//! hostile file or text, the panic ends here as an error.

mod bounds;

use std::panic::{AssertUnwindSafe, catch_unwind};
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::normalizers::replace::Replace;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::{AddedToken, DecoderWrapper, ModelWrapper, Tokenizer as Inner, TruncationParams};

/// What a token contributes to a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Nothing: a special token, or an id that stands for no token.
    Silent,
    /// One byte, spelled `<0xE2>`, that is text only together with the bytes around it.
    Byte,
    /// Text.
    Text,
}

/// A tokenizer as `tokenizer.json` describes it.
#[derive(Debug)]
pub(super) struct Tokenizer {
    inner: Inner,
    vocabulary: usize,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Padding and truncation, which are for training, are left out.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn new(json: &[u8]) -> Result<Self, String> {
        bounds::check(json)?;
        let mut inner = contain(|| Inner::from_bytes(json).map_err(|error| error.to_string()))?;
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|error| error.to_string())?;
        if let Some(decoder) = one_synthetic_space(&inner)? {
            inner.with_decoder(Some(decoder));
        }
        let vocabulary = contain(|| Ok(largest_id(&inner)))?;
        Ok(Self { inner, vocabulary })
    }

    /// Adds tokens that are found in a text as they stand. A token that is known already takes the
    /// new flags.
    pub(super) fn add(&mut self, tokens: Vec<AddedToken>) -> Result<(), String> {
        if tokens.is_empty() {
            return Ok(());
        }
        let inner = &mut self.inner;
        contain(|| inner.add_tokens(tokens).map_err(|error| error.to_string()))?;
        self.vocabulary = contain(|| Ok(largest_id(&self.inner)))?;
        Ok(())
    }

    /// The added token spelled `content`.
    pub(super) fn added(&self, content: &str) -> Option<&AddedToken> {
        let id = self.inner.token_to_id(content)?;
        self.inner
            .get_added_vocabulary()
            .get_added_tokens_decoder()
            .get(&id)
            .filter(|token| token.content == content)
    }

    pub(super) fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, String> {
        contain(|| {
            let encoding = self.inner.encode_fast(text, add_special);
            encoding
                .map(|encoding| encoding.get_ids().to_vec())
                .map_err(|error| error.to_string())
        })
    }

    /// The tokens of one or two texts with the special ones around them, and the kind of each token:
    /// 0 in the first text, 1 in the second.
    pub(super) fn encode_texts(
        &self,
        first: &str,
        second: Option<&str>,
    ) -> Result<(Vec<u32>, Vec<u32>), String> {
        contain(|| {
            let encoding = match second {
                Some(second) => self.inner.encode_fast((first, second), true),
                None => self.inner.encode_fast(first, true),
            };
            encoding
                .map(|encoding| {
                    (
                        encoding.get_ids().to_vec(),
                        encoding.get_type_ids().to_vec(),
                    )
                })
                .map_err(|error| error.to_string())
        })
    }

    /// From now on what is encoded is cut to `tokens`, special ones included; of two texts the longer
    /// one.
    pub(super) fn truncate_at(&mut self, tokens: usize) -> Result<(), String> {
        let truncation = TruncationParams {
            max_length: tokens,
            ..TruncationParams::default()
        };
        contain(|| {
            let done = self.inner.with_truncation(Some(truncation));
            done.map(|_| ()).map_err(|error| error.to_string())
        })
    }

    /// The text of `tokens` without the special ones; empty where the tokenizer's own decoder fails.
    pub(super) fn decode(&self, tokens: &[u32]) -> String {
        // The crate tells special tokens by their spelling, which fails where they are normalised.
        let tokens: Vec<u32> = (tokens.iter().copied())
            .filter(|&token| !self.is_special(token))
            .collect();
        contain(|| {
            let text = self.inner.decode(&tokens, true);
            text.map_err(|error| error.to_string())
        })
        .unwrap_or_default()
    }

    pub(super) fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// One more than the largest id that stands for a token.
    pub(super) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn is_special(&self, token: u32) -> bool {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        added.get(&token).is_some_and(|token| token.special)
    }

    pub(super) fn kind(&self, token: u32) -> TokenKind {
        let Some(spelling) = self.inner.id_to_token(token) else {
            return TokenKind::Silent;
        };
        let added = self.inner.get_added_vocabulary();
        if self.is_special(token) || added.is_special_token(&spelling) {
            return TokenKind::Silent;
        }
        let digits = spelling
            .strip_prefix("<0x")
            .and_then(|rest| rest.strip_suffix('>'));
        match digits {
            Some(digits) if digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok() => {
                TokenKind::Byte
            }
            _ => TokenKind::Text,
        }
    }
}

/// Runs `work`, a panic in it becoming an error: the crate trusts its files in places (a decoder
/// that strips more than there is, a merge longer than any token).
fn contain<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("the tokenizer failed on this input (a panic inside)".into()))
}

/// One more than the largest id of a token.
fn largest_id(tokenizer: &Inner) -> usize {
    let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
    let added = added.keys().max().map_or(0, |&id| id as usize + 1);
    let count = match tokenizer.get_model() {
        ModelWrapper::BPE(model) => {
            let size = tokenizer.get_vocab_size(false);
            // Ids without gaps are the rule, and cheap to recognise.
            let dense = u32::try_from(size)
                .is_ok_and(|size| tokenizer.id_to_token(size.saturating_sub(1)).is_some());
            match dense {
                true => size,
                false => (model.get_vocab().values().max()).map_or(0, |&id| id as usize + 1),
            }
        }
        _ => {
            let vocabulary = tokenizer.get_vocab(false);
            vocabulary.values().max().map_or(0, |&id| id as usize + 1)
        }
    };
    added.max(count)
}

/// The decoder in place of a `Metaspace` one, which takes every space of a text's first token away:
/// only one of them, at most, was not in the text.
fn one_synthetic_space(tokenizer: &Inner) -> Result<Option<DecoderWrapper>, String> {
    let Some(DecoderWrapper::Metaspace(metaspace)) = tokenizer.get_decoder() else {
        return Ok(None);
    };
    let mark = metaspace.get_replacement().to_string();
    let replace = Replace::new(mark, " ").map_err(|error| error.to_string())?;
    let mut steps: Vec<DecoderWrapper> = vec![replace.into(), Fuse::new().into()];
    if metaspace.get_prepend_scheme() != PrependScheme::Never {
        steps.push(Strip::new(' ', 1, 0).into());
    }
    Ok(Some(Sequence::new(steps).into()))
}
