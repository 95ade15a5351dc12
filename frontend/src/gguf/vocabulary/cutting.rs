//! How a text is cut before its bytes are merged, by the value of `tokenizer.ggml.pre`.

use crate::text::describe::{byte_level, split};
use crate::text::{cased, modern};
use serde_json::{Value, json};

/// The cuts that published models use.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// GPT-2's words.
    Gpt2,
    /// GPT-2's words, each digit alone.
    Gpt2Digits,
    /// Llama 3's words: up to three digits together.
    Threes,
    /// Qwen 2's words: each digit alone.
    Digits,
    /// Qwen 3.5's: as Qwen 2, with marks that belong to letters.
    Marks,
    /// Words by case, as OpenAI's o200k.
    Cased,
    /// Words by case, each digit alone, as Mistral's Tekken.
    CasedDigits,
    /// As o200k, with runs of Han characters apart.
    Han,
    /// Runs of punctuation, GPT-2's words, digits by threes.
    Falcon,
    /// As [`Cut::Falcon`], digits apart from words: where a file says nothing.
    Default,
    DeepSeekLanguage,
    DeepSeekCoder,
    DeepSeek3,
    Bloom,
}

/// A row of the table.
struct Row {
    names: &'static [&'static str],
    cut: Cut,
    /// Whether a word that is a token is taken whole, whatever its merges.
    whole: bool,
    /// Whether a first token is added unless the file says otherwise.
    add_bos: bool,
    /// Whether characters are composed first.
    compose: bool,
}

const fn row(names: &'static [&'static str], cut: Cut) -> Row {
    Row {
        names,
        cut,
        whole: false,
        add_bos: false,
        compose: false,
    }
}

impl Row {
    const fn whole(self) -> Self {
        Self {
            whole: true,
            ..self
        }
    }

    const fn add_bos(self) -> Self {
        Self {
            add_bos: true,
            ..self
        }
    }

    const fn compose(self) -> Self {
        Self {
            compose: true,
            ..self
        }
    }
}

const ROWS: [Row; 17] = [
    row(
        &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "olmo",
            "jais",
            "exaone4",
            "trillion",
            "granite-docling",
            "gigachat",
            "mellum",
            "roberta-bpe",
        ],
        Cut::Gpt2,
    ),
    row(&["mpt", "gpt-neox"], Cut::Gpt2).compose(),
    row(
        &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
        ],
        Cut::Gpt2Digits,
    ),
    row(
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "lfm2",
            "falcon3",
            "pixtral",
        ],
        Cut::Threes,
    )
    .whole()
    .add_bos(),
    row(
        &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe", "seed-coder"],
        Cut::Threes,
    ),
    row(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "hunyuan",
            "megrez",
            "solar-open",
        ],
        Cut::Digits,
    )
    .compose(),
    row(&["qwen35"], Cut::Marks),
    row(&["gpt-4o", "llama4", "minimax-m2"], Cut::Cased),
    row(&["tekken"], Cut::CasedDigits).whole().add_bos(),
    row(&["kimi-k2"], Cut::Han),
    row(&["falcon"], Cut::Falcon),
    row(&["default"], Cut::Default),
    row(&["deepseek-llm"], Cut::DeepSeekLanguage),
    row(&["deepseek-coder"], Cut::DeepSeekCoder),
    row(&["deepseek-v3", "hunyuan-dense"], Cut::DeepSeek3),
    row(&["bloom", "gpt3-finnish", "poro-chat"], Cut::Bloom),
    row(&["viking"], Cut::Bloom),
];

/// GPT-2's words.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Chinese, Japanese and Korean characters as DeepSeek's first models group them.
const EAST: &str = "[一-龥ࠀ-一가-퟿]+";

/// How the texts of a vocabulary are treated.
pub(super) struct Cutting {
    /// Steps before cutting.
    pub(super) normalizer: Vec<Value>,
    /// The steps of cutting, bytes at the end.
    pub(super) steps: Vec<Value>,
    /// As [`Row::whole`].
    pub(super) whole: bool,
    /// As [`Row::add_bos`].
    pub(super) add_bos: bool,
}

/// The cutting called `name`; otherwise the names that are known.
pub(super) fn find(name: &str) -> Result<Cutting, String> {
    let Some(row) = ROWS.iter().find(|row| row.names.contains(&name)) else {
        let known: Vec<&str> = ROWS.iter().flat_map(|row| row.names).copied().collect();
        return Err(known.join(", "));
    };
    let normalizer = match row.compose {
        true => vec![json!({ "type": "NFC" })],
        false => Vec::new(),
    };
    Ok(Cutting {
        normalizer,
        steps: steps(row.cut),
        whole: row.whole,
        add_bos: row.add_bos,
    })
}

fn steps(cut: Cut) -> Vec<Value> {
    let rest = r"\s*[\r\n]+|\s+(?!\S)|\s+";
    let patterns: Vec<String> = match cut {
        Cut::Gpt2 => return vec![byte_level(true, false)],
        Cut::Gpt2Digits => {
            let digits = json!({ "type": "Digits", "individual_digits": true });
            return vec![digits, byte_level(true, false)];
        }
        Cut::Threes => vec![modern("{1,3}")],
        Cut::Digits => vec![modern("")],
        Cut::Marks => vec![format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{rest}"
        )],
        Cut::Cased => vec![format!(
            r"{}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{rest}",
            cased("", true)
        )],
        Cut::CasedDigits => vec![format!(
            r"{}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{rest}",
            cased("", false)
        )],
        Cut::Han => vec![format!(
            r"[\p{{Han}}]+|{}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{rest}",
            cased(r"&&[^\p{Han}]", true)
        )],
        Cut::Falcon => vec![
            r"[\p{P}\$\+<=>\^~\|`]+".into(),
            GPT2.into(),
            "[0-9][0-9][0-9]".into(),
        ],
        Cut::Default => vec![
            r"[\p{P}\$\+<=>\^~\|]+".into(),
            GPT2.into(),
            r"\p{N}+".into(),
            "[0-9][0-9][0-9]".into(),
        ],
        Cut::DeepSeekLanguage => vec![
            "[\r\n]".into(),
            // Letters that have a case; mathematical ones do not count.
            r"\s?[\p{Lu}\p{Ll}\p{Lt}&&[^\x{1D400}-\x{1D7FF}]]+".into(),
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+".into(),
            r"\s+$".into(),
            EAST.into(),
            r"\p{N}+".into(),
        ],
        Cut::DeepSeekCoder => vec![
            "[\r\n]".into(),
            r"\s?\p{L}+".into(),
            r"\s?\p{P}+".into(),
            EAST.into(),
            r"\p{N}".into(),
        ],
        Cut::DeepSeek3 => vec![
            r"\p{N}{1,3}".into(),
            "[一-龥぀-ゟ゠-ヿ]+".into(),
            format!(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{{|}}~][A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{rest}"##
            ),
        ],
        Cut::Bloom => vec![r" ?[^(\s|.,!?…。，、।۔،)]+".into()],
    };
    let mut steps: Vec<Value> = patterns.iter().map(|pattern| split(pattern)).collect();
    steps.push(byte_level(false, false));
    steps
}
