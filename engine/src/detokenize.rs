//! Text from tokens, as they come.

pub use mlxcel_frontend::TokenKind;

/// Turns token ids into text, special tokens left out.
pub trait Decode {
    /// The text of `tokens`; ids that are not in the vocabulary have none.
    fn decode(&self, tokens: &[u32]) -> String;

    /// Entries of the vocabulary. A model may have embeddings for more, which are padding.
    fn vocabulary(&self) -> usize;

    /// What `token` contributes to a text. A [`TokenKind::Silent`] token must not change how the
    /// tokens around it decode.
    fn kind(&self, token: u32) -> TokenKind;
}

/// Tokens of context that are kept so that a word's first space, say, decodes as it should.
const CONTEXT: usize = 4;
/// Tokens in the window before it is cut back to [`CONTEXT`].
const WINDOW: usize = 32;

/// A streaming decoder: the pieces that it returns, put together, are the decoding of all tokens.
///
/// Only a window of the latest tokens is decoded each time. Text is held back while a later token
/// may still change it: a replacement character at the end may be the start of a character, and a
/// run of byte tokens is text or garbage as a whole.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    /// The latest tokens with text.
    window: Vec<u32>,
    /// Bytes of the window's text that were returned.
    returned: usize,
}

impl Detokenizer {
    /// A decoder before its first token.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next token and returns the text that is now certain.
    pub fn push(&mut self, decode: &dyn Decode, token: u32) -> String {
        match decode.kind(token) {
            TokenKind::Silent => return String::new(),
            TokenKind::Byte => {
                self.window.push(token);
                return String::new();
            }
            TokenKind::Text => self.window.push(token),
        }
        let text = decode.decode(&self.window);
        let certain = certain(&text);
        let piece = certain.get(self.returned..).unwrap_or_default().to_string();
        self.returned += piece.len();
        if self.window.len() >= WINDOW {
            self.cut(decode);
        }
        piece
    }

    /// Ends the text and returns what was held back.
    pub fn finish(&mut self, decode: &dyn Decode) -> String {
        let text = decode.decode(&self.window);
        let piece = text.get(self.returned..).unwrap_or_default().to_string();
        *self = Self::new();
        piece
    }

    /// Drops all but a few tokens, if those have text of their own: the first token with text may
    /// decode differently at the start of a text, and the bytes of an unfinished character, three at
    /// most, must all be kept.
    fn cut(&mut self, decode: &dyn Decode) {
        let context = &self.window[self.window.len() - CONTEXT..];
        let text = decode.decode(context);
        let certain = certain(&text);
        let enough = match certain.len() == text.len() {
            true => !text.is_empty(),
            false => text.chars().count() >= CONTEXT,
        };
        if enough {
            self.returned = certain.len();
            self.window = context.to_vec();
        }
    }
}

/// `text` without what may be the start of a character.
fn certain(text: &str) -> &str {
    text.strip_suffix(char::REPLACEMENT_CHARACTER)
        .unwrap_or(text)
}

#[cfg(test)]
mod tests;
