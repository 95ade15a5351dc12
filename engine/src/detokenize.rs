//! Text from tokens, as they come.

/// Turns token ids into text, special tokens left out.
pub trait Decode {
    /// The text of `tokens`; ids that are not in the vocabulary have none.
    fn decode(&self, tokens: &[u32]) -> String;

    /// Entries of the vocabulary. A model may have embeddings for more, which are padding.
    fn vocabulary(&self) -> usize;

    /// Whether `token` stands for one byte (as `<0xE2>` does) that is text only together with the
    /// bytes around it.
    fn is_byte(&self, token: u32) -> bool;
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
    window: Vec<u32>,
    /// Bytes of the window's text that were returned.
    returned: usize,
    /// Whether the latest token with text was a byte.
    in_bytes: bool,
}

impl Detokenizer {
    /// A decoder before its first token.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next token and returns the text that is now certain.
    pub fn push(&mut self, decode: &dyn Decode, token: u32) -> String {
        self.window.push(token);
        if decode.is_byte(token) {
            self.in_bytes = true;
        } else if self.in_bytes {
            // A token without text does not end a run of bytes.
            self.in_bytes = decode.decode(&[token]).is_empty();
        }
        if self.in_bytes {
            return String::new();
        }
        let text = decode.decode(&self.window);
        let certain = text
            .strip_suffix(char::REPLACEMENT_CHARACTER)
            .unwrap_or(&text);
        let piece = certain.get(self.returned..).unwrap_or_default().to_string();
        self.returned += piece.len();
        if self.window.len() >= WINDOW && certain.len() == text.len() {
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

    /// Drops all but a few tokens, if those have text: the first token with text may decode
    /// differently at the start of a text.
    fn cut(&mut self, decode: &dyn Decode) {
        let context = self.window.split_off(self.window.len() - CONTEXT);
        let length = decode.decode(&context).len();
        if length == 0 {
            self.window.extend(context);
        } else {
            self.window = context;
            self.returned = length;
        }
    }
}

#[cfg(test)]
mod tests;
