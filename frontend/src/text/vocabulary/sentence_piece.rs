//! SentencePiece's own file: a protocol buffer with pieces and how they are used.

use super::describe::{self, Tokenizer};
use super::pieces::{self, Kind, Piece, Prefix, Usage};
use super::proto::{Field, Fields};
use crate::text::settings::TokenizerSettings;
use serde_json::{Map, Value};

/// Field numbers of `sentencepiece_model.proto`.
mod field {
    pub(super) const PIECES: u64 = 1;
    pub(super) const TRAINER: u64 = 2;
    pub(super) const NORMALIZER: u64 = 3;
    pub(super) const PIECE_TEXT: u64 = 1;
    pub(super) const PIECE_SCORE: u64 = 2;
    pub(super) const PIECE_KIND: u64 = 3;
    pub(super) const MODEL_TYPE: u64 = 3;
    pub(super) const SPACE_AFTER: u64 = 24;
    pub(super) const BYTE_FALLBACK: u64 = 35;
    pub(super) const UNKNOWN: u64 = 40;
    pub(super) const BOS: u64 = 41;
    pub(super) const EOS: u64 = 42;
    pub(super) const PAD: u64 = 43;
    pub(super) const CHARACTERS: u64 = 2;
    pub(super) const DUMMY_PREFIX: u64 = 3;
    pub(super) const SQUEEZE: u64 = 4;
    pub(super) const ESCAPE: u64 = 5;
}

/// What the file says.
struct File<'a> {
    pieces: Vec<Piece<'a>>,
    unigram: bool,
    bytes: bool,
    /// Ids of the special pieces, negative where there is none.
    unknown: i32,
    bos: i32,
    eos: i32,
    pad: i32,
    characters: Option<&'a [u8]>,
    dummy_prefix: bool,
    squeeze: bool,
}

