//! A model's tokenizer as the decoder of its tokens.

use crate::detokenize::Decode;
use mlxcel_frontend::Text;

impl Decode for Text {
    fn decode(&self, tokens: &[u32]) -> String {
        Text::decode(self, tokens)
    }

    fn vocabulary(&self) -> usize {
        Text::vocabulary(self)
    }

    fn is_byte(&self, token: u32) -> bool {
        Text::is_byte(self, token)
    }
}
