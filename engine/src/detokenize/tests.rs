use super::*;
use proptest::prelude::*;

/// A vocabulary like a byte-fallback tokenizer's: words with a leading space that a text's start
/// drops, single bytes, special tokens without text, and tokens that end amid a character.
struct Vocabulary;

/// Bytes of the pieces 0 to 7; then 0x100 byte tokens from 100.
const PIECES: [&[u8]; 8] = [
    b" the",
    b" cat",
    "é".as_bytes(),
    b"",
    b"\xe2\x82",
    b"\xac!",
    b"\n",
    "\u{fffd}".as_bytes(),
];

impl Decode for Vocabulary {
    fn decode(&self, tokens: &[u32]) -> String {
        let mut text = String::new();
        let mut run: Vec<u8> = Vec::new();
        let mut pieces: Vec<u8> = Vec::new();
        // A run of byte tokens is text as a whole, or one replacement character for each byte.
        let end_run = |run: &mut Vec<u8>, text: &mut String| {
            match std::str::from_utf8(run) {
                Ok(valid) => text.push_str(valid),
                Err(_) => text.extend(run.iter().map(|_| char::REPLACEMENT_CHARACTER)),
            }
            run.clear();
        };
        for &token in tokens {
            if self.kind(token) == TokenKind::Byte {
                text.push_str(&String::from_utf8_lossy(&pieces));
                pieces.clear();
                run.push((token - 100) as u8);
            } else if let Some(piece) = PIECES.get(token as usize).filter(|piece| !piece.is_empty())
            {
                end_run(&mut run, &mut text);
                pieces.extend(*piece);
            }
        }
        end_run(&mut run, &mut text);
        text.push_str(&String::from_utf8_lossy(&pieces));
        let text = text.strip_prefix(' ').unwrap_or(&text);
        text.to_string()
    }

    fn vocabulary(&self) -> usize {
        100 + 256
    }

    fn kind(&self, token: u32) -> TokenKind {
        match PIECES.get(token as usize) {
            _ if (100..356).contains(&token) => TokenKind::Byte,
            None | Some([]) => TokenKind::Silent,
            Some(_) => TokenKind::Text,
        }
    }
}

/// Pushes `tokens` one by one; the pieces, and last what the end returned.
fn stream(tokens: &[u32]) -> Vec<String> {
    let mut detokenizer = Detokenizer::new();
    let push = |&token| detokenizer.push(&Vocabulary, token);
    let mut pieces: Vec<String> = tokens.iter().map(push).collect();
    pieces.push(detokenizer.finish(&Vocabulary));
    pieces
}

#[test]
fn text_comes_as_soon_as_it_is_certain() {
    let check = |tokens: &[u32], expect: &[&str]| assert_eq!(stream(tokens), expect, "{tokens:?}");
    check(&[], &[""]);
    check(&[0, 1, 0], &["the", " cat", " the", ""]);
    // A character over two tokens, and one that never ends.
    check(&[4, 5], &["", "€!", ""]);
    check(&[0, 4], &["the", "", "\u{fffd}"]);
    check(&[4, 0], &["", "\u{fffd} the", ""]);
    // Bytes wait for what follows them; a special token does not end them.
    check(
        &[100 + 0xe2, 100 + 0x82, 3, 100 + 0xac, 0],
        &["", "", "", "", "€ the", ""],
    );
    check(&[100 + 0xe2, 100 + 0x82], &["", "", "\u{fffd}\u{fffd}"]);
    check(
        &[100 + 65, 100 + 0xff, 1],
        &["", "", "\u{fffd}\u{fffd} cat", ""],
    );
    // The replacement character as text of its own.
    check(&[7, 0], &["", "\u{fffd} the", ""]);
}

fn tokens() -> impl Strategy<Value = Vec<u32>> {
    let bytes = prop_oneof![
        Just(0xe2u32),
        Just(0x82),
        Just(0xac),
        0x41..0x44u32,
        0..256u32
    ];
    prop::collection::vec(
        prop_oneof![0..8u32, bytes.prop_map(|byte| 100 + byte)],
        0..200,
    )
}

proptest! {
    #[test]
    fn pieces_are_the_whole(tokens in tokens()) {
        prop_assert_eq!(stream(&tokens).concat(), Vocabulary.decode(&tokens));
    }

    #[test]
    fn text_of_whole_characters_is_never_late(tokens in prop::collection::vec(0..3u32, 1..100)) {
        let pieces = stream(&tokens);
        prop_assert!(pieces[..tokens.len()].iter().all(|piece| !piece.is_empty()));
        prop_assert_eq!(pieces.last().map(String::as_str), Some(""));
    }
}
