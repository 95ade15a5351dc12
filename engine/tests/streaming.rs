//! Streamed text is the decoding of all tokens, with the tokenizers of every form and any tokens.

use mlxcel_engine::{Decode, Detokenizer};
use mlxcel_frontend::Text;
use mlxcel_test_support::{demo_model, repository};
use proptest::prelude::*;
use std::sync::OnceLock;

/// The tokenizers, by the folder they are in.
fn texts() -> &'static [(String, Text)] {
    static TEXTS: OnceLock<Vec<(String, Text)>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let folder = repository().join("frontend/tests/tokenizers");
        let entries = std::fs::read_dir(folder).expect("fixtures");
        let mut folders: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path())
            .collect();
        folders.retain(|path| path.is_dir());
        folders.push(demo_model());
        folders.sort();
        let load = |path: std::path::PathBuf| {
            let text = Text::from_folder(&path).unwrap_or_else(|error| panic!("{error}"));
            (path.display().to_string(), text)
        };
        folders.into_iter().map(load).collect()
    })
}

fn stream(text: &Text, tokens: &[u32]) -> String {
    let mut detokenizer = Detokenizer::new();
    let mut all: String = (tokens.iter())
        .map(|&token| detokenizer.push(text, token))
        .collect();
    all.push_str(&detokenizer.finish(text));
    all
}

fn check(tokens: &[u32]) {
    for (name, text) in texts() {
        let own = stream(text, tokens);
        assert_eq!(own, Decode::decode(text, tokens), "{name} {tokens:?}");
    }
}

#[test]
fn hard_texts_stream_whole() {
    for input in [
        "",
        "   <|startoftranscript|> <|en|>   ",
        "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467} 日本語 é e\u{301} \u{0}\u{1}\t\r\n\n",
        "[View](#)\n[View](#)\n",
        "▁▁ ▁a   b",
    ] {
        for (name, text) in texts() {
            let tokens = text.encode(input, true).expect("tokens");
            assert_eq!(
                stream(text, &tokens),
                text.decode(&tokens),
                "{name} {input:?}"
            );
        }
    }
    // Past the vocabulary there is no text, and nothing fails.
    check(&[u32::MAX, 1_000_000, 3, u32::MAX, 5]);
}

/// Runs of one token, longer than what is decoded at a time.
#[test]
fn runs_of_a_token_stream_whole() {
    for token in (0..700).step_by(5) {
        for (name, text) in texts() {
            let tokens = vec![token; 50];
            assert_eq!(
                stream(text, &tokens),
                text.decode(&tokens),
                "{name} {token}"
            );
        }
    }
}

fn tokens() -> impl Strategy<Value = Vec<u32>> {
    // Low ids are bytes and special tokens in most of the vocabularies.
    let token = prop_oneof![4 => 0..270u32, 4 => 0..760u32, 1 => any::<u32>()];
    let run = (token, 1..5usize).prop_map(|(token, count)| vec![token; count]);
    prop::collection::vec(run, 0..60).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_tokens_stream_whole(tokens in tokens()) {
        check(&tokens);
    }
}
