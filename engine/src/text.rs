//! A model's tokenizer as the decoder of its tokens.

use crate::detokenize::{Decode, TokenKind};
use mlxcel_frontend::Text;

impl Decode for Text {
    fn decode(&self, tokens: &[u32]) -> String {
        Text::decode(self, tokens)
    }

    fn vocabulary(&self) -> usize {
        Text::vocabulary(self)
    }

    fn kind(&self, token: u32) -> TokenKind {
        Text::token_kind(self, token)
    }
}