impl<'a> File<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let mut file = Self {
            pieces: Vec::new(),
            unigram: true,
            bytes: false,
            unknown: 0,
            bos: 1,
            eos: 2,
            pad: -1,
            characters: None,
            dummy_prefix: true,
            squeeze: true,
        };
        for entry in Fields::new(bytes) {
            match entry? {
                (field::PIECES, Field::Bytes(message)) => {
                    let id = file.pieces.len();
                    file.pieces.push(piece(message, id)?);
                }
                (field::TRAINER, Field::Bytes(message)) => file.trainer(message)?,
                (field::NORMALIZER, Field::Bytes(message)) => file.normalizer(message)?,
                _ => {}
            }
        }
        match file.pieces.is_empty() {
            true => Err("is not a SentencePiece model: it has no pieces".into()),
            false => Ok(file),
        }
    }

    fn trainer(&mut self, message: &'a [u8]) -> Result<(), String> {
        for entry in Fields::new(message) {
            // Negative numbers are written in full, so that their low half is the 32-bit number.
            match entry? {
                (field::MODEL_TYPE, Field::Number(kind)) => {
                    self.unigram = match kind {
                        1 => true,
                        2 => false,
                        3 => return Err("models of whole words are not supported".into()),
                        4 => return Err("models of single characters are not supported".into()),
                        _ => return Err(format!("`trainer_spec.model_type` is {kind}")),
                    };
                }
                (field::SPACE_AFTER, Field::Number(1..)) => {
                    return Err("`treat_whitespace_as_suffix` is not supported".into());
                }
                (field::BYTE_FALLBACK, Field::Number(flag)) => self.bytes = flag != 0,
                (field::UNKNOWN, Field::Number(id)) => self.unknown = id as i32,
                (field::BOS, Field::Number(id)) => self.bos = id as i32,
                (field::EOS, Field::Number(id)) => self.eos = id as i32,
                (field::PAD, Field::Number(id)) => self.pad = id as i32,
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, message: &'a [u8]) -> Result<(), String> {
        for entry in Fields::new(message) {
            match entry? {
                (field::CHARACTERS, Field::Bytes(map)) if !map.is_empty() => {
                    self.characters = Some(map);
                }
                (field::DUMMY_PREFIX, Field::Number(flag)) => self.dummy_prefix = flag != 0,
                (field::SQUEEZE, Field::Number(flag)) => self.squeeze = flag != 0,
                (field::ESCAPE, Field::Number(0)) => {
                    return Err("`escape_whitespaces` off is not supported".into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn text(&self, id: i32) -> Option<&'a str> {
        let piece = self.pieces.get(usize::try_from(id).ok()?)?;
        Some(piece.text)
    }
}

fn piece(message: &[u8], id: usize) -> Result<Piece<'_>, String> {
    let mut piece = Piece {
        text: "",
        score: 0.0,
        kind: Kind::Normal,
    };
    for entry in Fields::new(message) {
        match entry? {
            (field::PIECE_TEXT, Field::Bytes(text)) => {
                piece.text = std::str::from_utf8(text)
                    .map_err(|_| format!("the text of piece {id} is not UTF-8"))?;
            }
            (field::PIECE_SCORE, Field::Fixed(score)) => piece.score = f32::from_le_bytes(score),
            (field::PIECE_KIND, Field::Number(kind)) => {
                piece.kind = i64::try_from(kind)
                    .ok()
                    .and_then(Kind::from_number)
                    .ok_or_else(|| format!("the kind of piece {id} is {kind}"))?;
            }
            _ => {}
        }
    }
    match piece.score.is_finite() {
        true => Ok(piece),
        false => Err(format!("the score of piece {id} is not a number")),
    }
}

/// The tokenizer that the file `bytes` describes.
pub(super) fn tokenizer(
    bytes: &[u8],
    settings: &TokenizerSettings,
) -> Result<(Tokenizer, Map<String, Value>), String> {
    let mut file = File::parse(bytes)?;
    let known = [
        ("unk_token", file.text(file.unknown)),
        ("bos_token", file.text(file.bos)),
        ("eos_token", file.text(file.eos)),
        ("pad_token", file.text(file.pad)),
    ];
    let mut special: Map<String, Value> = (known.iter())
        .filter_map(|(name, text)| Some((name.to_string(), (*text)?.into())))
        .collect();
    let class = settings.class.as_str();
    if matches!(class, "XLMRobertaTokenizer" | "CamembertTokenizer") {
        fairseq(&mut file)?;
    }
    let prefix = match (
        file.dummy_prefix,
        settings.add_prefix_space,
        settings.legacy,
    ) {
        (false, _, _) | (_, Some(false), _) => Prefix::Never,
        (_, _, Some(false)) => Prefix::First,
        _ => Prefix::Always,
    };
    let usage = Usage {
        unigram: file.unigram,
        bytes: file.bytes,
        unknown: usize::try_from(file.unknown).map_err(|_| "has no unknown piece")?,
        prefix,
        squeeze: file.squeeze,
        characters: file.characters,
    };
    let mut tokenizer = pieces::tokenizer(&file.pieces, usage)?;
    let id = |token: &str| file.pieces.iter().position(|piece| piece.text == token);
    let (before, after): (&[&str], &[&str]) = match class {
        "T5Tokenizer" | "MT5Tokenizer" | "PegasusTokenizer" => (&[], &["</s>"]),
        "XLMRobertaTokenizer" | "CamembertTokenizer" => (&["<s>"], &["</s>"]),
        "AlbertTokenizer" | "DebertaV2Tokenizer" => (&["[CLS]"], &["[SEP]"]),
        _ => {
            special.insert("add_bos_token".into(), (file.bos >= 0).into());
            (&[], &[])
        }
    };
    let ids = |tokens: &[&'static str]| -> Vec<(&'static str, usize)> {
        (tokens.iter())
            .filter_map(|&token| Some((token, id(token)?)))
            .collect()
    };
    if !before.is_empty() || !after.is_empty() {
        tokenizer.post_processor = describe::around(&ids(before), &ids(after));
    }
    Ok((tokenizer, special))
}

/// The order of ids that fairseq gave XLM-RoBERTa: its own special tokens come first, and the pieces
/// move up by one.
fn fairseq(file: &mut File<'_>) -> Result<(), String> {
    if file.pieces.len() < 3 {
        return Err("has fewer than three pieces".into());
    }
    let special = |text, kind| Piece {
        text,
        score: 0.0,
        kind,
    };
    let first = [
        special("<s>", Kind::Control),
        special("<pad>", Kind::Control),
        special("</s>", Kind::Control),
        special("<unk>", Kind::Unknown),
    ];
    file.pieces.splice(0..3, first);
    file.pieces.push(special("<mask>", Kind::Control));
    file.unknown = 3;
    Ok(())
}
